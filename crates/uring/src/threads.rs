//! Disk requests on a few threads, for the backend without io_uring.
#![allow(unsafe_code)]

use crate::read_pool::ReadPool;
use crate::sys::{self, check, check_len, errno_of};
use crate::transfer::{Call, Progress, Transfer};
use env::DiskResult;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Enough to keep a drive's queue busy; each costs only its stack.
const THREADS: usize = 8;

pub(crate) struct Completion {
    pub(crate) token: u64,
    pub(crate) was_durable: bool,
    pub(crate) result: DiskResult,
}

/// Requests in, completions out; the event descriptor becomes readable when
/// there are completions.
pub(crate) struct DiskThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    queues: Mutex<Queues>,
    work: Condvar,
    event: OwnedFd,
    pool: ReadPool,
}

#[derive(Default)]
struct Queues {
    waiting: VecDeque<Transfer>,
    done: Vec<Completion>,
    stopping: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // The queues are valid between any two of their own operations.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskThreads {
    /// `disk` must stay open until this is dropped.
    pub(crate) fn start(disk: RawFd, pool: ReadPool) -> io::Result<DiskThreads> {
        let shared = Arc::new(Shared {
            queues: Mutex::default(),
            work: Condvar::new(),
            event: sys::event_fd()?,
            pool,
        });
        let mut started = DiskThreads { shared, threads: Vec::new() };
        for number in 0..THREADS {
            let shared = started.shared.clone();
            let builder = std::thread::Builder::new().name(format!("disk-{number}"));
            started.threads.push(builder.spawn(move || serve(disk, &shared))?);
        }
        Ok(started)
    }

    pub(crate) fn event(&self) -> &OwnedFd {
        &self.shared.event
    }

    pub(crate) fn submit(&self, transfers: impl Iterator<Item = Transfer>) {
        let mut queues = self.shared.lock();
        let before = queues.waiting.len();
        queues.waiting.extend(transfers);
        let added = queues.waiting.len() - before;
        drop(queues);
        for _ in 0..added.min(THREADS) {
            self.shared.work.notify_one();
        }
    }

    pub(crate) fn take_done(&self, into: &mut Vec<Completion>) {
        sys::event_clear(&self.shared.event);
        into.append(&mut self.shared.lock().done);
    }
}

impl Drop for DiskThreads {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

fn serve(disk: RawFd, shared: &Shared) {
    loop {
        let mut queues = shared.lock();
        let transfer = loop {
            if let Some(transfer) = queues.waiting.pop_front() {
                break transfer;
            }
            if queues.stopping {
                return;
            }
            queues = shared.work.wait(queues).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queues);
        let completion = perform(disk, transfer, &shared.pool);
        let mut queues = shared.lock();
        queues.done.push(completion);
        let first = queues.done.len() == 1;
        drop(queues);
        // The reader clears the event before it takes the list, so only the
        // first entry of a list needs to raise it.
        if first {
            sys::event_add(&shared.event);
        }
    }
}

fn perform(disk: RawFd, mut transfer: Transfer, pool: &ReadPool) -> Completion {
    loop {
        let result = call(disk, transfer.next_call());
        if let Progress::Done(result) = transfer.on_result(result, pool) {
            return Completion { token: transfer.token, was_durable: transfer.makes_durable(), result };
        }
    }
}

/// One system call; its answer as io_uring would give it.
fn call(disk: RawFd, call: Call) -> i32 {
    // SAFETY: the call's pointers are valid while its transfer lives, and the
    // transfer waits for this function.
    let result = unsafe {
        match call {
            Call::Write { offset, iovecs, count, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                check_len(libc::pwritev2(disk, iovecs, count as i32, offset as i64, flags))
            }
            Call::Read { offset, address, len } => {
                check_len(libc::pread(disk, address.cast(), len, offset as i64))
            }
            Call::Flush => check(libc::fdatasync(disk)).map(|_| 0),
            Call::Discard { offset, len } => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                check(libc::fallocate(disk, mode, offset as i64, len as i64)).map(|_| 0)
            }
        }
    };
    match result {
        Ok(count) => i32::try_from(count).unwrap_or(i32::MAX),
        Err(error) => -errno_of(&error),
    }
}
