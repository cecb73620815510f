//! Requests of clients that are fenced: refused when their turn comes. Why that is enough: [`crate::blocklist`].

use super::Pg;
use super::request::{Origin, Request, Work};
use crate::action::Ctx;
use crate::blocklist::is_blocklisted;
use crate::shared::Shared;
use base::Errno;
use store::ObjectStore;
use wire::messages::MOsdOp;

impl Pg {
    /// Its client has been put on the blocklist.
    pub(super) fn is_fenced<S: ObjectStore>(&self, sh: &Shared<S>, ctx: &Ctx<'_>, request: &Request) -> bool {
        let sabotage = sh.config.sabotage;
        if sabotage.ignore_fence || sabotage.fence_arrivals_only && request.arrived < ctx.now {
            return false;
        }
        // Ceph's OSD lists objects for everybody.
        !request.is_pg_op()
            && match &request.origin {
                Origin::Client { who, .. } => is_blocklisted(sh.maps.map(), &who.addr),
                Origin::Copy { .. } | Origin::Own => false,
            }
    }

    pub(super) fn refuse_fenced<S: ObjectStore>(&mut self, sh: &mut Shared<S>, request: Box<Request>) {
        if let Work::Op(MOsdOp { object, .. }, ..) = &request.work {
            tracing::info!(pg = %self.id, %object, client = %request.reqid.name, "refused: the client is blocklisted");
        }
        self.reply_error(sh, request, Errno::ESHUTDOWN);
    }
}
