//! What is remembered of a PG's scrubs, by all its members.

use base::WallTime;
use std::cmp::Ordering;
use wire::codec::Result;
use wire::types::EVersion;
use wire::{Decode, Decoder, Encode, Encoder};

/// Part of the PG's [`History`](super::super::info::History), stored and told like the rest of it.
///
/// Source: Ceph `src/osd/osd_types.h` (`pg_history_t`, `object_stat_sum_t`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubRecord {
    /// The PG's newest write when a scrub, light or deep, last went through all of it; and when.
    pub last: EVersion,
    pub last_stamp: WallTime,
    pub last_deep: EVersion,
    pub last_deep_stamp: WallTime,
    /// Without an error.
    pub last_clean_stamp: WallTime,
    /// Errors that are not repaired: of what every scrub sees, and of what only a deep one does.
    pub shallow_errors: u32,
    pub deep_errors: u32,
}

impl ScrubRecord {
    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }

    /// Of the same scrub, what one that was given up since has added.
    pub fn merge(&mut self, other: &ScrubRecord) {
        match other.last_stamp.cmp(&self.last_stamp) {
            Ordering::Less => {}
            Ordering::Equal => {
                self.shallow_errors = self.shallow_errors.max(other.shallow_errors);
                self.deep_errors = self.deep_errors.max(other.deep_errors);
            }
            Ordering::Greater => *self = *other,
        }
    }
}

impl Encode for ScrubRecord {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.last);
        e.put(&self.last_stamp);
        e.put(&self.last_deep);
        e.put(&self.last_deep_stamp);
        e.put(&self.last_clean_stamp);
        e.u32(self.shallow_errors);
        e.u32(self.deep_errors);
    }
}

impl Decode for ScrubRecord {
    const MIN_LEN: usize = 56;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(ScrubRecord {
            last: d.get()?,
            last_stamp: d.get()?,
            last_deep: d.get()?,
            last_deep_stamp: d.get()?,
            last_clean_stamp: d.get()?,
            shallow_errors: d.u32()?,
            deep_errors: d.u32()?,
        })
    }
}
