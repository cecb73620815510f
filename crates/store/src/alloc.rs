//! Which device blocks are in use.
//!
//! A bitmap (32 MiB per TiB) in groups, with the free count and an upper bound
//! of the longest free run for each group, so that a search skips what cannot
//! serve it. Nothing of it is on the device: it is rebuilt from the index at
//! open, so it cannot disagree with the index.
//!
//! Two ways to allocate. [`Allocator::allocate`] finds one run for one piece of
//! data. [`Allocator::allocate_next`] hands out what small writes take one after
//! the other, so that they lie side by side: it fills one free run after the
//! other, and is choosy about the next: the length it asks for doubles while such
//! runs are found at once, and halves when a bounded search finds none. On a
//! fragmented device that costs about a microsecond for each run, and saves a
//! device write for each it makes unnecessary.
//!
//! On a device where the first write to a place costs more than later ones (a file
//! with holes), a second bitmap says which blocks are untouched: never in use since
//! the store was opened, or discarded. Small writes prefer the others, and where they find only short
//! runs of these, what was laid out for them; see [`crate::lay`].
//!
//! Must not know who uses a block, nor when a freed block may be used again.

use crate::untouched::Untouched;

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

pub(crate) const WORD: u32 = 64;
pub(crate) const GROUP_WORDS: usize = 64;
/// 16 MiB: also the longest run ever handed out.
const GROUP_BLOCKS: u32 = WORD * GROUP_WORDS as u32;

/// The longest run that [`Allocator::allocate_next`] insists on.
const CHOOSY_MAX: u32 = 64;

/// Runs shorter than this make small writes need more device writes than they should.
const CROWDED: u32 = 8;

/// What its search for one run may cost: groups passed over, and groups looked
/// into, each of which counts for so many.
const SEARCH_COST_MAX: u32 = 1024;
const LOOK_COST: u32 = 32;

pub(crate) struct Allocator {
    /// Bit set: in use. Bits past the device are set.
    bits: Vec<u64>,
    group_free: Vec<u16>,
    /// At least the longest free run of the group.
    group_longest: Vec<u16>,
    blocks: u32,
    free: u32,
    /// Words of which all blocks are free.
    free_words: u32,
    /// Where the search for small runs goes on.
    cursor: u32,
    /// No free run is longer.
    longest: u32,
    /// Where [`Allocator::allocate_next`] goes on, and the runs it asks for.
    next: u32,
    choosy: u32,
    untouched: Option<Untouched>,
}

/// Which free blocks a search may find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    All,
    Touched,
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
            free_words: groups as u32 * GROUP_WORDS as u32,
            cursor: 0,
            longest: GROUP_BLOCKS,
            next: 0,
            choosy: CHOOSY_MAX,
            untouched: None,
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

    /// Free stretches of [`WORD`] blocks, at multiples of that.
    pub(crate) fn free_words(&self) -> u32 {
        self.free_words
    }

    pub(crate) fn is_used(&self, block: u32) -> bool {
        self.bits[(block / WORD) as usize] >> (block % WORD) & 1 == 1
    }

    /// From now on tells untouched blocks from others. What is free at this moment is untouched,
    /// unless all of the device was written at some time: then only what is discarded will be.
    pub(crate) fn watch_untouched(&mut self, written_out: bool) {
        self.untouched = Some(if written_out {
            Untouched::new(vec![0; self.bits.len()], vec![0; self.group_free.len()], 0)
        } else {
            let bits: Vec<u64> = self.bits.iter().map(|used| !used).collect();
            Untouched::new(bits, self.group_free.clone(), self.free)
        });
    }

    /// Free blocks that were written before.
    pub(crate) fn touched_free(&self) -> u32 {
        self.free - self.untouched.as_ref().map_or(0, |untouched| untouched.count)
    }

    /// Small writes find only short runs of touched blocks.
    pub(crate) fn is_crowded(&self) -> bool {
        self.choosy < CROWDED
    }

    /// Takes up to `want` adjacent untouched blocks, in whole words of the bitmap.
    pub(crate) fn take_untouched(&mut self, want: u32) -> Option<Run> {
        let words = (want / WORD).max(1) as usize;
        let (at, end) = self.untouched.as_mut()?.next_whole_words(words)?;
        Some(self.take(Run { start: at as u32 * WORD, count: (end - at) as u32 * WORD }))
    }

    /// Gives back blocks of [`Self::take_untouched`] that have been written: when small writes find
    /// only short runs, they fill this one.
    pub(crate) fn release_laid(&mut self, run: Run) {
        self.release(run);
        if let Some(untouched) = &mut self.untouched {
            untouched.note_laid(run);
        }
    }

    /// Blocks in runs given back so and not filled since.
    pub(crate) fn laid(&self) -> u32 {
        self.untouched.as_ref().map_or(0, Untouched::laid_blocks)
    }

    /// Gives back blocks whose places the device has forgotten.
    pub(crate) fn release_untouched(&mut self, run: Run) {
        self.release(run);
        if let Some(untouched) = &mut self.untouched {
            for block in run.start..run.end() {
                untouched.set((block / WORD) as usize, 1 << (block % WORD));
            }
        }
    }

    fn set(&mut self, block: u32) {
        debug_assert!(!self.is_used(block));
        let (word, bit) = ((block / WORD) as usize, 1 << (block % WORD));
        self.free_words -= u32::from(self.bits[word] == 0);
        self.bits[word] |= bit;
        if let Some(untouched) = &mut self.untouched {
            untouched.clear(word, bit);
        }
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
        let mut start = run.start;
        while start < run.end() {
            let end = ((start / GROUP_BLOCKS + 1) * GROUP_BLOCKS).min(run.end());
            self.release_in_group(Run { start, count: end - start });
            start = end;
        }
    }

    fn release_in_group(&mut self, run: Run) {
        for block in run.start..run.end() {
            assert!(self.is_used(block), "block {block} was free already");
            let word = &mut self.bits[(block / WORD) as usize];
            *word &= !(1 << (block % WORD));
            self.free_words += u32::from(*word == 0);
        }
        let group = (run.start / GROUP_BLOCKS) as usize;
        self.group_free[group] += run.count as u16;
        self.free += run.count;
        // With what is free on either side.
        let start = self.free_since(run.start);
        let len = run.end() - start;
        let end = (group as u32 + 1) * GROUP_BLOCKS;
        let len = if run.end() < end { len + self.run_at(run.end(), GROUP_BLOCKS, Of::All) } else { len };
        self.group_longest[group] = self.group_longest[group].max(len as u16);
        self.longest = self.longest.max(len);
    }

    /// Where the free run that ends with `block` begins, within its group.
    fn free_since(&self, block: u32) -> u32 {
        let first = block / GROUP_BLOCKS * GROUP_BLOCKS;
        let mut at = block;
        while at > first {
            let before = at - 1;
            let bit = before % WORD;
            // The block before is the word's highest bit.
            let word = self.bits[(before / WORD) as usize] << (WORD - 1 - bit);
            let clear = word.leading_zeros().min(bit + 1);
            at -= clear;
            if clear < bit + 1 {
                break;
            }
        }
        at
    }

    /// The free blocks of a word, as set bits.
    fn free_bits(&self, word: usize, of: Of) -> u64 {
        let free = !self.bits[word];
        match (&self.untouched, of) {
            (Some(untouched), Of::Touched) => free & !untouched.bits[word],
            _ => free,
        }
    }

    /// Whether a search of the group leaves out nothing that is free.
    fn finds_all(&self, group: u32, of: Of) -> bool {
        let untouched = self.untouched.as_ref().map_or(0, |untouched| untouched.group_count[group as usize]);
        of == Of::All || untouched == 0
    }

    /// Whether the group may have a free run of that length.
    fn may_have(&self, group: u32, want: u32, of: Of) -> bool {
        let group = group as usize;
        let longest = u32::from(self.group_longest[group]);
        match (&self.untouched, of) {
            (Some(untouched), Of::Touched) => {
                longest >= want && u32::from(self.group_free[group] - untouched.group_count[group]) >= want
            }
            _ => longest >= want,
        }
    }

    /// The free run that starts at `block`, at most `want` long, within its group.
    fn run_at(&self, block: u32, want: u32, of: Of) -> u32 {
        let end = (block / GROUP_BLOCKS + 1) * GROUP_BLOCKS;
        let limit = want.min(end - block);
        let mut len = 0;
        while len < limit {
            let at = block + len;
            let taken = !self.free_bits((at / WORD) as usize, of) >> (at % WORD);
            let clear = taken.trailing_zeros().min(WORD - at % WORD);
            len += clear;
            if clear < WORD - at % WORD {
                break;
            }
        }
        len.min(limit)
    }

    /// The first run of `want` blocks at or after `from` in its group. When there
    /// is none in the whole group, then this is known from now on.
    fn search_group(&mut self, from: u32, want: u32, of: Of) -> Option<u32> {
        let group = from / GROUP_BLOCKS;
        let (first, end) = (group * GROUP_BLOCKS, (group + 1) * GROUP_BLOCKS);
        // The free run that ends right before the word at hand.
        let mut open = 0;
        for at in (from / WORD * WORD..end).step_by(WORD as usize) {
            let mut free = self.free_bits((at / WORD) as usize, of);
            if at < from {
                free &= u64::MAX << (from % WORD);
            }
            let leading = (!free).trailing_zeros();
            if open + leading >= want {
                return Some(at - open);
            }
            if leading == WORD {
                open += WORD;
                continue;
            }
            if let Some(bit) = run_in_word(free, want) {
                return Some(at + bit);
            }
            open = (!free).leading_zeros();
        }
        if from == first && self.finds_all(group, of) {
            let known = &mut self.group_longest[group as usize];
            *known = (*known).min(want as u16 - 1);
        }
        None
    }

    fn search(&mut self, want: u32) -> Option<u32> {
        let groups = self.group_free.len() as u32;
        let start_group = self.cursor / GROUP_BLOCKS;
        if u32::from(self.group_longest[start_group as usize]) >= want
            && let Some(found) = self.search_group(self.cursor, want, Of::All)
        {
            return Some(found);
        }
        for step in 1..=groups {
            let group = (start_group + step) % groups;
            if u32::from(self.group_longest[group as usize]) >= want
                && let Some(found) = self.search_group(group * GROUP_BLOCKS, want, Of::All)
            {
                return Some(found);
            }
        }
        self.longest = self.longest.min(want - 1);
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
            let count = self.run_at(hint, want, Of::All);
            if count == want || count * 2 > want {
                return Some(self.take(Run { start: hint, count }));
            }
        }
        let mut ask = want;
        loop {
            ask = ask.min(self.longest);
            if let Some(run) = self.allocate_whole(ask) {
                return Some(run);
            }
            assert!(ask > 1, "a free block exists");
            ask = ask.div_ceil(2);
        }
    }

    /// `want` adjacent blocks or none, behind those that were found before where that is possible.
    pub(crate) fn allocate_whole(&mut self, want: u32) -> Option<Run> {
        let start = self.search_whole(want)?;
        let run = self.take(Run { start, count: want });
        self.cursor = run.end() % self.blocks;
        Some(run)
    }

    /// Whether there is such a run. Where there is none, asking again costs nothing until something is freed.
    pub(crate) fn has_whole(&mut self, want: u32) -> bool {
        self.search_whole(want).is_some()
    }

    fn search_whole(&mut self, want: u32) -> Option<u32> {
        (want > 0 && want <= self.longest).then(|| self.search(want)).flatten()
    }

    /// Up to `want` adjacent blocks, right after those that the call before gave
    /// wherever these are free.
    pub(crate) fn allocate_next(&mut self, want: u32) -> Option<Run> {
        if self.free == 0 || want == 0 {
            return None;
        }
        let of = if self.touched_free() > 0 { Of::Touched } else { Of::All };
        let usable = self.next < self.blocks
            && self.free_bits((self.next / WORD) as usize, of) >> (self.next % WORD) & 1 == 1;
        if !usable {
            self.next = self.choose_next(of);
        }
        let count = self.run_at(self.next, want, of);
        let run = self.take(Run { start: self.next, count });
        if let Some(untouched) = &mut self.untouched {
            untouched.note_filled(run);
        }
        self.next = run.end();
        Some(run)
    }

    /// Where a run begins that was laid out, if somebody else has not taken it.
    fn next_laid(&mut self) -> Option<u32> {
        loop {
            let run = self.untouched.as_ref()?.next_laid()?;
            let least = CROWDED.min(run.count);
            if self.run_at(run.start, least, Of::Touched) == least {
                return Some(run.start);
            }
            self.untouched.as_mut()?.skip_laid();
        }
    }

    /// The run to be filled next. Such a free block exists.
    fn choose_next(&mut self, of: Of) -> u32 {
        if self.is_crowded()
            && let Some(start) = self.next_laid()
        {
            return start;
        }
        let groups = self.group_free.len() as u32;
        let mut at = self.next % self.blocks;
        loop {
            let (from, mut cost) = (at, 0);
            let want = self.choosy;
            // All groups and the first one's beginning.
            for _ in 0..=groups {
                let group = at / GROUP_BLOCKS;
                cost += 1;
                if self.may_have(group, want, of) {
                    cost += LOOK_COST;
                    if let Some(found) = self.search_group(at, want, of) {
                        if cost < SEARCH_COST_MAX / 16 {
                            self.choosy = (want * 2).min(CHOOSY_MAX);
                        }
                        return found;
                    }
                }
                at = (group + 1) % groups * GROUP_BLOCKS;
                if cost >= SEARCH_COST_MAX && want > 1 {
                    break;
                }
            }
            assert!(want > 1, "a free block exists");
            self.choosy = want / 2;
            at = from;
        }
    }

    fn take(&mut self, run: Run) -> Run {
        (run.start..run.end()).for_each(|block| self.set(block));
        run
    }
}

/// The lowest bit that begins `want` set bits.
fn run_in_word(mut bits: u64, want: u32) -> Option<u32> {
    if want > WORD {
        return None;
    }
    // A bit stays set when the `len` bits from it on were.
    let mut len = 1;
    while len < want && bits != 0 {
        let step = len.min(want - len);
        bits &= bits >> step;
        len += step;
    }
    (bits != 0).then(|| bits.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeSet;

    #[test]
    fn whole_runs_come_one_behind_the_other_or_not_at_all() {
        let mut alloc = Allocator::new(2 * GROUP_BLOCKS);
        assert!((0..GROUP_BLOCKS).step_by(10).all(|block| alloc.mark(block)));
        let runs: Vec<Run> = std::iter::from_fn(|| alloc.allocate_whole(64)).collect();
        let expected = (GROUP_BLOCKS..2 * GROUP_BLOCKS).step_by(64).map(|start| Run { start, count: 64 });
        assert_eq!(runs, expected.collect::<Vec<_>>());
        assert!(!alloc.has_whole(64) && !alloc.has_whole(10) && alloc.has_whole(9));
        alloc.release(Run { start: 10, count: 1 });
        assert!(alloc.has_whole(19) && !alloc.has_whole(20));
        assert_eq!(alloc.allocate_whole(19), Some(Run { start: 1, count: 19 }));
        assert_eq!((alloc.allocate_whole(0), alloc.allocate_whole(u32::MAX)), (None, None));
    }

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
            if random.chance(1, 100) {
                // The last word is not all of the device.
                let whole = (0..blocks / WORD).map(|word| word * WORD..(word + 1) * WORD);
                let free_words = whole.filter(|word| used.range(word.clone()).next().is_none()).count();
                assert_eq!(alloc.free_words() as usize, free_words);
            }
        }
        while alloc.allocate(5000, None).is_some() {}
        assert_eq!(alloc.free_blocks(), 0);
        assert!(!alloc.mark(blocks - 1));
    }

    #[test]
    fn what_comes_one_after_the_other_lies_side_by_side() {
        let mut alloc = Allocator::new(4 * GROUP_BLOCKS);
        let first = alloc.allocate_next(1).unwrap();
        let mut end = first.end();
        for want in [1, 5, 64, 300] {
            let run = alloc.allocate_next(want).unwrap();
            assert_eq!(run, Run { start: end, count: want });
            end = run.end();
        }
        // Something else takes the blocks that were to come next.
        assert!(alloc.mark_run(Run { start: end, count: 10 }));
        assert_eq!(alloc.allocate_next(7), Some(Run { start: end + 10, count: 7 }));
    }

    /// Every second block in use, but for a stretch here and there.
    #[test]
    fn the_next_run_is_a_long_one_while_there_are_such() {
        let blocks = 40 * GROUP_BLOCKS;
        let mut alloc = Allocator::new(blocks);
        let long = |block: u32| block % 8192 < 100;
        for block in 0..blocks {
            if block % 2 == 0 && !long(block) {
                assert!(alloc.mark(block));
            }
        }
        let mut random = Random::from_seed(4);
        let mut requests = 0;
        let mut end = None;
        let mut taken = Vec::new();
        for _ in 0..1000 {
            let run = alloc.allocate_next(1).unwrap();
            requests += usize::from(end != Some(run.start));
            end = Some(run.end());
            taken.push(run);
        }
        assert!(requests <= 15, "{requests}");
        assert!(taken.iter().all(|run| long(run.start) || long(run.start - 1)));
        // To the last block, and all over again.
        for round in 0..3 {
            while let Some(run) = alloc.allocate_next(1 + random.below(9) as u32) {
                taken.push(run);
            }
            assert_eq!(alloc.free_blocks(), 0, "round {round}");
            for run in taken.drain(..) {
                alloc.release(run);
            }
        }
    }

    #[test]
    fn a_released_run_joins_what_is_free_beside_it() {
        let mut alloc = Allocator::new(2 * GROUP_BLOCKS);
        while alloc.allocate_next(GROUP_BLOCKS).is_some() {}
        let mut random = Random::from_seed(5);
        let mut free = BTreeSet::new();
        for _ in 0..3000 {
            let block = random.below(600) as u32 + GROUP_BLOCKS - 300;
            if free.insert(block) {
                alloc.release(Run { start: block, count: 1 });
            } else {
                free.remove(&block);
                assert!(alloc.mark(block));
            }
            let mut longest = 0;
            let mut len = 0;
            for block in 0..2 * GROUP_BLOCKS {
                len = if block % GROUP_BLOCKS == 0 { 0 } else { len };
                len = if free.contains(&block) { len + 1 } else { 0 };
                longest = longest.max(len);
            }
            if random.chance(1, 50) && longest > 0 {
                let run = alloc.allocate(longest, None).unwrap();
                assert_eq!(run.count, longest);
                alloc.release(run);
            }
        }
    }

    #[test]
    fn small_writes_go_where_something_was_written_before() {
        let mut alloc = Allocator::new(3 * GROUP_BLOCKS);
        let used = Run { start: 100, count: 50 };
        assert!(alloc.mark_run(used));
        alloc.watch_untouched(false);
        assert_eq!(alloc.touched_free(), 0);
        // Nothing else is there yet.
        assert!(alloc.allocate_next(1).is_some());
        alloc.release(used);
        assert_eq!(alloc.touched_free(), 50);
        assert_eq!(alloc.allocate_next(20), Some(Run { start: 100, count: 20 }));
        let laid = alloc.take_untouched(256).unwrap();
        assert_eq!((laid.start % WORD, laid.count), (0, 256));
        assert_eq!(alloc.touched_free(), 30);
        alloc.release(laid);
        assert_eq!(alloc.touched_free(), 30 + 256);
        let mut taken = BTreeSet::from_iter(100..120);
        while alloc.touched_free() > 0 {
            let run = alloc.allocate_next(7).unwrap();
            assert!((run.start..run.end()).all(|block| taken.insert(block)));
        }
        let expected: BTreeSet<u32> = (100..150).chain(laid.start..laid.end()).collect();
        assert_eq!(taken, expected);
        alloc.release_untouched(laid);
        assert_eq!(alloc.touched_free(), 0);
        // To the last block, whatever was laid.
        let mut left = alloc.free_blocks();
        while let Some(run) = alloc.take_untouched(256).or_else(|| alloc.allocate_next(9)) {
            left -= u64::from(run.count);
        }
        assert_eq!((left, alloc.free_blocks()), (0, 0));
    }

    #[test]
    fn a_search_in_vain_is_not_repeated_where_all_has_been_written() {
        let mut alloc = Allocator::new(3 * GROUP_BLOCKS);
        alloc.watch_untouched(true);
        assert!(alloc.mark_run(Run { start: 0, count: 3 * GROUP_BLOCKS }));
        (0..3 * GROUP_BLOCKS).step_by(2).for_each(|start| alloc.release(Run { start, count: 1 }));
        alloc.group_longest.fill(GROUP_BLOCKS as u16);
        // The first lies where the search would begin.
        assert_eq!([alloc.allocate_next(9), alloc.allocate_next(9)].map(|run| run.unwrap().count), [1, 1]);
        // The first group's beginning may have been left out.
        assert!(alloc.group_longest[1..].iter().all(|longest| *longest < CHOOSY_MAX as u16));
    }

    #[test]
    fn untouched_words_are_found_as_long_as_there_are_any() {
        let mut random = Random::from_seed(11);
        let mut alloc = Allocator::new(4 * GROUP_BLOCKS);
        alloc.watch_untouched(false);
        let mut untouched = BTreeSet::from_iter(0..4 * GROUP_BLOCKS);
        let mut given = Vec::new();
        for _ in 0..20_000 {
            if random.chance(1, 3) && !given.is_empty() {
                let run: Run = given.swap_remove(random.below(given.len() as u64) as usize);
                if random.chance(1, 2) {
                    alloc.release_untouched(run);
                    untouched.extend(run.start..run.end());
                } else {
                    alloc.release(run);
                }
            } else {
                // Small devices are searched in one go.
                let whole =
                    |word: &u32| (word * WORD..(word + 1) * WORD).all(|block| untouched.contains(&block));
                let expected =
                    random.chance(1, 4).then(|| (0..4 * GROUP_BLOCKS / WORD).any(|word| whole(&word)));
                let run = match expected {
                    Some(expected) => {
                        let run = alloc.take_untouched(WORD * (1 + random.below(3) as u32));
                        assert_eq!(run.is_some(), expected);
                        run
                    }
                    None => alloc.allocate(1 + random.below(300) as u32, None),
                };
                given.extend(run);
                for block in run.iter().flat_map(|run| run.start..run.end()) {
                    untouched.remove(&block);
                }
            }
        }
    }

    #[test]
    fn small_writes_fill_what_was_laid_out_when_there_are_only_short_runs() {
        let mut alloc = Allocator::new(4 * GROUP_BLOCKS);
        alloc.watch_untouched(false);
        // Touched: every second block of the first two groups.
        let first = alloc.allocate(GROUP_BLOCKS, Some(0)).unwrap();
        let second = alloc.allocate(GROUP_BLOCKS, Some(GROUP_BLOCKS)).unwrap();
        assert_eq!((first.start, second.end()), (0, 2 * GROUP_BLOCKS));
        for start in (0..2 * GROUP_BLOCKS).step_by(2) {
            alloc.release(Run { start, count: 1 });
        }
        while !alloc.is_crowded() {
            assert_eq!(alloc.allocate_next(1).unwrap().count, 1);
        }
        let laid: Vec<Run> = (0..3).map(|_| alloc.take_untouched(256).unwrap()).collect();
        laid.iter().for_each(|run| alloc.release_laid(*run));
        assert_eq!(alloc.laid(), 3 * 256);
        // Somebody else takes the first.
        assert!(alloc.mark_run(laid[0]));
        let run = alloc.allocate_next(300).unwrap();
        assert_eq!(run, Run { start: laid[1].start, count: 300 });
        assert_eq!(alloc.laid(), 2 * 256 - 300);
        assert_eq!(alloc.allocate_next(512 - 300), Some(Run { start: run.end(), count: 512 - 300 }));
        assert_eq!(alloc.laid(), 0);
        assert_eq!(alloc.allocate_next(300).unwrap().count, 1);
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
