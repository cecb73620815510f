//! Records out: sealing, issuing, flushing, acknowledging.
//!
//! The order, and what a power cut after each step leaves behind:
//!
//! 1. Whole blocks go to fresh places: of large writes as they are queued, of
//!    others when the batch is sealed, so that blocks side by side are one
//!    request. Nothing refers to those places: lost or torn, they are free space.
//! 2. The record is written, at the log's tail. Torn or lost: replay ends
//!    before it. Whole, but data of step 1 lost: replay compares the data with
//!    the checksums in the record and ends before it. Whole with its data: the
//!    transactions happened, though nobody was told.
//! 3. When both are complete, one flush. After it neither can be lost.
//! 4. `Committed` for its transactions.
//! 5. Only now: blocks that they freed may be used again, and logged blocks
//!    may be put in place. Done earlier, a cut would leave the state before
//!    the record with its blocks overwritten.
//!
//! A failed write or flush ends the store: what the device holds is not known.

use crate::alloc::Run;
use crate::api::{StoreEvent, TxnId};
use crate::batch::Batch;
use crate::core::{BLOCK, Core, Flying};
use crate::engine::EngineError;
use crate::gather::{Gathered, Pieces};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use bytes::Bytes;
use env::DiskError;

/// Memory of issued records that the next ones use again: so many, none longer.
const SPARE_OPS_MAX: usize = 2;
const SPARE_OPS_LEN_MAX: usize = 256 << 10;

/// A record on its way.
pub(crate) struct Issued {
    pub(crate) sequence: u64,
    /// First and last.
    txns: Option<(TxnId, TxnId)>,
    /// Device writes that are not complete: the record's and its direct data's.
    writes: u32,
    freed: Vec<u32>,
}

impl Core {
    /// The batch ends: what was queued goes out, unless enough is on its way;
    /// then it goes with what follows.
    pub(crate) fn commit(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let room = self.issued.len() < self.options.pipeline_depth && self.batches.len() == 1;
        match room {
            true => self.seal(),
            false => self.snapshot_if_due(),
        }
        self.issue();
        self.pump();
        if self.stalled.is_empty() || self.stalled.is_paced() {
            self.evict();
        }
    }

    /// Closes the open batch. The index is now what it is after this record,
    /// so this is when a checkpoint can take its snapshot.
    pub(crate) fn seal(&mut self) {
        let position = self.sealed_position;
        if self.open_batch().is_empty() {
            return;
        }
        self.send_gathered();
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

    /// Sends the open batch's data to its places.
    pub(crate) fn send_gathered(&mut self) {
        if self.gather.is_empty() {
            return;
        }
        for Gathered { run, pieces } in self.gather.take() {
            self.send_direct(run, pieces);
        }
    }

    /// Data that the open batch's record will refer to.
    pub(crate) fn send_direct(&mut self, run: Run, data: Pieces) {
        let batch = self.open_batch();
        batch.direct_writes += 1;
        let purpose = Purpose::Direct { sequence: batch.sequence, run };
        self.io.write(u64::from(run.start) * BLOCK_LEN, data.0.clone(), purpose);
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
        let mut pieces = record.pieces;
        for (offset, span_len) in self.region.spans(position, len) {
            if span_len > 0 {
                let rest = split_pieces(&mut pieces, span_len as usize);
                self.io.write(offset, pieces, Purpose::Record { sequence });
                pieces = rest;
                writes += 1;
            }
        }
        self.issued.push_back(Issued { sequence, txns: batch.txns, writes, freed: batch.freed });
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

    /// One flush for every record that is complete and has only such before it.
    fn flush_complete_records(&mut self) {
        if self.flush_in_flight {
            return;
        }
        let complete = self.issued.iter().take_while(|issued| issued.writes == 0);
        let Some(sequence) = complete.last().map(|issued| issued.sequence) else {
            return;
        };
        if self.volatile_cache {
            self.flush_in_flight = true;
            self.io.flush(Purpose::Commit { sequence });
        } else {
            self.on_durable(sequence);
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
