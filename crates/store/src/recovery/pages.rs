//! Pages of the index: all of them where they fit, else those that a record needs.

use super::{Opening, Paging, Replay, Step};
use crate::core::Core;
use crate::engine::OpenError;
use crate::index::Wanted;
use crate::limits::BLOCK_LEN;
use crate::ops::Nonsense;
use crate::pager::{self, PRELOADS_MAX};
use crate::superblock::COPIES_MAX;
use env::DiskResult;

impl Opening {
    /// An index that fits into memory is loaded whole: then nobody waits for it later.
    pub(super) fn preload(&mut self) -> Result<Option<Box<Core>>, OpenError> {
        let limit = self.options.index_limit() as u64 / 4;
        let index = &self.rebuilt().index;
        let fits = index.extent().pages_len <= limit;
        let queue = if fits { index.absent() } else { Vec::new() };
        self.load_pages(queue, None)
    }

    /// Loads pages, then goes on with the replay, or begins it.
    pub(super) fn load_pages(
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

    pub(super) fn on_pages(
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
}
