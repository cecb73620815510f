//! Which operation comes next.

use super::layout::{Layout, OBJECT_LEN};
use crate::store::options::WorkloadKind;
use base::Random;
use store::StoreStats;

/// On the object of an index.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Write { index: usize, offset: u64, len: u64 },
    Read { index: usize, offset: u64, len: u64 },
    Remove { index: usize },
}

pub enum Plan {
    /// New whole objects, so many.
    Fill {
        count: usize,
    },
    /// New whole objects until so much of the store is used.
    FillTo {
        percent: u8,
    },
    /// Small writes until the log has gone round once: the first round allocates. All in a few
    /// objects.
    Round {
        left: u64,
    },
    /// These objects again, whole: all are in one piece then, as fio's file is.
    Mend {
        left: usize,
    },
    /// Without end: whole objects, or aligned pieces.
    Random(WorkloadKind),
    Age(Aging),
}

/// Rewrites pieces anywhere, and deletes objects and rewrites them in pieces
/// between all other writes.
pub struct Aging {
    /// Bytes still to be written.
    pub left: u64,
    /// Objects that were deleted, and how far they are written again.
    pub rebuilding: Vec<(usize, u64)>,
}

/// Objects of a [round](Plan::Round).
pub const ROUND_OBJECTS: usize = 16;
/// Objects being rewritten at a time: their pieces are laid between each other.
const REBUILDING_MAX: usize = 8;
const PIECE_BLOCKS_MAX: u64 = 64;
const OVERWRITE_BLOCKS_MAX: u64 = 16;
const BLOCK_LEN: u64 = 4096;

impl Plan {
    /// `None` at the end.
    pub fn next(
        &mut self,
        layout: &mut Layout,
        stats: &dyn Fn() -> StoreStats,
        random: &mut Random,
    ) -> Option<Op> {
        match self {
            Plan::Fill { count } => {
                *count = count.checked_sub(1)?;
                Some(whole_write(layout.add_object()))
            }
            Plan::FillTo { percent } => {
                let stats = stats();
                let used = stats.total - stats.available.min(stats.total);
                let full = u128::from(used) * 100 >= u128::from(stats.total) * u128::from(*percent);
                (!full).then(|| whole_write(layout.add_object()))
            }
            Plan::Round { left } => {
                *left = left.checked_sub(BLOCK_LEN)?;
                Some(piece(WorkloadKind::Write4k, layout.objects.len().min(ROUND_OBJECTS), random))
            }
            Plan::Mend { left } => {
                *left = left.checked_sub(1)?;
                Some(whole_write(*left))
            }
            Plan::Random(kind) => Some(piece(*kind, layout.objects.len(), random)),
            Plan::Age(aging) => aging.next(layout, random),
        }
    }
}

fn whole_write(index: usize) -> Op {
    Op::Write { index, offset: 0, len: OBJECT_LEN }
}

/// Of one of the first `objects`.
fn piece(kind: WorkloadKind, objects: usize, random: &mut Random) -> Op {
    let index = random.below(objects as u64) as usize;
    let len = kind.len();
    let offset = random.below(OBJECT_LEN / len) * len;
    match kind.is_write() {
        true => Op::Write { index, offset, len },
        false => Op::Read { index, offset, len },
    }
}

impl Aging {
    fn next(&mut self, layout: &Layout, random: &mut Random) -> Option<Op> {
        if !self.rebuilding.is_empty() && (self.left == 0 || random.chance(1, 2)) {
            let at = random.below(self.rebuilding.len() as u64) as usize;
            let (index, offset) = self.rebuilding[at];
            let len = ((1 + random.below(PIECE_BLOCKS_MAX)) * BLOCK_LEN).min(OBJECT_LEN - offset);
            self.rebuilding[at].1 += len;
            if offset + len == OBJECT_LEN {
                self.rebuilding.swap_remove(at);
            }
            self.left = self.left.saturating_sub(len);
            return Some(Op::Write { index, offset, len });
        }
        if self.left == 0 {
            return None;
        }
        let index = random.below(layout.objects.len() as u64) as usize;
        let is_being_rebuilt = self.rebuilding.iter().any(|(other, _)| *other == index);
        if self.rebuilding.len() < REBUILDING_MAX && !is_being_rebuilt && random.chance(1, 16) {
            self.rebuilding.push((index, 0));
            return Some(Op::Remove { index });
        }
        let len = (1 + random.below(OVERWRITE_BLOCKS_MAX)) * BLOCK_LEN;
        let offset = random.below((OBJECT_LEN - len) / BLOCK_LEN + 1) * BLOCK_LEN;
        self.left = self.left.saturating_sub(len);
        Some(Op::Write { index, offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::options::Metadata;

    #[test]
    fn aging_ends_with_every_object_whole() {
        let mut random = Random::from_seed(1);
        let mut layout = Layout::new(Metadata::None, false, &mut random);
        for _ in 0..20 {
            layout.add_object();
        }
        let mut plan = Plan::Age(Aging { left: 200 << 20, rebuilding: Vec::new() });
        // Whether each block of each object has content.
        let mut written = vec![vec![true; (OBJECT_LEN / BLOCK_LEN) as usize]; 20];
        let mut removed = 0;
        while let Some(op) = plan.next(&mut layout, &StoreStats::default, &mut random) {
            match op {
                Op::Write { index, offset, len } => {
                    let blocks = (offset / BLOCK_LEN) as usize..((offset + len) / BLOCK_LEN) as usize;
                    written[index][blocks].fill(true);
                }
                Op::Remove { index } => {
                    removed += 1;
                    written[index].fill(false);
                }
                Op::Read { .. } => panic!("aging does not read"),
            }
        }
        assert!(removed > 10);
        assert!(written.iter().flatten().all(|block| *block));
    }
}
