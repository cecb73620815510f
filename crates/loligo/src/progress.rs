//! A progress bar on the terminal; nothing where there is none.

use crate::cluster_client::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Instant;

/// The bar's length in steps; what it counts is shown in words.
const STEPS: u64 = 1000;

/// Gone from the terminal when dropped.
pub struct PhaseBar {
    bar: ProgressBar,
    began: Instant,
}

impl PhaseBar {
    pub fn new(name: &str) -> PhaseBar {
        let style = ProgressStyle::with_template("  {prefix:<34} [{bar:32}] {percent:>3} %  {msg}");
        let bar = ProgressBar::new(STEPS);
        bar.set_style(style.expect("a valid template").progress_chars("=> "));
        bar.set_prefix(name.to_string());
        PhaseBar { bar, began: Instant::now() }
    }

    pub fn show(&self, progress: Progress) {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        self.set(progress.fraction, format!("{:.0} ops/s", progress.ops as f64 / seconds));
    }

    /// `fraction` in 0..=1.
    pub fn set(&self, fraction: f64, message: String) {
        self.bar.set_position((fraction * STEPS as f64) as u64);
        self.bar.set_message(message);
    }

    /// A bar without a number: something is waited for.
    pub fn waiting(what: &str) -> PhaseBar {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("  {spinner} {msg}").expect("a valid template"));
        bar.set_message(what.to_string());
        bar.enable_steady_tick(std::time::Duration::from_millis(100));
        PhaseBar { bar, began: Instant::now() }
    }
}

impl Drop for PhaseBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
