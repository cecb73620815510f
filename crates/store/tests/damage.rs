//! Devices that lie: flipped bits, lost, torn and misdirected writes that were
//! acknowledged, sectors that cannot be read. In every place, one by one, and
//! drawn at random: detected or harmless, never returned as data, never a panic.

mod common;

use base::Random;
use common::damage::{Complaint, LOG, Outcome, Used, answers, judge, used, used_on};
use common::disk::{Image, Lie, SimDisk};
use common::*;
use store::{MemStore, ObjectStore, OpenError};

const PAGE: u64 = disk::PAGE as u64;

/// Few small objects, some shared, with data in every kind of place.
const FEW: Mix = Mix { objects: 6, object_len: 100 << 10, large_percent: 8, ops_max: 3, ..MIX };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    FlippedEarly,
    Flipped,
    Zeroed,
    /// As it was before later writes.
    Old,
    /// What was meant for another place.
    Foreign,
    Unreadable,
}

const DAMAGES: [Damage; 6] =
    [Damage::FlippedEarly, Damage::Flipped, Damage::Zeroed, Damage::Old, Damage::Foreign, Damage::Unreadable];

/// The device with this page damaged; `None` when that changes nothing.
fn damaged(used: &Used, pages: &[u64], page: u64, damage: Damage, random: &mut Random) -> Option<SimDisk> {
    let mut image = used.image.clone();
    let old = image.block(page);
    match damage {
        Damage::FlippedEarly => image.flip(page + random.below(100), random.below(8) as u32),
        Damage::Flipped => image.flip(page + random.below(PAGE), random.below(8) as u32),
        Damage::Zeroed => image.write(page, &[0; disk::PAGE]),
        Damage::Old => image.write(page, &used.earlier.block(page)),
        Damage::Foreign => {
            let other = pages[random.below(pages.len() as u64) as usize];
            image.write(page, &used.image.block(other));
        }
        Damage::Unreadable => (),
    }
    let changed = image.block(page) != old;
    let mut disk = SimDisk::with_image(DEVICE_LEN, image);
    if damage == Damage::Unreadable {
        disk.unreadable.insert(page);
    }
    (changed || damage == Damage::Unreadable).then_some(disk)
}

#[derive(Default, Debug)]
struct Tally {
    refused: u64,
    failed_reads: u64,
    last_lost: u64,
    harmless: u64,
}

impl Tally {
    /// What one damaged page may do: outside the log there are two copies of
    /// everything but data, and damage to data is an error that names the page.
    fn add(&mut self, outcome: Outcome, page: u64, what: &str) {
        if outcome.is_harmless() {
            self.harmless += 1;
            return;
        }
        match outcome {
            Outcome::Refused(error) => {
                assert!(LOG.contains(&page), "{what}: {error}");
                assert!(matches!(error, OpenError::Corrupt { .. } | OpenError::Io { .. }), "{what}: {error}");
                self.refused += 1;
            }
            Outcome::Open { metadata, data, last_lost } => {
                assert_eq!(metadata, [], "{what}");
                assert!(!last_lost || LOG.contains(&page), "{what}");
                self.last_lost += u64::from(last_lost);
                self.failed_reads += data.len() as u64;
                named(&data, page..page + PAGE, what);
            }
        }
    }
}

fn named(complaints: &[Complaint], place: std::ops::Range<u64>, what: &str) {
    for complaint in complaints {
        assert!(place.contains(&complaint.device_offset), "{what}: {complaint:?}");
    }
}

#[test]
fn every_damaged_page_is_detected_or_harmless() {
    let mut random = Random::from_seed(1);
    let mut tally = Tally::default();
    for seed in [1, 2] {
        let used = used_on(SimDisk::new(DEVICE_LEN), seed, 150, FEW);
        let pages: Vec<u64> = used.image.pages().collect();
        for page in &pages {
            for damage in DAMAGES {
                let Some(disk) = damaged(&used, &pages, *page, damage, &mut random) else { continue };
                let what = format!("seed {seed}, page {page}, {damage:?}");
                tally.add(judge(disk, &used.model, &what), *page, &what);
            }
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 10 && tally.failed_reads > 100 && tally.harmless > 1000, "{tally:?}");
}

#[test]
fn random_damage_is_detected_or_harmless() {
    let mut random = Random::from_seed(11);
    let mut tally = Tally::default();
    for seed in 0..6 {
        let used = used(seed, 400);
        let pages: Vec<u64> = used.image.pages().collect();
        for n in 0..250 {
            let page = pages[random.below(pages.len() as u64) as usize];
            let damage = DAMAGES[random.below(6) as usize];
            let Some(disk) = damaged(&used, &pages, page, damage, &mut random) else { continue };
            let what = format!("seed {seed}, number {n}, page {page}, {damage:?}");
            tally.add(judge(disk, &used.model, &what), page, &what);
        }
    }
    println!("{tally:?}");
    assert!(tally.refused > 20 && tally.failed_reads > 100 && tally.harmless > 100, "{tally:?}");
}

/// Several pages at once: no promise but the truth. Outside the log: whoever
/// damages its last records one and all makes a shorter log.
#[test]
fn much_damage_is_detected_or_harmless() {
    let mut random = Random::from_seed(12);
    let (mut refused, mut opened) = (0, 0);
    for seed in 0..4 {
        let Used { image, model, .. } = used(seed, 300);
        let pages: Vec<u64> = image.pages().filter(|page| !LOG.contains(page)).collect();
        for n in 0..150 {
            let mut bad = image.clone();
            for _ in 0..2 + random.below(pages.len() as u64 / 8) {
                let page = pages[random.below(pages.len() as u64) as usize];
                bad.flip(page + random.below(PAGE), random.below(8) as u32);
            }
            let what = format!("seed {seed}, number {n}");
            match judge(SimDisk::with_image(DEVICE_LEN, bad), &model, &what) {
                Outcome::Refused(_) => refused += 1,
                Outcome::Open { .. } => opened += 1,
            }
        }
    }
    println!("{refused} refused, {opened} opened");
    // Most of the index survives in its second copies.
    assert!(refused > 20 && opened > 50, "{refused} refused, {opened} opened");
}

/// The device acknowledges and flushes, and one write is not there, or not whole,
/// or elsewhere. The store goes on without knowing, and is then opened again.
#[test]
fn every_write_that_a_device_lies_about_is_detected_or_harmless() {
    let transactions = 120;
    let writes = used_on(SimDisk::new(DEVICE_LEN), 3, transactions, FEW).rig.disk.requests;
    let mut random = Random::from_seed(4);
    let (mut told, mut refused, mut failed_reads, mut last_lost) = (0, 0, 0, 0);
    for number in 2..writes {
        for lie in [Lie::Lost, Lie::Torn, Lie::Misdirected { pages: 1 + random.below(700) }] {
            let mut disk = SimDisk::new(DEVICE_LEN);
            disk.lie = Some((number, lie));
            let used = used_on(disk, 3, transactions, FEW);
            let Some((offset, len)) = used.rig.disk.lied_at else { continue };
            told += 1;
            let what = format!("write {number} at {offset}+{len}, {lie:?}");
            let mut rig = used.rig;
            let mut model = used.model.clone();
            // Before it is opened again, too.
            let (metadata, _) = answers(&mut rig, &mut model, &what);
            assert_eq!(metadata, [], "{what}");
            match judge(SimDisk::with_image(DEVICE_LEN, used.image), &used.model, &what) {
                Outcome::Refused(error) => {
                    let known = matches!(error, OpenError::Corrupt { .. } | OpenError::Io { .. });
                    assert!(known, "{what}: {error}");
                    refused += 1;
                }
                Outcome::Open { metadata, data, last_lost: lost } => {
                    assert_eq!(metadata, [], "{what}");
                    failed_reads += data.len();
                    last_lost += usize::from(lost);
                }
            }
        }
    }
    println!("{told} lies: {refused} refused, {failed_reads} reads failed, {last_lost} lost the last record");
    assert!(told > 100 && refused > 10 && failed_reads > 50);
}

/// The store is open when sectors go bad: reads of them say so, all else goes on.
#[test]
fn sectors_that_become_unreadable_fail_only_their_reads() {
    let mut random = Random::from_seed(5);
    let mut failed = 0;
    for seed in 0..40 {
        let Used { mut rig, mut model, image, .. } = used_on(SimDisk::new(DEVICE_LEN), seed, 100, FEW);
        let pages: Vec<u64> = image.pages().filter(|page| !LOG.contains(page)).collect();
        for _ in 0..3 {
            rig.disk.unreadable.insert(pages[random.below(pages.len() as u64) as usize]);
        }
        let what = format!("seed {seed}");
        let (metadata, data) = answers(&mut rig, &mut model, &what);
        assert_eq!(metadata, []);
        for complaint in &data {
            assert!(rig.disk.unreadable.contains(&complaint.device_offset), "{what}: {complaint:?}");
        }
        failed += data.len();
        partial_overwrites(rig, model, &what);
    }
    println!("{failed} reads failed");
    assert!(failed > 20);
}

/// Over what cannot be read: what was written is there or an error, and nothing else is.
fn partial_overwrites(mut rig: Rig, mut model: MemStore, what: &str) {
    let mut generator = Generator::new(9, FEW);
    for _ in 0..30 {
        let txn = generator.transaction();
        if rig.queue(&txn).is_ok() {
            model.queue(txn).unwrap();
        }
        while model.poll_event().is_some() {}
        rig.steps(4);
    }
    rig.drive();
    assert_eq!(rig.engine.fatal_error(), None, "{what}");
    let (metadata, _) = answers(&mut rig, &mut model, what);
    assert_eq!(metadata, []);
    // The index was not damaged, so the store opens; blocks that were merged with
    // what could not be read stay bad although the sectors are readable again.
    rig.engine.checkpoint();
    rig.drive();
    let mut rig = Rig::try_open(rig.disk.durable, options(), 1).unwrap();
    let (metadata, _) = answers(&mut rig, &mut model, what);
    assert_eq!(metadata, []);
}

#[test]
fn either_superblock_is_enough() {
    let Used { image, model, .. } = used(1, 100);
    let offsets = [0, DEVICE_LEN - PAGE];
    let open = |image: &Image| judge(SimDisk::with_image(DEVICE_LEN, image.clone()), &model, "superblock");
    for offset in offsets {
        let mut bad = image.clone();
        bad.write(offset, &[0xff; disk::PAGE]);
        assert!(open(&bad).is_harmless());
        let mut disk = SimDisk::with_image(DEVICE_LEN, image.clone());
        disk.unreadable.insert(offset);
        assert!(judge(disk, &model, "unreadable superblock").is_harmless());
    }
    let mut bad = image.clone();
    offsets.iter().for_each(|offset| bad.write(*offset, &[0; disk::PAGE]));
    assert!(matches!(open(&bad), Outcome::Refused(OpenError::NotAStore)));
    let mut bad = image;
    offsets.iter().for_each(|offset| bad.flip(offset + 100, 3));
    let outcome = open(&bad);
    assert!(matches!(outcome, Outcome::Refused(OpenError::Damaged { .. })), "{outcome:?}");
}
