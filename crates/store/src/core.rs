//! The state of an open store, shared by the files that move it: `apply`
//! (transactions in), `commit` (records out), `reads`, `reclaim` (writeback
//! and checkpoints).
//!
//! Must not read a clock or draw randomness: it moves by calls alone.

use crate::alloc::{Allocator, Run};
use crate::api::{FetchId, StoreError, StoreEvent, TxnId};
use crate::batch::Batch;
use crate::buffers::Buffers;
use crate::chosen::Chosen;
use crate::dirty::Dirty;
use crate::engine::{EngineError, Options};
use crate::gather::{Gather, Pieces};
use crate::index::{BlockSink, Extent, Index};
use crate::io::Io;
use crate::keeping::Keeping;
use crate::key_map::KeyMap;
use crate::kinds::Nid;
use crate::lay::Lay;
use crate::limits::BLOCK_LEN;
use crate::log::Region;
use crate::mend::Mend;
use crate::ops::OpWriter;
use crate::pager::Pager;
use crate::pins::Pins;
use crate::read_cache::ReadCache;
use crate::reads::{ReadOp, WaitingRead};
use crate::reclaim::Reclaim;
use crate::stalled::Stalled;
use crate::superblock::Superblock;
use crate::trim::Trim;
use crate::{checkpoint, commit::Issued};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

pub(crate) const BLOCK: usize = BLOCK_LEN as usize;

/// Data on its way to its place, not in any log record.
pub(crate) struct Flying {
    pub(crate) count: u32,
    pub(crate) data: Pieces,
}

/// A block whose old content is being read, because part of it was overwritten.
pub(crate) struct Await {
    /// Where the old content lies: the block itself, or the one it is a copy of.
    pub(crate) source: u32,
    pub(crate) source_crc: u32,
    /// Who maps the block and must learn its checksum.
    pub(crate) owners: Vec<(Nid, u32)>,
    /// Reads that need the block as it was when they came.
    pub(crate) readers: Vec<WaitingRead>,
}

pub(crate) struct Core {
    pub(crate) io: Io,
    pub(crate) options: Options,
    pub(crate) buffers: Buffers,
    pub(crate) read_buffers: Buffers,
    pub(crate) volatile_cache: bool,
    pub(crate) superblock: Superblock,
    pub(crate) region: Region,
    pub(crate) index: Index,
    pub(crate) alloc: Allocator,
    pub(crate) keeping: Keeping,
    /// Blocks of the current checkpoint's chain.
    pub(crate) chain: Vec<Run>,
    pub(crate) dirty: Dirty,
    pub(crate) flying: BTreeMap<u32, Flying>,
    /// Data of the open batch for fresh places, not sent yet.
    pub(crate) gather: Gather,
    /// Memory for the checksums of one write.
    pub(crate) crcs: Vec<u32>,
    pub(crate) cache: ReadCache,
    pub(crate) pins: Pins,
    pub(crate) awaits: BTreeMap<u32, Await>,
    /// Free once nothing pins them; their release is durable.
    pub(crate) releasing: Vec<Run>,
    pub(crate) trim: Trim,
    pub(crate) lay: Lay,
    pub(crate) mend: Mend,

    /// Oldest first, the last one open, the others sealed.
    pub(crate) batches: VecDeque<Batch>,
    pub(crate) spare_ops: Vec<OpWriter>,
    /// On their way to the device.
    pub(crate) issued: VecDeque<Issued>,
    pub(crate) flush_in_flight: bool,
    /// Every record up to this sequence is durable.
    pub(crate) durable: u64,
    /// Where the next record to be issued, and to be sealed, begins.
    pub(crate) issue_position: u64,
    pub(crate) sealed_position: u64,
    pub(crate) reclaim: Reclaim,

    pub(crate) pager: Pager,
    pub(crate) stalled: Stalled,
    pub(crate) chosen: Chosen,
    pub(crate) reads: KeyMap<FetchId, ReadOp>,
    /// Answers for `fsck`.
    pub(crate) checks: Vec<(u32, env::DiskResult)>,
    pub(crate) events: VecDeque<StoreEvent>,
    pub(crate) next_txn: u64,
    pub(crate) transactions: u64,
    pub(crate) checksum_errors: u64,
    pub(crate) failed: Option<EngineError>,
}

/// Keeps what a live operation frees until its batch is durable.
pub(crate) struct FreedInto<'a>(pub(crate) &'a mut Vec<u32>);

impl BlockSink for FreedInto<'_> {
    fn used(&mut self, _device: u32) -> bool {
        true
    }

    fn freed(&mut self, device: u32) {
        self.0.push(device);
    }
}

impl Core {
    pub(crate) fn open_batch(&mut self) -> &mut Batch {
        self.batches.back_mut().expect("one batch is always open")
    }

    /// A batch that was not issued yet.
    pub(crate) fn batch(&self, sequence: u64) -> Option<&Batch> {
        let first = self.batches.front()?.sequence;
        self.batches.get(usize::try_from(sequence.checked_sub(first)?).ok()?)
    }

    pub(crate) fn batch_mut(&mut self, sequence: u64) -> Option<&mut Batch> {
        let first = self.batches.front()?.sequence;
        self.batches.get_mut(usize::try_from(sequence.checked_sub(first)?).ok()?)
    }

    /// Nothing will be acknowledged any more, and nothing written.
    pub(crate) fn fail(&mut self, error: EngineError) {
        if self.failed.is_none() {
            tracing::error!("the store stops: {error}");
            self.failed = Some(error);
            self.io.abandon();
        }
    }

    pub(crate) fn txn_id(&mut self) -> TxnId {
        let id = TxnId(self.next_txn);
        self.next_txn += 1;
        self.transactions += 1;
        id
    }

    /// Pages leave memory down to the limit, so far as they can.
    pub(crate) fn evict(&mut self) {
        self.index.evict(self.options.index_limit());
    }

    /// A block that is on its way to a fresh place, or about to be.
    pub(crate) fn flying(&self, device: u32) -> Option<Bytes> {
        if let Some((start, flying)) = self.flying.range(..=device).next_back()
            && device - start < flying.count
        {
            return flying.data.block(device - start);
        }
        self.gather.content(device)
    }

    /// Gives blocks back unless a request still touches them.
    pub(crate) fn release(&mut self, run: Run) {
        // Pinned runs are short, so a long one is tested in parts.
        let mut start = run.start;
        while start < run.end() {
            let count = (run.end() - start).min(crate::pins::PINNED_MAX);
            let part = Run { start, count };
            if self.pins.overlaps(part) {
                self.releasing.push(part);
            } else {
                self.give_back(part);
            }
            start += count;
        }
    }

    pub(crate) fn unpin(&mut self, run: Run, token: u64) {
        self.pins.unpin(run, token);
        if !self.releasing.is_empty() {
            for run in std::mem::take(&mut self.releasing) {
                self.release(run);
            }
        }
    }

    fn give_back(&mut self, run: Run) {
        self.cache.forget(run);
        self.alloc.release(run);
        self.trim.on_freed(run);
    }

    /// Device blocks that the next checkpoint takes at most, should `growth`
    /// bytes of metadata come before it.
    pub(crate) fn checkpoint_blocks(&self, growth: u64) -> u64 {
        let Extent { pages, pages_len, directory_len } = self.index.extent();
        // Each page's last block may be mostly empty; new pages are half full at least.
        let everything = (pages_len + 2 * growth) / BLOCK_LEN + pages + growth / 1024 + 4;
        // More than fits into memory cannot have changed.
        let changed = everything.min(2 * self.options.memory_limit as u64 / BLOCK_LEN + growth / 1024);
        // The worst chunk is one block with a header; the last one may be mostly empty.
        let payload = BLOCK_LEN - checkpoint::HEADER_LEN as u64;
        let chain = (directory_len + growth) / payload + 2 * u64::from(checkpoint::CHUNK_BLOCKS);
        self.options.checkpoint_copies as u64 * (changed + chain)
    }

    /// Kept for deletes and metadata when data has filled the device.
    pub(crate) fn metadata_reserve(&self) -> u64 {
        (u64::from(self.alloc.blocks()) / 128).max(32)
    }

    /// Blocks that data may still take.
    pub(crate) fn available_blocks(&self) -> u64 {
        let checkpoint = self.checkpoint_blocks(0);
        let reserve = 2 * checkpoint + self.metadata_reserve();
        (self.alloc.free_blocks() + self.chosen.blocks()).saturating_sub(reserve)
    }

    /// Room for a transaction that takes `blocks` and grows the metadata by
    /// `growth` bytes. One that only takes away always has it.
    pub(crate) fn check_space(&self, blocks: u64, growth: u64, data: bool) -> Result<(), StoreError> {
        if blocks == 0 && growth == 0 {
            return Ok(());
        }
        // What was chosen was promised, too.
        let free = self.alloc.free_blocks() + self.chosen.blocks();
        let (promised, promised_growth) = self.stalled.promised();
        let blocks = blocks + promised;
        let next = self.checkpoint_blocks(growth + promised_growth);
        let reserve = if data {
            2 * next + self.metadata_reserve()
        } else {
            next + self.reclaim.checkpoint_blocks_left()
        };
        if free < blocks.saturating_add(reserve) {
            return Err(StoreError::NoSpace {
                need_bytes: (blocks.max(1)) * BLOCK_LEN,
                available_bytes: free.saturating_sub(reserve) * BLOCK_LEN,
            });
        }
        Ok(())
    }
}
