//! Buffers that direct I/O accepts.
#![allow(unsafe_code)]

use bytes::Bytes;
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of the memory, and the granularity of every device transfer.
pub const ALIGNMENT: usize = 4096;

/// What the processor maps with one entry where the system lets it (x86-64 and ARM64).
const HUGE_PAGE: usize = 2 << 20;

/// A zero-initialised byte buffer whose address and length are multiples of
/// [`ALIGNMENT`], as `O_DIRECT` demands.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    /// What was allocated, with room to spare where `ptr` had to move.
    raw: NonNull<u8>,
    layout: Layout,
}

impl AlignedBuf {
    /// `len` bytes rounded up to [`ALIGNMENT`], all zero. In huge pages as far as it is long enough for
    /// them: a transfer then holds on to a few of these, not to a thousand small ones.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let len = len.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let alignment = if len >= HUGE_PAGE { HUGE_PAGE } else { ALIGNMENT };
        // Aligned by hand: asked for aligned zeros, the allocator would write
        // them, and so touch every page of a buffer that may never be filled.
        let layout = Layout::from_size_align(len + alignment, 16).expect("length fits an allocation");
        // SAFETY: the layout has a non-zero size.
        let Some(raw) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let shift = raw.align_offset(alignment);
        assert!(shift <= alignment, "bytes can be aligned");
        // SAFETY: `shift + len` is within what was allocated.
        let ptr = unsafe { raw.add(shift) };
        if alignment == HUGE_PAGE {
            // SAFETY: whole pages of memory that is this buffer's; what is in them stays. A system without
            // huge pages refuses, and nothing is lost.
            unsafe { libc::madvise(ptr.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        AlignedBuf { ptr, len, raw, layout }
    }

    /// `data`, padded with zeros. Touches the memory once.
    pub fn copy_of(data: &[u8]) -> AlignedBuf {
        let len = data.len().next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size.
        let raw = unsafe { alloc(layout) };
        let Some(ptr) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: `len` bytes were allocated, `data` is not among them, and both
        // parts together initialise them all.
        unsafe {
            ptr.copy_from_nonoverlapping(NonNull::from(data).cast(), data.len());
            ptr.add(data.len()).write_bytes(0, len - data.len());
        }
        AlignedBuf { ptr, len, raw: ptr, layout }
    }

    /// Shares the buffer without a copy.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGNMENT).expect("length fits an allocation")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout, and freed once.
        unsafe { dealloc(self.raw.as_ptr(), self.layout) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes were allocated and initialised.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

// SAFETY: the buffer owns plain memory; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_aligned_and_zero() {
        for len in [0, 1, 4096, 70_000, 5 << 20] {
            let buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buf.len(), len.next_multiple_of(ALIGNMENT).max(ALIGNMENT));
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_long_buffer_begins_with_a_huge_page() {
        for len in [HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr() as usize % HUGE_PAGE, 0);
            buf.fill(1);
        }
    }

    #[test]
    fn copy_is_padded_with_zeros_to_whole_pages() {
        for len in [0, 1, 4095, 4096, 4097] {
            let data = vec![7; len];
            let buf = AlignedBuf::copy_of(&data);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert_eq!(buf.len(), len.next_multiple_of(ALIGNMENT).max(ALIGNMENT));
            assert_eq!(buf[..len], data);
            assert!(buf[len..].iter().all(|byte| *byte == 0));
        }
    }
}
