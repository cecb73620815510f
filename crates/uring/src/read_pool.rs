//! Memory for disk reads and for long messages, used again when the node drops
//! their bytes.
//!
//! A fresh aligned buffer must be zeroed, and a large one faulted in page by
//! page; for a 4 MiB read that costs more CPU than the read itself.
//!
//! What lay unused for a whole period goes back to the system ([`ReadPool::trim`]):
//! after a burst the pool shrinks to what the load at hand needs.

use base::aligned::ALIGNMENT;
use base::{AlignedBuf, MemoryUse};
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers beyond this size are rare and get memory of their own. A message of
/// 8 MiB with its head fits.
pub(crate) const POOLED_MAX: usize = 9 * 1024 * 1024;
/// Unused memory kept in all classes together: what eight writes of 4 MiB take.
const KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// See [`class_of`].
const CLASSES: usize = 80;

#[derive(Clone, Default)]
pub(crate) struct ReadPool(Arc<Mutex<Free>>);

struct Free {
    classes: [Class; CLASSES],
    kept_bytes: usize,
    /// With the node.
    in_use: MemoryUse,
}

/// Buffers of one length. The last one given back is taken first, so the first
/// ones lie longest.
#[derive(Default)]
struct Class {
    buffers: Vec<AlignedBuf>,
    /// The fewest that were unused at once since the last trim.
    unused_min: usize,
}

impl Default for Free {
    fn default() -> Free {
        Free {
            classes: std::array::from_fn(|_| Class::default()),
            kept_bytes: 0,
            in_use: MemoryUse::default(),
        }
    }
}

/// Class and length of a buffer: eight classes to each doubling, so that a
/// message a little longer than a power of two does not take twice the memory.
fn class_of(len: usize) -> Option<(usize, usize)> {
    if len > POOLED_MAX {
        return None;
    }
    let pages = len.div_ceil(ALIGNMENT).max(1);
    if pages < 8 {
        return Some((pages, pages * ALIGNMENT));
    }
    let shift = pages.ilog2() - 3;
    let steps = pages.div_ceil(1 << shift); // 8 to 16
    let class = 8 * shift as usize + steps;
    Some((class, (steps << shift) * ALIGNMENT))
}

impl ReadPool {
    /// A buffer of at least `len` bytes; what is in it is an earlier read's.
    pub(crate) fn take(&self, len: usize) -> AlignedBuf {
        let Some((class, class_len)) = class_of(len) else {
            return AlignedBuf::zeroed(len);
        };
        let mut free = self.lock();
        let Class { buffers, unused_min } = &mut free.classes[class];
        let kept = buffers.pop();
        *unused_min = buffers.len().min(*unused_min);
        match kept {
            Some(buf) => {
                free.kept_bytes -= buf.len();
                buf
            }
            None => {
                // Zeroing takes its time, and other threads take buffers, too.
                drop(free);
                AlignedBuf::zeroed(class_len)
            }
        }
    }

    /// Lets go of what nobody has needed since the last call.
    pub(crate) fn trim(&self) {
        let mut free = self.lock();
        let Free { classes, kept_bytes, .. } = &mut *free;
        for Class { buffers, unused_min } in classes {
            *kept_bytes -= buffers.drain(..*unused_min).map(|buf| buf.len()).sum::<usize>();
            *unused_min = buffers.len();
        }
    }

    /// Hands the first `len` bytes to the node; the buffer returns to the pool
    /// with the last reference to them.
    pub(crate) fn freeze(&self, buf: AlignedBuf, len: usize) -> Bytes {
        assert!(len <= buf.len());
        self.lock().in_use.add(buf.len());
        Bytes::from_owner(Pooled { buf: Some(buf), len, pool: self.clone() })
    }

    /// What the node has and what is kept; not what is being filled.
    pub(crate) fn memory(&self) -> MemoryUse {
        let free = self.lock();
        let kept = free.classes.iter().map(|class| class.buffers.len()).sum();
        free.in_use + MemoryUse::new(kept, free.kept_bytes)
    }

    fn give_back(&self, buf: AlignedBuf) {
        let mut free = self.lock();
        free.in_use.remove(buf.len());
        let Some((class, class_len)) = class_of(buf.len()) else {
            return;
        };
        debug_assert_eq!(class_len, buf.len(), "buffers have their classes' lengths");
        if free.kept_bytes + buf.len() <= KEPT_BYTES_MAX {
            free.kept_bytes += buf.len();
            free.classes[class].buffers.push(buf);
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
    fn what_the_node_has_and_what_is_kept_is_counted() {
        let pool = ReadPool::default();
        let small = pool.freeze(pool.take(5000), 5000);
        let large = pool.freeze(pool.take(POOLED_MAX + ALIGNMENT), 1);
        assert_eq!(pool.memory(), MemoryUse::new(2, 8192 + POOLED_MAX + ALIGNMENT));
        drop(large);
        assert_eq!(pool.memory(), MemoryUse::new(1, 8192));
        drop(small);
        assert_eq!(pool.memory(), MemoryUse::new(1, 8192), "kept");
        pool.trim();
        pool.trim();
        assert_eq!(pool.memory(), MemoryUse::default());
    }

    #[test]
    fn what_a_burst_needed_is_given_back_when_it_is_over() {
        let pool = ReadPool::default();
        let burst: Vec<_> = (0..4).map(|_| pool.freeze(pool.take(1 << 20), 1)).collect();
        drop(burst);
        pool.trim();
        assert_eq!(pool.lock().kept_bytes, 4 << 20, "they were in use lately");
        for _ in 0..10 {
            drop(pool.freeze(pool.take(1 << 20), 1));
        }
        pool.trim();
        assert_eq!(pool.lock().kept_bytes, 1 << 20, "one is all that was needed");
        pool.trim();
        assert_eq!(pool.lock().kept_bytes, 0);
    }

    #[test]
    fn every_length_fits_its_class_and_wastes_little() {
        for pages in 1..=POOLED_MAX / ALIGNMENT {
            let len = pages * ALIGNMENT;
            let (class, class_len) = class_of(len).expect("pooled");
            assert!(class < CLASSES && class_len >= len && class_len <= len + len / 8, "{len}");
            assert_eq!(class_of(class_len), Some((class, class_len)));
        }
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
