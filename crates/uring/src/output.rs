//! What a connection has still to send.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;

/// The most pieces one system call takes (`UIO_MAXIOV`).
pub(crate) const IOVECS_MAX: usize = 1024;

/// A queue of byte pieces. A piece stays in place until the kernel has taken
/// all of it, so its memory may be handed to a request in flight as long as
/// nothing but [`Output::consume`] removes from the front.
#[derive(Default)]
pub(crate) struct Output {
    pieces: VecDeque<Bytes>,
    len_bytes: usize,
}

impl Output {
    pub(crate) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len_bytes += piece.len();
            self.pieces.push_back(piece);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The only piece, when there is exactly one.
    pub(crate) fn single(&self) -> Option<&Bytes> {
        if self.pieces.len() == 1 { self.pieces.front() } else { None }
    }

    /// Describes the first pieces to the kernel; returns their length.
    pub(crate) fn fill_iovecs(&self, iovecs: &mut Vec<libc::iovec>) -> usize {
        iovecs.clear();
        iovecs.extend(
            self.pieces.iter().take(IOVECS_MAX).map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            }),
        );
        if self.pieces.len() <= IOVECS_MAX {
            return self.len_bytes;
        }
        iovecs.iter().map(|iovec| iovec.iov_len).sum()
    }

    /// The kernel took `count` bytes from the front.
    pub(crate) fn consume(&mut self, mut count: usize) {
        assert!(count <= self.len_bytes, "the kernel took more than it was given");
        self.len_bytes -= count;
        while count > 0 {
            let front = self.pieces.front_mut().expect("pieces cover len_bytes");
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_sends_keep_the_rest_in_order() {
        let mut output = Output::default();
        output.push(Bytes::from_static(b"abc"));
        output.push(Bytes::new());
        output.push(Bytes::from_static(b"defg"));
        output.consume(2);
        output.consume(3);
        assert_eq!(output.single().map(|piece| &piece[..]), Some(&b"fg"[..]));
        assert_eq!(output.len(), 2);
        output.consume(2);
        assert!(output.is_empty() && output.single().is_none());
    }
}
