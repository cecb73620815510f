//! `loligo down DIR`.

use crate::cluster_dir::ClusterDir;
use crate::options::DownOptions;
use crate::process;
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;

/// A daemon that has not flushed and left by then is killed; nothing
/// acknowledged is lost by that, the next start only takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(options: &DownOptions) -> Result<ExitCode> {
    let dir = ClusterDir::open(&options.dir)?;
    let mut stopped = 0;
    for daemon in dir.daemons() {
        let pid_file = dir.pid_file(&daemon);
        if process::running(&pid_file).is_none() {
            continue;
        }
        if process::stop(&pid_file, PATIENCE) {
            eprintln!("{daemon} did not stop within {} s and was killed", PATIENCE.as_secs());
        }
        stopped += 1;
    }
    println!("stopped {stopped} daemons; the data stays in {}", dir.root.display());
    Ok(ExitCode::SUCCESS)
}
