//! What a session is told at its start, and what it learns of its peer.

use crate::auth::{AuthClient, AuthName, AuthServer};
use crate::limits;
use base::Duration;
use std::net::SocketAddr;
use wire::Features;
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

/// For a daemon's accepted connection.
pub struct AcceptConfig {
    pub entity: EntityName,
    /// Exactly as the OSDMap or MonMap has them, nonce included: clients compare.
    pub addrs: EntityAddrVec,
    pub features_supported: Features,
    pub features_required: Features,
    /// Grows with every connection of this process.
    pub global_seq: u64,
    /// Drop peers that want a daemon with other addresses (an earlier life of ours).
    pub check_target: bool,
    pub handshake_timeout: Duration,
    pub idle_timeout: Option<Duration>,
    pub auth: Box<dyn AuthServer>,
}

impl AcceptConfig {
    pub fn new(entity: EntityName, addrs: EntityAddrVec, auth: Box<dyn AuthServer>) -> Self {
        AcceptConfig {
            entity,
            addrs,
            features_supported: Features::PACIFIC,
            features_required: Features::REQUIRED,
            global_seq: 1,
            check_target: true,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            idle_timeout: Some(limits::IDLE_TIMEOUT),
            auth,
        }
    }
}

/// For a dialled connection.
pub struct ConnectConfig {
    /// Ours: `osd.3`, or `client.-1` before a monitor assigned a global id.
    pub entity: EntityName,
    pub addrs: OwnAddrs,
    /// The address to dial; the peer must own it.
    pub target: EntityAddr,
    pub target_kind: EntityType,
    pub features_supported: Features,
    pub features_required: Features,
    /// Grows with every connection of this process.
    pub global_seq: u64,
    pub handshake_timeout: Duration,
    /// Send KEEPALIVE2 this often, and give up after silence of the second length.
    pub keepalive: Option<(Duration, Duration)>,
    pub auth: Box<dyn AuthClient>,
}

/// The addresses a connector claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OwnAddrs {
    /// A daemon's, as maps have them.
    Known(EntityAddrVec),
    /// A client's: the address the peer sees, without a port, and this nonce.
    Learn { nonce: u32 },
}

impl ConnectConfig {
    pub fn new(
        entity: EntityName,
        addrs: OwnAddrs,
        target: EntityAddr,
        target_kind: EntityType,
        auth: Box<dyn AuthClient>,
    ) -> Self {
        ConnectConfig {
            entity,
            addrs,
            target,
            target_kind,
            features_supported: Features::PACIFIC,
            features_required: Features::REQUIRED,
            global_seq: 1,
            handshake_timeout: limits::HANDSHAKE_TIMEOUT,
            keepalive: Some((limits::KEEPALIVE_INTERVAL, limits::KEEPALIVE_TIMEOUT)),
            auth,
        }
    }
}

/// Who is at the other end, known once the session is ready.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// `client.4123` (its global id), `osd.3`, `mon.0` (its rank).
    pub entity: EntityName,
    /// Whose key was used. For a dialled peer its id is empty: servers do not say.
    pub auth_name: AuthName,
    /// Accepted: the peer's. Dialled: ours, as the monitor assigned or we claimed it.
    pub global_id: GlobalId,
    /// As the peer gives them. The nonce tells one life of a process from the next.
    pub addrs: EntityAddrVec,
    /// The other end of the TCP connection.
    pub socket: SocketAddr,
    /// What both sides have: encode for these.
    pub features: Features,
    /// Nothing is resent after the connection is lost; always true for accepted ones.
    pub lossy: bool,
    /// Nonzero for a peer that would resume a lossless session.
    pub cookie: u64,
    /// Our own address as the peer sees it.
    pub own_addr: EntityAddr,
}
