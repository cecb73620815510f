//! What it takes to empty stretches of the device: which ones, and where to with what lies there.
//!
//! A *region* is a word of the bitmap, 64 blocks. The bitmap says how much of it is in use; how much of
//! that can be moved has to be counted by those who know the owners (a [`Survey`]).

use super::search::run_in_word;
use super::{Allocator, GROUP_WORDS, Run, WORD};

/// In a region of which more is in use too much has to move.
const USED_MAX: u32 = WORD / 8 * 7;

/// Regions of one survey: a part of a large device, 256 GiB. A byte of memory each.
const SURVEYED_MAX: usize = 1 << 20;

/// How many blocks of each region can be moved, in a part of the device.
#[derive(Debug)]
pub(crate) struct Survey {
    first: u32,
    movable: Vec<u8>,
}

/// Those that are being emptied.
#[derive(Debug)]
pub(crate) struct Regions {
    /// Ascending.
    words: Vec<u32>,
    /// Blocks that are still to be moved out of them, at most.
    left: u32,
    /// Where the search for a hole outside goes on: a word.
    hole: u32,
}

/// Words with holes that are looked at for one that is long enough.
const HOLES_SEEN_MAX: u32 = 64;

impl Survey {
    /// The block can be moved.
    pub(crate) fn count(&mut self, block: u32) {
        let at = (block / WORD).checked_sub(self.first);
        if let Some(movable) = at.and_then(|at| self.movable.get_mut(at as usize)) {
            *movable = movable.saturating_add(1);
        }
    }
}

impl Regions {
    /// Nothing more can be moved out of them, or need be.
    pub(crate) fn is_done(&self) -> bool {
        self.words.is_empty() || self.left == 0
    }

    /// So many blocks have left.
    pub(crate) fn moved(&mut self, blocks: u32) {
        self.left = self.left.saturating_sub(blocks);
    }

    pub(crate) fn give_up_all(&mut self) {
        self.words.clear();
    }

    pub(crate) fn has(&self, block: u32) -> bool {
        self.words.binary_search(&(block / WORD)).is_ok()
    }

    /// The region with this block cannot be emptied.
    pub(crate) fn give_up(&mut self, block: u32) {
        if let Ok(at) = self.words.binary_search(&(block / WORD)) {
            self.words.remove(at);
        }
    }
}

impl Allocator {
    /// Parts that a survey of all of the device has.
    pub(crate) fn surveys(&self) -> usize {
        self.bitmap.words().div_ceil(SURVEYED_MAX)
    }

    /// One for part `number` of the device.
    pub(crate) fn survey(&self, number: usize) -> Survey {
        let first = number % self.surveys() * SURVEYED_MAX;
        let count = SURVEYED_MAX.min(self.bitmap.words() - first);
        Survey { first: first as u32, movable: vec![0; count] }
    }

    fn used_in(&self, word: u32) -> u32 {
        self.bitmap.free_bits(word as usize).count_zeros()
    }

    /// The block lies in a region that might be emptied.
    pub(crate) fn is_sparse(&self, block: u32) -> bool {
        self.used_in(block / WORD) <= USED_MAX
    }

    /// Up to `count` regions that can be emptied, those with the fewest blocks in use, `blocks_max` altogether.
    pub(crate) fn choose_regions(&self, survey: &Survey, count: usize, blocks_max: u64) -> Regions {
        let found = (survey.first..).zip(&survey.movable).filter_map(|(word, movable)| {
            let used = self.used_in(word);
            (*movable > 0 && u32::from(*movable) == used && used <= USED_MAX).then_some((used, word))
        });
        let mut found: Vec<(u32, u32)> = found.collect();
        found.sort_unstable();
        let (mut words, mut left) = (Vec::new(), 0);
        for (used, word) in found.into_iter().take(count) {
            if u64::from(left + used) > blocks_max {
                break;
            }
            left += used;
            words.push(word);
        }
        words.sort_unstable();
        Regions { words, left, hole: 0 }
    }

    /// Up to `want` adjacent free blocks in a hole: not in a region, nor where all is free. As many as are
    /// asked for if such a hole is near.
    pub(crate) fn take_hole(&mut self, want: u32, regions: &mut Regions) -> Option<Run> {
        let (mut longest, mut seen): (Option<Run>, u32) = (None, 0);
        for word in self.words_from(regions.hole) {
            let free = self.bitmap.free_bits(word as usize);
            if matches!(free, 0 | u64::MAX) || regions.has(word * WORD) {
                continue;
            }
            regions.hole = if seen == 0 { word } else { regions.hole };
            let found = run_in_word(free, want).map(|bit| Run { start: word * WORD + bit, count: want });
            let found = found.unwrap_or_else(|| {
                let bit = free.trailing_zeros();
                Run { start: word * WORD + bit, count: (!(free >> bit)).trailing_zeros() }
            });
            longest = longest.filter(|longest| longest.count >= found.count).or(Some(found));
            seen += 1;
            if found.count == want || seen == HOLES_SEEN_MAX {
                break;
            }
        }
        longest.map(|run| self.take(run))
    }

    /// `want` adjacent blocks of a region that is free: what is left of it can be emptied again.
    pub(crate) fn allocate_in_free_region(&mut self, want: u32) -> Option<Run> {
        if want > WORD || self.bitmap.free_words() == 0 {
            return None;
        }
        let from = self.cursor.div_ceil(WORD);
        let word = self.words_from(from).find(|word| self.bitmap.free_bits(*word as usize) == u64::MAX)?;
        let run = self.take(Run { start: word * WORD, count: want });
        self.cursor = run.end() % self.bitmap.blocks();
        Some(run)
    }

    /// All words of groups that are not full, once, beginning with the group of that word. Those before it in
    /// its group come last.
    fn words_from(&self, from: u32) -> impl Iterator<Item = u32> {
        let (words, groups) = (GROUP_WORDS as u32, self.bitmap.groups());
        let first = from / words % groups;
        let of_group = move |group: u32| group * words..(group + 1) * words;
        let others = (1..groups).map(move |step| (first + step) % groups);
        let others = others.filter(|group| self.bitmap.free_in(*group) > 0).flat_map(of_group);
        let at = from % (groups * words);
        (at..(first + 1) * words).chain(others).chain(first * words..at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In use: so many blocks of each word.
    fn with(used: &[u32]) -> Allocator {
        let mut alloc = Allocator::new(used.len() as u32 * WORD);
        for (word, used) in (0..).zip(used) {
            // Every second one first.
            let places = (0..WORD).step_by(2).chain((1..WORD).step_by(2));
            places.take(*used as usize).for_each(|block| assert!(alloc.mark(word * WORD + block)));
        }
        alloc
    }

    /// Of which these blocks of each word can be moved.
    fn surveyed(alloc: &Allocator, movable: &[u32]) -> Survey {
        let mut survey = alloc.survey(0);
        for (word, movable) in (0..).zip(movable) {
            (0..*movable).for_each(|at| survey.count(word * WORD + at));
        }
        survey
    }

    #[test]
    fn regions_with_the_fewest_blocks_come_first_if_all_of_them_can_be_moved() {
        let used = [30, 0, 10, 64, 56, 57, 10, 1, 10];
        let alloc = with(&used);
        let chosen =
            |movable: &[u32], count| alloc.choose_regions(&surveyed(&alloc, movable), count, 10_000).words;
        assert!(chosen(&used, 0).is_empty());
        assert_eq!(chosen(&used, 1), [7]);
        assert_eq!(chosen(&used, 3), [2, 6, 7]);
        assert_eq!(chosen(&used, 100), [0, 2, 4, 6, 7, 8], "not what is free, nor what is nearly full");
        assert_eq!(chosen(&[30, 0, 9, 0, 56, 0, 10, 0, 0], 3), [0, 4, 6]);
        let within = |blocks_max| alloc.choose_regions(&surveyed(&alloc, &used), 9, blocks_max).words.len();
        assert_eq!([0, 1, 10, 11, 61, 1000].map(within), [0, 1, 1, 2, 5, 6]);
        assert!(alloc.is_sparse(4 * WORD) && !alloc.is_sparse(5 * WORD));
    }

    #[test]
    fn a_survey_is_of_its_part() {
        let mut alloc = Allocator::new(SURVEYED_MAX as u32 * WORD + 3 * WORD);
        assert_eq!(alloc.surveys(), 2);
        let block = (SURVEYED_MAX as u32 + 1) * WORD;
        for place in [5, block + 5] {
            assert!(alloc.mark(place));
        }
        for (number, word) in [(0, 0), (1, SURVEYED_MAX as u32 + 1), (2, 0)] {
            let mut survey = alloc.survey(number);
            [5, block + 5].into_iter().for_each(|place| survey.count(place));
            assert_eq!(alloc.choose_regions(&survey, 9, 1).words, [word]);
        }
    }

    #[test]
    fn holes_lie_outside_of_regions() {
        let used = [40, 10, 62, 64];
        let mut alloc = with(&used);
        let mut regions = alloc.choose_regions(&surveyed(&alloc, &used), 1, 10);
        assert!(regions.has(64) && regions.has(127) && !regions.has(63) && !regions.has(128));
        assert_eq!(alloc.take_hole(24, &mut regions), Some(Run { start: 17, count: 1 }), "none is so long");
        alloc.release(Run { start: 17, count: 1 });
        let mut found = Vec::new();
        while let Some(run) = alloc.take_hole(3, &mut regions) {
            assert!(run.count <= 3);
            found.extend(run.start..run.end());
        }
        assert_eq!(found.len(), 24 + 2);
        assert!(found.iter().all(|block| !regions.has(*block)));
        assert!(!regions.is_done());
        regions.give_up(70);
        assert!(regions.is_done());
        assert_eq!(alloc.take_hole(1, &mut regions).map(|run| run.start / WORD), Some(1));
    }

    #[test]
    fn a_hole_that_is_long_enough_is_taken_before_others() {
        let mut alloc = with(&[63, 62, 64, 0, 63]);
        assert!((200..240).all(|block| alloc.mark(block)));
        let mut none = Regions { words: Vec::new(), left: 0, hole: 0 };
        assert_eq!(alloc.take_hole(9, &mut none), Some(Run { start: 240, count: 9 }));
        assert_eq!(
            alloc.take_hole(16, &mut none),
            Some(Run { start: 192, count: 8 }),
            "there is no such hole"
        );
        assert_eq!(alloc.take_hole(2, &mut none), Some(Run { start: 249, count: 2 }));
    }

    #[test]
    fn a_free_region_is_taken_from_its_beginning() {
        let mut alloc = with(&[1, 0, 5, 0, 0]);
        let mut take = |want| alloc.allocate_in_free_region(want);
        assert_eq!(take(65), None);
        assert_eq!(take(64), Some(Run { start: 64, count: 64 }));
        assert_eq!(take(10), Some(Run { start: 192, count: 10 }));
        assert_eq!(take(1), Some(Run { start: 256, count: 1 }));
        assert_eq!(take(1), None);
    }
}
