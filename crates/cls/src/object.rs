//! The object as a method sees it.

use base::{Errno, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::DecodeError;
use wire::types::{EntityAddr, EntityName};

/// A method's answer.
pub type Output = Result<Bytes, Fault>;

/// Why a method did not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The operation's return code.
    Errno(Errno),
    /// Something must be fetched first; the request runs again from its start.
    /// Pass it up, never catch it.
    Later,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Fault {
        Fault::Errno(errno)
    }
}

/// Arguments that do not decode: every class of Ceph's answers EINVAL.
impl From<DecodeError> for Fault {
    fn from(_: DecodeError) -> Fault {
        Fault::Errno(Errno::EINVAL)
    }
}

/// Who sent the request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    pub name: EntityName,
    pub addr: EntityAddr,
}

/// What a method may read and change: the one object it was called on, as
/// earlier operations of the same request left it.
///
/// Reading methods answer ENOENT for an object that is not there, as Ceph's do;
/// changing ones create it.
pub trait Object {
    fn exists(&self) -> bool;
    /// Size in bytes and mtime; ENOENT.
    fn stat(&mut self) -> Result<(u64, WallTime), Fault>;
    /// At most `len` bytes at `offset`, clipped to the size. `len` 0: to the end.
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Fault>;
    /// Makes the object; with `exclusive`, EEXIST if it is there.
    fn create(&mut self, exclusive: bool) -> Result<(), Fault>;
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Fault>;
    /// Replaces the whole content.
    fn write_full(&mut self, data: Bytes) -> Result<(), Fault>;
    fn truncate(&mut self, size: u64) -> Result<(), Fault>;
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Fault>;
    /// ENOENT if it is not there.
    fn remove(&mut self) -> Result<(), Fault>;

    /// A user xattr; ENODATA if it is not set, ENOENT without the object.
    fn xattr(&mut self, name: &str) -> Result<Bytes, Fault>;
    /// All user xattrs.
    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Fault>;
    fn set_xattr(&mut self, name: &str, value: Bytes) -> Result<(), Fault>;
    fn remove_xattr(&mut self, name: &str) -> Result<(), Fault>;

    /// The value of a key; ENOENT if there is no such key or no object.
    fn omap_get(&mut self, key: &[u8]) -> Result<Bytes, Fault>;
    /// Entries with keys after `start_after` that begin with `prefix`, in order,
    /// at most `max`; and whether there are more. ENOENT without the object.
    fn omap_list(
        &mut self,
        start_after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Fault>;
    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Fault>;
    /// Keys that are not there do no harm.
    fn omap_remove(&mut self, keys: BTreeSet<Bytes>) -> Result<(), Fault>;
    /// Keys from `from` up to, not including, `to`.
    fn omap_remove_range(&mut self, from: Bytes, to: Bytes) -> Result<(), Fault>;
    fn omap_clear(&mut self) -> Result<(), Fault>;
    /// Empty if none was set; ENOENT without the object.
    fn omap_header(&mut self) -> Result<Bytes, Fault>;
    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Fault>;

    fn origin(&self) -> Origin;
    fn now(&self) -> WallTime;
    /// The object's user version before this request.
    fn version(&self) -> u64;
    /// The sequence number of the object's snapshot set: of the newest snapshot
    /// context it was written under. ENOENT without the object.
    fn snap_seq(&mut self) -> Result<u64, Fault>;
    /// Which operation of the request this is, from 0.
    fn operation_index(&self) -> u32;
    /// Bytes nobody can guess (Ceph's `cls_gen_random_bytes`).
    fn random(&mut self) -> u64;
}
