//! Memory for disk reads, used again when the node drops a read's bytes.
//!
//! A fresh aligned buffer must be zeroed, and a large one faulted in page by
//! page; for a 4 MiB read that costs more CPU than the read itself.

use base::AlignedBuf;
use base::aligned::ALIGNMENT;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads beyond this size are rare and get memory of their own.
const POOLED_MAX: usize = 8 * 1024 * 1024;
/// Unused memory kept in all classes together.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Size classes: powers of two from the alignment to `POOLED_MAX`.
const CLASSES: usize = (POOLED_MAX / ALIGNMENT).trailing_zeros() as usize + 1;

#[derive(Clone, Default)]
pub(crate) struct ReadPool(Arc<Mutex<Free>>);

#[derive(Default)]
struct Free {
    classes: [Vec<AlignedBuf>; CLASSES],
    kept_bytes: usize,
}

fn class_of(len: usize) -> Option<usize> {
    if len > POOLED_MAX {
        return None;
    }
    let rounded = len.max(ALIGNMENT).next_power_of_two();
    Some((rounded / ALIGNMENT).trailing_zeros() as usize)
}

impl ReadPool {
    /// A buffer of at least `len` bytes; what is in it is an earlier read's.
    pub(crate) fn take(&self, len: usize) -> AlignedBuf {
        let Some(class) = class_of(len) else {
            return AlignedBuf::zeroed(len);
        };
        let mut free = self.lock();
        match free.classes[class].pop() {
            Some(buf) => {
                free.kept_bytes -= buf.len();
                buf
            }
            None => AlignedBuf::zeroed(ALIGNMENT << class),
        }
    }

    /// Hands the first `len` bytes to the node; the buffer returns to the pool
    /// with the last reference to them.
    pub(crate) fn freeze(&self, buf: AlignedBuf, len: usize) -> Bytes {
        assert!(len <= buf.len());
        Bytes::from_owner(Pooled { buf: Some(buf), len, pool: self.clone() })
    }

    fn give_back(&self, buf: AlignedBuf) {
        let Some(class) = class_of(buf.len()) else {
            return;
        };
        let mut free = self.lock();
        if free.kept_bytes + buf.len() <= KEPT_BYTES_MAX {
            free.kept_bytes += buf.len();
            free.classes[class].push(buf);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Free> {
        // A panic elsewhere leaves a list of free buffers as valid as before.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Pooled {
    /// Only empty while being dropped.
    buf: Option<AlignedBuf>,
    len: usize,
    pool: ReadPool,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |buf| &buf[..self.len])
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.pool.give_back(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_read_is_the_next_ones_memory() {
        let pool = ReadPool::default();
        let bytes = pool.freeze(pool.take(5000), 5000);
        let address = bytes.as_ptr();
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_ne!(pool.take(8192).as_ptr(), address, "still referenced");
        drop(part);
        assert_eq!(pool.take(8192).as_ptr(), address);
    }

    #[test]
    fn unused_memory_is_bounded() {
        let pool = ReadPool::default();
        let buffers: Vec<_> = (0..10).map(|_| pool.freeze(pool.take(POOLED_MAX), 1)).collect();
        drop(buffers);
        drop(pool.freeze(pool.take(POOLED_MAX + 1), 1));
        assert!(pool.lock().kept_bytes <= KEPT_BYTES_MAX);
    }
}
