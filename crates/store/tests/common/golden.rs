//! Golden images: what a program of each format version left on its device
//! after the same transactions. `cargo run -p store --example golden_image`
//! makes the one of the present version.
//!
//! The transactions never change: images of past versions rely on them.
//!
//! File: for each page that is not all zeros, its number (4 bytes), the length
//! of its packed content (2), and that: runs of a length (2, the top bit set when
//! one byte stands for all) and a byte or bytes. Little-endian.

use super::disk::{Image, PAGE};
use super::*;
use std::path::PathBuf;

pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

pub fn file_of(version: u32) -> PathBuf {
    folder().join(format!("store-v{version}.img"))
}

/// The format version in the superblock.
pub fn version_of(image: &Image) -> u32 {
    let block = image.block(0);
    u32::from_le_bytes([block[8], block[9], block[10], block[11]])
}

/// Before the checkpoint, and after it.
pub fn transactions() -> [Vec<Transaction>; 2] {
    let (a, b, c) = (id(pg(0), "a"), id(pg(1), "b"), id(pg(0), "c"));
    let fill = |byte: u8, len: usize| Bytes::from(vec![byte; len]);
    let attrs =
        |n: u8| BTreeMap::from([("_".to_string(), fill(n, 30)), ("snapset".to_string(), fill(n, 31))]);
    let omap = |from: u8, to: u8| -> BTreeMap<Bytes, Bytes> {
        (from..to).map(|n| (Bytes::from(format!("key {n:03}")), fill(n, usize::from(n)))).collect()
    };
    let txn = |ops: Vec<Mutation>| Transaction { ops };
    let before = vec![
        txn([CollId::Meta, pg(0), pg(1), pg(2)].map(Mutation::CreateCollection).to_vec()),
        txn(vec![
            write(&a, 0, fill(1, 80 << 10)),
            Mutation::SetXattrs { id: a.clone(), attrs: attrs(1).into() },
        ]),
        txn(vec![
            write(&a, 5000, fill(2, 700)),
            Mutation::SetOmap { id: a.clone(), entries: omap(0, 100).into() },
        ]),
        txn(vec![Mutation::Clone { from: a.clone(), to: b.clone() }]),
        txn(vec![
            write(&a, 8192, fill(3, 4096)),
            Mutation::Zero { id: a.clone(), offset: 20_000, len: 9000 },
        ]),
        txn(vec![Mutation::SetOmapHeader { id: b.clone(), header: fill(4, 20) }]),
        txn(vec![Mutation::Touch(id(CollId::Meta, "touched"))]),
    ];
    let after = vec![
        txn(vec![write(&c, 100, fill(5, 10_000)), Mutation::Truncate { id: b.clone(), size: 30_000 }]),
        txn(vec![write(&c, 1 << 20, fill(6, 70 << 10)), Mutation::RemoveCollection(pg(2))]),
        txn(vec![Mutation::RmOmapRange { id: a.clone(), start: "key 010".into(), end: "key 020".into() }]),
        txn(vec![Mutation::Rename { from: b.clone(), to: id(pg(1), "renamed") }]),
        txn(vec![Mutation::RmXattr { id: a.clone(), name: "_".into() }, write(&a, 0, fill(7, 4096))]),
        txn(vec![write(&id(pg(0), "d"), 0, fill(8, 4096)), Mutation::Remove(id(CollId::Meta, "touched"))]),
    ];
    [before, after]
}

pub fn model() -> MemStore {
    let mut model = MemStore::new();
    for txn in transactions().into_iter().flatten() {
        model.queue(txn).unwrap();
    }
    while model.poll_event().is_some() {}
    model
}

/// With records after its checkpoint, as a killed process leaves it.
pub fn make() -> Image {
    let mut rig = Rig::format(DEVICE_LEN, options(), 2);
    let [before, after] = transactions();
    for txn in before {
        rig.queue(&txn).unwrap();
        rig.drive();
    }
    rig.engine.checkpoint();
    rig.drive();
    for txn in after {
        rig.queue(&txn).unwrap();
        rig.drive();
    }
    rig.disk.durable
}

const SAME: u16 = 1 << 15;

pub fn pack(image: &Image) -> Vec<u8> {
    let mut out = Vec::new();
    for offset in image.pages() {
        let page = image.block(offset);
        if page == [0; PAGE] {
            continue;
        }
        let mut packed = Vec::new();
        let runs: Vec<&[u8]> = page.chunk_by(|a, b| a == b).collect();
        // Short runs go together.
        for group in runs.chunk_by(|a, b| a.len() < 8 && b.len() < 8) {
            let len: usize = group.iter().map(|run| run.len()).sum();
            if len >= 8 && group.len() == 1 {
                packed.extend((len as u16 | SAME).to_le_bytes());
                packed.push(group[0][0]);
            } else {
                packed.extend((len as u16).to_le_bytes());
                group.iter().for_each(|run| packed.extend_from_slice(run));
            }
        }
        out.extend(((offset / PAGE as u64) as u32).to_le_bytes());
        out.extend((packed.len() as u16).to_le_bytes());
        out.extend(packed);
    }
    out
}

pub fn unpack(file: &[u8]) -> Image {
    let mut image = Image::default();
    let mut rest = file;
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        head
    };
    let mut taken = 0;
    while taken < file.len() {
        let head = take(6);
        let number = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let len = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let mut packed = take(len);
        taken += 6 + len;
        let mut page = Vec::with_capacity(PAGE);
        while let [low, high, tail @ ..] = packed {
            let word = u16::from_le_bytes([*low, *high]);
            let count = usize::from(word & !SAME);
            if word & SAME != 0 {
                page.resize(page.len() + count, tail[0]);
                packed = &tail[1..];
            } else {
                page.extend_from_slice(&tail[..count]);
                packed = &tail[count..];
            }
        }
        image.write(u64::from(number) * PAGE as u64, &page);
    }
    image
}
