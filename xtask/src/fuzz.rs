//! Fuzz targets live in `fuzz/`, in a workspace of their own.

use crate::run::{installed, root};
use anyhow::Result;
use std::process::Command;

/// Runs every target for `seconds`, two at a time; says so and skips where
/// cargo-fuzz or a nightly compiler is missing.
pub fn run(seconds: u64) -> Result<()> {
    if !installed("cargo-fuzz") {
        println!("fuzz: SKIPPED: cargo-fuzz is not installed (cargo install cargo-fuzz)");
        return Ok(());
    }
    let nightly = Command::new("rustc").arg("+nightly").arg("--version").output();
    if !nightly.is_ok_and(|out| out.status.success()) {
        println!("fuzz: SKIPPED: no nightly compiler (rustup toolchain install nightly)");
        return Ok(());
    }
    let mut build = Command::new("cargo");
    build.args(["+nightly", "fuzz", "build"]).current_dir(root());
    crate::run::run(build, "cargo +nightly fuzz build")?;
    let list = Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(root()).output()?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let targets: Vec<&str> = list.lines().collect();
    for pair in targets.chunks(2) {
        let mut running = Vec::new();
        for target in pair {
            let limit = format!("-max_total_time={seconds}");
            let shown = format!("cargo +nightly fuzz run {target} -- {limit}");
            eprintln!("$ {shown}");
            let mut command = Command::new("cargo");
            command.args([
                "+nightly",
                "fuzz",
                "run",
                target,
                "--",
                &limit,
                "-rss_limit_mb=4096",
                "-verbosity=0",
            ]);
            running.push((shown, command.current_dir(root()).spawn()?));
        }
        for (shown, mut child) in running {
            let status = child.wait()?;
            anyhow::ensure!(status.success(), "failed ({status}): {shown}");
        }
    }
    println!("fuzz: {} targets, {seconds} s each, nothing found", targets.len());
    Ok(())
}
