//! From a device to an open store.
//!
//! Superblocks, then the checkpoint they name, then every valid record after
//! it; then the doubt at the log's end is settled (see `tail.rs`), both
//! superblocks get a new epoch, and the store is open. Whatever the device
//! holds, the outcome is an open store or an [`OpenError`]; never a panic,
//! and memory bounded by what was read.
//!
//! How a torn tail differs from damage: each record says up to which record
//! all was durable when it was written, and the superblock says which record
//! was the last one found when the current epoch began. A record that cannot
//! be read although one of them vouches for it is damage, and the store is
//! refused. One that nobody vouches for was never acknowledged, or was the
//! very last; it ends the log.

mod checkpoint;
mod epoch;
mod pages;
mod rebuilt;
mod replay;
mod superblocks;
mod tail;

use crate::alloc::Run;
use crate::checkpoint::{Loader, Places};
use crate::core::Core;
use crate::engine::{OpenError, Options};
use crate::index::Wanted;
use crate::io::{Io, Purpose};
use crate::limits::BLOCK_LEN;
use crate::log::Region;
use crate::place::Place;
use crate::superblock::{self, COPIES_MAX, Identity, Superblock};
use bytes::{Bytes, BytesMut};
use env::{DiskInfo, DiskResult};
use rebuilt::Rebuilt;
use wire::types::{OsdId, Uuid};

type Outcome = Option<Result<Box<Core>, OpenError>>;

enum Mode {
    Format(Identity),
    Open(Option<(Uuid, OsdId)>),
}

/// Bytes of log asked for at once.
const WINDOW_LEN: u64 = 1 << 20;

struct Loading {
    loader: Loader,
    index: u32,
    places: Places,
    copy: usize,
    chain: Vec<Run>,
}

struct Replay {
    position: u64,
    /// The next record's.
    sequence: u64,
    /// Log content from `window_at` on.
    window_at: u64,
    window: Bytes,
    durable_through: u64,
}

/// Pages on their way into memory.
struct Paging {
    /// With the copy to be tried.
    queue: Vec<(Wanted, usize)>,
    /// Asked for: copy, place, and number of requests.
    now: Vec<(Wanted, usize, Place, usize)>,
    then: Option<Replay>,
}

enum Step {
    Superblocks {
        offsets: Vec<u64>,
    },
    Loading(Loading),
    Pages(Paging),
    Replay(Replay),
    /// Looks for a record that vouches for the unreadable one at `replay.position`.
    Scan {
        replay: Replay,
        at: u64,
        len: u64,
    },
    /// Compares directly written blocks of the last records.
    Settle {
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
    },
    /// Writes the superblocks, one after the other.
    Writing {
        replay: Option<Replay>,
        order: [usize; 2],
        step: u32,
    },
}

pub(crate) struct Opening {
    pub(crate) io: Io,
    disk: DiskInfo,
    options: Options,
    mode: Mode,
    step: Option<Step>,
    answers: Vec<Option<DiskResult>>,
    asked: Vec<u64>,
    superblock: Option<Superblock>,
    /// The copy it came from: overwritten last.
    good_copy: usize,
    rebuilt: Option<Rebuilt>,
    chain: Vec<Run>,
    /// Records from this one on are not applied: their data was lost.
    stop_before: u64,
}

impl Opening {
    pub(crate) fn format(disk: DiskInfo, identity: Identity, options: Options) -> Result<Opening, OpenError> {
        Opening::start(disk, Mode::Format(identity), options)
    }

    pub(crate) fn open(
        disk: DiskInfo,
        expect: Option<(Uuid, OsdId)>,
        options: Options,
    ) -> Result<Opening, OpenError> {
        Opening::start(disk, Mode::Open(expect), options)
    }

    fn start(disk: DiskInfo, mode: Mode, options: Options) -> Result<Opening, OpenError> {
        if options.pipeline_depth == 0 {
            return Err(OpenError::BadOption { what: "pipeline_depth" });
        }
        if !(1..=COPIES_MAX).contains(&options.checkpoint_copies) {
            return Err(OpenError::BadOption { what: "checkpoint_copies" });
        }
        if options.direct_len_min < BLOCK_LEN {
            return Err(OpenError::BadOption { what: "direct_len_min" });
        }
        let mut opening = Opening {
            io: Io::default(),
            disk,
            options,
            mode,
            step: None,
            answers: Vec::new(),
            asked: Vec::new(),
            superblock: None,
            good_copy: 0,
            rebuilt: None,
            chain: Vec::new(),
            stop_before: u64::MAX,
        };
        if disk.len_bytes >= superblock::DEVICE_LEN_MIN {
            let offsets = Superblock::offsets(disk.len_bytes).to_vec();
            opening.ask(offsets.iter().map(|offset| (*offset, BLOCK_LEN)));
            opening.step = Some(Step::Superblocks { offsets });
        }
        Ok(opening)
    }

    fn ask(&mut self, reads: impl IntoIterator<Item = (u64, u64)>) {
        self.answers.clear();
        self.asked.clear();
        for (part, (offset, len)) in reads.into_iter().enumerate() {
            self.answers.push(None);
            self.asked.push(offset);
            self.io.read(offset, len as u32, Purpose::Open { part: part as u32 });
        }
    }

    /// Log content, wrapping; one answer for each span.
    fn ask_log(&mut self, region: Region, position: u64, len: u64) {
        let spans = region.spans(position, len);
        self.ask(spans.into_iter().filter(|(_, len)| *len > 0));
    }

    pub(crate) fn on_done(&mut self, token: u64, result: DiskResult) -> Outcome {
        let Some(Purpose::Open { part }) = self.io.done(token) else {
            return None;
        };
        if let Some(answer) = self.answers.get_mut(part as usize) {
            *answer = Some(result);
        }
        if self.answers.iter().any(Option::is_none) {
            return None;
        }
        let answers: Vec<DiskResult> = std::mem::take(&mut self.answers).into_iter().flatten().collect();
        let step = self.step.take()?;
        match self.advance(step, answers) {
            Ok(None) => None,
            Ok(Some(core)) => Some(Ok(core)),
            Err(error) => Some(Err(error)),
        }
    }

    fn advance(&mut self, step: Step, answers: Vec<DiskResult>) -> Result<Option<Box<Core>>, OpenError> {
        match step {
            Step::Superblocks { offsets } => self.on_superblocks(&offsets, &answers),
            Step::Loading(loading) => self.on_chunk(loading, answers),
            Step::Pages(paging) => self.on_pages(paging, answers),
            Step::Replay(mut replay) => {
                replay.window_at = replay.position;
                replay.window = self.joined(answers)?;
                self.replay(replay)
            }
            Step::Scan { replay, at, len } => {
                let window = self.joined(answers)?;
                self.scan(replay, at, len, &window)
            }
            Step::Settle { replay, runs, at } => self.on_settle(replay, runs, at, answers),
            Step::Writing { replay, order, step } => {
                if let Some(Err(error)) = answers.first() {
                    return Err(OpenError::Io { offset: 0, error: *error });
                }
                self.write_superblocks(replay, order, step + 1)
            }
        }
    }

    /// The answers' bytes, of exactly the lengths that were asked for.
    fn joined(&self, answers: Vec<DiskResult>) -> Result<Bytes, OpenError> {
        let mut parts = Vec::new();
        for (answer, offset) in answers.into_iter().zip(&self.asked) {
            parts.push(answer.map_err(|error| OpenError::Io { offset: *offset, error })?);
        }
        if parts.len() == 1 {
            return Ok(parts.swap_remove(0));
        }
        let mut all = BytesMut::new();
        parts.iter().for_each(|part| all.extend_from_slice(part));
        Ok(all.freeze())
    }

    fn superblock(&self) -> &Superblock {
        self.superblock.as_ref().expect("read before anything else")
    }

    fn region(&self) -> Region {
        Region { len: self.superblock().log_len }
    }

    fn rebuilt(&mut self) -> &mut Rebuilt {
        self.rebuilt.as_mut().expect("begun before anything is loaded")
    }
}
