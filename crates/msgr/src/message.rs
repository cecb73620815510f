//! Messages as the layers above see them, and the 41-byte header they travel
//! with. Sequence numbers and acknowledgements stay inside the session.
//!
//! Source: WIRE: msgr2#message (Ceph v16.2.15 `src/include/msgr.h`, `ceph_msg_header2`).

use bytes::Bytes;

/// Ceph's priorities; higher goes first. Informative here: a session keeps order.
pub const PRIORITY_DEFAULT: u16 = 127;
pub const PRIORITY_HIGH: u16 = 196;

/// A received message; every segment passed its checksum.
///
/// Shape:   segments share the received chunk's memory where it held them
///          whole: keep them only as long as needed, or copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Ceph's message type (`CEPH_MSG_OSD_OP` = 42, …).
    pub kind: u16,
    /// Chosen by whoever asks, echoed by whoever replies.
    pub tid: u64,
    pub priority: u16,
    /// Version of the front's encoding, and the oldest reader that copes with it.
    pub version: u16,
    pub compat: u16,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Bytes,
}

impl Message {
    /// Bytes of payload, for throttles.
    pub fn len_bytes(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len()
    }
}

/// A message to send. `data` is a rope: pieces go out without being joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutMessage {
    pub kind: u16,
    pub tid: u64,
    pub priority: u16,
    pub version: u16,
    pub compat: u16,
    pub front: Bytes,
    pub middle: Bytes,
    pub data: Vec<Bytes>,
}

impl OutMessage {
    /// A message of one front, at default priority.
    pub fn new(kind: u16, tid: u64, version: u16, compat: u16, front: Bytes) -> OutMessage {
        OutMessage {
            kind,
            tid,
            priority: PRIORITY_DEFAULT,
            version,
            compat,
            front,
            middle: Bytes::new(),
            data: Vec::new(),
        }
    }

    pub fn with_priority(self, priority: u16) -> OutMessage {
        OutMessage { priority, ..self }
    }

    pub fn with_data(self, data: Vec<Bytes>) -> OutMessage {
        OutMessage { data, ..self }
    }

    pub fn data_len(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }
}

pub(crate) const HEADER_LEN: usize = 41;

/// `CEPH_MSG_FOOTER_COMPLETE | CEPH_MSG_FOOTER_NOCRC`, as Pacific sends.
const FLAGS_COMPLETE: u8 = 3;

/// Segment 0 of a MESSAGE frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MessageHeader {
    pub seq: u64,
    pub tid: u64,
    pub kind: u16,
    pub priority: u16,
    pub version: u16,
    pub ack_seq: u64,
    pub compat: u16,
}

impl MessageHeader {
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0..8].copy_from_slice(&self.seq.to_le_bytes());
        b[8..16].copy_from_slice(&self.tid.to_le_bytes());
        b[16..18].copy_from_slice(&self.kind.to_le_bytes());
        b[18..20].copy_from_slice(&self.priority.to_le_bytes());
        b[20..22].copy_from_slice(&self.version.to_le_bytes());
        // 22..26 data_pre_padding_len and 26..28 data_off are advice for
        // aligned receive buffers; zero says "no advice".
        b[28..36].copy_from_slice(&self.ack_seq.to_le_bytes());
        b[36] = FLAGS_COMPLETE;
        b[37..39].copy_from_slice(&self.compat.to_le_bytes());
        b
    }

    pub fn decode(b: &[u8; HEADER_LEN]) -> MessageHeader {
        let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        let u64_at = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&b[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        MessageHeader {
            seq: u64_at(0),
            tid: u64_at(8),
            kind: u16_at(16),
            priority: u16_at(18),
            version: u16_at(20),
            ack_seq: u64_at(28),
            compat: u16_at(37),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_survives_its_encoding() {
        let header = MessageHeader {
            seq: 1,
            tid: 0x0203_0405_0607_0809,
            kind: 42,
            priority: 63,
            version: 8,
            ack_seq: 77,
            compat: 3,
        };
        assert_eq!(MessageHeader::decode(&header.encode()), header);
    }
}
