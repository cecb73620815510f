//! Ceph's encodings: primitives, versioned envelopes, feature bits, maps and
//! message payloads. Pure: bytes in, values out; knows no frames and no sockets.
//!
//! One file per type. Everything is little-endian. Decoders take whatever a
//! peer sends: they return [`DecodeError`], never panic, and never allocate
//! more than the input's own length justifies.

pub mod codec;
pub mod dump;
pub mod features;
pub mod maps;
pub mod messages;
pub mod types;

pub use codec::{Decode, DecodeError, Decoder, Encode, Encoder};
pub use features::Features;
