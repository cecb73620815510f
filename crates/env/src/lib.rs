//! What a daemon may ask of the world, and what the world tells it.
//!
//! A daemon is a [`Node`]: one owner of all its state, driven by one thread,
//! one event at a time. It acts only through the [`Env`] it is handed. `uring`
//! implements both for real sockets, devices and clocks; `sim` implements them
//! for a whole cluster on one thread from one seed. Nothing else may open a
//! socket, touch a device or read a clock.
//!
//! The driver's loop:
//!
//! 1. gather every event that is ready;
//! 2. [`Node::on_event`] for each, in order per connection and per disk queue;
//! 3. [`Node::on_batch_end`] once. Group commit lives here: whatever the batch
//!    queued leaves as one device write, and each socket gets one send;
//! 4. sleep until an event or until [`Node::next_wake`].

use base::{MemoryUse, Random, Time, WallTime};
use bytes::Bytes;
use std::net::SocketAddr;

pub mod disk;
pub use disk::{DiskError, DiskInfo, DiskOp, DiskRequest, DiskResult, read_into};

/// One TCP connection of this process. Never reused within a process's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnId(pub u64);

/// One listening socket, numbered in the order the driver was given them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListenerId(pub u32);

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The peer closed, or reset, an established connection.
    Peer,
    /// The dial was answered by a reset: nothing listens there, so on the same
    /// host and port the process is gone for certain.
    Refused,
    /// The dial got no answer in time, or the path is broken.
    Unreachable,
    /// Any other socket error.
    Error,
}

#[derive(Debug)]
pub enum Event {
    /// A peer connected to one of our listeners.
    Accepted { listener: ListenerId, conn: ConnId, peer: SocketAddr },
    /// Our dial succeeded; `local` is our end's address.
    Connected { conn: ConnId, local: SocketAddr },
    /// The next bytes of the stream, never empty.
    Received { conn: ConnId, data: Bytes },
    /// The last event of this connection. Not sent for [`Env::close`].
    Closed { conn: ConnId, reason: CloseReason },
    /// A disk request ended. Requests may complete in any order.
    DiskDone { token: u64, result: DiskResult },
    /// Something outside asked the node to stop; it should finish and call
    /// [`Env::exit`].
    Shutdown,
}

/// The world as one node sees it. Calls queue work and return at once.
pub trait Env {
    fn now(&self) -> Time;
    fn wall(&self) -> WallTime;
    fn random(&mut self) -> &mut Random;

    /// Dials; answered by `Connected` or `Closed`.
    fn connect(&mut self, to: SocketAddr) -> ConnId;
    /// Appends to the connection's output, which leaves after the batch. Sends
    /// on a connection that has ended are dropped: `Closed` says so.
    fn send(&mut self, conn: ConnId, data: Bytes);
    /// Bytes accepted by `send` that the kernel has not taken yet. A node that
    /// produces faster than its peer reads must stop at a limit of its own.
    fn unsent_len(&self, conn: ConnId) -> usize;
    /// Says that `head`, the end of what was last received, begins a part of
    /// `len` bytes that is wanted in one piece. True: the next `Received` brings
    /// the whole part, `head` again included, and its byte `lead` is aligned as
    /// device transfers want it. False: nothing changes, and bytes go on
    /// arriving as they come. Memory is taken for what arrives, not for `len`.
    fn gather(&mut self, conn: ConnId, head: &[u8], len: usize, lead: usize) -> bool {
        let _ = (conn, head, len, lead);
        false
    }
    /// Stops or resumes reading from a connection: back-pressure on a peer
    /// that has too much in flight.
    fn pause_reading(&mut self, conn: ConnId, paused: bool);
    /// Sends what was queued, then closes. No further event of `conn` arrives.
    fn close(&mut self, conn: ConnId);

    /// Memory for what was received or read: in the node's hands, or kept for the next.
    fn buffers(&self) -> MemoryUse;

    /// The node's one device; `None` for nodes without one.
    fn disk_info(&self) -> Option<DiskInfo>;
    /// Answered by `DiskDone` with the request's token. Leaves after the batch at the latest.
    fn submit(&mut self, request: DiskRequest);

    /// What was submitted belongs together and is complete: many requests, or long ones, need not
    /// wait for the end of the node's batch.
    fn submitted(&mut self) {}

    /// Ends the driver's loop after this batch.
    fn exit(&mut self, status: i32);
}

/// A daemon's state machine.
pub trait Node {
    /// Called once before any event.
    fn start(&mut self, env: &mut dyn Env);
    fn on_event(&mut self, env: &mut dyn Env, event: Event);
    /// Called after each batch of events, and when `next_wake` has passed.
    fn on_batch_end(&mut self, env: &mut dyn Env);
    /// When `on_batch_end` must be called even if nothing happens.
    fn next_wake(&self) -> Time;
}
