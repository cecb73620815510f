//! The new epoch, after which the store is open.

use super::{Opening, Replay, Step};
use crate::batch::Batch;
use crate::buffers::Buffers;
use crate::chosen::Chosen;
use crate::core::{BLOCK, Core};
use crate::engine::OpenError;
use crate::gather::Gather;
use crate::io::Purpose;
use crate::key_map::KeyMap;
use crate::lay::Lay;
use crate::mend::Mend;
use crate::ops::OpWriter;
use crate::pager::Pager;
use crate::pins::Pins;
use crate::read_cache::ReadCache;
use crate::reclaim::Reclaim;
use crate::stalled::Stalled;
use crate::superblock::{INCOMPAT_CARRIED, Superblock};
use crate::trim::Trim;
use base::AlignedBuf;
use std::collections::{BTreeMap, VecDeque};

impl Opening {
    /// First a flush: a process that died left what it had written in the device's cache, and a
    /// superblock that names records must not outlive them. Nor may two copies be at risk at once.
    /// The copy that was read goes last, so that one intact copy remains.
    pub(super) fn write_superblocks(
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
            superblock.incompat |= INCOMPAT_CARRIED;
            superblock.recovered_sequence = last;
        }
        let purpose = Purpose::Open { part: 0 };
        self.answers = vec![None];
        match step {
            1 | 3 => {
                let superblock = self.superblock();
                let copy = order[step as usize / 2];
                let offset = Superblock::offsets(superblock.device_len)[copy];
                let data = AlignedBuf::copy_of(&superblock.encode()).freeze();
                self.io.write(offset, vec![data], purpose);
            }
            0 | 2 | 4 => {
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
            rebuilt.alloc.watch_untouched(self.options.written_out);
        }
        let trim = Trim::new(discard, rebuilt.alloc.blocks(), self.options.discard_blocks_min);
        let mut core = Box::new(Core {
            io: std::mem::take(&mut self.io),
            options: self.options.clone(),
            volatile_cache: self.disk.volatile_cache,
            region,
            index: rebuilt.index,
            alloc: rebuilt.alloc,
            keeping: Default::default(),
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
            lay: Lay::new(lays, if self.options.written_out { region.len } else { position }),
            mend: Mend::new(self.options.mend && !self.options.read_only),
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
