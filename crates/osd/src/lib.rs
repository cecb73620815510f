//! The OSD core: placement groups, their logs, replication, peering, recovery,
//! and the execution of client operations. A state machine without I/O: it is
//! handed messages, store events and the time, and hands out actions. It knows
//! no sockets, no frames and no device; `daemon` connects it to them.
//!
//! - `exec`: what one client request does to one object; pure.
//! - `pg`: one placement group: ordering, log, replication, peering, recovery.
//! - `osd`: all PGs of one daemon, its maps, its peers, its reports.
//! - `peer`: what OSDs say to each other.
//!
//! Design: `docs/design/0001-peering.md`. Protocol: `docs/protocol/osd-peer.md`.

mod action;
mod blocklist;
mod config;
pub mod exec;
mod heartbeat;
mod maps;
mod osd;
pub mod peer;
pub mod pg;
mod shared;
mod space;

pub use action::{Action, Channel, Ctx, DownReason};
pub use config::{OsdConfig, Sabotage};
pub use maps::{MapError, Maps, Placement};
pub use osd::Osd;
pub use shared::Counters;
