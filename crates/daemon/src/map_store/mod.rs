//! Durable map stores for the monitor.

mod redb;

pub use redb::RedbMapStore;
