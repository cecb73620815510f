//! The process's two clocks and its seed.
#![allow(unsafe_code)]

use base::{Random, Time, WallTime};

fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spec` is a valid place for the answer; both clocks always exist.
    let result = unsafe { libc::clock_gettime(clock, &mut spec) };
    assert_eq!(result, 0, "clock {clock} exists on every Linux");
    spec
}

pub(crate) fn monotonic() -> Time {
    let spec = read(libc::CLOCK_MONOTONIC);
    Time(spec.tv_sec.unsigned_abs() * 1_000_000_000 + spec.tv_nsec.unsigned_abs())
}

pub(crate) fn wall() -> WallTime {
    let spec = read(libc::CLOCK_REALTIME);
    // Seconds before 1970 or after 2106 do not fit the type: clamp, do not wrap.
    WallTime {
        sec: u32::try_from(spec.tv_sec.max(0)).unwrap_or(u32::MAX),
        nsec: u32::try_from(spec.tv_nsec).unwrap_or(0),
    }
}

/// A generator seeded by the operating system.
pub(crate) fn seeded_random() -> std::io::Result<Random> {
    let mut seed = [0u8; 8];
    // SAFETY: the pointer and length describe `seed`. Eight bytes are never
    // delivered in part.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), 0) };
    if got != 8 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(Random::from_seed(u64::from_le_bytes(seed)))
}
