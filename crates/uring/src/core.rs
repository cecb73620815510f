//! What both backends share: the node's view of its connections and its disk,
//! the events on their way to it, and the rules of who hears what and when.
//!
//! A backend starts requests for the connections that were touched, and
//! reports what came of them. It makes no decision that a node could see.
//!
//! Invariants:
//! - Events of one connection reach the node in order; `Closed` is the last.
//! - What the node queues while a batch is dispatched belongs to the next one.

use crate::clock;
use crate::connection::{Connection, Phase, Table, index_of};
use crate::disk::Disk;
use crate::read_pool::ReadPool;
use base::aligned::ALIGNMENT;
use base::{Duration, MemoryUse, Random, Time, WallTime};
use bytes::Bytes;
use env::{
    CloseReason, ConnId, DiskError, DiskInfo, DiskOp, DiskRequest, DiskResult, Env, Event, ListenerId,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpStream};

/// Memory that no request needed for so long is given back.
const TRIM_PERIOD: Duration = Duration::from_secs(1);

pub(crate) struct Core {
    now: Time,
    /// Read on first use in a batch.
    wall: Cell<Option<WallTime>>,
    random: Random,
    pub(crate) table: Table,
    events: Vec<Event>,
    /// The last batch's allocation.
    spare: Vec<Event>,
    touched: Vec<u32>,
    /// Dead connections that wait for their `Closed` or their last completion.
    dead: Vec<u32>,
    /// Connections resumed while they held events.
    resumed: Vec<ConnId>,
    /// Both queues are in order of time: each has one fixed delay.
    dial_deadlines: VecDeque<(Time, ConnId)>,
    linger_deadlines: VecDeque<(Time, ConnId)>,
    dial_timeout: Duration,
    linger: Duration,
    /// Shared with the backend.
    pub(crate) pool: ReadPool,
    next_trim: Time,
    pub(crate) disk: Option<Disk>,
    disk_queue: Vec<DiskRequest>,
    pub(crate) disk_in_flight: usize,
    /// The errno of the flush that failed; everything after it fails too.
    disk_failed: Option<i32>,
    exit: Option<i32>,
}

impl Core {
    pub(crate) fn new(random: Random, disk: Option<Disk>, dial_timeout: Duration, linger: Duration) -> Core {
        Core {
            now: clock::monotonic(),
            wall: Cell::new(None),
            random,
            table: Table::default(),
            events: Vec::new(),
            spare: Vec::new(),
            touched: Vec::new(),
            dead: Vec::new(),
            resumed: Vec::new(),
            dial_deadlines: VecDeque::new(),
            linger_deadlines: VecDeque::new(),
            dial_timeout,
            linger,
            pool: ReadPool::default(),
            next_trim: Time::ZERO,
            disk,
            disk_queue: Vec::new(),
            disk_in_flight: 0,
            disk_failed: None,
            exit: None,
        }
    }

    // ---- the loop's part -------------------------------------------------

    pub(crate) fn refresh_clocks(&mut self) {
        self.now = clock::monotonic();
        self.wall.set(None);
    }

    pub(crate) fn now_is_past(&self, at: Time) -> bool {
        self.now >= at
    }

    pub(crate) fn now_after_linger(&self) -> Time {
        self.now + self.linger
    }

    pub(crate) fn exit_status(&self) -> Option<i32> {
        self.exit
    }

    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Whether the turn must not sleep: the backend's own steps have queued
    /// events or touched connections.
    pub(crate) fn has_work(&self) -> bool {
        !self.events.is_empty() || !self.touched.is_empty()
    }

    /// When a dial or a closing connection runs out of time.
    pub(crate) fn next_deadline(&self) -> Time {
        let first = |queue: &VecDeque<(Time, ConnId)>| queue.front().map_or(Time::MAX, |e| e.0);
        first(&self.dial_deadlines).min(first(&self.linger_deadlines))
    }

    /// Once a period at most. Wakes nobody for it: daemons have timers of their own.
    pub(crate) fn trim_pool(&mut self) {
        if self.now >= self.next_trim {
            self.next_trim = self.now + TRIM_PERIOD;
            self.pool.trim();
        }
    }

    pub(crate) fn expire_deadlines(&mut self) {
        while let Some(&(at, id)) = self.dial_deadlines.front() {
            let dialing = self.table.find(id).is_some_and(|conn| conn.phase == Phase::Dialing);
            if dialing && at > self.now {
                break;
            }
            self.dial_deadlines.pop_front();
            if dialing {
                self.on_end(index_of(id), CloseReason::Unreachable);
            }
        }
        while let Some(&(at, id)) = self.linger_deadlines.front() {
            let alive = self.table.find(id).is_some_and(|conn| conn.phase != Phase::Dead);
            if alive && at > self.now {
                break;
            }
            self.linger_deadlines.pop_front();
            if alive {
                self.on_end(index_of(id), CloseReason::Unreachable);
            }
        }
    }

    /// What was gathered; each is to be [admitted](Core::admit) when its turn comes.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let spare = std::mem::take(&mut self.spare);
        std::mem::replace(&mut self.events, spare)
    }

    /// Gives the list's allocation back.
    pub(crate) fn recycle_events(&mut self, list: Vec<Event>) {
        self.spare = list;
    }

    /// Queues what resumed connections had held, for the next batch.
    pub(crate) fn release_resumed(&mut self) {
        while let Some(id) = self.resumed.pop() {
            if let Some(conn) = self.table.find_mut(id)
                && !conn.paused
            {
                self.events.append(&mut conn.held);
            }
        }
    }

    /// Drops the events of connections the node has closed, and keeps back
    /// those of paused ones.
    pub(crate) fn admit(&mut self, event: Event) -> Option<Event> {
        let (id, ends) = match &event {
            Event::Accepted { conn, .. } | Event::Connected { conn, .. } => (*conn, false),
            Event::Received { conn, .. } => (*conn, false),
            Event::Closed { conn, .. } => (*conn, true),
            Event::DiskDone { .. } | Event::Shutdown => return Some(event),
        };
        let conn = self.table.find_mut(id).filter(|conn| conn.visible)?;
        // `Closed` waits only behind bytes that came before it.
        if !conn.held.is_empty() || (conn.paused && matches!(event, Event::Received { .. })) {
            conn.held.push(event);
            return None;
        }
        if ends {
            conn.visible = false;
        }
        if matches!(event, Event::Received { .. }) {
            conn.undelivered -= 1;
        }
        Some(event)
    }

    /// Frees the slots of dead connections. Once per turn, after dispatch.
    pub(crate) fn free_dead(&mut self) {
        let table = &mut self.table;
        self.dead.retain(|&index| {
            let done = table.get(index).is_some_and(|conn| !conn.visible && conn.in_flight == 0);
            if done {
                table.remove(index);
            }
            !done
        });
    }

    /// Bytes or requests that the kernel or the backend has not finished.
    pub(crate) fn has_unfinished_output(&self) -> bool {
        self.disk_in_flight > 0
            || !self.disk_queue.is_empty()
            || self
                .table
                .indexes()
                .filter_map(|index| self.table.get(index))
                .any(|conn| conn.phase == Phase::Open && !conn.output.is_empty())
    }

    /// The loop is over: nothing reaches the node any more.
    pub(crate) fn silence(&mut self) {
        self.events.clear();
        for index in self.table.indexes() {
            if let Some(conn) = self.table.get_mut(index) {
                conn.visible = false;
                conn.held.clear();
            }
        }
    }

    pub(crate) fn end_all(&mut self) {
        for index in self.table.indexes() {
            self.on_end(index, CloseReason::Error);
        }
    }

    // ---- the backend's part ----------------------------------------------

    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn take_touched(&mut self) -> Vec<u32> {
        let touched = std::mem::take(&mut self.touched);
        for &index in &touched {
            if let Some(conn) = self.table.get_mut(index) {
                conn.touched = false;
            }
        }
        touched
    }

    /// Gives the list's allocation back.
    pub(crate) fn recycle_touched(&mut self, mut list: Vec<u32>) {
        if self.touched.is_empty() {
            list.clear();
            self.touched = list;
        }
    }

    pub(crate) fn disk_queue_len(&self) -> usize {
        self.disk_queue.len()
    }

    pub(crate) fn take_disk_queue(&mut self) -> Vec<DiskRequest> {
        std::mem::take(&mut self.disk_queue)
    }

    /// The backend shall look at the connection in its next turn.
    pub(crate) fn touch(&mut self, index: u32) {
        if let Some(conn) = self.table.get_mut(index)
            && !conn.touched
        {
            conn.touched = true;
            self.touched.push(index);
        }
    }

    pub(crate) fn on_accepted(&mut self, listener: u32, stream: TcpStream, peer: SocketAddr) {
        let (index, conn) = self.table.insert(Some(stream), None);
        self.events.push(Event::Accepted { listener: ListenerId(listener), conn, peer });
        self.touch(index);
    }

    /// A dial ended: `Ok`, or the errno.
    pub(crate) fn on_dialed(&mut self, index: u32, result: Result<(), i32>) {
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if conn.phase != Phase::Dialing {
            return;
        }
        let local = result.and_then(|()| {
            let local = conn.stream.as_ref().map(TcpStream::local_addr);
            local.and_then(Result::ok).ok_or(libc::ENOTCONN)
        });
        match local {
            // A dial to a free port of this host may be given that very port,
            // and meets itself: nobody listens there.
            Ok(local) if conn.dial_to == Some(local) => self.on_end(index, CloseReason::Refused),
            Ok(local) => {
                conn.phase = Phase::Open;
                if !conn.closing
                    && let Some(conn) = self.table.id(index)
                {
                    self.events.push(Event::Connected { conn, local });
                }
                self.touch(index);
            }
            Err(errno) => self.on_end(index, reason_of_dial(errno)),
        }
    }

    /// The next bytes of a stream.
    pub(crate) fn on_received(&mut self, index: u32, data: Bytes) {
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if conn.phase == Phase::Open && !conn.closing {
            conn.undelivered += 1;
            if let Some(conn) = self.table.id(index) {
                self.events.push(Event::Received { conn, data });
            }
        }
        self.touch(index);
    }

    /// The kernel took `count` bytes of the output.
    pub(crate) fn on_sent(&mut self, index: u32, count: usize) {
        if let Some(conn) = self.table.get_mut(index) {
            conn.output.consume(count);
        }
    }

    /// A read or a write on an established connection failed.
    pub(crate) fn on_error(&mut self, index: u32, errno: i32) {
        self.on_end(index, reason_of_stream(errno));
    }

    /// The connection is over. Its memory stays until nothing is in flight.
    pub(crate) fn on_end(&mut self, index: u32, reason: CloseReason) {
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if conn.phase == Phase::Dead {
            return;
        }
        let was_dialing = conn.phase == Phase::Dialing;
        conn.phase = Phase::Dead;
        self.dead.push(index);
        // A dial in flight is for the backend to cancel: a shutdown would only
        // make the kernel try again.
        if conn.in_flight > 0
            && !was_dialing
            && let Some(stream) = &conn.stream
        {
            // Ends the requests in flight. That the peer was faster is fine.
            let _ = stream.shutdown(Shutdown::Both);
        }
        if conn.visible
            && let Some(conn) = self.table.id(index)
        {
            self.events.push(Event::Closed { conn, reason });
        }
        self.touch(index);
    }

    /// Moves a closing connection on when its output is gone: shuts our half.
    /// The backend calls it only while no send is in flight.
    pub(crate) fn finish_closing(&mut self, index: u32) {
        let Some(conn) = self.table.get_mut(index) else {
            return;
        };
        if !conn.closing || !conn.output.is_empty() {
            return;
        }
        match conn.phase {
            // Nothing was sent, so there is nothing to wait for.
            Phase::Dialing => self.on_end(index, CloseReason::Error),
            Phase::Open => {
                conn.phase = Phase::Draining;
                let shut = conn.stream.as_ref().map(|stream| stream.shutdown(Shutdown::Write));
                if !matches!(shut, Some(Ok(()))) {
                    self.on_end(index, CloseReason::Error);
                }
            }
            Phase::Draining | Phase::Dead => {}
        }
    }

    pub(crate) fn on_disk_done(&mut self, token: u64, was_durable: bool, result: DiskResult) {
        self.disk_in_flight -= 1;
        let result = match self.disk_failed {
            // It may have completed, but no flush can cover it any more.
            Some(errno) => Err(DiskError::Io { errno }),
            None => result,
        };
        if was_durable
            && let Err(error) = &result
            && self.disk_failed.is_none()
        {
            let errno = match error {
                DiskError::Io { errno } => *errno,
                DiskError::BadRange => libc::EIO,
            };
            tracing::error!(errno, "a flush or a durable write failed: the device takes no more requests");
            self.disk_failed = Some(errno);
        }
        self.events.push(Event::DiskDone { token, result });
    }

    pub(crate) fn on_signal(&mut self) {
        self.events.push(Event::Shutdown);
    }

    // ---- disk requests ---------------------------------------------------

    /// An answer that needs no device.
    fn immediate_answer(&self, op: &DiskOp) -> Option<DiskResult> {
        let Some(disk) = &self.disk else {
            return Some(Err(DiskError::Io { errno: libc::ENODEV }));
        };
        if let Some(errno) = self.disk_failed {
            return Some(Err(DiskError::Io { errno }));
        }
        match op {
            DiskOp::Flush => disk.flush_is_free().then(|| Ok(Bytes::new())),
            _ => match transfer_len(disk.info(), op) {
                Ok(0) => Some(Ok(Bytes::new())),
                Ok(_) => None,
                Err(error) => Some(Err(error)),
            },
        }
    }
}

/// The length of a valid transfer.
fn transfer_len(info: DiskInfo, op: &DiskOp) -> Result<u64, DiskError> {
    let offset = match op {
        DiskOp::Write { offset, .. } | DiskOp::Read { offset, .. } | DiskOp::Discard { offset, .. } => {
            *offset
        }
        DiskOp::Flush => 0,
    };
    let len = op.byte_len();
    let block_len = u64::from(info.block_len);
    let inside = offset.checked_add(len).is_some_and(|end| end <= info.len_bytes);
    if !inside || !offset.is_multiple_of(block_len) || !len.is_multiple_of(block_len) {
        return Err(DiskError::BadRange);
    }
    if let DiskOp::Write { data, .. } = op {
        let aligned = |piece: &Bytes| {
            piece.as_ptr().addr().is_multiple_of(ALIGNMENT) && piece.len().is_multiple_of(ALIGNMENT)
        };
        if !data.iter().all(aligned) {
            return Err(DiskError::BadRange);
        }
    }
    if let DiskOp::Read { into: Some(part), .. } = op
        && (part.len() as u64 != len || !part.as_ptr().addr().is_multiple_of(ALIGNMENT))
    {
        return Err(DiskError::BadRange);
    }
    Ok(len)
}

fn reason_of_dial(errno: i32) -> CloseReason {
    match errno {
        libc::ECONNREFUSED => CloseReason::Refused,
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN => {
            CloseReason::Unreachable
        }
        _ => CloseReason::Error,
    }
}

fn reason_of_stream(errno: i32) -> CloseReason {
    match errno {
        libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN | libc::ESHUTDOWN => CloseReason::Peer,
        libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN | libc::ENETDOWN => {
            CloseReason::Unreachable
        }
        _ => CloseReason::Error,
    }
}

impl Env for Core {
    fn now(&self) -> Time {
        self.now
    }

    fn wall(&self) -> WallTime {
        let wall = self.wall.get().unwrap_or_else(clock::wall);
        self.wall.set(Some(wall));
        wall
    }

    fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    fn connect(&mut self, to: SocketAddr) -> ConnId {
        // The backend makes the socket: blocking or not is its business.
        let (index, id) = self.table.insert(None, Some(to));
        self.dial_deadlines.push_back((self.now + self.dial_timeout, id));
        self.touch(index);
        id
    }

    fn send(&mut self, conn: ConnId, data: Bytes) {
        if let Some(found) = open_to_node(self.table.find_mut(conn)) {
            found.output.push(data);
            self.touch(index_of(conn));
        }
    }

    fn unsent_len(&self, conn: ConnId) -> usize {
        let found = self.table.find(conn);
        found.filter(|found| found.phase != Phase::Dead).map_or(0, |found| found.output.len())
    }

    fn gather(&mut self, conn: ConnId, head: &[u8], len: usize, lead: usize) -> bool {
        let Some(found) = self.table.find_mut(conn).filter(|found| found.visible) else {
            return false;
        };
        // Bytes that follow `head` may be on their way elsewhere already.
        let overtaken = found.requests.is_receiving() || found.undelivered > 0;
        let open = found.phase == Phase::Open && !found.closing;
        open && !overtaken && found.input.gather(head, len, lead, &self.pool)
    }

    fn pause_reading(&mut self, conn: ConnId, paused: bool) {
        let Some(found) = self.table.find_mut(conn).filter(|found| found.visible) else {
            return;
        };
        if found.paused == paused {
            return;
        }
        found.paused = paused;
        if !paused && !found.held.is_empty() {
            self.resumed.push(conn);
        }
        self.touch(index_of(conn));
    }

    fn close(&mut self, conn: ConnId) {
        let Some(found) = self.table.find_mut(conn).filter(|found| found.visible) else {
            return;
        };
        found.visible = false;
        found.closing = true;
        found.held.clear();
        self.linger_deadlines.push_back((self.now + self.linger, conn));
        self.touch(index_of(conn));
    }

    fn buffers(&self) -> MemoryUse {
        self.pool.memory()
    }

    fn disk_info(&self) -> Option<DiskInfo> {
        self.disk.as_ref().map(Disk::info)
    }

    fn submit(&mut self, request: DiskRequest) {
        match self.immediate_answer(&request.op) {
            Some(result) => {
                self.events.push(Event::DiskDone { token: request.token, result });
            }
            None => {
                self.disk_in_flight += 1;
                self.disk_queue.push(request);
            }
        }
    }

    fn exit(&mut self, status: i32) {
        self.exit = Some(status);
    }
}

/// The connection, when the node may still send on it.
fn open_to_node(found: Option<&mut Connection>) -> Option<&mut Connection> {
    found.filter(|found| found.visible && !found.closing && found.phase != Phase::Dead)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskOptions;

    fn core() -> (Core, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = DiskOptions { create_len: Some(1 << 20), ..DiskOptions::default() };
        let disk = Disk::open(&folder.path().join("disk"), options).expect("a new file");
        let second = Duration::from_secs(1);
        (Core::new(Random::from_seed(1), Some(disk), second, second), folder)
    }

    /// What a node would be told now.
    fn delivered(core: &mut Core) -> Vec<Event> {
        let gathered = core.take_events();
        gathered.into_iter().filter_map(|event| core.admit(event)).collect()
    }

    fn results(core: &mut Core) -> Vec<(u64, DiskResult)> {
        let result = |event| match event {
            Event::DiskDone { token, result } => (token, result),
            other => panic!("unexpected {other:?}"),
        };
        delivered(core).into_iter().map(result).collect()
    }

    #[test]
    fn nothing_succeeds_after_a_failed_flush() {
        let (mut core, _folder) = core();
        let read = || DiskOp::read(0, 4096);
        for (token, op) in [(1, DiskOp::Flush), (2, read()), (3, DiskOp::Flush)] {
            core.submit(DiskRequest { token, op });
        }
        assert_eq!(core.take_disk_queue().len(), 3);
        core.on_disk_done(1, true, Err(DiskError::Io { errno: libc::EIO }));
        // Completed by the device, but not covered by any flush to come.
        core.on_disk_done(2, false, Ok(Bytes::new()));
        core.on_disk_done(3, true, Ok(Bytes::new()));
        core.submit(DiskRequest { token: 4, op: read() });
        assert!(core.take_disk_queue().is_empty(), "the device is left alone");
        let failed = Err(DiskError::Io { errno: libc::EIO });
        let expected: Vec<_> = (1..=4).map(|token| (token, failed.clone())).collect();
        assert_eq!(results(&mut core), expected);
    }

    #[test]
    fn held_bytes_come_before_the_end_of_their_connection() {
        let (mut core, _folder) = core();
        let (index, conn) = core.table.insert(None, None);
        core.pause_reading(conn, true);
        core.on_received(index, Bytes::from_static(b"a"));
        core.on_end(index, CloseReason::Peer);
        assert!(delivered(&mut core).is_empty(), "paused");
        core.free_dead();
        core.pause_reading(conn, false);
        core.release_resumed();
        assert!(matches!(
            &delivered(&mut core)[..],
            [Event::Received { data, .. }, Event::Closed { reason: CloseReason::Peer, .. }]
                if data[..] == b"a"[..]
        ));
        core.free_dead();
        assert!(core.table.find(conn).is_none(), "the slot is free");
    }
}
