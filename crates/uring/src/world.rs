//! What a node gets to see: the shared part, and a way to the device at once.
//!
//! Most of what a node asks for leaves when its batch ends. Requests to the device need not
//! wait so long: while the node goes through a batch of many events, or computes checksums of
//! long data, the device would have nothing to do.

use crate::core::Core;
use crate::reactor::Driver;
use base::{MemoryUse, Random, Time, WallTime};
use bytes::Bytes;
use env::{ConnId, DiskInfo, DiskRequest, Env, Node};
use std::net::SocketAddr;

/// So many requests, or so many bytes, do not wait for the end of the batch. Fewer are not worth a
/// system call of their own.
const EARLY_REQUESTS: usize = 8;
const EARLY_BYTES: u64 = 64 << 10;

pub(crate) struct World<'a> {
    core: &'a mut Core,
    driver: &'a mut Driver,
    /// Queued since requests last left.
    waiting_bytes: u64,
}

impl<'a> World<'a> {
    pub(crate) fn new(core: &'a mut Core, driver: &'a mut Driver) -> World<'a> {
        World { core, driver, waiting_bytes: 0 }
    }

    /// Hands the gathered events to the node; true when there were any.
    pub(crate) fn dispatch(&mut self, node: &mut dyn Node) -> bool {
        let mut batch = self.core.take_events();
        let mut delivered = false;
        for event in batch.drain(..) {
            if let Some(event) = self.core.admit(event) {
                delivered = true;
                node.on_event(self, event);
            }
        }
        self.core.recycle_events(batch);
        delivered
    }
}

impl Env for World<'_> {
    fn now(&self) -> Time {
        self.core.now()
    }

    fn wall(&self) -> WallTime {
        self.core.wall()
    }

    fn random(&mut self) -> &mut Random {
        self.core.random()
    }

    fn connect(&mut self, to: SocketAddr) -> ConnId {
        self.core.connect(to)
    }

    fn send(&mut self, conn: ConnId, data: Bytes) {
        self.core.send(conn, data);
    }

    fn unsent_len(&self, conn: ConnId) -> usize {
        self.core.unsent_len(conn)
    }

    fn gather(&mut self, conn: ConnId, head: &[u8], len: usize, lead: usize) -> bool {
        self.core.gather(conn, head, len, lead)
    }

    fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        self.core.pause_reading(conn, paused);
    }

    fn close(&mut self, conn: ConnId) {
        self.core.close(conn);
    }

    fn buffers(&self) -> MemoryUse {
        self.core.buffers()
    }

    fn disk_info(&self) -> Option<DiskInfo> {
        self.core.disk_info()
    }

    fn submit(&mut self, request: DiskRequest) {
        self.waiting_bytes += request.op.byte_len();
        self.core.submit(request);
    }

    fn submitted(&mut self) {
        if self.core.disk_queue_len() >= EARLY_REQUESTS || self.waiting_bytes >= EARLY_BYTES {
            self.waiting_bytes = 0;
            self.driver.start_disk(self.core);
        }
    }

    fn exit(&mut self, status: i32) {
        self.core.exit(status);
    }
}
