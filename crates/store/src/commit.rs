//! Records out: sealing, issuing, making durable, acknowledging.
//!
//! The order, and what a power cut after each step leaves behind:
//!
//! 1. Whole blocks go to fresh places: of large writes as they are queued, of
//!    others when the batch is sealed, so that blocks side by side are one
//!    request. Nothing refers to those places: lost or torn, they are free space.
//!    The few blocks of a small batch go into its record instead, and to their
//!    places later.
//! 2. The record is written, at the log's tail. Torn or lost: replay ends
//!    before it. Whole, but data of step 1 lost: replay compares the data with
//!    the checksums in the record and ends before it. Whole with its data: the
//!    transactions happened, though nobody was told.
//! 3. When both are complete and durable, and all records before: durable writes
//!    are when they complete, others when a flush that began afterwards has ended.
//! 4. `Committed` for its transactions.
//! 5. Only now: blocks that they freed may be used again, and logged blocks
//!    may be put in place. Done earlier, a cut would leave the state before
//!    the record with its blocks overwritten.
//!
//! Durable writes or a flush: a durable write is one request, and nobody wakes up between
//! the data and the flush. But the kernel flushes once for each, one flush after the other,
//! unless the device makes single writes durable by itself. So a small batch is one durable
//! write; a batch on its way beside another is two or three; and a flush follows where there
//! are more, and where nobody has anything to do meanwhile (docs/benchmarks.md).
//!
//! A failed write or flush ends the store: what the device holds is not known.

use crate::alloc::Run;
use crate::api::{StoreEvent, TxnId};
use crate::batch::Batch;
use crate::core::{BLOCK, Core, Flying};
use crate::dirty::{Image, Version};
use crate::engine::EngineError;
use crate::gather::{Gathered, Pieces};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use bytes::Bytes;
use env::DiskError;

/// Memory of issued records that the next ones use again: so many, none longer.
const SPARE_OPS_MAX: usize = 2;
const SPARE_OPS_LEN_MAX: usize = 256 << 10;

/// Data in no more requests than this may go in durable writes.
const DURABLE_REQUESTS_MAX: usize = 2;

/// What else the device has to do while a batch is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beside {
    /// Nothing, as far as one knows.
    Nothing,
    /// Another batch, now or soon.
    More,
}

/// A record on its way.
pub(crate) struct Issued {
    pub(crate) sequence: u64,
    /// First and last.
    txns: Option<(TxnId, TxnId)>,
    /// Device writes that are not complete: the record's and its direct data's.
    writes: u32,
    /// They are not all durable by themselves.
    needs_flush: bool,
    freed: Vec<u32>,
}

impl Core {
    /// A device with nothing to do does not wait for the end of a long batch: it writes the first
    /// part while the rest is prepared.
    pub(crate) fn begin_early(&mut self) {
        let idle = self.issued.is_empty() && self.batches.len() == 1;
        if idle && self.open_batch().txn_count() >= self.options.early_txns {
            self.seal(Beside::More);
            self.issue();
        }
    }

    /// The batch ends: what was queued goes out, unless enough is on its way;
    /// then it goes with what follows.
    pub(crate) fn commit(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if self.has_room() {
            let alone = self.issued.is_empty();
            self.seal(if alone { Beside::Nothing } else { Beside::More });
        } else {
            self.snapshot_if_due();
        }
        self.issue();
        self.pump();
        if self.stalled.is_empty() || self.stalled.is_paced() {
            self.evict();
        }
    }

    /// For the open batch to go out now.
    fn has_room(&mut self) -> bool {
        let waits = self.batches.len() > 1 || self.issued.len() >= self.options.pipeline_depth;
        let worth_it = self.issued.is_empty()
            || !self.volatile_cache
            || self.open_batch().txn_count() >= self.options.beside_txns;
        !waits && worth_it
    }

    /// Closes the open batch. The index is now what it is after this record,
    /// so this is when a checkpoint can take its snapshot.
    pub(crate) fn seal(&mut self, beside: Beside) {
        let position = self.sealed_position;
        if self.open_batch().is_empty() {
            return;
        }
        if self.volatile_cache {
            self.carry_few();
        }
        let batch = self.open_batch();
        let flushed = batch.needs_flush || beside == Beside::Nothing;
        let durable = self.volatile_cache && !flushed && self.gather.requests() <= DURABLE_REQUESTS_MAX;
        self.send_gathered(durable);
        let batch = self.open_batch();
        let (sequence, len) = (batch.sequence, batch.record_len());
        let logged = batch.slots.len() * BLOCK;
        batch.position = Some(position);
        self.sealed_position += len;
        let ops = self.spare_ops.pop().unwrap_or_default();
        self.batches.push_back(Batch::new(sequence + 1, self.buffers.clone(), ops));
        let distance = self.sealed_position - self.reclaim.last_snapshot_position;
        self.reclaim.logged += logged;
        if distance > self.region.checkpoint_distance() || self.is_snapshot_due() {
            self.take_snapshot();
        }
    }

    /// The blocks of a small batch go into its record, if they are all of its data: then it is one
    /// request. Side by side as their places are, many leave the log in one later.
    fn carry_few(&mut self) {
        let blocks = self.gather.blocks();
        let limit = self.region.record_len_max();
        let batch = self.open_batch();
        let long = batch.direct_writes > 0 || batch.record_len_with(blocks) > limit;
        if blocks == 0 || blocks > self.options.carried_blocks_max || long {
            return;
        }
        for Gathered { run, pieces } in self.gather.take() {
            let contents = pieces.0.iter().flat_map(|piece| piece.chunks(BLOCK));
            for (device, content) in (run.start..run.end()).zip(contents) {
                self.carry(device, content);
            }
        }
    }

    fn carry(&mut self, device: u32, content: &[u8]) {
        let durable = self.durable;
        let batch = self.open_batch();
        let (slot, new) = batch.slot(device);
        // It was partly overwritten in the same batch: what it has now is there.
        if !new {
            return;
        }
        batch.content_mut(slot).copy_from_slice(content);
        batch.finish(slot, false);
        let version = Version { sequence: batch.sequence, image: Image::Slot(slot), poisoned: false };
        self.dirty.put(device, version, durable);
    }

    /// Sends the open batch's data to its places.
    pub(crate) fn send_gathered(&mut self, durable: bool) {
        if self.gather.is_empty() {
            return;
        }
        for Gathered { run, pieces } in self.gather.take() {
            self.send_direct(run, pieces, durable);
        }
    }

    /// Data that the open batch's record will refer to.
    pub(crate) fn send_direct(&mut self, run: Run, data: Pieces, durable: bool) {
        let batch = self.open_batch();
        batch.direct_writes += 1;
        batch.needs_flush |= !durable;
        let purpose = Purpose::Direct { sequence: batch.sequence, run };
        self.io.write_as(u64::from(run.start) * BLOCK_LEN, data.0.clone(), durable, purpose);
        self.flying.insert(run.start, Flying { count: run.count, data });
    }

    /// Hands sealed batches to the device, in order.
    pub(crate) fn issue(&mut self) {
        while self.issued.len() < self.options.pipeline_depth {
            let Some(batch) = self.batches.front() else {
                return;
            };
            let len = batch.record_len();
            let fits = self.issue_position + len - self.superblock.head_position <= self.region.len;
            let meets_zeros = self.record_meets_zeros(self.issue_position + len);
            if batch.position.is_none() || batch.waiting > 0 || !fits || meets_zeros {
                return;
            }
            let Some(batch) = self.batches.pop_front() else {
                return;
            };
            self.issue_one(batch, len);
        }
    }

    fn issue_one(&mut self, batch: Batch, len: u64) {
        let (epoch, nonce) = (self.superblock.epoch, self.superblock.nonce());
        let (record, batch) = batch.into_record(epoch, self.durable, nonce);
        let sequence = batch.sequence;
        for (slot, content) in batch.slots.iter().zip(record.contents) {
            self.dirty.freeze(slot.device, sequence, content);
        }
        let position = self.issue_position;
        self.issue_position += len;
        let mut writes = batch.direct_writes;
        let needs_flush = batch.needs_flush || !self.volatile_cache;
        let mut pieces = record.pieces;
        for (offset, span_len) in self.region.spans(position, len) {
            if span_len > 0 {
                let rest = split_pieces(&mut pieces, span_len as usize);
                self.io.write_as(offset, pieces, !needs_flush, Purpose::Record { sequence });
                pieces = rest;
                writes += 1;
            }
        }
        self.issued.push_back(Issued { sequence, txns: batch.txns, writes, needs_flush, freed: batch.freed });
        let mut ops = batch.ops;
        if self.spare_ops.len() < SPARE_OPS_MAX && ops.out.capacity() <= SPARE_OPS_LEN_MAX {
            ops.reset();
            self.spare_ops.push(ops);
        }
    }

    pub(crate) fn on_record_written(&mut self, sequence: u64, result: Result<Bytes, DiskError>) {
        if let Err(error) = result {
            return self.fail(EngineError::LogWrite { sequence, error });
        }
        self.one_write_less(sequence);
    }

    pub(crate) fn on_direct_written(&mut self, sequence: u64, run: Run, result: Result<Bytes, DiskError>) {
        if let Err(error) = result {
            return self.fail(EngineError::data_write(run, error));
        }
        self.flying.remove(&run.start);
        match self.batch_mut(sequence) {
            Some(batch) => batch.direct_writes -= 1,
            None => self.one_write_less(sequence),
        }
    }

    fn one_write_less(&mut self, sequence: u64) {
        if let Some(issued) = self.issued.iter_mut().find(|issued| issued.sequence == sequence) {
            issued.writes -= 1;
        }
        self.flush_complete_records();
    }

    /// Acknowledges what is durable, in order, and has the rest of what is complete flushed.
    fn flush_complete_records(&mut self) {
        while let Some(first) = self.issued.front().filter(|first| first.writes == 0) {
            if first.needs_flush && self.volatile_cache {
                return self.flush();
            }
            self.on_durable(first.sequence);
        }
    }

    /// One flush for every record that is complete and has only such before it.
    fn flush(&mut self) {
        let complete = self.issued.iter().take_while(|issued| issued.writes == 0);
        let Some(sequence) = complete.last().map(|issued| issued.sequence) else {
            return;
        };
        if !self.flush_in_flight {
            self.flush_in_flight = true;
            self.io.flush(Purpose::Commit { sequence });
        }
    }

    pub(crate) fn on_commit_flushed(&mut self, sequence: u64, result: Result<Bytes, DiskError>) {
        self.flush_in_flight = false;
        if let Err(error) = result {
            return self.fail(EngineError::Flush { error });
        }
        self.on_durable(sequence);
        self.flush_complete_records();
    }

    fn on_durable(&mut self, sequence: u64) {
        self.durable = sequence;
        while self.issued.front().is_some_and(|issued| issued.sequence <= sequence) {
            let Some(issued) = self.issued.pop_front() else {
                break;
            };
            if let Some((first, last)) = issued.txns {
                let ids = (first.0..=last.0).map(TxnId);
                self.events.extend(ids.map(StoreEvent::Committed));
            }
            // Newer than what lies in their places, but nobody's any more.
            issued.freed.iter().for_each(|device| self.dirty.remove(*device));
            let freed = self.reclaim.hold(issued.sequence, issued.freed);
            self.release_freed(freed);
        }
        self.issue();
    }

    /// The release of these blocks is durable, and no snapshot is in the way.
    pub(crate) fn release_freed(&mut self, mut freed: Vec<u32>) {
        freed.sort_unstable();
        let mut run: Option<Run> = None;
        for device in freed {
            match &mut run {
                Some(run) if run.end() == device => run.count += 1,
                _ => {
                    if let Some(run) = run.replace(Run { start: device, count: 1 }) {
                        self.release(run);
                    }
                }
            }
        }
        if let Some(run) = run {
            self.release(run);
        }
    }
}

/// Leaves the first `len` bytes in `pieces` and returns the others.
pub(crate) fn split_pieces(pieces: &mut Vec<Bytes>, len: usize) -> Vec<Bytes> {
    let mut left = len;
    for i in 0..pieces.len() {
        if left < pieces[i].len() {
            let tail = pieces[i].split_off(left);
            let mut rest = vec![tail];
            rest.extend(pieces.drain(i + 1..));
            if pieces[i].is_empty() {
                pieces.pop();
            }
            return rest;
        }
        left -= pieces[i].len();
    }
    Vec::new()
}
