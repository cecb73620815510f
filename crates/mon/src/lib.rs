//! The monitor core: cluster maps, OSD liveness, pools, commands, statistics and
//! health. A state machine without I/O: it is handed messages and the time, and
//! hands out actions; durable state goes through the [`MapStore`] trait.
//!
//! Calling order, as the daemon does it: [`Mon::open`] (or [`Mon::create`] once
//! per cluster); for each event one of the `on_…` methods; then drain
//! [`Mon::poll_action`]; call [`Mon::on_tick`] at [`Mon::next_wake`].
//!
//! What it must not know: sockets and frames (peers are [`wire::messages::SessionId`]s),
//! which map store it runs on, what the time is but for what it is told.

mod cluster_log;
mod commands;
mod config_options;
mod config_store;
mod core;
mod format;
mod fs_maps;
mod fullness;
mod health;
mod keys;
mod liveness;
pub mod map_store;
mod mkfs;
mod mon;
mod options;
mod osd_maps;
mod pg_map;
mod pools;
mod serde_bridge;
mod sessions;
mod snapshots;
mod subscriptions;
#[cfg(test)]
mod tests;

pub use crush::FailureDomain;
pub use map_store::{Batch, MapStore, MapStoreError, MemMapStore};
pub use mon::{Action, Ctx, Mon, MonError};
pub use options::MkfsOptions;
