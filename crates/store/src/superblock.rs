//! The two blocks that say whose store this is and where everything begins.
//!
//! Layout: docs/formats/store.md, "Superblock". Written whole, one copy after
//! the other with a flush between, so that one of them is always intact.

use crate::alloc::Run;
use crate::limits::BLOCK_LEN;
use base::crc32c;
use bytes::Bytes;
use wire::types::{OsdId, Uuid};

pub(crate) const MAGIC: [u8; 8] = *b"LOLISTOR";
/// Of the format that this program writes.
pub const VERSION: u32 = 2;

/// A record may carry blocks that its operations call directly written. Who does not know would
/// look for them in their places.
pub(crate) const INCOMPAT_CARRIED: u64 = 1;

/// Features without which the content would be misread.
pub(crate) const INCOMPAT_KNOWN: u64 = INCOMPAT_CARRIED;

/// Smallest device: room for a log, two checkpoints and some data.
pub const DEVICE_LEN_MIN: u64 = 16 << 20;

/// Device blocks are numbered in 32 bits.
pub const DEVICE_LEN_MAX: u64 = (u32::MAX as u64) * BLOCK_LEN;

pub(crate) const LOG_LEN_MIN: u64 = 1 << 20;
pub(crate) const LOG_LEN_MAX: u64 = 1 << 40;

/// The log begins here; block 0 holds the first superblock, the rest is spare.
pub(crate) const LOG_START: u64 = 64 << 10;

/// Copies of a checkpoint that a superblock can point to.
pub(crate) const COPIES_MAX: usize = 2;

/// Whose store it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The cluster.
    pub fsid: Uuid,
    pub osd: OsdId,
    /// This store, new with every format.
    pub uuid: Uuid,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) identity: Identity,
    pub(crate) compat: u64,
    pub(crate) incompat: u64,
    pub(crate) device_len: u64,
    pub(crate) log_len: u64,
    /// Of the superblock: the copy with the higher one is newer.
    pub(crate) generation: u64,
    /// Counts the opens.
    pub(crate) epoch: u64,
    /// The last record found when this epoch began; records after it are of this epoch.
    pub(crate) recovered_sequence: u64,
    /// Where replay begins: a position in the endless log, and its record's sequence.
    pub(crate) head_position: u64,
    pub(crate) head_sequence: u64,
    /// The checkpoint that replay starts from; no copies: the empty store.
    pub(crate) checkpoint: Checkpoint,
}

/// Where a checkpoint's first chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checkpoint {
    pub(crate) generation: u64,
    pub(crate) first: [Option<Run>; COPIES_MAX],
}

/// Why one block is not a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    NotAStore,
    Damaged(&'static str),
    Newer { version: u32, incompat: u64 },
    Older { version: u32 },
}

impl Superblock {
    pub(crate) fn blocks(&self) -> u32 {
        (self.device_len / BLOCK_LEN) as u32
    }

    /// Byte offsets of the two copies.
    pub(crate) fn offsets(device_len: u64) -> [u64; 2] {
        [0, device_len / BLOCK_LEN * BLOCK_LEN - BLOCK_LEN]
    }

    /// Records up to here, and the data that they refer to, are durable for certain: the head's
    /// checkpoint holds them, or an opening has found them and flushed. Programs that do not know
    /// of carried blocks did not flush then.
    pub(crate) fn durable_through(&self) -> u64 {
        let flushed = self.incompat & INCOMPAT_CARRIED != 0;
        let found = if flushed { self.recovered_sequence } else { 0 };
        found.max(self.head_sequence - 1)
    }

    /// Ties log records and checkpoint chunks to this store.
    pub(crate) fn nonce(&self) -> u64 {
        nonce_of(self.identity.uuid)
    }

    /// Neither object data nor checkpoints may use these.
    pub(crate) fn reserved(&self) -> [Run; 2] {
        let log_end = ((LOG_START + self.log_len) / BLOCK_LEN) as u32;
        [Run { start: 0, count: log_end }, Run { start: self.blocks() - 1, count: 1 }]
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK_LEN as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(BLOCK_LEN as u32).to_le_bytes());
        out.extend_from_slice(&self.compat.to_le_bytes());
        out.extend_from_slice(&self.incompat.to_le_bytes());
        out.extend_from_slice(&self.identity.fsid.0);
        out.extend_from_slice(&self.identity.uuid.0);
        out.extend_from_slice(&(self.identity.osd.0 as u32).to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        for word in [
            self.device_len,
            self.log_len,
            self.generation,
            self.epoch,
            self.recovered_sequence,
            self.head_position,
            self.head_sequence,
            self.checkpoint.generation,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for run in self.checkpoint.first {
            let run = run.unwrap_or(Run { start: 0, count: 0 });
            out.extend_from_slice(&run.start.to_le_bytes());
            out.extend_from_slice(&run.count.to_le_bytes());
        }
        out.resize(BLOCK_LEN as usize - 4, 0);
        let crc = crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(block: &Bytes) -> Result<Superblock, Unusable> {
        let damaged = Unusable::Damaged;
        if block.len() != BLOCK_LEN as usize || block[..8] != MAGIC {
            return Err(Unusable::NotAStore);
        }
        let mut at = 8;
        let mut word = |len: usize| {
            let mut le = [0u8; 8];
            le[..len].copy_from_slice(&block[at..at + len]);
            at += len;
            u64::from_le_bytes(le)
        };
        let (body, crc) = block.split_at(BLOCK_LEN as usize - 4);
        if crc != crc32c(body).to_le_bytes() {
            return Err(damaged("its checksum does not match"));
        }
        let version = word(4) as u32;
        let block_len = word(4);
        let (compat, incompat) = (word(8), word(8));
        if version > VERSION || incompat & !INCOMPAT_KNOWN != 0 {
            return Err(Unusable::Newer { version, incompat });
        }
        if (1..VERSION).contains(&version) {
            return Err(Unusable::Older { version });
        }
        if version == 0 || block_len != BLOCK_LEN {
            return Err(damaged("its version or block size makes no sense"));
        }
        let uuid = |high: u64, low: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&high.to_le_bytes());
            bytes[8..].copy_from_slice(&low.to_le_bytes());
            Uuid(bytes)
        };
        let fsid = uuid(word(8), word(8));
        let identity = Identity { fsid, uuid: uuid(word(8), word(8)), osd: OsdId(word(4) as i32) };
        word(4);
        let mut superblock = Superblock {
            identity,
            compat,
            incompat,
            device_len: word(8),
            log_len: word(8),
            generation: word(8),
            epoch: word(8),
            recovered_sequence: word(8),
            head_position: word(8),
            head_sequence: word(8),
            checkpoint: Checkpoint { generation: word(8), first: [None; COPIES_MAX] },
        };
        superblock.check_geometry().map_err(damaged)?;
        for copy in 0..COPIES_MAX {
            let run = Run { start: word(4) as u32, count: word(4) as u32 };
            if run.count == 0 {
                continue;
            }
            if run.start.checked_add(run.count).is_none_or(|end| end > superblock.blocks()) {
                return Err(damaged("its checkpoint lies outside the device"));
            }
            superblock.checkpoint.first[copy] = Some(run);
        }
        Ok(superblock)
    }

    fn check_geometry(&self) -> Result<(), &'static str> {
        if !(DEVICE_LEN_MIN..=DEVICE_LEN_MAX).contains(&self.device_len)
            || !self.device_len.is_multiple_of(BLOCK_LEN)
        {
            return Err("its device length makes no sense");
        }
        if !(LOG_LEN_MIN..=LOG_LEN_MAX).contains(&self.log_len)
            || !self.log_len.is_multiple_of(BLOCK_LEN)
            || self.log_len > self.device_len / 2
        {
            return Err("its log length makes no sense");
        }
        // So that no sum with a length or a count overflows.
        let limit = 1u64 << 62;
        let counters = [
            self.generation,
            self.epoch,
            self.recovered_sequence,
            self.head_position,
            self.head_sequence,
            self.checkpoint.generation,
        ];
        if counters.iter().any(|counter| *counter > limit) || !self.head_position.is_multiple_of(BLOCK_LEN) {
            return Err("its counters make no sense");
        }
        // Sequences count from 1: the record before the head has one too.
        if self.head_sequence == 0 {
            return Err("its log begins before the first record");
        }
        Ok(())
    }
}

pub(crate) fn nonce_of(uuid: Uuid) -> u64 {
    let (high, low) = uuid.0.split_at(8);
    u64::from(crc32c(high)) << 32 | u64::from(crc32c(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            identity: Identity {
                fsid: Uuid::from_random(1, 2),
                osd: OsdId(7),
                uuid: Uuid::from_random(3, 4),
            },
            compat: 5,
            incompat: 0,
            device_len: 64 << 20,
            log_len: 2 << 20,
            generation: 9,
            epoch: 3,
            recovered_sequence: 100,
            head_position: 40960,
            head_sequence: 90,
            checkpoint: Checkpoint { generation: 8, first: [Some(Run { start: 1000, count: 16 }), None] },
        }
    }

    #[test]
    fn reads_back_what_was_written_and_refuses_any_flipped_bit() {
        let encoded = sample().encode();
        assert_eq!(Superblock::decode(&encoded.clone().into()), Ok(sample()));
        for bit in (0..encoded.len() * 8).step_by(97) {
            let mut flipped = encoded.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped.into()).is_err());
        }
    }

    #[test]
    fn refuses_a_newer_version() {
        let mut newer = sample();
        newer.incompat = 4;
        let found = Superblock::decode(&newer.encode().into());
        assert_eq!(found, Err(Unusable::Newer { version: VERSION, incompat: 4 }));
    }
}
