//! `sim`: runs the simulated cluster for many seeds, or one of them verbosely.

use clap::{Parser, ValueEnum};
use osd::Sabotage;
use sim::batch::{Batch, BatchOptions};
use sim::run::{RunOptions, run};
use std::process::{Command, ExitCode};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Runs whole clusters in a deterministic simulation and checks their promises.
#[derive(Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs only this seed and tells what happens; RUST_LOG says how much.
    #[arg(long)]
    seed: Option<u64>,
    /// Builds a deliberate bug in; the run then fails if no seed finds it.
    #[arg(long)]
    sabotage: Option<Bug>,
    /// Runs each seed twice and compares the traces.
    #[arg(long)]
    trace_check: bool,
    /// Threads; as many as the machine has cores by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Goes on after the first seed that fails.
    #[arg(long)]
    keep_going: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Bug {
    AckBeforeCommit,
    SkipDupCheck,
    IgnoreIntervalCheck,
    IgnoreLease,
    TrimTooMuch,
    ShareUnchecked,
    IgnoreFence,
    FenceArrivalsOnly,
    IgnoreLockHolders,
    ForgetWatches,
    KeepSilentWatches,
    NotifyWithoutWaiting,
    ScrubSkipsClones,
    ScrubWithoutHold,
}

impl Bug {
    fn sabotage(self) -> Sabotage {
        let mut sabotage = Sabotage::default();
        *match self {
            Bug::AckBeforeCommit => &mut sabotage.ack_before_commit,
            Bug::SkipDupCheck => &mut sabotage.skip_dup_check,
            Bug::IgnoreIntervalCheck => &mut sabotage.ignore_interval_check,
            Bug::IgnoreLease => &mut sabotage.ignore_lease,
            Bug::TrimTooMuch => &mut sabotage.trim_too_much,
            Bug::ShareUnchecked => &mut sabotage.share_unchecked,
            Bug::IgnoreFence => &mut sabotage.ignore_fence,
            Bug::FenceArrivalsOnly => &mut sabotage.fence_arrivals_only,
            Bug::IgnoreLockHolders => &mut sabotage.ignore_lock_holders,
            Bug::ForgetWatches => &mut sabotage.forget_watches,
            Bug::KeepSilentWatches => &mut sabotage.keep_silent_watches,
            Bug::NotifyWithoutWaiting => &mut sabotage.notify_without_waiting,
            Bug::ScrubSkipsClones => &mut sabotage.scrub_skips_clones,
            Bug::ScrubWithoutHold => &mut sabotage.scrub_without_hold,
        } = true;
        sabotage
    }

    fn option(bug: Option<Bug>) -> String {
        let name = bug.and_then(|b| b.to_possible_value()).map(|v| v.get_name().to_string());
        name.map_or(String::new(), |name| format!(" --sabotage {name}"))
    }
}

/// Log lines carry the simulated time and the node that acts.
struct SimTime;

impl FormatTime for SimTime {
    fn format_time(&self, w: &mut Writer<'_>) -> std::fmt::Result {
        let (now, node) = sim::world::acting();
        let node = node.map_or("-".into(), |n| n.0.to_string());
        write!(w, "{:>10.6} node {node}", now.0 as f64 / 1e9)
    }
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output();
    let text =
        output.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.map_or("unknown".into(), |t| t.trim().to_string())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let sabotage = options.sabotage.map(Bug::sabotage).unwrap_or_default();
    if let Some(seed) = options.seed {
        return one(seed, sabotage, options.trace_check);
    }
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let batch = Batch::run(&BatchOptions {
        from: options.from,
        seeds: options.seeds,
        threads: threads.unwrap_or(1),
        sabotage,
        trace_check: options.trace_check,
        keep_going: options.keep_going,
        progress: true,
    });
    for report in &batch.failed {
        println!("seed {} at commit {}:", report.seed, commit());
        for violation in &report.violations {
            println!("  {violation}");
        }
        let bug = Bug::option(options.sabotage);
        println!("  replay: cargo run --release -p sim -- --seed {}{bug}", report.seed);
    }
    println!("{}", batch.summary());
    match (options.sabotage.is_some(), batch.failed.is_empty()) {
        (false, true) => ExitCode::SUCCESS,
        (true, true) => {
            println!("the bug was not found");
            ExitCode::FAILURE
        }
        (true, false) => {
            println!("the bug was found");
            ExitCode::SUCCESS
        }
        (false, false) => ExitCode::FAILURE,
    }
}

fn one(seed: u64, sabotage: Sabotage, trace_check: bool) -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_timer(SimTime).with_writer(std::io::stderr).init();
    let options = RunOptions { seed, sabotage };
    let report = run(&options);
    println!(
        "seed {seed}: {} operations, {} faults, {} events, {:.1} s simulated, trace {:016x}",
        report.operations,
        report.faults,
        report.events,
        report.simulated.as_secs_f64(),
        report.trace
    );
    for violation in &report.violations {
        println!("  {violation}");
    }
    let mut ok = report.violations.is_empty();
    if trace_check {
        let again = run(&options).trace;
        println!("  second run: trace {again:016x}");
        ok &= again == report.trace;
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
