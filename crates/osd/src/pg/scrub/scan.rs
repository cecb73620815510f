//! Looking at one copy of a range of objects: at the primary, and at any other member for it.
//!
//! Nobody writes to the range meanwhile, for the primary sees to that; what happens to a range
//! that it has given up is of no interest. One read is under way at a time, so that clients'
//! requests hardly wait for it.

use super::compare::Copy;
use crate::action::Ctx;
use crate::exec::{self, InfoError, ObjectInfo};
use crate::peer::{ScrubMap, ScrubScan};
use crate::pg::repair::is_damage;
use crate::pg::{Pg, Phase, snap_index};
use crate::shared::{Fetch, Load, Shared};
use base::{Duration, ceph_crc32c};
use bytes::Bytes;
use std::collections::VecDeque;
use store::limits::BLOCK_LEN;
use store::{ObjectId, ObjectStore, OmapLimit, StoreError};
use wire::types::{HObject, OsdId};

/// Bytes of one read (`osd_deep_scrub_stride`).
const STRIDE: u64 = 512 << 10;
/// Names asked for at once, and omap entries.
const PAGE: usize = 256;
const OMAP_PAGE: OmapLimit = OmapLimit { entries: PAGE, bytes: 256 << 10 };
/// Objects looked at, and snapshots looked up, before others get their turn, and the time for that.
const TURN: usize = 128;
const TURN_PAUSE: Duration = Duration::from_micros(100);

static ZEROS: [u8; BLOCK_LEN as usize] = [0; BLOCK_LEN as usize];

/// A range being looked at.
#[derive(Debug)]
pub struct Scan {
    asked: ScrubScan,
    by: OsdId,
    /// Names up to here have been listed.
    listed: HObject,
    queue: VecDeque<HObject>,
    current: Option<Current>,
    seen: Vec<(HObject, Copy)>,
}

/// The object whose content is being read.
#[derive(Debug)]
struct Current {
    object: HObject,
    copy: Copy,
    /// [`Pg::repairs`] when it was begun: what was read before is not what is there.
    repairs: u64,
    omap: Omap,
    extents: VecDeque<(u64, u64)>,
    /// Where the read under way begins.
    reading: Option<u64>,
}

#[derive(Debug)]
enum Omap {
    Begin,
    After(Bytes),
    Done,
}

enum Progress {
    Reading,
    /// Enough for now.
    Turn,
    Done,
}

impl Pg {
    /// The primary asks. It asks again when it has no answer.
    pub(in crate::pg) fn on_scrub_scan<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        from: OsdId,
        asked: ScrubScan,
    ) {
        let is_member = self.phase == (Phase::Replica { active: true });
        if !is_member || self.placement.primary != Some(from) {
            return;
        }
        if self.scan.as_ref().is_some_and(|scan| scan.asked == asked) {
            return;
        }
        if self.scan.is_none() && sh.scans.len() >= sh.config.scrub_scans_max {
            let refused = ScrubMap { id: asked.id, refused: true, copies: Vec::new() };
            return sh.send_pg(ctx, from, self.header(sh), refused);
        }
        self.start_scan(sh, ctx, from, asked);
    }

    pub(super) fn start_scan<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        by: OsdId,
        asked: ScrubScan,
    ) {
        if by != sh.me() {
            sh.scans.insert(self.id);
        }
        let listed = asked.begin.clone();
        let (queue, seen) = (VecDeque::new(), Vec::new());
        self.scan = Some(Scan { asked, by, listed, queue, current: None, seen });
        self.continue_scan(sh, ctx);
    }

    pub(super) fn stop_scan<S: ObjectStore>(&mut self, sh: &mut Shared<S>) {
        self.scan = None;
        sh.scans.remove(&self.id);
        sh.scrub_turns.remove(&self.id);
    }

    /// Metadata is there, or it is our turn.
    pub fn continue_scan<S: ObjectStore>(&mut self, sh: &mut Shared<S>, ctx: &mut Ctx<'_>) {
        let Some(mut scan) = self.scan.take() else { return };
        let progress = self.scan_on(sh, &mut scan);
        match progress {
            Ok(Progress::Reading) => {}
            Ok(Progress::Turn) => {
                sh.scrub_turns.insert(self.id);
                sh.wake_in(ctx, TURN_PAUSE);
            }
            Ok(Progress::Done) => {
                self.stop_scan(sh);
                let map = ScrubMap { id: scan.asked.id, refused: false, copies: scan.seen };
                return match scan.by == sh.me() {
                    true => self.on_scrub_map(sh, ctx, scan.by, map),
                    false => sh.send_pg(ctx, scan.by, self.header(sh), map),
                };
            }
            Err(error) => {
                if !sh.wait_load(&error, Load::Scrub { pg: self.id }) {
                    // The names themselves: there is nothing to compare. The primary gives up.
                    tracing::error!(osd = %sh.me(), pg = %self.id, %error, "cannot list objects to scrub");
                    return self.stop_scan(sh);
                }
            }
        }
        self.scan = Some(scan);
    }

    fn scan_on<S: ObjectStore>(&self, sh: &mut Shared<S>, scan: &mut Scan) -> Result<Progress, StoreError> {
        let mut looked = 0;
        while looked < TURN {
            looked += 1;
            if let Some(current) = &mut scan.current {
                match self.read_on(sh, scan.asked.id, current) {
                    Ok(Progress::Done) => {}
                    Ok(progress) => return Ok(progress),
                    Err(error @ StoreError::Pending(_)) => return Err(error),
                    Err(error) => {
                        self.note_unreadable(sh, current, &error);
                    }
                }
                let done = scan.current.take().map(|current| (current.object, current.copy));
                scan.seen.extend(done);
                continue;
            }
            let Some(object) = scan.queue.front() else {
                if scan.listed == scan.asked.end {
                    return Ok(Progress::Done);
                }
                self.list_more(sh, scan)?;
                continue;
            };
            let id = self.object_id(object);
            let (copy, looked_up) = match self.look(sh, &id) {
                Ok(seen) => seen,
                Err(error @ StoreError::Pending(_)) => return Err(error),
                // Gone: the range has been given up.
                Err(StoreError::NoObject) => {
                    scan.queue.pop_front();
                    continue;
                }
                Err(error) => {
                    tracing::error!(osd = %sh.me(), pg = %self.id, object = %object.name, %error, "cannot read an object's record");
                    (Copy { is_unreadable: true, ..Copy::default() }, 0)
                }
            };
            looked += looked_up;
            let Some(object) = scan.queue.pop_front() else { continue };
            match scan.asked.deep && !copy.is_unreadable {
                true => scan.current = Some(self.begin_content(object, copy)),
                false => scan.seen.push((object, copy)),
            }
        }
        Ok(Progress::Turn)
    }

    fn list_more<S: ObjectStore>(&self, sh: &Shared<S>, scan: &mut Scan) -> Result<(), StoreError> {
        // One more, because the one that it begins with may be listed.
        let listed = sh.store.list(self.coll, &scan.listed, PAGE + 1)?;
        let is_last = listed.len() <= PAGE;
        let reached = listed.last().cloned();
        let (begin, end) = (&scan.listed, &scan.asked.end);
        scan.queue.extend(listed.into_iter().filter(|object| object > begin && object <= end));
        scan.listed = match reached {
            Some(reached) if !is_last && reached < scan.asked.end => reached,
            _ => scan.asked.end.clone(),
        };
        Ok(())
    }

    /// What every scrub compares, and the number of snapshots that were looked up for it.
    fn look<S: ObjectStore>(&self, sh: &Shared<S>, id: &ObjectId) -> Result<(Copy, usize), StoreError> {
        let stat = sh.store.stat(id)?.ok_or(StoreError::NoObject)?;
        let info = match ObjectInfo::load(&sh.store, id) {
            Ok(info) => info.unwrap_or_default(),
            Err(InfoError::Store(error)) => return Err(error),
            Err(_) => ObjectInfo::default(),
        };
        let mut xattrs = sh.store.xattrs(id)?;
        let mut attrs = !0;
        for (name, value) in &xattrs {
            attrs = digest_of(attrs, name.as_bytes());
            attrs = digest_of(attrs, value);
        }
        let snaps = xattrs.remove(if id.object.is_clone() { exec::SNAPS_ATTR } else { exec::SNAPSET_ATTR });
        let mut copy = Copy {
            version: info.version,
            size: stat.size,
            omap_keys: stat.omap_keys,
            attrs,
            ..Copy::default()
        };
        let mut looked_up = 0;
        if id.object.is_clone() {
            let record = snaps.clone().unwrap_or_default();
            for snap in exec::decode_snaps(record).unwrap_or_default() {
                let key = snap_index::key(snap, &id.object);
                looked_up += 1;
                copy.is_unindexed |= sh.store.omap_get(&self.meta, &key)?.is_none();
            }
        }
        // One that should be there and is not, is none that can be read.
        copy.snaps = snaps.or_else(|| info.has_clones.then(Bytes::new));
        Ok((copy, looked_up))
    }

    /// Bytes that a deep scrub reads of an object, and in how many pieces, pages of omap among them.
    pub(super) fn cost_of_scan<S: ObjectStore>(
        &self,
        sh: &Shared<S>,
        object: &HObject,
    ) -> Result<(u64, u64), StoreError> {
        let id = self.object_id(object);
        let Some(stat) = sh.store.stat(&id)? else { return Ok((0, 0)) };
        let extents = sh.store.data_extents(&id, 0, stat.size)?;
        let bytes: u64 = extents.iter().map(|(_, len)| len).sum();
        let reads: u64 = extents.iter().map(|(_, len)| len.div_ceil(STRIDE)).sum();
        Ok((bytes + stat.omap_len, reads + omap_pages(stat.omap_keys, stat.omap_len)))
    }

    fn begin_content(&self, object: HObject, copy: Copy) -> Current {
        let repairs = self.repairs;
        Current { object, copy, repairs, omap: Omap::Begin, extents: VecDeque::new(), reading: None }
    }

    /// One page of omap, or one read.
    fn read_on<S: ObjectStore>(
        &self,
        sh: &mut Shared<S>,
        scan: u64,
        current: &mut Current,
    ) -> Result<Progress, StoreError> {
        if current.reading.is_some() {
            return Ok(Progress::Reading);
        }
        let id = self.object_id(&current.object);
        if !matches!(current.omap, Omap::Done) {
            let after = match &current.omap {
                Omap::After(key) => Some(key.clone()),
                _ => None,
            };
            let page = sh.store.omap_list(&id, after.as_deref(), &[], OMAP_PAGE)?;
            if after.is_none() {
                let header = sh.store.omap_header(&id)?;
                current.extents = sh.store.data_extents(&id, 0, current.copy.size)?.into();
                current.copy.omap = digest_of(!0, &header);
                current.copy.data = !0;
            }
            for (key, value) in &page.entries {
                current.copy.omap = digest_of(digest_of(current.copy.omap, key), value);
            }
            current.omap = match page.last_key() {
                Some(key) if page.more => Omap::After(key.clone()),
                _ => Omap::Done,
            };
            if matches!(current.omap, Omap::After(_)) {
                return Ok(Progress::Turn);
            }
        }
        let Some((offset, len)) = current.extents.pop_front() else { return Ok(Progress::Done) };
        let now = len.min(STRIDE);
        if len > now {
            current.extents.push_front((offset + now, len - now));
        }
        let fetch = match sh.store.read_device(&id, offset, now) {
            Ok(fetch) => fetch,
            Err(error) => {
                current.extents.push_front((offset, now));
                return Err(error);
            }
        };
        current.reading = Some(offset);
        sh.fetches.insert(fetch, Fetch::Scrub { pg: self.id, scan });
        Ok(Progress::Reading)
    }

    /// Data that was read for a scan.
    pub fn on_scrub_read<S: ObjectStore>(
        &mut self,
        sh: &mut Shared<S>,
        ctx: &mut Ctx<'_>,
        scan: u64,
        result: Result<Bytes, StoreError>,
    ) {
        let repairs = self.repairs;
        let Some(mut scan) = self.scan.take_if(|running| running.asked.id == scan) else { return };
        if let Some(current) = &mut scan.current
            && let Some(offset) = current.reading.take()
        {
            match result {
                Ok(data) => current.copy.data = digest_of_blocks(current.copy.data, offset, &data),
                // It has been replaced since: again, from the start.
                Err(_) if current.repairs != repairs => {
                    scan.queue.push_front(current.object.clone());
                    scan.current = None;
                }
                Err(error) => {
                    self.note_unreadable(sh, current, &error);
                    current.extents.clear();
                }
            }
        }
        self.scan = Some(scan);
        self.continue_scan(sh, ctx);
    }

    fn note_unreadable<S: ObjectStore>(&self, sh: &mut Shared<S>, current: &mut Current, error: &StoreError) {
        if is_damage(error) {
            sh.counters.read_errors += 1;
        }
        tracing::error!(osd = %sh.me(), pg = %self.id, object = %current.object, %error, "a scrub cannot read an object");
        current.copy.is_unreadable = true;
    }
}

/// Pages that so many entries and bytes of omap take, about.
fn omap_pages(keys: u64, len: u64) -> u64 {
    // None is so full of bytes that it has no entry.
    let by_bytes = len.div_ceil(OMAP_PAGE.bytes as u64).min(keys);
    by_bytes.max(keys.div_ceil(OMAP_PAGE.entries as u64))
}

/// With the length, so that two fields do not pass for two others.
fn digest_of(seed: u32, bytes: &[u8]) -> u32 {
    ceph_crc32c(ceph_crc32c(seed, &(bytes.len() as u64).to_le_bytes()), bytes)
}

/// Of blocks that hold anything but zeros, and where they are: copies need not have the same holes.
fn digest_of_blocks(seed: u32, offset: u64, data: &[u8]) -> u32 {
    assert!(offset.is_multiple_of(BLOCK_LEN));
    let places = (0u64..).map(|block| offset + block * BLOCK_LEN);
    let blocks = places.zip(data.chunks(BLOCK_LEN as usize));
    let written = blocks.filter(|(_, block)| **block != ZEROS[..block.len()]);
    written.fold(seed, |seed, (at, block)| ceph_crc32c(ceph_crc32c(seed, &at.to_le_bytes()), block))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_omap_end_by_entries_or_by_bytes() {
        assert_eq!(omap_pages(0, 0), 0);
        assert_eq!(omap_pages(0, 4096), 0, "a header alone");
        assert_eq!(omap_pages(257, 257 * 100), 2);
        assert_eq!(omap_pages(200, 200 * (64 << 10)), 50);
        assert_eq!(omap_pages(3, 3 << 20), 3, "one entry each");
    }

    #[test]
    fn holes_and_zeros_are_the_same_and_places_are_not() {
        let (zeros, ones) = (vec![0; 4096], vec![1; 4096]);
        let digest = |blocks: &[(u64, &[u8])]| {
            blocks.iter().fold(!0, |seed, (at, data)| digest_of_blocks(seed, *at, data))
        };
        let whole = [&zeros[..], &ones, &zeros, &ones[..10]].concat();
        let pieces = digest(&[(4096, &ones), (3 * 4096, &ones[..10])]);
        assert_eq!(digest(&[(0, &whole)]), pieces);
        assert_ne!(digest(&[(0, &ones), (3 * 4096, &ones[..10])]), pieces);
        assert_ne!(digest(&[(4096, &ones), (3 * 4096, &ones[..9])]), pieces);
    }
}
