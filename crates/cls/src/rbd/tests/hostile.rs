//! Arguments and stored state that nobody wrote in good faith: no panic, no
//! memory for what is not there.

use super::real_ceph::recorded_calls;
use crate::testing::{Content, MemObject};
use base::Random;
use bytes::Bytes;

fn object_with(data: Vec<u8>) -> MemObject {
    let mut object = MemObject::new();
    object.content = Some(Content { data: data.into(), ..Content::default() });
    object
}

/// An object map's header that promises `count` states.
fn map_header(count: u64) -> Vec<u8> {
    [&[14, 0, 0, 0, 1, 1, 8, 0, 0, 0][..], &count.to_le_bytes()].concat()
}

#[test]
fn object_maps_that_promise_more_than_they_hold_are_refused() {
    for count in [1 << 20, 1 << 40, 1 << 62, u64::MAX - 3, u64::MAX] {
        let map = map_header(count);
        assert_eq!(object_with(vec![]).code("rbd", "object_map_save", &map), -22);
        let update = [&(count - 2).to_le_bytes()[..], &(count - 1).to_le_bytes(), &[1, 0]].concat();
        for (method, input) in [
            ("object_map_load", &[][..]),
            ("object_map_update", &update),
            ("object_map_snap_add", &[]),
            ("object_map_resize", &[5, 0, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(object_with(map.clone()).code("rbd", method, input), -22, "{method} of {count}");
        }
    }
}

#[test]
fn extents_beyond_an_object_are_refused() {
    for offset in [1u64 << 27, 1 << 63, u64::MAX] {
        let copyup =
            [&1u32.to_le_bytes()[..], &offset.to_le_bytes(), &1u64.to_le_bytes(), &[1, 0, 0, 0, 0]].concat();
        assert_eq!(MemObject::new().code("rbd", "sparse_copyup", &copyup), -27);
    }
}

#[test]
fn sparsify_in_steps_of_nothing_is_refused() {
    assert_eq!(object_with(vec![1, 0]).code("rbd", "sparsify", &[0; 9]), -22);
}

#[test]
fn old_headers_that_promise_more_than_they_hold_are_damaged() {
    for (at, value) in [(96, 1u32), (96, u32::MAX), (104, 1), (104, u32::MAX), (108, u32::MAX)] {
        let mut header = vec![0; 112];
        header[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let name = [1, 0, 0, 0, b'a'];
        for (method, input) in [
            ("snap_list", vec![]),
            ("snap_add", [&name[..], &[9; 8]].concat()),
            ("snap_remove", name.to_vec()),
            ("snap_rename", [&[9; 8][..], &name].concat()),
        ] {
            assert_eq!(
                object_with(header.clone()).code("rbd", method, &input),
                -5,
                "{method}, {at}: {value}"
            );
        }
    }
}

/// The recording's calls with bytes changed, on objects whose state had bytes
/// changed: any answer will do, as long as there is one.
#[test]
fn damage_anywhere_gets_an_answer() {
    let mut random = Random::from_seed(5);
    let mut spoil = |bytes: &mut Vec<u8>| {
        for _ in 0..random.below(3) {
            if !bytes.is_empty() {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = if random.chance(1, 2) { random.next_u64() as u8 } else { 255 };
            }
        }
    };
    for _ in 0..20 {
        let mut object = MemObject::new();
        for (case_begins, method, input) in recorded_calls() {
            if case_begins {
                object = MemObject::new();
            }
            let mut input = input.clone();
            spoil(&mut input);
            object.call("rbd", method, &input);
            if let Some(content) = &mut object.content {
                let mut data = content.data.to_vec();
                spoil(&mut data);
                content.data = data.into();
                for value in content.omap.values_mut() {
                    let mut changed = value.to_vec();
                    spoil(&mut changed);
                    *value = Bytes::from(changed);
                }
            }
        }
    }
}

/// A method that stops for data at any point, and runs again, ends the same.
#[test]
fn methods_pass_up_that_data_must_be_fetched() {
    let mut object = MemObject::new();
    for (case_begins, method, input) in recorded_calls() {
        if case_begins {
            object = MemObject::new();
        }
        if let crate::Found::Method(found) = crate::find(b"rbd", method.as_bytes()) {
            let mut patient = object.clone();
            let answer = patient.attempt(found, &input);
            for use_ in 0.. {
                let mut waiting = object.clone();
                waiting.lacking = Some(use_);
                match waiting.attempt(found, &input) {
                    None if use_ < 50 => {}
                    None => break, // many small steps: enough of them were seen
                    stopped => {
                        assert_eq!(stopped, answer, "{method} swallowed a Later");
                        break;
                    }
                }
            }
        }
        object.call("rbd", method, &input);
    }
}
