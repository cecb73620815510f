//! Signals that would end the process at once, held back while there is
//! something to clean up.

use anyhow::{Result, bail};

/// Blocks SIGINT, SIGTERM and SIGHUP in this thread, the threads it starts and
/// the processes it starts. While the environment (`uring`) runs, it notices
/// the first two; in between they wait.
#[allow(unsafe_code)]
pub fn hold() -> Result<()> {
    // SAFETY: the set is initialised before use, and nothing else is touched.
    let failed = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut())
    };
    if failed != 0 {
        bail!("cannot block signals: {}", std::io::Error::from_raw_os_error(failed));
    }
    Ok(())
}
