//! Ceph's messenger, msgr2.1, as a state machine without sockets, and the
//! framing of our own OSD-to-OSD links.
//!
//! [`Session`] is one connection in either role: received bytes go in through
//! `on_bytes`, frames to send come out of `poll_output`, and what happened out
//! of `poll_event`. It opens no socket, reads no clock and draws no randomness;
//! time arrives with `on_tick`. It knows frames, the handshake and message
//! headers; payloads are opaque here and belong to `wire`.
//!
//! Promises:
//! - No input panics or hangs; every error is a [`SessionError`] and final.
//! - Memory follows what has arrived, not what a length field promises.
//! - A message is delivered only after every checksum of its frame held.
//! - Messages arrive in the order sent, without gaps or repetition.
//!
//! Protocol and limits: `docs/protocol/msgr2.md`, `docs/protocol/peer-link.md`.

pub mod auth;
mod config;
mod error;
mod frame;
pub mod limits;
mod message;
pub mod peer;
mod rx;
mod session;
mod tx;

pub use config::{AcceptConfig, ConnectConfig, OwnAddrs, PeerIdentity};
pub use error::SessionError;
pub use frame::{FrameError, Tag};
pub use message::{Message, OutMessage, PRIORITY_DEFAULT, PRIORITY_HIGH};
pub use rx::Unfinished;
pub use session::{Session, SessionEvent};
