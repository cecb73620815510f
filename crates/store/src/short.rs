//! Bytes that are kept in place where they are few.
//!
//! A search in a page compares a dozen keys: where they lie in the page itself, none of
//! the comparisons has to follow a pointer.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A PG's log has keys of 13 bytes, those of most others (RBD, RGW, Ceph's own logs) fit, too.
const PLACE_LEN: usize = 38;

#[derive(Clone)]
pub(crate) struct Short(Kept);

#[derive(Clone)]
enum Kept {
    Here { len: u8, bytes: [u8; PLACE_LEN] },
    There(Arc<[u8]>),
}

const _: () = assert!(size_of::<Short>() == 40);

impl From<&[u8]> for Short {
    fn from(bytes: &[u8]) -> Short {
        if bytes.len() > PLACE_LEN {
            return Short(Kept::There(bytes.into()));
        }
        let mut place = [0; PLACE_LEN];
        place[..bytes.len()].copy_from_slice(bytes);
        Short(Kept::Here { len: bytes.len() as u8, bytes: place })
    }
}

impl Deref for Short {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Here { len, bytes } => &bytes[..usize::from(*len)],
            Kept::There(bytes) => bytes,
        }
    }
}

impl PartialEq for Short {
    fn eq(&self, other: &Short) -> bool {
        **self == **other
    }
}

impl Eq for Short {}

impl Ord for Short {
    fn cmp(&self, other: &Short) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Short {
    fn partial_cmp(&self, other: &Short) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_come_back_and_keep_their_order() {
        let all: Vec<Vec<u8>> = (0..2 * PLACE_LEN).map(|len| vec![7; len]).collect();
        let short: Vec<Short> = all.iter().map(|bytes| Short::from(&bytes[..])).collect();
        assert!(short.iter().zip(&all).all(|(short, bytes)| **short == bytes[..]));
        assert!(short.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Short::from(&[8][..]) > short[PLACE_LEN + 1]);
    }
}
