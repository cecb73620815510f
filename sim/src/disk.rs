//! A device that forgets: writes reach stable storage only by a flush; a power
//! cut keeps, loses or tears whatever was not flushed.

use base::Random;
use bytes::{Bytes, BytesMut};
use env::{DiskError, DiskInfo};
use std::collections::BTreeMap;

const PAGE: u64 = 4096;
/// What a power cut may split a write into.
const SECTOR: usize = 512;

/// Each page is a slice of what was written: contents are shared, not copied.
type Pages = BTreeMap<u64, Bytes>;

/// One write, numbered over the device's whole life: the requests' own tokens
/// start again with every process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WriteId(u64);

struct UnflushedWrite {
    id: WriteId,
    /// Number and content, ascending.
    pages: Vec<(u64, Bytes)>,
    /// On stable storage when it completes.
    durable: bool,
    /// The device has reported it done; only such writes are covered by a flush.
    complete: bool,
}

pub struct SimDisk {
    info: DiskInfo,
    /// What survives a power cut for certain.
    durable: Pages,
    /// What reads see: everything completed.
    current: Pages,
    /// In submission order.
    unflushed: Vec<UnflushedWrite>,
    next_id: u64,
}

fn apply(pages: &mut Pages, write: &UnflushedWrite) {
    pages.extend(write.pages.iter().cloned());
}

/// Each sector of the write arrives or does not.
fn apply_torn(pages: &mut Pages, write: &UnflushedWrite, random: &mut Random) {
    for (page, new) in &write.pages {
        let mut mixed = pages.get(page).map_or_else(|| vec![0; PAGE as usize], |old| old.to_vec());
        for (sector, content) in new.chunks(SECTOR).enumerate() {
            if random.chance(1, 2) {
                mixed[sector * SECTOR..][..content.len()].copy_from_slice(content);
            }
        }
        pages.insert(*page, Bytes::from(mixed));
    }
}

fn apply_part(pages: &mut Pages, write: &UnflushedWrite, random: &mut Random) {
    match random.below(3) {
        0 => {}
        1 => apply(pages, write),
        _ => apply_torn(pages, write, random),
    }
}

impl SimDisk {
    pub fn new(len_bytes: u64) -> SimDisk {
        let info = DiskInfo { len_bytes, block_len: 4096, volatile_cache: true };
        SimDisk { info, durable: Pages::new(), current: Pages::new(), unflushed: Vec::new(), next_id: 0 }
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
    /// A `durable` one is safe when it has finished.
    pub fn start_write(
        &mut self,
        offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<WriteId, DiskError> {
        let len: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        self.check(offset, len)?;
        if data.iter().any(|piece| !(piece.len() as u64).is_multiple_of(PAGE)) {
            return Err(DiskError::BadRange);
        }
        let id = WriteId(self.next_id);
        self.next_id += 1;
        let pieces =
            data.iter().flat_map(|piece| (0..piece.len()).step_by(PAGE as usize).map(move |at| (piece, at)));
        let contents = pieces.map(|(piece, at)| piece.slice(at..at + PAGE as usize));
        let pages = (offset / PAGE..).zip(contents).collect();
        self.unflushed.push(UnflushedWrite { id, pages, durable, complete: false });
        Ok(id)
    }

    pub fn finish_write(&mut self, id: WriteId) {
        let Some(at) = self.unflushed.iter().position(|w| w.id == id && !w.complete) else { return };
        let write = &mut self.unflushed[at];
        write.complete = true;
        apply(&mut self.current, write);
        if !write.durable {
            return;
        }
        let write = self.unflushed.remove(at);
        apply(&mut self.durable, &write);
        // What was there before, flushed or not, cannot come back.
        let is_in = |page: &u64| write.pages.binary_search_by_key(page, |(page, _)| *page).is_ok();
        for earlier in self.unflushed.iter_mut().filter(|w| w.complete) {
            earlier.pages.retain(|(page, _)| !is_in(page));
        }
    }

    /// The writes that a flush submitted now will cover.
    pub fn start_flush(&self) -> Vec<WriteId> {
        self.unflushed.iter().filter(|w| w.complete).map(|w| w.id).collect()
    }

    pub fn finish_flush(&mut self, covered: &[WriteId]) {
        let durable = &mut self.durable;
        self.unflushed.retain(|w| {
            let flushed = covered.binary_search(&w.id).is_ok();
            if flushed {
                apply(durable, w);
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
            apply_part(&mut self.durable, &write, random);
        }
        self.current = self.durable.clone();
    }

    /// The process dies but the machine lives: what the device has completed
    /// stays; what was under way may have been done, not done, or in part.
    pub fn process_crash(&mut self, random: &mut Random) {
        let current = &mut self.current;
        let mut torn = Vec::new();
        self.unflushed.retain(|write| {
            if !write.complete {
                apply_part(current, write, random);
                torn.push(write.pages.iter().map(|(page, _)| *page).collect::<Vec<u64>>());
            }
            write.complete
        });
        // What is there now is as volatile as any other unflushed write.
        for pages in torn {
            let content = |page: &u64| current.get(page).cloned().unwrap_or_else(zero_page);
            let pages = pages.iter().map(|page| (*page, content(page))).collect();
            let id = WriteId(self.next_id);
            self.next_id += 1;
            self.unflushed.push(UnflushedWrite { id, pages, durable: false, complete: true });
        }
    }

    /// Flips one bit of a page that holds data; false if there is none.
    pub fn flip_bit(&mut self, random: &mut Random, from: u64) -> bool {
        let candidates: Vec<u64> = self.current.range(from / PAGE..).map(|(page, _)| *page).collect();
        if candidates.is_empty() {
            return false;
        }
        let page = candidates[random.below(candidates.len() as u64) as usize];
        self.flip_bit_at(page * PAGE, random);
        true
    }

    /// Flips one bit of the page at this offset.
    pub fn flip_bit_at(&mut self, offset: u64, random: &mut Random) {
        let page = offset / PAGE;
        let bit = random.below(PAGE * 8);
        for pages in [&mut self.current, &mut self.durable] {
            if let Some(data) = pages.get_mut(&page) {
                let mut flipped = data.to_vec();
                flipped[(bit / 8) as usize] ^= 1 << (bit % 8);
                *data = Bytes::from(flipped);
            }
        }
    }
}

fn zero_page() -> Bytes {
    static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];
    Bytes::from_static(&ZEROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: u8) -> Vec<Bytes> {
        vec![Bytes::from(vec![byte; PAGE as usize])]
    }

    fn first_byte(disk: &SimDisk) -> u8 {
        disk.read(0, PAGE as u32).unwrap()[0]
    }

    #[test]
    fn a_flush_covers_only_what_had_completed_when_it_began() {
        let mut random = Random::from_seed(1);
        let mut lost = false;
        for _ in 0..50 {
            let mut disk = SimDisk::new(1 << 20);
            let first = disk.start_write(0, page(1), false).unwrap();
            disk.finish_write(first);
            let second = disk.start_write(PAGE, page(2), false).unwrap();
            let covered = disk.start_flush();
            disk.finish_write(second);
            disk.finish_flush(&covered);
            disk.power_cut(&mut random);
            assert_eq!(first_byte(&disk), 1);
            lost |= disk.read(PAGE, PAGE as u32).unwrap()[0] == 0;
        }
        assert!(lost, "a write after the flush began is never lost");
    }

    #[test]
    fn unflushed_writes_survive_a_crash_of_the_process_but_maybe_not_of_the_machine() {
        let mut random = Random::from_seed(2);
        let mut lost = false;
        for _ in 0..50 {
            let mut disk = SimDisk::new(1 << 20);
            let write = disk.start_write(0, page(7), false).unwrap();
            disk.finish_write(write);
            disk.process_crash(&mut random);
            assert_eq!(first_byte(&disk), 7);
            disk.power_cut(&mut random);
            lost |= first_byte(&disk) == 0;
        }
        assert!(lost);
    }

    #[test]
    fn what_an_old_process_left_under_way_is_not_completed_by_the_new_one() {
        let mut random = Random::from_seed(3);
        let mut disk = SimDisk::new(1 << 20);
        let old = disk.start_write(0, page(1), false).unwrap();
        disk.process_crash(&mut random);
        let new = disk.start_write(0, page(2), false).unwrap();
        disk.finish_write(new);
        disk.finish_write(old);
        assert_eq!(first_byte(&disk), 2);
        let covered = disk.start_flush();
        disk.finish_flush(&covered);
        disk.power_cut(&mut random);
        assert_eq!(first_byte(&disk), 2);
    }

    #[test]
    fn a_durable_write_survives_alone_and_nothing_older_comes_back() {
        let mut random = Random::from_seed(4);
        let mut lost = false;
        for _ in 0..50 {
            let mut disk = SimDisk::new(1 << 20);
            let both = vec![Bytes::from(vec![1; 2 * PAGE as usize])];
            let older = disk.start_write(0, both, false).unwrap();
            disk.finish_write(older);
            let durable = disk.start_write(0, page(2), true).unwrap();
            disk.finish_write(durable);
            assert_eq!(first_byte(&disk), 2);
            disk.power_cut(&mut random);
            assert_eq!(first_byte(&disk), 2);
            lost |= disk.read(PAGE, PAGE as u32).unwrap()[0] == 0;
        }
        assert!(lost, "it flushes nothing but itself");
    }

    #[test]
    fn a_durable_write_under_way_may_be_lost() {
        let mut random = Random::from_seed(5);
        let mut lost = false;
        for _ in 0..50 {
            let mut disk = SimDisk::new(1 << 20);
            disk.start_write(0, page(1), true).unwrap();
            disk.power_cut(&mut random);
            lost |= first_byte(&disk) == 0;
        }
        assert!(lost);
    }
}
