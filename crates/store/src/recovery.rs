//! From a device to an open store.
//!
//! Superblocks, then the checkpoint they name, then every valid record after
//! it; then the doubt at the log's end is settled (see `settle` below), both
//! superblocks get a new epoch, and the store is open. Whatever the device
//! holds, the outcome is an open store or an [`OpenError`]; never a panic,
//! and memory bounded by what was read.
//!
//! How a torn tail differs from damage: each record says up to which record
//! all was durable when it was written, and the superblock says which record
//! was the last one found when the current epoch began. A record that cannot
//! be read although one of them vouches for it is damage, and the store is
//! refused. One that nobody vouches for was never acknowledged, or was the
//! very last; it ends the log.

use crate::alloc::{Allocator, Run};
use crate::apply::replayed_crc;
use crate::batch::Batch;
use crate::buffers::Buffers;
use crate::checkpoint::{ChunkHeader, Loader, Places};
use crate::chosen::Chosen;
use crate::core::{BLOCK, Core};
use crate::dirty::{Dirty, Image, Version};
use crate::engine::{OpenError, Options};
use crate::gather::Gather;
use crate::index::{BlockSink, Index, Wanted};
use crate::io::{Io, Purpose};
use crate::key_map::KeyMap;
use crate::lay::Lay;
use crate::limits::BLOCK_LEN;
use crate::log::{self, Header, Region};
use crate::needs::Needs;
use crate::ops::{self, Nonsense, OpWriter};
use crate::pager::{self, PRELOADS_MAX, Pager};
use crate::pins::Pins;
use crate::place::Place;
use crate::read_cache::ReadCache;
use crate::reclaim::Reclaim;
use crate::stalled::Stalled;
use crate::superblock::{self, COPIES_MAX, Checkpoint, Identity, LOG_LEN_MIN, Superblock, Unusable};
use crate::trim::Trim;
use base::{AlignedBuf, crc32c};
use bytes::{Bytes, BytesMut};
use env::{DiskInfo, DiskResult};
use std::collections::{BTreeMap, HashMap, VecDeque};
use wire::types::{OsdId, Uuid};

/// Bytes of log asked for at once.
const WINDOW_LEN: u64 = 1 << 20;

/// Blocks of a read that settles the tail, and such reads at once: on a
/// fragmented device most of them are short.
const SETTLE_BLOCKS: u32 = 256;
const SETTLE_READS: usize = 32;

type Outcome = Option<Result<Box<Core>, OpenError>>;

enum Mode {
    Format(Identity),
    Open(Option<(Uuid, OsdId)>),
}

/// What is being rebuilt.
struct Rebuilt {
    index: Index,
    alloc: Allocator,
    dirty: Dirty,
    /// Blocks that records near the tail wrote directly: sequence and checksum.
    direct: BTreeMap<u32, (u64, u32)>,
    /// A record freed a block that was free.
    clash: bool,
}

impl BlockSink for Sink<'_> {
    fn used(&mut self, device: u32) -> bool {
        device < self.alloc.blocks() && self.alloc.mark(device)
    }

    fn freed(&mut self, device: u32) {
        if !self.alloc.is_used(device) {
            *self.clash = true;
            return;
        }
        self.alloc.release(Run { start: device, count: 1 });
        self.dirty.remove(device);
        self.direct.remove(&device);
    }
}

/// All of [`Rebuilt`] but the index, which borrows it as its sink.
struct Sink<'a> {
    alloc: &'a mut Allocator,
    dirty: &'a mut Dirty,
    direct: &'a mut BTreeMap<u32, (u64, u32)>,
    clash: &'a mut bool,
}

impl Rebuilt {
    fn new(superblock: &Superblock) -> Rebuilt {
        let mut alloc = Allocator::new(superblock.blocks());
        let reserved = superblock.reserved();
        for run in reserved {
            alloc.mark_run(run);
        }
        Rebuilt {
            index: Index::default(),
            alloc,
            dirty: Dirty::default(),
            direct: BTreeMap::new(),
            clash: false,
        }
    }

    fn split(&mut self) -> (&mut Index, Sink<'_>) {
        let Rebuilt { index, alloc, dirty, direct, clash } = self;
        (index, Sink { alloc, dirty, direct, clash })
    }
}

struct Loading {
    loader: Loader,
    index: u32,
    places: Places,
    copy: usize,
    chain: Vec<Run>,
}

struct Replay {
    position: u64,
    /// The next record's.
    sequence: u64,
    /// Log content from `window_at` on.
    window_at: u64,
    window: Bytes,
    durable_through: u64,
}

/// Pages on their way into memory.
struct Paging {
    /// With the copy to be tried.
    queue: Vec<(Wanted, usize)>,
    /// Asked for: copy, place, and number of requests.
    now: Vec<(Wanted, usize, Place, usize)>,
    then: Option<Replay>,
}

enum Step {
    Superblocks {
        offsets: Vec<u64>,
    },
    Loading(Loading),
    Pages(Paging),
    Replay(Replay),
    /// Looks for a record that vouches for the unreadable one at `replay.position`.
    Scan {
        replay: Replay,
        at: u64,
        len: u64,
    },
    /// Compares directly written blocks of the last records.
    Settle {
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
    },
    /// Writes the superblocks, one after the other.
    Writing {
        replay: Option<Replay>,
        order: [usize; 2],
        step: u32,
    },
}

pub(crate) struct Opening {
    pub(crate) io: Io,
    disk: DiskInfo,
    options: Options,
    mode: Mode,
    step: Option<Step>,
    answers: Vec<Option<DiskResult>>,
    asked: Vec<u64>,
    superblock: Option<Superblock>,
    /// The copy it came from: overwritten last.
    good_copy: usize,
    rebuilt: Option<Rebuilt>,
    chain: Vec<Run>,
    /// Records from this one on are not applied: their data was lost.
    stop_before: u64,
}

impl Opening {
    pub(crate) fn format(disk: DiskInfo, identity: Identity, options: Options) -> Result<Opening, OpenError> {
        Opening::start(disk, Mode::Format(identity), options)
    }

    pub(crate) fn open(
        disk: DiskInfo,
        expect: Option<(Uuid, OsdId)>,
        options: Options,
    ) -> Result<Opening, OpenError> {
        Opening::start(disk, Mode::Open(expect), options)
    }

    fn start(disk: DiskInfo, mode: Mode, options: Options) -> Result<Opening, OpenError> {
        if options.pipeline_depth == 0 {
            return Err(OpenError::BadOption { what: "pipeline_depth" });
        }
        if !(1..=COPIES_MAX).contains(&options.checkpoint_copies) {
            return Err(OpenError::BadOption { what: "checkpoint_copies" });
        }
        if options.direct_len_min < BLOCK_LEN {
            return Err(OpenError::BadOption { what: "direct_len_min" });
        }
        let mut opening = Opening {
            io: Io::default(),
            disk,
            options,
            mode,
            step: None,
            answers: Vec::new(),
            asked: Vec::new(),
            superblock: None,
            good_copy: 0,
            rebuilt: None,
            chain: Vec::new(),
            stop_before: u64::MAX,
        };
        if disk.len_bytes >= superblock::DEVICE_LEN_MIN {
            let offsets = Superblock::offsets(disk.len_bytes).to_vec();
            opening.ask(offsets.iter().map(|offset| (*offset, BLOCK_LEN)));
            opening.step = Some(Step::Superblocks { offsets });
        }
        Ok(opening)
    }

    fn ask(&mut self, reads: impl IntoIterator<Item = (u64, u64)>) {
        self.answers.clear();
        self.asked.clear();
        for (part, (offset, len)) in reads.into_iter().enumerate() {
            self.answers.push(None);
            self.asked.push(offset);
            self.io.read(offset, len as u32, Purpose::Open { part: part as u32 });
        }
    }

    /// Log content, wrapping; one answer for each span.
    fn ask_log(&mut self, region: Region, position: u64, len: u64) {
        let spans = region.spans(position, len);
        self.ask(spans.into_iter().filter(|(_, len)| *len > 0));
    }

    pub(crate) fn on_done(&mut self, token: u64, result: DiskResult) -> Outcome {
        let Some(Purpose::Open { part }) = self.io.done(token) else {
            return None;
        };
        if let Some(answer) = self.answers.get_mut(part as usize) {
            *answer = Some(result);
        }
        if self.answers.iter().any(Option::is_none) {
            return None;
        }
        let answers: Vec<DiskResult> = std::mem::take(&mut self.answers).into_iter().flatten().collect();
        let step = self.step.take()?;
        match self.advance(step, answers) {
            Ok(None) => None,
            Ok(Some(core)) => Some(Ok(core)),
            Err(error) => Some(Err(error)),
        }
    }

    fn advance(&mut self, step: Step, answers: Vec<DiskResult>) -> Result<Option<Box<Core>>, OpenError> {
        match step {
            Step::Superblocks { offsets } => self.on_superblocks(&offsets, &answers),
            Step::Loading(loading) => self.on_chunk(loading, answers),
            Step::Pages(paging) => self.on_pages(paging, answers),
            Step::Replay(mut replay) => {
                replay.window_at = replay.position;
                replay.window = self.joined(answers)?;
                self.replay(replay)
            }
            Step::Scan { replay, at, len } => {
                let window = self.joined(answers)?;
                self.scan(replay, at, len, &window)
            }
            Step::Settle { replay, runs, at } => self.on_settle(replay, runs, at, answers),
            Step::Writing { replay, order, step } => {
                if let Some(Err(error)) = answers.first() {
                    return Err(OpenError::Io { offset: 0, error: *error });
                }
                self.write_superblocks(replay, order, step + 1)
            }
        }
    }

    /// The answers' bytes, of exactly the lengths that were asked for.
    fn joined(&self, answers: Vec<DiskResult>) -> Result<Bytes, OpenError> {
        let mut parts = Vec::new();
        for (answer, offset) in answers.into_iter().zip(&self.asked) {
            parts.push(answer.map_err(|error| OpenError::Io { offset: *offset, error })?);
        }
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let mut all = BytesMut::new();
        parts.iter().for_each(|part| all.extend_from_slice(part));
        Ok(all.freeze())
    }

    fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("read before anything else")
    }

    fn region(&self) -> Region {
        Region { len: self.superblock().log_len }
    }

    fn rebuilt(&mut self) -> &mut Rebuilt {
        self.rebuilt.as_mut().expect("begun before anything is loaded")
    }

    // ---- superblocks

    fn on_superblocks(
        &mut self,
        offsets: &[u64],
        answers: &[DiskResult],
    ) -> Result<Option<Box<Core>>, OpenError> {
        let mut found: Vec<(usize, Superblock)> = Vec::new();
        let mut trouble: Option<OpenError> = None;
        for (i, answer) in answers.iter().enumerate() {
            let copy = usize::from(i > 0);
            match answer.as_ref().map(Superblock::decode) {
                Ok(Ok(superblock)) => found.push((copy, superblock)),
                Ok(Err(Unusable::NotAStore)) => (),
                Ok(Err(Unusable::Damaged(what))) => {
                    trouble.get_or_insert(OpenError::Damaged { what });
                }
                Ok(Err(Unusable::Older { version })) => {
                    trouble = Some(OpenError::Older { version, known: superblock::VERSION });
                }
                Ok(Err(Unusable::Newer { version, incompat })) => {
                    let known = superblock::VERSION;
                    trouble = Some(OpenError::Newer { version, incompat, known });
                }
                Err(error) => {
                    trouble.get_or_insert(OpenError::Io { offset: offsets[i], error: *error });
                }
            }
        }
        // A newer program's copy beside an older one: the newer one counts.
        if let Some(newer @ (OpenError::Newer { .. } | OpenError::Older { .. })) = &trouble
            && !(self.options.overwrite && matches!(self.mode, Mode::Format(_)))
        {
            return Err(newer.clone());
        }
        if let Mode::Format(identity) = self.mode {
            return self.begin_format(identity, &found, trouble);
        }
        let newest = found.iter().max_by_key(|(copy, sb)| (sb.generation, 1 - copy)).cloned();
        let Some((copy, superblock)) = newest else {
            return Err(trouble.unwrap_or(OpenError::NotAStore));
        };
        // The device has grown: the second copy is where the old end was.
        let second = Superblock::offsets(superblock.device_len)[1];
        let (len, need) = (self.disk.len_bytes, superblock.device_len);
        if len < need {
            return Err(OpenError::Shrunk { len, need });
        }
        if copy == 0 && !offsets.contains(&second) {
            let mut offsets = offsets.to_vec();
            offsets.truncate(1);
            offsets.push(second);
            self.ask(offsets.iter().map(|offset| (*offset, BLOCK_LEN)));
            self.step = Some(Step::Superblocks { offsets });
            return Ok(None);
        }
        if let Mode::Open(Some((fsid, osd))) = self.mode {
            let identity = superblock.identity;
            if identity.fsid != fsid {
                return Err(OpenError::OtherCluster { found: identity.fsid, expected: fsid });
            }
            if identity.osd != osd {
                return Err(OpenError::OtherOsd { found: identity.osd, expected: osd });
            }
        }
        if let Some(trouble) = trouble {
            tracing::warn!("one superblock is unusable, the other copy is taken: {trouble}");
        }
        self.good_copy = copy;
        self.superblock = Some(superblock);
        self.begin_loading()
    }

    fn begin_format(
        &mut self,
        identity: Identity,
        found: &[(usize, Superblock)],
        trouble: Option<OpenError>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        if !self.options.overwrite {
            if let Some((_, superblock)) = found.first() {
                let fsid = superblock.identity.fsid;
                return Err(OpenError::AlreadyAStore { fsid });
            }
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
        }
        let device_len = self.disk.len_bytes / BLOCK_LEN * BLOCK_LEN;
        let default = (device_len / 32).clamp(LOG_LEN_MIN, 512 << 20) / BLOCK_LEN * BLOCK_LEN;
        let log_len = self.options.log_len.unwrap_or(default);
        if log_len < LOG_LEN_MIN || log_len > device_len / 2 || !log_len.is_multiple_of(BLOCK_LEN) {
            return Err(OpenError::BadOption { what: "log_len" });
        }
        let newest = found.iter().map(|(_, superblock)| superblock.generation).max();
        let superblock = Superblock {
            identity,
            compat: 0,
            incompat: 0,
            device_len,
            log_len,
            generation: newest.unwrap_or(0),
            epoch: 0,
            recovered_sequence: 0,
            head_position: 0,
            head_sequence: 1,
            checkpoint: Checkpoint::default(),
        };
        self.rebuilt = Some(Rebuilt::new(&superblock));
        self.superblock = Some(superblock);
        self.write_superblocks(None, [1, 0], 0)
    }

    // ---- checkpoint

    fn begin_loading(&mut self) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let places = superblock.checkpoint.first;
        let rebuilt = Rebuilt::new(superblock);
        self.rebuilt = Some(rebuilt);
        self.chain.clear();
        if places.iter().all(Option::is_none) {
            return self.begin_replay();
        }
        let loading = Loading { loader: Loader::default(), index: 0, places, copy: 0, chain: Vec::new() };
        self.ask_chunk(loading)
    }

    fn ask_chunk(&mut self, mut loading: Loading) -> Result<Option<Box<Core>>, OpenError> {
        while loading.copy < COPIES_MAX {
            if let Some(run) = loading.places[loading.copy] {
                let offset = u64::from(run.start) * BLOCK_LEN;
                self.ask([(offset, u64::from(run.count) * BLOCK_LEN)]);
                self.step = Some(Step::Loading(loading));
                return Ok(None);
            }
            loading.copy += 1;
        }
        let offset = loading.places.iter().flatten().next().map_or(0, |run| u64::from(run.start));
        let what = "no copy of a checkpoint chunk is intact";
        Err(OpenError::Corrupt { offset: offset * BLOCK_LEN, what })
    }

    fn on_chunk(
        &mut self,
        mut loading: Loading,
        answers: Vec<DiskResult>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let (nonce, generation) = (superblock.nonce(), superblock.checkpoint.generation);
        let blocks = superblock.blocks();
        let chunk = answers
            .into_iter()
            .next()
            .and_then(Result::ok)
            .and_then(|chunk| ChunkHeader::decode(&chunk, nonce, generation, loading.index, blocks));
        let Some((header, payload)) = chunk else {
            tracing::warn!("chunk {} of checkpoint copy {} is damaged", loading.index, loading.copy);
            loading.copy += 1;
            return self.ask_chunk(loading);
        };
        let offset = self.asked[0];
        let corrupt = |Nonsense(what)| OpenError::Corrupt { offset, what };
        let Rebuilt { index, alloc, .. } = self.rebuilt();
        loading.loader.feed(&payload, index, alloc).map_err(corrupt)?;
        loading.chain.extend(loading.places.iter().flatten());
        if header.next.iter().any(Option::is_some) {
            loading.index += 1;
            loading.places = header.next;
            loading.copy = 0;
            return self.ask_chunk(loading);
        }
        loading.loader.finish().map_err(corrupt)?;
        for run in &loading.chain {
            if !self.rebuilt().alloc.mark_run(*run) {
                let what = "the checkpoint lies where data is";
                return Err(OpenError::Corrupt { offset, what });
            }
        }
        self.chain = loading.chain;
        self.preload()
    }

    // ---- pages

    /// An index that fits into memory is loaded whole: then nobody waits for it later.
    fn preload(&mut self) -> Result<Option<Box<Core>>, OpenError> {
        let limit = self.options.index_limit() as u64 / 4;
        let index = &self.rebuilt().index;
        let fits = index.extent().pages_len <= limit;
        let queue = if fits { index.absent() } else { Vec::new() };
        self.load_pages(queue, None)
    }

    /// Loads pages, then goes on with the replay, or begins it.
    fn load_pages(
        &mut self,
        wanted: Vec<Wanted>,
        then: Option<Replay>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let queue = wanted.into_iter().map(|wanted| (wanted, 0)).collect();
        self.ask_pages(Paging { queue, now: Vec::new(), then })
    }

    fn ask_pages(&mut self, mut paging: Paging) -> Result<Option<Box<Core>>, OpenError> {
        let mut reads = Vec::new();
        let index = &self.rebuilt().index;
        while paging.now.len() < PRELOADS_MAX
            && let Some((wanted, mut copy)) = paging.queue.pop()
        {
            let what = "no copy of a page of the index is intact";
            let lost = |offset: u64| OpenError::Corrupt { offset, what };
            let place = pager::place_of(index, wanted.id()).ok_or(lost(0))?.clone();
            while copy < COPIES_MAX && place.copies[copy].is_none() {
                copy += 1;
            }
            if copy == COPIES_MAX {
                let first = place.runs().next().map_or(0, |run| run.start);
                return Err(lost(u64::from(first) * BLOCK_LEN));
            }
            let runs = place.copy_runs(copy);
            reads.extend(
                runs.iter().map(|run| (u64::from(run.start) * BLOCK_LEN, u64::from(run.count) * BLOCK_LEN)),
            );
            paging.now.push((wanted, copy, place, runs.len()));
        }
        if paging.now.is_empty() {
            return match paging.then {
                Some(replay) => self.replay(replay),
                None => self.begin_replay(),
            };
        }
        self.ask(reads);
        self.step = Some(Step::Pages(paging));
        Ok(None)
    }

    fn on_pages(
        &mut self,
        mut paging: Paging,
        answers: Vec<DiskResult>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let blocks = self.superblock().blocks();
        let heals = !self.options.read_only;
        let mut answers = answers.into_iter();
        let mut offsets = self.asked.clone().into_iter();
        for (wanted, copy, place, count) in std::mem::take(&mut paging.now) {
            let offset = offsets.by_ref().take(count).next().unwrap_or(0);
            offsets.by_ref().take(count.saturating_sub(1)).for_each(drop);
            let parts: Vec<DiskResult> = answers.by_ref().take(count).collect();
            let failed = parts.iter().any(Result::is_err);
            let content = pager::joined(&mut parts.into_iter().map(Result::ok).collect());
            if failed || !place.check(&content) {
                tracing::warn!("copy {copy} of an index page at device offset {offset} is damaged");
                paging.queue.push((wanted, copy + 1));
                continue;
            }
            let content = content.slice(..place.len as usize);
            let heal = heals && copy > 0;
            pager::fill(&mut self.rebuilt().index, &wanted, content, blocks, heal)
                .map_err(|Nonsense(what)| OpenError::Corrupt { offset, what })?;
        }
        self.ask_pages(paging)
    }

    // ---- log

    fn begin_replay(&mut self) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let replay = Replay {
            position: superblock.head_position,
            sequence: superblock.head_sequence,
            window_at: superblock.head_position,
            window: Bytes::new(),
            durable_through: superblock.head_sequence - 1,
        };
        self.replay(replay)
    }

    /// Applies records as far as the window reaches, then asks for more.
    fn replay(&mut self, mut replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let region = self.region();
        let end = self.superblock().head_position + region.len;
        loop {
            if replay.sequence >= self.stop_before {
                return self.settle(replay);
            }
            let have = replay.window.slice((replay.position - replay.window_at) as usize..);
            let left = end - replay.position;
            if left == 0 {
                return self.settle(replay);
            }
            if have.len() < BLOCK {
                self.ask_log(region, replay.position, WINDOW_LEN.min(left));
                self.step = Some(Step::Replay(replay));
                return Ok(None);
            }
            let header = Header::decode(&have, self.superblock().nonce());
            let expected = header.filter(|header| {
                header.position == replay.position
                    && header.sequence == replay.sequence
                    && self.epoch_fits(header)
                    && header.record_len() <= region.record_len_max().min(left)
            });
            let Some(header) = expected else {
                return self.begin_scan(replay);
            };
            let len = header.record_len();
            if (have.len() as u64) < len {
                self.ask_log(region, replay.position, len.max(WINDOW_LEN).min(left));
                self.step = Some(Step::Replay(replay));
                return Ok(None);
            }
            let record = have.slice(..len as usize);
            let Some(slots) = read_slots(&header, &record) else {
                return self.begin_scan(replay);
            };
            let offset = region.device_offset(replay.position);
            let wanted = self
                .record_needs(&header, &record, &slots)
                .map_err(|Nonsense(what)| OpenError::Corrupt { offset, what })?;
            if !wanted.is_empty() {
                return self.load_pages(wanted, Some(replay));
            }
            let limit = self.options.index_limit();
            self.apply_record(&header, &record, &slots)
                .map_err(|Nonsense(what)| OpenError::Corrupt { offset, what })?;
            if self.rebuilt().clash {
                let what = "a log record frees what is free";
                return Err(OpenError::Corrupt { offset, what });
            }
            self.rebuilt().index.evict(limit);
            if header.durable_through > replay.durable_through {
                replay.durable_through = header.durable_through;
                let durable = header.durable_through;
                self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable);
            }
            replay.position += len;
            replay.sequence += 1;
        }
    }

    /// A record found when this epoch began may be of any before; later ones are
    /// of this epoch, or remains of what that opening dropped.
    fn epoch_fits(&self, header: &Header) -> bool {
        let superblock = self.superblock();
        if header.sequence > superblock.recovered_sequence {
            header.epoch == superblock.epoch
        } else {
            header.epoch <= superblock.epoch
        }
    }

    /// Pages that the record's operations need.
    fn record_needs(
        &mut self,
        header: &Header,
        record: &Bytes,
        slots: &HashMap<u32, ReadSlot>,
    ) -> ops::Result<Vec<Wanted>> {
        if self.rebuilt().index.is_loaded() {
            return Ok(Vec::new());
        }
        let blocks = self.superblock().blocks();
        let ops = record.slice(log::HEADER_LEN..log::HEADER_LEN + header.ops_len as usize);
        let mut needs = Needs::new(&self.rebuilt().index);
        let crc_of = |device: u32| slots.get(&device).map(|slot| slot.index_crc);
        ops::replay(ops, blocks, crc_of, |op| {
            needs.log_op(op);
            Ok(())
        })?;
        Ok(needs.into_wanted())
    }

    fn apply_record(
        &mut self,
        header: &Header,
        record: &Bytes,
        slots: &HashMap<u32, ReadSlot>,
    ) -> ops::Result<()> {
        let blocks = self.superblock().blocks();
        let ops = record.slice(log::HEADER_LEN..log::HEADER_LEN + header.ops_len as usize);
        let (index, mut sink) = self.rebuilt().split();
        index.begin_changes();
        let crc_of = |device: u32| slots.get(&device).map(|slot| slot.index_crc);
        ops::replay(ops, blocks, crc_of, |op| {
            index.apply(op, &mut sink)?;
            let ops::LogOp::Map { device, crcs, logged, .. } = op else {
                return Ok(());
            };
            for (device, crc) in (*device..).zip(crcs.iter()) {
                sink.direct.remove(&device);
                if !*logged {
                    sink.dirty.remove(device);
                    sink.direct.insert(device, (header.sequence, *crc));
                } else if let Some(slot) = slots.get(&device) {
                    // Copied: the log around it should not stay in memory.
                    let image = Image::Frozen(Bytes::copy_from_slice(&slot.content));
                    let sequence = header.sequence;
                    let version = Version { sequence, image, poisoned: slot.poisoned };
                    sink.dirty.remove(device);
                    sink.dirty.put(device, version, sequence);
                }
            }
            Ok(())
        })
    }

    fn begin_scan(&mut self, replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let region = self.region();
        let offset = region.device_offset(replay.position);
        if replay.sequence <= superblock.recovered_sequence {
            let what = "a log record that an earlier start had found is damaged";
            return Err(OpenError::Corrupt { offset, what });
        }
        // The next record begins at most one record's length further on.
        let end = superblock.head_position + region.len;
        let at = replay.position + BLOCK_LEN;
        let len = region.record_len_max().min(end.saturating_sub(at));
        self.scan_on(replay, at, len)
    }

    fn scan_on(&mut self, replay: Replay, at: u64, len: u64) -> Result<Option<Box<Core>>, OpenError> {
        if len == 0 {
            return self.settle(replay);
        }
        self.ask_log(self.region(), at, len.min(WINDOW_LEN));
        self.step = Some(Step::Scan { replay, at, len });
        Ok(None)
    }

    fn scan(
        &mut self,
        replay: Replay,
        at: u64,
        len: u64,
        window: &Bytes,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let nonce = self.superblock().nonce();
        for (i, block) in window.chunks_exact(BLOCK).enumerate() {
            let position = at + i as u64 * BLOCK_LEN;
            let Some(header) = Header::decode(block, nonce) else {
                continue;
            };
            let follows =
                header.position == position && header.sequence > replay.sequence && self.epoch_fits(&header);
            if follows && header.durable_through >= replay.sequence {
                let offset = self.region().device_offset(replay.position);
                let what = "a log record is damaged, and later ones show that it was durable";
                return Err(OpenError::Corrupt { offset, what });
            }
        }
        let read = (window.len() as u64).max(BLOCK_LEN).min(len);
        self.scan_on(replay, at + read, len - read)
    }

    // ---- the tail

    /// The last records were written together with the data they refer to, and
    /// nobody vouches that both arrived. Each block they still need from the
    /// device is compared; the first record with a block that differs was never
    /// acknowledged, and goes with all after it. Blocks that a later record
    /// replaced or freed do not count: they may hold newer data by now.
    fn settle(&mut self, replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let durable = replay.durable_through;
        let mut runs: Vec<Run> = Vec::new();
        self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable);
        for device in self.rebuilt().direct.keys() {
            match runs.last_mut() {
                Some(run) if run.end() == *device && run.count < SETTLE_BLOCKS => run.count += 1,
                _ => runs.push(Run { start: *device, count: 1 }),
            }
        }
        self.settle_on(replay, runs, 0)
    }

    fn settle_on(
        &mut self,
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let part = &runs[at..runs.len().min(at + SETTLE_READS)];
        if part.is_empty() {
            if self.stop_before != u64::MAX {
                tracing::warn!(
                    "log records from {} on were not complete: never acknowledged, dropped",
                    self.stop_before
                );
            }
            let order = [1 - self.good_copy, self.good_copy];
            return self.write_superblocks(Some(replay), order, 0);
        }
        self.ask(part.iter().map(|run| (u64::from(run.start) * BLOCK_LEN, u64::from(run.count) * BLOCK_LEN)));
        self.step = Some(Step::Settle { replay, runs, at });
        Ok(None)
    }

    fn on_settle(
        &mut self,
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
        answers: Vec<DiskResult>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let mut lost = u64::MAX;
        for (run, answer) in runs[at..].iter().zip(&answers) {
            // An unreadable block stays: reads of it will say so.
            let Ok(data) = answer else { continue };
            for (device, content) in (run.start..run.end()).zip(data.chunks_exact(BLOCK)) {
                if let Some((sequence, crc)) = self.rebuilt().direct.get(&device)
                    && crc32c(content) != *crc
                {
                    lost = lost.min(*sequence);
                }
            }
        }
        if lost != u64::MAX {
            self.stop_before = lost;
            return self.begin_loading();
        }
        self.settle_on(replay, runs, at + answers.len())
    }

    // ---- the new epoch

    /// The copy that was read goes last, so that one intact copy remains.
    fn write_superblocks(
        &mut self,
        replay: Option<Replay>,
        order: [usize; 2],
        step: u32,
    ) -> Result<Option<Box<Core>>, OpenError> {
        if self.options.read_only {
            return Ok(Some(self.finish(replay)));
        }
        if step == 0 {
            let last = replay.as_ref().map_or(0, |replay| replay.sequence - 1);
            let superblock = self.superblock.as_mut().expect("read before anything else");
            superblock.generation += 1;
            superblock.epoch += 1;
            superblock.recovered_sequence = last;
        }
        let purpose = Purpose::Open { part: 0 };
        self.answers = vec![None];
        match step {
            0 | 2 => {
                let superblock = self.superblock();
                let copy = order[step as usize / 2];
                let offset = Superblock::offsets(superblock.device_len)[copy];
                let data = AlignedBuf::copy_of(&superblock.encode()).freeze();
                self.io.write(offset, vec![data], purpose);
            }
            1 | 3 => {
                self.io.flush(purpose);
            }
            _ => return Ok(Some(self.finish(replay))),
        }
        self.step = Some(Step::Writing { replay, order, step });
        Ok(None)
    }

    fn finish(&mut self, replay: Option<Replay>) -> Box<Core> {
        let superblock = self.superblock().clone();
        let region = self.region();
        let mut rebuilt = self.rebuilt.take().expect("begun before anything is loaded");
        let (position, sequence) = replay
            .map_or((superblock.head_position, superblock.head_sequence), |replay| {
                (replay.position, replay.sequence)
            });
        let buffers = Buffers::short();
        let discard = self.options.discard && !self.options.read_only;
        let lays = self.options.lay_ahead && !self.options.read_only;
        if lays {
            rebuilt.alloc.watch_untouched();
        }
        let trim = Trim::new(discard, rebuilt.alloc.blocks(), self.options.discard_blocks_min);
        let mut core = Box::new(Core {
            io: std::mem::take(&mut self.io),
            options: self.options.clone(),
            volatile_cache: self.disk.volatile_cache,
            region,
            index: rebuilt.index,
            alloc: rebuilt.alloc,
            chain: std::mem::take(&mut self.chain),
            dirty: rebuilt.dirty,
            flying: BTreeMap::new(),
            gather: Gather::new(buffers.clone()),
            crcs: Vec::new(),
            cache: ReadCache::new(self.options.read_cache_limit()),
            pins: Pins::default(),
            awaits: BTreeMap::new(),
            releasing: Vec::new(),
            trim,
            lay: Lay::new(lays, position),
            batches: VecDeque::from([Batch::new(sequence, buffers.clone(), OpWriter::default())]),
            buffers,
            read_buffers: Buffers::long(),
            spare_ops: Vec::new(),
            issued: VecDeque::new(),
            flush_in_flight: false,
            durable: sequence - 1,
            issue_position: position,
            sealed_position: position,
            reclaim: Reclaim::new(superblock.head_position),
            pager: Pager::default(),
            stalled: Stalled::default(),
            chosen: Chosen::default(),
            reads: KeyMap::default(),
            checks: Vec::new(),
            events: VecDeque::new(),
            next_txn: 1,
            transactions: 0,
            checksum_errors: 0,
            failed: None,
            superblock,
        });
        core.reclaim.logged = core.dirty.len() * BLOCK;
        // What was replayed may fill the log, or memory: then its end is a snapshot's place.
        let distance = position - core.superblock.head_position;
        let due = distance > region.checkpoint_distance() || core.is_snapshot_due();
        if due && !core.options.read_only {
            core.take_snapshot();
            core.pump();
        }
        core
    }
}

struct ReadSlot {
    content: Bytes,
    index_crc: u32,
    poisoned: bool,
}

/// The record's data blocks by device block; `None` when anything differs from
/// its checksum, or one block is there twice.
fn read_slots(header: &Header, record: &Bytes) -> Option<HashMap<u32, ReadSlot>> {
    let meta = record.get(log::HEADER_LEN..log::HEADER_LEN + header.meta_len())?;
    if crc32c(meta) != header.meta_crc {
        return None;
    }
    let table = &meta[header.ops_len as usize..];
    let data_at = header.data_offset() as usize;
    let mut slots = HashMap::new();
    for (i, entry) in table.chunks_exact(log::SLOT_LEN).enumerate() {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        let (device, crc, flags) = (word(0), word(4), entry[8]);
        let at = data_at + i * BLOCK;
        let content = record.slice(at..at + BLOCK);
        if crc32c(&content) != crc {
            return None;
        }
        let poisoned = flags & log::SLOT_POISONED != 0;
        let slot = ReadSlot { content, index_crc: replayed_crc(crc, flags), poisoned };
        if slots.insert(device, slot).is_some() {
            return None;
        }
    }
    Some(slots)
}
