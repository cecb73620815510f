//! The monitor core: cluster maps, OSD liveness, pools, commands, statistics and
//! health. A state machine without I/O: it is handed messages and the time, and
//! hands out actions; durable state goes through the [`MapStore`] trait.
//!
//! Calling order, as the daemon does it: [`Mon::open`] (or [`Mon::create`] once
//! per cluster); for each event one of the `on_…` methods; then drain
//! [`Mon::poll_action`]; call [`Mon::on_tick`] at [`Mon::next_wake`].

pub mod map_store;
mod mon;
mod options;

pub use map_store::{Batch, MapStore, MapStoreError, MemMapStore};
pub use mon::{Action, Ctx, Mon, MonError};
pub use options::{FailureDomain, MkfsOptions};
