//! Payloads of the handshake's frames.
//!
//! Decoders skip what a newer peer appends, as Ceph's do.
//!
//! Source: WIRE: msgr2#control-frames (Ceph v16.2.15 `src/msg/async/frames_v2.h`).

use crate::SessionError;
use crate::auth::{AuthMethod, ConnectionMode};
use crate::frame::{Frame, Tag};
use bytes::Bytes;
use wire::codec::Result;
use wire::types::{EntityAddr, EntityAddrVec, EntityType, GlobalId};
use wire::{Decode, Decoder, Encode, Encoder, Features};

/// The peer resends nothing after a lost connection (`CEPH_MSG_CONNECT_LOSSY`).
pub const FLAG_LOSSY: u64 = 1;

/// A frame of one segment that is one structure.
pub trait Control: Encode {
    const TAG: Tag;
}

/// Decodes a control frame's only segment.
pub fn decode<T: Decode>(frame: &Frame) -> std::result::Result<T, SessionError> {
    T::decode(&mut Decoder::plain(frame.segments[0].clone()))
        .map_err(|error| SessionError::Malformed { tag: frame.tag, error })
}

macro_rules! control {
    ($(#[$doc:meta])* $tag:ident, $name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $(pub $field: $type),* }

        impl Control for $name {
            const TAG: Tag = Tag::$tag;
        }

        impl Encode for $name {
            fn encode(&self, e: &mut Encoder) {
                $(e.put(&self.$field);)*
            }
        }

        impl Decode for $name {
            fn decode(d: &mut Decoder) -> Result<Self> {
                $(let $field = d.get()?;)*
                Ok($name { $($field),* })
            }
        }
    };
}

control! {
    /// `peer_addr` is the receiver's address as the sender sees it.
    Hello, Hello { kind: EntityType, peer_addr: EntityAddr }
}
control!(AuthRequest, AuthRequest { method: AuthMethod, modes: Vec<ConnectionMode>, payload: Bytes });
control! {
    AuthBadMethod, AuthBadMethod {
        method: AuthMethod,
        result: i32,
        allowed_methods: Vec<AuthMethod>,
        allowed_modes: Vec<ConnectionMode>,
    }
}
control!(AuthReplyMore, AuthReplyMore { payload: Bytes });
control!(AuthRequestMore, AuthRequestMore { payload: Bytes });
control!(AuthDone, AuthDone { global_id: GlobalId, mode: ConnectionMode, payload: Bytes });
control!(AuthSignature, AuthSignature { signature: Signature });
control! {
    ClientIdent, ClientIdent {
        addrs: EntityAddrVec,
        target: EntityAddr,
        gid: i64,
        global_seq: u64,
        supported: FeatureBits,
        required: FeatureBits,
        flags: u64,
        cookie: u64,
    }
}
control! {
    ServerIdent, ServerIdent {
        addrs: EntityAddrVec,
        gid: i64,
        global_seq: u64,
        supported: FeatureBits,
        required: FeatureBits,
        flags: u64,
        cookie: u64,
    }
}
control!(IdentMissingFeatures, IdentMissingFeatures { missing: FeatureBits });
control! {
    /// The first fields of a reconnect; we never resume, so the rest is unread.
    SessionReconnect, SessionReconnect { addrs: EntityAddrVec, client_cookie: u64 }
}
control!(SessionReset, SessionReset { full: bool });
control!(SessionRetryGlobal, SessionRetryGlobal { global_seq: u64 });
control! {
    /// A time that the receiver echoes: opaque to it.
    Keepalive2, Keepalive2 { sec: u32, nsec: u32 }
}
control!(Ack, Ack { seq: u64 });

/// `Features` as a bare u64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FeatureBits(pub Features);

impl Encode for FeatureBits {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.0.0);
    }
}

impl Decode for FeatureBits {
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(FeatureBits(Features(d.u64()?)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature(pub [u8; 32]);

impl Signature {
    /// With nothing to sign with.
    pub const NONE: Signature = Signature([0; 32]);
}

impl Encode for Signature {
    fn encode(&self, e: &mut Encoder) {
        e.raw(&self.0);
    }
}

impl Decode for Signature {
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Signature(d.raw()?))
    }
}

impl Encode for AuthMethod {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.as_u32());
    }
}

impl Decode for AuthMethod {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(AuthMethod::from_u32(d.u32()?))
    }
}

impl Encode for ConnectionMode {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.as_u32());
    }
}

impl Decode for ConnectionMode {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(ConnectionMode::from_u32(d.u32()?))
    }
}
