//! What our OSDs tell our monitor.
//!
//! No client sees these, so they are our own: they travel in msgr2 frames like
//! Ceph's, with kinds from 0x4c00 on, and follow no Ceph format.

use super::Payload;
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::types::{EVersion, EntityAddrVec, Epoch, IntervalSet, OsdId, PgId, Uuid};
use base::WallTime;
use bytes::Bytes;
use std::collections::BTreeMap;

/// An OSD has started and wants to be marked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdBoot {
    pub fsid: Uuid,
    pub osd: OsdId,
    /// The store's own identity: a number taken over by another store is refused.
    pub uuid: Uuid,
    pub client_addrs: EntityAddrVec,
    pub cluster_addrs: EntityAddrVec,
    pub hb_addrs: EntityAddrVec,
    /// The newest map the OSD has.
    pub epoch: Epoch,
    /// Device size, for the CRUSH weight of an OSD seen for the first time.
    pub total_bytes: u64,
    /// For `ceph osd metadata`: hostname, device class, version, ….
    pub metadata: BTreeMap<String, String>,
}

impl Payload for MOsdBoot {
    const KIND: u16 = 0x4c00;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.osd);
        e.put(&self.uuid);
        e.put(&self.client_addrs);
        e.put(&self.cluster_addrs);
        e.put(&self.hb_addrs);
        e.put(&self.epoch);
        e.u64(self.total_bytes);
        e.put(&self.metadata);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdBoot {
            fsid: d.get()?,
            osd: d.get()?,
            uuid: d.get()?,
            client_addrs: d.get()?,
            cluster_addrs: d.get()?,
            hb_addrs: d.get()?,
            epoch: d.get()?,
            total_bytes: d.u64()?,
            metadata: d.get()?,
        })
    }
}

/// How the reporter knows that its peer is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// Its port refuses connections: the process is dead, so it can serve
    /// nothing more. One reporter is enough.
    Refused,
    /// No heartbeat for this long; it may be alive behind a broken network.
    Silent { for_ms: u32 },
    /// Heartbeats arrive again: an earlier report is withdrawn.
    Recovered,
}

/// A peer does not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdFailure {
    pub fsid: Uuid,
    pub reporter: OsdId,
    pub failed: OsdId,
    /// The life of `failed` that is meant: its `up_from` epoch.
    pub up_from: Epoch,
    /// The reporter's map.
    pub epoch: Epoch,
    pub kind: FailureKind,
}

impl Payload for MOsdFailure {
    const KIND: u16 = 0x4c01;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.reporter);
        e.put(&self.failed);
        e.put(&self.up_from);
        e.put(&self.epoch);
        let (kind, ms) = match self.kind {
            FailureKind::Refused => (0, 0),
            FailureKind::Silent { for_ms } => (1, for_ms),
            FailureKind::Recovered => (2, 0),
        };
        e.u8(kind);
        e.u32(ms);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdFailure {
            fsid: d.get()?,
            reporter: d.get()?,
            failed: d.get()?,
            up_from: d.get()?,
            epoch: d.get()?,
            kind: match (d.u8()?, d.u32()?) {
                (0, _) => FailureKind::Refused,
                (1, for_ms) => FailureKind::Silent { for_ms },
                (2, _) => FailureKind::Recovered,
                _ => return Err(DecodeError::Invalid { what: "failure kind" }),
            },
        })
    }
}

/// A primary asks the monitor to record that it was up through `want`
/// (`up_thru`) before it accepts writes in the interval that began there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdAlive {
    pub osd: OsdId,
    pub epoch: Epoch,
    pub want: Epoch,
}

impl Payload for MOsdAlive {
    const KIND: u16 = 0x4c02;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.osd);
        e.put(&self.epoch);
        e.put(&self.want);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdAlive { osd: d.get()?, epoch: d.get()?, want: d.get()? })
    }
}

/// Acting sets that primaries want instead of CRUSH's answer while data moves;
/// an empty list removes one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdPgTemp {
    pub osd: OsdId,
    pub epoch: Epoch,
    pub pgs: BTreeMap<PgId, Vec<OsdId>>,
}

impl Payload for MOsdPgTemp {
    const KIND: u16 = 0x4c03;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.osd);
        e.put(&self.epoch);
        e.put(&self.pgs);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdPgTemp { osd: d.get()?, epoch: d.get()?, pgs: d.get()? })
    }
}

/// The OSD is stopping on purpose: mark it down now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdGoingDown {
    pub osd: OsdId,
    pub up_from: Epoch,
}

impl Payload for MOsdGoingDown {
    const KIND: u16 = 0x4c04;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.osd);
        e.put(&self.up_from);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdGoingDown { osd: d.get()?, up_from: d.get()? })
    }
}

/// PG states as bits, with the names that `ceph pg stat` prints joined by `+`.
///
/// Source: Ceph `src/osd/osd_types.h` (`PG_STATE_*`).
pub mod pg_state {
    pub const CREATING: u64 = 1 << 0;
    pub const ACTIVE: u64 = 1 << 1;
    pub const CLEAN: u64 = 1 << 2;
    pub const DOWN: u64 = 1 << 4;
    pub const RECOVERY_UNFOUND: u64 = 1 << 5;
    pub const BACKFILL_UNFOUND: u64 = 1 << 6;
    pub const PREMERGE: u64 = 1 << 7;
    pub const SCRUBBING: u64 = 1 << 8;
    pub const DEGRADED: u64 = 1 << 10;
    pub const INCONSISTENT: u64 = 1 << 11;
    pub const PEERING: u64 = 1 << 12;
    pub const REPAIR: u64 = 1 << 13;
    pub const RECOVERING: u64 = 1 << 14;
    pub const BACKFILL_WAIT: u64 = 1 << 15;
    pub const INCOMPLETE: u64 = 1 << 16;
    pub const STALE: u64 = 1 << 17;
    pub const REMAPPED: u64 = 1 << 18;
    pub const DEEP: u64 = 1 << 19;
    pub const BACKFILLING: u64 = 1 << 20;
    pub const BACKFILL_TOOFULL: u64 = 1 << 21;
    pub const RECOVERY_WAIT: u64 = 1 << 22;
    pub const UNDERSIZED: u64 = 1 << 23;
    pub const ACTIVATING: u64 = 1 << 24;
    pub const PEERED: u64 = 1 << 25;
    pub const SNAPTRIM: u64 = 1 << 26;
    pub const SNAPTRIM_WAIT: u64 = 1 << 27;
    pub const RECOVERY_TOOFULL: u64 = 1 << 28;
    pub const SNAPTRIM_ERROR: u64 = 1 << 29;
    pub const FORCED_RECOVERY: u64 = 1 << 30;
    pub const FORCED_BACKFILL: u64 = 1 << 31;
    pub const FAILED_REPAIR: u64 = 1 << 32;
    pub const LAGGY: u64 = 1 << 33;
    pub const WAIT: u64 = 1 << 34;

    /// Printing order, as Ceph's `pg_state_string`.
    const NAMES: &[(u64, &str)] = &[
        (STALE, "stale"),
        (CREATING, "creating"),
        (ACTIVE, "active"),
        (ACTIVATING, "activating"),
        (CLEAN, "clean"),
        (RECOVERY_WAIT, "recovery_wait"),
        (RECOVERY_TOOFULL, "recovery_toofull"),
        (RECOVERING, "recovering"),
        (FORCED_RECOVERY, "forced_recovery"),
        (DOWN, "down"),
        (RECOVERY_UNFOUND, "recovery_unfound"),
        (BACKFILL_UNFOUND, "backfill_unfound"),
        (UNDERSIZED, "undersized"),
        (DEGRADED, "degraded"),
        (REMAPPED, "remapped"),
        (PREMERGE, "premerge"),
        (SCRUBBING, "scrubbing"),
        (DEEP, "deep"),
        (INCONSISTENT, "inconsistent"),
        (PEERING, "peering"),
        (REPAIR, "repair"),
        (BACKFILL_WAIT, "backfill_wait"),
        (BACKFILLING, "backfilling"),
        (FORCED_BACKFILL, "forced_backfill"),
        (BACKFILL_TOOFULL, "backfill_toofull"),
        (INCOMPLETE, "incomplete"),
        (PEERED, "peered"),
        (SNAPTRIM, "snaptrim"),
        (SNAPTRIM_WAIT, "snaptrim_wait"),
        (SNAPTRIM_ERROR, "snaptrim_error"),
        (FAILED_REPAIR, "failed_repair"),
        (LAGGY, "laggy"),
        (WAIT, "wait"),
    ];

    /// `active+clean`, `unknown` for none.
    pub fn text(state: u64) -> String {
        let names: Vec<&str> =
            NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect();
        if names.is_empty() { "unknown".into() } else { names.join("+") }
    }

    /// The bit of one name, as `ceph pg ls STATE` takes it.
    pub fn from_name(name: &str) -> Option<u64> {
        NAMES.iter().find(|(_, n)| *n == name).map(|(bit, _)| *bit)
    }
}

/// What the primary of a PG reports of it.
///
/// Units: counts of objects and bytes held by one copy; operation counters
/// grow from the PG's creation as far as its primaries remember.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PgReport {
    pub pg: PgId,
    /// [`pg_state`] bits.
    pub state: u64,
    pub version: EVersion,
    pub reported_epoch: Epoch,
    pub reported_seq: u64,
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub up_primary: OsdId,
    pub acting_primary: OsdId,
    pub log_start: EVersion,
    pub log_entries: u64,
    pub created: Epoch,
    pub last_epoch_clean: Epoch,
    pub last_epoch_started: Epoch,
    pub same_interval_since: Epoch,
    pub last_active: WallTime,
    pub last_clean: WallTime,
    pub last_change: WallTime,
    pub last_scrub: EVersion,
    pub last_scrub_stamp: WallTime,
    pub last_deep_scrub: EVersion,
    pub last_deep_scrub_stamp: WallTime,
    pub objects: u64,
    pub clones: u64,
    pub copies: u64,
    pub missing_on_primary: u64,
    pub degraded: u64,
    pub misplaced: u64,
    pub unfound: u64,
    pub bytes: u64,
    pub omap_bytes: u64,
    pub omap_keys: u64,
    pub reads: u64,
    pub read_kib: u64,
    pub writes: u64,
    pub write_kib: u64,
    pub objects_recovered: u64,
    pub bytes_recovered: u64,
    pub keys_recovered: u64,
    /// OSDs that peering waits for.
    pub blocked_by: Vec<OsdId>,
    /// Removed snapshots whose clones may still be there.
    pub snap_trim_queue_len: u64,
    /// Removed snapshots of the map's queue that have no clones on any member.
    pub purged_snaps: IntervalSet,
    /// Errors that the last scrubs found and that are not repaired: of what a light scrub sees,
    pub shallow_scrub_errors: u64,
    /// and of data and omap.
    pub deep_scrub_errors: u64,
    pub last_clean_scrub_stamp: WallTime,
}

impl Encode for PgReport {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(3, 1, |e| {
            e.put(&self.pg);
            e.u64(self.state);
            e.put(&self.version);
            e.put(&self.reported_epoch);
            e.u64(self.reported_seq);
            e.put(&self.up);
            e.put(&self.acting);
            e.put(&self.up_primary);
            e.put(&self.acting_primary);
            e.put(&self.log_start);
            e.u64(self.log_entries);
            e.put(&self.created);
            e.put(&self.last_epoch_clean);
            e.put(&self.last_epoch_started);
            e.put(&self.same_interval_since);
            e.put(&self.last_active);
            e.put(&self.last_clean);
            e.put(&self.last_change);
            e.put(&self.last_scrub);
            e.put(&self.last_scrub_stamp);
            e.put(&self.last_deep_scrub);
            e.put(&self.last_deep_scrub_stamp);
            for count in [
                self.objects,
                self.clones,
                self.copies,
                self.missing_on_primary,
                self.degraded,
                self.misplaced,
                self.unfound,
                self.bytes,
                self.omap_bytes,
                self.omap_keys,
                self.reads,
                self.read_kib,
                self.writes,
                self.write_kib,
                self.objects_recovered,
                self.bytes_recovered,
                self.keys_recovered,
            ] {
                e.u64(count);
            }
            e.put(&self.blocked_by);
            e.u64(self.snap_trim_queue_len);
            e.put(&self.purged_snaps);
            e.u64(self.shallow_scrub_errors);
            e.u64(self.deep_scrub_errors);
            e.put(&self.last_clean_scrub_stamp);
        });
    }
}

impl Decode for PgReport {
    const MIN_LEN: usize = 6 + 300;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("PgReport", 3, |d, version| {
            Ok(PgReport {
                pg: d.get()?,
                state: d.u64()?,
                version: d.get()?,
                reported_epoch: d.get()?,
                reported_seq: d.u64()?,
                up: d.get()?,
                acting: d.get()?,
                up_primary: d.get()?,
                acting_primary: d.get()?,
                log_start: d.get()?,
                log_entries: d.u64()?,
                created: d.get()?,
                last_epoch_clean: d.get()?,
                last_epoch_started: d.get()?,
                same_interval_since: d.get()?,
                last_active: d.get()?,
                last_clean: d.get()?,
                last_change: d.get()?,
                last_scrub: d.get()?,
                last_scrub_stamp: d.get()?,
                last_deep_scrub: d.get()?,
                last_deep_scrub_stamp: d.get()?,
                objects: d.u64()?,
                clones: d.u64()?,
                copies: d.u64()?,
                missing_on_primary: d.u64()?,
                degraded: d.u64()?,
                misplaced: d.u64()?,
                unfound: d.u64()?,
                bytes: d.u64()?,
                omap_bytes: d.u64()?,
                omap_keys: d.u64()?,
                reads: d.u64()?,
                read_kib: d.u64()?,
                writes: d.u64()?,
                write_kib: d.u64()?,
                objects_recovered: d.u64()?,
                bytes_recovered: d.u64()?,
                keys_recovered: d.u64()?,
                blocked_by: d.get()?,
                snap_trim_queue_len: if version >= 2 { d.u64()? } else { 0 },
                purged_snaps: if version >= 2 { d.get()? } else { IntervalSet::new() },
                shallow_scrub_errors: if version >= 3 { d.u64()? } else { 0 },
                deep_scrub_errors: if version >= 3 { d.u64()? } else { 0 },
                last_clean_scrub_stamp: if version >= 3 { d.get()? } else { WallTime::ZERO },
            })
        })
    }
}

/// One OSD's own figures.
///
/// Units: bytes; latencies in microseconds, as `ceph osd perf` shows ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OsdLoad {
    pub total: u64,
    pub available: u64,
    pub data: u64,
    pub omap: u64,
    pub internal: u64,
    pub pgs: u64,
    pub commit_latency_us: u64,
    /// Operations under way for longer than the complaint time.
    pub slow_ops: u64,
    pub oldest_op_ms: u64,
}

/// Periodic report: sent once a second while anything changes, else every five.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdReport {
    pub fsid: Uuid,
    pub osd: OsdId,
    pub epoch: Epoch,
    pub load: OsdLoad,
    /// PGs this OSD is primary of and whose report changed.
    pub pgs: Vec<PgReport>,
    /// Heartbeat peers, for `ceph pg dump osds`.
    pub hb_peers: Vec<OsdId>,
}

impl Payload for MOsdReport {
    const KIND: u16 = 0x4c05;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.osd);
        e.put(&self.epoch);
        let l = &self.load;
        for figure in [
            l.total,
            l.available,
            l.data,
            l.omap,
            l.internal,
            l.pgs,
            l.commit_latency_us,
            l.slow_ops,
            l.oldest_op_ms,
        ] {
            e.u64(figure);
        }
        e.put(&self.pgs);
        e.put(&self.hb_peers);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdReport {
            fsid: d.get()?,
            osd: d.get()?,
            epoch: d.get()?,
            load: OsdLoad {
                total: d.u64()?,
                available: d.u64()?,
                data: d.u64()?,
                omap: d.u64()?,
                internal: d.u64()?,
                pgs: d.u64()?,
                commit_latency_us: d.u64()?,
                slow_ops: d.u64()?,
                oldest_op_ms: d.u64()?,
            },
            pgs: d.get()?,
            hb_peers: d.get()?,
        })
    }
}
