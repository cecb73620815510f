//! Transactions in: mutations become operations on the index and blocks for
//! the device.
//!
//! Whole blocks of large writes get fresh places and go there at once; all
//! other bytes become whole blocks in the log record, so that replay never
//! needs what lay below. A partly overwritten block whose content is not in
//! memory is read first; only its batch waits for that, not the caller.

use crate::alloc::Run;
use crate::api::{Mutation, ObjectId, StoreError, Transaction, TxnId};
use crate::batch;
use crate::blocks::Mapping;
use crate::check;
use crate::core::{Await, BLOCK, Core, Flying, FreedInto};
use crate::dirty::{Image, Patch, Version, lay_over};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::log;
use crate::ops::LogOp;
use crate::pins::PINNED_MAX;
use base::aligned::ALIGNMENT;
use base::{AlignedBuf, crc32c};
use bytes::Bytes;
use env::DiskResult;

/// What a transaction may take, at most.
#[derive(Default)]
struct Need {
    blocks: u64,
    /// Bytes of metadata.
    growth: u64,
    /// Bytes of log record.
    footprint: u64,
    data: bool,
}

/// What lies under a partly overwritten block.
enum Base {
    Zeros,
    Known {
        content: Bytes,
        poisoned: bool,
    },
    /// In the open batch, and it stays in that place.
    SameSlot,
    Unknown {
        source: u32,
        source_crc: u32,
        overlay: Vec<Patch>,
    },
}

const ZEROS: [u8; BLOCK] = [0; BLOCK];

impl Core {
    pub(crate) fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        if self.failed.is_some() || self.options.read_only {
            return Err(StoreError::Stopped);
        }
        let carried = check::check(&self.index, &txn)?;
        let need = self.need_of(&txn, carried);
        let limit = self.region.record_len_max();
        if need.footprint > limit {
            let what = "transaction in the log";
            return Err(StoreError::TooLarge { what, len: need.footprint, limit });
        }
        self.check_space(need.blocks, need.growth, need.data)?;
        let batch_limit = limit.min(log::BATCH_LEN_MAX);
        if self.open_batch().record_len() + need.footprint > batch_limit {
            self.seal();
        }
        let id = self.txn_id();
        self.open_batch().add_txn(id);
        for op in txn.ops {
            self.apply(op);
        }
        Ok(id)
    }

    fn need_of(&self, txn: &Transaction, carried: u64) -> Need {
        let mut need = Need { footprint: BLOCK_LEN + carried, ..Need::default() };
        // Once blocks may have changed owner, every write may need new ones.
        let mut moved = false;
        for op in &txn.ops {
            match op {
                Mutation::Write { id, offset, data } => {
                    need.footprint -= data.len() as u64;
                    need.growth += 128;
                    self.need_of_write(&mut need, id, *offset, data.len() as u64, moved);
                }
                Mutation::Zero { .. } | Mutation::Truncate { .. } => {
                    need.footprint += 2 * (BLOCK_LEN + log::SLOT_LEN as u64 + 32);
                    need.blocks += if moved || self.index.has_shared() { 2 } else { 0 };
                    moved = true;
                }
                Mutation::Remove(_) => moved = true,
                Mutation::Rename { .. } => moved = true,
                Mutation::Clone { from, .. } => {
                    moved = true;
                    need.growth += 256;
                    if let Some(onode) = self.index.onode(from) {
                        need.growth += onode.encoded_len_max();
                    }
                }
                Mutation::CreateCollection(_) | Mutation::Touch(_) => need.growth += 128,
                Mutation::SetXattrs { attrs, .. } => {
                    need.growth += 128;
                    for (name, value) in attrs {
                        need.growth += 24 + (name.len() + value.len()) as u64;
                    }
                }
                Mutation::SetOmapHeader { header, .. } => need.growth += 128 + header.len() as u64,
                Mutation::SetOmap { entries, .. } => {
                    need.growth += 128;
                    for (key, value) in entries {
                        need.growth += 24 + (key.len() + value.len()) as u64;
                        // The object's number and lengths, for each key.
                        need.footprint += 16;
                    }
                }
                Mutation::RmOmap { keys, .. } => need.footprint += 16 * keys.len() as u64,
                _ => (),
            }
        }
        need
    }

    fn need_of_write(&self, need: &mut Need, id: &ObjectId, offset: u64, len: u64, moved: bool) {
        if len == 0 {
            return;
        }
        let (first, end) = (offset / BLOCK_LEN, (offset + len).div_ceil(BLOCK_LEN));
        let touched = end - first;
        let direct = self.options.direct_len_min;
        // Near the threshold the blocks may go either way; assume the worst of both.
        let logged = if len >= direct + 2 * BLOCK_LEN { touched.min(2) } else { touched };
        let in_place = match self.index.onode(id) {
            Some(onode) if !moved && len + BLOCK_LEN <= direct => {
                let mapped = onode.blocks.range(first, end);
                mapped.filter(|(_, mapping)| !self.index.is_shared(mapping.device)).count() as u64
            }
            _ => 0,
        };
        let fresh = touched - in_place;
        need.blocks += fresh;
        need.data |= fresh > 0;
        need.growth += 24 * fresh;
        need.footprint += 32 + 24 * touched + logged * (BLOCK_LEN + log::SLOT_LEN as u64);
    }

    /// Records the operation and carries it out.
    fn emit(&mut self, op: &LogOp<'_>) {
        let batch = self.batches.back_mut().expect("one batch is always open");
        batch.ops.push(op);
        self.index
            .apply(op, &mut FreedInto(&mut batch.freed))
            .expect("the transaction was checked before it was applied");
    }

    fn exists(&self, id: &ObjectId) -> bool {
        self.index.onode(id).is_some()
    }

    fn size(&self, id: &ObjectId) -> u64 {
        self.index.onode(id).map_or(0, |onode| onode.size)
    }

    fn apply(&mut self, op: Mutation) {
        match &op {
            Mutation::CreateCollection(coll) => self.emit(&LogOp::CreateCollection(*coll)),
            Mutation::RemoveCollection(coll) => self.emit(&LogOp::RemoveCollection(*coll)),
            Mutation::Touch(id) => self.touch(id),
            Mutation::Write { id, offset, data } => self.write(id, *offset, data),
            Mutation::Zero { id, offset, len } => self.zero(id, *offset, *len),
            Mutation::Truncate { id, size } => self.truncate(id, *size),
            Mutation::SetXattrs { id, attrs } => {
                self.touch(id);
                for (name, value) in attrs {
                    self.emit(&LogOp::SetXattr { id, name, value });
                }
            }
            Mutation::SetOmapHeader { id, header } => {
                self.emit(&LogOp::SetOmapHeader { id, header });
            }
            Mutation::SetOmap { id, entries } => {
                self.touch(id);
                for (key, value) in entries {
                    self.emit(&LogOp::SetOmap { id, key, value });
                }
            }
            Mutation::Clone { from, to } => {
                if from != to {
                    self.emit(&LogOp::Clone { from, to });
                    self.follow_awaits(from, to, true);
                }
            }
            Mutation::Rename { from, to } => {
                if from != to {
                    self.emit(&LogOp::Rename { from, to });
                    self.follow_awaits(from, to, false);
                }
            }
            // What only takes away has nothing to say about a missing object.
            Mutation::Remove(id)
            | Mutation::RmXattr { id, .. }
            | Mutation::ClearXattrs(id)
            | Mutation::RmOmap { id, .. }
            | Mutation::RmOmapRange { id, .. }
            | Mutation::ClearOmap(id)
                if !self.exists(id) => {}
            Mutation::Remove(id) => self.emit(&LogOp::Remove(id)),
            Mutation::RmXattr { id, name } => self.emit(&LogOp::RmXattr { id, name }),
            Mutation::ClearXattrs(id) => self.emit(&LogOp::ClearXattrs(id)),
            Mutation::RmOmap { id, keys } => {
                for key in keys {
                    self.emit(&LogOp::RmOmap { id, key });
                }
            }
            Mutation::RmOmapRange { id, start, end } => {
                self.emit(&LogOp::RmOmapRange { id, start, end });
            }
            Mutation::ClearOmap(id) => self.emit(&LogOp::ClearOmap(id)),
        }
    }

    fn touch(&mut self, id: &ObjectId) {
        if !self.exists(id) {
            self.emit(&LogOp::Touch(id));
        }
    }

    fn write(&mut self, id: &ObjectId, offset: u64, data: &Bytes) {
        if data.is_empty() {
            return self.touch(id);
        }
        let end = offset + data.len() as u64;
        let size = self.size(id);
        let first = offset.div_ceil(BLOCK_LEN);
        // Past the object's end a block's rest is zeros: it can be padded.
        let last = if end >= size { end.div_ceil(BLOCK_LEN) } else { end / BLOCK_LEN };
        if first < last && (last - first) * BLOCK_LEN >= self.options.direct_len_min {
            let head = (first * BLOCK_LEN - offset) as usize;
            let tail = data.len().min(head + ((last - first) * BLOCK_LEN) as usize);
            self.write_logged(id, offset, &data[..head]);
            self.write_direct(id, first as u32, data.slice(head..tail));
            self.write_logged(id, last * BLOCK_LEN, &data[tail..]);
        } else {
            self.write_logged(id, offset, data);
        }
        if end > size {
            self.emit(&LogOp::SetSize { id, size: end });
        }
    }

    /// Whole blocks (the last one padded) to fresh places.
    fn write_direct(&mut self, id: &ObjectId, first: u32, data: Bytes) {
        let aligned = (data.as_ptr() as usize).is_multiple_of(ALIGNMENT) && data.len().is_multiple_of(BLOCK);
        let data = if aligned { data } else { AlignedBuf::copy_of(&data).freeze() };
        let mut block = first;
        let mut rest = data;
        while !rest.is_empty() {
            let want = (rest.len() / BLOCK).min(PINNED_MAX as usize) as u32;
            let run = self.alloc.allocate(want, None).expect("space was checked before");
            let piece = rest.split_to(run.count as usize * BLOCK);
            let crcs: Vec<u32> = piece.chunks_exact(BLOCK).map(crc32c).collect();
            self.emit(&LogOp::Map { id, block, device: run.start, crcs: &crcs, logged: false });
            let batch = self.open_batch();
            batch.direct_writes += 1;
            let purpose = Purpose::Direct { sequence: batch.sequence, run };
            self.flying.insert(run.start, Flying { count: run.count, data: piece.clone() });
            self.io.write(u64::from(run.start) * BLOCK_LEN, vec![piece], purpose);
            block += run.count;
        }
    }

    /// Bytes that go into the record, block by block.
    fn write_logged(&mut self, id: &ObjectId, offset: u64, data: &[u8]) {
        let mut run: Option<(u32, u32)> = None;
        let mut crcs: Vec<u32> = Vec::new();
        let mut rest = data;
        let mut at = offset;
        let size = self.size(id);
        while !rest.is_empty() {
            let within = (at % BLOCK_LEN) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(BLOCK - within));
            let block = (at / BLOCK_LEN) as u32;
            let hint = run.map(|(_, device)| device + crcs.len() as u32);
            let Mapping { device, crc } = self.place(id, block, within, piece, size, hint);
            match run {
                Some((_, first)) if first + crcs.len() as u32 == device => crcs.push(crc),
                _ => {
                    if let Some((block, device)) = run {
                        self.emit(&LogOp::Map { id, block, device, crcs: &crcs, logged: true });
                    }
                    run = Some((block, device));
                    crcs.clear();
                    crcs.push(crc);
                }
            }
            at += piece.len() as u64;
            rest = tail;
        }
        if let Some((block, device)) = run {
            self.emit(&LogOp::Map { id, block, device, crcs: &crcs, logged: true });
        }
    }

    /// Puts `piece` into the block's slot in the open batch, over what the block
    /// holds. Returns where the block is to be, with a checksum of 0 while its
    /// content is unknown.
    fn place(
        &mut self,
        id: &ObjectId,
        block: u32,
        within: usize,
        piece: &[u8],
        size: u64,
        hint: Option<u32>,
    ) -> Mapping {
        let current = self.index.onode(id).and_then(|onode| onode.blocks.get(block));
        let target = match current {
            Some(mapping) if !self.index.is_shared(mapping.device) => mapping.device,
            _ => {
                let hint = hint.or_else(|| self.neighbour(id, block));
                self.alloc.allocate(1, hint).expect("space was checked before").start
            }
        };
        let end = u64::from(block) * BLOCK_LEN + piece.len() as u64;
        let whole = piece.len() == BLOCK || (within == 0 && end >= size);
        let base = match current {
            Some(mapping) if !whole => self.base_of(mapping, target),
            _ => Base::Zeros,
        };
        let durable = self.durable;
        let batch = self.batches.back_mut().expect("one batch is always open");
        let sequence = batch.sequence;
        let (slot, fresh) = batch.slot(target);
        let was_waiting = !fresh
            && self.dirty.get(target).is_some_and(|dirty| {
                dirty.newest.sequence == sequence && matches!(dirty.newest.image, Image::Waiting { .. })
            });
        if was_waiting {
            batch.waiting -= 1;
        }
        let mut poisoned = false;
        let content = batch.content_mut(slot);
        match base {
            Base::Zeros => {
                content[..within].fill(0);
                content[within + piece.len()..].fill(0);
            }
            Base::Known { content: old, poisoned: bad } => {
                content.copy_from_slice(&old);
                poisoned = bad;
            }
            Base::SameSlot => poisoned = batch.slots[slot as usize].poisoned,
            Base::Unknown { source, source_crc, mut overlay } => {
                overlay.push(Patch { start: within, data: Bytes::copy_from_slice(piece) });
                batch.waiting += 1;
                let image = Image::Waiting { slot, overlay };
                self.dirty.put(target, Version { sequence, image, poisoned: false }, durable);
                self.await_base(target, source, source_crc, id, block);
                return Mapping { device: target, crc: 0 };
            }
        }
        let content = batch.content_mut(slot);
        content[within..within + piece.len()].copy_from_slice(piece);
        let crc = batch.finish(slot, poisoned);
        self.dirty.put(target, Version { sequence, image: Image::Slot(slot), poisoned }, durable);
        Mapping { device: target, crc }
    }

    /// Right after the block before, so that objects stay in one piece.
    fn neighbour(&self, id: &ObjectId, block: u32) -> Option<u32> {
        let before = self.index.onode(id)?.blocks.get(block.checked_sub(1)?)?;
        Some(before.device + 1)
    }

    fn base_of(&self, mapping: Mapping, target: u32) -> Base {
        let Some(dirty) = self.dirty.get(mapping.device) else {
            if let Some(content) = self.flying(mapping.device) {
                return Base::Known { content, poisoned: false };
            }
            let Mapping { device: source, crc: source_crc } = mapping;
            return Base::Unknown { source, source_crc, overlay: Vec::new() };
        };
        let version = &dirty.newest;
        match &version.image {
            Image::Frozen(content) => Base::Known { content: content.clone(), poisoned: version.poisoned },
            Image::Slot(slot) => {
                let batch = self.batch(version.sequence).expect("a slot's batch is not issued");
                let open = self.batches.back().is_some_and(|open| open.sequence == batch.sequence);
                if open && target == mapping.device {
                    return Base::SameSlot;
                }
                let content = Bytes::copy_from_slice(batch.content(*slot));
                Base::Known { content, poisoned: version.poisoned }
            }
            Image::Waiting { overlay, .. } => {
                let waits = &self.awaits[&mapping.device];
                Base::Unknown { source: waits.source, source_crc: waits.source_crc, overlay: overlay.clone() }
            }
        }
    }

    fn await_base(&mut self, target: u32, source: u32, crc: u32, id: &ObjectId, block: u32) {
        let owner = (id.clone(), block);
        if let Some(waits) = self.awaits.get_mut(&target) {
            if !waits.owners.contains(&owner) {
                waits.owners.push(owner);
            }
            return;
        }
        let purpose = Purpose::Base { target, source };
        let token = self.io.read(u64::from(source) * BLOCK_LEN, BLOCK as u32, purpose);
        self.pins.pin(Run { start: source, count: 1 }, token);
        let waits = Await { source, source_crc: crc, owners: vec![owner], readers: Vec::new() };
        self.awaits.insert(target, waits);
    }

    /// Another name for blocks whose checksum is not known yet.
    fn follow_awaits(&mut self, from: &ObjectId, to: &ObjectId, keep: bool) {
        for waits in self.awaits.values_mut() {
            let moved: Vec<u32> = waits.owners.iter().filter(|(id, _)| id == from).map(|(_, b)| *b).collect();
            if !keep {
                waits.owners.retain(|(id, _)| id != from);
            }
            waits.owners.extend(moved.into_iter().map(|block| (to.clone(), block)));
        }
    }

    /// The content under partly overwritten blocks has arrived, or cannot be had:
    /// then the block takes the new bytes, and a checksum that never matches.
    pub(crate) fn on_base(&mut self, token: u64, target: u32, source: u32, result: DiskResult) {
        self.unpin(Run { start: source, count: 1 }, token);
        let Some(waits) = self.awaits.remove(&target) else {
            return;
        };
        let base = match result {
            Ok(data) if data.len() == BLOCK && crc32c(&data) == waits.source_crc => Ok(data),
            Ok(_) => {
                self.checksum_errors += 1;
                Err(None)
            }
            Err(error) => Err(Some(error)),
        };
        let poisoned = base.is_err();
        let content = base.as_ref().map_or(&ZEROS[..], |data| &data[..]);
        if poisoned {
            tracing::error!(
                "the block at device offset {} cannot be read: what is left of it after a partial \
                 overwrite will not be served",
                u64::from(source) * BLOCK_LEN
            );
        }
        let mut newest_crc = None;
        let batches = &mut self.batches;
        if let Some(dirty) = self.dirty.get_mut(target) {
            let newest = dirty.newest.sequence;
            for version in dirty.versions_mut() {
                let Image::Waiting { slot, overlay } = &version.image else {
                    continue;
                };
                let slot = *slot;
                let first = batches.front().expect("one batch is always open").sequence;
                let batch = &mut batches[(version.sequence - first) as usize];
                let out = batch.content_mut(slot);
                out.copy_from_slice(content);
                lay_over(out, overlay);
                let crc = batch.finish(slot, poisoned);
                batch.waiting -= 1;
                version.image = Image::Slot(slot);
                version.poisoned = poisoned;
                self.reclaim.learned_crc(target, version.sequence, crc);
                if version.sequence == newest {
                    newest_crc = Some(crc);
                }
            }
        }
        if let Some(crc) = newest_crc {
            for (id, block) in &waits.owners {
                self.index.set_crc(id, *block, Mapping { device: target, crc });
            }
        }
        for reader in waits.readers {
            self.on_awaited(reader, source, base.as_ref().map_err(|error| *error));
        }
        self.issue();
    }

    fn zero(&mut self, id: &ObjectId, offset: u64, len: u64) {
        let size = self.size(id);
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return;
        }
        let whole_start = offset.div_ceil(BLOCK_LEN);
        let whole_end = if end == size { end.div_ceil(BLOCK_LEN) } else { end / BLOCK_LEN };
        let within = (offset % BLOCK_LEN) as usize;
        if within > 0 {
            let block = offset / BLOCK_LEN;
            let stop = (end - block * BLOCK_LEN).min(BLOCK_LEN) as usize;
            self.zero_part(id, block, within, stop);
        }
        if whole_start < whole_end {
            self.unmap(id, whole_start, whole_end);
        }
        let stop = (end % BLOCK_LEN) as usize;
        if end != size && stop > 0 && end / BLOCK_LEN >= whole_start {
            self.zero_part(id, end / BLOCK_LEN, 0, stop);
        }
    }

    fn zero_part(&mut self, id: &ObjectId, block: u64, from: usize, to: usize) {
        let block = block as u32;
        let mapped = self.index.onode(id).is_some_and(|onode| onode.blocks.get(block).is_some());
        if !mapped {
            return;
        }
        let size = self.size(id);
        let Mapping { device, crc } = self.place(id, block, from, &ZEROS[from..to], size, None);
        self.emit(&LogOp::Map { id, block, device, crcs: &[crc], logged: true });
    }

    fn unmap(&mut self, id: &ObjectId, first: u64, end: u64) {
        let any = self.index.onode(id).is_some_and(|onode| onode.blocks.range(first, end).next().is_some());
        if any {
            let (block, count) = (first as u32, (end - first) as u32);
            self.emit(&LogOp::Unmap { id, block, count });
        }
    }

    fn truncate(&mut self, id: &ObjectId, size: u64) {
        let old = self.size(id);
        if !self.exists(id) && size == 0 {
            return;
        }
        if size < old {
            let within = (size % BLOCK_LEN) as usize;
            if within > 0 {
                self.zero_part(id, size / BLOCK_LEN, within, BLOCK);
            }
            self.unmap(id, size.div_ceil(BLOCK_LEN), old.div_ceil(BLOCK_LEN));
        }
        if size != old {
            self.emit(&LogOp::SetSize { id, size });
        }
    }
}

/// What the index keeps for a slot read back from the log.
pub(crate) fn replayed_crc(crc: u32, flags: u8) -> u32 {
    batch::index_crc(crc, flags & log::SLOT_POISONED != 0)
}
