//! Aligned buffers that are used again: fresh memory from the system costs
//! more than the copy into it.
//!
//! Sizes are powers of two in blocks. A buffer's content is whatever it held
//! before; who takes one fills all that leaves it.

use crate::limits::BLOCK_LEN;
use base::parts::Lender;
use base::{AlignedBuf, MemoryUse, Part};
use bytes::Bytes;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex};

/// Up to 16 blocks.
const SHORT_CLASSES: usize = 5;
/// Up to 4 MiB.
const LONG_CLASSES: usize = 11;

/// Kept in all, in bytes: about what waits for writeback, for it all comes back
/// at once. What is in use and what is kept add up to little more than this.
const KEPT_LEN: usize = 16 << 20;

#[derive(Default)]
struct Shelf {
    /// By the logarithm of their blocks.
    sizes: Vec<Vec<AlignedBuf>>,
    len: usize,
    in_use: MemoryUse,
}

type Shelves = Arc<Mutex<Shelf>>;

#[derive(Clone)]
pub(crate) struct Buffers {
    shelves: Shelves,
}

/// Goes back when the last slice of it is dropped.
pub(crate) struct Buffer {
    buf: Option<AlignedBuf>,
    shelves: Shelves,
}

impl Buffers {
    /// For records and what they carry.
    pub(crate) fn short() -> Buffers {
        Buffers::of(SHORT_CLASSES)
    }

    /// For reads that are put together from pieces.
    pub(crate) fn long() -> Buffers {
        Buffers::of(LONG_CLASSES)
    }

    fn of(classes: usize) -> Buffers {
        let sizes = (0..classes).map(|_| Vec::new()).collect();
        let shelf = Shelf { sizes, ..Shelf::default() };
        Buffers { shelves: Arc::new(Mutex::new(shelf)) }
    }

    /// At least `blocks`; longer ones than there are classes for are not kept.
    pub(crate) fn take(&self, blocks: usize) -> Buffer {
        let blocks = blocks.next_power_of_two();
        let class = blocks.trailing_zeros() as usize;
        let len = blocks * BLOCK_LEN as usize;
        let kept = match self.shelves.lock() {
            Ok(mut shelf) => {
                shelf.in_use.add(len);
                let kept = shelf.sizes.get_mut(class).and_then(Vec::pop);
                shelf.len -= kept.as_ref().map_or(0, |buf| buf.len());
                kept
            }
            Err(_) => None,
        };
        let buf = kept.unwrap_or_else(|| AlignedBuf::zeroed(len));
        Buffer { buf: Some(buf), shelves: self.shelves.clone() }
    }

    /// Lets go of what is not in use.
    pub(crate) fn clear(&self) {
        if let Ok(mut shelf) = self.shelves.lock() {
            shelf.sizes.iter_mut().for_each(|size| *size = Vec::new());
            shelf.len = 0;
        }
    }

    /// In use and kept.
    pub(crate) fn memory(&self) -> MemoryUse {
        let Ok(shelf) = self.shelves.lock() else { return MemoryUse::default() };
        shelf.in_use + MemoryUse::new(shelf.sizes.iter().map(Vec::len).sum(), shelf.len)
    }
}

impl Buffer {
    pub(crate) fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// For several requests to fill at once.
    pub(crate) fn lend(mut self) -> Lent {
        let buf = self.buf.take().expect("only a buffer that is dropped has no memory");
        Lent { len: buf.len(), lender: Some(Lender::new(buf)), shelves: self.shelves.clone() }
    }
}

/// A buffer of which device requests have parts.
pub(crate) struct Lent {
    /// Only empty while being dropped.
    lender: Option<Lender>,
    len: usize,
    shelves: Shelves,
}

impl Lent {
    /// Shape: in ascending order.
    pub(crate) fn part(&mut self, range: Range<usize>) -> Part {
        self.lender().lend(range)
    }

    /// What is not part of a request.
    pub(crate) fn rest(&mut self, range: Range<usize>) -> &mut [u8] {
        self.lender().rest(range)
    }

    /// Whether `data` is what lies there.
    pub(crate) fn is_at(&self, data: &[u8], range: Range<usize>) -> bool {
        self.lender.as_ref().is_some_and(|lender| lender.is_at(data, range))
    }

    fn lender(&mut self) -> &mut Lender {
        self.lender.as_mut().expect("only one that is dropped lends nothing")
    }

    /// The whole again, when no request has any of it.
    pub(crate) fn take_back(mut self) -> Option<Buffer> {
        self.end()
    }

    fn end(&mut self) -> Option<Buffer> {
        let buf = self.lender.take()?.take_back();
        if buf.is_none()
            && let Ok(mut shelf) = self.shelves.lock()
        {
            // Who has a part of it will free it.
            shelf.in_use.remove(self.len);
        }
        Some(Buffer { buf: Some(buf?), shelves: self.shelves.clone() })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(buf) = self.buf.take() else { return };
        let class = (buf.len() / BLOCK_LEN as usize).trailing_zeros() as usize;
        let Ok(mut shelf) = self.shelves.lock() else { return };
        shelf.in_use.remove(buf.len());
        if class < shelf.sizes.len() && shelf.len + buf.len() <= KEPT_LEN {
            shelf.len += buf.len();
            shelf.sizes[class].push(buf);
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or(&[])
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buf.as_deref_mut().unwrap_or(&mut [])
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
