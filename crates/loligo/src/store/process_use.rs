//! CPU time and memory of this process.

use std::time::Duration;

/// Of all threads, those of the kernel's ring included.
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

impl CpuTime {
    /// Since the process began.
    ///
    /// Source: getrusage(2).
    #[allow(unsafe_code)]
    pub fn now() -> CpuTime {
        // SAFETY: all zero is a valid rusage, and it is the call's to fill.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let of = |time: libc::timeval| {
            Duration::from_secs(time.tv_sec.unsigned_abs())
                + Duration::from_micros(time.tv_usec.unsigned_abs())
        };
        CpuTime { user: of(usage.ru_utime), system: of(usage.ru_stime) }
    }

    pub fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    pub fn total(self) -> Duration {
        self.user + self.system
    }
}

/// Memory in use, 0 where /proc does not say.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_uses_time_and_memory() {
        assert!(resident_bytes() > 100 << 10);
        let before = CpuTime::now();
        while CpuTime::now().since(before).total() < Duration::from_millis(5) {
            std::hint::black_box(vec![0; 1024]);
        }
    }
}
