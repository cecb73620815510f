//! Watches and notifications under way: what goes on after its first request was answered.
//!
//! Here is what one is and what is said of it; how it follows sessions and maps
//! is in `client::linger`.

use crate::client::RequestId;
use crate::request::ObjectRequest;
use crate::target::Target;
use base::{Duration, Time, WallTime};
use bytes::Bytes;
use wire::codec::{Decoder, Encoder};
use wire::messages::OsdOp;
use wire::messages::osd_op::{NotifyArgs, OpCode, WatchArgs};

/// A watch of this client; the cookie on the wire. Unique for the client's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WatchId(pub u64);

/// What happens to a watch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchEvent {
    /// The OSD has recorded it.
    Established,
    /// To be acknowledged. May come more than once.
    Notify { notify_id: u64, notifier_gid: u64, payload: Bytes },
    /// It was refused, or it is over although nobody asked for that: the errno value, negative.
    /// Nothing comes after it; what is left to do is to unwatch, after which none of these comes.
    Lost(i32),
}

/// One watcher's answer to a notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotifyReply {
    pub gid: u64,
    pub cookie: u64,
    pub reply: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WatchOp {
    Unwatch,
    Watch,
    Reconnect,
    Ping,
}

/// Pings come at least this often (`objecter_tick_interval`).
const PING_INTERVAL_MAX: Duration = Duration::from_secs(5);
/// What the OSD takes where a watch names no timeout (`osd_client_watch_timeout`).
const TIMEOUT_DEFAULT_S: u32 = 30;

pub(crate) struct Watch {
    pub timeout_s: u32,
    /// The OSD has recorded it, so from now on it is connected again.
    pub registered: bool,
    /// Of the connection, so that an answer to an earlier one's ping says nothing.
    pub generation: u32,
    pub ping: Option<(RequestId, Time)>,
    pub ping_at: Time,
    /// When that was sent which the OSD confirmed last.
    pub valid_thru: Option<Time>,
    pub lost: bool,
    /// The caller has asked for its end.
    pub ending: bool,
}

impl Watch {
    pub fn new(timeout_s: u32) -> Watch {
        Watch {
            timeout_s,
            registered: false,
            generation: 0,
            ping: None,
            ping_at: Time::ZERO,
            valid_thru: None,
            lost: false,
            ending: false,
        }
    }

    /// Some get lost, some are late: several of them within the timeout.
    pub fn ping_interval(&self) -> Duration {
        let timeout_s = if self.timeout_s == 0 { TIMEOUT_DEFAULT_S } else { self.timeout_s };
        PING_INTERVAL_MAX.min(Duration::from_millis(u64::from(timeout_s) * 1000 / 4))
    }

    pub fn op(&self, cookie: u64, op: WatchOp) -> OsdOp {
        watch_op(cookie, op, self.generation, self.timeout_s)
    }
}

pub(crate) fn watch_op(cookie: u64, op: WatchOp, generation: u32, timeout_s: u32) -> OsdOp {
    let op = match op {
        WatchOp::Unwatch => 0,
        WatchOp::Watch => 3,
        WatchOp::Reconnect => 5,
        WatchOp::Ping => 7,
    };
    let args = WatchArgs { cookie, op, generation, timeout_s, ..WatchArgs::default() };
    OsdOp::new(OpCode::WATCH, args.into_args(), Bytes::new())
}

/// The OSD's id of a notification that is under way, once it has said it.
#[derive(Default)]
pub(crate) struct Notify {
    pub id: Option<u64>,
}

pub(crate) enum Kind {
    Watch(Watch),
    Notify(Notify),
}

pub(crate) struct Linger {
    /// The object, and the request that begins it.
    pub request: ObjectRequest,
    pub mtime: WallTime,
    pub kind: Kind,
    /// Under which it was sent last.
    pub target: Option<Target>,
    /// That begins or connects it, until it is answered.
    pub under_way: Option<RequestId>,
}

pub(crate) fn notify_op(cookie: u64, timeout_s: u32, payload: &[u8]) -> OsdOp {
    let mut e = Encoder::plain();
    // The version of the protocol.
    e.u32(1);
    e.u32(timeout_s);
    e.blob(payload);
    OsdOp::new(OpCode::NOTIFY, NotifyArgs { cookie }.into_args(), e.finish())
}

pub(crate) fn ack_op(notify_id: u64, cookie: u64, reply: &[u8]) -> OsdOp {
    let mut e = Encoder::plain();
    e.u64(notify_id);
    e.u64(cookie);
    e.blob(reply);
    OsdOp::new(OpCode::NOTIFY_ACK, [0; 28], e.finish())
}

/// What came of a notification.
#[derive(Default)]
pub(crate) struct Answers {
    pub replies: Vec<NotifyReply>,
    /// The watchers that have not answered in time: client and cookie.
    pub missed: Vec<(u64, u64)>,
}

impl Answers {
    pub fn decode(data: Bytes) -> wire::codec::Result<Answers> {
        let mut answers = Answers::default();
        if data.is_empty() {
            return Ok(answers);
        }
        let mut d = Decoder::plain(data);
        for _ in 0..d.u32()? {
            answers.replies.push(NotifyReply { gid: d.u64()?, cookie: d.u64()?, reply: d.blob()? });
        }
        for _ in 0..d.u32()? {
            answers.missed.push((d.u64()?, d.u64()?));
        }
        Ok(answers)
    }
}
