//! Simulated clusters as part of every test run: a few fresh seeds and those
//! that once found a bug; and deliberate bugs, which must be found.

use osd::Sabotage;
use sim::batch::{Batch, BatchOptions};

fn options(from: u64, seeds: u64) -> BatchOptions {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    BatchOptions {
        from,
        seeds,
        threads,
        sabotage: Sabotage::default(),
        trace_check: false,
        keep_going: false,
        progress: false,
    }
}

fn assert_clean(batch: &Batch) {
    for report in &batch.failed {
        println!("seed {}:\n  {}", report.seed, report.violations.join("\n  "));
        println!("  replay: cargo run --release -p sim -- --seed {}", report.seed);
    }
    assert!(batch.failed.is_empty(), "a promise was broken");
}

/// Runs seeds until one finds the bug; the violation must be of the expected kind.
fn assert_found(sabotage: Sabotage, seeds: u64, symptoms: &[&str]) {
    let batch = Batch::run(&BatchOptions { sabotage, ..options(0, seeds) });
    let violations: Vec<&String> = batch.failed.iter().flat_map(|r| &r.violations).collect();
    assert!(!violations.is_empty(), "{seeds} seeds did not find the bug");
    let seen = violations.iter().any(|v| symptoms.iter().any(|symptom| v.contains(symptom)));
    assert!(seen, "something else was found: {violations:#?}");
}

#[test]
fn fresh_seeds_keep_every_promise() {
    let batch = Batch::run(&options(101_000, 60));
    assert_clean(&batch);
    assert!(batch.operations > 5_000 && batch.faults > 200, "the runs do something: {}", batch.summary());
    let reached = batch.coverage;
    assert!(
        reached.duplicates > 0
            && reached.backfilled_ranges > 0
            && reached.shared_bytes > 0
            && reached.checkpoints > 0
            && reached.pending > 0
            && reached.repaired > 0
            && reached.scrubs > 0
            && reached.scrub_errors > 0
            && reached.refused > 0
            && reached.locks_busy > 0
            && reached.notifies_answered > 0
            && reached.notifies_late > 0
            && reached.watches_lost > 0,
        "the runs reach what is rare: {}",
        batch.summary()
    );
}

#[test]
fn seeds_that_once_found_a_bug_keep_every_promise() {
    for line in include_str!("../seeds.txt").lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        let seed = line.split_whitespace().next().and_then(|s| s.parse().ok()).expect("a seed comes first");
        assert_clean(&Batch::run(&options(seed, 1)));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    assert_clean(&Batch::run(&BatchOptions { trace_check: true, ..options(200_000, 10) }));
}

#[test]
fn acknowledging_before_the_flush_is_found() {
    let sabotage = Sabotage { ack_before_commit: true, ..Sabotage::default() };
    assert_found(
        sabotage,
        300,
        &["missing in a later read", "not linearizable", "no prefix", "back in time"],
    );
}

#[test]
fn executing_a_resent_request_again_is_found() {
    let sabotage = Sabotage { skip_dup_check: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["appended twice", "not linearizable"]);
}

#[test]
fn trimming_a_clone_that_a_snapshot_needs_is_found() {
    let sabotage = Sabotage { trim_too_much: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["instead of token"]);
}

#[test]
fn sharing_with_a_base_that_is_not_the_one_meant_is_found() {
    let sabotage = Sabotage { share_unchecked: true, ..Sabotage::default() };
    // A scrub during the faults may be the first to see it.
    let symptoms = ["instead of token", "differ", "+inconsistent", "where nothing was wrong"];
    assert_found(sabotage, 300, &symptoms);
}

#[test]
fn serving_a_fenced_client_is_found() {
    let sabotage = Sabotage { ignore_fence: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["landed", "not linearizable"]);
}

#[test]
fn looking_at_the_blocklist_too_early_is_found() {
    let sabotage = Sabotage { fence_arrivals_only: true, ..Sabotage::default() };
    assert_found(sabotage, 300, &["landed", "not linearizable", "is fenced"]);
}

#[test]
fn taking_a_lock_that_another_holds_is_found() {
    let sabotage = Sabotage { ignore_lock_holders: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["not linearizable"]);
}

#[test]
fn forgetting_watches_with_the_interval_is_found() {
    let sabotage = Sabotage { forget_watches: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["did not reach"]);
}

#[test]
fn keeping_the_watches_of_the_dead_is_found() {
    let sabotage = Sabotage { keep_silent_watches: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["recorded, while"]);
}

#[test]
fn completing_a_notification_without_its_watchers_is_found() {
    let sabotage = Sabotage { notify_without_waiting: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["did not reach"]);
}

#[test]
fn overlooking_clones_in_a_scrub_is_found() {
    let sabotage = Sabotage { scrub_skips_clones: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["differ", "checksum mismatch", "instead of token"]);
}

#[test]
fn scrubbing_what_is_being_written_is_found() {
    let sabotage = Sabotage { scrub_without_hold: true, ..Sabotage::default() };
    assert_found(sabotage, 100, &["where nothing was wrong"]);
}
