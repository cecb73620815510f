//! How the C library's allocator behaves in a daemon that is to run for long.
//!
//! Does nothing where the allocator is another one.

use libc::c_int;

/// Longer buffers are mappings of their own, which end with them. Left to
/// itself, glibc raises this bound with each one freed, up to 32 MiB: buffers of
/// 4 MiB then end up on the heap, where anything small behind them keeps them.
const MAPPED_LEN_MIN: c_int = 1 << 20;

/// Free memory at the heap's end beyond this is given back; less of it serves the next burst.
const TRIMMED_LEN_MIN: c_int = 4 << 20;

/// Freed pieces of each size up to 1 KiB that are at hand for the next request, without a look
/// at the heap: glibc keeps 7, and a batch of 32 requests frees more. All it can.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const AT_HAND: &str = "glibc.malloc.tcache_count=127";

/// Before anything is opened: the process may begin again.
pub fn prepare() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        begin_again_with_more_at_hand();
        give_memory_back();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code)]
fn give_memory_back() {
    // SAFETY: sets two numbers of the allocator's; a value that it does not like changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED_LEN_MIN);
    }
}

/// glibc reads its tunables from the environment, once, before `main`: so this process executes
/// itself again, with the same arguments and id, unless it was started with a count of its own.
/// What fails leaves the process as it is, only slower.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn begin_again_with_more_at_hand() {
    use std::os::unix::process::CommandExt;

    const NAME: &str = "GLIBC_TUNABLES";
    let tunables = std::env::var(NAME).unwrap_or_default();
    let mut args = std::env::args_os();
    let (Ok(program), Some(called)) = (std::env::current_exe(), args.next()) else { return };
    if tunables.contains("tcache_count") {
        return;
    }
    let tunables = if tunables.is_empty() { AT_HAND.to_owned() } else { format!("{tunables}:{AT_HAND}") };
    let error = std::process::Command::new(program).arg0(called).args(args).env(NAME, tunables).exec();
    tracing::warn!("malloc keeps its defaults: {error}");
}
