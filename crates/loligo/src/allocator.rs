//! When the C library's allocator gives memory back to the system.

use libc::c_int;

/// Longer buffers are mappings of their own, which end with them. Left to
/// itself, glibc raises this bound with each one freed, up to 32 MiB: buffers of
/// 4 MiB then end up on the heap, where anything small behind them keeps them.
const MAPPED_LEN_MIN: c_int = 1 << 20;

/// Free memory at the heap's end beyond this is given back; less of it serves the next burst.
const TRIMMED_LEN_MIN: c_int = 4 << 20;

/// At the start of a daemon that is to run for long. Does nothing where the allocator is another one.
pub fn give_memory_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[allow(unsafe_code)]
    // SAFETY: sets two numbers of the allocator's; a value that it does not like changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_LEN_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED_LEN_MIN);
    }
}
