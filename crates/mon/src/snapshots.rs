//! Snapshots: their ids, and those that are being removed.
//!
//! A pool has snapshots of its own (by name, for all its objects), or its clients keep
//! track of theirs and the pool only hands out ids; never both. A removed snapshot is
//! in the map's `removed_snaps_queue` until every PG of the pool has trimmed it; after
//! that it is in [`Core::purged_snaps`], for ever. Clients remove snapshots again, when
//! they get no answer or retry half a removal, and only the first time may take effect.
//!
//! Source: Ceph `src/mon/OSDMonitor.cc` (`preprocess_pool_op`, `prepare_pool_op`,
//! `_is_removed_snap`, `try_prune_purged_snaps`).

use crate::commands::{Failure, fail};
use crate::core::{Core, Turn};
use crate::keys;
use base::Errno;
use wire::codec::Encode;
use wire::features::Features;
use wire::maps::{PoolFlags, PoolSnapInfo};
use wire::types::{IntervalSet, PgId, PoolId, SnapId};

impl Core {
    /// A snapshot of the whole pool, by name.
    pub fn create_pool_snap(&mut self, turn: &Turn, id: PoolId, name: &str) -> Result<SnapId, Failure> {
        let Some(pool) = self.osd.map().pool(id) else { return fail(Errno::ENOENT, "no such pool") };
        if pool.flags.contains(PoolFlags::SELFMANAGED_SNAPS) {
            let text =
                format!("pool {} is in unmanaged snaps mode", self.osd.map().pool_name(id).unwrap_or("?"));
            return fail(Errno::EINVAL, text);
        }
        if pool.snap_by_name(name).is_some() {
            return fail(Errno::EEXIST, format!("snap {name} already exists"));
        }
        let (epoch, stamp) = (self.osd.epoch().next(), turn.wall);
        let Some(pool) = self.osd.pool_mut(id) else { return fail(Errno::ENOENT, "no such pool") };
        let snapid = SnapId(pool.snap_seq.0 + 1);
        pool.flags.insert(PoolFlags::POOL_SNAPS);
        pool.snap_seq = snapid;
        pool.snap_epoch = epoch;
        pool.snaps.insert(snapid, PoolSnapInfo { snapid, stamp, name: name.to_string() });
        Ok(snapid)
    }

    pub fn remove_pool_snap(&mut self, id: PoolId, name: &str) -> Result<(), Failure> {
        let found = self.osd.map().pool(id).and_then(|p| p.snap_by_name(name)).map(|s| s.snapid);
        let Some(snapid) = found else { return fail(Errno::ENOENT, format!("snap {name} does not exist")) };
        let epoch = self.osd.epoch().next();
        if let Some(pool) = self.osd.pool_mut(id) {
            pool.snaps.remove(&snapid);
            // As Ceph's: contexts of before the removal are older than those after it.
            pool.snap_seq.0 += 1;
            pool.snap_epoch = epoch;
        }
        self.queue_removed_snap(id, snapid);
        Ok(())
    }

    fn queue_removed_snap(&mut self, id: PoolId, snap: SnapId) {
        let removed: &mut IntervalSet = self.osd.pending().new_removed_snaps.entry(id).or_default();
        removed.insert(snap.0, 1);
    }

    /// An id for a snapshot that the client keeps track of itself.
    pub fn create_unmanaged_snap(&mut self, id: PoolId) -> Result<SnapId, Failure> {
        let Some(pool) = self.osd.map().pool(id) else { return fail(Errno::ENOENT, "no such pool") };
        if pool.flags.contains(PoolFlags::POOL_SNAPS) {
            return fail(Errno::EINVAL, "the pool has snapshots of its own");
        }
        let epoch = self.osd.epoch().next();
        let Some(pool) = self.osd.pool_mut(id) else { return fail(Errno::ENOENT, "no such pool") };
        pool.flags.insert(PoolFlags::SELFMANAGED_SNAPS);
        // As Ceph's, the first is 2.
        let snapid = SnapId(pool.snap_seq.0.max(1) + 1);
        pool.snap_seq = snapid;
        pool.snap_epoch = epoch;
        Ok(snapid)
    }

    pub fn remove_unmanaged_snap(&mut self, id: PoolId, snap: SnapId) -> Result<(), Failure> {
        let Some(pool) = self.osd.map().pool(id) else { return fail(Errno::ENOENT, "no such pool") };
        if pool.flags.contains(PoolFlags::POOL_SNAPS) {
            return fail(Errno::EINVAL, "the pool has snapshots of its own");
        }
        if self.is_removed_snap(id, snap) {
            return Ok(());
        }
        if !pool.flags.contains(PoolFlags::SELFMANAGED_SNAPS) {
            return fail(Errno::EOPNOTSUPP, "the pool has no snapshots");
        }
        if snap > pool.snap_seq {
            return fail(Errno::ENOENT, "no such snapshot");
        }
        let epoch = self.osd.epoch().next();
        let Some(pool) = self.osd.pool_mut(id) else { return fail(Errno::ENOENT, "no such pool") };
        pool.snap_seq.0 += 1;
        pool.snap_epoch = epoch;
        // The number that the removal takes is nobody's: with it the purged ids are few ranges.
        let taken = pool.snap_seq;
        self.queue_removed_snap(id, snap);
        self.note_purged(id, |purged| purged.insert(taken.0, 1));
        Ok(())
    }

    fn is_removed_snap(&self, id: PoolId, snap: SnapId) -> bool {
        [self.osd.map().removed_snaps_queue.get(&id), self.purged_snaps.get(&id)]
            .iter()
            .flatten()
            .any(|snaps| snaps.contains(snap.0))
    }

    /// Durable with the epoch that is pending.
    fn note_purged(&mut self, id: PoolId, add: impl FnOnce(&mut IntervalSet)) {
        let purged = self.purged_snaps.entry(id).or_default();
        add(purged);
        self.writes.put(keys::purged_snaps(id), purged.to_bytes(Features::ALL));
    }

    /// With its pool go the notes of its snapshots; a pool's id is never used again.
    pub fn forget_purged_snaps(&mut self, id: PoolId) {
        if self.purged_snaps.remove(&id).is_some() {
            self.writes.remove(keys::purged_snaps(id));
        }
    }

    /// Snapshots that every PG of their pool has trimmed leave the queue.
    pub fn purge_snaps(&mut self) {
        let mut all_purged = Vec::new();
        for (id, queue) in &self.osd.map().removed_snaps_queue {
            let Some(pool) = self.osd.map().pool(*id) else { continue };
            let mut purged = queue.clone();
            for seed in 0..pool.pg_num {
                let report = self.pgs.pg(PgId { pool: *id, seed });
                purged = report.map_or(IntervalSet::new(), |pg| purged.intersection(&pg.report.purged_snaps));
                if purged.is_empty() {
                    break;
                }
            }
            if !purged.is_empty() {
                all_purged.push((*id, purged));
            }
        }
        for (id, purged) in all_purged {
            self.note_purged(id, |known| purged.iter().for_each(|(start, len)| known.insert(start, len)));
            self.osd.pending().new_purged_snaps.insert(id, purged);
        }
    }
}
