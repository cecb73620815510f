//! The fixed header of every frame on an OSD-to-OSD link.
//! Layout: docs/protocol/peer-link.md.

use super::LinkError;
use crate::limits::{PEER_BODY_LEN_MAX, PEER_HELLO_LEN_MAX};
use base::crc32c;

pub const HEADER_LEN: usize = 32;
const MAGIC: [u8; 4] = *b"LLNK";
/// Of the header's layout; it changes only if the hello itself must change.
const HEADER_VERSION: u8 = 1;

const AT_VERSION: usize = 4;
const AT_FLAGS: usize = 5;
const AT_KIND: usize = 6;
const AT_SEQ: usize = 8;
const AT_LEN: usize = 16;
const AT_BODY_CRC: usize = 20;
const AT_LEAD: usize = 24;
const AT_CRC: usize = 28;
const _: () = assert!(AT_CRC + 4 == HEADER_LEN);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: u16,
    /// Of this frame in its direction; the hello is 0.
    pub seq: u64,
    pub len: u32,
    pub body_crc: u32,
    /// Where in the body its data begins; 0 when there is none apart.
    pub lead: u32,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..AT_VERSION].copy_from_slice(&MAGIC);
        b[AT_VERSION] = HEADER_VERSION;
        b[AT_KIND..AT_SEQ].copy_from_slice(&self.kind.to_le_bytes());
        b[AT_SEQ..AT_LEN].copy_from_slice(&self.seq.to_le_bytes());
        b[AT_LEN..AT_BODY_CRC].copy_from_slice(&self.len.to_le_bytes());
        b[AT_BODY_CRC..AT_LEAD].copy_from_slice(&self.body_crc.to_le_bytes());
        b[AT_LEAD..AT_CRC].copy_from_slice(&self.lead.to_le_bytes());
        let crc = crc32c(&b[..AT_CRC]);
        b[AT_CRC..].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// Errors: every field that cannot be right, before any of the body is read.
    pub fn decode(b: &[u8; HEADER_LEN], ready: bool) -> Result<Header, LinkError> {
        let u32_at = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        // Magic first: a stranger's bytes deserve a clearer word than "checksum".
        if b[..AT_VERSION] != MAGIC {
            return Err(LinkError::BadMagic);
        }
        let (found, computed) = (u32_at(AT_CRC), crc32c(&b[..AT_CRC]));
        if found != computed {
            return Err(LinkError::HeaderChecksum { found, computed });
        }
        if b[AT_VERSION] != HEADER_VERSION || b[AT_FLAGS] != 0 || u32_at(AT_LEAD) > u32_at(AT_LEN) {
            return Err(LinkError::HeaderVersion { version: b[AT_VERSION], flags: b[AT_FLAGS] });
        }
        let len = u32_at(AT_LEN);
        let max = if ready { PEER_BODY_LEN_MAX } else { PEER_HELLO_LEN_MAX };
        if len > max {
            return Err(LinkError::BodyTooLarge { len: len as usize, max: max as usize });
        }
        let mut seq = [0; 8];
        seq.copy_from_slice(&b[AT_SEQ..AT_LEN]);
        Ok(Header {
            kind: u16::from_le_bytes([b[AT_KIND], b[AT_KIND + 1]]),
            seq: u64::from_le_bytes(seq),
            len,
            body_crc: u32_at(AT_BODY_CRC),
            lead: u32_at(AT_LEAD),
        })
    }
}
