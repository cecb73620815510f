//! Fuzz targets live in `fuzz/`, in a workspace of their own.

use crate::run::{installed, root};
use anyhow::Result;
use std::process::Command;

/// Where the random walk begins.
#[derive(Clone, Copy)]
pub enum Start {
    /// The same every time: what passed once passes again.
    Fixed,
    /// Elsewhere every time, to find what nobody has found.
    Anywhere,
}

/// Runs every target for `seconds`, two at a time; says so and skips where
/// cargo-fuzz or a nightly compiler is missing.
pub fn run(seconds: u64, start: Start) -> Result<()> {
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
            let args = arguments(target, seconds, start)?;
            let shown = format!("cargo {}", args.join(" "));
            eprintln!("$ {shown}");
            running.push((shown, Command::new("cargo").args(&args).current_dir(root()).spawn()?));
        }
        // All end before any failure is reported: none outlives this process.
        let ended: Vec<_> = running.into_iter().map(|(shown, mut child)| (shown, child.wait())).collect();
        for (shown, status) in ended {
            let status = status?;
            anyhow::ensure!(status.success(), "failed ({status}): {shown}");
        }
    }
    println!("fuzz: {} targets, {seconds} s each, nothing found", targets.len());
    Ok(())
}

/// Starts from what earlier runs here left in `fuzz/corpus` unless the start is
/// fixed, and always from the inputs in `fuzz/seeds` that once failed.
fn arguments(target: &str, seconds: u64, start: Start) -> Result<Vec<String>> {
    let corpus = match start {
        Start::Fixed => format!("target/fuzz/{target}"),
        Start::Anywhere => format!("fuzz/corpus/{target}"),
    };
    let folder = root().join(&corpus);
    if matches!(start, Start::Fixed) && folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    let mut args: Vec<String> = ["+nightly", "fuzz", "run", target].map(String::from).to_vec();
    args.push(corpus);
    let seeds = format!("fuzz/seeds/{target}");
    if root().join(&seeds).exists() {
        args.push(seeds);
    }
    args.extend(["--", "-rss_limit_mb=4096", "-verbosity=0"].map(String::from));
    args.push(format!("-max_total_time={seconds}"));
    if matches!(start, Start::Fixed) {
        args.push("-seed=1".into());
    }
    Ok(args)
}
