//! The monitor core: cluster maps, OSD liveness, pools, commands, statistics and
//! health. A state machine without I/O: it is handed messages and the time, and
//! hands out actions; durable state goes through the [`MapStore`] trait.

pub mod map_store;

pub use map_store::{Batch, MapStore, MapStoreError, MemMapStore};
