//! The real environment: sockets, one device, clocks, signals and randomness
//! of this machine, driven by one thread.
//!
//! [`run`] owns the loop that `env` describes and hands every event to one
//! [`env::Node`]. Two backends give the same semantics: io_uring, and
//! epoll with a few disk threads for hosts that forbid io_uring.
//!
//! It must not know what the bytes mean: no frames, no formats, no daemons.
//! The only crate with unsafe system calls; they live in `sys`, `ring` and `quiet`.
//!
//! Invariants:
//! - The kernel only ever sees memory that stays alive, and in place, until
//!   the request's completion has been reaped, or is known never to come.
//! - A connection's slot is reused only when no request on it is in flight,
//!   and with a new generation: a late completion cannot reach a new
//!   connection, and a [`env::ConnId`] is never handed out twice.
//! - Every connection the node knows ends with exactly one `Closed`, or with
//!   the node's own `close` and then nothing.
//!
//! Sources: io_uring_enter(2), io_uring_setup(2), epoll(7), tcp(7), open(2).

mod clock;
mod connection;
mod core;
mod disk;
mod disk_entry;
mod disk_facts;
mod epoll;
mod input;
mod output;
mod quiet;
mod reactor;
mod read_pool;
mod ring;
mod sys;
mod threads;
mod transfer;
mod world;

pub use disk::{Disk, DiskOpenError, DiskOptions};
pub use disk_facts::{DiskFacts, DiskKind, Finding};
pub use reactor::{Backend, BackendKind, Reactor, ReactorConfig, SetupError, listen, run};
