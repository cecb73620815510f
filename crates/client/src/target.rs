//! Which PG and OSD a request goes to under one map.

use crate::request::ObjectRequest;
use crush::CrushMap;
use crush::placement::{UpActing, pg_to_up_acting};
use wire::maps::{OsdMap, placement_hash};
use wire::types::{OsdId, PgId};

/// A request's place under one map. Two maps with equal targets have the PG in
/// the same interval as far as a client can tell, so nothing need be resent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub raw_hash: u32,
    pub pg: PgId,
    pub up_acting: UpActing,
    pub size: u8,
    pub min_size: u8,
    pub pg_num: u32,
}

impl Target {
    /// `None` when the pool does not exist.
    pub fn calc(map: &OsdMap, crush: &CrushMap, request: &ObjectRequest) -> Option<Target> {
        let pool = map.pool(request.locator.pool)?;
        let (raw_hash, pg) = match request.pg {
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
        })
    }

    /// The OSD to send to, if any is up.
    pub fn primary(&self) -> Option<OsdId> {
        self.up_acting.acting_primary
    }
}
