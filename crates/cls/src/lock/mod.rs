//! `lock`: advisory locks on an object, each an xattr `lock.<name>`.
//!
//! A locker is an entity with a cookie. All lockers of a lock share its type and tag.
//! Locks that have expired are not there any more, although nobody removes them.
//!
//! Source: Ceph `src/cls/lock/cls_lock.cc`.

#[cfg(test)]
mod tests;
mod types;

use crate::{Access, Fault, Method, Object, Output};
use base::{Errno, WallTime};
use bytes::Bytes;
use types::{Assertion, Break, GetInfo, Lock, LockInfo, LockerId, LockerInfo, SetCookie, Unlock};
use wire::codec::{Decode, Encode, Encoder};
use wire::features::Features;
use wire::types::AddrType;

pub(crate) const METHODS: &[Method] = &[
    Method { name: "lock", access: Access::ReadWrite, run: lock },
    Method { name: "unlock", access: Access::ReadWrite, run: unlock },
    Method { name: "break_lock", access: Access::ReadWrite, run: break_lock },
    Method { name: "get_info", access: Access::Read, run: get_info },
    Method { name: "list_locks", access: Access::Read, run: list_locks },
    Method { name: "assert_locked", access: Access::Read, run: assert_locked },
    Method { name: "set_cookie", access: Access::ReadWrite, run: set_cookie },
];

const PREFIX: &[u8] = b"lock.";

fn arguments<T: Decode>(input: Bytes) -> Result<T, Fault> {
    Ok(T::from_bytes(input, Features::ALL)?)
}

/// Ceph ends xattrs' names at a NUL.
fn attr(name: &[u8]) -> Vec<u8> {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    [PREFIX, name].concat()
}

/// Without lockers whose time is over. Where such a one held an ephemeral lock, the
/// object is removed: a method that only reads fails by that.
fn load(object: &mut dyn Object, name: &[u8]) -> Result<LockInfo, Fault> {
    let stored = match object.xattr(&attr(name)) {
        Ok(stored) => stored,
        Err(Fault::Errno(Errno::ENODATA)) => {
            return Ok(LockInfo { kind: types::NONE, ..LockInfo::default() });
        }
        Err(fault) => return Err(fault),
    };
    let mut lock = LockInfo::from_bytes(stored, Features::ALL).map_err(|_| Errno::EIO)?;
    let now = object.now();
    lock.lockers.retain(|_, info| !info.is_expired(now));
    if lock.lockers.is_empty() && lock.kind == types::EXCLUSIVE_EPHEMERAL {
        object.remove()?;
    }
    Ok(lock)
}

fn store(object: &mut dyn Object, name: &[u8], lock: &LockInfo) -> Output {
    object.set_xattr(&attr(name), lock.to_bytes(Features::ALL))?;
    Ok(Bytes::new())
}

fn check(name: &[u8], kind: u8) -> Result<(), Fault> {
    let known = matches!(kind, types::EXCLUSIVE | types::SHARED | types::EXCLUSIVE_EPHEMERAL);
    if known && !name.is_empty() { Ok(()) } else { Err(Errno::EINVAL.into()) }
}

/// EBUSY: others hold it, or it is of another type or tag. EEXIST: the caller holds it.
/// ENOENT: it should be renewed and is not held.
fn lock(object: &mut dyn Object, input: Bytes) -> Output {
    let wanted: Lock = arguments(input)?;
    check(&wanted.name, wanted.kind)?;
    let may_renew = wanted.flags & types::MAY_RENEW != 0;
    let must_renew = wanted.flags & types::MUST_RENEW != 0;
    if may_renew && must_renew {
        return Err(Errno::EINVAL.into());
    }
    let mut lock = match load(object, &wanted.name) {
        Err(Fault::Errno(Errno::ENOENT)) => LockInfo::default(),
        loaded => loaded?,
    };
    if !lock.lockers.is_empty() && lock.tag != wanted.tag {
        return Err(Errno::EBUSY.into());
    }
    let origin = object.origin();
    let id = LockerId::new(origin.name, wanted.cookie);
    match lock.lockers.remove(&id) {
        Some(_) if !may_renew && !must_renew => return Err(Errno::EEXIST.into()),
        None if must_renew => return Err(Errno::ENOENT.into()),
        _ => {}
    }
    if !lock.lockers.is_empty() && (wanted.kind != types::SHARED || lock.kind != wanted.kind) {
        return Err(Errno::EBUSY.into());
    }
    let expiration = match wanted.duration {
        WallTime::ZERO => WallTime::ZERO,
        duration => object.now() + duration.as_duration(),
    };
    // A client speaks either protocol, and the protocol is no part of who it is.
    let addr = origin.addr.with_kind(AddrType::Legacy);
    lock.lockers.insert(id, LockerInfo { expiration, addr, description: wanted.description });
    lock.kind = wanted.kind;
    lock.tag = wanted.tag;
    store(object, &wanted.name, &lock)
}

/// ENOENT: not held so.
fn unlock(object: &mut dyn Object, input: Bytes) -> Output {
    let Unlock { name, cookie } = arguments(input)?;
    let id = LockerId::new(object.origin().name, cookie);
    remove(object, &name, &id)
}

fn break_lock(object: &mut dyn Object, input: Bytes) -> Output {
    let Break { name, locker } = arguments(input)?;
    remove(object, &name, &locker)
}

fn remove(object: &mut dyn Object, name: &[u8], id: &LockerId) -> Output {
    let mut lock = load(object, name)?;
    lock.lockers.remove(id).ok_or(Errno::ENOENT)?;
    if lock.kind == types::EXCLUSIVE_EPHEMERAL {
        object.remove()?;
        return Ok(Bytes::new());
    }
    store(object, name, &lock)
}

fn get_info(object: &mut dyn Object, input: Bytes) -> Output {
    let GetInfo { name } = arguments(input)?;
    Ok(load(object, &name)?.to_bytes(Features::ALL))
}

/// Names, in order, of locks that were ever taken.
fn list_locks(object: &mut dyn Object, _: Bytes) -> Output {
    let attrs = object.xattrs()?;
    let names: Vec<Bytes> =
        attrs.keys().filter(|name| name.starts_with(PREFIX)).map(|name| name.slice(PREFIX.len()..)).collect();
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| e.put(&names));
    Ok(e.finish())
}

/// The lock, of which the caller is a locker; EBUSY if it is not just so.
fn held(object: &mut dyn Object, wanted: &Assertion) -> Result<(LockInfo, LockerId), Fault> {
    check(&wanted.name, wanted.kind)?;
    let lock = load(object, &wanted.name)?;
    let id = LockerId::new(object.origin().name, wanted.cookie.clone());
    if lock.kind != wanted.kind || lock.tag != wanted.tag || !lock.lockers.contains_key(&id) {
        return Err(Errno::EBUSY.into());
    }
    Ok((lock, id))
}

fn assert_locked(object: &mut dyn Object, input: Bytes) -> Output {
    held(object, &arguments(input)?)?;
    Ok(Bytes::new())
}

/// EBUSY also if the caller has the lock under the new cookie.
fn set_cookie(object: &mut dyn Object, input: Bytes) -> Output {
    let SetCookie { held: wanted, new_cookie } = arguments(input)?;
    let (mut lock, id) = held(object, &wanted)?;
    let new_id = LockerId::new(object.origin().name, new_cookie);
    if lock.lockers.contains_key(&new_id) {
        return Err(Errno::EBUSY.into());
    }
    let info = lock.lockers.remove(&id).ok_or(Errno::EBUSY)?;
    lock.lockers.insert(new_id, info);
    store(object, &wanted.name, &lock)
}
