//! What an OSD knows of its copy of a PG, and of the PG's life.
//!
//! Persisted in the PG's meta object whenever peering changes it. What every
//! write changes (`last_update`, the statistics) travels in the log entries
//! instead, so that a write costs one small record; see [`super::log`].
//!
//! Source: Ceph `src/osd/osd_types.h` (`pg_info_t`, `pg_history_t`).

use super::scrub::ScrubRecord;
use crate::exec::StatDelta;
use wire::codec::Result;
use wire::types::{EVersion, Epoch, HObject};
use wire::{Decode, Decoder, Encode, Encoder};

/// Facts about the PG that all its members share sooner or later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    pub created: Epoch,
    /// The PG certainly went active in this epoch; everything acknowledged
    /// before its interval is known to the members of that interval.
    pub last_epoch_started: Epoch,
    /// The first epoch of that interval.
    pub last_interval_started: Epoch,
    pub last_epoch_clean: Epoch,
    pub same_interval_since: Epoch,
    pub same_up_since: Epoch,
    pub same_primary_since: Epoch,
    pub scrub: ScrubRecord,
}

impl History {
    /// Takes over what another member knows better. The `same_*` fields are
    /// each member's own computation.
    pub fn merge(&mut self, other: &History) {
        if self.created == Epoch(0) {
            self.created = other.created;
        }
        self.last_epoch_started = self.last_epoch_started.max(other.last_epoch_started);
        self.last_interval_started = self.last_interval_started.max(other.last_interval_started);
        self.last_epoch_clean = self.last_epoch_clean.max(other.last_epoch_clean);
        self.scrub.merge(&other.scrub);
    }

    fn decode_without_scrubs(d: &mut Decoder) -> Result<History> {
        Ok(History {
            created: d.get()?,
            last_epoch_started: d.get()?,
            last_interval_started: d.get()?,
            last_epoch_clean: d.get()?,
            same_interval_since: d.get()?,
            same_up_since: d.get()?,
            same_primary_since: d.get()?,
            scrub: ScrubRecord::default(),
        })
    }
}

impl Encode for History {
    fn encode(&self, e: &mut Encoder) {
        for epoch in [
            self.created,
            self.last_epoch_started,
            self.last_interval_started,
            self.last_epoch_clean,
            self.same_interval_since,
            self.same_up_since,
            self.same_primary_since,
        ] {
            e.put(&epoch);
        }
        e.put(&self.scrub);
    }
}

impl Decode for History {
    const MIN_LEN: usize = 28 + ScrubRecord::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let history = History::decode_without_scrubs(d)?;
        Ok(History { scrub: d.get()?, ..history })
    }
}

/// Sums over one complete copy.
///
/// Units: objects, bytes, keys. Signed, so that a wrong sum shows instead of wrapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PgSums {
    pub objects: i64,
    pub bytes: i64,
    pub omap_keys: i64,
    pub omap_bytes: i64,
    /// Among the objects.
    pub clones: i64,
}

impl PgSums {
    /// As records held them before there were clones.
    pub fn decode_without_clones(d: &mut Decoder) -> Result<PgSums> {
        let (objects, bytes, omap_keys, omap_bytes) = (d.i64()?, d.i64()?, d.i64()?, d.i64()?);
        Ok(PgSums { objects, bytes, omap_keys, omap_bytes, clones: 0 })
    }

    pub fn add(&mut self, delta: &StatDelta) {
        self.objects += delta.objects;
        self.bytes += delta.bytes;
        self.omap_keys += delta.omap_keys;
        self.omap_bytes += delta.omap_bytes;
        self.clones += delta.clones;
    }
}

impl Encode for PgSums {
    fn encode(&self, e: &mut Encoder) {
        e.i64(self.objects);
        e.i64(self.bytes);
        e.i64(self.omap_keys);
        e.i64(self.omap_bytes);
        e.i64(self.clones);
    }
}

impl Decode for PgSums {
    const MIN_LEN: usize = 40;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let sums = PgSums::decode_without_clones(d)?;
        Ok(PgSums { clones: d.i64()?, ..sums })
    }
}

/// One OSD's copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgInfo {
    /// The newest log entry.
    pub last_update: EVersion,
    /// Entries after this one are in the log; older changes are not.
    pub log_tail: EVersion,
    pub last_user_version: u64,
    /// Objects at or before this one are here, but for the missing set; `max`
    /// for a copy that is not being backfilled.
    pub last_backfill: HObject,
    /// This copy took part in an activation in this epoch, so that its log
    /// holds everything acknowledged before that interval.
    pub last_epoch_started: Epoch,
    pub last_interval_started: Epoch,
    pub sums: PgSums,
    pub missing_count: u64,
    pub history: History,
}

impl Default for PgInfo {
    /// Of a copy that does not exist: nothing is in it, and nothing is missing.
    fn default() -> PgInfo {
        PgInfo {
            last_update: EVersion::ZERO,
            log_tail: EVersion::ZERO,
            last_user_version: 0,
            last_backfill: HObject::max(),
            last_epoch_started: Epoch(0),
            last_interval_started: Epoch(0),
            sums: PgSums::default(),
            missing_count: 0,
            history: History::default(),
        }
    }
}

impl PgInfo {
    /// Being backfilled: not a full copy.
    pub fn is_incomplete(&self) -> bool {
        !self.last_backfill.is_max
    }
}

impl Encode for PgInfo {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.last_update);
        e.put(&self.log_tail);
        e.u64(self.last_user_version);
        e.put(&self.last_backfill);
        e.put(&self.last_epoch_started);
        e.put(&self.last_interval_started);
        e.put(&self.sums);
        e.u64(self.missing_count);
        e.put(&self.history);
    }
}

impl Decode for PgInfo {
    const MIN_LEN: usize = 120 + History::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        PgInfo::decode_with(d, PgSums::decode, History::decode)
    }
}

impl PgInfo {
    /// As stored; the history of before there were scrubs is shorter.
    pub fn from_record(record: bytes::Bytes) -> Result<PgInfo> {
        PgInfo::decode_with(&mut Decoder::plain(record), PgSums::decode, |d| match d.remaining() {
            0..History::MIN_LEN => History::decode_without_scrubs(d),
            _ => d.get(),
        })
    }

    /// From a record of before there were clones.
    pub fn from_old_record(record: bytes::Bytes) -> Result<PgInfo> {
        let mut d = Decoder::plain(record);
        PgInfo::decode_with(&mut d, PgSums::decode_without_clones, History::decode_without_scrubs)
    }

    fn decode_with(
        d: &mut Decoder,
        sums: impl FnOnce(&mut Decoder) -> Result<PgSums>,
        history: impl FnOnce(&mut Decoder) -> Result<History>,
    ) -> Result<PgInfo> {
        Ok(PgInfo {
            last_update: d.get()?,
            log_tail: d.get()?,
            last_user_version: d.u64()?,
            last_backfill: d.get()?,
            last_epoch_started: d.get()?,
            last_interval_started: d.get()?,
            sums: sums(d)?,
            missing_count: d.u64()?,
            history: history(d)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::WallTime;

    fn record(sec: u32, errors: u32) -> ScrubRecord {
        let last_stamp = WallTime { sec, nsec: 0 };
        ScrubRecord { last_stamp, shallow_errors: errors, deep_errors: 2, ..ScrubRecord::default() }
    }

    #[test]
    fn a_record_of_before_there_were_scrubs_is_read() {
        let mut info = PgInfo { last_user_version: 7, missing_count: 3, ..PgInfo::default() };
        info.last_backfill = HObject { name: "o".into(), ..HObject::default() };
        info.history = History { same_primary_since: Epoch(9), scrub: record(5, 1), ..History::default() };
        let mut e = Encoder::plain();
        e.put(&info);
        let new = e.finish();
        assert_eq!(PgInfo::from_record(new.clone()), Ok(info.clone()));
        let old = new.slice(..new.len() - ScrubRecord::MIN_LEN);
        info.history.scrub = ScrubRecord::default();
        assert_eq!(PgInfo::from_record(old.clone()), Ok(info));
        assert!(PgInfo::from_record(old.slice(..old.len() - 1)).is_err());
    }

    #[test]
    fn the_newer_scrub_counts_and_of_one_all_its_errors() {
        let merged = |mine, other| {
            let mut history = History { scrub: mine, ..History::default() };
            history.merge(&History { scrub: other, ..History::default() });
            history.scrub
        };
        assert_eq!(merged(record(5, 1), record(6, 0)), record(6, 0));
        assert_eq!(merged(record(6, 0), record(5, 1)), record(6, 0));
        assert_eq!(merged(record(5, 1), record(5, 0)), record(5, 1));
        assert_eq!(merged(record(5, 0), record(5, 1)), record(5, 1));
    }
}
