//! The monitor driven from outside, on a map store in memory.

mod blocklist;
mod commands;
mod harness;
mod hostile;
mod liveness;
mod sessions;
mod snapshots;
