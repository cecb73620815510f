//! Reports of mirror daemons that watch, which the recording has none of.

use crate::Origin;
use crate::rbd::types::mirror::{MirrorImage, SiteStatus};
use crate::testing::MemObject;
use bytes::Bytes;
use wire::types::{AddrType, EntityName};
use wire::{Encode, Features};

fn encoded(parts: &[&dyn Encode]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.to_bytes(Features::ALL)).collect()
}

/// Two images, and a report of the caller about each: replaying, syncing.
fn reported() -> MemObject {
    let mut object = MemObject::new();
    for (id, global_id, state) in [("1", "g1", 4u8), ("2", "g2", 2)] {
        let global_id = Bytes::from(global_id);
        let image = MirrorImage { global_id: global_id.clone(), state: 1, mode: 0 };
        object.ok("rbd", "mirror_image_set", &encoded(&[&id.to_owned(), &image]));
        let status = SiteStatus { state, ..SiteStatus::default() };
        object.ok("rbd", "mirror_image_status_set", &encoded(&[&global_id, &status]));
    }
    object
}

/// The caller watches, under another type of address.
fn watching(mut object: MemObject) -> MemObject {
    let addr = object.origin.addr.with_kind(AddrType::Legacy);
    object.watchers = vec![Origin { name: object.origin.name, addr }];
    object
}

fn up(object: &mut MemObject) -> u8 {
    let status = object.ok("rbd", "mirror_image_status_get", &encoded(&[&Bytes::from("g1")]));
    // Version, compat, length, state, empty description, time: then whether it is up.
    status[6 + 1 + 4 + 8]
}

#[test]
fn reports_are_up_while_their_daemon_watches() {
    assert_eq!(up(&mut reported()), 0);
    assert_eq!(up(&mut watching(reported())), 1);
    let mut other = watching(reported());
    other.watchers[0].name = EntityName::client(1);
    assert_eq!(up(&mut other), 0);
}

#[test]
fn the_summary_counts_what_is_up_by_state() {
    let summary = |mut object: MemObject| object.ok("rbd", "mirror_image_status_get_summary", &[]);
    assert_eq!(summary(reported())[..], [1, 0, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(summary(watching(reported()))[..], [2, 0, 0, 0, 2, 1, 0, 0, 0, 4, 1, 0, 0, 0]);
}

#[test]
fn instances_are_named_while_they_watch() {
    let input = encoded(&[&Bytes::from("g1")]);
    assert_eq!(reported().code("rbd", "mirror_image_instance_get", &input), -116);
    let mut object = watching(reported());
    let instance = object.ok("rbd", "mirror_image_instance_get", &input);
    let any = object.origin.addr.with_kind(AddrType::Any);
    assert_eq!(instance, encoded(&[&object.origin.name, &any]));
    let listed = |object: &mut MemObject, max: u64| {
        object.ok("rbd", "mirror_image_instance_list", &encoded(&[&Bytes::new(), &max]))[0]
    };
    assert_eq!([0, 1, 9].map(|max| listed(&mut object, max)), [0, 1, 2]);
}

#[test]
fn reports_of_daemons_that_are_gone_can_be_removed() {
    let reports = |mut object: MemObject| {
        object.ok("rbd", "mirror_image_status_remove_down", &[]);
        let keys = object.content.unwrap().omap.into_keys();
        keys.filter(|key| key.starts_with(b"status_global_")).count()
    };
    assert_eq!(reports(reported()), 0);
    assert_eq!(reports(watching(reported())), 2);
}
