//! Requests to the device, and what each one was for.

use crate::alloc::Run;
use crate::api::WritesByPart;
use crate::index::PageRef;
use crate::key_map::KeyMap;
use crate::lay::Laying;
use crate::reads::DevicePart;
use base::Part;
use bytes::Bytes;
use env::{DiskOp, DiskRequest};
use std::collections::VecDeque;

/// What to do when a request ends.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// Part of a log record.
    Record {
        sequence: u64,
    },
    /// Data that a record refers to.
    Direct {
        sequence: u64,
        run: Run,
    },
    /// Makes the records up to this one durable.
    Commit {
        sequence: u64,
    },
    Read(DevicePart),
    /// The old content under a partial overwrite of `target`.
    Base {
        target: u32,
        source: u32,
    },
    /// Logged blocks put in place; the version of each.
    Writeback {
        run: Run,
        sequences: Vec<u64>,
    },
    /// A page of the next checkpoint, or a chunk of its directory.
    Checkpoint,
    /// A page on its way into memory: one run of one copy.
    Page {
        id: PageRef,
        part: u32,
    },
    /// A step of switching to a new checkpoint.
    Switch,
    Discard {
        run: Run,
    },
    /// Blocks of a unit that is being put together.
    Mend {
        run: Run,
    },
    /// Zeros ahead of what is to come.
    Lay(Laying),
    /// Of `fsck`.
    Check {
        part: u32,
    },
    /// Before the store is open.
    Open {
        part: u32,
    },
}

/// Units: requests and bytes since open.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counters {
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) flushes: u64,
    /// Of `writes`.
    pub(crate) durable_writes: u64,
    pub(crate) by_part: WritesByPart,
}

impl Counters {
    fn count_write(&mut self, purpose: &Purpose, bytes: u64) {
        self.writes += 1;
        self.write_bytes += bytes;
        let parts = &mut self.by_part;
        let part = match purpose {
            Purpose::Record { .. } => &mut parts.log,
            Purpose::Direct { .. } => &mut parts.data,
            Purpose::Writeback { .. } => &mut parts.in_place,
            Purpose::Checkpoint => &mut parts.checkpoints,
            Purpose::Lay(_) => &mut parts.laid,
            _ => return,
        };
        part.requests += 1;
        part.bytes += bytes;
    }
}

#[derive(Default)]
pub(crate) struct Io {
    queue: VecDeque<DiskRequest>,
    in_flight: KeyMap<u64, Purpose>,
    next_token: u64,
    pub(crate) counters: Counters,
}

impl Io {
    fn submit(&mut self, op: DiskOp, purpose: Purpose) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        self.queue.push_back(DiskRequest { token, op });
        self.in_flight.insert(token, purpose);
        token
    }

    pub(crate) fn write(&mut self, offset: u64, data: Vec<Bytes>, purpose: Purpose) -> u64 {
        self.write_as(offset, data, false, purpose)
    }

    /// `durable`: when it completes.
    pub(crate) fn write_as(&mut self, offset: u64, data: Vec<Bytes>, durable: bool, purpose: Purpose) -> u64 {
        self.counters.durable_writes += u64::from(durable);
        self.counters.count_write(&purpose, data.iter().map(|piece| piece.len() as u64).sum());
        self.submit(DiskOp::Write { offset, data, durable }, purpose)
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32, purpose: Purpose) -> u64 {
        self.read_as(offset, len, None, purpose)
    }

    pub(crate) fn read_into(&mut self, offset: u64, part: Part, purpose: Purpose) -> u64 {
        let len = u32::try_from(part.len()).expect("a request has less than 4 GiB");
        self.read_as(offset, len, Some(part), purpose)
    }

    fn read_as(&mut self, offset: u64, len: u32, into: Option<Part>, purpose: Purpose) -> u64 {
        self.counters.reads += 1;
        self.counters.read_bytes += u64::from(len);
        self.submit(DiskOp::Read { offset, len, into }, purpose)
    }

    pub(crate) fn flush(&mut self, purpose: Purpose) -> u64 {
        self.counters.flushes += 1;
        self.submit(DiskOp::Flush, purpose)
    }

    pub(crate) fn discard(&mut self, run: Run) {
        let block = crate::limits::BLOCK_LEN;
        let op = DiskOp::Discard { offset: u64::from(run.start) * block, len: u64::from(run.count) * block };
        self.submit(op, Purpose::Discard { run });
    }

    pub(crate) fn poll(&mut self) -> Option<DiskRequest> {
        self.queue.pop_front()
    }

    /// What the request was for; `None` for one we did not make, or abandoned.
    pub(crate) fn done(&mut self, token: u64) -> Option<Purpose> {
        self.in_flight.remove(&token)
    }

    /// Requests asked for and not yet answered.
    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Forgets everything asked for and not yet answered.
    pub(crate) fn abandon(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
    }
}
