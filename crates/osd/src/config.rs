//! What an OSD is told when it starts.

use base::Duration;
use std::collections::BTreeMap;
use wire::types::{EntityAddrVec, OsdId, Uuid};

/// Shape:   durations as related by [`OsdConfig::assert_sane`].
#[derive(Clone, Debug)]
pub struct OsdConfig {
    pub fsid: Uuid,
    pub whoami: OsdId,
    /// The store's identity.
    pub uuid: Uuid,
    /// Where clients reach us; carries this life's nonce.
    pub client_addrs: EntityAddrVec,
    /// Where other OSDs reach us.
    pub cluster_addrs: EntityAddrVec,
    pub hb_addrs: EntityAddrVec,
    /// For `ceph osd metadata`: hostname, ceph_version, ….
    pub metadata: BTreeMap<String, String>,
    /// The version that `ceph tell osd.N version` shows.
    pub version: String,

    pub heartbeat_interval: Duration,
    /// A peer silent for this long is reported.
    pub heartbeat_grace: Duration,
    /// How long a primary may serve reads after a replica granted a lease.
    pub lease: Duration,
    /// How long the granting replica keeps its promise: longer than `lease`, so
    /// that clocks that drift a little and delays in processing do no harm.
    pub lease_promise: Duration,
    /// What is unanswered for this long is sent again.
    pub retry_interval: Duration,
    /// At least this often to the monitor.
    pub report_interval: Duration,

    /// Recoverable log entries kept per PG.
    pub log_entries_max: usize,
    /// Older entries kept only to recognise duplicates.
    pub log_dups_max: usize,
    /// Entries removed at once.
    pub log_trim_batch: usize,

    /// Objects being recovered or backfilled at once.
    pub recovery_ops_max: usize,
    /// Clones being trimmed at once in one PG (`osd_pg_max_concurrent_snap_trims`), and in all.
    pub snap_trims_per_pg_max: usize,
    pub snap_trims_max: usize,
    /// Between two scrubs of a PG, at least (`osd_scrub_min_interval`, `osd_deep_scrub_interval`).
    pub scrub_interval: Duration,
    pub deep_scrub_interval: Duration,
    /// Between looks for a PG that is due.
    pub scrub_look_interval: Duration,
    /// What a scrub waits for at most before it is given up.
    pub scrub_patience: Duration,
    /// PGs that are looked at for other OSDs' scrubs at once. Of its own PGs, each scrubs one at a time.
    pub scrub_scans_max: usize,
    /// Repairs what it finds where some copy is proved right (`osd_scrub_auto_repair`).
    pub scrub_auto_repair: bool,
    /// Bytes of one recovery message.
    pub recovery_chunk_len: u64,
    /// Bytes of client requests held at once (waiting or in flight).
    pub client_bytes_max: u64,
    /// Client requests held at once.
    pub client_ops_max: usize,
    /// Bytes of input in one request (`osd_max_write_size`).
    pub write_len_max: u64,
    /// Requests taking longer count as slow.
    pub complaint_time: Duration,

    pub sabotage: Sabotage,
}

/// Deliberate bugs, so that the simulator can show that its checkers see them.
/// Never set outside tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sabotage {
    /// Acknowledges a write before anything is durable.
    pub ack_before_commit: bool,
    /// Executes a resent request again.
    pub skip_dup_check: bool,
    /// Accepts replication messages of any interval.
    pub ignore_interval_check: bool,
    /// Serves reads without a lease.
    pub ignore_lease: bool,
    /// Trimming takes a clone with all its snapshots where one of them was removed.
    pub trim_too_much: bool,
    /// What is recovered is made from whatever its receiver has in the place of the base.
    pub share_unchecked: bool,
    /// Looks whether a client is on the blocklist when its request arrives, and not when it runs.
    pub fence_arrivals_only: bool,
    /// Serves clients that are on the blocklist.
    pub ignore_fence: bool,
    /// Taking a lock does not look at who holds it.
    pub ignore_lock_holders: bool,
    /// A primary does not learn of the watches that are recorded with an object.
    pub forget_watches: bool,
    /// A watch goes on however long its client has been silent.
    pub keep_silent_watches: bool,
    /// A notification is complete as soon as it is sent.
    pub notify_without_waiting: bool,
    /// A scrub overlooks what is wrong with clones.
    pub scrub_skips_clones: bool,
    /// A scrub compares objects while they are written to.
    pub scrub_without_hold: bool,
}

impl OsdConfig {
    pub fn new(fsid: Uuid, whoami: OsdId, uuid: Uuid) -> OsdConfig {
        OsdConfig {
            fsid,
            whoami,
            uuid,
            client_addrs: EntityAddrVec::default(),
            cluster_addrs: EntityAddrVec::default(),
            hb_addrs: EntityAddrVec::default(),
            metadata: BTreeMap::new(),
            version: String::new(),
            heartbeat_interval: Duration::from_millis(300),
            heartbeat_grace: Duration::from_millis(1200),
            lease: Duration::from_millis(800),
            lease_promise: Duration::from_millis(1000),
            retry_interval: Duration::from_millis(500),
            report_interval: Duration::from_secs(1),
            log_entries_max: 2000,
            log_dups_max: 1000,
            log_trim_batch: 100,
            recovery_ops_max: 16,
            snap_trims_per_pg_max: 2,
            snap_trims_max: 16,
            scrub_interval: Duration::from_secs(24 * 3600),
            deep_scrub_interval: Duration::from_secs(7 * 24 * 3600),
            scrub_look_interval: Duration::from_secs(1),
            scrub_patience: Duration::from_secs(30),
            scrub_scans_max: 2,
            scrub_auto_repair: true,
            recovery_chunk_len: 4 << 20,
            client_bytes_max: 500 << 20,
            client_ops_max: 10_000,
            write_len_max: 90 << 20,
            complaint_time: Duration::from_secs(30),
            sabotage: Sabotage::default(),
        }
    }

    /// The relations that safety and liveness rest on.
    pub fn assert_sane(&self) {
        assert!(self.lease < self.lease_promise);
        assert!(self.heartbeat_interval * 2 < self.lease);
        assert!(self.heartbeat_interval < self.heartbeat_grace);
        assert!(self.log_entries_max > 0 && self.log_trim_batch > 0);
        assert!(self.recovery_ops_max > 0 && self.recovery_chunk_len > 0);
        assert!(self.scrub_scans_max > 0);
    }
}
