//! One msgr2.1 connection.

use crate::auth::AuthName;
use crate::{AcceptConfig, ConnectConfig, Message, OutMessage, PeerIdentity, SessionError};
use base::Time;
use bytes::Bytes;
use std::net::SocketAddr;
use wire::types::GlobalId;

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// A monitor must choose the peer's global id: answer with
    /// [`Session::assign_global_id`]. `claimed` is the one the peer had before.
    NeedGlobalId {
        name: AuthName,
        claimed: Option<GlobalId>,
    },
    /// The handshake is over; messages may be sent.
    Ready(Box<PeerIdentity>),
    Message(Message),
}

/// One connection. Calling order: create; then whenever bytes or time arrive,
/// `on_bytes` or `on_tick`, then drain `poll_event`, then drain `poll_output`
/// to the socket. After an error: drain both, close the socket.
pub struct Session {
    _private: (),
}

impl Session {
    /// For a connection accepted from `peer`.
    pub fn accept(_config: AcceptConfig, _peer: SocketAddr, _now: Time) -> Session {
        Session { _private: () }
    }

    /// For a connection dialled to `config.target`.
    pub fn connect(_config: ConnectConfig, _now: Time) -> Session {
        Session { _private: () }
    }

    pub fn on_bytes(&mut self, _chunk: Bytes) -> Result<(), SessionError> {
        Err(SessionError::Closed)
    }

    /// Call at [`Session::poll_timeout`] or more often.
    pub fn on_tick(&mut self, _now: Time) -> Result<(), SessionError> {
        Err(SessionError::Closed)
    }

    /// When `on_tick` has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        None
    }

    pub fn assign_global_id(&mut self, _global_id: GlobalId) -> Result<(), SessionError> {
        Err(SessionError::Closed)
    }

    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        None
    }

    /// Queues a message; an error if the session is not ready or the message too large.
    pub fn send(&mut self, _message: OutMessage) -> Result<(), SessionError> {
        Err(SessionError::Closed)
    }

    /// The next piece to write. Several calls gather one `writev`.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        None
    }

    /// Bytes queued for output: for back-pressure.
    pub fn output_len(&self) -> usize {
        0
    }

    /// Once the session is ready.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        None
    }
}
