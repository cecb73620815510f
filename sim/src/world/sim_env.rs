use super::{Core, Entry, NodeId};
use crate::disk::SimDisk;
use base::{Duration, MemoryUse, Random, Time, WallTime};
use bytes::Bytes;
use env::{ConnId, DiskInfo, DiskOp, DiskRequest, DiskResult, Env, Event, read_into};
use std::net::SocketAddr;

const WALL_START: WallTime = WallTime { sec: 1_700_000_000, nsec: 0 };

/// The world as one node sees it.
pub(super) struct SimEnv<'a> {
    pub core: &'a mut Core,
    pub me: NodeId,
}

impl Core {
    fn disk_time(&mut self) -> Duration {
        let w = &self.weather;
        Duration::from_micros(w.disk_min_us + self.random.below(w.disk_max_us - w.disk_min_us))
    }
}

impl Env for SimEnv<'_> {
    fn now(&self) -> Time {
        self.core.local_time(self.me)
    }

    fn wall(&self) -> WallTime {
        WALL_START + Duration::from_nanos(self.core.local_time(self.me).0)
    }

    fn random(&mut self) -> &mut Random {
        &mut self.core.nodes[self.me.0].random
    }

    fn connect(&mut self, to: SocketAddr) -> ConnId {
        self.core.dial(self.me, to)
    }

    fn send(&mut self, conn: ConnId, data: Bytes) {
        if !data.is_empty() {
            self.core.send(conn, data);
        }
    }

    /// The simulated kernel has room for everything.
    fn unsent_len(&self, _: ConnId) -> usize {
        0
    }

    fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        self.core.pause_reading(conn, paused);
    }

    fn close(&mut self, conn: ConnId) {
        self.core.hang_up(conn);
    }

    /// None that outlive the event.
    fn buffers(&self) -> MemoryUse {
        MemoryUse::default()
    }

    fn disk_info(&self) -> Option<DiskInfo> {
        self.core.nodes[self.me.0].disk.as_ref().map(SimDisk::info)
    }

    fn submit(&mut self, request: DiskRequest) {
        let (node, token) = (self.me, request.token);
        let life = self.core.nodes[node.0].life;
        let after = self.core.disk_time();
        let done =
            |result: DiskResult| Entry::Deliver { node, life, event: Event::DiskDone { token, result } };
        let entry = match request.op {
            DiskOp::Write { offset, data, durable } => {
                match self.core.disk(node).start_write(offset, data, durable) {
                    Ok(write) => Entry::DiskWritten { node, life, token, write },
                    Err(error) => done(Err(error)),
                }
            }
            DiskOp::Read { offset, len, into } => {
                let found = self.core.disk(node).read(offset, len);
                done(found.map(|data| read_into(into, data)))
            }
            DiskOp::Flush => {
                let covered = self.core.disk(node).start_flush();
                Entry::DiskFlushed { node, life, token, covered }
            }
            // Discarded space may read as anything, so leaving it is allowed.
            DiskOp::Discard { .. } => done(Ok(Bytes::new())),
        };
        self.core.schedule_in(after, entry);
    }

    fn exit(&mut self, status: i32) {
        self.core.nodes[self.me.0].exit = Some(status);
    }
}
