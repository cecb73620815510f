//! Fuzz targets live in `fuzz/`, in a workspace of their own.

use crate::run::{installed, root};
use anyhow::Result;
use std::process::Command;

/// Runs every target for `seconds`; says so and skips where cargo-fuzz or a
/// nightly compiler is missing.
pub fn run_all(seconds: u64) -> Result<()> {
    let home = std::env::var("CARGO_HOME").unwrap_or_default();
    let has_fuzz = installed("cargo-fuzz") || std::path::Path::new(&home).join("bin/cargo-fuzz").exists();
    if !has_fuzz {
        println!("fuzz: SKIPPED: cargo-fuzz is not installed (cargo install cargo-fuzz)");
        return Ok(());
    }
    let list = Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(root()).output()?;
    if !list.status.success() {
        println!("fuzz: SKIPPED: {}", String::from_utf8_lossy(&list.stderr).trim());
        return Ok(());
    }
    for target in String::from_utf8_lossy(&list.stdout).lines() {
        let mut command = Command::new("cargo");
        let limit = format!("-max_total_time={seconds}");
        command
            .args(["+nightly", "fuzz", "run", target, "--", &limit, "-rss_limit_mb=4096"])
            .current_dir(root());
        crate::run::run(command, &format!("cargo +nightly fuzz run {target} -- {limit}"))?;
    }
    Ok(())
}

pub use run_all as run;
