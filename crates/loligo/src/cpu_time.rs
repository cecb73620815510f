//! CPU time of processes, from /proc.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The unit of /proc/PID/stat, which Linux keeps at 100 per second on every
/// machine that we run on (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;

/// User plus system time, of all threads; `None` without such a process.
///
/// Source: proc_pid_stat(5), fields 14 and 15.
pub fn of_process(pid: i32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let total = ticks()? + ticks()?;
    Some(Duration::from_millis(total * 1000 / TICKS_PER_SECOND))
}

/// What the OSDs of a cluster on this machine have used since the meter began,
/// also while some of them die and others take their place.
pub struct CpuMeter {
    run_dir: PathBuf,
    /// The last reading of each process.
    last: BTreeMap<i32, Duration>,
    total: Duration,
}

impl CpuMeter {
    /// `run_dir` holds `osd.N.pid` files. `None` if there are none.
    pub fn new(run_dir: &Path) -> Option<CpuMeter> {
        let mut meter =
            CpuMeter { run_dir: run_dir.to_owned(), last: BTreeMap::new(), total: Duration::ZERO };
        meter.last = meter.readings();
        (!meter.last.is_empty()).then_some(meter)
    }

    /// Time used so far. What a process uses between the last call and its
    /// death is lost, so call it just before killing one.
    pub fn read(&mut self) -> Duration {
        for (pid, now) in self.readings() {
            // A process that is new since the last reading began at zero.
            let before = self.last.insert(pid, now).unwrap_or_default();
            self.total += now.saturating_sub(before);
        }
        self.total
    }

    fn readings(&self) -> BTreeMap<i32, Duration> {
        let Ok(entries) = fs::read_dir(&self.run_dir) else { return BTreeMap::new() };
        entries
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with("osd.") && name.ends_with(".pid")
            })
            .filter_map(|entry| fs::read_to_string(entry.path()).ok()?.trim().parse().ok())
            .filter_map(|pid| Some((pid, of_process(pid)?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cpu_time_grows_with_work() {
        let me = i32::try_from(std::process::id()).unwrap();
        let before = of_process(me).unwrap();
        let mut x = 1_u64;
        while of_process(me).unwrap() < before + Duration::from_millis(30) {
            for i in 0..100_000_u64 {
                x = std::hint::black_box(x.wrapping_mul(i | 1));
            }
        }
        assert_eq!(of_process(-1), None);
    }

    #[test]
    fn meter_needs_an_osd() {
        let dir = tempfile::tempdir().unwrap();
        assert!(CpuMeter::new(dir.path()).is_none());
        fs::write(dir.path().join("osd.0.pid"), format!("{}\n", std::process::id())).unwrap();
        let mut meter = CpuMeter::new(dir.path()).unwrap();
        assert!(meter.read() < Duration::from_secs(10));
    }
}
