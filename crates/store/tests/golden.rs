//! Stores written by each format version, kept as files: the present program
//! opens them with everything in them, or refuses them by name.

mod common;

use common::disk::SimDisk;
use common::{DEVICE_LEN, Rig, compare_all, golden, options};

#[test]
fn stores_of_every_version_open_or_are_refused_by_name() {
    let present = golden::version_of(&golden::make());
    let mut opened = Vec::new();
    for version in 1..=present {
        let file = golden::file_of(version);
        let Ok(packed) = std::fs::read(&file) else {
            panic!("no image of version {version}: run cargo run -p store --example golden_image");
        };
        let image = golden::unpack(&packed);
        assert_eq!(golden::version_of(&image), version);
        match Rig::try_open_disk(SimDisk::with_image(DEVICE_LEN, image), options(), 1) {
            Ok(mut rig) => {
                compare_all(&mut rig, &mut golden::model());
                // And it goes on, in the present format.
                rig.engine.checkpoint();
                rig.drive();
                let mut rig = Rig::try_open(rig.disk.durable, options(), 2).unwrap();
                compare_all(&mut rig, &mut golden::model());
                opened.push(version);
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(&format!("version {version}")), "not clear: {message}");
                assert_ne!(version, present, "{message}");
            }
        }
    }
    println!("of versions 1 to {present}, opened: {opened:?}");
}

#[test]
fn packing_is_reversible() {
    let image = golden::make();
    let again = golden::unpack(&golden::pack(&image));
    for page in image.pages() {
        assert!(image.block(page) == again.block(page));
    }
}
