//! Where a connection's bytes arrive.
//!
//! Received bytes are handed out as [`Bytes`] that share this buffer: nothing
//! is copied. The reverse of that coin: a small piece kept for long keeps its
//! whole buffer, so a node copies what it keeps. When every piece has been
//! dropped the same allocation is used again.

use bytes::{Bytes, BytesMut};

/// First and smallest buffer of a connection.
pub(crate) const INPUT_MIN: usize = 16 * 1024;
/// The largest read: beyond it a copy no longer fits the second-level cache.
pub(crate) const INPUT_MAX: usize = 256 * 1024;
/// A read into less than this is not worth its system call.
const SPARE_MIN: usize = 4 * 1024;
/// So many small reads in a row give a large buffer back.
const SMALL_READS_MAX: u32 = 16;

pub(crate) struct Input {
    buf: BytesMut,
    /// Size of the next allocation.
    target_len: usize,
    small_reads: u32,
    offered: usize,
}

impl Default for Input {
    fn default() -> Input {
        Input { buf: BytesMut::new(), target_len: INPUT_MIN, small_reads: 0, offered: 0 }
    }
}

impl Input {
    /// Where the next read goes. The memory stays in place until `commit` or
    /// the next `prepare`.
    pub(crate) fn prepare(&mut self) -> (*mut u8, usize) {
        debug_assert!(self.buf.is_empty());
        let spare = self.buf.capacity();
        if spare < SPARE_MIN || (self.target_len > INPUT_MIN && spare < self.target_len / 4) {
            self.buf.reserve(self.target_len);
        }
        let spare = self.buf.spare_capacity_mut();
        self.offered = spare.len().min(INPUT_MAX);
        (spare.as_mut_ptr().cast(), self.offered)
    }

    /// Takes the `count` bytes that the kernel wrote where `prepare` said.
    #[allow(unsafe_code)]
    pub(crate) fn commit(&mut self, count: usize) -> Bytes {
        assert!(count <= self.offered, "the kernel wrote more than it was offered");
        // SAFETY: `count` is within the capacity that `prepare` offered, and
        // the kernel has initialised it.
        unsafe { self.buf.set_len(count) };
        let data = self.buf.split().freeze();
        self.adapt(count);
        data
    }

    fn adapt(&mut self, count: usize) {
        if count == self.offered && self.offered >= SPARE_MIN {
            self.target_len = (self.target_len * 4).min(INPUT_MAX);
            self.small_reads = 0;
        } else if count < INPUT_MIN / 2 && self.target_len > INPUT_MIN {
            self.small_reads += 1;
            if self.small_reads >= SMALL_READS_MAX {
                self.target_len = INPUT_MIN;
                self.small_reads = 0;
                // Gives the large allocation back once its pieces are gone.
                self.buf = BytesMut::new();
            }
        } else {
            self.small_reads = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &mut Input, wanted: usize) -> usize {
        let (_, offered) = input.prepare();
        // The claim that the kernel wrote is false here, so only the length of
        // what comes out may be looked at.
        input.commit(wanted.min(offered)).len()
    }

    #[test]
    fn full_reads_grow_the_buffer_and_small_ones_shrink_it() {
        let mut input = Input::default();
        assert_eq!(read(&mut input, usize::MAX), INPUT_MIN);
        for _ in 0..4 {
            read(&mut input, usize::MAX);
        }
        assert_eq!(read(&mut input, usize::MAX), INPUT_MAX);
        for _ in 0..=SMALL_READS_MAX {
            assert_eq!(read(&mut input, 100), 100, "shrinking loses nothing");
        }
        assert!(input.prepare().1 <= INPUT_MIN);
    }

    #[test]
    fn one_allocation_serves_a_connection_whose_pieces_are_dropped() {
        let mut input = Input::default();
        read(&mut input, 1);
        let end = input.buf.as_ptr() as usize + input.buf.capacity();
        for _ in 0..1000 {
            read(&mut input, 500);
            assert_eq!(input.buf.as_ptr() as usize + input.buf.capacity(), end);
        }
    }
}
