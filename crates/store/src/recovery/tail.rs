//! Where the log ends: what cannot be read is damage, or was never acknowledged.

use super::{Opening, Replay, Step, WINDOW_LEN};
use crate::alloc::Run;
use crate::core::{BLOCK, Core};
use crate::engine::OpenError;
use crate::limits::BLOCK_LEN;
use crate::log::Header;
use base::crc32c;
use bytes::Bytes;
use env::DiskResult;

/// Blocks of a read that settles the tail, and such reads at once: on a
/// fragmented device most of them are short.
const SETTLE_BLOCKS: u32 = 256;
const SETTLE_READS: usize = 32;

impl Opening {
    pub(super) fn begin_scan(&mut self, replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let region = self.region();
        let offset = region.device_offset(replay.position);
        if replay.sequence <= superblock.recovered_sequence {
            let what = "a log record that an earlier start had found is damaged";
            return Err(OpenError::Corrupt { offset, what });
        }
        // The next record begins at most one record's length further on.
        let end = superblock.head_position + region.len;
        let at = replay.position + BLOCK_LEN;
        let len = region.record_len_max().min(end.saturating_sub(at));
        self.scan_on(replay, at, len)
    }

    fn scan_on(&mut self, replay: Replay, at: u64, len: u64) -> Result<Option<Box<Core>>, OpenError> {
        if len == 0 {
            return self.settle(replay);
        }
        self.ask_log(self.region(), at, len.min(WINDOW_LEN));
        self.step = Some(Step::Scan { replay, at, len });
        Ok(None)
    }

    pub(super) fn scan(
        &mut self,
        replay: Replay,
        at: u64,
        len: u64,
        window: &Bytes,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let nonce = self.superblock().nonce();
        for (i, block) in window.chunks_exact(BLOCK).enumerate() {
            let position = at + i as u64 * BLOCK_LEN;
            let Some(header) = Header::decode(block, nonce) else {
                continue;
            };
            let follows =
                header.position == position && header.sequence > replay.sequence && self.epoch_fits(&header);
            if follows && header.durable_through >= replay.sequence {
                let offset = self.region().device_offset(replay.position);
                let what = "a log record is damaged, and later ones show that it was durable";
                return Err(OpenError::Corrupt { offset, what });
            }
        }
        let read = (window.len() as u64).max(BLOCK_LEN).min(len);
        self.scan_on(replay, at + read, len - read)
    }

    /// The last records were written together with the data they refer to, and
    /// nobody vouches that both arrived: neither a later record nor an earlier opening. Each block they still need from the
    /// device is compared; the first record with a block that differs was never
    /// acknowledged, and goes with all after it. Blocks that a later record
    /// replaced or freed do not count: they may hold newer data by now.
    pub(super) fn settle(&mut self, replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let durable = replay.durable_through;
        let mut runs: Vec<Run> = Vec::new();
        self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable);
        for device in self.rebuilt().direct.keys() {
            match runs.last_mut() {
                Some(run) if run.end() == *device && run.count < SETTLE_BLOCKS => run.count += 1,
                _ => runs.push(Run { start: *device, count: 1 }),
            }
        }
        self.settle_on(replay, runs, 0)
    }

    fn settle_on(
        &mut self,
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let part = &runs[at..runs.len().min(at + SETTLE_READS)];
        if part.is_empty() {
            if self.stop_before != u64::MAX {
                tracing::warn!(
                    "log records from {} on were not complete: never acknowledged, dropped",
                    self.stop_before
                );
            }
            let order = [1 - self.good_copy, self.good_copy];
            return self.write_superblocks(Some(replay), order, 0);
        }
        self.ask(part.iter().map(|run| (u64::from(run.start) * BLOCK_LEN, u64::from(run.count) * BLOCK_LEN)));
        self.step = Some(Step::Settle { replay, runs, at });
        Ok(None)
    }

    pub(super) fn on_settle(
        &mut self,
        replay: Replay,
        runs: Vec<Run>,
        at: usize,
        answers: Vec<DiskResult>,
    ) -> Result<Option<Box<Core>>, OpenError> {
        let mut lost = u64::MAX;
        for (run, answer) in runs[at..].iter().zip(&answers) {
            // An unreadable block stays: reads of it will say so.
            let Ok(data) = answer else { continue };
            for (device, content) in (run.start..run.end()).zip(data.chunks_exact(BLOCK)) {
                if let Some((sequence, crc)) = self.rebuilt().direct.get(&device)
                    && crc32c(content) != *crc
                {
                    lost = lost.min(*sequence);
                }
            }
        }
        if lost != u64::MAX {
            self.stop_before = lost;
            return self.begin_loading();
        }
        self.settle_on(replay, runs, at + answers.len())
    }
}
