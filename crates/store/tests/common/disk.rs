//! A device that loses, tears and reorders what was not flushed.

use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskError, DiskInfo, DiskOp, DiskRequest, DiskResult};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const SECTOR: usize = 512;
const PAGE: usize = 4096;

/// Content that survives; cheap to clone.
#[derive(Clone, Default)]
pub struct Image {
    pages: BTreeMap<u64, Arc<[u8; PAGE]>>,
}

impl Image {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (at % PAGE as u64) as usize;
            let (piece, tail) = rest.split_at(rest.len().min(PAGE - within));
            let page = self.pages.entry(at / PAGE as u64).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[within..within + piece.len()].copy_from_slice(piece);
            at += piece.len() as u64;
            rest = tail;
        }
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) {
        assert!(offset.is_multiple_of(PAGE as u64) && out.len().is_multiple_of(PAGE));
        for (i, page) in out.chunks_exact_mut(PAGE).enumerate() {
            match self.pages.get(&(offset / PAGE as u64 + i as u64)) {
                Some(found) => page.copy_from_slice(&found[..]),
                None => page.fill(0),
            }
        }
    }

    pub fn flip(&mut self, offset: u64, bit: u32) {
        let page = self.pages.entry(offset / PAGE as u64).or_insert_with(|| Arc::new([0; PAGE]));
        Arc::make_mut(page)[(offset % PAGE as u64) as usize] ^= 1 << bit;
    }

    /// Offsets of the pages ever written.
    pub fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().map(|page| page * PAGE as u64)
    }
}

/// A write that a power cut may undo in part.
#[derive(Clone)]
pub struct Unflushed {
    pub number: u64,
    pub offset: u64,
    pub data: Bytes,
}

#[derive(Clone)]
pub struct SimDisk {
    pub info: DiskInfo,
    pub durable: Image,
    /// What reads see.
    pub visible: Image,
    /// Completed and not flushed, in order of completion.
    pub unflushed: Vec<Unflushed>,
    /// Submitted and not completed.
    pub queue: Vec<DiskRequest>,
    completed_writes: u64,
    /// By token of a flush: the writes that had completed when it was submitted.
    covered: BTreeMap<u64, u64>,
    /// Fails the request that this many others precede.
    pub fail_after: Option<u64>,
    pub requests: u64,
}

impl SimDisk {
    pub fn new(len_bytes: u64) -> SimDisk {
        SimDisk::with_image(len_bytes, Image::default())
    }

    pub fn with_image(len_bytes: u64, image: Image) -> SimDisk {
        SimDisk {
            info: DiskInfo { len_bytes, block_len: 4096, volatile_cache: true },
            visible: image.clone(),
            durable: image,
            unflushed: Vec::new(),
            queue: Vec::new(),
            completed_writes: 0,
            covered: BTreeMap::new(),
            fail_after: None,
            requests: 0,
        }
    }

    pub fn submit(&mut self, request: DiskRequest) {
        if matches!(request.op, DiskOp::Flush) {
            self.covered.insert(request.token, self.completed_writes);
        }
        self.queue.push(request);
    }

    /// Completes one of the queued requests.
    pub fn complete(&mut self, at: usize) -> (u64, DiskResult) {
        let request = self.queue.remove(at);
        self.requests += 1;
        let failing = self.fail_after.is_some_and(|after| self.requests > after);
        if failing && !matches!(request.op, DiskOp::Read { .. }) {
            return (request.token, Err(DiskError::Io { errno: 5 }));
        }
        let result = match request.op {
            DiskOp::Write { offset, data } => {
                let mut at = offset;
                for piece in &data {
                    assert!((piece.as_ptr() as usize).is_multiple_of(4096), "unaligned memory");
                    assert!(piece.len() % 4096 == 0 && at % 4096 == 0, "unaligned range");
                    assert!(at + piece.len() as u64 <= self.info.len_bytes, "past the end");
                    self.visible.write(at, piece);
                    at += piece.len() as u64;
                }
                let data = Bytes::from(data.concat());
                let number = self.completed_writes;
                self.completed_writes += 1;
                self.unflushed.push(Unflushed { number, offset, data });
                Bytes::new()
            }
            DiskOp::Read { offset, len } => {
                assert!(offset + u64::from(len) <= self.info.len_bytes, "past the end");
                let mut out = AlignedBuf::zeroed(len as usize);
                self.visible.read(offset, &mut out);
                out.freeze()
            }
            DiskOp::Flush => {
                // Nothing that completed after the flush was submitted.
                let covered = self.covered.remove(&request.token).unwrap_or(0);
                let split = self.unflushed.partition_point(|write| write.number < covered);
                for write in self.unflushed.drain(..split) {
                    self.durable.write(write.offset, &write.data);
                }
                Bytes::new()
            }
            DiskOp::Discard { offset, len } => {
                // Reads of it may return anything: make sure nobody relies on it.
                let noise = vec![0xdd; len as usize];
                self.visible.write(offset, &noise);
                self.durable.write(offset, &noise);
                Bytes::new()
            }
        };
        (request.token, Ok(result))
    }

    /// Every write that a power cut may undo: completed ones and those under way.
    pub fn at_risk(&self) -> Vec<Unflushed> {
        let mut all = self.unflushed.clone();
        for request in &self.queue {
            if let DiskOp::Write { offset, data } = &request.op {
                let (number, data) = (u64::MAX, Bytes::from(data.concat()));
                all.push(Unflushed { number, offset: *offset, data });
            }
        }
        all
    }

    /// What is left after a power cut, drawn at random.
    pub fn cut(&self, random: &mut Random) -> Image {
        let mut left = self.durable.clone();
        let mut writes = self.at_risk();
        let keep_mostly = random.chance(1, 2);
        while !writes.is_empty() {
            let write = writes.swap_remove(random.below(writes.len() as u64) as usize);
            let fate = if keep_mostly { random.below(8) } else { random.below(3) };
            match fate {
                0 => (),
                1 => tear(&mut left, &write, random),
                _ => left.write(write.offset, &write.data),
            }
        }
        left
    }
}

/// Keeps a random part of the write's sectors: a prefix, or any of them.
pub fn tear(image: &mut Image, write: &Unflushed, random: &mut Random) {
    let sectors = write.data.len() / SECTOR;
    let prefix = random.chance(1, 2).then(|| random.below(sectors as u64 + 1) as usize);
    for (i, sector) in write.data.chunks_exact(SECTOR).enumerate() {
        let kept = prefix.map_or_else(|| random.chance(1, 2), |prefix| i < prefix);
        if kept {
            image.write(write.offset + (i * SECTOR) as u64, sector);
        }
    }
}
