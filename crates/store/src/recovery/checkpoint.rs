//! The checkpoint that the superblock names: the directory of all pages.

use super::{Loading, Opening, Rebuilt, Step};
use crate::checkpoint::{ChunkHeader, Loader};
use crate::core::Core;
use crate::engine::OpenError;
use crate::limits::BLOCK_LEN;
use crate::ops::Nonsense;
use crate::superblock::COPIES_MAX;
use env::DiskResult;

impl Opening {
    pub(super) fn begin_loading(&mut self) -> Result<Option<Box<Core>>, OpenError> {
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

    pub(super) fn on_chunk(
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
}
