//! The io_uring backend: one `io_uring_enter` submits what the last batch
//! queued and waits for what the next one will contain.
//!
//! A send normally completes while it is submitted, and its completion would
//! end a wait at once. So one that ought to fit its socket is [quiet](crate::quiet):
//! a batch costs one call.
//!
//! Source: io_uring_enter(2), io_uring_setup(2). Sockets are in blocking
//! mode: for others the kernel answers EAGAIN where it should wait.
#![allow(unsafe_code)]

use crate::connection::Phase;
use crate::core::Core;
use crate::disk_entry::Target;
use crate::output::IOVECS_MAX;
use crate::quiet::{QUIET, QUIET_LEN_MAX, has_quiet_sends};
use crate::read_pool::ReadPool;
use crate::sys::{self, RawAddr, StopSignals, errno_of};
use crate::transfer::{Progress, Transfer};
use base::{Duration, Time};
use env::CloseReason;
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

#[cfg(test)]
mod tests;

const SUBMISSIONS: u32 = 512;
/// Large, because a batch takes all of them: 16 bytes each.
const COMPLETIONS: u32 = 8192;
/// How long a listener rests when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The device's place among the ring's registered files.
const DISK_FILE: types::Fixed = types::Fixed(0);
/// `IORING_RECVSEND_POLL_FIRST`: do not try before the socket is ready.
const POLL_FIRST: u16 = 1;

/// What a completion is about: the upper half of its user data.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Receive = 1,
    Send,
    Connect,
    Accept,
    Disk,
    Signal,
    /// A cancellation: its own answer says nothing.
    Cancel,
}

impl Kind {
    fn key(self, index: u32) -> u64 {
        u64::from(self as u8) << 32 | u64::from(index)
    }

    fn of(key: u64) -> Option<Kind> {
        const ALL: [Kind; 7] =
            [Kind::Receive, Kind::Send, Kind::Connect, Kind::Accept, Kind::Disk, Kind::Signal, Kind::Cancel];
        ALL.into_iter().find(|kind| key >> 32 == u64::from(*kind as u8))
    }
}

pub(crate) struct Ring {
    ring: IoUring,
    /// The kernel has what came with single-issuer rings (6.1).
    modern: bool,
    /// The kernel has quiet sends, as this module uses them.
    quiet: bool,
    /// The device is registered as `DISK_FILE`; else by its descriptor.
    disk: Option<DiskFile>,
    listeners: Vec<Listener>,
    signals: Option<StopSignals>,
    signals_armed: bool,
    transfers: Vec<Option<Box<Transfer>>>,
    free_transfers: Vec<u32>,
    pool: ReadPool,
    /// Requests whose memory the kernel may use.
    in_flight: usize,
    /// Connections with a quiet send, until it is known to have been submitted.
    quiet_sends: Vec<u32>,
    completions: Vec<(u64, i32, u32)>,
    spin: Duration,
    /// The reactor ends: nothing is armed again.
    stopping: bool,
}

#[derive(Clone, Copy)]
enum DiskFile {
    Registered,
    Plain(RawFd),
}

/// What is in flight for one connection, and the memory it needs.
#[derive(Default)]
pub(crate) struct Requests {
    receiving: bool,
    sending: bool,
    /// The send in flight is a quiet one.
    quiet: bool,
    connecting: bool,
    cancelled: bool,
    /// The socket was full at the last send: wait for it.
    full: bool,
    /// The last receive left nothing behind: wait before the next try.
    drained: bool,
    /// Length of the send in flight.
    offered: usize,
    iovecs: Vec<libc::iovec>,
    header: Option<Box<libc::msghdr>>,
    address: Option<Box<RawAddr>>,
}

impl Requests {
    pub(crate) fn is_receiving(&self) -> bool {
        self.receiving
    }
}

struct Listener {
    socket: TcpListener,
    armed: bool,
    /// The kernel accepts more than one connection per request (5.19).
    multishot: bool,
    rest_until: Option<Time>,
}

/// An empty ring that has passed the probes.
pub(crate) struct Created {
    ring: IoUring,
    modern: bool,
    quiet: bool,
    disk: Option<DiskFile>,
}

impl Ring {
    /// Makes a ring, or says why this kernel or its policy has none for us.
    pub(crate) fn create(disk: Option<RawFd>) -> io::Result<Created> {
        let builder = || {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(COMPLETIONS).dontfork();
            builder
        };
        let modern = builder()
            .setup_submit_all()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .build(SUBMISSIONS);
        let (mut ring, modern) = match modern {
            Ok(ring) => (ring, true),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                (builder().build(SUBMISSIONS)?, false)
            }
            Err(error) => return Err(error),
        };
        let params = ring.params();
        let unsupported =
            |what: &str| io::Error::new(io::ErrorKind::Unsupported, format!("the kernel lacks {what}"));
        if !params.is_feature_ext_arg() {
            return Err(unsupported("waits with a timeout"));
        }
        if !params.is_feature_nodrop() || !params.is_feature_submit_stable() {
            return Err(unsupported("reliable queues"));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Recv::CODE,
            opcode::Send::CODE,
            opcode::SendMsg::CODE,
            opcode::Connect::CODE,
            opcode::Accept::CODE,
            opcode::PollAdd::CODE,
            opcode::Read::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
            opcode::Fallocate::CODE,
            opcode::AsyncCancel::CODE,
        ];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(unsupported("an operation"));
        }
        let quiet = modern && has_quiet_sends(&mut ring);
        let disk = disk.map(|fd| match ring.submitter().register_files(&[fd]) {
            Ok(()) => DiskFile::Registered,
            Err(_) => DiskFile::Plain(fd),
        });
        if modern {
            // Spares the kernel a look-up per call; nothing depends on it.
            let _ = ring.submitter().register_ring_fd();
        }
        Ok(Created { ring, modern, quiet, disk })
    }

    pub(crate) fn new(
        created: Created,
        listeners: Vec<TcpListener>,
        signals: Option<StopSignals>,
        spin: Duration,
        pool: ReadPool,
    ) -> io::Result<Ring> {
        for listener in &listeners {
            listener.set_nonblocking(false)?;
        }
        let listeners = listeners
            .into_iter()
            .map(|socket| Listener { socket, armed: false, multishot: true, rest_until: None })
            .collect();
        let Created { ring, modern, quiet, disk } = created;
        Ok(Ring {
            ring,
            modern,
            quiet,
            disk,
            listeners,
            signals,
            signals_armed: false,
            transfers: Vec::new(),
            free_transfers: Vec::new(),
            pool,
            in_flight: 0,
            quiet_sends: Vec::new(),
            completions: Vec::new(),
            spin,
            stopping: false,
        })
    }

    /// Whether the kernel holds no memory and no descriptor of ours.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.signals_armed && self.listeners.iter().all(|listener| !listener.armed)
    }

    /// Ends what waits without being in flight for a connection. A pending
    /// accept would keep the port taken after the listener is closed, until
    /// the kernel has taken the ring apart in the background.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.stopping = true;
        let armed =
            |(index, listener): (usize, &Listener)| listener.armed.then(|| Kind::Accept.key(index as u32));
        let mut keys: Vec<u64> = self.listeners.iter().enumerate().filter_map(armed).collect();
        keys.extend(self.signals_armed.then(|| Kind::Signal.key(0)));
        for key in keys {
            let entry = opcode::AsyncCancel::new(key).build().user_data(Kind::Cancel.key(0));
            self.push(&entry)?;
        }
        Ok(())
    }

    /// Leaves the memory of requests in flight to the end of the process.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.transfers));
    }

    /// Starts what was queued, then waits for at most `timeout`.
    pub(crate) fn turn(&mut self, core: &mut Core, timeout: Option<Duration>) -> io::Result<()> {
        // Not known to be over: output queued meanwhile may wait for them, and they end no wait.
        let unsure = !self.quiet_sends.is_empty();
        let timeout = self.queue_requests(core, timeout)?;
        if core.has_work() || !self.completions.is_empty() || unsure {
            self.submit_and_look()?;
        } else {
            self.submit_and_wait(timeout)?;
        }
        self.reap(core)
    }

    /// Queues what the touched connections, the disk queue, the listeners and
    /// the signals need.
    fn queue_requests(&mut self, core: &mut Core, timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        let touched = core.take_touched();
        for &index in &touched {
            self.service(core, index)?;
        }
        core.recycle_touched(touched);
        self.queue_disk(core)?;
        self.arm_signals()?;
        self.arm_listeners(core.now(), timeout)
    }

    fn queue_disk(&mut self, core: &mut Core) -> io::Result<()> {
        for request in core.take_disk_queue() {
            let transfer = Transfer::new(request.token, request.op, &self.pool);
            self.start_transfer(Box::new(transfer))?;
        }
        Ok(())
    }

    /// Starts the queued requests to the device while the node is at work. Takes no completions: its
    /// batch does not grow meanwhile.
    pub(crate) fn start_disk(&mut self, core: &mut Core) -> io::Result<()> {
        self.queue_disk(core)?;
        ignore_transient(self.ring.submit())
    }

    /// Gives the device back before the ring's own end, which is later.
    pub(crate) fn release_disk(&mut self) {
        if matches!(self.disk.take(), Some(DiskFile::Registered)) {
            // Failure only means that it stays open until that end.
            let _ = self.ring.submitter().unregister_files();
        }
    }

    // ---- starting requests -----------------------------------------------

    /// Queues a request; submits the queue first when it is full.
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: every caller keeps the entry's memory alive and in place
            // until its completion: receive and send memory in the connection,
            // which is not freed while in flight; the rest in its `Requests` and
            // in `transfers`.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Too many completions wait to be taken: make room.
                    Some(libc::EBUSY | libc::EAGAIN) => self.collect(),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Queues a request that uses the connection's memory.
    fn push_for(&mut self, core: &mut Core, index: u32, entry: &squeue::Entry) -> io::Result<()> {
        self.push(entry)?;
        self.in_flight += 1;
        if let Some(conn) = core.table.get_mut(index) {
            conn.in_flight += 1;
        }
        Ok(())
    }

    /// Does for one connection whatever its state allows now.
    fn service(&mut self, core: &mut Core, index: u32) -> io::Result<()> {
        let Some(conn) = core.table.get(index) else {
            return Ok(());
        };
        match conn.phase {
            Phase::Dialing => {
                core.finish_closing(index);
                self.start_dial(core, index)?;
            }
            Phase::Open => {
                self.send(core, index)?;
                if core.table.get(index).is_some_and(|conn| !conn.requests.sending) {
                    core.finish_closing(index);
                }
                self.receive(core, index)?;
            }
            Phase::Draining => self.receive(core, index)?,
            Phase::Dead => {}
        }
        self.cancel_dead_dial(core, index)
    }

    fn start_dial(&mut self, core: &mut Core, index: u32) -> io::Result<()> {
        let Some(conn) = core.table.get_mut(index) else {
            return Ok(());
        };
        let requests = &mut conn.requests;
        let (Phase::Dialing, false, Some(to)) = (conn.phase, requests.connecting, conn.dial_to) else {
            return Ok(());
        };
        let stream = match sys::stream_socket(to, false) {
            Ok(stream) => conn.stream.insert(stream),
            Err(error) => {
                core.on_dialed(index, Err(errno_of(&error)));
                return Ok(());
            }
        };
        let address = requests.address.insert(Box::new(RawAddr::new(to)));
        let fd = types::Fd(stream.as_raw_fd());
        let entry = opcode::Connect::new(fd, address.as_ptr(), address.len())
            .build()
            .user_data(Kind::Connect.key(index));
        requests.connecting = true;
        self.push_for(core, index, &entry)
    }

    /// A dial that nobody waits for any more.
    fn cancel_dead_dial(&mut self, core: &mut Core, index: u32) -> io::Result<()> {
        let Some(conn) = core.table.get_mut(index) else {
            return Ok(());
        };
        let requests = &mut conn.requests;
        if conn.phase != Phase::Dead || !requests.connecting || requests.cancelled {
            return Ok(());
        }
        requests.cancelled = true;
        let entry =
            opcode::AsyncCancel::new(Kind::Connect.key(index)).build().user_data(Kind::Cancel.key(index));
        self.push(&entry)
    }

    fn send(&mut self, core: &mut Core, index: u32) -> io::Result<()> {
        let Some(conn) = core.table.get_mut(index) else {
            return Ok(());
        };
        let Some(stream) = &conn.stream else {
            return Ok(());
        };
        let requests = &mut conn.requests;
        if requests.sending || conn.output.is_empty() {
            return Ok(());
        }
        let fd = types::Fd(stream.as_raw_fd());
        let priority = if requests.full && self.modern { POLL_FIRST } else { 0 };
        // Who is to be closed waits for the end of it.
        let short = conn.output.len() <= QUIET_LEN_MAX && conn.output.pieces() <= IOVECS_MAX;
        requests.quiet = self.quiet && short && !requests.full && !conn.closing;
        let (flags, entry_flags) = match requests.quiet {
            true => (libc::MSG_NOSIGNAL | QUIET, squeue::Flags::SKIP_SUCCESS),
            false => (libc::MSG_NOSIGNAL, squeue::Flags::empty()),
        };
        let entry = match conn.output.single() {
            Some(piece) => {
                let len = u32::try_from(piece.len()).unwrap_or(i32::MAX as u32);
                requests.offered = len as usize;
                opcode::Send::new(fd, piece.as_ptr(), len).flags(flags).ioprio(priority).build()
            }
            None => {
                requests.offered = conn.output.fill_iovecs(&mut requests.iovecs);
                let header = sys::message_header(&requests.iovecs);
                let header: &libc::msghdr = match &mut requests.header {
                    Some(place) => {
                        **place = header;
                        place
                    }
                    none => none.insert(Box::new(header)),
                };
                let flags = flags.unsigned_abs();
                opcode::SendMsg::new(fd, header).flags(flags).ioprio(priority).build()
            }
        };
        requests.sending = true;
        if requests.quiet {
            self.quiet_sends.push(index);
        }
        self.push_for(core, index, &entry.flags(entry_flags).user_data(Kind::Send.key(index)))
    }

    fn receive(&mut self, core: &mut Core, index: u32) -> io::Result<()> {
        let Some(conn) = core.table.get_mut(index) else {
            return Ok(());
        };
        let Some(stream) = &conn.stream else {
            return Ok(());
        };
        let wanted = match conn.phase {
            Phase::Open => !conn.paused || conn.closing,
            Phase::Draining => true,
            Phase::Dialing | Phase::Dead => false,
        };
        if !wanted || conn.requests.receiving {
            return Ok(());
        }
        let (address, len) = conn.input.prepare();
        let priority = if conn.requests.drained && self.modern { POLL_FIRST } else { 0 };
        // Then the kernel goes on by itself until all has come.
        let flags = if conn.input.is_gathering() { libc::MSG_WAITALL } else { 0 };
        let entry = opcode::Recv::new(types::Fd(stream.as_raw_fd()), address, len as u32)
            .flags(flags)
            .ioprio(priority)
            .build()
            .user_data(Kind::Receive.key(index));
        conn.requests.receiving = true;
        self.push_for(core, index, &entry)
    }

    fn start_transfer(&mut self, transfer: Box<Transfer>) -> io::Result<()> {
        let index = self.free_transfers.pop().unwrap_or_else(|| {
            self.transfers.push(None);
            (self.transfers.len() - 1) as u32
        });
        self.in_flight += 1;
        self.transfers[index as usize] = Some(transfer);
        self.push_transfer(index)
    }

    /// Starts the transfer's next system call.
    fn push_transfer(&mut self, index: u32) -> io::Result<()> {
        let (Some(transfer), Some(disk)) = (&mut self.transfers[index as usize], self.disk) else {
            return Ok(());
        };
        let call = transfer.next_call();
        let entry = match disk {
            DiskFile::Registered => DISK_FILE.entry(call),
            DiskFile::Plain(fd) => types::Fd(fd).entry(call),
        };
        self.push(&entry.user_data(Kind::Disk.key(index)))
    }

    /// The timeout that respects the listeners at rest.
    fn arm_listeners(&mut self, now: Time, mut timeout: Option<Duration>) -> io::Result<Option<Duration>> {
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if listener.armed || self.stopping {
                continue;
            }
            if let Some(until) = listener.rest_until.filter(|until| *until > now) {
                let left = until.since(now);
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
                continue;
            }
            listener.rest_until = None;
            listener.armed = true;
            let fd = types::Fd(listener.socket.as_raw_fd());
            // No place for the peer's address: a multishot request has none.
            let entry = if listener.multishot {
                opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()
            } else {
                let none = std::ptr::null_mut();
                opcode::Accept::new(fd, none, none.cast()).flags(libc::SOCK_CLOEXEC).build()
            };
            self.push(&entry.user_data(Kind::Accept.key(index as u32)))?;
        }
        Ok(timeout)
    }

    fn arm_signals(&mut self) -> io::Result<()> {
        let Some(signals) = self.signals.as_ref().filter(|_| !self.signals_armed && !self.stopping) else {
            return Ok(());
        };
        let entry = opcode::PollAdd::new(types::Fd(signals.raw_fd()), libc::POLLIN as u32)
            .build()
            .user_data(Kind::Signal.key(0));
        self.signals_armed = true;
        self.push(&entry)
    }

    // ---- waiting ---------------------------------------------------------

    /// Submits, and lets the kernel finish what it can, without waiting.
    fn submit_and_look(&mut self) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        // SAFETY: the queue's entries are `push`'s affair; no argument is
        // passed. The flag makes the kernel run its deferred completions.
        let result = unsafe { self.ring.submitter().enter::<libc::sigset_t>(queued, 0, GET_EVENTS, None) };
        ignore_transient(result)
    }

    fn submit_and_wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_none_or(|timeout| timeout > self.spin) && self.spin_briefly()? {
            return Ok(());
        }
        let spec =
            timeout.map(|timeout| types::Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos()));
        let args = match &spec {
            Some(spec) => types::SubmitArgs::new().timespec(spec),
            None => types::SubmitArgs::new(),
        };
        ignore_transient(self.ring.submitter().submit_with_args(1, &args))
    }

    /// True when something arrived while polling.
    fn spin_briefly(&mut self) -> io::Result<bool> {
        if self.spin.is_zero() || self.in_flight == 0 {
            return Ok(false);
        }
        let end = crate::clock::monotonic() + self.spin;
        loop {
            self.submit_and_look()?;
            if !self.ring.completion().is_empty() {
                return Ok(true);
            }
            if crate::clock::monotonic() >= end {
                return Ok(false);
            }
        }
    }

    // ---- completions -----------------------------------------------------

    /// Takes what the kernel has posted off the ring.
    fn collect(&mut self) {
        let completions = &mut self.completions;
        completions
            .extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result(), entry.flags())));
    }

    fn reap(&mut self, core: &mut Core) -> io::Result<()> {
        let queue = self.ring.submission();
        // Asked for before completions are taken: all of what was submitted is then among them.
        let submitted = queue.is_empty() && !queue.cq_overflow();
        drop(queue);
        self.collect();
        if self.ring.completion().overflow() > 0 {
            // In spite of `nodrop`, for want of kernel memory. What they were about is not known any
            // more: requests would wait for ever, and failed quiet sends be taken for done.
            return Err(io::Error::other("the kernel has dropped completions"));
        }
        let batch = std::mem::take(&mut self.completions);
        for &(key, result, flags) in &batch {
            let index = key as u32; // the lower half
            match Kind::of(key) {
                Some(Kind::Receive) => self.on_receive(core, index, result, flags),
                Some(Kind::Send) => self.on_send(core, index, result),
                Some(Kind::Connect) => self.on_connect(core, index, result),
                Some(Kind::Accept) => self.on_accept(core, index, result, flags),
                Some(Kind::Disk) => self.on_disk(core, index, result)?,
                Some(Kind::Signal) => {
                    self.signals_armed = false;
                    while self.signals.as_ref().is_some_and(StopSignals::take) {
                        core.on_signal();
                    }
                }
                Some(Kind::Cancel) | None => {}
            }
        }
        if submitted {
            self.end_quiet_sends(core);
        }
        // Transfers that go on have been pushed, never completed, meanwhile;
        // unless the queue was full: then `collect` has added to the new list.
        if self.completions.is_empty() {
            self.completions = batch;
            self.completions.clear();
        }
        Ok(())
    }

    /// The request no longer uses the connection's memory.
    fn landed(&mut self, core: &mut Core, index: u32) {
        self.in_flight -= 1;
        if let Some(conn) = core.table.get_mut(index) {
            conn.in_flight -= 1;
        }
        core.touch(index);
    }

    fn on_receive(&mut self, core: &mut Core, index: u32, result: i32, flags: u32) {
        self.landed(core, index);
        let Some(conn) = core.table.get_mut(index) else {
            return;
        };
        conn.requests.receiving = false;
        conn.requests.drained = !cqueue::sock_nonempty(flags);
        match result {
            0 => core.on_end(index, CloseReason::Peer),
            1.. => {
                if let Some(data) = conn.input.commit(result.unsigned_abs() as usize) {
                    core.on_received(index, data);
                }
            }
            _ if is_transient(-result) => {}
            _ => core.on_error(index, -result),
        }
    }

    fn on_send(&mut self, core: &mut Core, index: u32, result: i32) {
        self.landed(core, index);
        let Some(conn) = core.table.get_mut(index) else {
            return;
        };
        let requests = &mut conn.requests;
        (requests.sending, requests.quiet) = (false, false);
        match result {
            0.. => {
                let count = result.unsigned_abs() as usize;
                requests.full = count < requests.offered;
                core.on_sent(index, count);
            }
            _ if is_transient(-result) => requests.full = true,
            _ => core.on_error(index, -result),
        }
    }

    /// Those that have posted nothing have sent everything. They leave nothing to look at, but for what
    /// came to their connections before this was known.
    fn end_quiet_sends(&mut self, core: &mut Core) {
        for index in self.quiet_sends.drain(..) {
            let Some(conn) = core.table.get_mut(index).filter(|conn| conn.requests.quiet) else {
                continue;
            };
            (conn.requests.sending, conn.requests.quiet) = (false, false);
            let count = conn.requests.offered;
            let more = conn.output.len() > count || conn.closing;
            conn.in_flight -= 1;
            self.in_flight -= 1;
            core.on_sent(index, count);
            if more {
                core.touch(index);
            }
        }
    }

    fn on_connect(&mut self, core: &mut Core, index: u32, result: i32) {
        self.landed(core, index);
        if let Some(conn) = core.table.get_mut(index) {
            conn.requests.connecting = false;
        }
        core.on_dialed(index, if result < 0 { Err(-result) } else { Ok(()) });
    }

    fn on_accept(&mut self, core: &mut Core, index: u32, result: i32, flags: u32) {
        let Some(listener) = self.listeners.get_mut(index as usize) else {
            return;
        };
        listener.armed = cqueue::more(flags);
        if result >= 0 {
            let stream = TcpStream::from(sys::owned(result));
            // Fails only for a peer that has reset the connection already.
            if let Ok(peer) = stream.peer_addr() {
                core.on_accepted(index, stream, peer);
            }
            return;
        }
        match -result {
            libc::EINVAL if listener.multishot => listener.multishot = false,
            libc::ECONNABORTED | libc::EINTR | libc::EAGAIN | libc::EPROTO | libc::ECANCELED => {}
            errno => {
                tracing::warn!(errno, listener = index, "accept failed: resting");
                listener.rest_until = Some(core.now() + ACCEPT_PAUSE);
            }
        }
    }

    fn on_disk(&mut self, core: &mut Core, index: u32, result: i32) -> io::Result<()> {
        let Some(transfer) = &mut self.transfers[index as usize] else {
            return Ok(());
        };
        match transfer.on_result(result, &self.pool) {
            Progress::Again => self.push_transfer(index),
            Progress::Done(result) => {
                core.on_disk_done(transfer.token, transfer.makes_durable(), result);
                self.transfers[index as usize] = None;
                self.free_transfers.push(index);
                self.in_flight -= 1;
                Ok(())
            }
        }
    }
}

/// `IORING_ENTER_GETEVENTS`.
const GET_EVENTS: u32 = 1;

fn is_transient(errno: i32) -> bool {
    matches!(errno, libc::EAGAIN | libc::EINTR)
}

/// A timeout, a signal and a full completion queue are no failures: the turn
/// takes what there is, and the next one goes on.
fn ignore_transient(result: io::Result<usize>) -> io::Result<()> {
    match result {
        Ok(_) => Ok(()),
        Err(error) => match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
            _ => Err(error),
        },
    }
}
