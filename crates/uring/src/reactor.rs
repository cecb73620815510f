//! The loop: gather, hand to the node, end the batch, sleep.

use crate::clock;
use crate::core::Core;
use crate::disk::Disk;
use crate::epoll::Epoll;
use crate::ring::Ring;
use crate::sys;
use crate::world::World;
use base::{Duration, Time};
use env::{Env, Node};
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;

/// Pending connections per listener: a restarted daemon is dialled by everyone.
const BACKLOG: i32 = 4096;
/// How long the end of the process waits for requests the kernel still holds.
const QUIESCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Which kernel interface to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backend {
    /// io_uring where the kernel allows it, else epoll.
    #[default]
    Auto,
    Uring,
    Epoll,
}

/// The interface in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendKind {
    Uring,
    Epoll,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendKind::Uring => "io_uring",
            BackendKind::Epoll => "epoll",
        })
    }
}

pub struct ReactorConfig {
    /// Bound sockets ([`listen`]); their order gives the [`env::ListenerId`]s.
    pub listeners: Vec<TcpListener>,
    pub disk: Option<Disk>,
    pub backend: Backend,
    /// Turns SIGTERM and SIGINT into [`env::Event::Shutdown`]. Both are
    /// blocked in the calling thread while the reactor lives; threads started
    /// earlier would still take them, with their default effect.
    pub stop_signals: bool,
    /// How long to poll before sleeping while requests are in flight (io_uring
    /// only). Zero unless the thread has a core of its own: on two shared
    /// cores, 20 µs tripled the CPU of a round trip and halved their rate
    /// (`examples/echo_bench.rs`).
    pub spin: Duration,
    /// A dial without an answer ends as `Unreachable` after this.
    pub dial_timeout: Duration,
    /// How long a closed connection may take to deliver its last bytes.
    pub linger: Duration,
}

impl Default for ReactorConfig {
    fn default() -> ReactorConfig {
        ReactorConfig {
            listeners: Vec::new(),
            disk: None,
            backend: Backend::Auto,
            stop_signals: true,
            spin: Duration::ZERO,
            dial_timeout: Duration::from_secs(5),
            linger: Duration::from_secs(2),
        }
    }
}

impl ReactorConfig {
    /// The defaults of a daemon, without listeners and disk.
    pub fn new(backend: Backend) -> ReactorConfig {
        ReactorConfig { backend, ..ReactorConfig::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error("io_uring cannot be used here: {0}")]
    Uring(#[source] io::Error),
    #[error("cannot set up epoll: {0}")]
    Epoll(#[source] io::Error),
    #[error("cannot set up a listener: {0}")]
    Listener(#[source] io::Error),
    #[error("cannot set up signals or randomness: {0}")]
    Process(#[source] io::Error),
}

/// A listening socket for [`ReactorConfig::listeners`].
///
/// Errors: `AddrInUse` when another process listens there and still does a
/// second later: a process killed just now may hold its port for a moment.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    // std sets SO_REUSEADDR.
    let listener = sys::outwait_predecessor(libc::EADDRINUSE, || TcpListener::bind(addr))?;
    sys::set_backlog(listener.as_raw_fd(), BACKLOG)?;
    Ok(listener)
}

/// Sets up a [`Reactor`] and runs it until the node exits.
///
/// Errors: only those of the setup; the node has not been started then.
pub fn run(config: ReactorConfig, node: &mut dyn Node) -> Result<i32, SetupError> {
    Ok(Reactor::new(config)?.run(node))
}

/// One thread's environment. Stays on the thread that made it.
pub struct Reactor {
    // Dropped first: its threads use the disk that the core owns.
    driver: Driver,
    core: Core,
    /// A ring takes requests only from the thread that made it.
    not_send: PhantomData<*const ()>,
}

pub(crate) enum Driver {
    Uring(Box<Ring>),
    Epoll(Box<Epoll>),
}

/// Waiting, and asking, can only fail by a bug of ours or for want of kernel memory; without it
/// nothing can go on, and nothing is lost that a crash would not lose.
const TAKES_REQUESTS: &str = "the kernel takes requests and lets the process wait for its events";

impl Driver {
    /// Starts the queued requests to the device, in the middle of a batch.
    pub(crate) fn start_disk(&mut self, core: &mut Core) {
        match self {
            Driver::Uring(ring) => ring.start_disk(core).expect(TAKES_REQUESTS),
            Driver::Epoll(epoll) => epoll.start_disk(core),
        }
    }
}

impl Reactor {
    pub fn new(config: ReactorConfig) -> Result<Reactor, SetupError> {
        let random = clock::seeded_random().map_err(SetupError::Process)?;
        for listener in &config.listeners {
            sys::set_stream_options(listener.as_raw_fd()).map_err(SetupError::Listener)?;
        }
        let signals = match config.stop_signals {
            true => Some(sys::StopSignals::block().map_err(SetupError::Process)?),
            false => None,
        };
        let disk = config.disk.as_ref().map(Disk::raw_fd);
        let core = Core::new(random, config.disk, config.dial_timeout, config.linger);
        let pool = core.pool.clone();
        let ring = match config.backend {
            Backend::Epoll => None,
            Backend::Uring => Some(Ring::create(disk).map_err(SetupError::Uring)?),
            Backend::Auto => match Ring::create(disk) {
                Ok(ring) => Some(ring),
                Err(error) => {
                    tracing::info!(%error, "io_uring cannot be used here");
                    None
                }
            },
        };
        let driver = match ring {
            Some(ring) => Driver::Uring(Box::new(
                Ring::new(ring, config.listeners, signals, config.spin, pool).map_err(SetupError::Uring)?,
            )),
            None => Driver::Epoll(Box::new(
                Epoll::new(config.listeners, signals, disk, pool).map_err(SetupError::Epoll)?,
            )),
        };
        let reactor = Reactor { driver, core, not_send: PhantomData };
        tracing::info!(backend = %reactor.backend(), "environment ready");
        Ok(reactor)
    }

    /// The interface that [`Backend::Auto`] came down to.
    pub fn backend(&self) -> BackendKind {
        match self.driver {
            Driver::Uring(_) => BackendKind::Uring,
            Driver::Epoll(_) => BackendKind::Epoll,
        }
    }

    /// Drives the node until it calls [`env::Env::exit`]; returns its status.
    /// Output queued by then is sent, and disk requests end, before it returns.
    pub fn run(mut self, node: &mut dyn Node) -> i32 {
        self.core.refresh_clocks();
        let mut world = World::new(&mut self.core, &mut self.driver);
        node.start(&mut world);
        node.on_batch_end(&mut world);
        loop {
            self.core.release_resumed();
            if let Some(status) = self.core.exit_status() {
                self.finish();
                return status;
            }
            self.turn(node.next_wake());
            let mut world = World::new(&mut self.core, &mut self.driver);
            let delivered = world.dispatch(node);
            if delivered || world.now() >= node.next_wake() {
                node.on_batch_end(&mut world);
            }
            self.core.free_dead();
        }
    }

    /// Starts what is queued, sleeps until something happens or until `wake`,
    /// and gathers what happened.
    fn turn(&mut self, wake: Time) {
        let wake = wake.min(self.core.next_deadline());
        let timeout = match wake {
            _ if self.core.has_events() => Some(Duration::ZERO),
            Time::MAX => None,
            wake => Some(wake.since(self.core.now())),
        };
        let result = match &mut self.driver {
            Driver::Uring(ring) => ring.turn(&mut self.core, timeout),
            Driver::Epoll(epoll) => epoll.turn(&mut self.core, timeout),
        };
        result.expect(TAKES_REQUESTS);
        self.core.refresh_clocks();
        self.core.expire_deadlines();
        self.core.trim_pool();
    }

    /// Sends what is queued, within the linger time, and lets disk requests end.
    fn finish(&mut self) {
        self.core.silence();
        let deadline = self.core.now_after_linger();
        // What fits its sockets is sent in this turn, without an event that would end a wait.
        self.turn(self.core.now());
        self.core.silence();
        while self.core.has_unfinished_output() && !self.core.now_is_past(deadline) {
            self.turn(deadline);
            self.core.silence();
            self.core.free_dead();
        }
    }

    /// Ends every request that the kernel holds our memory for.
    fn quiesce(&mut self) -> bool {
        self.core.silence();
        self.core.end_all();
        if let Driver::Uring(ring) = &mut self.driver
            && let Err(error) = ring.stop()
        {
            tracing::warn!(%error, "the ring takes no more requests");
            return ring.is_idle();
        }
        let deadline = clock::monotonic() + QUIESCE_TIMEOUT;
        loop {
            self.core.silence();
            self.core.free_dead();
            let idle = match &self.driver {
                Driver::Uring(ring) => ring.is_idle(),
                Driver::Epoll(_) => true,
            };
            if idle {
                return true;
            }
            if clock::monotonic() >= deadline {
                return false;
            }
            self.turn(deadline);
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if self.quiesce() {
            if let Driver::Uring(ring) = &mut self.driver {
                ring.release_disk();
            }
            return;
        }
        // A device that does not answer may still write into our buffers one
        // day: leave them to the end of the process.
        tracing::error!("requests still in flight at the end: their memory is not freed");
        if let Driver::Uring(ring) = &mut self.driver {
            ring.leak();
        }
        std::mem::forget(std::mem::take(&mut self.core.table));
    }
}
