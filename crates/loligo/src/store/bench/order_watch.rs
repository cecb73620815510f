//! Watches the requests to the device and checks the promise behind every
//! acknowledgement: each of a write's parts was in a durable write that had
//! completed, or in another before a flush that had ended.
//!
//! Each write carries its number and the place it is for in every data block and
//! in an xattr, so that its bytes are found wherever the store puts them. Of
//! several writes to one place that commit together only the last needs to reach
//! the device. Knows nothing of the store's format, except that it stores bytes
//! as they are.

use anyhow::{Result, bail};
use bytes::{Bytes, BytesMut};
use env::{DiskOp, DiskRequest};
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: &[u8; 8] = b"\xf1LoliOrd";
const MARK_LEN: usize = 32;
const BLOCK_LEN: u64 = 4096;

/// A block of an object, or its metadata.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Part {
    object: u64,
    /// Of data; `u64::MAX`: metadata.
    block: u64,
}

/// A copy with a mark at the beginning of each block.
///
/// Shape: offset and length are multiples of a block.
pub fn mark_data(data: &[u8], operation: u64, object: u64, offset: u64) -> Bytes {
    let mut copy = BytesMut::from(data);
    for (block, piece) in (offset / BLOCK_LEN..).zip(copy.chunks_mut(BLOCK_LEN as usize)) {
        piece[..MARK_LEN].copy_from_slice(&mark(operation, Part { object, block }));
    }
    copy.freeze()
}

pub fn mark_metadata(operation: u64, object: u64) -> Bytes {
    Bytes::copy_from_slice(&mark(operation, Part { object, block: u64::MAX }))
}

fn mark(operation: u64, part: Part) -> [u8; MARK_LEN] {
    let mut mark = [0; MARK_LEN];
    mark[..8].copy_from_slice(MAGIC);
    mark[8..16].copy_from_slice(&operation.to_le_bytes());
    mark[16..24].copy_from_slice(&part.object.to_le_bytes());
    mark[24..].copy_from_slice(&part.block.to_le_bytes());
    mark
}

/// A device write on its way.
struct Write {
    /// What it carries.
    parts: Vec<(u64, Part)>,
    durable: bool,
}

/// A mark of which the log's end has made two writes.
struct Torn {
    /// Those of the two that are on their way.
    writes: BTreeSet<u64>,
    /// Both are durable writes.
    durable: bool,
    found: (u64, Part),
}

#[derive(Default)]
pub struct OrderWatch {
    /// Operations that are not durable at this part, and whether a completed write has carried it.
    waiting: BTreeMap<Part, BTreeMap<u64, bool>>,
    /// Operation to its parts that are not durable yet.
    parts_left: BTreeMap<u64, u64>,
    /// By number: completed writes that no flush has covered, with what they carried.
    unflushed: BTreeMap<u64, Vec<(u64, Part)>>,
    /// By token: requests on their way.
    writes: BTreeMap<u64, Write>,
    /// The end of the last write, in which a mark may begin, and the write.
    tail: (u64, Vec<u8>),
    torn: Vec<Torn>,
    /// How many writes had completed when the flush left.
    flushes: BTreeMap<u64, u64>,
    completed: u64,
    pub acknowledged: u64,
}

impl OrderWatch {
    /// A write of whole blocks, with metadata, has been queued. Operations are
    /// numbered in the order in which they are queued.
    pub fn expect(&mut self, operation: u64, object: u64, offset: u64, len: u64) {
        let blocks = offset / BLOCK_LEN..(offset + len) / BLOCK_LEN;
        self.parts_left.insert(operation, len / BLOCK_LEN + 1);
        for block in blocks.chain([u64::MAX]) {
            self.waiting.entry(Part { object, block }).or_default().insert(operation, false);
        }
    }

    pub fn on_submit(&mut self, request: &DiskRequest) {
        match &request.op {
            DiskOp::Write { data, durable, .. } => {
                let parts = data.iter().flat_map(|piece| marks(piece)).collect();
                self.writes.insert(request.token, Write { parts, durable: *durable });
                data.iter().for_each(|piece| self.join(request.token, piece));
            }
            DiskOp::Flush => {
                self.flushes.insert(request.token, self.completed);
            }
            _ => {}
        }
    }

    /// Looks for marks that begin in the piece before, which may be another write's.
    fn join(&mut self, token: u64, piece: &[u8]) {
        let (before, seam) = &mut self.tail;
        seam.extend_from_slice(&piece[..piece.len().min(MARK_LEN - 1)]);
        let pair = [*before, token];
        let durable = pair.iter().all(|token| self.writes.get(token).is_none_or(|write| write.durable));
        let writes: BTreeSet<u64> =
            pair.into_iter().filter(|token| self.writes.contains_key(token)).collect();
        let new = marks(seam).into_iter().map(|found| Torn { writes: writes.clone(), durable, found });
        self.torn.extend(new);
        *before = token;
        *seam = piece[piece.len().saturating_sub(MARK_LEN - 1)..].to_vec();
    }

    pub fn on_disk_done(&mut self, token: u64, ok: bool) {
        if let Some(write) = self.writes.remove(&token)
            && ok
        {
            self.completed += 1;
            write
                .parts
                .into_iter()
                .for_each(|(operation, part)| self.on_part(operation, part, write.durable));
            for torn in &mut self.torn {
                torn.writes.remove(&token);
            }
            for Torn { durable, found: (operation, part), .. } in
                self.torn.extract_if(.., |torn| torn.writes.is_empty()).collect::<Vec<_>>()
            {
                self.on_part(operation, part, durable);
            }
        } else if let Some(completed) = self.flushes.remove(&token)
            && ok
        {
            let later = self.unflushed.split_off(&(completed + 1));
            let covered = std::mem::replace(&mut self.unflushed, later);
            covered.into_values().flatten().for_each(|(operation, part)| self.on_part(operation, part, true));
        }
    }

    /// The part's content as of this operation is written, and with it what was before.
    fn on_part(&mut self, operation: u64, part: Part, durable: bool) {
        let Some(waiting) = self.waiting.get_mut(&part) else { return };
        if !durable {
            // Of those before, one's own durable write may still be on its way.
            waiting.range_mut(..=operation).for_each(|(_, written)| *written = true);
            return self.unflushed.entry(self.completed).or_default().push((operation, part));
        }
        let later = waiting.split_off(&(operation + 1));
        let done = std::mem::replace(waiting, later);
        if waiting.is_empty() {
            self.waiting.remove(&part);
        }
        done.into_keys().for_each(|operation| self.one_part_less(operation));
    }

    fn one_part_less(&mut self, operation: u64) {
        if let Some(left) = self.parts_left.get_mut(&operation) {
            *left -= 1;
            if *left == 0 {
                self.parts_left.remove(&operation);
            }
        }
    }

    /// Errors: a broken promise.
    pub fn on_acknowledged(&mut self, operation: u64) -> Result<()> {
        self.acknowledged += 1;
        // Replay ends at the first record that was lost, so what comes after it is lost, too.
        if let Some((before, _)) = self.parts_left.first_key_value()
            && *before < operation
        {
            bail!("write {operation} was acknowledged while write {before} before it was not durable");
        }
        let Some(left) = self.parts_left.remove(&operation) else { return Ok(()) };
        let written = |waiting: &&BTreeMap<u64, bool>| waiting.get(&operation) == Some(&true);
        let unflushed = self.waiting.values().filter(written).count() as u64;
        if left > unflushed {
            bail!(
                "write {operation} was acknowledged while {} parts of it were on no device",
                left - unflushed
            );
        }
        bail!(
            "write {operation} was acknowledged before its flush: {unflushed} parts of it were written, \
             and neither by durable writes nor before a flush that had ended"
        )
    }
}

/// Operation and part of every mark in the bytes.
fn marks(bytes: &[u8]) -> Vec<(u64, Part)> {
    let number = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = bytes[at..].iter().position(|byte| *byte == MAGIC[0]) {
        at += next;
        if bytes.get(at..at + MARK_LEN).is_some_and(|mark| mark.starts_with(MAGIC)) {
            found.push((number(at + 8), Part { object: number(at + 16), block: number(at + 24) }));
            at += MARK_LEN;
        } else {
            at += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(token: u64, data: Bytes) -> DiskRequest {
        DiskRequest { token, op: DiskOp::Write { offset: 0, data: vec![data], durable: false } }
    }

    fn durable_write(token: u64, data: Bytes) -> DiskRequest {
        DiskRequest { token, op: DiskOp::Write { offset: 0, data: vec![data], durable: true } }
    }

    fn flush(token: u64) -> DiskRequest {
        DiskRequest { token, op: DiskOp::Flush }
    }

    /// Both parts of operation 7, in two writes.
    fn watch() -> (OrderWatch, DiskRequest, DiskRequest) {
        let mut watch = OrderWatch::default();
        watch.expect(7, 3, 8192, 4096);
        (watch, write(1, mark_data(&[0; 4096], 7, 3, 8192)), write(2, mark_metadata(7, 3)))
    }

    #[test]
    fn a_mark_at_the_logs_end_is_written_when_both_halves_are() {
        for cut in 1..MARK_LEN {
            let (mut watch, data, _) = watch();
            let record = mark_metadata(7, 3);
            watch.on_submit(&data);
            watch.on_submit(&write(2, [&[0; 100], &record[..cut]].concat().into()));
            watch.on_submit(&write(3, [&record[cut..], &[0; 100]].concat().into()));
            [1, 3].into_iter().for_each(|token| watch.on_disk_done(token, true));
            watch.on_submit(&flush(4));
            watch.on_disk_done(4, true);
            watch.on_disk_done(2, true);
            assert_eq!(watch.unflushed.len(), 1);
            watch.on_submit(&flush(5));
            watch.on_disk_done(5, true);
            watch.on_acknowledged(7).unwrap();
        }
    }

    #[test]
    fn a_flush_after_both_parts_is_enough() {
        let (mut watch, data, record) = watch();
        watch.on_submit(&data);
        watch.on_submit(&record);
        watch.on_disk_done(2, true);
        watch.on_disk_done(1, true);
        watch.on_submit(&flush(3));
        watch.on_disk_done(3, true);
        assert!(watch.on_acknowledged(7).is_ok());
    }

    #[test]
    fn a_flush_that_began_before_the_last_write_ended_is_not() {
        let (mut watch, data, record) = watch();
        watch.on_submit(&data);
        watch.on_submit(&record);
        watch.on_disk_done(1, true);
        watch.on_submit(&flush(3));
        watch.on_disk_done(2, true);
        watch.on_disk_done(3, true);
        assert!(watch.on_acknowledged(7).unwrap_err().to_string().contains("before its flush"));
    }

    #[test]
    fn durable_writes_of_both_parts_are_enough_and_one_is_not() {
        let both = [mark_data(&[0; 4096], 7, 3, 8192), mark_metadata(7, 3)].concat();
        let (mut watch, ..) = watch();
        watch.on_submit(&durable_write(1, both.into()));
        watch.on_disk_done(1, true);
        assert!(watch.on_acknowledged(7).is_ok());

        let (mut watch, data, _) = self::watch();
        watch.on_submit(&data);
        watch.on_submit(&durable_write(2, mark_metadata(7, 3)));
        watch.on_disk_done(1, true);
        watch.on_disk_done(2, true);
        assert!(watch.on_acknowledged(7).unwrap_err().to_string().contains("before its flush"));
    }

    #[test]
    fn a_later_write_before_its_flush_takes_nothing_from_an_earlier_durable_one() {
        let (mut watch, ..) = watch();
        watch.expect(8, 3, 8192, 4096);
        let both =
            |operation| [mark_data(&[0; 4096], operation, 3, 8192), mark_metadata(operation, 3)].concat();
        watch.on_submit(&durable_write(1, both(7).into()));
        watch.on_submit(&write(2, both(8).into()));
        watch.on_disk_done(2, true);
        watch.on_disk_done(1, true);
        assert!(watch.on_acknowledged(7).is_ok());
        assert!(watch.on_acknowledged(8).unwrap_err().to_string().contains("2 parts of it were written"));
    }

    #[test]
    fn a_durable_write_has_to_wait_for_those_before_it() {
        let (mut watch, ..) = watch();
        watch.expect(8, 4, 0, 4096);
        let both = [mark_data(&[0; 4096], 8, 4, 0), mark_metadata(8, 4)].concat();
        watch.on_submit(&durable_write(1, both.into()));
        watch.on_disk_done(1, true);
        assert!(watch.on_acknowledged(8).unwrap_err().to_string().contains("write 7 before it"));
    }

    #[test]
    fn a_torn_mark_is_durable_when_both_halves_are() {
        for (second, enough) in [(true, true), (false, false)] {
            let (mut watch, ..) = watch();
            let record = mark_metadata(7, 3);
            watch.on_submit(&durable_write(1, mark_data(&[0; 4096], 7, 3, 8192)));
            watch.on_submit(&durable_write(2, [&[0; 100], &record[..9]].concat().into()));
            let rest: Bytes = [&record[9..], &[0; 100]].concat().into();
            watch.on_submit(&if second { durable_write(3, rest) } else { write(3, rest) });
            [1, 2, 3].into_iter().for_each(|token| watch.on_disk_done(token, true));
            assert_eq!(watch.on_acknowledged(7).is_ok(), enough);
        }
    }

    #[test]
    fn neither_are_a_failed_flush_and_a_missing_part() {
        let (mut watch, data, _) = watch();
        watch.on_submit(&data);
        watch.on_disk_done(1, true);
        watch.on_submit(&flush(2));
        watch.on_disk_done(2, false);
        assert!(watch.on_acknowledged(7).unwrap_err().to_string().contains("on no device"));
    }

    #[test]
    fn a_later_write_to_the_same_place_stands_for_an_earlier_one_but_not_the_reverse() {
        let mut watch = OrderWatch::default();
        for operation in [1, 2] {
            watch.expect(operation, 0, 0, 4096);
        }
        let both = [mark_data(&[0; 4096], 1, 0, 0), mark_metadata(1, 0), mark_metadata(2, 0)].concat();
        watch.on_submit(&write(1, both.into()));
        watch.on_disk_done(1, true);
        watch.on_submit(&flush(2));
        watch.on_disk_done(2, true);
        assert!(watch.on_acknowledged(1).is_ok());
        assert!(watch.on_acknowledged(2).is_err());
        watch.on_submit(&write(3, mark_data(&[0; 4096], 2, 0, 0)));
        watch.on_disk_done(3, true);
        watch.on_submit(&flush(4));
        watch.on_disk_done(4, true);
        assert!(watch.on_acknowledged(2).is_ok());
    }
}
