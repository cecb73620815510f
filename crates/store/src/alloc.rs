//! Which device blocks are in use.
//!
//! A bitmap (32 MiB per TiB) in groups, with the free count and an upper bound
//! of the longest free run for each group, so that a search skips what cannot
//! serve it. Nothing of it is on the device: it is rebuilt from the index at
//! open, so it cannot disagree with the index.
//!
//! Must not know who uses a block, nor when a freed block may be used again.

/// Adjacent device blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl Run {
    pub(crate) fn end(self) -> u32 {
        self.start + self.count
    }

    pub(crate) fn overlaps(self, other: Run) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

const WORD: u32 = 64;
const GROUP_WORDS: usize = 64;
/// 16 MiB: also the longest run ever handed out.
const GROUP_BLOCKS: u32 = WORD * GROUP_WORDS as u32;

pub(crate) struct Allocator {
    /// Bit set: in use. Bits past the device are set.
    bits: Vec<u64>,
    group_free: Vec<u16>,
    /// At least the longest free run of the group.
    group_longest: Vec<u16>,
    blocks: u32,
    free: u32,
    /// Where the search for small runs goes on.
    cursor: u32,
}

impl Allocator {
    /// All free.
    pub(crate) fn new(blocks: u32) -> Allocator {
        let groups = blocks.div_ceil(GROUP_BLOCKS) as usize;
        let mut alloc = Allocator {
            bits: vec![0; groups * GROUP_WORDS],
            group_free: vec![GROUP_BLOCKS as u16; groups],
            group_longest: vec![GROUP_BLOCKS as u16; groups],
            blocks,
            free: groups as u32 * GROUP_BLOCKS,
            cursor: 0,
        };
        for block in blocks..groups as u32 * GROUP_BLOCKS {
            alloc.set(block);
        }
        alloc
    }

    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        u64::from(self.free)
    }

    pub(crate) fn is_used(&self, block: u32) -> bool {
        self.bits[(block / WORD) as usize] >> (block % WORD) & 1 == 1
    }

    fn set(&mut self, block: u32) {
        debug_assert!(!self.is_used(block));
        self.bits[(block / WORD) as usize] |= 1 << (block % WORD);
        self.group_free[(block / GROUP_BLOCKS) as usize] -= 1;
        self.free -= 1;
    }

    /// Marks one block; false when it was in use already.
    pub(crate) fn mark(&mut self, block: u32) -> bool {
        if self.is_used(block) {
            return false;
        }
        self.set(block);
        true
    }

    /// Marks a run; false, with nothing changed, when part of it was in use or outside.
    pub(crate) fn mark_run(&mut self, run: Run) -> bool {
        let Some(end) = run.start.checked_add(run.count) else {
            return false;
        };
        if end > self.blocks || (run.start..end).any(|block| self.is_used(block)) {
            return false;
        }
        (run.start..end).for_each(|block| self.set(block));
        true
    }

    pub(crate) fn release(&mut self, run: Run) {
        for block in run.start..run.end() {
            assert!(self.is_used(block), "block {block} was free already");
            self.bits[(block / WORD) as usize] &= !(1 << (block % WORD));
            let group = (block / GROUP_BLOCKS) as usize;
            self.group_free[group] += 1;
            self.group_longest[group] = self.group_free[group];
            self.free += 1;
        }
    }

    /// The free run that starts at `block`, at most `want` long, within its group.
    fn run_at(&self, block: u32, want: u32) -> u32 {
        let end = (block / GROUP_BLOCKS + 1) * GROUP_BLOCKS;
        let limit = want.min(end - block);
        let mut len = 0;
        while len < limit {
            let at = block + len;
            let word = self.bits[(at / WORD) as usize] >> (at % WORD);
            let clear = word.trailing_zeros().min(WORD - at % WORD);
            len += clear;
            if clear < WORD - at % WORD {
                break;
            }
        }
        len.min(limit)
    }

    /// The first free block at or after `block` in its group.
    fn free_after(&self, block: u32) -> Option<u32> {
        let end = (block / GROUP_BLOCKS + 1) * GROUP_BLOCKS;
        let mut at = block;
        while at < end {
            let word = !self.bits[(at / WORD) as usize] >> (at % WORD);
            if word != 0 {
                return Some(at + word.trailing_zeros());
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }

    /// The first run of `want` blocks at or after `from` in its group; learns the
    /// group's longest run when there is none and the whole group was searched.
    fn search_group(&mut self, from: u32, want: u32) -> Option<u32> {
        let group = (from / GROUP_BLOCKS) as usize;
        let mut longest = 0;
        let mut at = from;
        let end = (group as u32 + 1) * GROUP_BLOCKS;
        while at < end {
            let Some(start) = self.free_after(at) else {
                break;
            };
            let len = self.run_at(start, GROUP_BLOCKS);
            if len >= want {
                return Some(start);
            }
            longest = longest.max(len);
            at = start + len;
        }
        if from == group as u32 * GROUP_BLOCKS {
            self.group_longest[group] = longest as u16;
        }
        None
    }

    fn search(&mut self, want: u32) -> Option<u32> {
        let groups = self.group_free.len() as u32;
        let start_group = self.cursor / GROUP_BLOCKS;
        if u32::from(self.group_longest[start_group as usize]) >= want
            && let Some(found) = self.search_group(self.cursor, want)
        {
            return Some(found);
        }
        for step in 1..=groups {
            let group = (start_group + step) % groups;
            if u32::from(self.group_longest[group as usize]) >= want
                && let Some(found) = self.search_group(group * GROUP_BLOCKS, want)
            {
                return Some(found);
            }
        }
        None
    }

    /// Up to `want` adjacent blocks: all of them where such a run exists, else
    /// half as many, and so on. `hint`, when free, is where they start.
    pub(crate) fn allocate(&mut self, want: u32, hint: Option<u32>) -> Option<Run> {
        if self.free == 0 || want == 0 {
            return None;
        }
        if let Some(hint) = hint
            && hint < self.blocks
            && !self.is_used(hint)
        {
            let count = self.run_at(hint, want);
            if count == want || count * 2 > want {
                return Some(self.take(Run { start: hint, count }));
            }
        }
        let mut ask = want.min(GROUP_BLOCKS);
        loop {
            if let Some(start) = self.search(ask) {
                let run = self.take(Run { start, count: ask });
                self.cursor = run.end() % self.blocks;
                return Some(run);
            }
            assert!(ask > 1, "a free block exists");
            ask = ask.div_ceil(2);
        }
    }

    fn take(&mut self, run: Run) -> Run {
        (run.start..run.end()).for_each(|block| self.set(block));
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeSet;

    #[test]
    fn hands_out_every_block_once_and_takes_it_back() {
        let blocks = 3 * GROUP_BLOCKS + 77;
        let mut alloc = Allocator::new(blocks);
        assert_eq!(alloc.free_blocks(), u64::from(blocks));
        let mut random = Random::from_seed(3);
        let mut used = BTreeSet::new();
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..20_000 {
            if random.chance(1, 2) && !runs.is_empty() {
                let run = runs.swap_remove(random.below(runs.len() as u64) as usize);
                alloc.release(run);
                (run.start..run.end()).for_each(|b| assert!(used.remove(&b)));
            } else {
                let want = if random.chance(1, 9) { 1024 } else { 1 + random.below(8) as u32 };
                let hint = random.chance(1, 2).then(|| random.below(blocks.into()) as u32);
                let Some(run) = alloc.allocate(want, hint) else {
                    assert_eq!(used.len() as u32, blocks);
                    continue;
                };
                assert!(run.count >= 1 && run.count <= want);
                (run.start..run.end()).for_each(|b| assert!(b < blocks && used.insert(b)));
                runs.push(run);
            }
            assert_eq!(alloc.free_blocks(), u64::from(blocks) - used.len() as u64);
        }
        while alloc.allocate(5000, None).is_some() {}
        assert_eq!(alloc.free_blocks(), 0);
        assert!(!alloc.mark(blocks - 1));
    }

    #[test]
    fn long_runs_are_found_in_a_fragmented_device() {
        let mut alloc = Allocator::new(4 * GROUP_BLOCKS);
        for block in 0..4 * GROUP_BLOCKS {
            if block % 2 == 0 && !(9000..9500).contains(&block) {
                assert!(alloc.mark(block));
            }
        }
        assert_eq!(alloc.allocate(400, None).map(|run| run.count), Some(400));
        assert_eq!(alloc.allocate(400, None).map(|run| run.count), Some(100));
    }
}
