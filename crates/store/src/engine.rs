//! The object store on a device, without I/O of its own.
//!
//! Calling order: [`Engine::format`] or [`Engine::open`]; then, whenever a call
//! below was made, carry out every request of [`Engine::poll_disk`] and hand
//! each result to [`Engine::on_disk_done`], until [`Engine::is_open`] or
//! [`Engine::open_error`]. An open engine is an [`ObjectStore`]. At the end of
//! each batch of events call [`Engine::commit`] once, also when nothing was queued,
//! since an earlier batch may wait for room; then take its requests and events.
//! When [`Engine::fatal_error`] answers, stop the process.

use crate::alloc::Run;
use crate::api::{
    CollId, FetchId, ObjectId, ObjectStat, ObjectStore, StoreError, StoreEvent, StoreMemory, StoreStats,
    Transaction, TxnId,
};
use crate::commit::Beside;
use crate::core::Core;
use crate::index;
use crate::io::Purpose;
use crate::kinds::{OmapKey, Onode};
use crate::limits::BLOCK_LEN;
use crate::name::{Name, named};
use crate::needs;
use crate::omap_page::{OmapLimit, OmapPage};
use crate::recovery::Opening;
use crate::superblock::{DEVICE_LEN_MAX, DEVICE_LEN_MIN, Identity};
use bytes::Bytes;
use env::{DiskError, DiskInfo, DiskRequest, DiskResult};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::types::{HObject, OsdId, Uuid};

/// How the engine behaves. Only `log_len` and `overwrite` matter to the format.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of log; by default a 32nd of the device, 1 MiB to 512 MiB.
    pub log_len: Option<u64>,
    /// Format over an existing store.
    pub overwrite: bool,
    /// Write nothing: no transactions, no new epoch.
    pub read_only: bool,
    /// Whole blocks of a write do not wait for the batch's end from this length on.
    pub direct_len_min: u64,
    /// Logged data in memory that starts writing it to its place.
    pub dirty_len_max: usize,
    /// Records on their way to the device at once.
    pub pipeline_depth: usize,
    /// So many transactions do not wait for the end of their batch when the device has nothing to do.
    pub early_txns: u64,
    /// So many are worth a record beside another one on its way; fewer would only wait for the
    /// same flush, and go with what follows. Without a volatile cache one is.
    pub beside_txns: u64,
    /// With a volatile cache, a batch with so many blocks of data at most is one durable write: its
    /// record carries them.
    pub carried_blocks_max: usize,
    /// Copies of each checkpoint, 1 or 2.
    pub checkpoint_copies: usize,
    /// Bytes that the store takes in memory, about: most of it for the index, whose
    /// pages leave memory when there are more.
    pub memory_limit: usize,
    /// Bytes of object data kept in memory for reads; counted in `memory_limit`, of
    /// which it takes a quarter at most. 0: none.
    pub read_cache: usize,
    /// Tell the device about free space, in cells of `discard_blocks_min` blocks,
    /// after so many commits in a row that had nothing to do; 0: at once.
    pub discard: bool,
    pub discard_blocks_min: u32,
    pub discard_quiet_commits: u32,
    /// Write zeros ahead of small writes and of the log: for files, where the first
    /// write to a place costs more than later ones.
    pub lay_ahead: bool,
    /// With `lay_ahead`: all of the device was written at some time, so only what is discarded from now on.
    pub written_out: bool,
    /// Put together what small overwrites have cut to pieces, when [`ObjectStore::rest`] allows it.
    pub mend: bool,
    /// Small overwrites go through the log to the places that their blocks have, not only on a full and
    /// scattered device: for tests.
    pub always_keep_places: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            log_len: None,
            overwrite: false,
            read_only: false,
            direct_len_min: 64 << 10,
            dirty_len_max: 16 << 20,
            pipeline_depth: 2,
            early_txns: 20,
            beside_txns: 8,
            carried_blocks_max: 8,
            checkpoint_copies: 2,
            memory_limit: 256 << 20,
            read_cache: 64 << 20,
            discard: false,
            discard_blocks_min: 256,
            discard_quiet_commits: 16,
            lay_ahead: false,
            written_out: false,
            mend: true,
            always_keep_places: false,
        }
    }
}

impl Options {
    /// Bytes of index pages in memory: half of what the read cache leaves. The other half is for
    /// data on its way, for pages that a checkpoint holds on to while they change, and for
    /// what the index needs to find its pages.
    pub(crate) fn index_limit(&self) -> usize {
        (self.memory_limit - self.read_cache_limit()) / 2
    }

    /// Bytes of pages that may change before a checkpoint begins to write them, and as much again
    /// while it does: the rest of the limit is for pages that transactions and reads need.
    pub(crate) fn changed_limit(&self) -> usize {
        self.index_limit() / 8 * 3
    }

    /// The same for data in log records: its blocks' newest content stays in memory until it is in
    /// place, and a replay has to hold what was logged since the last checkpoint.
    pub(crate) fn logged_limit(&self) -> usize {
        self.memory_limit / 16 * 3
    }

    pub(crate) fn read_cache_limit(&self) -> usize {
        self.read_cache.min(self.memory_limit / 4)
    }
}

/// Why a store cannot be opened or formatted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the device has {len} bytes, a store needs at least {need}: use a larger one")]
    TooSmall { len: u64, need: u64 },
    #[error("the device has {len} bytes, a store takes at most {limit}: give it to several OSDs")]
    TooLarge { len: u64, limit: u64 },
    #[error("the option {what} makes no sense for this device")]
    BadOption { what: &'static str },
    #[error("no store here: the device was never formatted, or its head and tail were overwritten")]
    NotAStore,
    #[error("both superblocks are damaged ({what}): restore the OSD from its replicas")]
    Damaged { what: &'static str },
    #[error(
        "the store has format version {version} with features {incompat:#x}, this program knows \
         version {known}: use a newer program"
    )]
    Newer { version: u32, incompat: u64, known: u32 },
    #[error(
        "the store has format version {version}, which this program no longer reads (it knows {known}): \
         start it with the release that wrote it, or format it anew and let its replicas fill it"
    )]
    Older { version: u32, known: u32 },
    #[error("the store belongs to cluster {found}, not to {expected}: check the device's path")]
    OtherCluster { found: Uuid, expected: Uuid },
    #[error("the store belongs to osd.{found}, not to osd.{expected}: check the device's path")]
    OtherOsd { found: OsdId, expected: OsdId },
    #[error("the device has {len} bytes, the store on it was made for {need}: it was cut short")]
    Shrunk { len: u64, need: u64 },
    #[error("the device holds a store of cluster {fsid} already: it is not overwritten unasked")]
    AlreadyAStore { fsid: Uuid },
    #[error("device offset {offset}: {error}")]
    Io { offset: u64, error: DiskError },
    #[error("corruption at device offset {offset}: {what}; restore the OSD from its replicas")]
    Corrupt { offset: u64, what: &'static str },
}

/// Why an open store had to stop. Nothing is acknowledged afterwards.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EngineError {
    #[error("writing log record {sequence} failed: {error}")]
    LogWrite { sequence: u64, error: DiskError },
    #[error("writing data at device offset {offset} failed: {error}")]
    DataWrite { offset: u64, error: DiskError },
    #[error("a flush failed: {error}")]
    Flush { error: DiskError },
    #[error("writing a checkpoint failed: {error}")]
    Checkpoint { error: DiskError },
    #[error("switching to a checkpoint failed: {error}")]
    Superblock { error: DiskError },
    #[error("no room for a checkpoint, although it was reserved")]
    NoRoomForCheckpoint,
    #[error(
        "no copy of a page of the index ({tree}) is intact, one of them at device offset {offset}: \
         restore the OSD from its replicas"
    )]
    PageLost { tree: String, offset: u64 },
    #[error("a page of the index at device offset {offset} makes no sense: {what}")]
    PageNonsense { offset: u64, what: &'static str },
    #[error("a transaction that waited for metadata turned out to be impossible: {error}")]
    Refused { error: StoreError },
}

impl EngineError {
    pub(crate) fn data_write(run: Run, error: DiskError) -> EngineError {
        EngineError::DataWrite { offset: u64::from(run.start) * BLOCK_LEN, error }
    }
}

/// What `loligo store info` shows.
#[derive(Clone, Debug)]
pub struct StoreInfo {
    pub identity: Identity,
    pub device_len: u64,
    pub log_len: u64,
    /// Bytes of log between its head and its tail.
    pub log_used: u64,
    /// Counts the opens.
    pub epoch: u64,
    pub checkpoint_generation: u64,
    pub last_sequence: u64,
    pub free: u64,
    pub stats: StoreStats,
}

enum State {
    Opening(Box<Opening>),
    Open(Box<Core>),
    Refused(OpenError),
}

pub struct Engine {
    state: State,
}

impl Engine {
    /// Makes an empty store.
    pub fn format(disk: DiskInfo, identity: Identity, options: Options) -> Engine {
        Engine::start(disk, Opening::format(disk, identity, options))
    }

    /// Opens the store of `expect`'s cluster and OSD, or whichever is there.
    pub fn open(disk: DiskInfo, expect: Option<(Uuid, OsdId)>, options: Options) -> Engine {
        Engine::start(disk, Opening::open(disk, expect, options))
    }

    fn start(disk: DiskInfo, opening: Result<Opening, OpenError>) -> Engine {
        let refusal = if disk.len_bytes < DEVICE_LEN_MIN {
            Some(OpenError::TooSmall { len: disk.len_bytes, need: DEVICE_LEN_MIN })
        } else if disk.len_bytes > DEVICE_LEN_MAX {
            Some(OpenError::TooLarge { len: disk.len_bytes, limit: DEVICE_LEN_MAX })
        } else {
            None
        };
        let state = match (refusal, opening) {
            (Some(error), _) | (None, Err(error)) => State::Refused(error),
            (None, Ok(opening)) => State::Opening(Box::new(opening)),
        };
        Engine { state }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub fn open_error(&self) -> Option<&OpenError> {
        match &self.state {
            State::Refused(error) => Some(error),
            _ => None,
        }
    }

    pub fn fatal_error(&self) -> Option<&EngineError> {
        self.core().and_then(|core| core.failed.as_ref())
    }

    pub fn poll_disk(&mut self) -> Option<DiskRequest> {
        match &mut self.state {
            State::Opening(opening) => opening.io.poll(),
            State::Open(core) => {
                core.grant_wishes();
                core.io.poll()
            }
            State::Refused(_) => None,
        }
    }

    pub fn on_disk_done(&mut self, token: u64, result: DiskResult) {
        match &mut self.state {
            State::Opening(opening) => match opening.on_done(token, result) {
                Some(Ok(core)) => self.state = State::Open(core),
                Some(Err(error)) => self.state = State::Refused(error),
                None => (),
            },
            State::Open(core) => core.on_done(token, result),
            State::Refused(_) => (),
        }
    }

    /// The end of a batch of events: sends what was queued to the device.
    pub fn commit(&mut self) {
        if let State::Open(core) = &mut self.state {
            core.note_quiet();
            core.commit();
        }
    }

    /// Begins a checkpoint, so that the next open has nothing to replay. Ends
    /// when [`is_idle`](Self::is_idle); worth waiting for before a clean stop.
    pub fn checkpoint(&mut self) {
        if let State::Open(core) = &mut self.state
            && core.failed.is_none()
            && !core.options.read_only
        {
            core.stop_trimming();
            core.mend.stop();
            core.seal(Beside::Nothing);
            if core.sealed_position != core.reclaim.last_snapshot_position {
                core.take_snapshot();
            }
            core.issue();
            core.pump();
        }
    }

    /// Nothing queued, nothing in flight, no work in the background.
    pub fn is_idle(&self) -> bool {
        self.core().is_none_or(|core| {
            core.io.is_idle()
                && core.reclaim.is_idle()
                && core.pager.is_idle()
                && core.stalled.is_empty()
                && core.batches.iter().all(|b| b.is_empty())
        })
    }

    /// None before the store is open.
    pub fn info(&self) -> Option<StoreInfo> {
        let core = self.core()?;
        let superblock = &core.superblock;
        Some(StoreInfo {
            identity: superblock.identity,
            device_len: superblock.device_len,
            log_len: superblock.log_len,
            log_used: core.issue_position - superblock.head_position,
            epoch: superblock.epoch,
            checkpoint_generation: superblock.checkpoint.generation,
            last_sequence: core.durable,
            free: core.alloc.free_blocks() * BLOCK_LEN,
            stats: self.stats(),
        })
    }

    /// Where an object's data lies: (offset, length, device offset), ascending,
    /// adjacent ones joined where they are adjacent on the device. The last one
    /// may reach past the object's end, to the end of its block. Errors as for
    /// [`ObjectStore::data_extents`].
    pub fn device_extents(&self, id: &ObjectId) -> Result<Vec<(u64, u64, u64)>, StoreError> {
        let (core, onode) = self.onode(id)?;
        let wanted = needs::of_read(&core.index, onode.nid, 0, index::ALL_BLOCKS);
        if !wanted.is_empty() {
            return Err(core.pager.pending(wanted));
        }
        let mut found: Vec<(u64, u64, u64)> = Vec::new();
        core.index.for_mappings(onode.nid, 0, index::ALL_BLOCKS, |block, mapping| {
            let (offset, device) = (u64::from(block) * BLOCK_LEN, u64::from(mapping.device) * BLOCK_LEN);
            match found.last_mut() {
                Some((start, len, place)) if *start + *len == offset && *place + *len == device => {
                    *len += BLOCK_LEN;
                }
                _ => found.push((offset, BLOCK_LEN, device)),
            }
        });
        Ok(found)
    }

    /// Where the block with this byte of an object lies on the device. `None`
    /// for a hole, and as long as its content is newer than what lies there.
    /// For tests that damage devices.
    pub fn device_offset(&self, id: &ObjectId, offset: u64) -> Option<u64> {
        let (core, onode) = self.onode(id).ok()?;
        let block = offset / BLOCK_LEN;
        if !needs::of_read(&core.index, onode.nid, block, block + 1).is_empty() {
            return None;
        }
        let mapping = core.index.mapping(onode.nid, u32::try_from(block).ok()?)?;
        let newer = core.dirty.get(mapping.device).is_some() || core.flying(mapping.device).is_some();
        (!newer).then_some(u64::from(mapping.device) * BLOCK_LEN)
    }

    pub(crate) fn core(&self) -> Option<&Core> {
        match &self.state {
            State::Open(core) => Some(core),
            _ => None,
        }
    }

    pub(crate) fn core_mut(&mut self) -> Option<&mut Core> {
        match &mut self.state {
            State::Open(core) => Some(core),
            _ => None,
        }
    }

    fn onode(&self, id: &ObjectId) -> Result<(&Core, &Onode), StoreError> {
        let core = self.core().ok_or(StoreError::Stopped)?;
        Ok((core, &core.entry(id)?.1))
    }
}

impl Core {
    /// With every queued transaction.
    fn has_collection(&self, coll: CollId) -> bool {
        self.stalled.collection(coll).unwrap_or_else(|| self.index.collections.contains_key(&coll))
    }

    /// The object's name and onode, when it and all that is queued for it are in memory.
    pub(crate) fn entry(&self, id: &ObjectId) -> Result<&(Name, Arc<Onode>), StoreError> {
        if self.failed.is_some() {
            return Err(StoreError::Stopped);
        }
        if self.stalled.touches(id) {
            return Err(self.pager.pending_behind());
        }
        match self.index.look_up(id) {
            // Then its collection is there, too.
            Ok(Some(entry)) => Ok(entry),
            _ if !self.has_collection(id.coll) => Err(StoreError::NoCollection(id.coll)),
            Ok(None) => Err(StoreError::NoObject),
            Err(wanted) => Err(self.pager.pending(vec![wanted])),
        }
    }
}

impl Core {
    fn on_done(&mut self, token: u64, result: DiskResult) {
        let Some(purpose) = self.io.done(token) else {
            return;
        };
        match purpose {
            Purpose::Record { sequence } => self.on_record_written(sequence, result),
            Purpose::Direct { sequence, run } => self.on_direct_written(sequence, run, result),
            Purpose::Commit { sequence } => self.on_commit_flushed(sequence, result),
            Purpose::Read(part) => self.on_read(token, part, result),
            Purpose::Base { target, source } => self.on_base(token, target, source, result),
            Purpose::Writeback { run, sequences } => {
                self.on_writeback(token, run, &sequences, result);
            }
            Purpose::Checkpoint => self.on_checkpoint_written(result),
            Purpose::Page { id, part } => self.on_page(id, part, result),
            Purpose::Switch => self.on_switch_step(result),
            Purpose::Discard { run } => self.on_discarded(run),
            Purpose::Mend { run } => self.on_mend_read(token, run, result),
            Purpose::Lay(laying) => self.on_laid(laying, result),
            Purpose::Check { part } => self.checks.push((part, result)),
            Purpose::Open { .. } => (),
        }
        self.pump();
    }
}

impl ObjectStore for Engine {
    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError> {
        match self.onode(id) {
            Ok((_, onode)) => Ok(Some(ObjectStat {
                size: onode.size,
                allocated: onode.mapped * BLOCK_LEN,
                omap_keys: onode.omap_keys,
                omap_len: onode.omap_len + onode.omap_header.len() as u64,
            })),
            Err(StoreError::NoObject) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn xattr(&self, id: &ObjectId, name: &str) -> Result<Option<Bytes>, StoreError> {
        Ok(self.onode(id)?.1.xattrs.get(name).map(Bytes::copy_from_slice))
    }

    fn xattrs(&self, id: &ObjectId) -> Result<BTreeMap<String, Bytes>, StoreError> {
        Ok(self.onode(id)?.1.xattrs.to_map())
    }

    fn omap_header(&self, id: &ObjectId) -> Result<Bytes, StoreError> {
        Ok(self.onode(id)?.1.omap_header.clone())
    }

    fn omap_get(&self, id: &ObjectId, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let (core, onode) = self.onode(id)?;
        let by = index::entry(onode.nid, key);
        if let Some(slot) = core.index.omap.tree.absent(&by) {
            return Err(core.pager.pending(vec![slot.into()]));
        }
        Ok(core.index.omap.tree.get(onode.nid, by).map(|(_, value)| Bytes::copy_from_slice(value)))
    }

    fn omap_list(
        &self,
        id: &ObjectId,
        after: Option<&[u8]>,
        prefix: &[u8],
        limit: OmapLimit,
    ) -> Result<OmapPage, StoreError> {
        let (core, onode) = self.onode(id)?;
        let mut page = OmapPage::default();
        if onode.omap_keys == 0 {
            return Ok(page);
        }
        let nid = onode.nid;
        let (start, skip) = match after {
            Some(after) if after >= prefix => (after, true),
            _ => (prefix, false),
        };
        let absent = core.index.omap.tree.walk(index::entries(nid, start, None), |key, value| {
            if skip && key.nid == nid && key.key[..] == *start {
                return true;
            }
            if key.nid != nid || !key.key.starts_with(prefix) {
                return false;
            }
            page.add(limit, key.key.len() + value.len(), || {
                (Bytes::copy_from_slice(&key.key), Bytes::copy_from_slice(value))
            })
        });
        // Where a page begins behind what was asked for, nothing is missing.
        let behind = |first: &OmapKey| {
            first.nid > nid || (first.nid == nid && first.key[..] > *prefix && !first.key.starts_with(prefix))
        };
        match absent {
            Some(slot) if !behind(&slot.first) => Err(core.pager.pending(vec![slot.into()])),
            _ => Ok(page),
        }
    }

    fn data_extents(&self, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError> {
        let (core, onode) = self.onode(id)?;
        let end = offset.saturating_add(len).min(onode.size);
        let mut found: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return Ok(found);
        }
        let (first, last) = (offset / BLOCK_LEN, end.div_ceil(BLOCK_LEN));
        let wanted = needs::of_read(&core.index, onode.nid, first, last);
        if !wanted.is_empty() {
            return Err(core.pager.pending(wanted));
        }
        core.index.for_mappings(onode.nid, first, last, |block, _| {
            let start = u64::from(block) * BLOCK_LEN;
            let (from, to) = (start.max(offset), (start + BLOCK_LEN).min(end));
            match found.last_mut() {
                Some((start, len)) if *start + *len == from => *len = to - *start,
                _ => found.push((from, to - from)),
            }
        });
        Ok(found)
    }

    fn collections(&self) -> Vec<CollId> {
        let Some(core) = self.core() else {
            return Vec::new();
        };
        let mut found: BTreeSet<CollId> = core.index.collections.keys().copied().collect();
        for (coll, exists) in core.stalled.collections() {
            match exists {
                true => found.insert(coll),
                false => found.remove(&coll),
            };
        }
        found.into_iter().collect()
    }

    fn has_collection(&self, coll: CollId) -> bool {
        self.core().is_some_and(|core| core.has_collection(coll))
    }

    fn list(&self, coll: CollId, start: &HObject, max: usize) -> Result<Vec<HObject>, StoreError> {
        let core = self.core().ok_or(StoreError::Stopped)?;
        if core.stalled.touches_collection(coll) {
            return Err(core.pager.pending_behind());
        }
        if !core.has_collection(coll) {
            return Err(StoreError::NoCollection(coll));
        }
        let mut found: Vec<HObject> = Vec::new();
        let first = ObjectId { coll, object: start.clone() };
        let by = named(&first);
        let from = |name: &Name| by(name).then(Ordering::Greater);
        let absent = core.index.objects.tree.walk(from, |name, _| {
            let id = name.id();
            if id.coll != coll || found.len() == max {
                return false;
            }
            found.push(id.object.clone());
            found.len() < max
        });
        match absent {
            Some(slot) if slot.first.position().coll <= coll => Err(core.pager.pending(vec![slot.into()])),
            _ => Ok(found),
        }
    }

    fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        self.core_mut().ok_or(StoreError::Stopped)?.read(id, offset, len, true)
    }

    fn read_device(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        self.core_mut().ok_or(StoreError::Stopped)?.read(id, offset, len, false)
    }

    fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        self.core_mut().ok_or(StoreError::Stopped)?.queue(txn)
    }

    fn rest(&mut self) -> bool {
        self.core_mut().is_some_and(Core::rest)
    }

    fn take_read(&mut self, id: FetchId) -> Option<Result<Bytes, StoreError>> {
        let events = &mut self.core_mut()?.events;
        match events.pop_back() {
            Some(StoreEvent::Read { id: last, result }) if last == id => Some(result),
            other => {
                events.extend(other);
                None
            }
        }
    }

    fn poll_event(&mut self) -> Option<StoreEvent> {
        self.core_mut()?.events.pop_front()
    }

    fn stats(&self) -> StoreStats {
        let Some(core) = self.core() else {
            return StoreStats::default();
        };
        let totals = &core.index.totals;
        let io = core.io.counters;
        let taken = u64::from(core.alloc.blocks()) - core.alloc.free_blocks();
        StoreStats {
            total: core.superblock.device_len,
            available: core.available_blocks() * BLOCK_LEN,
            data: totals.used * BLOCK_LEN,
            omap: totals.omap_len,
            internal: taken.saturating_sub(totals.used) * BLOCK_LEN,
            objects: totals.objects,
            device_writes: io.writes,
            device_write_bytes: io.write_bytes,
            writes_by_part: io.by_part,
            device_reads: io.reads,
            device_read_bytes: io.read_bytes,
            flushes: io.flushes,
            durable_writes: io.durable_writes,
            transactions: core.transactions,
            transactions_paced: core.stalled.paced_count,
            checksum_errors: core.checksum_errors,
            mended_units: core.mend.units,
            mended_blocks: core.mend.blocks,
            moved_blocks: core.mend.moved_blocks,
            metadata_reads: core.pager.reads,
            metadata_memory: core.index.memory() as u64,
            cache_hits: core.cache.hits,
            cache_memory: core.cache.memory().bytes,
        }
    }

    fn memory(&self) -> StoreMemory {
        let Some(core) = self.core() else {
            return StoreMemory::default();
        };
        let (objects, maps) = core.index.memory_by_part();
        StoreMemory {
            cache: core.cache.memory(),
            objects,
            maps,
            buffers: core.buffers.memory() + core.read_buffers.memory(),
        }
    }
}
