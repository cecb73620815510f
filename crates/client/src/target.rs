//! Which PG and OSD a request goes to under one map.

use crate::request::ObjectRequest;
use crush::CrushMap;
use crush::placement::{UpActing, pg_to_up_acting};
use wire::maps::{OsdMap, OsdMapFlags, placement_hash};
use wire::types::{Epoch, OsdId, PgId};

/// A request's place under one map. Two successive maps with equal targets
/// have the PG in the same interval as far as a client can tell, so nothing
/// need be resent.
///
/// Source: Ceph 16.2.15 `src/osd/osd_types.cc` (`PastIntervals::is_new_interval`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub raw_hash: u32,
    pub pg: PgId,
    pub up_acting: UpActing,
    pub size: u8,
    pub min_size: u8,
    pub pg_num: u32,
    pub pg_num_pending: u32,
    /// The monitor's way to make clients resend without a new placement.
    pub force_resend: Epoch,
    /// Flags whose change makes a new interval.
    pub interval_flags: OsdMapFlags,
}

impl Target {
    /// `None` when the pool, or the PG asked for, does not exist.
    pub fn calc(map: &OsdMap, crush: &CrushMap, request: &ObjectRequest) -> Option<Target> {
        let pool = map.pool(request.locator.pool)?;
        let (raw_hash, pg) = match request.pg {
            Some(pg) if pg.pool != request.locator.pool || pg.seed >= pool.pg_num => return None,
            Some(pg) => (pg.seed, pg),
            None => {
                let hash = placement_hash(&request.locator, &request.object);
                (hash, pool.raw_hash_to_pg(request.locator.pool, hash))
            }
        };
        Some(Target {
            raw_hash,
            pg,
            up_acting: pg_to_up_acting(map, crush, pg),
            size: pool.size,
            min_size: pool.min_size,
            pg_num: pool.pg_num,
            pg_num_pending: pool.pg_num_pending,
            force_resend: pool.last_force_op_resend,
            interval_flags: map.flags & (OsdMapFlags::SORTBITWISE | OsdMapFlags::RECOVERY_DELETES),
        })
    }

    /// The OSD to send to, if any is up.
    pub fn primary(&self) -> Option<OsdId> {
        self.up_acting.acting_primary
    }
}
