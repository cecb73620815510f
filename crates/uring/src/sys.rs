//! Thin, safe wrappers of the system calls that std lacks.
#![allow(unsafe_code)]

use base::Duration;
use std::io;
use std::mem::{size_of, zeroed};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// How long a predecessor may take to disappear. The kernel takes a dead
/// process's io_uring apart in the background, and the sockets and files of
/// its requests with it: 5 to 12 ms after the exit, measured on an idle
/// two-core machine.
const PATIENCE: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_millis(2);

/// Tries again while the answer is `busy`, in case the user of the resource
/// has just been killed.
pub(crate) fn outwait_predecessor<T>(busy: i32, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut waited = Duration::ZERO;
    loop {
        match attempt() {
            Err(error) if error.raw_os_error() == Some(busy) && waited < PATIENCE => {
                std::thread::sleep(RETRY);
                waited += RETRY;
            }
            other => return other,
        }
    }
}

/// `-1` becomes the errno.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Takes ownership of a descriptor the kernel has just made.
pub(crate) fn owned(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0);
    // SAFETY: every caller passes a descriptor it got from a successful system
    // call and has given to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A socket address in the kernel's form.
pub(crate) struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    pub(crate) fn new(addr: SocketAddr) -> RawAddr {
        // SAFETY: all zero is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { zeroed() };
        let place = (&raw mut storage).cast::<u8>();
        let len = match addr {
            SocketAddr::V4(v4) => {
                let raw = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is as large and as aligned as any.
                unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(v6) => {
                let raw = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        RawAddr { storage, len: len as libc::socklen_t }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    fn decode(&self) -> io::Result<SocketAddr> {
        let place = (&raw const self.storage).cast::<u8>();
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says what the storage holds.
                let raw = unsafe { place.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
                Ok(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let raw = unsafe { place.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                let port = u16::from_be(raw.sin6_port);
                Ok(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
            }
            _ => Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        }
    }
}

fn set_int(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`.
    check(unsafe {
        libc::setsockopt(fd, level, option, (&raw const value).cast(), size_of::<i32>() as libc::socklen_t)
    })
    .map(|_| ())
}

/// Small messages leave at once, and a peer whose machine vanished without a
/// word is noticed within a minute. Accepted sockets inherit their listener's.
pub(crate) fn set_stream_options(fd: RawFd) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 30)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 10)?;
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)
}

/// A stream socket for a dial to `to`, not yet connected.
pub(crate) fn stream_socket(to: SocketAddr, nonblocking: bool) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    if nonblocking {
        kind |= libc::SOCK_NONBLOCK;
    }
    // SAFETY: no pointers.
    let fd = owned(check(unsafe { libc::socket(family, kind, 0) })?);
    set_stream_options(fd.as_raw_fd())?;
    Ok(TcpStream::from(fd))
}

pub(crate) fn connect(stream: &TcpStream, to: &RawAddr) -> io::Result<()> {
    // SAFETY: the address is initialised for the length it states.
    check(unsafe { libc::connect(stream.as_raw_fd(), to.as_ptr(), to.len()) }).map(|_| ())
}

/// Accepts one connection, without blocking when the listener does not block.
pub(crate) fn accept_nonblocking(listener: RawFd) -> io::Result<(TcpStream, SocketAddr)> {
    // SAFETY: all zero is a valid sockaddr_storage.
    let storage: libc::sockaddr_storage = unsafe { zeroed() };
    let mut peer = RawAddr { storage, len: size_of::<libc::sockaddr_storage>() as _ };
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address and its length are valid places for the answer.
    let fd = check(unsafe { libc::accept4(listener, (&raw mut peer.storage).cast(), &mut peer.len, flags) })?;
    let stream = TcpStream::from(owned(fd));
    Ok((stream, peer.decode()?))
}

/// A larger backlog than std's: a restarted daemon is dialled by everyone.
pub(crate) fn set_backlog(listener: RawFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::listen(listener, backlog) }).map(|_| ())
}

/// Receives into memory described by pointer and length.
///
/// # Safety
/// `address` must be valid for writes of `len` bytes.
pub(crate) unsafe fn recv(fd: RawFd, address: *mut u8, len: usize) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    check_len(unsafe { libc::recv(fd, address.cast(), len, 0) })
}

/// A message header over `iovecs`; they must outlive its use.
pub(crate) fn message_header(iovecs: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: all zero is a valid msghdr: no name, no control data.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = iovecs.as_ptr().cast_mut();
    header.msg_iovlen = iovecs.len() as _;
    header
}

/// Sends what `iovecs` describe.
///
/// # Safety
/// Every iovec must describe readable memory.
pub(crate) unsafe fn send_vectored(fd: RawFd, iovecs: &[libc::iovec]) -> io::Result<usize> {
    let header = message_header(iovecs);
    // SAFETY: the caller's promise, and `iovecs` lives through the call.
    check_len(unsafe { libc::sendmsg(fd, &header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) })
}

/// SIGTERM and SIGINT as a readable descriptor. Blocks both in this thread,
/// and so in the threads it starts meanwhile, until it is dropped.
pub(crate) struct StopSignals {
    fd: OwnedFd,
    mask_before: libc::sigset_t,
}

impl StopSignals {
    pub(crate) fn block() -> io::Result<StopSignals> {
        // SAFETY: both sets are initialised by the calls that fill them
        // before any other use.
        unsafe {
            let mut set: libc::sigset_t = zeroed();
            let mut mask_before: libc::sigset_t = zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
            let fd = owned(check(libc::signalfd(-1, &set, flags))?);
            let result = libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut mask_before);
            if result != 0 {
                return Err(io::Error::from_raw_os_error(result));
            }
            Ok(StopSignals { fd, mask_before })
        }
    }

    /// Whether a signal had arrived; takes it.
    pub(crate) fn take(&self) -> bool {
        // SAFETY: all zero is a valid signalfd_siginfo, and the length matches.
        unsafe {
            let mut info: libc::signalfd_siginfo = zeroed();
            let len = size_of::<libc::signalfd_siginfo>();
            libc::read(self.raw_fd(), (&raw mut info).cast(), len) == len as isize
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        // A second signal to a node that has just ended must not kill the
        // process on its way out.
        while self.take() {}
        // SAFETY: the set came from the same call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask_before, std::ptr::null_mut());
        }
    }
}

pub(crate) fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }).map(owned)
}

pub(crate) fn event_add(event: &OwnedFd) {
    let one = 1u64;
    // SAFETY: eight readable bytes. It can only fail when the counter is full,
    // and then the reader is due anyway.
    unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
}

pub(crate) fn event_clear(event: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: eight writable bytes; the descriptor does not block.
    unsafe { libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8) };
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["127.0.0.1:6800", "[fe80::1]:3300", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().expect("an address");
            assert_eq!(RawAddr::new(addr).decode().expect("same family"), addr);
        }
    }
}
