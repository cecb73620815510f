//! One buffer that several requests fill at the same time.
//!
//! A device reads what lies in many places by as many requests. With a part of one buffer for each,
//! the whole is there when the last one ends: nothing is put together by copying.
#![allow(unsafe_code)]

use crate::AlignedBuf;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

/// The buffer, while parts of it are lent.
pub struct Lender {
    /// Only kept: what is in it is reached by `start`.
    memory: Arc<AlignedBuf>,
    start: NonNull<u8>,
    len: usize,
    /// What was lent, in order.
    lent: Vec<Range<usize>>,
}

/// A stretch of a [`Lender`]'s buffer that nobody else touches.
pub struct Part {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory.
    _memory: Arc<AlignedBuf>,
}

impl Lender {
    pub fn new(mut buf: AlignedBuf) -> Lender {
        let (start, len) = (NonNull::from(&mut buf[..]).cast(), buf.len());
        Lender { memory: Arc::new(buf), start, len, lent: Vec::new() }
    }

    /// Shape: ranges in ascending order, none of which overlap.
    pub fn lend(&mut self, range: Range<usize>) -> Part {
        let behind = self.lent.last().is_none_or(|last| last.end <= range.start);
        assert!(behind && range.start <= range.end && range.end <= self.len, "parts do not overlap");
        // SAFETY: within the buffer.
        let start = unsafe { self.start.add(range.start) };
        let len = range.len();
        self.lent.push(range);
        Part { start, len, _memory: self.memory.clone() }
    }

    /// What was not lent can be filled meanwhile.
    pub fn rest(&mut self, range: Range<usize>) -> &mut [u8] {
        let at = self.lent.partition_point(|lent| lent.end <= range.start);
        let free = self.lent.get(at).is_none_or(|lent| range.end <= lent.start);
        assert!(free && range.start <= range.end && range.end <= self.len, "what is lent is another's");
        // SAFETY: within the buffer, of which other references are parts only; this range is in none
        // of them, and `&mut self` lets nobody else ask for it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start).as_ptr(), range.len()) }
    }

    /// Whether `data` is what lies there.
    pub fn is_at(&self, data: &[u8], range: Range<usize>) -> bool {
        data.len() == range.len() && data.as_ptr().addr() == self.start.addr().get() + range.start
    }

    /// The whole buffer, once all parts and what they became are dropped.
    pub fn take_back(self) -> Option<AlignedBuf> {
        Arc::into_inner(self.memory)
    }
}

impl Part {
    /// The part's content; whoever drops the last reference to it gives the part back.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for Part {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the lender made sure that it lies within the buffer, which lives as long as this, and that
        // nobody else has it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Part({:?}, {})", self.start, self.len)
    }
}

// SAFETY: plain memory that is this one's alone, and nothing in it is tied to a thread.
unsafe impl Send for Part {}
// SAFETY: shared access only reads.
unsafe impl Sync for Part {}
// SAFETY: as for parts: what is not lent is the lender's alone.
unsafe impl Send for Lender {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_filled_in_any_order_and_are_one_buffer_in_the_end() {
        let mut lender = Lender::new(AlignedBuf::zeroed(4 * 4096));
        let mut first = lender.lend(0..4096);
        let mut last = lender.lend(8192..16384);
        std::thread::scope(|scope| {
            scope.spawn(|| last.fill(3));
            scope.spawn(|| first.fill(1));
            lender.rest(4096..8192).fill(2);
        });
        let kept = first.freeze();
        assert!(lender.is_at(&kept, 0..4096) && !lender.is_at(&kept[1..], 0..4095));
        assert!(kept.iter().all(|byte| *byte == 1));
        drop(last);
        drop(kept);
        let whole = lender.take_back().expect("all parts are back");
        for (page, value) in whole.chunks(4096).zip([1, 2, 3, 3]) {
            assert!(page.iter().all(|byte| *byte == value));
        }
    }

    #[test]
    fn a_part_that_somebody_has_is_not_taken_back() {
        let mut lender = Lender::new(AlignedBuf::zeroed(4096));
        let part = lender.lend(0..4096).freeze();
        assert!(lender.take_back().is_none());
        assert_eq!(part.len(), 4096, "its memory is still there");
    }

    #[test]
    #[should_panic(expected = "parts do not overlap")]
    fn nothing_is_lent_twice() {
        let mut lender = Lender::new(AlignedBuf::zeroed(8192));
        let _part = lender.lend(0..8192);
        lender.lend(4096..8192);
    }

    #[test]
    #[should_panic(expected = "what is lent is another's")]
    fn what_is_lent_is_not_filled_by_the_lender() {
        let mut lender = Lender::new(AlignedBuf::zeroed(3 * 4096));
        let _part = lender.lend(4096..8192);
        lender.rest(0..4097);
    }
}
