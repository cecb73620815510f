//! Two clocks, never mixed: [`Time`] only ever moves forward and measures
//! intervals; [`WallTime`] is what users and the wire protocol see.

use std::ops::{Add, Sub};
pub use std::time::Duration;

/// A point on the process's monotonic clock.
///
/// Units: nanoseconds since an arbitrary start; comparable within one process only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time(pub u64);

impl Time {
    pub const ZERO: Time = Time(0);
    pub const MAX: Time = Time(u64::MAX);

    /// Zero when `earlier` is in fact later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, by: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, by: Duration) -> Time {
        Time(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Seconds and nanoseconds since the Unix epoch (Ceph's `utime_t`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct WallTime {
    pub sec: u32,
    pub nsec: u32,
}

impl WallTime {
    pub const ZERO: WallTime = WallTime { sec: 0, nsec: 0 };

    pub fn from_duration(since_epoch: Duration) -> WallTime {
        WallTime {
            sec: u32::try_from(since_epoch.as_secs()).unwrap_or(u32::MAX),
            nsec: since_epoch.subsec_nanos(),
        }
    }

    pub fn as_duration(self) -> Duration {
        Duration::new(u64::from(self.sec), 0) + Duration::from_nanos(u64::from(self.nsec))
    }
}

impl Add<Duration> for WallTime {
    type Output = WallTime;
    fn add(self, by: Duration) -> WallTime {
        WallTime::from_duration(self.as_duration() + by)
    }
}
