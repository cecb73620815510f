//! A device that loses, tears and reorders what was not flushed; and one that
//! lies: drops writes, misdirects them, flips bits, cannot read sectors.

use base::{AlignedBuf, Random};
use bytes::Bytes;
use env::{DiskError, DiskInfo, DiskOp, DiskRequest, DiskResult, read_into};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub const SECTOR: usize = 512;
pub const PAGE: usize = 4096;
const CHUNK: usize = 64;

type Page = Arc<[u8; PAGE]>;

/// Content that survives. A clone costs one count for each 256 KiB of device.
#[derive(Clone, Default)]
pub struct Image {
    chunks: Vec<Option<Arc<[Option<Page>; CHUNK]>>>,
}

impl Image {
    fn page(&self, page: usize) -> Option<&Page> {
        self.chunks.get(page / CHUNK)?.as_ref()?[page % CHUNK].as_ref()
    }

    fn slot(&mut self, page: usize) -> &mut Option<Page> {
        let at = page / CHUNK;
        if self.chunks.len() <= at {
            self.chunks.resize(at + 1, None);
        }
        let chunk = self.chunks[at].get_or_insert_with(|| Arc::new([const { None }; CHUNK]));
        &mut Arc::make_mut(chunk)[page % CHUNK]
    }

    fn page_mut(&mut self, page: usize) -> &mut [u8; PAGE] {
        Arc::make_mut(self.slot(page).get_or_insert_with(|| Arc::new([0; PAGE])))
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset as usize;
        let mut rest = data;
        while !rest.is_empty() {
            let within = at % PAGE;
            let (piece, tail) = rest.split_at(rest.len().min(PAGE - within));
            match <&[u8; PAGE]>::try_from(piece) {
                Ok(whole) => *self.slot(at / PAGE) = Some(Arc::new(*whole)),
                Err(_) => self.page_mut(at / PAGE)[within..within + piece.len()].copy_from_slice(piece),
            }
            at += piece.len();
            rest = tail;
        }
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        self.read_into_zeros(offset, out);
    }

    fn read_into_zeros(&self, offset: u64, out: &mut [u8]) {
        assert!(offset.is_multiple_of(PAGE as u64) && out.len().is_multiple_of(PAGE));
        for (i, page) in out.chunks_exact_mut(PAGE).enumerate() {
            if let Some(found) = self.page(offset as usize / PAGE + i) {
                page.copy_from_slice(&found[..]);
            }
        }
    }

    pub fn block(&self, offset: u64) -> [u8; PAGE] {
        self.page(offset as usize / PAGE).map_or([0; PAGE], |page| **page)
    }

    pub fn flip(&mut self, offset: u64, bit: u32) {
        self.page_mut(offset as usize / PAGE)[offset as usize % PAGE] ^= 1 << bit;
    }

    /// Offsets of the pages ever written.
    pub fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        let chunks = self.chunks.iter().enumerate();
        let chunks = chunks.filter_map(|(at, chunk)| Some((at, chunk.as_ref()?)));
        chunks.flat_map(|(at, chunk)| {
            let used = (0..CHUNK).filter(|i| chunk[*i].is_some());
            used.map(move |i| ((at * CHUNK + i) * PAGE) as u64)
        })
    }
}

/// A write, or a discard, that a power cut may undo in part.
#[derive(Clone)]
pub struct Unflushed {
    /// By completion; `u64::MAX` while under way.
    pub number: u64,
    pub offset: u64,
    pub data: Bytes,
}

impl Unflushed {
    fn of(request: &DiskRequest) -> Option<Unflushed> {
        let (offset, data) = match &request.op {
            DiskOp::Write { offset, data, .. } => (*offset, joined(data)),
            // What reads of it return is anybody's guess: make sure that nobody relies on it.
            DiskOp::Discard { offset, len } => (*offset, vec![0xdd; *len as usize].into()),
            _ => return None,
        };
        Some(Unflushed { number: u64::MAX, offset, data })
    }

    pub fn overlaps(&self, other: &Unflushed) -> bool {
        self.offset < other.offset + other.data.len() as u64
            && other.offset < self.offset + self.data.len() as u64
    }

    /// What is left of it once a durable write has covered a part: that cannot come back.
    fn outside(self, durable: &Unflushed) -> Vec<Unflushed> {
        if !self.overlaps(durable) {
            return vec![self];
        }
        let end = self.offset + self.data.len() as u64;
        let before = (self.offset, durable.offset);
        let after = (durable.offset + durable.data.len() as u64, end);
        let part = |(from, to): (u64, u64)| {
            (from < to).then(|| {
                let data = self.data.slice((from - self.offset) as usize..(to - self.offset) as usize);
                Unflushed { number: self.number, offset: from, data }
            })
        };
        [before, after].into_iter().filter_map(part).collect()
    }

    pub fn sectors(&self) -> usize {
        self.data.len() / SECTOR
    }
}

fn joined(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [one] => one.clone(),
        _ => pieces.concat().into(),
    }
}

/// What a device does with a write that it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    Lost,
    /// Only the first sector arrives.
    Torn,
    /// It lands this many pages further on.
    Misdirected {
        pages: u64,
    },
}

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
    /// Offsets of pages whose reads fail.
    pub unreadable: BTreeSet<u64>,
    /// Writes to lie about: the first one that is complete when so many were.
    pub lie: Option<(u64, Lie)>,
    /// Where the lie was told, and how many bytes it concerns.
    pub lied_at: Option<(u64, u64)>,
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
            unreadable: BTreeSet::new(),
            lie: None,
            lied_at: None,
        }
    }

    pub fn submit(&mut self, request: DiskRequest) {
        self.assert_alone(&request);
        if matches!(request.op, DiskOp::Flush) {
            self.covered.insert(request.token, self.completed_writes);
        }
        self.queue.push(request);
    }

    /// A device gives no order to requests that are under way together.
    fn assert_alone(&self, request: &DiskRequest) {
        let range = |request: &DiskRequest| match &request.op {
            DiskOp::Write { offset, data, .. } => {
                (*offset, data.iter().map(|piece| piece.len() as u64).sum(), true)
            }
            DiskOp::Discard { offset, len } => (*offset, *len, true),
            DiskOp::Read { offset, len, .. } => (*offset, u64::from(*len), false),
            DiskOp::Flush => (0, 0, false),
        };
        let (offset, len, writes) = range(request);
        for other in &self.queue {
            let (other_offset, other_len, other_writes) = range(other);
            let overlap = offset < other_offset + other_len && other_offset < offset + len;
            assert!(
                !(overlap && (writes || other_writes)),
                "requests race: {offset}+{len} and {other_offset}+{other_len}"
            );
        }
    }

    /// Completes one of the queued requests.
    pub fn complete(&mut self, at: usize) -> (u64, DiskResult) {
        let mut request = self.queue.remove(at);
        self.requests += 1;
        let failing = self.fail_after.is_some_and(|after| self.requests > after);
        if failing && !matches!(request.op, DiskOp::Read { .. }) {
            return (request.token, Err(DiskError::Io { errno: 5 }));
        }
        let result = match &mut request.op {
            DiskOp::Write { offset, data, .. } => {
                let mut at = *offset;
                for piece in data {
                    assert!((piece.as_ptr() as usize).is_multiple_of(4096), "unaligned memory");
                    assert!(piece.len() % 4096 == 0 && at % 4096 == 0, "unaligned range");
                    assert!(at + piece.len() as u64 <= self.info.len_bytes, "past the end");
                    at += piece.len() as u64;
                }
                self.arrive(&request);
                Ok(Bytes::new())
            }
            DiskOp::Discard { .. } => {
                self.arrive(&request);
                Ok(Bytes::new())
            }
            DiskOp::Read { offset, len, into } => {
                let end = *offset + u64::from(*len);
                assert!(end <= self.info.len_bytes, "past the end");
                if self.unreadable.range(*offset..end).next().is_some() {
                    Err(DiskError::Io { errno: 5 })
                } else {
                    let mut out = AlignedBuf::zeroed(*len as usize);
                    self.visible.read_into_zeros(*offset, &mut out);
                    Ok(read_into(into.take(), out.freeze()))
                }
            }
            DiskOp::Flush => {
                // Nothing that completed after the flush was submitted.
                let covered = self.covered.remove(&request.token).unwrap_or(0);
                let split = self.unflushed.partition_point(|write| write.number < covered);
                for write in self.unflushed.drain(..split) {
                    self.durable.write(write.offset, &write.data);
                }
                Ok(Bytes::new())
            }
        };
        (request.token, result)
    }

    /// Completing it changes what a power cut leaves for certain.
    pub fn makes_durable(&self, at: usize) -> bool {
        matches!(self.queue[at].op, DiskOp::Flush | DiskOp::Write { durable: true, .. })
    }

    fn arrive(&mut self, request: &DiskRequest) {
        let Some(mut write) = Unflushed::of(request) else { return };
        write.number = self.completed_writes;
        self.completed_writes += 1;
        if let Some((_, lie)) = self.lie.take_if(|(number, _)| *number <= write.number) {
            self.lied_at = Some((write.offset, write.data.len() as u64));
            match lie {
                Lie::Lost => return,
                Lie::Torn => write.data.truncate(SECTOR),
                Lie::Misdirected { pages } => {
                    let room = self.info.len_bytes - write.data.len() as u64;
                    write.offset = (write.offset + pages * PAGE as u64) % (room + PAGE as u64);
                }
            }
        }
        self.visible.write(write.offset, &write.data);
        if matches!(request.op, DiskOp::Write { durable: true, .. }) {
            self.durable.write(write.offset, &write.data);
            self.unflushed = self.unflushed.drain(..).flat_map(|earlier| earlier.outside(&write)).collect();
        } else {
            self.unflushed.push(write);
        }
    }

    /// Every write that a power cut may undo: completed ones and those under way.
    pub fn at_risk(&self) -> Vec<Unflushed> {
        let under_way = self.queue.iter().filter_map(Unflushed::of);
        self.unflushed.iter().cloned().chain(under_way).collect()
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
    let prefix = random.chance(1, 2).then(|| random.below(write.sectors() as u64 + 1) as usize);
    for (i, sector) in write.data.chunks_exact(SECTOR).enumerate() {
        let kept = prefix.map_or_else(|| random.chance(1, 2), |prefix| i < prefix);
        if kept {
            image.write(write.offset + (i * SECTOR) as u64, sector);
        }
    }
}
