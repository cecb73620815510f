//! Object data out: from memory where it is newer than its place, else from
//! the device, each block compared with its checksum.
//!
//! What a read sees is fixed when it is asked for: newer content is copied or
//! shared at once, and the device blocks are pinned until they have been read.

use crate::alloc::Run;
use crate::api::{FetchId, ObjectId, StoreError, StoreEvent};
use crate::buffers::Lent;
use crate::core::{BLOCK, Core};
use crate::dirty::{Image, Patch, lay_over};
use crate::io::Purpose;
use crate::limits::BLOCK_LEN;
use crate::needs;
use crate::pins::PINNED_MAX;
use crate::read_cache;
use base::{crc32c, sums};
use bytes::{Bytes, BytesMut};
use env::{DiskError, DiskResult};
use std::ops::Range;
use std::sync::Arc;

/// A read under way.
pub(crate) struct ReadOp {
    name: Arc<ObjectId>,
    /// In the object, and within its size.
    offset: u64,
    len: usize,
    /// Goes through the read cache.
    cached: bool,
    /// Parts not arrived.
    pending: usize,
    target: Target,
    error: Option<StoreError>,
}

enum Target {
    /// The whole read is one device request: its buffer is the answer.
    Whole(Bytes),
    /// Put together in this, which begins with the block that the read begins in. The checksums when
    /// every block comes from the device and nothing of them is left out.
    Assembled(Lent, Option<Vec<u32>>),
}

/// One device request of a read.
#[derive(Debug)]
pub(crate) struct DevicePart {
    fetch: FetchId,
    /// The object's block that the request begins with.
    block: u32,
    run: Run,
    crcs: Vec<u32>,
}

/// A read's block that waits for what lies under a partial overwrite.
pub(crate) struct WaitingRead {
    fetch: FetchId,
    block: u32,
    overlay: Vec<Patch>,
}

/// Where one block's content is.
pub(crate) enum Place {
    Memory(Bytes),
    Bad,
    Device { device: u32, crc: u32 },
    Waits { target: u32, overlay: Vec<Patch> },
}

impl ReadOp {
    /// Where blocks `first..end` lie in what is put together.
    fn place(&self, first: u64, end: u64) -> Range<usize> {
        let start = self.offset / BLOCK_LEN;
        (first - start) as usize * BLOCK..(end - start) as usize * BLOCK
    }

    /// A block that does not come from the device as it is.
    fn fill(&mut self, block: u32, content: &[u8]) {
        let place = self.place(u64::from(block), u64::from(block) + 1);
        if let Target::Assembled(out, _) = &mut self.target {
            out.rest(place).copy_from_slice(content);
        }
    }

    /// Blocks that were never written.
    fn fill_hole(&mut self, first: u64, end: u64) {
        let place = self.place(first, end);
        if let Target::Assembled(out, _) = &mut self.target {
            out.rest(place).fill(0);
        }
    }

    fn checksum_error(&self, block: u32, device: u32) -> StoreError {
        StoreError::Checksum {
            object: self.name.object.to_string(),
            offset: u64::from(block) * BLOCK_LEN,
            device_offset: u64::from(device) * BLOCK_LEN,
        }
    }

    fn io_error(&self, block: u32, device: u32, error: DiskError) -> StoreError {
        let errno = match error {
            DiskError::Io { errno } => errno,
            DiskError::BadRange => base::Errno::EINVAL.0,
        };
        StoreError::Io {
            object: self.name.object.to_string(),
            offset: u64::from(block) * BLOCK_LEN,
            device_offset: u64::from(device) * BLOCK_LEN,
            errno,
        }
    }
}

impl Core {
    /// `cached`: may go through the read cache.
    pub(crate) fn read(
        &mut self,
        id: &ObjectId,
        offset: u64,
        len: u64,
        cached: bool,
    ) -> Result<FetchId, StoreError> {
        self.mend.on_asked();
        let (name, onode) = self.entry(id)?;
        let (name, nid) = (name.id().clone(), onode.nid);
        crate::check::check_read(offset, len, onode.size)?;
        let end = offset.saturating_add(len).min(onode.size);
        let (first, last) = (offset / BLOCK_LEN, end.div_ceil(BLOCK_LEN));
        let wanted = match offset < end && !self.index.is_loaded() {
            true => needs::of_read(&self.index, nid, first, last),
            false => Vec::new(),
        };
        if !wanted.is_empty() {
            return Err(self.pager.pending(wanted));
        }
        let fetch = self.pager.fetch_id();
        if offset >= end {
            self.events.push_back(StoreEvent::Read { id: fetch, result: Ok(Bytes::new()) });
            return Ok(fetch);
        }
        let len = (end - offset) as usize;
        // Only short reads: pieces of a long one would push out all else.
        let cached = cached && last - first <= u64::from(read_cache::BLOCKS_MAX);
        let target = Target::Whole(Bytes::new());
        let mut op = ReadOp { name, offset, len, cached, pending: 0, target, error: None };
        let mut parts: Vec<DevicePart> = Vec::new();
        let mut from_memory: Vec<(u32, Bytes)> = Vec::new();
        let mut holes: Vec<(u64, u64)> = Vec::new();
        let mut next = first;
        for (block, mapping) in self.index.mappings(nid, first, last) {
            if u64::from(block) > next {
                holes.push((next, u64::from(block)));
            }
            next = u64::from(block) + 1;
            match self.find(mapping.device, mapping.crc, cached) {
                Place::Memory(content) => from_memory.push((block, content)),
                Place::Bad => op.error = Some(op.checksum_error(block, mapping.device)),
                Place::Waits { target, overlay } => {
                    op.pending += 1;
                    if let Some(waits) = self.awaits.get_mut(&target) {
                        waits.readers.push(WaitingRead { fetch, block, overlay });
                    }
                }
                Place::Device { device, crc } => match parts.last_mut() {
                    Some(part)
                        if part.run.end() == device
                            && part.block + part.run.count == block
                            && part.run.count < PINNED_MAX =>
                    {
                        part.run.count += 1;
                        part.crcs.push(crc);
                    }
                    _ => {
                        let run = Run { start: device, count: 1 };
                        parts.push(DevicePart { fetch, block, run, crcs: vec![crc] });
                    }
                },
            }
        }
        if next < last {
            holes.push((next, last));
        }
        // What is bad is nowhere.
        let of_device = from_memory.is_empty() && op.pending == 0 && holes.is_empty() && op.error.is_none();
        if of_device && parts.len() == 1 {
            // As it is: its buffer becomes the answer.
        } else if let ([(_, content)], true, 1) = (&from_memory[..], parts.is_empty(), last - first)
            && op.pending == 0
        {
            let within = (offset % BLOCK_LEN) as usize;
            op.target = Target::Whole(content.slice(within..within + len));
        } else {
            let aligned = offset.is_multiple_of(BLOCK_LEN) && len.is_multiple_of(BLOCK);
            let crcs = || parts.iter().flat_map(|part| part.crcs.iter().copied()).collect();
            let buffer = self.read_buffers.take((last - first) as usize).lend();
            op.target = Target::Assembled(buffer, (of_device && aligned).then(crcs));
            for (block, content) in from_memory {
                op.fill(block, &content);
            }
            holes.into_iter().for_each(|(first, end)| op.fill_hole(first, end));
        }
        op.pending += parts.len();
        for part in parts {
            let (block, run) = (u64::from(part.block), part.run);
            let offset = u64::from(run.start) * BLOCK_LEN;
            let place = op.place(block, block + u64::from(run.count));
            let token = match &mut op.target {
                Target::Whole(_) => self.io.read(offset, place.len() as u32, Purpose::Read(part)),
                Target::Assembled(out, _) => self.io.read_into(offset, out.part(place), Purpose::Read(part)),
            };
            self.pins.pin(run, token);
        }
        self.reads.insert(fetch, op);
        self.finish_read(fetch);
        Ok(fetch)
    }

    pub(crate) fn find(&mut self, device: u32, crc: u32, cached: bool) -> Place {
        let Some(dirty) = self.dirty.get(device) else {
            if let Some(content) = self.flying(device) {
                return Place::Memory(content);
            }
            let Some(content) = cached.then(|| self.cache.get(device, crc)).flatten() else {
                return Place::Device { device, crc };
            };
            self.cache.hits += 1;
            return Place::Memory(content);
        };
        let version = &dirty.newest;
        match &version.image {
            _ if version.poisoned => Place::Bad,
            Image::Frozen(content) => Place::Memory(content.clone()),
            Image::Slot(slot) => {
                let batch = self.batch(version.sequence).expect("a slot's batch is not issued");
                Place::Memory(Bytes::copy_from_slice(batch.content(*slot)))
            }
            Image::Waiting { overlay, .. } => Place::Waits { target: device, overlay: overlay.clone() },
        }
    }

    pub(crate) fn on_read(&mut self, token: u64, part: DevicePart, result: DiskResult) {
        self.unpin(part.run, token);
        let Some(op) = self.reads.get_mut(&part.fetch) else {
            return;
        };
        op.pending -= 1;
        let device = part.run.start;
        let data = match result {
            Ok(data) if data.len() == part.run.count as usize * BLOCK => data,
            Ok(_) => {
                let short = DiskError::Io { errno: base::Errno::EIO.0 };
                op.error = Some(op.io_error(part.block, device, short));
                return self.finish_read(part.fetch);
            }
            Err(error) => {
                op.error = Some(op.io_error(part.block, device, error));
                return self.finish_read(part.fetch);
            }
        };
        for (i, (content, crc)) in data.chunks_exact(BLOCK).zip(&part.crcs).enumerate() {
            if crc32c(content) != *crc {
                let i = i as u32;
                self.checksum_errors += 1;
                op.error.get_or_insert(op.checksum_error(part.block + i, device + i));
                break;
            }
            if op.cached {
                self.cache.put(device + i as u32, *crc, &data.slice(i * BLOCK..(i + 1) * BLOCK));
            }
        }
        let block = u64::from(part.block);
        let place = op.place(block, block + u64::from(part.run.count));
        match &mut op.target {
            Target::Whole(answer) => {
                let within = (op.offset % BLOCK_LEN) as usize;
                // Whoever sends it need not read it again for the frame's checksum.
                let data = if op.error.is_none() { sums::remember(data, 0, part.crcs) } else { data };
                *answer = data.slice(within..within + op.len);
            }
            Target::Assembled(out, _) => {
                // Else what was compared is not what will be handed out.
                assert!(out.is_at(&data, place), "a driver reads into the memory that it is given");
                drop(data);
            }
        }
        self.finish_read(part.fetch);
    }

    /// The block under a partial overwrite, as this read must see it.
    pub(crate) fn on_awaited(
        &mut self,
        reader: WaitingRead,
        source: u32,
        base: Result<&Bytes, Option<DiskError>>,
    ) {
        let Some(op) = self.reads.get_mut(&reader.fetch) else {
            return;
        };
        op.pending -= 1;
        match base {
            Ok(base) => {
                let mut content = BytesMut::from(&base[..]);
                lay_over(&mut content, &reader.overlay);
                op.fill(reader.block, &content);
            }
            Err(Some(error)) => op.error = Some(op.io_error(reader.block, source, error)),
            Err(None) => op.error = Some(op.checksum_error(reader.block, source)),
        }
        self.finish_read(reader.fetch);
    }

    fn finish_read(&mut self, fetch: FetchId) {
        if self.reads.get(&fetch).is_none_or(|op| op.pending > 0) {
            return;
        }
        let Some(op) = self.reads.remove(&fetch) else {
            return;
        };
        let result = match (op.error, op.target) {
            (Some(error), _) => Err(error),
            (None, Target::Whole(data)) => Ok(data),
            (None, Target::Assembled(out, crcs)) => {
                let data = out.take_back().expect("all its requests have ended").freeze();
                let within = (op.offset % BLOCK_LEN) as usize;
                let data = data.slice(within..within + op.len);
                Ok(sums::remember(data, 0, crcs.unwrap_or_default()))
            }
        };
        self.events.push_back(StoreEvent::Read { id: fetch, result });
    }
}
