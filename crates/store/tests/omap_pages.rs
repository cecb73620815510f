//! Listing omap in parts reads no more of it than a part may hold.

mod common;

use bytes::Bytes;
use common::disk::SimDisk;
use common::{Rig, id, options, pattern, pg};
use store::{Mutation, ObjectStore, OmapLimit, Options};

const DEVICE_LEN: u64 = 64 << 20;
const VALUE_LEN: usize = 40 << 10;
const LONG: usize = 64;
const SHORT: usize = 20;

/// Short values before long ones, and not a page of them in memory.
fn stored() -> Rig {
    let options = Options { memory_limit: 4 << 20, ..options() };
    let mut rig = Rig::format(DEVICE_LEN, options.clone(), 1);
    let object = id(pg(0), "o");
    rig.run(vec![Mutation::CreateCollection(pg(0)), Mutation::Touch(object.clone())]).unwrap();
    for n in 0..SHORT + LONG {
        let value = if n < SHORT { Bytes::from_static(b"short") } else { pattern(n as u64, VALUE_LEN) };
        let entries = [(Bytes::from(format!("{n:03}")), value)].into();
        rig.run(vec![Mutation::SetOmap { id: object.clone(), entries }]).unwrap();
    }
    rig.engine.checkpoint();
    rig.drive();
    let disk = SimDisk::with_image(DEVICE_LEN, rig.disk.durable.clone());
    Rig::try_open_disk(disk, options, 1).unwrap()
}

#[test]
fn a_page_is_limited_in_bytes_and_reads_what_it_holds() {
    let mut rig = stored();
    let object = id(pg(0), "o");
    let limit = OmapLimit { entries: 256, bytes: 3 * VALUE_LEN };
    let (mut found, mut pages, mut after) = (0, 0, None::<Bytes>);
    loop {
        let reads = rig.engine.stats().metadata_reads;
        let page = rig.ask(|engine| engine.omap_list(&object, after.as_deref(), b"", limit)).unwrap();
        let reads = rig.engine.stats().metadata_reads - reads;
        assert!(reads <= 6, "page {pages}: {reads} pages of the index for {} entries", page.entries.len());
        assert!(page.bytes <= limit.bytes && !page.entries.is_empty());
        for (key, value) in &page.entries {
            assert_eq!(*key, Bytes::from(format!("{found:03}")));
            assert_eq!(value.len(), if found < SHORT { 5 } else { VALUE_LEN });
            found += 1;
        }
        pages += 1;
        after = page.last_key().cloned();
        if !page.more {
            break;
        }
    }
    assert_eq!(found, SHORT + LONG);
    assert!(pages >= LONG / 3, "{pages} pages");
    assert!(rig.engine.stats().metadata_reads > LONG as u64 / 2, "most of it was not in memory");
}

#[test]
fn a_value_that_is_longer_than_a_page_comes_alone() {
    let mut rig = stored();
    let object = id(pg(0), "o");
    let limit = OmapLimit { entries: 256, bytes: 1000 };
    let short = rig.ask(|engine| engine.omap_list(&object, None, b"", limit)).unwrap();
    assert_eq!((short.entries.len(), short.more), (SHORT, true));
    let long = rig.ask(|engine| engine.omap_list(&object, Some(b"019"), b"", limit)).unwrap();
    assert_eq!((long.entries.len(), long.bytes, long.more), (1, 3 + VALUE_LEN, true));
    let last = rig.ask(|engine| engine.omap_list(&object, Some(b"082"), b"", limit)).unwrap();
    assert_eq!((last.entries.len(), last.more), (1, false));
}
