//! Images in the trash.

use super::fields;
use base::WallTime;
use bytes::Bytes;

/// `cls::rbd::TrashImageSpec`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrashImageSpec {
    /// Who moved it there: user 0, mirroring 1, migration 2, removing 3, parent of clones 4.
    pub source: u8,
    pub name: Bytes,
    pub deleted_at: WallTime,
    pub keep_until: WallTime,
    /// 0 normal, 1 moving, 2 removing, 3 restoring.
    pub state: u8,
}

impl Default for TrashImageSpec {
    fn default() -> TrashImageSpec {
        let never = WallTime { sec: 0, nsec: 0 };
        TrashImageSpec { source: 0, name: Bytes::new(), deleted_at: never, keep_until: never, state: 0 }
    }
}

fields!(TrashImageSpec, 2, 1: [source, name, deleted_at, keep_until] [state], 2);
