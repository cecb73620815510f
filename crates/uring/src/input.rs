//! Where a connection's bytes arrive.
//!
//! Received bytes are handed out as [`Bytes`] that share this buffer: nothing
//! is copied. The reverse of that coin: a small piece kept for long keeps its
//! whole buffer, so a node copies what it keeps. When every piece has been
//! dropped the same allocation is used again.

use crate::read_pool::{POOLED_MAX, ReadPool};
use base::AlignedBuf;
use base::aligned::ALIGNMENT;
use bytes::{Bytes, BytesMut};

/// First and smallest buffer of a connection.
pub(crate) const INPUT_MIN: usize = 16 * 1024;
/// The largest read: beyond it a copy no longer fits the second-level cache.
pub(crate) const INPUT_MAX: usize = 256 * 1024;
/// The most that a connection holds while it waits for its peer.
const INPUT_IDLE_MAX: usize = 64 * 1024;
/// A read into less than this is not worth its system call.
const SPARE_MIN: usize = 4 * 1024;
/// So many small reads in a row bring the smallest buffer back.
const SMALL_READS_MAX: u32 = 16;

pub(crate) struct Input {
    buf: BytesMut,
    /// Size of the next allocation.
    target_len: usize,
    small_reads: u32,
    offered: usize,
    gathering: Option<Gathering>,
}

/// A long part on its way into memory of its own.
struct Gathering {
    buf: AlignedBuf,
    start: usize,
    filled: usize,
    end: usize,
    pool: ReadPool,
}

impl Default for Input {
    fn default() -> Input {
        Input { buf: BytesMut::new(), target_len: INPUT_MIN, small_reads: 0, offered: 0, gathering: None }
    }
}

impl Input {
    /// Where the next read goes. The memory stays in place until `commit` or
    /// the next `prepare`.
    pub(crate) fn prepare(&mut self) -> (*mut u8, usize) {
        debug_assert!(self.buf.is_empty());
        if let Some(gathering) = &mut self.gathering {
            let rest = &mut gathering.buf[gathering.filled..gathering.end];
            self.offered = rest.len();
            return (rest.as_mut_ptr(), rest.len());
        }
        let spare = self.buf.capacity();
        if spare < SPARE_MIN || (self.target_len > INPUT_MIN && spare < self.target_len / 4) {
            // Nothing in it is wanted any more: growing it would copy that.
            if !self.buf.try_reclaim(self.target_len) {
                self.buf = BytesMut::with_capacity(self.target_len);
            }
        }
        let spare = self.buf.spare_capacity_mut();
        self.offered = spare.len().min(INPUT_MAX);
        (spare.as_mut_ptr().cast(), self.offered)
    }

    /// Begins a part of `len` bytes with `head`; its byte `lead` gets aligned.
    /// No read may be in flight. False when it is too long for that.
    pub(crate) fn gather(&mut self, head: &[u8], len: usize, lead: usize, pool: &ReadPool) -> bool {
        let start = lead.next_multiple_of(ALIGNMENT) - lead;
        if len > POOLED_MAX - ALIGNMENT || lead > len || head.len() >= len || self.gathering.is_some() {
            return false;
        }
        let mut buf = pool.take(start + len);
        let filled = start + head.len();
        buf[start..filled].copy_from_slice(head);
        self.gathering = Some(Gathering { buf, start, filled, end: start + len, pool: pool.clone() });
        true
    }

    /// The next read should end only when all of its memory is filled.
    pub(crate) fn is_gathering(&self) -> bool {
        self.gathering.is_some()
    }

    /// Takes the `count` bytes that the kernel wrote where `prepare` said.
    /// `None` while a part is not complete.
    #[allow(unsafe_code)]
    pub(crate) fn commit(&mut self, count: usize) -> Option<Bytes> {
        assert!(count <= self.offered, "the kernel wrote more than it was offered");
        if let Some(gathering) = &mut self.gathering {
            gathering.filled += count;
            if gathering.filled < gathering.end {
                return None;
            }
            let Gathering { buf, start, end, pool, .. } = self.gathering.take()?;
            return Some(pool.freeze(buf, end).slice(start..));
        }
        // SAFETY: `count` is within the capacity that `prepare` offered, and
        // the kernel has initialised it.
        unsafe { self.buf.set_len(count) };
        let data = self.buf.split().freeze();
        self.adapt(count);
        Some(data)
    }

    /// A read that fills its buffer has probably left more behind: the next
    /// one is larger, unless this was but the rest of a small one. Any other has
    /// emptied the socket.
    fn adapt(&mut self, count: usize) {
        if count == self.offered && self.offered < INPUT_MIN {
            return;
        }
        if count == self.offered {
            self.target_len = (self.target_len * 4).min(INPUT_MAX);
            self.small_reads = 0;
            return;
        }
        self.small_reads = if count < INPUT_MIN / 2 { self.small_reads + 1 } else { 0 };
        let idle_max = match self.small_reads {
            SMALL_READS_MAX.. => INPUT_MIN,
            _ => INPUT_IDLE_MAX,
        };
        self.target_len = self.target_len.min(idle_max);
        if self.buf.capacity() > idle_max {
            // The large allocation ends with the pieces that share it.
            self.buf = BytesMut::new();
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
        input.commit(wanted.min(offered)).expect("nothing is gathered").len()
    }

    #[test]
    fn full_reads_grow_the_buffer_and_small_ones_shrink_it() {
        let mut input = Input::default();
        assert_eq!(read(&mut input, usize::MAX), INPUT_MIN);
        for _ in 0..4 {
            read(&mut input, usize::MAX);
        }
        assert_eq!(read(&mut input, usize::MAX), INPUT_MAX);
        read(&mut input, 20_000);
        assert!(input.prepare().1 <= INPUT_IDLE_MAX);
        for _ in 0..=SMALL_READS_MAX {
            assert_eq!(read(&mut input, 100), 100, "shrinking loses nothing");
        }
        assert!(input.prepare().1 <= INPUT_MIN);
    }

    #[test]
    fn a_part_is_gathered_aligned_behind_what_came_first() {
        let (mut input, pool) = (Input::default(), ReadPool::default());
        let (len, lead) = (300_000, 77);
        assert!(input.gather(b"head", len, lead, &pool));
        assert_eq!(input.prepare().1, len - 4);
        assert_eq!(input.commit(1000), None);
        assert_eq!(input.prepare().1, len - 1004);
        let part = input.commit(len - 1004).expect("complete");
        assert_eq!((part.len(), &part[..4]), (len, &b"head"[..]));
        assert_eq!(part[lead..].as_ptr() as usize % ALIGNMENT, 0);
        assert!(!input.gather(b"", POOLED_MAX, 0, &pool), "too long");
        assert_eq!(read(&mut input, 10), 10, "as before");
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
