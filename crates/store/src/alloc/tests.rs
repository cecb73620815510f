use super::next::CHOOSY_MAX;
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
    alloc.longest.forget();
    // The first lies where the search would begin.
    assert_eq!([alloc.allocate_next(9), alloc.allocate_next(9)].map(|run| run.unwrap().count), [1, 1]);
    // The first group's beginning may have been left out.
    assert!((1..3).all(|group| alloc.longest.in_group(group) < CHOOSY_MAX));
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
            let whole = |word: &u32| (word * WORD..(word + 1) * WORD).all(|block| untouched.contains(&block));
            let expected = random.chance(1, 4).then(|| (0..4 * GROUP_BLOCKS / WORD).any(|word| whole(&word)));
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
