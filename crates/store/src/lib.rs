//! One OSD's object store: objects with data, xattrs and omap, changed by
//! atomic transactions, durable once committed.
//!
//! The rest of the OSD sees only [`ObjectStore`]. [`MemStore`] implements it
//! without a device, for PG tests and as the model the engine is compared with.

pub mod api;
mod check;
pub mod limits;
mod mem;

pub use api::{
    CollId, FetchId, Mutation, ObjectId, ObjectStat, ObjectStore, StoreError, StoreEvent,
    StoreStats, Transaction, TxnId,
};
pub use mem::MemStore;
