//! Clocks, timers, signals.
#![allow(unsafe_code)]

use crate::support::{Step, config, drive, drive_with_wake};
use base::{Duration, Time};
use env::Event;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use uring::{Backend, BackendKind, Reactor};

contract!(
    timers_fire_in_time,
    signals_become_shutdown,
    clocks_stand_still_within_a_batch,
    randomness_differs_between_runs,
    backend_is_reported,
);

fn timers_fire_in_time(backend: Backend) {
    let wake = Rc::new(Cell::new(Time::MAX));
    let step_len = Duration::from_millis(5);
    let (mut fired, mut late) = (0u32, Duration::ZERO);
    drive_with_wake(config(backend), &wake.clone(), |env, step| match step {
        Step::Start => wake.set(env.now() + step_len),
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {
            // Once after the start, before anything is due.
            if env.now() < wake.get() {
                assert_eq!(fired, 0, "woken early");
                return;
            }
            late += env.now().since(wake.get());
            fired += 1;
            wake.set(env.now() + step_len);
            if fired == 20 {
                env.exit(0);
            }
        }
    });
    // Loose: the machine may be busy with other tests.
    assert!(late / fired < Duration::from_millis(20), "{late:?} late in {fired} timers");
}

fn signals_become_shutdown(backend: Backend) {
    let (send, receive) = mpsc::channel();
    let node = thread::spawn(move || {
        let mut config = config(backend);
        config.stop_signals = true;
        let mut signals = 0;
        // The signal goes to this thread alone: other threads of the test
        // process do not block it.
        drive(config, |env, step| match step {
            // SAFETY: no arguments.
            Step::Start => send.send(unsafe { libc::pthread_self() }).expect("the test waits"),
            Step::Event(Event::Shutdown) => {
                signals += 1;
                if signals == 2 {
                    env.exit(5);
                }
                // SAFETY: as above; the thread is this one.
                unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGINT) };
            }
            _ => {}
        })
    });
    let thread = receive.recv().expect("the node has started");
    // SAFETY: the thread lives until it has got the signal.
    assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGTERM) }, 0);
    assert_eq!(node.join().expect("the node's own checks"), 5);
}

fn clocks_stand_still_within_a_batch(backend: Backend) {
    drive(config(backend), |env, step| {
        if let Step::Start = step {
            let (now, wall) = (env.now(), env.wall());
            thread::sleep(Duration::from_millis(2));
            assert_eq!((env.now(), env.wall()), (now, wall));
            assert!(wall.sec > 1_700_000_000, "seconds since 1970");
            env.exit(0);
        }
    });
}

fn randomness_differs_between_runs(backend: Backend) {
    let draw = || {
        let mut drawn = 0;
        drive(config(backend), |env, _| {
            drawn = env.random().next_u64();
            env.exit(0);
        });
        drawn
    };
    assert_ne!(draw(), draw());
}

fn backend_is_reported(backend: Backend) {
    let reactor = Reactor::new(config(backend)).expect("works here");
    let expected = match backend {
        Backend::Epoll => BackendKind::Epoll,
        _ => BackendKind::Uring,
    };
    assert_eq!(reactor.backend(), expected);
}
