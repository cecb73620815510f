//! Daemons as background processes: pid files that are locked while the
//! process lives, so that a stale one is told from a running one.

use anyhow::{Context, Result, bail};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Held for the process's life; the lock ends with it, however it ends.
pub struct PidFile(#[allow(dead_code)] File);

impl PidFile {
    pub fn claim(path: &Path) -> Result<PidFile> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        if file.try_lock().is_err() {
            bail!("{} is locked: this daemon is already running", path.display());
        }
        file.set_len(0)?;
        writeln!(file, "{}", std::process::id())?;
        Ok(PidFile(file))
    }
}

/// The process that holds the pid file, if one does.
pub fn running(path: &Path) -> Option<i32> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(_) => fs::read_to_string(path).ok()?.trim().parse().ok(),
    }
}

/// Starts this program again as a daemon that outlives its parent.
pub fn spawn(args: &[String], log: &Path) -> Result<Child> {
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .with_context(|| format!("cannot open {}", log.display()))?;
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
    command.spawn().context("cannot start a daemon")
}

/// Asks the processes to stop, all at once, then insists. Returns those that
/// had to be killed.
pub fn stop<'a>(pid_files: &[&'a Path], patience: Duration) -> Vec<&'a Path> {
    let asked: Vec<(&Path, i32)> =
        pid_files.iter().filter_map(|f| Some((*f, signal(f, libc::SIGTERM)?))).collect();
    let deadline = Instant::now() + patience;
    let mut killed = Vec::new();
    for (pid_file, _) in asked {
        if !gone_within(pid_file, deadline.saturating_duration_since(Instant::now())) {
            signal(pid_file, libc::SIGKILL);
            gone_within(pid_file, Duration::from_secs(5));
            killed.push(pid_file);
        }
    }
    killed
}

/// The pid signalled, if the daemon runs.
#[allow(unsafe_code)]
fn signal(pid_file: &Path, number: i32) -> Option<i32> {
    let pid = running(pid_file)?;
    // SAFETY: a plain system call on a pid that the lock proves to be the daemon's.
    unsafe { libc::kill(pid, number) };
    Some(pid)
}

fn gone_within(pid_file: &Path, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while running(pid_file).is_some() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Writes a file that only its owner may read.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}
