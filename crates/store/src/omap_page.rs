//! Listing an object's omap in parts.

use bytes::Bytes;

/// How much one part may hold.
///
/// Shape: a first entry that is longer than `bytes` is given nevertheless, alone, so that every part but one of
///        no entries gets on.
/// Units: `bytes` are those of keys and values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OmapLimit {
    pub entries: usize,
    pub bytes: usize,
}

impl OmapLimit {
    pub const NONE: OmapLimit = OmapLimit { entries: usize::MAX, bytes: usize::MAX };
}

/// Shape: ascending by key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OmapPage {
    pub entries: Vec<(Bytes, Bytes)>,
    /// Of keys and values.
    pub bytes: usize,
    /// There are more than had room.
    pub more: bool,
}

impl OmapPage {
    /// Takes the entry, of so many bytes, in if there is room; otherwise the page is full.
    pub fn add(&mut self, limit: OmapLimit, len: usize, entry: impl FnOnce() -> (Bytes, Bytes)) -> bool {
        let fits = self.entries.is_empty() || self.bytes.saturating_add(len) <= limit.bytes;
        self.more = !fits || self.entries.len() >= limit.entries;
        if !self.more {
            self.bytes += len;
            self.entries.push(entry());
        }
        !self.more
    }

    /// Where the next page begins: after this key.
    pub fn last_key(&self) -> Option<&Bytes> {
        self.entries.last().map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lens: &[usize], limit: OmapLimit) -> (usize, usize, bool) {
        let mut page = OmapPage::default();
        for len in lens {
            if !page.add(limit, *len, || (Bytes::new(), Bytes::from(vec![0; *len]))) {
                break;
            }
        }
        (page.entries.len(), page.bytes, page.more)
    }

    #[test]
    fn a_page_ends_before_either_limit_is_passed() {
        let limit = OmapLimit { entries: 3, bytes: 10 };
        assert_eq!(page(&[], limit), (0, 0, false));
        assert_eq!(page(&[1, 1, 1], limit), (3, 3, false));
        assert_eq!(page(&[1, 1, 1, 1], limit), (3, 3, true));
        assert_eq!(page(&[4, 6], limit), (2, 10, false));
        assert_eq!(page(&[4, 7], limit), (1, 4, true));
        assert_eq!(page(&[9, 1, 0], limit), (3, 10, false));
    }

    #[test]
    fn a_first_entry_that_is_too_long_comes_alone_but_none_beyond_their_number() {
        assert_eq!(page(&[99, 0], OmapLimit { entries: 3, bytes: 10 }), (1, 99, true));
        assert_eq!(page(&[99], OmapLimit { entries: 3, bytes: 0 }), (1, 99, false));
        assert_eq!(page(&[1], OmapLimit { entries: 0, bytes: 10 }), (0, 0, true));
    }
}
