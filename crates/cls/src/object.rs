//! The object as a method sees it.

use base::{Errno, WallTime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::DecodeError;
use wire::types::{EntityAddr, EntityName};

/// A method's answer.
pub type Output = Result<Bytes, Fault>;

/// Why a method did not end with 0 and its output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The operation's return code.
    Errno(Errno),
    /// Any other return code, with output. A negative one fails the operation, a
    /// positive one does not.
    Code(i32, Bytes),
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub name: EntityName,
    pub addr: EntityAddr,
}

/// As Ceph prints an `entity_inst_t`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.addr)
    }
}

/// What a method did to the object, against what its flags allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// Data, xattrs or omap were read; asking for existence and size does not count.
    pub read: bool,
    /// A change was tried, be it in vain.
    pub wrote: bool,
}

/// What a method may read and change: the one object it was called on, as
/// earlier operations of the same request left it.
///
/// A method that only reads is not called on an object that is not there. What one
/// that writes meets then is said at each function: ENOENT, nothing, or creation.
/// Values and sizes beyond the OSD's limits are refused as in operations.
pub trait Object {
    fn exists(&self) -> bool;
    /// Size in bytes and mtime; ENOENT.
    fn stat(&mut self) -> Result<(u64, WallTime), Fault>;
    /// At most `len` bytes at `offset`, clipped to the size; nothing without the
    /// object. `len` 0: as many as the object is long.
    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Fault>;
    /// Makes the object; with `exclusive`, EEXIST if it is there.
    fn create(&mut self, exclusive: bool) -> Result<(), Fault>;
    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Fault>;
    /// Replaces the whole content.
    fn write_full(&mut self, data: Bytes) -> Result<(), Fault>;
    /// Without the object, does nothing.
    fn truncate(&mut self, size: u64) -> Result<(), Fault>;
    /// Cuts the object where the range reaches its end. Without the object, does nothing.
    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Fault>;
    /// ENOENT if it is not there.
    fn remove(&mut self) -> Result<(), Fault>;

    /// A user xattr; ENODATA if it is not set, ENOENT without the object.
    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Fault>;
    /// All user xattrs; ENOENT without the object.
    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Fault>;
    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Fault>;
    /// ENOENT without the object.
    fn remove_xattr(&mut self, name: &[u8]) -> Result<(), Fault>;

    /// The value of a key; ENOENT if there is no such key or no object.
    fn omap_get(&mut self, key: &[u8]) -> Result<Bytes, Fault>;
    /// Entries with keys after `start_after` that begin with `prefix`, in order,
    /// at most `max` and at most [`OMAP_ENTRIES_MAX`]; and whether there are more.
    /// None without the object.
    fn omap_list(
        &mut self,
        start_after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Fault>;
    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Fault>;
    /// Keys that are not there do no harm; ENOENT without the object.
    fn omap_remove(&mut self, keys: BTreeSet<Bytes>) -> Result<(), Fault>;
    /// Keys from `from` up to, not including, `to`; ENOENT without the object.
    fn omap_remove_range(&mut self, from: Bytes, to: Bytes) -> Result<(), Fault>;
    /// Keys and header; ENOENT without the object.
    fn omap_clear(&mut self) -> Result<(), Fault>;
    /// Empty if none was set, or without the object.
    fn omap_header(&mut self) -> Result<Bytes, Fault>;
    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Fault>;

    fn origin(&self) -> Origin;
    fn now(&self) -> WallTime;
    /// The newest user version of the object's PG before this request.
    fn version(&self) -> u64;
    /// The sequence number of the object's snapshot set: of the newest snapshot
    /// context it was written under. ENOENT without the object.
    fn snap_seq(&mut self) -> Result<u64, Fault>;
    /// Who watches the object.
    fn watchers(&mut self) -> Result<Vec<Origin>, Fault>;
    /// Grows with each operation of the request and each use of the object: together
    /// with the version it names a moment.
    fn operation_index(&self) -> u32;
    /// Random bits to make names unique with; no secret.
    fn random(&mut self) -> u64;
    /// What the method did so far.
    fn uses(&self) -> Uses;
}

/// `osd_max_omap_entries_per_request`: more than these no one call of
/// [`Object::omap_list`] gives.
pub const OMAP_ENTRIES_MAX: usize = 1024;
