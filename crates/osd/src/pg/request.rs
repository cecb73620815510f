//! A client's request on its way through a PG.

use crate::exec::watch::WatchKey;
use crate::exec::{Class, CopySource, Fetched};
use base::Time;
use wire::features::Features;
use wire::messages::{MOsdOp, SessionId};
use wire::types::{EVersion, EntityAddr, EntityName, HObject, OsdId, ReqId};

/// Who gets the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Client {
        session: SessionId,
        tid: u64,
        features: Features,
        who: cls::Origin,
    },
    /// Another PG's primary that copies an object for its client.
    Copy {
        osd: OsdId,
        id: u64,
    },
    /// This OSD's own.
    Own,
}

impl Origin {
    pub fn who(&self) -> cls::Origin {
        match self {
            Origin::Client { who, .. } => *who,
            Origin::Copy { osd, .. } => cls::Origin { name: EntityName::osd(osd.0), addr: EntityAddr::BLANK },
            Origin::Own => cls::Origin { name: EntityName::osd(-1), addr: EntityAddr::BLANK },
        }
    }
}

#[derive(Clone, Debug)]
pub enum Work {
    Op(MOsdOp, Class),
    Copy(CopySource),
    /// These watches of the object are over.
    EndWatches(Vec<WatchKey>),
}

#[derive(Clone, Debug)]
pub struct Request {
    /// Ours, unique in this process.
    pub id: u64,
    pub origin: Origin,
    pub reqid: ReqId,
    pub object: HObject,
    pub work: Work,
    pub fetched: Fetched,
    pub arrived: Time,
    /// Counted against the limits until the request ends.
    pub bytes: u64,
    /// The version that its write got: after an interval change the log tells
    /// whether it happened.
    pub version: EVersion,
}

impl Request {
    pub fn is_write(&self) -> bool {
        matches!(self.work, Work::Op(_, Class::Write) | Work::EndWatches(_))
    }

    pub fn is_pg_op(&self) -> bool {
        matches!(self.work, Work::Op(_, Class::PgOp))
    }

    pub fn session(&self) -> Option<SessionId> {
        match self.origin {
            Origin::Client { session, .. } => Some(session),
            Origin::Copy { .. } | Origin::Own => None,
        }
    }
}
