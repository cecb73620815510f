//! Bytes to send: small pieces gathered, large ones passed on as they are.

use crate::limits::{COALESCE_LEN_MAX, OUTPUT_PIECE_LEN};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

pub(crate) struct Tx {
    pieces: VecDeque<Bytes>,
    /// Small pieces after the last of `pieces`.
    tail: BytesMut,
    /// Of late tails, the longest about. The next one begins with room for twice as much: many
    /// answers at once need not make it grow step by step, and a quiet connection holds no memory.
    tail_len: usize,
    len: usize,
    /// Every byte sent so far, while the handshake may have to be checked.
    transcript: Option<BytesMut>,
}

impl Tx {
    pub fn new() -> Tx {
        Tx { pieces: VecDeque::new(), tail: BytesMut::new(), tail_len: 0, len: 0, transcript: None }
    }

    pub fn record_transcript(&mut self) {
        self.transcript = Some(BytesMut::new());
    }

    pub fn take_transcript(&mut self) -> Bytes {
        self.transcript.take().unwrap_or_default().freeze()
    }

    pub fn put(&mut self, small: &[u8]) {
        if let Some(transcript) = &mut self.transcript {
            transcript.extend_from_slice(small);
        }
        self.len += small.len();
        if self.tail.is_empty() {
            let room = (2 * self.tail_len).min(OUTPUT_PIECE_LEN + COALESCE_LEN_MAX);
            self.tail.reserve(room.max(small.len()));
        }
        self.tail.extend_from_slice(small);
        if self.tail.len() >= OUTPUT_PIECE_LEN {
            self.close_tail();
        }
    }

    pub fn put_bytes(&mut self, piece: &Bytes) {
        if piece.len() <= COALESCE_LEN_MAX {
            return self.put(piece);
        }
        if let Some(transcript) = &mut self.transcript {
            transcript.extend_from_slice(piece);
        }
        self.close_tail();
        self.len += piece.len();
        self.pieces.push_back(piece.clone());
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        if self.pieces.is_empty() {
            self.close_tail();
        }
        let piece = self.pieces.pop_front()?;
        self.len -= piece.len();
        Some(piece)
    }

    /// Bytes not yet handed out.
    pub fn len(&self) -> usize {
        self.len
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            self.tail_len = self.tail.len().max(self.tail_len - self.tail_len / 8);
            self.pieces.push_back(std::mem::take(&mut self.tail).freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_pass_uncopied_between_gathered_small_ones() {
        let large = Bytes::from(vec![9; COALESCE_LEN_MAX + 1]);
        let mut tx = Tx::new();
        tx.put(b"ab");
        tx.put_bytes(&Bytes::from_static(b"c"));
        tx.put_bytes(&large);
        tx.put(b"d");
        assert_eq!(tx.len(), 4 + large.len());
        assert_eq!(tx.pop().unwrap(), "abc");
        assert_eq!(tx.pop().unwrap().as_ptr(), large.as_ptr());
        assert_eq!(tx.pop().unwrap(), "d");
        assert_eq!(tx.pop(), None);
        assert_eq!(tx.len(), 0);
    }
}
