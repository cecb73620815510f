//! One object of the model: pages of data, xattrs and omap.

use crate::limits::BLOCK_LEN;
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) const PAGE_LEN: u64 = BLOCK_LEN;

pub(super) type Page = [u8; PAGE_LEN as usize];

const ZEROS: Page = [0; PAGE_LEN as usize];

/// Invariants: no page lies wholly past `size`; bytes of a page past `size`
/// are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct MemObject {
    pub(super) size: u64,
    /// By page number. A missing page reads as zeros.
    pages: BTreeMap<u64, Arc<Page>>,
    pub(super) xattrs: BTreeMap<String, Bytes>,
    pub(super) omap_header: Bytes,
    pub(super) omap: BTreeMap<Bytes, Bytes>,
    /// Reads of its data fail, until the data is replaced as a whole.
    pub(super) damaged: bool,
}

/// The parts of `offset..end` by page: page number, first byte in it, length.
fn by_page(offset: u64, end: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, within) = (at / PAGE_LEN, at % PAGE_LEN);
        let len = (PAGE_LEN - within).min(end - at);
        at += len;
        Some((page, within as usize, len as usize))
    })
}

impl MemObject {
    pub(super) fn allocated(&self) -> u64 {
        self.pages.len() as u64 * PAGE_LEN
    }

    /// Pages that objects share are in one place.
    pub(super) fn pages_by_place(&self) -> impl Iterator<Item = *const Page> {
        self.pages.values().map(Arc::as_ptr)
    }

    pub(super) fn omap_len(&self) -> u64 {
        let entries = self.omap.iter().map(|(k, v)| (k.len() + v.len()) as u64);
        entries.sum::<u64>() + self.omap_header.len() as u64
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        self.damaged &= offset > 0 || end < self.size;
        let mut rest = data;
        for (page, within, len) in by_page(offset, end) {
            let (piece, tail) = rest.split_at(len);
            rest = tail;
            let page = self.pages.entry(page).or_insert_with(|| Arc::new(ZEROS));
            Arc::make_mut(page)[within..within + len].copy_from_slice(piece);
        }
        if !data.is_empty() {
            self.size = self.size.max(end);
        }
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.size);
        self.clear(offset, end);
    }

    /// Pages covered as far as the object reaches go away; others are zeroed in part.
    fn clear(&mut self, offset: u64, end: u64) {
        let touched: Vec<u64> = if offset < end {
            self.pages.range(offset / PAGE_LEN..end.div_ceil(PAGE_LEN)).map(|(p, _)| *p).collect()
        } else {
            Vec::new()
        };
        for page in touched {
            let start = page * PAGE_LEN;
            let stop = (start + PAGE_LEN).min(self.size);
            let (from, to) = (offset.max(start), end.min(stop));
            if from == start && to == stop {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                Arc::make_mut(bytes)[(from - start) as usize..(to - start) as usize].fill(0);
            }
        }
    }

    pub(super) fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.clear(size, self.size);
            self.damaged &= size > 0;
        }
        self.size = size;
    }

    pub(super) fn read(&self, offset: u64, len: u64) -> Bytes {
        let end = offset.saturating_add(len).min(self.size);
        let mut out = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
        for (page, within, len) in by_page(offset, end) {
            let bytes = self.pages.get(&page).map_or(&ZEROS, |page| page);
            out.extend_from_slice(&bytes[within..within + len]);
        }
        out.freeze()
    }

    pub(super) fn extents(&self, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let end = offset.saturating_add(len).min(self.size);
        let mut found: Vec<(u64, u64)> = Vec::new();
        if offset >= end {
            return found;
        }
        for page in self.pages.range(offset / PAGE_LEN..end.div_ceil(PAGE_LEN)).map(|(p, _)| *p) {
            let from = offset.max(page * PAGE_LEN);
            let to = end.min((page + 1) * PAGE_LEN);
            match found.last_mut() {
                Some((start, len)) if *start + *len == from => *len = to - *start,
                _ => found.push((from, to - from)),
            }
        }
        found
    }
}
