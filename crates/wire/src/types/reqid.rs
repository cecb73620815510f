use super::EntityName;
use crate::codec::{Decode, Decoder, Encode, Encoder, Result};

/// `osd_reqid_t`: one client request for all of time. A resent request has the
/// same id and must take effect once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReqId {
    pub name: EntityName,
    pub tid: u64,
    /// The client's incarnation; 0 but for MDS ranks.
    pub inc: i32,
}

impl ReqId {
    /// Of changes that no client has asked for.
    pub const NONE: ReqId = ReqId { name: EntityName::client(-1), tid: 0, inc: 0 };
}

impl Encode for ReqId {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 2, |e| {
            e.put(&self.name);
            e.u64(self.tid);
            e.i32(self.inc);
        });
    }
}

impl Decode for ReqId {
    const MIN_LEN: usize = 27;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("osd_reqid_t", 2, |d, _| Ok(ReqId { name: d.get()?, tid: d.u64()?, inc: d.i32()? }))
    }
}
