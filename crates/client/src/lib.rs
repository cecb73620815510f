//! A librados-like client core: targeting, resending on a new map, commands.
//!
//! A state machine without I/O, like the daemons' cores: `bench`, the tests and
//! the simulator drive it; it works against real Ceph too. It knows no sockets
//! and no frames.
//!
//! Promises:
//! - every request submitted completes exactly once, or stays pending while no
//!   OSD can serve it (deadlines are the caller's);
//! - requests to one object reach its OSD in the order submitted;
//! - a request is resent, with the same tid, whenever its PG's interval changes
//!   or its connection is lost, so that the OSD can tell it from a new one;
//! - a watch is connected again then, and once it is lost it says so, and nothing else.

mod backoff;
mod client;
mod linger;
mod request;
mod target;

pub use client::{Action, Client, ClientConfig, Completion, RequestId};
pub use linger::{NotifyReply, WatchEvent, WatchId};
pub use request::{ObjectRequest, ops};
pub use target::Target;
