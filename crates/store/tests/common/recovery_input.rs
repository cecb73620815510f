//! Recovery of hostile devices: a used store, changed as an input says, with
//! checksums made right again so that what lies behind them is reached.
//!
//! Input: steps of 8 bytes: page (2), offset (2), how (1), value (1), length (1),
//! whether to put the checksums right (1). The fuzzer and a bounded test share it.

use super::disk::{Image, SimDisk};
use super::*;
use base::crc32c;
use std::sync::OnceLock;

const STEP: usize = 8;
const PAGE: usize = 4096;

/// With a checkpoint, a log after it, clones, and data in every kind of place.
fn base_image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let mut rig = Rig::format(DEVICE_LEN, options(), 1);
        let mut generator = Generator::new(1, MIX);
        let create = [CollId::Meta, pg(0), pg(1)].map(Mutation::CreateCollection);
        rig.run(create.to_vec()).unwrap();
        for n in 0..60 {
            let _ = rig.queue(&generator.transaction());
            rig.drive();
            if n == 40 {
                rig.engine.checkpoint();
                rig.drive();
            }
        }
        rig.disk.durable
    })
}

/// Pages with the store's own structures come first, so that inputs hit them often.
fn interesting_pages(image: &Image) -> Vec<u64> {
    let mut own = Vec::new();
    let mut others = Vec::new();
    for page in image.pages() {
        let mut content = [0; PAGE];
        image.read(page, &mut content);
        if content.starts_with(b"LOLI") { own.push(page) } else { others.push(page) }
    }
    own.extend(others.into_iter().take(40));
    own
}

fn read(image: &Image, page: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len.next_multiple_of(PAGE)];
    image.read(page, &mut out);
    out
}

/// Makes the checksums of the structure that begins at `page` right.
fn reseal(image: &mut Image, page: u64) {
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    let mut head = read(image, page, PAGE);
    match &head[..8] {
        b"LOLISTOR" => {
            let crc = crc32c(&head[..PAGE - 4]);
            head[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        b"LOLILOG1" => {
            let (ops, slots) = (word(&head, 48), word(&head, 52));
            let meta = ops.saturating_add(slots.saturating_mul(9)).min(1 << 20);
            let all = read(image, page, 72 + meta);
            head[64..68].copy_from_slice(&crc32c(&all[72..72 + meta]).to_le_bytes());
            let crc = crc32c(&head[..68]);
            head[68..72].copy_from_slice(&crc.to_le_bytes());
        }
        b"LOLICKPT" => {
            let len = word(&head, 28).min(1 << 20);
            let all = read(image, page, 64 + len);
            head[56..60].copy_from_slice(&crc32c(&all[64..64 + len]).to_le_bytes());
            let crc = crc32c(&head[..60]);
            head[60..64].copy_from_slice(&crc.to_le_bytes());
        }
        _ => return,
    }
    image.write(page, &head);
}

/// Whatever the input: opens or refuses, serves or fails reads, goes on or
/// stops; and what it wrote then opens again unless it had stopped.
pub fn run(input: &[u8]) {
    let mut image = base_image().clone();
    let pages = interesting_pages(&image);
    for step in input.chunks_exact(STEP).take(64) {
        let page = usize::from(u16::from_le_bytes([step[0], step[1]])) % pages.len();
        let page = pages[page];
        let mut content = read(&image, page, PAGE);
        // Most fields lie at the beginning.
        let limit = if step[4] & 8 != 0 { PAGE } else { 160 };
        let at = usize::from(u16::from_le_bytes([step[2], step[3]])) % limit;
        let end = (at + 1 + usize::from(step[6] % 8)).min(PAGE);
        for byte in &mut content[at..end] {
            match step[4] % 4 {
                0 => *byte = step[5],
                1 => *byte ^= step[5],
                2 => *byte = byte.wrapping_add(step[5]),
                _ => *byte = 0xff,
            }
        }
        image.write(page, &content);
        if step[7] % 4 != 0 {
            reseal(&mut image, page);
        }
    }
    let disk = SimDisk::with_image(DEVICE_LEN, image);
    let Ok(mut rig) = Rig::try_open_disk(disk, options(), 1) else { return };
    let mut objects = Vec::new();
    for coll in rig.engine.collections() {
        let names = rig.ask(|engine| engine.list(coll, &HObject::default(), 100)).unwrap_or_default();
        objects.extend(names.into_iter().map(|object| ObjectId { coll, object }));
    }
    for id in &objects {
        let _ = rig.ask(|engine| engine.xattrs(id));
        let _ = rig.ask(|engine| engine.omap_list(id, None, b"", OmapLimit::NONE));
        let _ = rig.read(id, 0, 1 << 20);
    }
    let mut generator = Generator::new(2, MIX);
    for _ in 0..20 {
        let _ = rig.queue(&generator.transaction());
        rig.drive();
    }
    for id in objects {
        let _ = rig.run(vec![Mutation::Truncate { id: id.clone(), size: 5000 }]);
        let _ = rig.run(vec![Mutation::Remove(id)]);
    }
    rig.engine.checkpoint();
    rig.drive();
    if rig.engine.fatal_error().is_none()
        && let Err(error) = Rig::try_open_disk(rig.disk, options(), 1)
    {
        panic!("what it wrote does not open again: {error}");
    }
}
