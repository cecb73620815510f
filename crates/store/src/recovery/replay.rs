//! Every valid record after the checkpoint, applied one by one.

use super::{Opening, Replay, Step, WINDOW_LEN};
use crate::apply::replayed_crc;
use crate::core::{BLOCK, Core};
use crate::dirty::{Image, Version};
use crate::engine::OpenError;
use crate::index::Wanted;
use crate::log::{self, Header};
use crate::needs::Needs;
use crate::ops::{self, Nonsense};
use base::crc32c;
use bytes::Bytes;
use std::collections::HashMap;

impl Opening {
    pub(super) fn begin_replay(&mut self) -> Result<Option<Box<Core>>, OpenError> {
        let superblock = self.superblock();
        let replay = Replay {
            position: superblock.head_position,
            sequence: superblock.head_sequence,
            window_at: superblock.head_position,
            window: Bytes::new(),
            durable_through: superblock.durable_through(),
        };
        self.replay(replay)
    }

    /// Applies records as far as the window reaches, then asks for more.
    pub(super) fn replay(&mut self, mut replay: Replay) -> Result<Option<Box<Core>>, OpenError> {
        let region = self.region();
        let end = self.superblock().head_position + region.len;
        loop {
            if replay.sequence >= self.stop_before {
                return self.settle(replay);
            }
            let have = replay.window.slice((replay.position - replay.window_at) as usize..);
            let left = end - replay.position;
            if left == 0 {
                return self.settle(replay);
            }
            if have.len() < BLOCK {
                self.ask_log(region, replay.position, WINDOW_LEN.min(left));
                self.step = Some(Step::Replay(replay));
                return Ok(None);
            }
            let header = Header::decode(&have, self.superblock().nonce());
            let expected = header.filter(|header| {
                header.position == replay.position
                    && header.sequence == replay.sequence
                    && self.epoch_fits(header)
                    && header.record_len() <= region.record_len_max().min(left)
            });
            let Some(header) = expected else {
                return self.begin_scan(replay);
            };
            let len = header.record_len();
            if (have.len() as u64) < len {
                self.ask_log(region, replay.position, len.max(WINDOW_LEN).min(left));
                self.step = Some(Step::Replay(replay));
                return Ok(None);
            }
            let record = have.slice(..len as usize);
            let Some(slots) = read_slots(&header, &record) else {
                return self.begin_scan(replay);
            };
            let offset = region.device_offset(replay.position);
            let wanted = self
                .record_needs(&header, &record, &slots)
                .map_err(|Nonsense(what)| OpenError::Corrupt { offset, what })?;
            if !wanted.is_empty() {
                return self.load_pages(wanted, Some(replay));
            }
            let limit = self.options.index_limit();
            self.apply_record(&header, &record, &slots, replay.durable_through)
                .map_err(|Nonsense(what)| OpenError::Corrupt { offset, what })?;
            if self.rebuilt().clash {
                let what = "a log record frees what is free";
                return Err(OpenError::Corrupt { offset, what });
            }
            self.rebuilt().index.evict(limit);
            if header.durable_through > replay.durable_through {
                replay.durable_through = header.durable_through;
                let durable = header.durable_through;
                self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable);
            }
            replay.position += len;
            replay.sequence += 1;
        }
    }

    /// A record found when this epoch began may be of any before; later ones are
    /// of this epoch, or remains of what that opening dropped.
    pub(super) fn epoch_fits(&self, header: &Header) -> bool {
        let superblock = self.superblock();
        if header.sequence > superblock.recovered_sequence {
            header.epoch == superblock.epoch
        } else {
            header.epoch <= superblock.epoch
        }
    }

    /// Pages that the record's operations need.
    fn record_needs(
        &mut self,
        header: &Header,
        record: &Bytes,
        slots: &HashMap<u32, ReadSlot>,
    ) -> ops::Result<Vec<Wanted>> {
        if self.rebuilt().index.is_loaded() {
            return Ok(Vec::new());
        }
        let blocks = self.superblock().blocks();
        let ops = record.slice(log::HEADER_LEN..log::HEADER_LEN + header.ops_len as usize);
        let mut needs = Needs::new(&self.rebuilt().index);
        let crc_of = |device: u32| slots.get(&device).map(|slot| slot.index_crc);
        ops::replay(ops, blocks, crc_of, |op| {
            needs.log_op(op);
            Ok(())
        })?;
        Ok(needs.into_wanted())
    }

    fn apply_record(
        &mut self,
        header: &Header,
        record: &Bytes,
        slots: &HashMap<u32, ReadSlot>,
        durable_through: u64,
    ) -> ops::Result<()> {
        let blocks = self.superblock().blocks();
        let ops = record.slice(log::HEADER_LEN..log::HEADER_LEN + header.ops_len as usize);
        let (index, mut sink) = self.rebuilt().split();
        index.begin_changes();
        let crc_of = |device: u32| slots.get(&device).map(|slot| slot.index_crc);
        ops::replay(ops, blocks, crc_of, |op| {
            index.apply(op, &mut sink)?;
            let ops::LogOp::Map { device, crcs, logged, .. } = op else {
                return Ok(());
            };
            for (device, crc) in (*device..).zip(crcs.iter()) {
                sink.direct.remove(&device);
                sink.dirty.remove(device);
                // Whatever the operation says: what the record carries need not be in its place yet.
                if let Some(slot) = slots.get(&device) {
                    // Copied: the log around it should not stay in memory.
                    let image = Image::Frozen(Bytes::copy_from_slice(&slot.content));
                    let sequence = header.sequence;
                    let version = Version { sequence, image, poisoned: slot.poisoned };
                    sink.dirty.put(device, version, sequence);
                } else if !*logged && header.sequence > durable_through {
                    sink.direct.insert(device, (header.sequence, *crc));
                }
            }
            Ok(())
        })
    }
}

struct ReadSlot {
    content: Bytes,
    index_crc: u32,
    poisoned: bool,
}

/// The record's data blocks by device block; `None` when anything differs from
/// its checksum, or one block is there twice.
fn read_slots(header: &Header, record: &Bytes) -> Option<HashMap<u32, ReadSlot>> {
    let meta = record.get(log::HEADER_LEN..log::HEADER_LEN + header.meta_len())?;
    if crc32c(meta) != header.meta_crc {
        return None;
    }
    let table = &meta[header.ops_len as usize..];
    let data_at = header.data_offset() as usize;
    let mut slots = HashMap::new();
    for (i, entry) in table.chunks_exact(log::SLOT_LEN).enumerate() {
        let word = |at: usize| u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]]);
        let (device, crc, flags) = (word(0), word(4), entry[8]);
        let at = data_at + i * BLOCK;
        let content = record.slice(at..at + BLOCK);
        if crc32c(&content) != crc {
            return None;
        }
        let poisoned = flags & log::SLOT_POISONED != 0;
        let slot = ReadSlot { content, index_crc: replayed_crc(crc, flags), poisoned };
        if slots.insert(device, slot).is_some() {
            return None;
        }
    }
    Some(slots)
}
