//! Why a session ended.

use crate::auth::{AuthMethod, ConnectionMode};
use crate::frame::{FrameError, Tag};
use wire::types::{EntityAddr, EntityAddrVec, EntityType};
use wire::{DecodeError, Features};

/// Every one of them is final: the session is closed, its socket should be too.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    #[error("peer does not speak msgr2: wrong banner")]
    BadBanner,
    #[error("peer requires msgr2 features {0:#x} that are not implemented here")]
    UnknownRequired(u64),
    #[error("peer lacks msgr2.1 (it supports {0:#x})")]
    NeedsRevision1(u64),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("unexpected {tag:?} frame while {state}")]
    UnexpectedFrame { tag: Tag, state: &'static str },
    #[error("malformed {tag:?} frame: {error}")]
    Malformed { tag: Tag, error: DecodeError },
    #[error("handshake takes more frames than any valid one")]
    EndlessHandshake,
    #[error("peer refuses authentication method {method:?} with result {result}; it allows {allowed:?}")]
    AuthRefused { method: AuthMethod, result: i32, allowed: Vec<AuthMethod> },
    #[error("authentication failed: {0}")]
    Auth(&'static str),
    #[error("peer chose connection mode {0:?}, which was not offered")]
    ModeNotOffered(ConnectionMode),
    #[error("peer's signature of the handshake is wrong")]
    BadSignature,
    #[error("peer is a {found:?}, expected a {expected:?}")]
    WrongPeerType { found: EntityType, expected: EntityType },
    /// The address dialled belongs to someone else by now.
    #[error("peer has addresses {found}, dialled {expected}")]
    WrongPeerAddr { found: EntityAddrVec, expected: EntityAddr },
    /// The dialler wants someone who had this address before us.
    #[error("peer wants {wanted}, we are {ours}")]
    NotTheTarget { wanted: EntityAddr, ours: EntityAddrVec },
    #[error("peer gives no address of its own")]
    NoAddress,
    #[error("features {0:?} are required and missing")]
    MissingFeatures(Features),
    /// Both sides dialled at once and the peer's dial wins: expect its connection, dial again later.
    #[error("peer asks to wait")]
    Wait,
    #[error("message {found} follows message {last}")]
    Sequence { last: u64, found: u64 },
    #[error("handshake not finished in time")]
    HandshakeTimeout,
    #[error("no sign of life from the peer")]
    PeerDead,
    #[error("connection idle for too long")]
    Idle,
    #[error("session is not ready for messages")]
    NotReady,
    #[error("message segment {segment} of {len} bytes exceeds {max}")]
    MessageTooLarge { segment: usize, len: usize, max: usize },
    #[error("session is closed")]
    Closed,
}
