//! A node written as a closure, and the macro that runs a test per backend.

use base::{Duration, Time};
use env::{Env, Event, Node};
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use uring::{Backend, Reactor, ReactorConfig};

/// One test function per backend, each in a module of the test's name.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                if $crate::support::uring_works() {
                    super::$name(uring::Backend::Uring);
                }
            }
            #[test]
            fn epoll() {
                super::$name(uring::Backend::Epoll);
            }
        }
    )*};
}

/// Hosts may forbid io_uring; its half of the contract is then not tested,
/// and the output says so.
pub fn uring_works() -> bool {
    match Reactor::new(config(Backend::Uring)) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

pub fn config(backend: Backend) -> ReactorConfig {
    ReactorConfig { backend, stop_signals: false, ..ReactorConfig::default() }
}

pub fn local_listener() -> (TcpListener, SocketAddr) {
    let listener = uring::listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let addr = listener.local_addr().expect("a bound socket");
    (listener, addr)
}

pub enum Step {
    Start,
    Event(Event),
    BatchEnd,
}

pub struct Scripted<F> {
    script: F,
    wake: Rc<Cell<Time>>,
    deadline: Time,
}

/// A test that hangs fails after this.
const PATIENCE: Duration = Duration::from_secs(60);

impl<F: FnMut(&mut dyn Env, Step)> Node for Scripted<F> {
    fn start(&mut self, env: &mut dyn Env) {
        self.deadline = env.now() + PATIENCE;
        (self.script)(env, Step::Start);
    }
    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        (self.script)(env, Step::Event(event));
    }
    fn on_batch_end(&mut self, env: &mut dyn Env) {
        assert!(env.now() < self.deadline, "the test hangs");
        (self.script)(env, Step::BatchEnd);
    }
    fn next_wake(&self) -> Time {
        self.wake.get().min(self.deadline)
    }
}

pub fn drive(config: ReactorConfig, script: impl FnMut(&mut dyn Env, Step)) -> i32 {
    drive_with_wake(config, &Rc::new(Cell::new(Time::MAX)), script)
}

pub fn drive_with_wake(
    config: ReactorConfig,
    wake: &Rc<Cell<Time>>,
    script: impl FnMut(&mut dyn Env, Step),
) -> i32 {
    let mut node = Scripted { script, wake: wake.clone(), deadline: Time::MAX };
    uring::run(config, &mut node).expect("the backend works here")
}
