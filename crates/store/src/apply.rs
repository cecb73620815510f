//! Transactions in: mutations become operations on the index and blocks for
//! the device.
//!
//! Whole blocks get fresh places, side by side for what comes one after the
//! other, and go there without a detour: of large writes at once, of others at
//! the batch's end. All other bytes become whole blocks in the log record, so
//! that replay never needs what lay below. A partly overwritten block whose
//! content is not in memory is read first; only its batch waits for that, not
//! the caller.
//!
//! A device too full for fresh places still takes overwrites: then whole blocks
//! go through the record, too, and keep the places they have.

use crate::alloc::Run;
use crate::api::{Mutation, ObjectId, StoreError, Transaction, TxnId};
use crate::batch;
use crate::blocks::Mapping;
use crate::check::{self, Existing};
use crate::commit::Beside;
use crate::core::{Await, BLOCK, Core, FreedInto};
use crate::dirty::{Image, Patch, Version, lay_over};
use crate::gather::{Gather, Gathered};
use crate::index::Index;
use crate::io::Purpose;
use crate::kinds::{Nid, Onode};
use crate::limits::BLOCK_LEN;
use crate::log;
use crate::needs::Needs;
use crate::ops::LogOp;
use crate::pins::PINNED_MAX;
use base::crc32c;
use bytes::Bytes;
use env::DiskResult;
use std::ops::Range;

/// What a transaction may take, at most.
#[derive(Default)]
pub(crate) struct Need {
    pub(crate) blocks: u64,
    /// Bytes of metadata.
    pub(crate) growth: u64,
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

/// Where a transaction's whole blocks go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placing {
    Fresh,
    /// The same, but small writes of which all whole blocks are mapped and not shared stay where they are.
    Kept,
    /// Large writes excepted: what is mapped stays where it is.
    InPlace,
}

impl Core {
    pub(crate) fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError> {
        if self.failed.is_some() || self.options.read_only {
            return Err(StoreError::Stopped);
        }
        self.mend.on_asked();
        if !self.stalled.is_empty() || self.has_to_wait() {
            return self.stall_behind(txn);
        }
        if !self.index.is_loaded() {
            let missing = Needs::of_transaction(&self.index, &txn, &[]);
            if missing.places || !missing.pages.is_empty() {
                let nothing_comes = missing.pages.is_empty();
                let id = self.stall(txn, missing.pages)?;
                if nothing_comes {
                    self.run_stalled();
                }
                return Ok(id);
            }
        }
        self.index.begin_transaction();
        let result = self.check_and_carry_out(&txn);
        self.index.end_transaction();
        self.begin_early();
        result
    }

    fn check_and_carry_out(&mut self, txn: &Transaction) -> Result<TxnId, StoreError> {
        let carried = check::check(&self.index, txn)?;
        let (placing, need) = self.placing_of(txn, carried)?;
        let id = self.txn_id();
        self.carry_out(id, txn, placing, &need);
        Ok(id)
    }

    /// One that was accepted when its pages were not there. Its space was promised.
    ///
    /// Errors: it is impossible.
    pub(crate) fn apply_promised(&mut self, id: TxnId, txn: Transaction) -> Result<(), StoreError> {
        let carried = check::check(&self.index, &txn)?;
        let mut need = need_of(Some(&self.index), &txn, carried);
        let placing = self.fresh_or_kept(&txn, &mut need);
        self.carry_out(id, &txn, placing, &need);
        Ok(())
    }

    /// The open batch is sealed if its record has no room for so many bytes more.
    pub(crate) fn make_room_in_batch(&mut self, footprint: u64) {
        let batch_limit = self.region.record_len_max().min(log::BATCH_LEN_MAX);
        if self.open_batch().record_len() + footprint > batch_limit {
            self.seal(Beside::More);
        }
    }

    fn carry_out(&mut self, id: TxnId, txn: &Transaction, placing: Placing, need: &Need) {
        self.make_room_in_batch(need.footprint);
        self.open_batch().add_txn(id);
        self.index.begin_changes();
        for op in &txn.ops {
            self.apply(op, placing);
        }
    }

    /// What a transaction may take whose pages are not in memory, when it has room.
    pub(crate) fn promise(&self, txn: &Transaction, carried: u64) -> Result<Need, StoreError> {
        let need = need_of(None, txn, carried);
        self.check_footprint(&need)?;
        self.check_space(need.blocks, need.growth, need.data)?;
        Ok(need)
    }

    fn check_footprint(&self, need: &Need) -> Result<(), StoreError> {
        let limit = self.region.record_len_max();
        if need.footprint > limit {
            let what = "transaction in the log";
            return Err(StoreError::TooLarge { what, len: need.footprint, limit });
        }
        Ok(())
    }

    /// With room for fresh places.
    fn fresh_or_kept(&mut self, txn: &Transaction, need: &mut Need) -> Placing {
        // What was chosen is there to be used: a clone may share it.
        let keeps = self.keeping.keeps_places(&self.alloc) || self.options.always_keep_places;
        if !keeps || self.chosen.blocks() > 0 {
            return Placing::Fresh;
        }
        let small = txn.ops.iter().map(|op| match op {
            Mutation::Write { offset, data, .. } => self.logged_when_kept(*offset, data.len() as u64),
            _ => 0,
        });
        let footprint = need.footprint + small.sum::<u64>();
        if footprint > self.region.record_len_max() {
            return Placing::Fresh;
        }
        need.footprint = footprint;
        Placing::Kept
    }

    /// What a small write adds to the record when its whole blocks go through that.
    fn logged_when_kept(&self, offset: u64, len: u64) -> u64 {
        // Near the threshold the blocks may go either way; assume the worst of both.
        if len >= self.options.direct_len_min + 2 * BLOCK_LEN {
            return 0;
        }
        Need::of_fresh(offset, len).blocks * (BLOCK_LEN + log::SLOT_LEN as u64)
    }

    fn placing_of(&mut self, txn: &Transaction, carried: u64) -> Result<(Placing, Need), StoreError> {
        let mut need = need_of(Some(&self.index), txn, carried);
        self.check_footprint(&need)?;
        let Err(full) = self.check_space(need.blocks, need.growth, need.data) else {
            return Ok((self.fresh_or_kept(txn, &mut need), need));
        };
        let need = self.need_in_place(txn, carried);
        if self.check_footprint(&need).is_err() {
            return Err(full);
        }
        self.check_space(need.blocks, need.growth, need.data)?;
        Ok((Placing::InPlace, need))
    }

    /// The same when whole blocks that are mapped and not shared stay where they are.
    fn need_in_place(&self, txn: &Transaction, carried: u64) -> Need {
        let mut need = need_of(Some(&self.index), txn, carried);
        need.data = false;
        // Once blocks may have changed owner, every write may need new ones.
        let mut moved = false;
        for op in &txn.ops {
            match op {
                Mutation::Write { id, offset, data } if !data.is_empty() => {
                    let len = data.len() as u64;
                    let fresh = Need::of_fresh(*offset, len);
                    let staying = if moved { 0 } else { self.staying(id, *offset, len) };
                    need.blocks -= staying;
                    need.growth -= 24 * staying;
                    need.data |= fresh.blocks > staying;
                    need.footprint += self.logged_when_kept(*offset, len);
                }
                Mutation::Zero { .. }
                | Mutation::Truncate { .. }
                | Mutation::Remove(_)
                | Mutation::Rename { .. }
                | Mutation::Clone { .. } => moved = true,
                _ => (),
            }
        }
        need
    }

    /// Blocks of a write that can be overwritten where they are.
    fn staying(&self, id: &ObjectId, offset: u64, len: u64) -> u64 {
        let Some(onode) = self.index.onode(id) else {
            return 0;
        };
        if len + BLOCK_LEN > self.options.direct_len_min {
            return 0;
        }
        let mut count = 0;
        let (first, end) = (offset / BLOCK_LEN, (offset + len).div_ceil(BLOCK_LEN));
        self.index.for_mappings(onode.nid, first, end, |_, mapping| {
            count += u64::from(!self.index.is_shared(mapping.device));
        });
        count
    }

    /// Records the operation and carries it out.
    pub(crate) fn emit(&mut self, op: &LogOp<'_>) {
        self.mend.on_change(op);
        let batch = self.batches.back_mut().expect("one batch is always open");
        // Afterwards the index has the name of a new object, which the record then shares.
        let names_stay = op.gives();
        if !names_stay {
            batch.ops.push(op, &self.index);
        }
        self.index
            .apply(op, &mut FreedInto(&mut batch.freed))
            .expect("the transaction was checked before it was applied");
        if names_stay {
            batch.ops.push(op, &self.index);
        }
    }

    fn exists(&self, id: &ObjectId) -> bool {
        self.index.has_object(id)
    }

    fn size(&self, id: &ObjectId) -> u64 {
        self.index.onode(id).map_or(0, |onode| onode.size)
    }

    fn apply(&mut self, op: &Mutation, placing: Placing) {
        match op {
            Mutation::CreateCollection(coll) => self.emit(&LogOp::CreateCollection(*coll)),
            Mutation::RemoveCollection(coll) => self.emit(&LogOp::RemoveCollection(*coll)),
            Mutation::Touch(id) => self.touch(id),
            Mutation::Write { id, offset, data } => self.write(id, *offset, data, placing),
            Mutation::Zero { id, offset, len } => self.zero(id, *offset, *len),
            Mutation::Truncate { id, size } => self.truncate(id, *size),
            // The first of them makes the object.
            Mutation::SetXattrs { id, attrs } if attrs.is_empty() => self.touch(id),
            Mutation::SetXattrs { id, attrs } => {
                for (name, value) in attrs {
                    self.emit(&LogOp::SetXattr { id, name, value });
                }
            }
            Mutation::SetOmapHeader { id, header } => {
                self.emit(&LogOp::SetOmapHeader { id, header });
            }
            Mutation::SetOmap { id, entries } if entries.is_empty() => self.touch(id),
            Mutation::SetOmap { id, entries } => {
                for (key, value) in entries {
                    self.emit(&LogOp::SetOmap { id, key, value });
                }
            }
            Mutation::Clone { from, to } => {
                if from != to {
                    self.emit(&LogOp::Clone { from, to });
                    if !self.awaits.is_empty() {
                        let nid = |id: &ObjectId| self.index.onode(id).map_or(0, |onode| onode.nid);
                        let (from, to) = (nid(from), nid(to));
                        self.follow_awaits(from, to);
                    }
                }
            }
            Mutation::Rename { from, to } => {
                if from != to {
                    self.emit(&LogOp::Rename { from, to });
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

    fn write(&mut self, id: &ObjectId, offset: u64, data: &Bytes, placing: Placing) {
        if data.is_empty() {
            return self.touch(id);
        }
        let end = offset + data.len() as u64;
        let size = self.size(id);
        let first = offset.div_ceil(BLOCK_LEN);
        // Past the object's end a block's rest is zeros: it can be padded.
        let last = if end >= size { end.div_ceil(BLOCK_LEN) } else { end / BLOCK_LEN };
        let whole = first < last;
        let large = whole && (last - first) * BLOCK_LEN >= self.options.direct_len_min;
        let fresh = match placing {
            Placing::Fresh => whole,
            Placing::Kept => whole && !self.all_stay(id, first, last),
            Placing::InPlace => false,
        };
        if large || fresh {
            let head = (first * BLOCK_LEN - offset) as usize;
            let tail = data.len().min(head + ((last - first) * BLOCK_LEN) as usize);
            self.write_logged(id, offset, &data[..head]);
            match large {
                true => self.write_direct(id, first as u32, data, head..tail),
                false => self.write_gathered(id, first as u32, data, head..tail),
            }
            self.write_logged(id, last * BLOCK_LEN, &data[tail..]);
        } else {
            self.write_logged(id, offset, data);
        }
        if end > size {
            self.emit(&LogOp::SetSize { id, size: end });
        }
    }

    /// Blocks `first..end` are mapped, and nobody else's.
    fn all_stay(&self, id: &ObjectId, first: u64, end: u64) -> bool {
        let Some(onode) = self.index.onode(id) else {
            return false;
        };
        let mut count = 0;
        self.index.for_mappings(onode.nid, first, end, |_, mapping| {
            count += u64::from(!self.index.is_shared(mapping.device));
        });
        first + count == end
    }

    /// Whole blocks (the last one padded) to fresh places, at the batch's end.
    fn write_gathered(&mut self, id: &ObjectId, first: u32, data: &Bytes, part: Range<usize>) {
        let mut crcs = std::mem::take(&mut self.crcs);
        let mut block = first;
        let mut at = part.start;
        while at < part.end {
            let want = (part.end - at).div_ceil(BLOCK) as u32;
            let run = self.fresh(want, |alloc| alloc.allocate_next(want));
            let end = part.end.min(at + run.count as usize * BLOCK);
            crcs.clear();
            self.gather.push(run, data, at..end, &mut crcs);
            self.emit(&LogOp::Map { id, block, device: run.start, crcs: &crcs, logged: false });
            self.mend.on_cut(run.count);
            block += run.count;
            at = end;
            if self.gather.is_full() {
                self.send_gathered(false);
            }
        }
        self.crcs = crcs;
    }

    /// The same, at once.
    fn write_direct(&mut self, id: &ObjectId, first: u32, data: &Bytes, part: Range<usize>) {
        let mut crcs = std::mem::take(&mut self.crcs);
        let mut gather = Gather::new(self.buffers.clone());
        let mut block = first;
        let mut at = part.start;
        while at < part.end {
            let want = (part.end - at).div_ceil(BLOCK).min(PINNED_MAX as usize) as u32;
            let run = self.fresh(want, |alloc| alloc.allocate(want, None));
            let end = part.end.min(at + run.count as usize * BLOCK);
            crcs.clear();
            gather.push(run, data, at..end, &mut crcs);
            self.emit(&LogOp::Map { id, block, device: run.start, crcs: &crcs, logged: false });
            for Gathered { run, pieces } in gather.take() {
                self.send_direct(run, pieces, false);
            }
            block += run.count;
            at = end;
        }
        self.crcs = crcs;
    }

    /// Bytes that go into the record, block by block.
    fn write_logged(&mut self, id: &ObjectId, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
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
        let onode = self.index.onode(id);
        let current = onode.and_then(|onode| self.index.mapping(onode.nid, block));
        let target = match current {
            Some(mapping) if !self.index.is_shared(mapping.device) => mapping.device,
            _ => {
                let hint = hint.or_else(|| self.neighbour(id, block));
                self.fresh(1, |alloc| alloc.allocate(1, hint)).start
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
        let nid = self.index.onode(id)?.nid;
        let before = self.index.mapping(nid, block.checked_sub(1)?)?;
        Some(before.device + 1)
    }

    fn base_of(&self, mapping: Mapping, target: u32) -> Base {
        let Some(dirty) = self.dirty.get(mapping.device) else {
            if let Some(content) = self.flying(mapping.device) {
                return Base::Known { content, poisoned: false };
            }
            if let Some(content) = self.cache.get(mapping.device, mapping.crc) {
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
        // An object that is still to be created gets the next number.
        let nid = self.index.onode(id).map_or(self.index.next_nid, |onode| onode.nid);
        let owner = (nid, block);
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

    /// A clone has blocks whose checksum is not known yet.
    fn follow_awaits(&mut self, from: Nid, to: Nid) {
        for waits in self.awaits.values_mut() {
            let copied: Vec<u32> =
                waits.owners.iter().filter(|(nid, _)| *nid == from).map(|(_, b)| *b).collect();
            waits.owners.extend(copied.into_iter().map(|block| (to, block)));
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
            for (nid, block) in &waits.owners {
                self.index.set_crc(*nid, *block, Mapping { device: target, crc });
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
        let nid = self.index.onode(id).map(|onode| onode.nid);
        let mapped = nid.is_some_and(|nid| self.index.mapping(nid, block).is_some());
        if !mapped {
            return;
        }
        let size = self.size(id);
        let Mapping { device, crc } = self.place(id, block, from, &ZEROS[from..to], size, None);
        self.emit(&LogOp::Map { id, block, device, crcs: &[crc], logged: true });
    }

    fn unmap(&mut self, id: &ObjectId, first: u64, end: u64) {
        let Some(nid) = self.index.onode(id).map(|onode| onode.nid) else {
            return;
        };
        let mut any = false;
        self.index.for_mappings(nid, first, end, |_, _| any = true);
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

impl Need {
    /// Of a write: every block a fresh one, but for those at the ends that are partly
    /// overwritten: the record has these, and they may need a fresh place nevertheless.
    fn of_fresh(offset: u64, len: u64) -> Need {
        if len == 0 {
            return Need::default();
        }
        let end = offset + len;
        let touched = end.div_ceil(BLOCK_LEN) - offset / BLOCK_LEN;
        let cut = u64::from(!offset.is_multiple_of(BLOCK_LEN)) + u64::from(!end.is_multiple_of(BLOCK_LEN));
        Need {
            blocks: touched,
            growth: 24 * touched,
            footprint: 32 + 24 * touched + cut.min(touched) * (BLOCK_LEN + log::SLOT_LEN as u64),
            data: true,
        }
    }
}

/// The most that a transaction takes when its whole blocks go to fresh places;
/// without an index, whatever that may say.
fn need_of(index: Option<&Index>, txn: &Transaction, carried: u64) -> Need {
    let mut need = Need { footprint: BLOCK_LEN + carried, ..Need::default() };
    let mut moved = index.is_none_or(Index::has_shared);
    for op in &txn.ops {
        match op {
            Mutation::Write { offset, data, .. } => {
                let write = Need::of_fresh(*offset, data.len() as u64);
                need.blocks += write.blocks;
                need.growth += write.growth + 128;
                need.footprint = need.footprint + write.footprint - data.len() as u64;
                need.data |= write.data;
            }
            Mutation::Zero { .. } | Mutation::Truncate { .. } => {
                need.footprint += 2 * (BLOCK_LEN + log::SLOT_LEN as u64 + 32);
                need.blocks += if moved { 2 } else { 0 };
                moved = true;
            }
            Mutation::Remove(_) | Mutation::Rename { .. } => moved = true,
            Mutation::Clone { from, .. } => {
                moved = true;
                let known = index.and_then(|index| index.onode(from));
                need.growth += 256 + known.map_or(0, Onode::clone_len_max);
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

/// What the index keeps for a slot read back from the log.
pub(crate) fn replayed_crc(crc: u32, flags: u8) -> u32 {
    batch::index_crc(crc, flags & log::SLOT_POISONED != 0)
}
