//! The backend for hosts without io_uring: readiness by epoll, disk requests
//! on threads. Level-triggered, so that a connection left half read or half
//! written comes up again by itself.
#![allow(unsafe_code)]

use crate::connection::Phase;
use crate::core::Core;
use crate::read_pool::ReadPool;
use crate::sys::{self, RawAddr, StopSignals, check, errno_of};
use crate::threads::{Completion, DiskThreads};
use crate::transfer::Transfer;
use base::{Duration, Time};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Events taken by one call.
const EVENTS_MAX: usize = 512;
/// Connections accepted from one listener in one turn.
const ACCEPTS_MAX: usize = 64;
/// How long a listener rests when the process is out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What an event is about: the upper half of its data; below it an index.
mod key {
    pub(super) const CONNECTION: u64 = 0;
    pub(super) const LISTENER: u64 = 1 << 32;
    pub(super) const SIGNAL: u64 = 2 << 32;
    pub(super) const DISK: u64 = 3 << 32;
    pub(super) const KINDS: u64 = 3 << 32;
}

pub(crate) struct Epoll {
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    signals: Option<StopSignals>,
    disk: Option<DiskThreads>,
    pool: ReadPool,
    ready: Vec<libc::epoll_event>,
    iovecs: Vec<libc::iovec>,
    completions: Vec<Completion>,
}

struct Listener {
    socket: TcpListener,
    /// Resting until then.
    rest_until: Option<Time>,
}

impl Epoll {
    pub(crate) fn new(
        listeners: Vec<TcpListener>,
        signals: Option<StopSignals>,
        disk: Option<RawFd>,
        pool: ReadPool,
    ) -> io::Result<Epoll> {
        // SAFETY: no pointers.
        let epoll = sys::owned(check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?);
        let disk = disk.map(|disk| DiskThreads::start(disk, pool.clone())).transpose()?;
        let readable = libc::EPOLLIN as u32;
        for (index, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            add(&epoll, listener.as_raw_fd(), readable, key::LISTENER | index as u64)?;
        }
        if let Some(signals) = &signals {
            add(&epoll, signals.raw_fd(), readable, key::SIGNAL)?;
        }
        if let Some(disk) = &disk {
            add(&epoll, disk.event().as_raw_fd(), readable, key::DISK)?;
        }
        let listeners = listeners.into_iter().map(|socket| Listener { socket, rest_until: None }).collect();
        Ok(Epoll {
            epoll,
            listeners,
            signals,
            disk,
            pool,
            ready: Vec::with_capacity(EVENTS_MAX),
            iovecs: Vec::new(),
            completions: Vec::new(),
        })
    }

    /// Starts what was queued, then waits for at most `timeout`.
    pub(crate) fn turn(&mut self, core: &mut Core, timeout: Option<Duration>) -> io::Result<()> {
        let touched = core.take_touched();
        for &index in &touched {
            self.service(core, index);
        }
        core.recycle_touched(touched);
        self.start_disk(core);
        let timeout = self.wake_listeners(core.now(), timeout);
        let timeout = if core.has_work() { Some(Duration::ZERO) } else { timeout };
        self.wait(timeout)?;
        self.handle_ready(core);
        Ok(())
    }

    /// Starts the queued requests to the device.
    pub(crate) fn start_disk(&mut self, core: &mut Core) {
        let queue = core.take_disk_queue();
        if let Some(disk) = &self.disk
            && !queue.is_empty()
        {
            let pool = &self.pool;
            disk.submit(queue.into_iter().map(|r| Transfer::new(r.token, r.op, pool)));
        }
    }

    /// Does for one connection whatever its state allows now.
    fn service(&mut self, core: &mut Core, index: u32) {
        self.start_dial(core, index);
        self.send(core, index);
        core.finish_closing(index);
        self.update_interest(core, index);
    }

    fn start_dial(&mut self, core: &mut Core, index: u32) {
        let Some(conn) = core.table.get_mut(index) else {
            return;
        };
        let (Phase::Dialing, None, Some(to)) = (conn.phase, &conn.stream, conn.dial_to) else {
            return;
        };
        let result = sys::stream_socket(to, true).and_then(|stream| {
            let stream = conn.stream.insert(stream);
            sys::connect(stream, &RawAddr::new(to))
        });
        match result {
            Ok(()) => core.on_dialed(index, Ok(())),
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => core.on_dialed(index, Err(errno_of(&error))),
        }
    }

    fn send(&mut self, core: &mut Core, index: u32) {
        while let Some(conn) = core.table.get_mut(index) {
            let (Phase::Open, false, Some(stream)) = (conn.phase, conn.output.is_empty(), &conn.stream)
            else {
                return;
            };
            let wanted = conn.output.fill_iovecs(&mut self.iovecs);
            // SAFETY: the iovecs describe pieces that the output owns.
            match unsafe { sys::send_vectored(stream.as_raw_fd(), &self.iovecs) } {
                Ok(count) => {
                    core.on_sent(index, count);
                    if count < wanted {
                        return; // the socket is full: EPOLLOUT will tell
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return core.on_error(index, errno_of(&error)),
            }
        }
    }

    fn update_interest(&mut self, core: &mut Core, index: u32) {
        let Some(conn) = core.table.get_mut(index) else {
            return;
        };
        let Some(stream) = &conn.stream else { return };
        let mut wanted = match conn.phase {
            Phase::Dialing => libc::EPOLLOUT,
            Phase::Open if conn.paused && !conn.closing => 0,
            Phase::Open | Phase::Draining => libc::EPOLLIN,
            // Closed before the next wait, which ends the registration.
            Phase::Dead => return,
        };
        if conn.phase == Phase::Open && !conn.output.is_empty() {
            wanted |= libc::EPOLLOUT;
        }
        // Always reported, so naming it changes nothing but to mark the
        // socket as registered when no readiness is wanted.
        let wanted = (wanted | libc::EPOLLERR) as u32;
        if conn.interest == wanted {
            return;
        }
        let operation = match conn.interest {
            0 => libc::EPOLL_CTL_ADD,
            _ => libc::EPOLL_CTL_MOD,
        };
        conn.interest = wanted;
        self.control(operation, stream.as_raw_fd(), wanted, key::CONNECTION | u64::from(index));
    }

    /// Fails only for want of kernel memory; the connection then hangs until
    /// its next send, which is all that can be done.
    fn control(&self, operation: i32, fd: RawFd, events: u32, data: u64) {
        if let Err(error) = epoll_control(&self.epoll, operation, fd, events, data) {
            tracing::error!(%error, "epoll_ctl failed");
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let spec = timeout.map(sys::timespec);
        let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the list has room for EVENTS_MAX entries; the timeout is
        // null or valid.
        let mut result = check(unsafe {
            libc::epoll_pwait2(
                self.epoll.as_raw_fd(),
                self.ready.as_mut_ptr(),
                EVENTS_MAX as i32,
                spec,
                std::ptr::null(),
            )
        });
        if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ENOSYS)) {
            // Before Linux 5.11: whole milliseconds, rounded up.
            let millis =
                timeout.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
            // SAFETY: as above.
            result = check(unsafe {
                libc::epoll_wait(self.epoll.as_raw_fd(), self.ready.as_mut_ptr(), EVENTS_MAX as i32, millis)
            });
        }
        let count = match result {
            Ok(count) => count.unsigned_abs() as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            Err(error) => return Err(error),
        };
        // SAFETY: the kernel initialised `count` entries.
        unsafe { self.ready.set_len(count) };
        Ok(())
    }

    fn handle_ready(&mut self, core: &mut Core) {
        let ready = std::mem::take(&mut self.ready);
        for event in &ready {
            let (data, events) = (event.u64, event.events);
            let index = data as u32; // the lower half
            match data & key::KINDS {
                key::LISTENER => self.accept(core, index),
                key::SIGNAL => {
                    while self.signals.as_ref().is_some_and(StopSignals::take) {
                        core.on_signal();
                    }
                }
                key::DISK => {
                    if let Some(disk) = &self.disk {
                        disk.take_done(&mut self.completions);
                    }
                    for done in self.completions.drain(..) {
                        core.on_disk_done(done.token, done.was_durable, done.result);
                    }
                }
                _ => self.handle_socket(core, index, events),
            }
        }
        self.ready = ready;
    }

    fn handle_socket(&mut self, core: &mut Core, index: u32, events: u32) {
        let Some(conn) = core.table.get(index) else {
            return;
        };
        let broken = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        match conn.phase {
            Phase::Dead => return,
            Phase::Dialing => {
                let error = conn.stream.as_ref().and_then(|stream| stream.take_error().ok());
                let result = match error {
                    Some(None) => Ok(()),
                    Some(Some(error)) => Err(errno_of(&error)),
                    None => Err(libc::EIO),
                };
                core.on_dialed(index, result);
            }
            // Nothing more can be read by a node that does not read, and epoll
            // would report it without end.
            Phase::Open if conn.paused && !conn.closing && broken => {
                let error = conn.stream.as_ref().and_then(|stream| stream.take_error().ok());
                let errno = error.flatten().map_or(libc::ECONNRESET, |error| errno_of(&error));
                core.on_error(index, errno);
            }
            Phase::Open | Phase::Draining => {
                if events & libc::EPOLLIN as u32 != 0 || broken {
                    self.receive(core, index);
                }
            }
        }
        // Output that has become possible, and the new interest.
        core.touch(index);
    }

    /// One read per turn: a fast peer does not starve the others.
    fn receive(&mut self, core: &mut Core, index: u32) {
        let Some(conn) = core.table.get_mut(index) else {
            return;
        };
        let Some(stream) = &conn.stream else { return };
        let (address, len) = conn.input.prepare();
        // SAFETY: the input offers this memory until its next `prepare`.
        match unsafe { sys::recv(stream.as_raw_fd(), address, len) } {
            Ok(0) => core.on_end(index, env::CloseReason::Peer),
            Ok(count) => {
                if let Some(data) = conn.input.commit(count) {
                    core.on_received(index, data);
                }
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => core.on_error(index, errno_of(&error)),
        }
    }

    fn accept(&mut self, core: &mut Core, index: u32) {
        let Some(listener) = self.listeners.get_mut(index as usize) else {
            return;
        };
        let fd = listener.socket.as_raw_fd();
        for _ in 0..ACCEPTS_MAX {
            match sys::accept_nonblocking(fd) {
                Ok((stream, peer)) => core.on_accepted(index, stream, peer),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return,
                    // The connection at the head died while it waited.
                    Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO | libc::ENOTCONN) => {}
                    _ => {
                        tracing::warn!(%error, listener = index, "accept failed: resting");
                        listener.rest_until = Some(core.now() + ACCEPT_PAUSE);
                        let data = key::LISTENER | u64::from(index);
                        return self.control(libc::EPOLL_CTL_MOD, fd, 0, data);
                    }
                },
            }
        }
    }

    /// Ends the rests that are over; the timeout that respects the others.
    fn wake_listeners(&mut self, now: Time, mut timeout: Option<Duration>) -> Option<Duration> {
        for (index, listener) in self.listeners.iter_mut().enumerate() {
            let Some(until) = listener.rest_until else {
                continue;
            };
            if until <= now {
                listener.rest_until = None;
                let (fd, data) = (listener.socket.as_raw_fd(), key::LISTENER | index as u64);
                let events = libc::EPOLLIN as u32;
                if let Err(error) = epoll_control(&self.epoll, libc::EPOLL_CTL_MOD, fd, events, data) {
                    tracing::error!(%error, listener = index, "a listener cannot be resumed");
                }
            } else {
                let left = until.since(now);
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            }
        }
        timeout
    }
}

fn add(epoll: &OwnedFd, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
    epoll_control(epoll, libc::EPOLL_CTL_ADD, fd, events, data)
}

fn epoll_control(epoll: &OwnedFd, operation: i32, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
    let mut event = libc::epoll_event { events, u64: data };
    // SAFETY: the event is valid for the call.
    check(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd, &mut event) }).map(|_| ())
}
