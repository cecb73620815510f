//! Checks a whole store: both superblocks, every copy of every checkpoint
//! chunk and of every index page, the log (by opening), every block of every
//! object against its checksum, and every reference to a device block.
//!
//! Calling order as for the engine: take requests, hand back results, until
//! [`Fsck::report`] answers. Open the engine with `read_only` to leave the
//! device as it is.

use crate::alloc::Run;
use crate::api::{CollId, FetchId, ObjectId, ObjectStore, StoreError, StoreEvent};
use crate::checkpoint::ChunkHeader;
use crate::engine::Engine;
use crate::index::{ALL_BLOCKS, Paged, TreeId};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::place::Place;
use crate::superblock::{COPIES_MAX, Superblock};
use crate::tree::Kind;
use crate::{needs, pager};
use bytes::Bytes;
use env::{DiskRequest, DiskResult};
use std::collections::{BTreeMap, VecDeque};
use wire::types::HObject;

/// Reads of object data at once.
const READS_MAX: usize = 8;

/// Page copies read at once.
const PAGES_MAX: usize = 16;

/// Bytes of one read.
const READ_LEN: u64 = 1 << 20;

/// More problems than this are counted, not kept.
const PROBLEMS_MAX: usize = 1000;

/// Units: counts; `data` in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FsckReport {
    pub collections: u64,
    pub objects: u64,
    pub data: u64,
    pub omap_keys: u64,
    pub shared_blocks: u64,
    pub checkpoint_chunks: u64,
    pub pages: u64,
    pub problems_found: u64,
    /// One line each; at most 1000.
    pub problems: Vec<String>,
}

enum Stage {
    Superblocks {
        answered: usize,
    },
    Chain {
        index: u32,
        places: [Option<Run>; COPIES_MAX],
        asked: usize,
        answered: usize,
    },
    Pages,
    Objects,
    /// Of each device block, from this one on.
    References {
        device: u32,
    },
    Done,
}

/// One copy of an index page, on its way.
struct PageCopy {
    tree: TreeId,
    place: Place,
    copy: usize,
    parts: Vec<Option<Bytes>>,
    failed: bool,
}

pub struct Fsck {
    engine: Engine,
    stage: Stage,
    /// Of the chunk being checked: where the next one is.
    next: Option<[Option<Run>; COPIES_MAX]>,
    /// Page copies to be read, and those asked for; requests by number.
    copies: VecDeque<(TreeId, Place, usize)>,
    reading: BTreeMap<u32, PageCopy>,
    requests: BTreeMap<u32, (u32, usize)>,
    next_request: u32,
    collections: VecDeque<CollId>,
    after: Option<HObject>,
    /// Metadata that is being loaded.
    waiting: Option<FetchId>,
    /// Reads to be made of the current object.
    ranges: VecDeque<(ObjectId, u64, u64)>,
    reads: BTreeMap<FetchId, u64>,
    /// By device block, up to 255.
    references: Vec<u8>,
    /// Device blocks in use.
    used: u64,
    report: FsckReport,
}

impl Fsck {
    /// `engine` is open.
    pub fn new(engine: Engine) -> Fsck {
        let collections = engine.collections();
        let mut fsck = Fsck {
            engine,
            stage: Stage::Superblocks { answered: 0 },
            next: None,
            report: FsckReport { collections: collections.len() as u64, ..FsckReport::default() },
            copies: VecDeque::new(),
            reading: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_request: 0,
            collections: collections.into(),
            after: None,
            waiting: None,
            ranges: VecDeque::new(),
            reads: BTreeMap::new(),
            references: Vec::new(),
            used: 0,
        };
        match fsck.engine.core_mut() {
            Some(core) => {
                fsck.references = vec![0; core.superblock.blocks() as usize];
                for (part, offset) in Superblock::offsets(core.superblock.device_len).iter().enumerate() {
                    let purpose = Purpose::Check { part: part as u32 };
                    core.io.read(*offset, BLOCK_LEN as u32, purpose);
                }
            }
            None => {
                fsck.problem("the store is not open".into());
                fsck.stage = Stage::Done;
            }
        }
        fsck
    }

    pub fn poll_disk(&mut self) -> Option<DiskRequest> {
        self.engine.poll_disk()
    }

    pub fn on_disk_done(&mut self, token: u64, result: DiskResult) {
        self.engine.on_disk_done(token, result);
        self.advance();
    }

    /// When all is checked.
    pub fn report(&self) -> Option<&FsckReport> {
        matches!(self.stage, Stage::Done).then_some(&self.report)
    }

    /// What has been counted and found up to now.
    pub fn so_far(&self) -> &FsckReport {
        &self.report
    }

    /// The engine, to go on with.
    pub fn into_engine(self) -> Engine {
        self.engine
    }

    fn problem(&mut self, line: String) {
        self.report.problems_found += 1;
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(line);
        }
    }

    fn advance(&mut self) {
        let answers = self.engine.core_mut().map(|core| std::mem::take(&mut core.checks));
        for (part, result) in answers.unwrap_or_default() {
            match self.stage {
                Stage::Superblocks { .. } => self.on_superblock(part, result),
                Stage::Chain { .. } => self.on_chunk(part, result),
                Stage::Pages => self.on_page(part, result),
                Stage::Objects | Stage::References { .. } | Stage::Done => (),
            }
        }
        if let Some(error) = self.engine.fatal_error().cloned() {
            self.problem(format!("the check ends here: {error}"));
            self.stage = Stage::Done;
        }
        self.take_events();
        if matches!(self.stage, Stage::Pages) {
            self.read_pages();
        }
        if matches!(self.stage, Stage::Objects) {
            self.read_objects();
        }
        if matches!(self.stage, Stage::References { .. }) && self.waiting.is_none() {
            self.check_references();
        }
    }

    // ---- pages

    fn begin_pages(&mut self) {
        self.stage = Stage::Pages;
        let Some(core) = self.engine.core() else { return };
        let index = &core.index;
        let mut found = VecDeque::new();
        copies_of(TreeId::Objects, &index.objects, &mut found);
        copies_of(TreeId::Blocks, &index.blocks, &mut found);
        copies_of(TreeId::Omap, &index.omap, &mut found);
        copies_of(TreeId::Shared, &index.shared, &mut found);
        self.copies = found;
    }

    fn read_pages(&mut self) {
        while self.reading.len() < PAGES_MAX
            && let Some((tree, place, copy)) = self.copies.pop_front()
            && let Some(core) = self.engine.core_mut()
        {
            let runs = place.copy_runs(copy);
            let id = self.next_request;
            for (i, run) in runs.iter().enumerate() {
                let part = self.next_request;
                self.next_request = self.next_request.wrapping_add(1);
                self.requests.insert(part, (id, i));
                let len = run.count * BLOCK_LEN as u32;
                core.io.read(u64::from(run.start) * BLOCK_LEN, len, Purpose::Check { part });
            }
            let parts = vec![None; runs.len()];
            self.reading.insert(id, PageCopy { tree, place, copy, parts, failed: false });
        }
        if self.reading.is_empty() && self.copies.is_empty() {
            self.stage = Stage::Objects;
        }
    }

    fn on_page(&mut self, part: u32, result: DiskResult) {
        let Some((id, at)) = self.requests.remove(&part) else { return };
        let Some(page) = self.reading.get_mut(&id) else { return };
        page.failed |= result.is_err();
        page.parts[at] = Some(result.unwrap_or_default());
        if page.parts.iter().any(Option::is_none) {
            return;
        }
        let Some(mut page) = self.reading.remove(&id) else { return };
        self.report.pages += 1;
        let content = pager::joined(&mut page.parts);
        if page.failed || !page.place.check(&content) {
            let first = page.place.copy_runs(page.copy).first().map_or(0, |run| run.start);
            self.problem(format!(
                "an index page ({:?}), copy {}, at device offset {} is damaged",
                page.tree,
                page.copy,
                u64::from(first) * BLOCK_LEN
            ));
        }
    }

    fn on_superblock(&mut self, part: u32, result: DiskResult) {
        let Some(core) = self.engine.core() else { return };
        let expected = core.superblock.clone();
        match result.map(|block| Superblock::decode(&block)) {
            Ok(Ok(found)) if found == expected => (),
            Ok(Ok(found)) => self.problem(format!(
                "superblock copy {part} is of generation {}, the store of {}",
                found.generation, expected.generation
            )),
            Ok(Err(error)) => self.problem(format!("superblock copy {part}: {error:?}")),
            Err(error) => self.problem(format!("superblock copy {part}: {error}")),
        }
        let Stage::Superblocks { answered } = &mut self.stage else { return };
        *answered += 1;
        if *answered == 2 {
            self.ask_chunk(0, expected.checkpoint.first);
        }
    }

    fn ask_chunk(&mut self, index: u32, places: [Option<Run>; COPIES_MAX]) {
        let Some(core) = self.engine.core_mut() else { return };
        let mut asked = 0;
        for (copy, place) in places.iter().enumerate() {
            if let Some(run) = place {
                let len = run.count * BLOCK_LEN as u32;
                let purpose = Purpose::Check { part: copy as u32 };
                core.io.read(u64::from(run.start) * BLOCK_LEN, len, purpose);
                asked += 1;
            }
        }
        self.next = None;
        self.stage = match asked {
            0 => return self.begin_pages(),
            _ => Stage::Chain { index, places, asked, answered: 0 },
        };
    }

    fn on_chunk(&mut self, copy: u32, result: DiskResult) {
        let Stage::Chain { index, places, asked, answered } = &mut self.stage else { return };
        *answered += 1;
        let (index, all, place) = (*index, answered == asked, places[copy as usize]);
        let Some(core) = self.engine.core() else { return };
        let superblock = &core.superblock;
        let (nonce, generation) = (superblock.nonce(), superblock.checkpoint.generation);
        let blocks = superblock.blocks();
        let found =
            result.ok().and_then(|chunk| ChunkHeader::decode(&chunk, nonce, generation, index, blocks));
        match found {
            Some((header, _)) => {
                self.report.checkpoint_chunks += 1;
                self.next = Some(header.next);
            }
            None => self.problem(format!(
                "checkpoint chunk {index}, copy {copy}, at device offset {} is damaged",
                place.map_or(0, |run| u64::from(run.start) * BLOCK_LEN)
            )),
        }
        if all {
            // Both copies damaged: the next checkpoint is the only way on.
            self.ask_chunk(index + 1, self.next.unwrap_or_default());
        }
    }

    // ---- objects

    fn read_objects(&mut self) {
        loop {
            while self.reads.len() < READS_MAX && self.waiting.is_none() {
                if let Some((id, offset, len)) = self.ranges.pop_front() {
                    match self.engine.read(&id, offset, len) {
                        Ok(fetch) => drop(self.reads.insert(fetch, len)),
                        Err(StoreError::Pending(load)) => {
                            self.waiting = Some(load);
                            self.ranges.push_front((id, offset, len));
                        }
                        Err(error) => self.problem(error.to_string()),
                    }
                } else if !self.next_object() {
                    break;
                }
            }
            // Data still in the log is answered without a request.
            self.take_events();
            if !self.reads.is_empty() || self.waiting.is_some() {
                return;
            }
            if self.collections.is_empty() && self.ranges.is_empty() {
                self.stage = Stage::References { device: 0 };
                return;
            }
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                StoreEvent::Read { id, result } => {
                    let Some(len) = self.reads.remove(&id) else { continue };
                    match result {
                        Ok(_) => self.report.data += len,
                        Err(error) => self.problem(error.to_string()),
                    }
                }
                StoreEvent::Loaded(id) if self.waiting == Some(id) => self.waiting = None,
                StoreEvent::Loaded(_) | StoreEvent::Committed(_) => (),
            }
        }
    }

    /// Takes up the next object; false when there is none, or it must be waited for.
    fn next_object(&mut self) -> bool {
        let Some(coll) = self.collections.front().copied() else { return false };
        match self.look_at_object(coll) {
            Ok(true) => (),
            Ok(false) => {
                self.collections.pop_front();
                self.after = None;
            }
            Err(StoreError::Pending(load)) => {
                self.waiting = Some(load);
                return false;
            }
            Err(error) => {
                self.problem(error.to_string());
                self.collections.pop_front();
            }
        }
        true
    }

    /// The object after the last one; false when there is none.
    fn look_at_object(&mut self, coll: CollId) -> Result<bool, StoreError> {
        let start = self.after.clone().unwrap_or_default();
        let found = self.engine.list(coll, &start, 2)?;
        let Some(object) = found.into_iter().find(|object| self.after.as_ref() != Some(object)) else {
            return Ok(false);
        };
        let id = ObjectId { coll, object };
        let ranges = self.engine.data_extents(&id, 0, u64::MAX)?;
        let Some(core) = self.engine.core() else { return Ok(false) };
        let (_, onode) = core.entry(&id)?;
        let (nid, size, mapped) = (onode.nid, onode.size, onode.mapped);
        let omap_keys = onode.omap_keys;
        let wanted = needs::of_read(&core.index, nid, 0, ALL_BLOCKS);
        if !wanted.is_empty() {
            return Err(core.pager.pending(wanted));
        }
        // Only now: until here the object may be taken up again.
        self.report.objects += 1;
        self.report.omap_keys += omap_keys;
        let (mut past_end, mut counted) = (false, 0);
        core.index.for_mappings(nid, 0, ALL_BLOCKS, |block, mapping| {
            if let Some(count) = self.references.get_mut(mapping.device as usize) {
                *count = count.saturating_add(1);
            }
            past_end |= u64::from(block) * BLOCK_LEN >= size;
            counted += 1;
        });
        if past_end {
            self.problem(format!("{} has blocks past its end", id.object));
        }
        if counted != mapped {
            self.problem(format!("{:?} has {counted} blocks, {mapped} are counted", id.object));
        }
        for (offset, len) in ranges {
            for start in (offset..offset + len).step_by(READ_LEN as usize) {
                let len = READ_LEN.min(offset + len - start);
                self.ranges.push_back((id.clone(), start, len));
            }
        }
        // Not before: what was loaded for this object should last until it is done.
        if let Some(core) = self.engine.core_mut() {
            core.index.evict(core.options.index_limit());
        }
        self.after = Some(id.object);
        Ok(true)
    }

    // ---- references

    fn check_references(&mut self) {
        let Stage::References { device: first } = self.stage else { return };
        for device in first..self.references.len() as u32 {
            if let Err(load) = self.check_block(device) {
                self.waiting = Some(load);
                self.stage = Stage::References { device };
                return;
            }
        }
        self.stage = Stage::Done;
        let Some(core) = self.engine.core() else { return };
        let (counted, objects, used) = (core.index.totals.used, core.index.totals.objects, self.used);
        if counted != used {
            self.problem(format!("{used} device blocks are in use, {counted} are counted"));
        }
        if objects != self.report.objects {
            self.problem(format!("there are {} objects, {objects} are counted", self.report.objects));
        }
    }

    /// Errors: what has to be loaded before.
    fn check_block(&mut self, device: u32) -> Result<(), FetchId> {
        let count = self.references[device as usize];
        let Some(core) = self.engine.core_mut().filter(|_| count > 0) else { return Ok(()) };
        let wanted = needs::of_references(&core.index, device);
        if !wanted.is_empty() {
            core.evict();
            return Err(core.pager.wish(wanted));
        }
        let mut problems = Vec::new();
        let offset = u64::from(device) * BLOCK_LEN;
        let this = Run { start: device, count: 1 };
        if !core.index.used.is_set(device) || !core.alloc.is_used(device) {
            problems.push(format!("device offset {offset} is in use and counts as free"));
        }
        if core.chain.iter().chain(&core.superblock.reserved()).any(|run| run.overlaps(this)) {
            problems.push(format!("device offset {offset} belongs to the store itself"));
        }
        let refs = core.index.refs(device);
        if refs.min(255) != u32::from(count) {
            problems.push(format!("device offset {offset} has {count} references, {refs} are counted"));
        }
        self.used += 1;
        self.report.shared_blocks += u64::from(count > 1);
        problems.into_iter().for_each(|line| self.problem(line));
        Ok(())
    }
}

fn copies_of<T: Kind>(tree: TreeId, paged: &Paged<T>, found: &mut VecDeque<(TreeId, Place, usize)>) {
    for place in paged.tree.slots().filter_map(|slot| paged.place(slot.page)) {
        for copy in 0..COPIES_MAX {
            if place.copies[copy].is_some() {
                found.push_back((tree, place.clone(), copy));
            }
        }
    }
}
