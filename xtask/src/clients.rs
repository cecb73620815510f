//! Stock Ceph clients against a cluster of real processes.

use crate::run::{cargo, installed, root};
use anyhow::Result;
use std::process::Command;

/// Debian's interpreter: the one that python3-rados belongs to.
const PYTHON: &str = "/usr/bin/python3";

/// Says so and skips where the clients are not installed.
pub fn run() -> Result<()> {
    for program in ["rados", "ceph"] {
        if !installed(program) {
            println!("clients: SKIPPED: {program} is not installed (Debian: see .ci/run)");
            return Ok(());
        }
    }
    cargo(&["build", "--release", "--quiet", "--package", "loligo"])?;
    let mut command = Command::new(PYTHON);
    command.arg("clients/run.py").arg("--loligo").arg("target/release/loligo").current_dir(root());
    crate::run::run(command, "clients/run.py --loligo target/release/loligo")
}
