//! Transactions on their way into one log record.
//!
//! The record's data blocks are gathered in buffers that the device can take
//! as they are. A block written twice in one batch has one slot: a record is
//! applied as a whole or not at all, so nobody can see the first content.

use crate::api::TxnId;
use crate::buffers::{Buffer, Buffers};
use crate::key_map::KeyMap;
use crate::limits::BLOCK_LEN;
use crate::log::{self, Header};
use crate::ops::OpWriter;
use base::crc32c;
use bytes::Bytes;

const BLOCK: usize = BLOCK_LEN as usize;

/// Large enough that a request has few pieces, small enough that a batch which
/// just needs one more block wastes little.
const BUFFER_BLOCKS_MAX: usize = 8;

pub(crate) struct Slot {
    pub(crate) device: u32,
    pub(crate) crc: u32,
    pub(crate) poisoned: bool,
    buffer: u32,
    offset: u32,
}

pub(crate) struct Batch {
    pub(crate) sequence: u64,
    pub(crate) ops: OpWriter,
    pub(crate) slots: Vec<Slot>,
    slot_of: KeyMap<u32, u32>,
    /// Of 1, 2, 4 and then 8 blocks, so that a small batch keeps little memory.
    buffers: Vec<Buffer>,
    pool: Buffers,
    /// Bytes used of the last buffer.
    filled: usize,
    /// Slots whose content is not known yet.
    pub(crate) waiting: u32,
    /// First and last transaction.
    pub(crate) txns: Option<(TxnId, TxnId)>,
    /// Device writes of data that this record refers to, not completed.
    pub(crate) direct_writes: u32,
    /// Some of them are not durable when they complete, so a flush has to follow.
    pub(crate) needs_flush: bool,
    /// Device blocks without an owner once this is durable.
    pub(crate) freed: Vec<u32>,
    /// Set when sealed.
    pub(crate) position: Option<u64>,
}

/// A record ready for the device.
pub(crate) struct Record {
    pub(crate) pieces: Vec<Bytes>,
    /// Content by slot.
    pub(crate) contents: Vec<Bytes>,
}

impl Batch {
    /// `ops` is empty.
    pub(crate) fn new(sequence: u64, pool: Buffers, ops: OpWriter) -> Batch {
        Batch {
            sequence,
            ops,
            slots: Vec::new(),
            slot_of: KeyMap::default(),
            buffers: Vec::new(),
            pool,
            filled: 0,
            waiting: 0,
            txns: None,
            direct_writes: 0,
            needs_flush: false,
            freed: Vec::new(),
            position: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.txns.is_none() && self.ops.out.is_empty()
    }

    pub(crate) fn txn_count(&self) -> u64 {
        self.txns.map_or(0, |(first, last)| last.0 - first.0 + 1)
    }

    pub(crate) fn add_txn(&mut self, txn: TxnId) {
        self.txns = Some((self.txns.map_or(txn, |(first, _)| first), txn));
    }

    fn meta_len(&self) -> usize {
        self.ops.out.len() + self.slots.len() * log::SLOT_LEN
    }

    pub(crate) fn record_len(&self) -> u64 {
        self.record_len_with(0)
    }

    /// The length of the record if so many blocks came into it besides, at most.
    pub(crate) fn record_len_with(&self, blocks: usize) -> u64 {
        let slots = self.slots.len() + blocks;
        log::head_len(self.ops.out.len() + slots * log::SLOT_LEN) + slots as u64 * BLOCK_LEN
    }

    /// The slot for a device block, and whether it is new: then it holds anything.
    pub(crate) fn slot(&mut self, device: u32) -> (u32, bool) {
        if let Some(slot) = self.slot_of.get(&device) {
            return (*slot, false);
        }
        if self.buffers.last().is_none_or(|buffer| self.filled == buffer.len()) {
            let blocks = (1usize << self.buffers.len().min(16)).min(BUFFER_BLOCKS_MAX);
            self.buffers.push(self.pool.take(blocks));
            self.filled = 0;
        }
        let slot = self.slots.len() as u32;
        self.slots.push(Slot {
            device,
            crc: 0,
            poisoned: false,
            buffer: self.buffers.len() as u32 - 1,
            offset: self.filled as u32,
        });
        self.filled += BLOCK;
        self.slot_of.insert(device, slot);
        (slot, true)
    }

    pub(crate) fn content(&self, slot: u32) -> &[u8] {
        let Slot { buffer, offset, .. } = self.slots[slot as usize];
        &self.buffers[buffer as usize][offset as usize..offset as usize + BLOCK]
    }

    pub(crate) fn content_mut(&mut self, slot: u32) -> &mut [u8] {
        let Slot { buffer, offset, .. } = self.slots[slot as usize];
        &mut self.buffers[buffer as usize][offset as usize..offset as usize + BLOCK]
    }

    /// The content is complete. Returns the checksum that the index keeps: one
    /// that cannot match when the content is not to be trusted.
    pub(crate) fn finish(&mut self, slot: u32, poisoned: bool) -> u32 {
        let crc = crc32c(self.content(slot));
        let slot = &mut self.slots[slot as usize];
        slot.crc = crc;
        slot.poisoned = poisoned;
        index_crc(crc, poisoned)
    }

    /// Sealed, and nothing waits: the record as it goes to the device.
    pub(crate) fn into_record(self, epoch: u64, durable_through: u64, nonce: u64) -> (Record, Batch) {
        assert!(self.waiting == 0);
        let mut batch = self;
        let head_len = log::head_len(batch.meta_len()) as usize;
        let mut head = batch.pool.take(head_len / BLOCK);
        let mut meta = std::mem::take(&mut batch.ops.out);
        let ops_len = meta.len() as u32;
        for slot in &batch.slots {
            meta.extend_from_slice(&slot.device.to_le_bytes());
            meta.extend_from_slice(&slot.crc.to_le_bytes());
            meta.push(if slot.poisoned { log::SLOT_POISONED } else { 0 });
        }
        let header = Header {
            epoch,
            sequence: batch.sequence,
            position: batch.position.expect("sealed"),
            durable_through,
            ops_len,
            slots: batch.slots.len() as u32,
            transactions: batch.txn_count() as u32,
            meta_crc: crc32c(&meta),
        };
        head[..log::HEADER_LEN].copy_from_slice(&header.encode(nonce));
        let meta_end = log::HEADER_LEN + meta.len();
        head[log::HEADER_LEN..meta_end].copy_from_slice(&meta);
        head[meta_end..head_len].fill(0);

        let filled = batch.filled;
        let buffers: Vec<Bytes> =
            std::mem::take(&mut batch.buffers).into_iter().map(Buffer::freeze).collect();
        let contents = batch
            .slots
            .iter()
            .map(|slot| {
                let at = slot.offset as usize;
                buffers[slot.buffer as usize].slice(at..at + BLOCK)
            })
            .collect();
        let mut pieces = vec![head.freeze().slice(..head_len)];
        pieces.extend(buffers);
        if batch.filled > 0
            && let Some(last) = pieces.last_mut()
        {
            last.truncate(filled);
        }
        batch.ops.out = meta;
        (Record { pieces, contents }, batch)
    }
}

/// A poisoned block's checksum in the index matches no content it can have.
pub(crate) fn index_crc(crc: u32, poisoned: bool) -> u32 {
    if poisoned { !crc } else { crc }
}
