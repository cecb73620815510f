//! One disk request on its way: what of it the device has done, and the
//! memory it uses. Both backends drive it; neither knows more than the result
//! of one system call.

use crate::read_pool::ReadPool;
use base::{AlignedBuf, Part};
use bytes::Bytes;
use env::{DiskError, DiskOp, DiskResult};

use crate::output::IOVECS_MAX;

pub(crate) struct Transfer {
    pub(crate) token: u64,
    op: Op,
    /// Bytes of a read or write that are done.
    done: usize,
    iovecs: Vec<libc::iovec>,
}

enum Op {
    Write {
        offset: u64,
        data: Vec<Bytes>,
        len: usize,
        durable: bool,
    },
    /// `buf` is empty only once the read has ended.
    Read {
        offset: u64,
        buf: Option<Room>,
        len: usize,
    },
    Flush,
    Discard {
        offset: u64,
        len: u64,
    },
}

/// Where a read's bytes go.
enum Room {
    Pooled(AlignedBuf),
    Given(Part),
}

#[allow(unsafe_code)]
// SAFETY: the iovecs point only into memory that `op` owns, and nothing else
// in it is tied to a thread.
unsafe impl Send for Transfer {}

/// The next system call of a transfer. Pointers are valid until the transfer
/// is dropped or `next_call` is called again.
pub(crate) enum Call {
    Write { offset: u64, iovecs: *const libc::iovec, count: usize, durable: bool },
    Read { offset: u64, address: *mut u8, len: usize },
    Flush,
    Discard { offset: u64, len: u64 },
}

pub(crate) enum Progress {
    /// Call again for the rest.
    Again,
    Done(DiskResult),
}

impl Room {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Room::Pooled(buf) => buf,
            Room::Given(part) => part,
        }
    }
}

impl Transfer {
    pub(crate) fn new(token: u64, op: DiskOp, pool: &ReadPool) -> Transfer {
        let op = match op {
            DiskOp::Write { offset, data, durable } => {
                let len = data.iter().map(Bytes::len).sum();
                Op::Write { offset, data, len, durable }
            }
            DiskOp::Read { offset, len, into } => {
                let len = len as usize;
                let room = into.map_or_else(|| Room::Pooled(pool.take(len)), Room::Given);
                Op::Read { offset, buf: Some(room), len }
            }
            DiskOp::Flush => Op::Flush,
            DiskOp::Discard { offset, len } => Op::Discard { offset, len },
        };
        Transfer { token, op, done: 0, iovecs: Vec::new() }
    }

    /// Its success promises that data is on stable storage.
    pub(crate) fn makes_durable(&self) -> bool {
        matches!(self.op, Op::Flush | Op::Write { durable: true, .. })
    }

    pub(crate) fn next_call(&mut self) -> Call {
        match &mut self.op {
            Op::Write { offset, data, durable, .. } => {
                let mut skip = self.done;
                self.iovecs.clear();
                for piece in data.iter() {
                    if skip >= piece.len() {
                        skip -= piece.len();
                        continue;
                    }
                    if self.iovecs.len() == IOVECS_MAX {
                        break;
                    }
                    let rest = &piece[skip..];
                    skip = 0;
                    self.iovecs
                        .push(libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() });
                }
                Call::Write {
                    offset: *offset + self.done as u64,
                    iovecs: self.iovecs.as_ptr(),
                    count: self.iovecs.len(),
                    durable: *durable,
                }
            }
            Op::Read { offset, buf, len } => Call::Read {
                offset: *offset + self.done as u64,
                address: buf.as_mut().expect("the read has not ended").bytes()[self.done..*len].as_mut_ptr(),
                len: *len - self.done,
            },
            Op::Flush => Call::Flush,
            Op::Discard { offset, len } => Call::Discard { offset: *offset, len: *len },
        }
    }

    /// What the system call answered: bytes done, or a negative errno.
    pub(crate) fn on_result(&mut self, result: i32, pool: &ReadPool) -> Progress {
        if result == -libc::EINTR || result == -libc::EAGAIN {
            return Progress::Again;
        }
        match &mut self.op {
            // Only a hint: a device that cannot forget has nothing to do.
            Op::Discard { .. } if result == -libc::EOPNOTSUPP => Progress::Done(Ok(Bytes::new())),
            _ if result < 0 => Progress::Done(Err(DiskError::Io { errno: -result })),
            Op::Flush | Op::Discard { .. } => Progress::Done(Ok(Bytes::new())),
            // The range is inside the device, so an end of file means that it
            // shrank below us.
            Op::Write { .. } | Op::Read { .. } if result == 0 => {
                Progress::Done(Err(DiskError::Io { errno: libc::EIO }))
            }
            Op::Write { len, .. } => {
                self.done += result.unsigned_abs() as usize;
                if self.done < *len { Progress::Again } else { Progress::Done(Ok(Bytes::new())) }
            }
            Op::Read { buf, len, .. } => {
                self.done += result.unsigned_abs() as usize;
                if self.done < *len {
                    return Progress::Again;
                }
                Progress::Done(Ok(match buf.take().expect("the read has not ended") {
                    Room::Pooled(full) => pool.freeze(full, *len),
                    Room::Given(part) => part.freeze(),
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_continues_inside_the_piece_it_stopped_in() {
        let pool = ReadPool::default();
        let data = vec![Bytes::from(vec![1; 4096]), Bytes::from(vec![2; 8192])];
        let mut transfer = Transfer::new(7, DiskOp::Write { offset: 4096, data, durable: true }, &pool);
        assert!(matches!(transfer.next_call(), Call::Write { offset: 4096, count: 2, .. }));
        assert!(matches!(transfer.on_result(8192, &pool), Progress::Again));
        assert!(matches!(transfer.next_call(), Call::Write { offset: 12288, count: 1, durable: true, .. }));
        assert!(matches!(transfer.on_result(4096, &pool), Progress::Done(Ok(_))));
    }

    #[test]
    fn an_end_of_file_inside_the_device_is_an_error() {
        let pool = ReadPool::default();
        let mut transfer = Transfer::new(1, DiskOp::read(0, 8192), &pool);
        assert!(matches!(transfer.on_result(4096, &pool), Progress::Again));
        assert!(matches!(transfer.next_call(), Call::Read { offset: 4096, len: 4096, .. }));
        assert!(matches!(
            transfer.on_result(0, &pool),
            Progress::Done(Err(DiskError::Io { errno: libc::EIO }))
        ));
    }

    #[test]
    fn a_device_that_cannot_discard_is_no_error() {
        let pool = ReadPool::default();
        let mut transfer = Transfer::new(1, DiskOp::Discard { offset: 0, len: 4096 }, &pool);
        let result = transfer.on_result(-libc::EOPNOTSUPP, &pool);
        assert!(matches!(result, Progress::Done(Ok(_))));
    }
}
