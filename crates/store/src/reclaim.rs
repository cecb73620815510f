//! Log space back: logged blocks to their places, a checkpoint of the index
//! (its changed pages, then the directory of all), the switch to it.
//!
//! The order, and what a power cut after each step leaves behind:
//!
//! 1. A snapshot of the index at record `S` (position `P` ends it).
//! 2. Once `S` is durable: every block whose newest durable version is in a
//!    record up to `S` is written to its place. A cut: replay from the old
//!    head restores each of them from the log, torn or not.
//! 3. Meanwhile the pages that changed since the last one, and a directory of
//!    all, are written to free blocks. A cut: they are free.
//! 4. One flush. Now the state at `P` needs no record before `P`.
//! 5. One superblock copy names the new checkpoint and the head `P`; a flush.
//!    A cut: torn, the other copy still names the old ones, both intact;
//!    whole, the new ones hold.
//! 6. The other copy; a flush.
//! 7. Only now may the log before `P`, the pages that were replaced and the old
//!    directory be overwritten: no intact superblock refers to them any more.
//!
//! Blocks that records after `S` free are not used again before step 7: a page of
//! that very checkpoint could land there, where the snapshot, or a record between,
//! has data; an open, which replays all this, would find two owners.
//!
//! Snapshots are taken where records are sealed, one for each part of the log;
//! as many records as lie between two always fit, so commits can wait for
//! this, but never the other way round.

use crate::alloc::{Allocator, Run};
use crate::checkpoint::{self, CHUNK_BLOCKS, ChunkWriter, IndexSnapshot, PageWriter, Places, Stream};
use crate::commit::Beside;
use crate::core::{BLOCK, Core};
use crate::dirty::{Image, Writeback};
use crate::engine::EngineError;
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::page_group::PageGroup;
use crate::superblock::{COPIES_MAX, Checkpoint, Superblock};
use base::AlignedBuf;
use base::aligned::ALIGNMENT;
use bytes::Bytes;
use env::DiskResult;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Blocks of one writeback request.
const WRITEBACK_BLOCKS: u32 = 64;

/// Requests of each kind in flight; more when the log is nearly full or much has changed
/// meanwhile, most when transactions wait for it.
const IN_FLIGHT: u32 = 2;
const IN_FLIGHT_PRESSED: u32 = 8;
const IN_FLIGHT_AWAITED: u32 = 32;

struct Snapshot {
    position: u64,
    sequence: u64,
    index: Option<IndexSnapshot>,
    /// Bytes of pages that it has to write.
    changed: usize,
    /// Bytes of logged data, since the snapshot before.
    logged: usize,
    /// Blocks that later records freed.
    held: Vec<u32>,
    /// Upper bound of what its checkpoint takes.
    blocks_max: u64,
    /// Device blocks whose checksum was not known yet, and those that came later.
    unresolved: BTreeSet<u32>,
    crcs: BTreeMap<u32, u32>,
    /// Step 2 is complete.
    in_place: bool,
}

/// One pass over the logged blocks that are due.
struct Round {
    /// Versions up to this record.
    limit: u64,
    due: Vec<u32>,
    at: usize,
    /// Pinned when their turn came.
    retry: Vec<u32>,
    for_snapshot: bool,
}

enum Stage {
    Idle,
    Pages(Box<PageWriter>),
    Streaming(Box<ChunkWriter>),
    Switching { step: Step, next: Superblock, chain: Vec<Run>, stream: Box<Stream> },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    FlushData,
    WriteFirst,
    FlushFirst,
    WriteSecond,
    FlushSecond,
}

pub(crate) struct Reclaim {
    pub(crate) last_snapshot_position: u64,
    snapshots: VecDeque<Snapshot>,
    /// Bytes of logged data since the last snapshot.
    pub(crate) logged: usize,
    stage: Stage,
    writes_in_flight: u32,
    /// Blocks that the checkpoint under way has taken.
    taken: u64,
    round: Option<Round>,
    last_round_limit: u64,
    writebacks_in_flight: u32,
}

impl Reclaim {
    pub(crate) fn new(head_position: u64) -> Reclaim {
        Reclaim {
            last_snapshot_position: head_position,
            snapshots: VecDeque::new(),
            logged: 0,
            stage: Stage::Idle,
            writes_in_flight: 0,
            taken: 0,
            round: None,
            last_round_limit: 0,
            writebacks_in_flight: 0,
        }
    }

    /// Keeps what a record freed from being used again while a snapshot is older.
    /// Returns what need not wait.
    pub(crate) fn hold(&mut self, sequence: u64, freed: Vec<u32>) -> Vec<u32> {
        match self.snapshots.iter_mut().rev().find(|snapshot| snapshot.sequence < sequence) {
            Some(snapshot) => {
                snapshot.held.extend(freed);
                Vec::new()
            }
            None => freed,
        }
    }

    pub(crate) fn has_snapshot(&self) -> bool {
        !self.snapshots.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.snapshots.is_empty() && self.round.is_none()
    }

    /// Free blocks that checkpoints already begun or due may still take.
    pub(crate) fn checkpoint_blocks_left(&self) -> u64 {
        let switching = matches!(self.stage, Stage::Switching { .. });
        let waiting = self.snapshots.iter().skip(usize::from(switching));
        waiting.map(|snapshot| snapshot.blocks_max).max().unwrap_or(0).saturating_sub(self.taken)
    }

    /// The content of a block has become known, as of a record.
    pub(crate) fn learned_crc(&mut self, device: u32, sequence: u64, crc: u32) {
        for snapshot in &mut self.snapshots {
            let wanted = snapshot.unresolved.remove(&device) || snapshot.crcs.contains_key(&device);
            if wanted && sequence <= snapshot.sequence {
                snapshot.crcs.insert(device, crc);
            }
        }
    }
}

impl Core {
    /// The state after the last sealed record; the open batch is empty.
    pub(crate) fn take_snapshot(&mut self) {
        assert!(self.open_batch().is_empty());
        let sequence = self.open_batch().sequence - 1;
        let unresolved = self.awaits.keys().copied().filter(|device| {
            let block = self.dirty.get(*device);
            block.is_some_and(|block| matches!(block.newest.image, Image::Waiting { .. }))
        });
        let snapshot = Snapshot {
            position: self.sealed_position,
            sequence,
            blocks_max: self.checkpoint_blocks(0),
            held: Vec::new(),
            changed: self.index.dirty(),
            logged: std::mem::take(&mut self.reclaim.logged),
            index: Some(IndexSnapshot::take(&mut self.index)),
            unresolved: unresolved.collect(),
            crcs: BTreeMap::new(),
            in_place: false,
        };
        self.reclaim.last_snapshot_position = self.sealed_position;
        self.reclaim.snapshots.push_back(snapshot);
    }

    /// Does what can be done now; called after every event.
    pub(crate) fn pump(&mut self) {
        while self.failed.is_none() && !self.options.read_only {
            self.pump_writeback();
            self.pump_checkpoint();
            self.pump_trim();
            self.pump_lay();
            self.pump_mend();
            // What could go on may have had a snapshot taken: that begins at once.
            if !self.run_paced() {
                return;
            }
        }
    }

    /// Bytes of changed pages that the checkpoint under way does not write.
    fn changed_since(&self) -> usize {
        let later = self.reclaim.snapshots.iter().skip(1).map(|snapshot| snapshot.changed);
        self.index.dirty() + later.sum::<usize>()
    }

    /// Bytes of logged data that it does not put in place.
    fn logged_since(&self) -> usize {
        let later = self.reclaim.snapshots.iter().skip(1).map(|snapshot| snapshot.logged);
        self.reclaim.logged + later.sum::<usize>()
    }

    /// Pages that changed stay in memory until a checkpoint has written them, so that memory is
    /// bounded by how much may change meanwhile: half of what may before a checkpoint begins, and
    /// the other half in step with the pages that it has written. Beyond that transactions wait.
    /// So a replay, which changes the same pages again, stays within the limit, too; where it
    /// does not, after a start with a lower one, everything waits for the first checkpoint.
    ///
    /// Nothing that a checkpoint needs waits for a transaction: the snapshot was taken where a
    /// record was sealed, and sealed records go out by themselves.
    pub(crate) fn has_to_wait(&self) -> bool {
        let Some(Snapshot { changed, logged, .. }) = self.reclaim.snapshots.front() else {
            return false;
        };
        let limit = self.options.changed_limit();
        let written = match &self.reclaim.stage {
            Stage::Idle => 0,
            Stage::Pages(pages) => pages.share_written(limit / 2),
            Stage::Streaming(_) | Stage::Switching { .. } => limit / 2,
        };
        let since = self.changed_since();
        let (logged_since, logged_limit) = (self.logged_since(), self.options.logged_limit());
        since > limit / 2 + written
            || since + changed > 2 * limit + limit / 4
            || logged_since > logged_limit
            || logged_since + logged > 2 * logged_limit + logged_limit / 4
    }

    /// Pages that changed and data that was logged are in memory until a checkpoint has ended.
    pub(crate) fn is_snapshot_due(&self) -> bool {
        let changed = self.index.dirty() > self.options.changed_limit();
        (changed || self.reclaim.logged > self.options.logged_limit()) && !self.reclaim.has_snapshot()
    }

    pub(crate) fn snapshot_if_due(&mut self) {
        if self.is_snapshot_due() {
            self.seal(Beside::More);
            if !self.reclaim.has_snapshot() {
                self.take_snapshot();
            }
        }
    }

    fn in_flight_max(&self) -> u32 {
        let used = self.sealed_position - self.superblock.head_position;
        let behind = self.changed_since() > self.options.changed_limit() / 4;
        match behind || used > self.region.len / 4 * 3 {
            _ if self.stalled.is_paced() => IN_FLIGHT_AWAITED,
            true => IN_FLIGHT_PRESSED,
            false => IN_FLIGHT,
        }
    }

    fn pump_checkpoint(&mut self) {
        if matches!(self.reclaim.stage, Stage::Idle) && !self.begin_checkpoint() {
            return;
        }
        if matches!(self.reclaim.stage, Stage::Pages(_)) {
            self.pump_pages();
        }
        if matches!(self.reclaim.stage, Stage::Streaming(_)) {
            self.pump_directory();
        }
    }

    fn begin_checkpoint(&mut self) -> bool {
        let Some(snapshot) = self.reclaim.snapshots.front_mut() else {
            return false;
        };
        if !snapshot.unresolved.is_empty() {
            return false;
        }
        let Some(index) = snapshot.index.take() else {
            return false;
        };
        let pages = PageWriter::new(index, std::mem::take(&mut snapshot.crcs));
        self.reclaim.stage = Stage::Pages(Box::new(pages));
        self.reclaim.taken = 0;
        true
    }

    /// Step 3, first half: pages that changed.
    fn pump_pages(&mut self) {
        let limit = self.in_flight_max();
        let copies = self.options.checkpoint_copies;
        let Stage::Pages(pages) = &mut self.reclaim.stage else {
            return;
        };
        while self.reclaim.writes_in_flight < limit {
            let Some(mut group) = PageGroup::take(pages, &self.buffers) else {
                return self.begin_directory();
            };
            for copy in 0..copies {
                let Some(requests) = group.place(&mut self.alloc, copy) else {
                    return self.fail(EngineError::NoRoomForCheckpoint);
                };
                for (run, data) in requests {
                    self.io.write(u64::from(run.start) * BLOCK_LEN, data, Purpose::Checkpoint);
                    self.reclaim.writes_in_flight += 1;
                }
            }
            self.reclaim.taken += u64::from(group.blocks()) * copies as u64;
            for (page, place) in group.into_places() {
                pages.placed(page, place);
            }
        }
    }

    fn begin_directory(&mut self) {
        let Stage::Pages(pages) = std::mem::replace(&mut self.reclaim.stage, Stage::Idle) else {
            return;
        };
        let stream = Stream::new(*pages);
        let generation = self.superblock.checkpoint.generation + 1;
        let copies = self.options.checkpoint_copies;
        match ChunkWriter::new(stream, generation, || place_chunk(&mut self.alloc, copies)) {
            Some(writer) => self.reclaim.stage = Stage::Streaming(Box::new(writer)),
            None => self.fail(EngineError::NoRoomForCheckpoint),
        }
    }

    /// Step 3, second half: the directory.
    fn pump_directory(&mut self) {
        let limit = self.in_flight_max();
        let nonce = self.superblock.nonce();
        let copies = self.options.checkpoint_copies;
        let Stage::Streaming(writer) = &mut self.reclaim.stage else {
            return;
        };
        while !writer.finished && self.reclaim.writes_in_flight < limit {
            let Some(chunk) = writer.next_chunk(&self.index, || place_chunk(&mut self.alloc, copies)) else {
                return self.fail(EngineError::NoRoomForCheckpoint);
            };
            let blocks = (checkpoint::HEADER_LEN + chunk.payload.len()).div_ceil(BLOCK);
            let mut buffer = self.buffers.take(blocks);
            let (head, rest) = buffer.split_at_mut(checkpoint::HEADER_LEN);
            head.copy_from_slice(&chunk.header.encode(nonce, &chunk.payload));
            rest[..chunk.payload.len()].copy_from_slice(&chunk.payload);
            rest[chunk.payload.len()..].fill(0);
            let buffer = buffer.freeze().slice(..blocks * BLOCK);
            for place in chunk.places.iter().flatten() {
                let offset = u64::from(place.start) * BLOCK_LEN;
                self.io.write(offset, vec![buffer.clone()], Purpose::Checkpoint);
                self.reclaim.writes_in_flight += 1;
                self.reclaim.taken += u64::from(place.count);
            }
        }
        let ready = self.reclaim.snapshots.front().is_some_and(|snapshot| snapshot.in_place);
        if writer.finished && self.reclaim.writes_in_flight == 0 && ready {
            self.begin_switch();
        }
    }

    fn begin_switch(&mut self) {
        let Stage::Streaming(writer) = std::mem::replace(&mut self.reclaim.stage, Stage::Idle) else {
            return;
        };
        let Some(snapshot) = self.reclaim.snapshots.front() else {
            return;
        };
        let next = Superblock {
            generation: self.superblock.generation + 1,
            head_position: snapshot.position,
            head_sequence: snapshot.sequence + 1,
            checkpoint: Checkpoint {
                generation: self.superblock.checkpoint.generation + 1,
                first: writer.first,
            },
            ..self.superblock.clone()
        };
        let ChunkWriter { stream, taken: chain, .. } = *writer;
        let stream = Box::new(stream);
        self.reclaim.stage = Stage::Switching { step: Step::FlushData, next, chain, stream };
        self.start_step();
    }

    fn start_step(&mut self) {
        let Stage::Switching { step, next, .. } = &self.reclaim.stage else {
            return;
        };
        let copy = match step {
            Step::WriteFirst => 0,
            Step::WriteSecond => 1,
            Step::FlushData | Step::FlushFirst | Step::FlushSecond => {
                if self.volatile_cache {
                    self.io.flush(Purpose::Switch);
                } else {
                    self.next_step();
                }
                return;
            }
        };
        let offset = Superblock::offsets(next.device_len)[copy];
        let data = AlignedBuf::copy_of(&next.encode()).freeze();
        self.io.write(offset, vec![data], Purpose::Switch);
    }

    fn next_step(&mut self) {
        let Stage::Switching { step, .. } = &mut self.reclaim.stage else {
            return;
        };
        *step = match step {
            Step::FlushData => Step::WriteFirst,
            Step::WriteFirst => Step::FlushFirst,
            Step::FlushFirst => Step::WriteSecond,
            Step::WriteSecond => Step::FlushSecond,
            Step::FlushSecond => return self.end_switch(),
        };
        self.start_step();
    }

    pub(crate) fn on_switch_step(&mut self, result: DiskResult) {
        match result {
            Ok(_) => self.next_step(),
            Err(error) => self.fail(EngineError::Superblock { error }),
        }
    }

    fn end_switch(&mut self) {
        let stage = std::mem::replace(&mut self.reclaim.stage, Stage::Idle);
        let Stage::Switching { next, chain, stream, .. } = stage else {
            return;
        };
        self.superblock = next;
        let held = self.reclaim.snapshots.pop_front().map_or_else(Vec::new, |snapshot| snapshot.held);
        self.release_freed(held);
        for run in checkpoint::adopt(&mut self.index, *stream) {
            self.release(run);
        }
        for run in std::mem::replace(&mut self.chain, chain) {
            self.release(run);
        }
        // What was written may leave now.
        self.evict();
        self.snapshot_if_due();
        self.issue();
    }

    pub(crate) fn on_checkpoint_written(&mut self, result: DiskResult) {
        self.reclaim.writes_in_flight -= 1;
        if let Err(error) = result {
            self.fail(EngineError::Checkpoint { error });
        }
    }

    fn pump_writeback(&mut self) {
        loop {
            if self.reclaim.round.is_none() && !self.begin_round() {
                return;
            }
            while self.reclaim.writebacks_in_flight < self.in_flight_max() {
                let Some(writeback) = self.next_writeback() else {
                    break;
                };
                let offset = u64::from(writeback.run.start) * BLOCK_LEN;
                let purpose = Purpose::Writeback { run: writeback.run, sequences: writeback.sequences };
                let token = self.io.write(offset, writeback.data, purpose);
                self.pins.pin(writeback.run, token);
                self.reclaim.writebacks_in_flight += 1;
            }
            let Some(round) = &self.reclaim.round else {
                return;
            };
            let over = round.at == round.due.len() && round.retry.is_empty();
            if !over || self.reclaim.writebacks_in_flight > 0 {
                return;
            }
            if round.for_snapshot
                && let Some(snapshot) = self.reclaim.snapshots.front_mut()
            {
                snapshot.in_place = true;
            }
            self.reclaim.last_round_limit = round.limit;
            self.reclaim.round = None;
        }
    }

    fn begin_round(&mut self) -> bool {
        let snapshot = self.reclaim.snapshots.front();
        let due = snapshot.filter(|snapshot| !snapshot.in_place && snapshot.sequence <= self.durable);
        let (limit, for_snapshot) = match due {
            Some(snapshot) => (snapshot.sequence, true),
            None => (self.durable, false),
        };
        let too_many = self.dirty.len() * BLOCK > self.options.dirty_len_max;
        if !for_snapshot && (!too_many || limit == self.reclaim.last_round_limit) {
            return false;
        }
        let due = self.dirty.due(self.durable, limit);
        self.reclaim.round = Some(Round { limit, due, at: 0, retry: Vec::new(), for_snapshot });
        true
    }

    /// The next stretch of adjacent blocks, in device order.
    fn next_writeback(&mut self) -> Option<Writeback> {
        let round = self.reclaim.round.as_mut()?;
        let mut found: Option<Writeback> = None;
        while let Some(device) = round.due.get(round.at).copied() {
            let this = Run { start: device, count: 1 };
            if let Some(found) = &found
                && (found.run.end() != device || found.run.count == WRITEBACK_BLOCKS)
            {
                break;
            }
            round.at += 1;
            let Some((sequence, content)) = self.dirty.due_content(device, self.durable, round.limit) else {
                continue;
            };
            if self.pins.overlaps(this) {
                round.retry.push(device);
                continue;
            }
            let content = aligned(content);
            match &mut found {
                Some(found) => {
                    found.run.count += 1;
                    found.data.push(content);
                    found.sequences.push(sequence);
                }
                None => {
                    let (data, sequences) = (vec![content], vec![sequence]);
                    found = Some(Writeback { run: this, data, sequences });
                }
            }
        }
        if round.at == round.due.len() && !round.retry.is_empty() {
            round.due = std::mem::take(&mut round.retry);
            round.at = 0;
        }
        found
    }

    pub(crate) fn on_writeback(&mut self, token: u64, run: Run, sequences: &[u64], result: DiskResult) {
        self.unpin(run, token);
        self.reclaim.writebacks_in_flight -= 1;
        if let Err(error) = result {
            return self.fail(EngineError::data_write(run, error));
        }
        self.cache.forget(run);
        for (device, sequence) in (run.start..run.end()).zip(sequences) {
            self.dirty.written(device, *sequence);
        }
    }
}

/// Read back from the log, a block lies wherever the driver's buffer was.
fn aligned(content: &Bytes) -> Bytes {
    if (content.as_ptr() as usize).is_multiple_of(ALIGNMENT) {
        content.clone()
    } else {
        AlignedBuf::copy_of(content).freeze()
    }
}

/// Equally long places for each copy of a chunk.
fn place_chunk(alloc: &mut Allocator, copies: usize) -> Option<Places> {
    let mut places: Places = [None; COPIES_MAX];
    for copy in 0..copies {
        match alloc.allocate(CHUNK_BLOCKS, None) {
            Some(run) => places[copy] = Some(run),
            None => {
                places.iter().flatten().for_each(|run| alloc.release(*run));
                return None;
            }
        }
    }
    let count = places.iter().flatten().map(|run| run.count).min()?;
    for run in places.iter_mut().flatten() {
        if run.count > count {
            alloc.release(Run { start: run.start + count, count: run.count - count });
            run.count = count;
        }
    }
    Some(places)
}
