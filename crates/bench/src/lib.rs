//! Workloads for a cluster, and what they measured.
//!
//! - [`ObjectSet`]: objects whose contents follow from a seed, the name and the
//!   version, so that every byte read can be checked ([`content`]).
//! - [`Phase`]: a closed loop that keeps a number of requests in flight, and
//!   times them.
//! - [`PhaseResult`], [`table`]: rates, latencies and CPU per operation, as a
//!   table for people and as JSON for programs.
//!
//! Pure: it works on a [`client::Client`] that somebody else connects, is told
//! the time, and draws from a seed. It knows no sockets, files or processes.

pub mod content;
mod latency;
mod object_set;
mod phase;
mod result;
mod size_mix;
pub mod table;

pub use latency::Latency;
pub use object_set::ObjectSet;
pub use phase::{Limit, Now, Phase, PhaseSpec, Plan};
pub use result::{LatencySummary, PhaseResult};
pub use size_mix::SizeMix;
