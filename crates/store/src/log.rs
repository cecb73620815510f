//! The append log: where records go, and what a record looks like.
//!
//! Layout: docs/formats/store.md, "Log". Positions count bytes from the first
//! record ever and only grow; the device offset is the position modulo the
//! log's length. Must not know what the operations in a record mean.

use crate::limits::BLOCK_LEN;
use crate::superblock::LOG_START;
use base::crc32c;

pub(crate) const MAGIC: [u8; 8] = *b"LOLILOG1";
pub(crate) const HEADER_LEN: usize = 72;

/// Device block, checksum and flags of one data block.
pub(crate) const SLOT_LEN: usize = 9;

/// The block's content is not to be trusted: what it was merged with could not be read.
pub(crate) const SLOT_POISONED: u8 = 1;

/// A record takes at most this part of the log, and at most this much: an open
/// looks that far for records behind one that it cannot read.
const RECORD_PART: u64 = 8;
const RECORD_LEN_MAX: u64 = 16 << 20;

/// A record that carries several transactions is not made longer: whoever waits
/// for the first of them should not wait for all.
pub(crate) const BATCH_LEN_MAX: u64 = 4 << 20;

/// A checkpoint begins once this much of the log has filled since the last one.
const CHECKPOINT_PART: u64 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) position: u64,
    /// Every record up to this one was durable before this one was written.
    pub(crate) durable_through: u64,
    pub(crate) ops_len: u32,
    pub(crate) slots: u32,
    pub(crate) transactions: u32,
    /// Over the operations and the data table.
    pub(crate) meta_crc: u32,
}

impl Header {
    /// Operations and data table.
    pub(crate) fn meta_len(&self) -> usize {
        self.ops_len as usize + self.slots as usize * SLOT_LEN
    }

    /// Offset of the first data block in the record.
    pub(crate) fn data_offset(&self) -> u64 {
        head_len(self.meta_len())
    }

    pub(crate) fn record_len(&self) -> u64 {
        self.data_offset() + u64::from(self.slots) * BLOCK_LEN
    }

    pub(crate) fn encode(&self, nonce: u64) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[..8].copy_from_slice(&MAGIC);
        for (i, word) in
            [nonce, self.epoch, self.sequence, self.position, self.durable_through].iter().enumerate()
        {
            out[8 + 8 * i..16 + 8 * i].copy_from_slice(&word.to_le_bytes());
        }
        for (i, word) in [self.ops_len, self.slots, self.transactions, 0, self.meta_crc].iter().enumerate() {
            out[48 + 4 * i..52 + 4 * i].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c(&out[..HEADER_LEN - 4]);
        out[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when `block` does not begin with an intact header of this store.
    pub(crate) fn decode(block: &[u8], nonce: u64) -> Option<Header> {
        let raw = block.first_chunk::<HEADER_LEN>()?;
        if raw[..8] != MAGIC {
            return None;
        }
        let (body, crc) = raw.split_at(HEADER_LEN - 4);
        if crc != crc32c(body).to_le_bytes() {
            return None;
        }
        let long = |at: usize| {
            let mut le = [0; 8];
            le.copy_from_slice(&raw[at..at + 8]);
            u64::from_le_bytes(le)
        };
        let short = |at: usize| {
            let mut le = [0; 4];
            le.copy_from_slice(&raw[at..at + 4]);
            u32::from_le_bytes(le)
        };
        (long(8) == nonce).then(|| Header {
            epoch: long(16),
            sequence: long(24),
            position: long(32),
            durable_through: long(40),
            ops_len: short(48),
            slots: short(52),
            transactions: short(56),
            meta_crc: short(64),
        })
    }
}

/// Header and meta, padded to a block.
pub(crate) fn head_len(meta_len: usize) -> u64 {
    ((HEADER_LEN + meta_len) as u64).next_multiple_of(BLOCK_LEN)
}

/// The circular region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) len: u64,
}

impl Region {
    /// Largest record.
    pub(crate) fn record_len_max(self) -> u64 {
        (self.len / RECORD_PART / BLOCK_LEN * BLOCK_LEN).min(RECORD_LEN_MAX)
    }

    /// Distance between checkpoints.
    pub(crate) fn checkpoint_distance(self) -> u64 {
        self.len / CHECKPOINT_PART
    }

    pub(crate) fn device_offset(self, position: u64) -> u64 {
        LOG_START + position % self.len
    }

    /// Device ranges of `position..position+len` as (device offset, length):
    /// two where it wraps.
    pub(crate) fn spans(self, position: u64, len: u64) -> [(u64, u64); 2] {
        let first = len.min(self.len - position % self.len);
        [(self.device_offset(position), first), (LOG_START, len - first)]
    }
}

// After a checkpoint the next one begins within `checkpoint_distance` plus one
// record, so records up to its start always fit into the log while it is written.
const _: () = assert!(RECORD_PART >= 2 && CHECKPOINT_PART >= 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_reads_back_and_refuses_any_flipped_bit() {
        let header = Header {
            epoch: 1,
            sequence: 2,
            position: 8192,
            durable_through: 1,
            ops_len: 5000,
            slots: 3,
            transactions: 9,
            meta_crc: 77,
        };
        let encoded = header.encode(42);
        assert_eq!(Header::decode(&encoded, 42), Some(header));
        assert_eq!(Header::decode(&encoded, 43), None);
        assert_eq!(header.record_len(), 8192 + 3 * 4096);
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = encoded;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&flipped, 42), None);
        }
    }

    #[test]
    fn a_range_over_the_end_wraps_to_the_start() {
        let region = Region { len: 1 << 20 };
        let spans = region.spans((1 << 20) * 3 - 4096, 12288);
        assert_eq!(spans, [(LOG_START + (1 << 20) - 4096, 4096), (LOG_START, 8192)]);
    }
}
