//! Several OSD cores together: what clients and administrators may rely on.

mod backoff;
mod clones;
mod copies;
mod damage;
mod full;
mod harness;
mod scenarios;
mod scrub;
mod torture;
mod watch;

use std::panic::AssertUnwindSafe;
use torture::{Plan, torture};

fn seeds() -> std::ops::Range<u64> {
    // More with OSD_SEEDS=from..to.
    let text = std::env::var("OSD_SEEDS").unwrap_or_default();
    let parsed = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    parsed.unwrap_or(0..12)
}

/// `OSD_TRACE=debug` shows what the cores log.
pub fn trace() {
    if let Ok(filter) = std::env::var("OSD_TRACE") {
        let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).try_init();
    }
}

fn run_all(plan: impl Fn(u64) -> Plan) {
    trace();
    for seed in seeds() {
        println!("seed {seed}");
        torture(&plan(seed)).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn faults_lose_nothing_with_three_copies() {
    run_all(|seed| Plan {
        seed,
        osds: 4,
        size: 3,
        min_size: 2,
        steps: 300,
        tweak: often_scrubbed,
        wipe: false,
        pending_percent: 0,
    });
}

#[test]
fn faults_lose_nothing_with_two_copies() {
    run_all(|seed| Plan {
        seed,
        osds: 3,
        size: 2,
        min_size: 1,
        steps: 300,
        tweak: often_scrubbed,
        wipe: false,
        pending_percent: 0,
    });
}

/// Logs that soon no longer reach back to where a peer left off.
fn short_logs(config: &mut osd::OsdConfig) {
    config.log_entries_max = 6;
    config.log_dups_max = 400;
    config.log_trim_batch = 2;
    often_scrubbed(config);
}

/// So that there is always a scrub under way that must find nothing.
pub fn often_scrubbed(config: &mut osd::OsdConfig) {
    config.scrub_interval = base::Duration::from_millis(150);
    config.deep_scrub_interval = base::Duration::from_millis(400);
    config.scrub_look_interval = base::Duration::from_millis(50);
}

#[test]
fn faults_lose_nothing_when_logs_are_short() {
    run_all(|seed| Plan {
        seed,
        osds: 4,
        size: 3,
        min_size: 2,
        steps: 300,
        tweak: short_logs,
        wipe: true,
        pending_percent: 0,
    });
}

#[test]
fn faults_lose_nothing_when_metadata_must_be_loaded() {
    let short = |config: &mut osd::OsdConfig| {
        short_logs(config);
        config.recovery_chunk_len = 16;
    };
    run_all(|seed| Plan {
        seed,
        osds: 4,
        size: 3,
        min_size: 2,
        steps: 300,
        tweak: short,
        wipe: true,
        pending_percent: [10, 40, 80][seed as usize % 3],
    });
}

/// The checks see what a broken build does; else they would prove nothing.
fn assert_caught(what: &str, plan: impl Fn(u64) -> Plan) {
    let caught = (0..60).any(|seed| {
        std::panic::catch_unwind(AssertUnwindSafe(|| torture(&plan(seed)))).map_or(true, |r| r.is_err())
    });
    assert!(caught, "{what}: not noticed");
}

#[test]
fn acknowledging_before_commit_is_caught() {
    let broken = |config: &mut osd::OsdConfig| config.sabotage.ack_before_commit = true;
    assert_caught("ack_before_commit", |seed| Plan {
        seed,
        osds: 3,
        size: 2,
        min_size: 1,
        steps: 300,
        tweak: broken,
        wipe: false,
        pending_percent: 0,
    });
}

#[test]
fn forgetting_duplicates_is_caught() {
    let broken = |config: &mut osd::OsdConfig| config.sabotage.skip_dup_check = true;
    assert_caught("skip_dup_check", |seed| Plan {
        seed,
        osds: 3,
        size: 3,
        min_size: 2,
        steps: 300,
        tweak: broken,
        wipe: false,
        pending_percent: 0,
    });
}

#[test]
fn reading_without_a_lease_is_caught() {
    let broken = |config: &mut osd::OsdConfig| config.sabotage.ignore_lease = true;
    assert_caught("ignore_lease", |seed| Plan {
        seed,
        osds: 3,
        size: 3,
        min_size: 1,
        steps: 400,
        tweak: broken,
        wipe: false,
        pending_percent: 0,
    });
}
