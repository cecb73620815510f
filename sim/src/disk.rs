//! A device that forgets: writes reach stable storage only by a flush; a power
//! cut keeps, loses or tears whatever was not flushed.

use base::Random;
use bytes::{Bytes, BytesMut};
use env::{DiskError, DiskInfo};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
/// What a power cut may split a write into.
const SECTOR: usize = 512;

type Pages = BTreeMap<u64, Vec<u8>>;

struct UnflushedWrite {
    offset: u64,
    data: Vec<u8>,
    /// The device has reported it done; only such writes are covered by a flush.
    complete: bool,
    token: u64,
}

pub struct SimDisk {
    info: DiskInfo,
    /// What survives a power cut for certain.
    durable: Pages,
    /// What reads see: everything completed.
    current: Pages,
    /// In submission order.
    unflushed: Vec<UnflushedWrite>,
}

fn apply(pages: &mut Pages, offset: u64, data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let pos = offset + at as u64;
        let (page, within) = (pos / PAGE, (pos % PAGE) as usize);
        let n = (PAGE as usize - within).min(data.len() - at);
        let target = pages.entry(page).or_insert_with(|| vec![0; PAGE as usize]);
        target[within..within + n].copy_from_slice(&data[at..at + n]);
        at += n;
    }
}

impl SimDisk {
    pub fn new(len_bytes: u64) -> SimDisk {
        let info = DiskInfo { len_bytes, block_len: 4096, volatile_cache: true };
        SimDisk { info, durable: Pages::new(), current: Pages::new(), unflushed: Vec::new() }
    }

    pub fn info(&self) -> DiskInfo {
        self.info
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let aligned = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        match offset.checked_add(len) {
            Some(end) if aligned && end <= self.info.len_bytes => Ok(()),
            _ => Err(DiskError::BadRange),
        }
    }

    /// The device takes the write; it may be lost from here on.
    pub fn start_write(&mut self, token: u64, offset: u64, data: &[Bytes]) -> Result<(), DiskError> {
        let data = data.concat();
        self.check(offset, data.len() as u64)?;
        self.unflushed.push(UnflushedWrite { offset, data, complete: false, token });
        Ok(())
    }

    pub fn finish_write(&mut self, token: u64) {
        if let Some(write) = self.unflushed.iter_mut().find(|w| w.token == token && !w.complete) {
            write.complete = true;
            apply(&mut self.current, write.offset, &write.data);
        }
    }

    /// The writes that a flush submitted now will cover.
    pub fn start_flush(&self) -> Vec<u64> {
        self.unflushed.iter().filter(|w| w.complete).map(|w| w.token).collect()
    }

    pub fn finish_flush(&mut self, covered: &[u64]) {
        let durable = &mut self.durable;
        self.unflushed.retain(|w| {
            let flushed = w.complete && covered.contains(&w.token);
            if flushed {
                apply(durable, w.offset, &w.data);
            }
            !flushed
        });
    }

    pub fn read(&self, offset: u64, len: u32) -> Result<Bytes, DiskError> {
        self.check(offset, u64::from(len))?;
        let mut out = BytesMut::with_capacity(len as usize);
        for page in offset / PAGE..(offset + u64::from(len)) / PAGE {
            match self.current.get(&page) {
                Some(data) => out.extend_from_slice(data),
                None => out.resize(out.len() + PAGE as usize, 0),
            }
        }
        Ok(out.freeze())
    }

    /// Power is cut: each unflushed write survives whole, not at all, or in
    /// part. Writes to the same place keep their order.
    pub fn power_cut(&mut self, random: &mut Random) {
        for write in std::mem::take(&mut self.unflushed) {
            match random.below(3) {
                0 => {}
                1 => apply(&mut self.durable, write.offset, &write.data),
                _ => {
                    for (i, sector) in write.data.chunks(SECTOR).enumerate() {
                        if random.chance(1, 2) {
                            apply(&mut self.durable, write.offset + (i * SECTOR) as u64, sector);
                        }
                    }
                }
            }
        }
        self.current = self.durable.clone();
    }

    /// The process dies but the machine lives: what the device took, stays.
    pub fn process_crash(&mut self) {
        for write in &mut self.unflushed {
            if !write.complete {
                write.complete = true;
                apply(&mut self.current, write.offset, &write.data);
            }
        }
    }

    /// Flips one bit of a page that holds data; false if there is none.
    pub fn flip_bit(&mut self, random: &mut Random, from: u64) -> bool {
        let candidates: Vec<u64> = self.current.range(from / PAGE..).map(|(page, _)| *page).collect();
        if candidates.is_empty() {
            return false;
        }
        let page = candidates[random.below(candidates.len() as u64) as usize];
        let bit = random.below(PAGE * 8);
        for pages in [&mut self.current, &mut self.durable] {
            if let Some(data) = pages.get_mut(&page) {
                data[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
        }
        true
    }
}
