//! Pages into memory: requests, checks, and who waits for them.
//!
//! A page is read from its first copy, from the second when that is damaged; a
//! page that was healed so is written anew by the next checkpoint. When no copy
//! is intact the store stops: what it would go on with is not what it was.

use crate::api::{FetchId, StoreError, StoreEvent};
use crate::checkpoint::decode_page;
use crate::core::Core;
use crate::engine::EngineError;
use crate::index::{First, Index, PageRef, TreeId, Wanted};
use crate::io::Purpose;
use crate::kinds::{Blocks, Objects, Omap, Shared};
use crate::limits::BLOCK_LEN;
use crate::ops::Nonsense;
use crate::place::Place;
use crate::superblock::COPIES_MAX;
use bytes::{Bytes, BytesMut};
use env::DiskResult;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

/// Pages of an open store that fits its memory are read this many at a time.
pub(crate) const PRELOADS_MAX: usize = 64;

struct Load {
    wanted: Wanted,
    place: Place,
    copy: usize,
    /// One for each run of the copy.
    parts: Vec<Option<Bytes>>,
    /// A part could not be read.
    failed: bool,
    /// Nobody but [`crate::mend`] wants it.
    spare: bool,
    waiters: Vec<FetchId>,
}

#[derive(Default)]
pub(crate) struct Pager {
    loads: BTreeMap<PageRef, Load>,
    /// Pages that each waiter still needs.
    waits: BTreeMap<FetchId, usize>,
    /// Asked for by calls that cannot change anything.
    wishes: RefCell<Vec<(FetchId, Vec<Wanted>)>>,
    /// Waiting for queued transactions to be applied.
    behind: RefCell<Vec<FetchId>>,
    next_fetch: Cell<u64>,
    /// Pages read, and copies found damaged, since open.
    pub(crate) reads: u64,
    pub(crate) damaged: u64,
}

impl Pager {
    pub(crate) fn fetch_id(&self) -> FetchId {
        self.next_fetch.set(self.next_fetch.get() + 1);
        FetchId(self.next_fetch.get())
    }

    /// Asks for pages.
    pub(crate) fn wish(&self, wanted: Vec<Wanted>) -> FetchId {
        let id = self.fetch_id();
        self.wishes.borrow_mut().push((id, wanted));
        id
    }

    /// The answer to a call that needs pages.
    pub(crate) fn pending(&self, wanted: Vec<Wanted>) -> StoreError {
        StoreError::Pending(self.wish(wanted))
    }

    /// The answer to a call that a queued transaction holds up.
    pub(crate) fn pending_behind(&self) -> StoreError {
        let id = self.fetch_id();
        self.behind.borrow_mut().push(id);
        StoreError::Pending(id)
    }

    pub(crate) fn take_behind(&self) -> Vec<FetchId> {
        self.behind.take()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.loads.is_empty() && self.wishes.borrow().is_empty()
    }
}

/// The device offset a page's first intact-looking copy begins at, for messages.
fn offset_of(place: &Place, copy: usize) -> u64 {
    place.copy_runs(copy).first().map_or(0, |run| u64::from(run.start) * BLOCK_LEN)
}

pub(crate) fn place_of(index: &Index, page: PageRef) -> Option<&Place> {
    match page.tree {
        TreeId::Objects => index.objects.place(page.page),
        TreeId::Blocks => index.blocks.place(page.page),
        TreeId::Omap => index.omap.place(page.page),
        TreeId::Shared => index.shared.place(page.page),
    }
}

/// Puts a page's content into its tree.
pub(crate) fn fill(
    index: &mut Index,
    wanted: &Wanted,
    content: Bytes,
    device_blocks: u32,
    heal: bool,
) -> Result<(), Nonsense> {
    let page = wanted.page;
    match &wanted.first {
        First::Objects(first) => {
            index.objects.tree.fill(first, page, decode_page::<Objects>(content, device_blocks)?, heal)
        }
        First::Blocks(first) => {
            index.blocks.tree.fill(first, page, decode_page::<Blocks>(content, device_blocks)?, heal)
        }
        First::Omap(first) => {
            index.omap.tree.fill(first, page, decode_page::<Omap>(content, device_blocks)?, heal)
        }
        First::Shared(first) => {
            index.shared.tree.fill(first, page, decode_page::<Shared>(content, device_blocks)?, heal)
        }
    }
}

impl Core {
    /// Turns what was asked for into requests.
    pub(crate) fn grant_wishes(&mut self) {
        for (id, wanted) in self.pager.wishes.take() {
            self.load(wanted, Some(id));
        }
    }

    /// Reads pages, unless that is under way already.
    pub(crate) fn load(&mut self, wanted: Vec<Wanted>, waiter: Option<FetchId>) {
        self.load_as(wanted, waiter, false);
    }

    /// The same for who does without where one is lost.
    pub(crate) fn load_for_mending(&mut self, wanted: Vec<Wanted>) {
        self.load_as(wanted, None, true);
    }

    fn load_as(&mut self, wanted: Vec<Wanted>, waiter: Option<FetchId>, spare: bool) {
        let pages: BTreeSet<PageRef> = wanted.iter().map(Wanted::id).collect();
        if let Some(id) = waiter {
            if pages.is_empty() {
                self.events.push_back(StoreEvent::Loaded(id));
                return;
            }
            self.pager.waits.insert(id, pages.len());
        }
        for wanted in wanted {
            let id = wanted.id();
            if let Some(load) = self.pager.loads.get_mut(&id) {
                load.spare &= spare;
                load.waiters.extend(waiter);
                continue;
            }
            let place = place_of(&self.index, id).cloned().expect("a page not in memory has a place");
            let waiters = waiter.into_iter().collect();
            let load = Load { wanted, place, copy: 0, parts: Vec::new(), failed: false, spare, waiters };
            self.pager.loads.insert(id, load);
            self.read_copy(id);
        }
    }

    /// Asks for the first copy there is, from the load's own on.
    fn read_copy(&mut self, id: PageRef) {
        let Some(load) = self.pager.loads.get_mut(&id) else {
            return;
        };
        while load.copy < COPIES_MAX && load.place.copies[load.copy].is_none() {
            load.copy += 1;
        }
        if load.copy == COPIES_MAX {
            let offset = offset_of(&load.place, 0);
            if load.spare {
                tracing::error!(
                    "no copy of a page ({:?}) at device offset {offset} is intact: nothing is put together until the next start",
                    id.tree
                );
                self.pager.loads.remove(&id);
                return self.mend.give_up();
            }
            return self.fail(EngineError::PageLost { tree: format!("{:?}", id.tree), offset });
        }
        let runs = load.place.copy_runs(load.copy);
        load.parts = vec![None; runs.len()];
        load.failed = false;
        self.pager.reads += 1;
        for (part, run) in (0u32..).zip(runs) {
            let len = run.count * BLOCK_LEN as u32;
            self.io.read(u64::from(run.start) * BLOCK_LEN, len, Purpose::Page { id, part });
        }
    }

    pub(crate) fn on_page(&mut self, id: PageRef, part: u32, result: DiskResult) {
        let Some(load) = self.pager.loads.get_mut(&id) else {
            return;
        };
        load.failed |= result.is_err();
        load.parts[part as usize] = Some(result.unwrap_or_default());
        if load.parts.iter().any(Option::is_none) {
            return;
        }
        let content = joined(&mut load.parts);
        if load.failed || !load.place.check(&content) {
            tracing::error!(
                "copy {} of a page ({:?}) at device offset {} is damaged",
                load.copy,
                id.tree,
                offset_of(&load.place, load.copy)
            );
            load.copy += 1;
            self.pager.damaged += 1;
            return self.read_copy(id);
        }
        let Some(load) = self.pager.loads.remove(&id) else {
            return;
        };
        let content = content.slice(..load.place.len as usize);
        let blocks = self.superblock.blocks();
        let heal = load.copy > 0 && !self.options.read_only;
        if let Err(Nonsense(what)) = fill(&mut self.index, &load.wanted, content, blocks, heal) {
            let offset = offset_of(&load.place, load.copy);
            return self.fail(EngineError::PageNonsense { offset, what });
        }
        for waiter in load.waiters {
            let Some(left) = self.pager.waits.get_mut(&waiter) else {
                continue;
            };
            *left -= 1;
            if *left == 0 {
                self.pager.waits.remove(&waiter);
                self.events.push_back(StoreEvent::Loaded(waiter));
            }
        }
        self.run_stalled();
    }
}

pub(crate) fn joined(parts: &mut Vec<Option<Bytes>>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop().flatten().unwrap_or_default();
    }
    let mut all = BytesMut::new();
    parts.drain(..).flatten().for_each(|part| all.extend_from_slice(&part));
    all.freeze()
}
