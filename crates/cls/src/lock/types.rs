//! What `lock` stores and what it takes.
//!
//! Names, cookies and tags are any bytes.
//!
//! Source: Ceph `src/cls/lock/cls_lock_types.h`, `cls_lock_ops.h`.

use base::WallTime;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{Decode, Decoder, Encode, Encoder, Result};
use wire::types::{EntityAddr, EntityName};

/// A type of lock that was never taken.
pub(super) const NONE: u8 = 0;
pub(super) const EXCLUSIVE: u8 = 1;
pub(super) const SHARED: u8 = 2;
/// Exclusive; the object goes with the lock.
pub(super) const EXCLUSIVE_EPHEMERAL: u8 = 3;

/// Taking a lock that one holds renews it.
pub(super) const MAY_RENEW: u8 = 1;
/// Only renewing is wanted.
pub(super) const MUST_RENEW: u8 = 2;

/// Ceph's `DECODE_START_LEGACY_COMPAT_LEN(1, 1, 1)`: what a writer of version 0 wrote
/// has no envelope.
fn versioned<T>(
    d: &mut Decoder,
    what: &'static str,
    body: impl FnOnce(&mut Decoder) -> Result<T>,
) -> Result<T> {
    if d.rest().first() == Some(&0) {
        d.u8()?;
        return body(d);
    }
    d.versioned(what, 1, |d, _| body(d))
}

/// `locker_id_t`: ordered by entity, then cookie.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct LockerId {
    /// As on the wire: clients name entities of types that there are not.
    kind: u8,
    num: i64,
    cookie: Bytes,
}

impl LockerId {
    pub(super) fn new(name: EntityName, cookie: Bytes) -> LockerId {
        LockerId { kind: name.kind.as_u8(), num: name.num, cookie }
    }
}

impl Encode for LockerId {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u8(self.kind);
            e.i64(self.num);
            e.put(&self.cookie);
        });
    }
}

impl Decode for LockerId {
    const MIN_LEN: usize = 14;
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "locker_id_t", |d| Ok(LockerId { kind: d.u8()?, num: d.i64()?, cookie: d.get()? }))
    }
}

/// `locker_info_t`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LockerInfo {
    /// ZERO: never.
    pub(super) expiration: WallTime,
    pub(super) addr: EntityAddr,
    pub(super) description: Bytes,
}

impl LockerInfo {
    pub(super) fn is_expired(&self, now: WallTime) -> bool {
        self.expiration != WallTime::ZERO && self.expiration < now
    }
}

impl Encode for LockerInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.expiration);
            e.put(&self.addr);
            e.put(&self.description);
        });
    }
}

impl Decode for LockerInfo {
    const MIN_LEN: usize = 13;
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "locker_info_t", |d| {
            Ok(LockerInfo { expiration: d.get()?, addr: d.get()?, description: d.get()? })
        })
    }
}

/// `lock_info_t`, and in the same form `cls_lock_get_info_reply`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct LockInfo {
    pub(super) lockers: BTreeMap<LockerId, LockerInfo>,
    pub(super) kind: u8,
    pub(super) tag: Bytes,
}

impl Encode for LockInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.put(&self.lockers);
            e.u8(self.kind);
            e.put(&self.tag);
        });
    }
}

impl Decode for LockInfo {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "lock_info_t", |d| Ok(LockInfo { lockers: d.get()?, kind: d.u8()?, tag: d.get()? }))
    }
}

/// `cls_lock_lock_op`.
pub(super) struct Lock {
    pub(super) name: Bytes,
    pub(super) kind: u8,
    pub(super) cookie: Bytes,
    pub(super) tag: Bytes,
    pub(super) description: Bytes,
    /// ZERO: for ever.
    pub(super) duration: WallTime,
    pub(super) flags: u8,
}

impl Decode for Lock {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_lock_op", |d| {
            Ok(Lock {
                name: d.get()?,
                kind: d.u8()?,
                cookie: d.get()?,
                tag: d.get()?,
                description: d.get()?,
                duration: d.get()?,
                flags: d.u8()?,
            })
        })
    }
}

/// `cls_lock_unlock_op`.
pub(super) struct Unlock {
    pub(super) name: Bytes,
    pub(super) cookie: Bytes,
}

impl Decode for Unlock {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_unlock_op", |d| Ok(Unlock { name: d.get()?, cookie: d.get()? }))
    }
}

/// `cls_lock_break_op`.
pub(super) struct Break {
    pub(super) name: Bytes,
    pub(super) locker: LockerId,
}

impl Decode for Break {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_break_op", |d| {
            let name = d.get()?;
            Ok(Break { name, locker: LockerId { kind: d.u8()?, num: d.i64()?, cookie: d.get()? } })
        })
    }
}

/// `cls_lock_get_info_op`.
pub(super) struct GetInfo {
    pub(super) name: Bytes,
}

impl Decode for GetInfo {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_get_info_op", |d| Ok(GetInfo { name: d.get()? }))
    }
}

/// `cls_lock_assert_op`: what a lock must be, and who must hold it.
pub(super) struct Assertion {
    pub(super) name: Bytes,
    pub(super) kind: u8,
    pub(super) cookie: Bytes,
    pub(super) tag: Bytes,
}

impl Assertion {
    fn read(d: &mut Decoder) -> Result<Assertion> {
        Ok(Assertion { name: d.get()?, kind: d.u8()?, cookie: d.get()?, tag: d.get()? })
    }
}

impl Decode for Assertion {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_assert_op", Assertion::read)
    }
}

/// `cls_lock_set_cookie_op`.
pub(super) struct SetCookie {
    pub(super) held: Assertion,
    pub(super) new_cookie: Bytes,
}

impl Decode for SetCookie {
    fn decode(d: &mut Decoder) -> Result<Self> {
        versioned(d, "cls_lock_set_cookie_op", |d| {
            Ok(SetCookie { held: Assertion::read(d)?, new_cookie: d.get()? })
        })
    }
}
