//! Clones and heads that recovery brings share what they shared where they were made.

use crate::harness::*;
use base::{Duration, Random};
use bytes::Bytes;
use osd::OsdConfig;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use store::ObjectStore;
use wire::messages::OsdOp;
use wire::messages::osd_op::{ExtentArgs, OpCode, SnapArgs};
use wire::types::SnapId;

const SIZE: usize = 4 << 20;
const NAME: &str = "o";

/// An object, and what each of its snapshots must show.
struct Image {
    random: Random,
    head: Vec<u8>,
    snapshots: BTreeMap<SnapId, Vec<u8>>,
}

impl Image {
    fn new(w: &mut World, seed: u64, size: usize) -> Image {
        let mut random = Random::from_seed(seed);
        let head: Vec<u8> = (0..size).map(|_| random.next_u64() as u8).collect();
        assert_eq!(w.write(NAME, &head).result, 0);
        Image { random, head, snapshots: BTreeMap::new() }
    }

    fn take(&mut self) {
        let id = SnapId(self.snapshots.len() as u64 + 1);
        self.snapshots.insert(id, self.head.clone());
    }

    fn change(&mut self, w: &mut World, op: OsdOp) {
        let under: Vec<SnapId> = self.snapshots.keys().rev().copied().collect();
        let tid = w.submit_at(0, NAME, vec![op], SnapId::HEAD, &under);
        assert_eq!(w.wait(tid).result, 0);
    }

    fn write(&mut self, w: &mut World, offset: usize, len: usize) {
        let data: Vec<u8> = (0..len).map(|_| self.random.next_u64() as u8).collect();
        self.head.resize(self.head.len().max(offset + len), 0);
        self.head[offset..offset + len].copy_from_slice(&data);
        let args = ExtentArgs::new(offset as u64, len as u64).into_args();
        self.change(w, OsdOp::new(OpCode::WRITE, args, Bytes::from(data)));
    }

    /// A snapshot, then a whole block, a part of two blocks and a few bytes of one.
    fn snapshot_and_write(&mut self, w: &mut World) {
        self.take();
        for (align, len) in [(4096, 4096), (1, 5000), (1, 100)] {
            let offset = self.random.below(SIZE as u64 - 5000) / align * align;
            self.write(w, offset as usize, len);
        }
    }

    /// Anything that changes data.
    fn step(&mut self, w: &mut World) {
        let (offset, len) = (self.random.below(40_000), 1 + self.random.below(9000));
        let any = self.random.below(self.snapshots.len().max(1) as u64) as usize;
        let any = self.snapshots.iter().nth(any).map(|(id, data)| (*id, data.clone()));
        match (self.random.below(10), any) {
            (0 | 1, _) if self.snapshots.len() < 20 => self.take(),
            (2, Some((id, data))) => {
                self.head = data;
                let args = SnapArgs { snap: id.0 }.into_args();
                self.change(w, OsdOp::new(OpCode::ROLLBACK, args, Bytes::new()));
            }
            (3, _) => {
                self.head.resize(offset as usize, 0);
                let args = ExtentArgs::new(offset, 0).into_args();
                self.change(w, OsdOp::new(OpCode::TRUNCATE, args, Bytes::new()));
            }
            (4 | 5, _) if offset + len < self.head.len() as u64 => {
                let offset = offset / 4096 * 4096;
                self.head[offset as usize..(offset + len) as usize].fill(0);
                let args = ExtentArgs::new(offset, len).into_args();
                self.change(w, OsdOp::new(OpCode::ZERO, args, Bytes::new()));
            }
            _ => self.write(w, offset as usize, len as usize),
        }
    }

    fn check(&self, w: &mut World) {
        let all = self.snapshots.iter().map(|(id, data)| (*id, data));
        for (snap, data) in all.chain([(SnapId::HEAD, &self.head)]) {
            let tid = w.submit_at(0, NAME, vec![read_all()], snap, &[]);
            let reply = w.wait(tid);
            assert_eq!(reply.result, 0, "read at {snap:?}");
            assert!(reply.ops[0].outdata == *data, "other bytes at {snap:?}");
        }
    }
}

fn space(w: &World, osd: usize) -> u64 {
    w.nodes[osd].as_ref().unwrap().osd.store().inner().distinct_data()
}

fn sum(w: &World, of: fn(&osd::Counters) -> u64) -> u64 {
    w.nodes.iter().flatten().map(|node| of(node.osd.counters())).sum()
}

/// One OSD is away, or has lost everything, while snapshots are taken. When it is back it has
/// all of them in about the space that the others use.
fn comes_back(position: usize, wiped: bool, tweak: fn(&mut OsdConfig), percent: u64) -> World {
    let mut w = World::tweaked(71, 3, 3, 2, 1, tweak);
    w.settle();
    let mut image = Image::new(&mut w, 5, SIZE);
    for _ in 0..4 {
        image.snapshot_and_write(&mut w);
    }
    let away = w.acting(NAME)[position];
    w.kill(away);
    for _ in 0..8 {
        image.snapshot_and_write(&mut w);
    }
    if wiped {
        w.wipe(away);
    }
    w.start(away);
    w.make_metadata_absent(percent);
    w.settle();
    w.make_metadata_absent(0);
    w.assert_copies_equal();
    image.check(&mut w);
    let others = (0..3).filter(|osd| *osd != away).map(|osd| space(&w, osd));
    let (here, there) = (space(&w, away), others.max().unwrap());
    assert!(here <= there + there / 50, "{here} bytes where the others have {there}");
    w
}

#[test]
fn clones_that_come_by_the_log_share_with_their_neighbours() {
    crate::trace();
    for position in [0, 2] {
        for percent in [0, 40] {
            let w = comes_back(position, false, |_| {}, percent);
            // The first clone made meanwhile shares with the last one before.
            let shared = sum(&w, |c| c.recovery_bytes_shared);
            assert!(shared > 8 * SIZE as u64, "{shared} bytes");
            assert_eq!(sum(&w, |c| c.recovery_bases_refused), 0);
        }
    }
}

#[test]
fn clones_that_come_by_backfill_share_with_their_neighbours() {
    crate::trace();
    for position in [0, 1] {
        for percent in [0, 40] {
            let w = comes_back(position, true, |config| config.log_entries_max = 5, percent);
            let shared = sum(&w, |c| c.recovery_bytes_shared);
            assert!(shared > 11 * SIZE as u64, "{shared} bytes");
            assert_eq!(sum(&w, |c| c.recovery_bases_refused), 0);
        }
    }
}

#[test]
fn clones_that_come_in_many_parts_share_as_well() {
    let short = |config: &mut OsdConfig| config.recovery_chunk_len = 8192;
    comes_back(1, true, short, 0);
    comes_back(0, false, short, 20);
}

/// The head that the returning OSD still has is none that anything may be made from.
#[test]
fn sharing_with_whatever_is_there_is_caught() {
    let broken = |config: &mut OsdConfig| config.sabotage.share_unchecked = true;
    let run = || comes_back(2, false, broken, 0);
    assert!(std::panic::catch_unwind(AssertUnwindSafe(run)).is_err(), "not noticed");
}

#[test]
fn writes_go_on_while_clones_are_brought() {
    for seed in 0..6 {
        let tweak = |config: &mut OsdConfig| {
            config.log_entries_max = 5;
            config.recovery_chunk_len = 64 << 10;
        };
        let mut w = World::tweaked(seed, 3, 3, 2, 1, tweak);
        w.settle();
        let mut image = Image::new(&mut w, seed, SIZE);
        for _ in 0..6 {
            image.snapshot_and_write(&mut w);
        }
        let away = w.acting(NAME)[seed as usize % 3];
        w.kill(away);
        image.snapshot_and_write(&mut w);
        w.wipe(away);
        w.start(away);
        for round in 0..40 {
            let offset = image.random.below(SIZE as u64 - 5000) as usize;
            let began = w.now;
            image.write(&mut w, offset, 3000);
            let took = w.now.since(began);
            assert!(took < Duration::from_secs(3), "round {round}: a write took {took:?}");
            if round % 10 == 9 {
                image.take();
            }
        }
        w.settle();
        w.assert_copies_equal();
        image.check(&mut w);
    }
}

#[test]
fn whatever_changed_an_object_its_copies_are_made_right() {
    for seed in 0..12 {
        let tweak = |config: &mut OsdConfig| {
            config.log_entries_max = 30;
            config.recovery_chunk_len = 16 << 10;
        };
        let mut w = World::tweaked(seed, 3, 3, 2, 1, tweak);
        w.settle();
        let mut image = Image::new(&mut w, seed, 30_000);
        w.pending_percent = [0, 30][seed as usize % 2];
        for round in 0..4 {
            let away = w.acting(NAME)[(seed as usize + round) % 3];
            w.kill(away);
            for _ in 0..12 {
                image.step(&mut w);
            }
            if round % 2 == 1 {
                w.wipe(away);
            }
            w.start(away);
            w.settle();
        }
        w.make_metadata_absent(0);
        w.assert_copies_equal();
        image.check(&mut w);
        assert!(sum(&w, |c| c.recovery_bytes_shared) > 0);
    }
}

/// Blocks that are lost in one of two objects that share them are lost in both.
#[test]
fn a_damaged_clone_is_brought_whole() {
    let mut w = World::new(72, 3, 3, 2, 1);
    w.settle();
    let mut image = Image::new(&mut w, 6, SIZE);
    for _ in 0..3 {
        image.snapshot_and_write(&mut w);
    }
    let primary = w.acting(NAME)[0];
    let mut id = w.object_id(NAME);
    let store = w.nodes[primary].as_mut().unwrap().osd.store_mut().inner_mut();
    for snap in [2, 3] {
        id.object.snap = SnapId(snap);
        assert!(store.damage(&id));
    }
    let stored = store.stat(&id).unwrap().unwrap();
    assert_eq!(stored.size, SIZE as u64);
    image.check(&mut w);
    w.settle();
    w.assert_copies_equal();
    assert_eq!(sum(&w, |c| c.repaired), 2);
    assert_eq!(sum(&w, |c| c.recovery_bytes_shared), 0);
}
