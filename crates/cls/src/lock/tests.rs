use super::*;
use crate::testing::{Content, MemObject};
use std::collections::BTreeMap;
use wire::types::{EntityAddr, EntityName};

fn encoded(body: impl FnOnce(&mut Encoder)) -> Bytes {
    let mut e = Encoder::plain();
    e.versioned(1, 1, body);
    e.finish()
}

/// Arguments of a request for the lock `l`.
#[derive(Clone)]
struct Want {
    kind: u8,
    cookie: &'static str,
    tag: &'static str,
    duration: u32,
    flags: u8,
}

const WANT: Want = Want { kind: types::EXCLUSIVE, cookie: "c", tag: "", duration: 0, flags: 0 };

fn lock_by(object: &mut MemObject, client: i64, want: Want) -> i32 {
    object.origin.name = EntityName::client(client);
    let input = encoded(|e| {
        e.string("l");
        e.u8(want.kind);
        e.string(want.cookie);
        e.string(want.tag);
        e.string("what for");
        e.put(&WallTime { sec: want.duration, nsec: 0 });
        e.u8(want.flags);
    });
    object.code("lock", "lock", &input)
}

fn unlock_by(object: &mut MemObject, client: i64, cookie: &str) -> i32 {
    object.origin.name = EntityName::client(client);
    let input = encoded(|e| {
        e.string("l");
        e.string(cookie);
    });
    object.code("lock", "unlock", &input)
}

fn assertion(want: &Want) -> Bytes {
    encoded(|e| {
        e.string("l");
        e.u8(want.kind);
        e.string(want.cookie);
        e.string(want.tag);
    })
}

fn info(object: &mut MemObject) -> LockInfo {
    let out = object.ok("lock", "get_info", &encoded(|e| e.string("l")));
    LockInfo::from_bytes(out, Features::ALL).unwrap()
}

#[test]
fn an_exclusive_lock_has_one_locker() {
    let mut object = MemObject::new();
    assert_eq!(lock_by(&mut object, 1, WANT), 0);
    assert_eq!(lock_by(&mut object, 1, WANT), -17);
    assert_eq!(lock_by(&mut object, 1, Want { flags: types::MAY_RENEW, ..WANT }), 0);
    assert_eq!(lock_by(&mut object, 1, Want { cookie: "d", ..WANT }), -16);
    assert_eq!(lock_by(&mut object, 2, WANT), -16);
    assert_eq!(unlock_by(&mut object, 2, "c"), -2);
    assert_eq!(unlock_by(&mut object, 1, "d"), -2);
    assert_eq!(unlock_by(&mut object, 1, "c"), 0);
    assert_eq!(unlock_by(&mut object, 1, "c"), -2);
    assert_eq!(lock_by(&mut object, 2, WANT), 0);
}

#[test]
fn a_shared_lock_has_lockers_of_one_tag() {
    let mut object = MemObject::new();
    let shared = Want { kind: types::SHARED, tag: "t", ..WANT };
    assert_eq!(lock_by(&mut object, 1, shared.clone()), 0);
    assert_eq!(lock_by(&mut object, 2, shared.clone()), 0);
    assert_eq!(lock_by(&mut object, 3, Want { tag: "u", ..shared.clone() }), -16);
    assert_eq!(lock_by(&mut object, 3, Want { kind: types::EXCLUSIVE, ..shared.clone() }), -16);
    assert_eq!((info(&mut object).lockers.len(), info(&mut object).kind), (2, types::SHARED));
    assert_eq!(unlock_by(&mut object, 1, "c"), 0);
    // The only locker may change the type.
    let renewed = Want { kind: types::EXCLUSIVE, flags: types::MUST_RENEW, ..shared };
    assert_eq!(lock_by(&mut object, 2, renewed), 0);
    assert_eq!(info(&mut object).kind, types::EXCLUSIVE);
}

#[test]
fn the_locker_is_recorded_with_its_address_as_a_legacy_one() {
    let mut object = MemObject::new();
    lock_by(&mut object, 7, Want { duration: 60, ..WANT });
    let lock = info(&mut object);
    let (id, locker) = lock.lockers.first_key_value().unwrap();
    assert_eq!(*id, LockerId::new(EntityName::client(7), "c".into()));
    let addr = EntityAddr { kind: AddrType::Legacy, ..object.origin.addr };
    let expiration = WallTime { sec: object.now.sec + 60, nsec: 0 };
    assert_eq!(*locker, LockerInfo { expiration, addr, description: "what for".into() });
}

#[test]
fn time_takes_locks_away() {
    let mut object = MemObject::new();
    lock_by(&mut object, 1, Want { duration: 10, ..WANT });
    object.now.sec += 10;
    assert_eq!(lock_by(&mut object, 2, WANT), -16, "until the moment itself");
    object.now.nsec = 1;
    assert!(info(&mut object).lockers.is_empty());
    assert_eq!(object.code("lock", "assert_locked", &assertion(&WANT)), -16);
    assert_eq!(lock_by(&mut object, 1, Want { flags: types::MUST_RENEW, ..WANT }), -2);
    assert_eq!(lock_by(&mut object, 2, WANT), 0);
    // A lock for longer than time is kept does not end at once.
    let ever = Want { flags: types::MAY_RENEW, duration: u32::MAX, ..WANT };
    assert_eq!(lock_by(&mut object, 2, ever), 0);
    assert_eq!(info(&mut object).lockers.len(), 1);
}

#[test]
fn an_ephemeral_lock_takes_the_object_along() {
    let mut object = MemObject::new();
    let ephemeral = Want { kind: types::EXCLUSIVE_EPHEMERAL, duration: 10, ..WANT };
    assert_eq!(lock_by(&mut object, 1, ephemeral.clone()), 0);
    assert_eq!(lock_by(&mut object, 2, ephemeral.clone()), -16);
    assert_eq!(unlock_by(&mut object, 1, "c"), 0);
    assert!(object.content.is_none());
    lock_by(&mut object, 1, ephemeral.clone());
    object.content.as_mut().unwrap().data = "old".into();
    object.now.sec += 11;
    // What only reads cannot remove the object.
    assert_eq!(object.code("lock", "get_info", &encoded(|e| e.string("l"))), -5);
    assert_eq!(unlock_by(&mut object, 1, "c"), -2);
    assert_eq!(lock_by(&mut object, 2, ephemeral), 0);
    assert!(object.content.unwrap().data.is_empty());
}

#[test]
fn locks_are_broken_asserted_and_renamed() {
    let mut object = MemObject::holding(Content::default());
    assert_eq!(object.code("lock", "assert_locked", &assertion(&WANT)), -16);
    lock_by(&mut object, 1, WANT);
    assert_eq!(object.code("lock", "assert_locked", &assertion(&WANT)), 0);
    for (different, code) in [
        (Want { kind: types::SHARED, ..WANT }, -16),
        (Want { tag: "t", ..WANT }, -16),
        (Want { cookie: "d", ..WANT }, -16),
        (Want { kind: 4, ..WANT }, -22),
        (Want { kind: types::NONE, ..WANT }, -22),
    ] {
        assert_eq!(object.code("lock", "assert_locked", &assertion(&different)), code);
    }
    let renamed = |new: &str| {
        encoded(|e| {
            e.raw(&assertion(&WANT)[6..]);
            e.string(new);
        })
    };
    assert_eq!(object.code("lock", "set_cookie", &renamed("c")), -16);
    assert_eq!(object.code("lock", "set_cookie", &renamed("d")), 0);
    assert_eq!(object.code("lock", "set_cookie", &renamed("e")), -16);
    let broken = |client: i64| {
        encoded(|e| {
            e.string("l");
            e.put(&EntityName::client(client));
            e.string("d");
        })
    };
    object.origin.name = EntityName::client(2);
    assert_eq!(object.code("lock", "break_lock", &broken(2)), -2);
    assert_eq!(object.code("lock", "break_lock", &broken(1)), 0);
    let names = object.ok("lock", "list_locks", b"ignored");
    assert_eq!(names, encoded(|e| e.put(&vec![Bytes::from("l")])));
}

#[test]
fn what_is_no_lock_is_an_error() {
    let mut object = MemObject::new();
    assert_eq!(lock_by(&mut object, 1, Want { kind: 0, ..WANT }), -22);
    assert_eq!(lock_by(&mut object, 1, Want { kind: 4, ..WANT }), -22);
    assert_eq!(lock_by(&mut object, 1, Want { flags: 3, ..WANT }), -22);
    let nameless = encoded(|e| {
        e.string("");
        e.u8(1);
        e.raw(&[0; 21]);
    });
    assert_eq!(object.code("lock", "lock", &nameless), -22);
    let garbage = BTreeMap::from([(Bytes::from("lock.l"), Bytes::from("garbage"))]);
    object.content = Some(Content { xattrs: garbage, ..Content::default() });
    assert_eq!(lock_by(&mut object, 1, WANT), -5);
}

#[test]
fn names_are_any_bytes_up_to_a_nul() {
    assert_eq!(attr(b"a\xff\0b"), b"lock.a\xff");
    let mut object = MemObject::holding(Content::default());
    assert_eq!(object.code("lock", "get_info", &encoded(|e| e.put(&Bytes::from_static(b"\xff\xfe")))), 0);
}
