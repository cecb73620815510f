//! What goes in with every event, and what comes out.

use base::{Random, Time, WallTime};
use bytes::Bytes;
use wire::messages::{Outgoing, SessionId};
use wire::types::{EntityAddrVec, OsdId};

/// The time and the randomness of one event.
pub struct Ctx<'a> {
    /// Leases and timeouts; must be read as late as possible before the call.
    pub now: Time,
    /// Modification times and reports.
    pub wall: WallTime,
    pub random: &'a mut Random,
}

/// The two links between a pair of OSDs. Heartbeats never queue behind data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Channel {
    Data,
    Heartbeat,
}

/// Why a peer cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// Its port refuses connections, or another life of it answers: this life
    /// is over for certain.
    Refused,
    /// An established link broke, or dialling got no answer.
    Lost,
}

/// What the daemon must do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Dropped silently when the session has ended.
    SendClient { session: SessionId, message: Outgoing },
    /// To the monitor. Dropped silently while there is none: the OSD repeats what matters.
    SendMon(Outgoing),
    /// On the link that we dialled to this peer. `body` is a rope: the receiver
    /// gets the pieces joined. Dropped silently when the link is gone.
    SendPeer { osd: OsdId, channel: Channel, kind: u16, body: Vec<Bytes> },
    /// Dial the peer at these addresses, both channels, and answer with
    /// [`Osd::on_peer_up`](crate::Osd::on_peer_up) when both are ready or
    /// [`Osd::on_peer_down`](crate::Osd::on_peer_down) when that failed or
    /// either is lost later. No redialling: the OSD asks again. Replaces an earlier dial.
    ConnectPeer { osd: OsdId, addrs: EntityAddrVec },
    /// Close what [`Action::ConnectPeer`] opened; no `on_peer_down` is expected.
    DisconnectPeer { osd: OsdId },
    /// A client that breaks the protocol.
    CloseSession { session: SessionId, reason: String },
    /// The OSD cannot go on; stop the process with this message.
    Fatal(String),
}
