//! Message payloads, one file per message or per request and its reply.
//!
//! A payload is what msgr2 carries in a MESSAGE frame's front and data
//! segments; header fields (tid, seq, priority) belong to `msgr`.
//!
//! Source: Ceph `src/messages/*.h`, `src/include/msgr.h` for the kinds.

mod auth;
mod command;
mod daemon;
mod envelope;
mod log;
mod mon_config;
mod mon_get_version;
mod mon_map;
mod mon_subscribe;
mod osd_backoff;
mod osd_map;
pub mod osd_op;
mod osd_op_reply;
mod osd_scrub;
mod pool_op;
mod pool_stats;
mod statfs;
mod watch_notify;

pub use auth::{MAuth, MAuthReply};
pub use command::{MCommand, MCommandReply, MMonCommand, MMonCommandAck};
pub use daemon::{
    FailureKind, MOsdAlive, MOsdBoot, MOsdFailure, MOsdGoingDown, MOsdPgTemp, MOsdReport, OsdLoad, PgReport,
    pg_state,
};
pub use envelope::{Incoming, Outgoing, PRIORITY_DEFAULT, PRIORITY_HIGH, Peer, SessionId};
pub use log::{LogEntry, LogLevel, MLog, MLogAck};
pub use mon_config::MConfig;
pub use mon_get_version::{MMonGetVersion, MMonGetVersionReply};
pub use mon_map::{MMgrMap, MMonGetMap, MMonMap};
pub use mon_subscribe::{MMonSubscribe, Subscription};
pub use osd_backoff::{BackoffOp, MOsdBackoff};
pub use osd_map::MOsdMap;
pub use osd_op::{MOsdOp, OsdOp};
pub use osd_op_reply::{MOsdOpReply, OpResult};
pub use osd_scrub::MOsdScrub;
pub use pool_op::{MPoolOp, MPoolOpReply, PoolOpKind};
pub use pool_stats::{MGetPoolStats, MGetPoolStatsReply};
pub use statfs::{MStatfs, MStatfsReply};
pub use watch_notify::{MWatchNotify, WatchOpcode};

use crate::codec::{Decoder, Encoder, Result};
use crate::features::Features;
use bytes::Bytes;

/// A payload type: its kind number and its two encodings.
pub trait Payload: Sized {
    /// Ceph's `CEPH_MSG_*` / `MSG_*` number.
    const KIND: u16;
    /// Header version we write, and the oldest reader that copes with it.
    const VERSION: u16;
    const COMPAT: u16;

    fn encode_front(&self, e: &mut Encoder);

    /// The data segment, in pieces that need not be copied together.
    fn data(&self) -> Vec<Bytes> {
        Vec::new()
    }

    /// `version` is the header's.
    fn decode(front: &mut Decoder, data: Bytes, version: u16) -> Result<Self>;

    fn front(&self, features: Features) -> Bytes {
        let mut e = Encoder::new(features);
        self.encode_front(&mut e);
        e.finish()
    }
}

/// `PaxosServiceMessage`'s prefix on most monitor requests: the map version the
/// sender had, and two fields no longer used.
fn encode_paxos_prefix(e: &mut Encoder, version: u64) {
    e.u64(version);
    e.i16(-1);
    e.u64(0);
}

fn decode_paxos_prefix(d: &mut Decoder) -> Result<u64> {
    let version = d.u64()?;
    d.i16()?;
    d.u64()?;
    Ok(version)
}
