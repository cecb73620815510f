//! Whole blocks on their way to fresh places, in memory that the device can
//! take, each with its checksum. Those of small writes are gathered until their
//! batch ends, so that one device write carries all that lie side by side.
//!
//! Nothing refers to fresh places before the batch's record is durable, so it
//! does not matter when the data is written, nor in how many requests. Must not
//! know objects, nor who chose the places.

use crate::alloc::Run;
use crate::buffers::{Buffer, Buffers};
use crate::limits::BLOCK_LEN;
use base::aligned::ALIGNMENT;
use base::{crc32c, sums};
use bytes::Bytes;
use std::ops::Range;

const BLOCK: usize = BLOCK_LEN as usize;
const _: () = assert!(BLOCK == sums::PIECE_LEN);

/// More than this does not wait for the batch's end: a request of this size
/// gains nothing from being longer.
const GATHERED_BLOCKS_MAX: u32 = 64;

const BUFFER_BLOCKS_MAX: usize = 16;

/// A request's content: pieces of whole blocks, back to back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces(pub(crate) Vec<Bytes>);

impl Pieces {
    /// Block `at`, counted from the first.
    pub(crate) fn block(&self, at: u32) -> Option<Bytes> {
        let mut at = at as usize * BLOCK;
        for piece in &self.0 {
            if at < piece.len() {
                return Some(piece.slice(at..at + BLOCK));
            }
            at -= piece.len();
        }
        None
    }
}

enum Piece {
    /// The caller's memory, which the device can take as it is.
    Shared(Bytes),
    /// In `buffers`.
    Copied { buffer: usize, offset: usize, len: usize },
}

struct Part {
    run: Run,
    pieces: Vec<Piece>,
}

/// One request: adjacent blocks.
pub(crate) struct Gathered {
    pub(crate) run: Run,
    pub(crate) pieces: Pieces,
}

pub(crate) struct Gather {
    /// In the order they came; no two overlap.
    parts: Vec<Part>,
    blocks: u32,
    /// Of 1, 2, 4, 8 and then 16 blocks: a batch of one small write takes one.
    buffers: Vec<Buffer>,
    /// Bytes used of the last buffer.
    filled: usize,
    pool: Buffers,
}

impl Gather {
    pub(crate) fn new(pool: Buffers) -> Gather {
        Gather { parts: Vec::new(), blocks: 0, buffers: Vec::new(), filled: 0, pool }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.blocks >= GATHERED_BLOCKS_MAX
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks as usize
    }

    /// Requests that it makes now.
    pub(crate) fn requests(&self) -> usize {
        self.parts.len()
    }

    /// That part of `data` is to lie at `run`, padded with zeros. Appends each
    /// block's checksum. What is not aligned is copied, a block at a time, so that
    /// the checksum reads what the copy has just brought into the cache.
    pub(crate) fn push(&mut self, run: Run, data: &Bytes, part: Range<usize>, crcs: &mut Vec<u32>) {
        let extends = self.parts.last().is_some_and(|part| part.run.end() == run.start);
        if !extends {
            let run = Run { start: run.start, count: 0 };
            self.parts.push(Part { run, pieces: Vec::new() });
        }
        self.blocks += run.count;
        let content = &data[part.clone()];
        let fits = (content.as_ptr() as usize).is_multiple_of(ALIGNMENT) && part.len().is_multiple_of(BLOCK);
        let Some(at) = self.parts.len().checked_sub(1) else { return };
        self.parts[at].run.count += run.count;
        if fits {
            sums::piece_crcs(content, crcs);
            let (last, crc) = (content.rchunks(BLOCK).next(), crcs.last().copied());
            debug_assert_eq!(crc, last.map(crc32c), "what was checked on receipt is what is stored");
            self.parts[at].pieces.push(Piece::Shared(data.slice(part)));
            return;
        }
        for (n, block) in (0u32..).zip(content.chunks(BLOCK)) {
            let (buffer, offset) = self.room((run.count - n) as usize);
            let out = &mut self.buffers[buffer][offset..offset + BLOCK];
            out[..block.len()].copy_from_slice(block);
            out[block.len()..].fill(0);
            crcs.push(crc32c(out));
            match self.parts[at].pieces.last_mut() {
                Some(Piece::Copied { buffer: last, offset: start, len })
                    if *last == buffer && *start + *len == offset =>
                {
                    *len += BLOCK;
                }
                _ => self.parts[at].pieces.push(Piece::Copied { buffer, offset, len: BLOCK }),
            }
        }
    }

    /// Of one block, when so many are to come at least.
    fn room(&mut self, to_come: usize) -> (usize, usize) {
        if self.buffers.last().is_none_or(|buffer| self.filled == buffer.len()) {
            let blocks = (1usize << self.buffers.len().min(16)).max(to_come);
            self.buffers.push(self.pool.take(blocks.min(BUFFER_BLOCKS_MAX)));
            self.filled = 0;
        }
        let offset = self.filled;
        self.filled += BLOCK;
        (self.buffers.len() - 1, offset)
    }

    /// What is to lie at a device block.
    pub(crate) fn content(&self, device: u32) -> Option<Bytes> {
        let this = Run { start: device, count: 1 };
        let part = self.parts.iter().find(|part| part.run.overlaps(this))?;
        let mut at = (device - part.run.start) as usize * BLOCK;
        for piece in &part.pieces {
            let len = match piece {
                Piece::Shared(data) => data.len(),
                Piece::Copied { len, .. } => *len,
            };
            if at < len {
                return Some(match piece {
                    Piece::Shared(data) => data.slice(at..at + BLOCK),
                    // The buffer takes further blocks: it cannot be shared yet.
                    Piece::Copied { buffer, offset, .. } => {
                        let at = offset + at;
                        Bytes::copy_from_slice(&self.buffers[*buffer][at..at + BLOCK])
                    }
                });
            }
            at -= len;
        }
        None
    }

    /// One request for each stretch of adjacent blocks.
    pub(crate) fn take(&mut self) -> Vec<Gathered> {
        let buffers: Vec<Bytes> = std::mem::take(&mut self.buffers).into_iter().map(Buffer::freeze).collect();
        (self.filled, self.blocks) = (0, 0);
        let parts = std::mem::take(&mut self.parts);
        let pieces = |pieces: Vec<Piece>| {
            let frozen = pieces.into_iter().map(|piece| match piece {
                Piece::Shared(data) => data,
                Piece::Copied { buffer, offset, len } => buffers[buffer].slice(offset..offset + len),
            });
            Pieces(frozen.collect())
        };
        parts.into_iter().map(|part| Gathered { run: part.run, pieces: pieces(part.pieces) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::AlignedBuf;

    #[test]
    fn adjacent_blocks_leave_as_one_request_with_their_content() {
        let mut gather = Gather::new(Buffers::short());
        let mut crcs = Vec::new();
        let blocks = |start: u32, count: u32| Run { start, count };
        let unaligned = Bytes::from(vec![1; 3 * BLOCK + 1]).slice(1..);
        let aligned = AlignedBuf::copy_of(&[2; BLOCK]).freeze();
        gather.push(blocks(10, 3), &unaligned, 0..3 * BLOCK, &mut crcs);
        gather.push(blocks(13, 1), &aligned, 0..BLOCK, &mut crcs);
        gather.push(blocks(14, 1), &Bytes::from_static(&[3; 102]), 2..102, &mut crcs);
        gather.push(blocks(40, 1), &unaligned, 0..BLOCK, &mut crcs);
        let content = |device: u32| gather.content(device).map(|block| (block[0], block[BLOCK - 1]));
        let expected = [(10, (1, 1)), (12, (1, 1)), (13, (2, 2)), (14, (3, 0)), (40, (1, 1))];
        for (device, found) in expected {
            assert_eq!(content(device), Some(found));
        }
        assert_eq!((content(9), content(15)), (None, None));
        let requests = gather.take();
        assert!(gather.is_empty());
        assert_eq!(
            requests.iter().map(|request| request.run).collect::<Vec<_>>(),
            [blocks(10, 5), blocks(40, 1)]
        );
        let mut sums = Vec::new();
        for Gathered { run, pieces } in requests {
            assert_eq!(pieces.0.iter().map(Bytes::len).sum::<usize>(), run.count as usize * BLOCK);
            assert!(pieces.0.iter().all(|piece| (piece.as_ptr() as usize).is_multiple_of(ALIGNMENT)));
            sums.extend((0..run.count).map(|at| crc32c(&pieces.block(at).unwrap())));
            assert_eq!(pieces.block(run.count), None);
        }
        assert_eq!(sums, crcs);
    }

    #[test]
    fn is_full_at_its_limit() {
        let mut gather = Gather::new(Buffers::short());
        let data = Bytes::from(vec![1; BLOCK]);
        for block in 0..GATHERED_BLOCKS_MAX {
            assert!(!gather.is_full());
            gather.push(Run { start: 2 * block, count: 1 }, &data, 0..BLOCK, &mut Vec::new());
        }
        assert!(gather.is_full());
        assert_eq!(gather.take().len(), GATHERED_BLOCKS_MAX as usize);
        assert!(!gather.is_full());
    }
}
