//! `loligo down DIR`.

use crate::cluster_dir::ClusterDir;
use crate::options::DownOptions;
use crate::process;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A daemon that has not flushed and left by then is killed; nothing
/// acknowledged is lost by that, the next start only takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(options: &DownOptions) -> Result<ExitCode> {
    let dir = ClusterDir::open(&options.dir)?;
    // The monitor last: the OSDs tell it that they leave.
    let (mons, osds): (Vec<String>, Vec<String>) =
        dir.daemons().into_iter().partition(|d| d.starts_with("mon."));
    let mut stopped = 0;
    for group in [osds, mons] {
        let pid_files: Vec<_> = group.iter().map(|daemon| dir.pid_file(daemon)).collect();
        let running: Vec<_> =
            pid_files.iter().map(PathBuf::as_path).filter(|f| process::running(f).is_some()).collect();
        stopped += running.len();
        for killed in process::stop(&running, PATIENCE) {
            let name = killed.file_stem().unwrap_or_default().to_string_lossy();
            eprintln!("{name} did not stop within {} s and was killed", PATIENCE.as_secs());
        }
    }
    println!("stopped {stopped} daemons; the data stays in {}", dir.root.display());
    Ok(ExitCode::SUCCESS)
}
