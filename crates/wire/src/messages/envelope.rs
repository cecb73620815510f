//! A payload with the header fields that the cores care about, so that they
//! can send and receive messages without knowing sessions or frames.

use super::Payload;
use crate::codec::{Decoder, Result};
use crate::features::Features;
use crate::types::{EntityAddr, EntityName, GlobalId};
use bytes::Bytes;

/// Header priorities seen from Ceph's own daemons.
pub const PRIORITY_DEFAULT: u16 = 127;
pub const PRIORITY_HIGH: u16 = 196;

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    pub kind: u16,
    pub version: u16,
    pub compat: u16,
    /// A reply carries its request's.
    pub tid: u64,
    pub priority: u16,
    pub front: Bytes,
    /// The data segment in pieces.
    pub data: Vec<Bytes>,
}

impl Outgoing {
    pub fn new<P: Payload>(payload: &P, tid: u64, features: Features) -> Outgoing {
        Outgoing {
            kind: P::KIND,
            version: P::VERSION,
            compat: P::COMPAT,
            tid,
            priority: PRIORITY_DEFAULT,
            front: payload.front(features),
            data: payload.data(),
        }
    }
}

/// A message received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    pub kind: u16,
    pub version: u16,
    pub tid: u64,
    pub front: Bytes,
    pub data: Bytes,
}

impl Incoming {
    pub fn decode<P: Payload>(&self, features: Features) -> Result<P> {
        P::decode(&mut Decoder::new(self.front.clone(), features), self.data.clone(), self.version)
    }
}

/// The authenticated other end of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// `client.4123`, `osd.2`.
    pub name: EntityName,
    /// The id it authenticated as: "admin" of `client.admin`.
    pub auth_id: String,
    pub global_id: GlobalId,
    /// Its own address: its socket's IP and port as we see them, its nonce.
    pub addr: EntityAddr,
    /// What both ends know: encode for it.
    pub features: Features,
}

/// One session with a client or daemon. Never reused within a process's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);
