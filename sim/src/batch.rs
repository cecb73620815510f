//! Many seeds on several threads. Each seed's run is on one thread and shares
//! nothing, so the order in which they run does not matter.

use crate::cluster::Coverage;
use crate::run::{Report, RunOptions, run};
use osd::Sabotage;
use std::any::Any;
use std::io::{IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct BatchOptions {
    pub from: u64,
    pub seeds: u64,
    pub threads: usize,
    pub sabotage: Sabotage,
    /// Runs each seed twice and compares the traces.
    pub trace_check: bool,
    /// Runs all seeds even when some fail.
    pub keep_going: bool,
    pub progress: bool,
}

/// What came out of the seeds that ran.
#[derive(Default, Debug)]
pub struct Batch {
    pub seeds: u64,
    pub operations: u64,
    pub faults: u64,
    pub events: u64,
    pub simulated: Duration,
    pub coverage: Coverage,
    /// By seed.
    pub failed: Vec<Report>,
}

impl Batch {
    pub fn run(options: &BatchOptions) -> Batch {
        let next = AtomicU64::new(options.from);
        let stop = AtomicBool::new(false);
        let (sender, reports) = mpsc::channel();
        let mut batch = Batch::default();
        std::thread::scope(|scope| {
            for _ in 0..options.threads.max(1) {
                let (sender, next, stop) = (sender.clone(), &next, &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= options.from + options.seeds {
                            return;
                        }
                        let report = run_checked(seed, options);
                        if !report.violations.is_empty() && !options.keep_going {
                            stop.store(true, Ordering::Relaxed);
                        }
                        if sender.send(report).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let terminal = std::io::stderr().is_terminal();
            for report in reports {
                batch.add(report);
                if options.progress && (terminal || batch.seeds.is_multiple_of(100)) {
                    batch.show_progress(options.seeds, terminal);
                }
            }
            if options.progress && terminal {
                eprintln!();
            }
        });
        batch.failed.sort_by_key(|report| report.seed);
        batch
    }

    fn add(&mut self, report: Report) {
        self.seeds += 1;
        self.operations += report.operations as u64;
        self.faults += report.faults as u64;
        self.events += report.events;
        self.simulated += report.simulated;
        self.coverage.add(report.coverage);
        if !report.violations.is_empty() {
            self.failed.push(report);
        }
    }

    fn show_progress(&self, of: u64, terminal: bool) {
        const WIDTH: u64 = 40;
        let done = (self.seeds * WIDTH / of.max(1)) as usize;
        let bar = format!("{}{}", "=".repeat(done), " ".repeat(WIDTH as usize - done));
        let line = format!("[{bar}] {}/{of} seeds, {} failed", self.seeds, self.failed.len());
        let mut err = std::io::stderr().lock();
        let _ = if terminal { write!(err, "\r{line}") } else { writeln!(err, "{line}") };
        let _ = err.flush();
    }

    pub fn summary(&self) -> String {
        format!(
            "{} seeds, {} failed: {} operations, {} faults, {} events, {:.0} s simulated; \
             {} duplicates recognised, {} ranges backfilled, {} bytes shared in recovery, {} checkpoints, \
             {} waits for metadata, {} units put together, {} of {} damaged objects repaired, {} scrubs, {} errors found by them, {} requests of fenced clients refused, \
             {} locks busy, {} notifications answered, {} late, {} watches lost",
            self.seeds,
            self.failed.len(),
            self.operations,
            self.faults,
            self.events,
            self.simulated.as_secs_f64(),
            self.coverage.duplicates,
            self.coverage.backfilled_ranges,
            self.coverage.shared_bytes,
            self.coverage.checkpoints,
            self.coverage.pending,
            self.coverage.mended,
            self.coverage.repaired,
            self.coverage.damaged,
            self.coverage.scrubs,
            self.coverage.scrub_errors,
            self.coverage.refused,
            self.coverage.locks_busy,
            self.coverage.notifies_answered,
            self.coverage.notifies_late,
            self.coverage.watches_lost
        )
    }
}

/// A panic is a violation like any other.
fn run_checked(seed: u64, options: &BatchOptions) -> Report {
    let run_options = RunOptions { seed, sabotage: options.sabotage };
    let attempt = || catch_unwind(AssertUnwindSafe(|| run(&run_options)));
    let failed = |panic: Box<dyn Any + Send>| Report {
        seed,
        violations: vec![format!("panic: {}", text_of(&*panic))],
        ..Report::default()
    };
    let mut report = match attempt() {
        Ok(report) => report,
        Err(panic) => return failed(panic),
    };
    if options.trace_check {
        match attempt() {
            Ok(again) if again.trace != report.trace => {
                report.violations.push(format!("two traces: {:016x} and {:016x}", report.trace, again.trace));
            }
            Ok(_) => {}
            Err(panic) => return failed(panic),
        }
    }
    report
}

fn text_of(panic: &dyn Any) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string())).unwrap_or_default()
}
