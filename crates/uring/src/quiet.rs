//! Quiet sends: they may not wait, and post a completion only when they have failed or something
//! is left over. One is over as soon as it has been submitted: without a completion by then, all of
//! it was sent. So it neither ends a wait for other events nor needs a look afterwards.
#![allow(unsafe_code)]

use crate::sys;
use io_uring::{IoUring, opcode, squeue, types};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Over at once, and a failure unless everything was sent. Goes with `SKIP_SUCCESS`.
pub(crate) const QUIET: i32 = libc::MSG_DONTWAIT | libc::MSG_WAITALL;
/// More seldom fits a socket at once.
pub(crate) const QUIET_LEN_MAX: usize = 256 << 10;

const MORE_THAN_FITS: usize = 8 << 20;

/// Tries out, on a ring without any other request, whether this kernel's sends are as said above:
/// their memory is used again when they are taken to be over. Where it cannot be tried, they are not.
pub(crate) fn has_quiet_sends(ring: &mut IoUring) -> bool {
    let data = vec![0u8; MORE_THAN_FITS];
    for in_pieces in [false, true] {
        let Ok((socket, _peer)) = UnixStream::pair() else { return false };
        let fd = types::Fd(socket.as_raw_fd());
        for len in [2, MORE_THAN_FITS] {
            let piece =
                |at: usize| libc::iovec { iov_base: data[at..].as_ptr().cast_mut().cast(), iov_len: len / 2 };
            let pieces = vec![piece(0), piece(len / 2)];
            let header = Box::new(sys::message_header(&pieces));
            let flags = libc::MSG_NOSIGNAL | QUIET;
            let entry = match in_pieces {
                true => opcode::SendMsg::new(fd, &*header).flags(flags.unsigned_abs()).build(),
                false => opcode::Send::new(fd, data.as_ptr(), len as u32).flags(flags).build(),
            };
            // SAFETY: all memory stays until the request is over; for ever, where that is not known.
            // So does the socket: the request may still be in the queue, and its descriptor is no other's.
            let pushed = unsafe { ring.submission().push(&entry.flags(squeue::Flags::SKIP_SUCCESS)) }.is_ok();
            let submitted = pushed && matches!(ring.submit(), Ok(1)) && ring.submission().is_empty();
            let sent = ring.completion().next().map(|completion| completion.result());
            let as_said = match sent {
                None => len < MORE_THAN_FITS,
                Some(sent) => sent > 0 && (sent.unsigned_abs() as usize) < len,
            };
            if !submitted || !as_said {
                std::mem::forget((data, pieces, header, socket));
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_them() {
        // Where there is no ring, there is nothing to try.
        let Ok(mut ring) = IoUring::new(8) else { return };
        assert!(has_quiet_sends(&mut ring));
    }
}
