//! The contract between the OSD and its store.

use crate::omap_page::{OmapLimit, OmapPage};
use crate::pairs::Pairs;
use base::{Errno, MemoryUse};
use bytes::Bytes;
use ecow::EcoString;
use std::collections::{BTreeMap, BTreeSet};
use wire::types::{HObject, PgId};

/// A collection of objects: one per PG, and one for the OSD's own records
/// (OSDMaps, superblock, PG info and logs).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CollId {
    Meta,
    Pg(PgId),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId {
    pub coll: CollId,
    pub object: HObject,
}

/// One change. Objects spring into being at the first change that gives them
/// content (`Touch`, `Write`, `SetXattrs`, `SetOmap`, `SetOmapHeader` even when
/// empty, `Truncate` to more than zero); changes that only take away are no-ops
/// on a missing object.
///
/// Errors: every mutation needs its collections to exist; `Clone` and `Rename`
/// need `from` to exist. Limits: see [`crate::limits`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// No-op when it exists.
    CreateCollection(CollId),
    /// The collection must exist and be empty.
    RemoveCollection(CollId),
    Touch(ObjectId),
    /// Extends the object when it ends past the current size; a gap reads as zeros.
    Write {
        id: ObjectId,
        offset: u64,
        data: Bytes,
    },
    /// Reads as zeros afterwards; never changes the size.
    Zero {
        id: ObjectId,
        offset: u64,
        len: u64,
    },
    /// Cuts, or extends with zeros.
    Truncate {
        id: ObjectId,
        size: u64,
    },
    /// Data, xattrs and omap.
    Remove(ObjectId),
    SetXattrs {
        id: ObjectId,
        attrs: Pairs<EcoString, Bytes>,
    },
    RmXattr {
        id: ObjectId,
        name: String,
    },
    ClearXattrs(ObjectId),
    SetOmapHeader {
        id: ObjectId,
        header: Bytes,
    },
    SetOmap {
        id: ObjectId,
        entries: Pairs<Bytes, Bytes>,
    },
    RmOmap {
        id: ObjectId,
        keys: BTreeSet<Bytes>,
    },
    /// Keys in `start..end`.
    RmOmapRange {
        id: ObjectId,
        start: Bytes,
        end: Bytes,
    },
    /// Header and all keys.
    ClearOmap(ObjectId),
    /// Data, xattrs and omap of `from`, replacing `to`. Shares extents where it can.
    Clone {
        from: ObjectId,
        to: ObjectId,
    },
    /// Moves `from` to `to`, replacing it. Both may be in different collections.
    Rename {
        from: ObjectId,
        to: ObjectId,
    },
}

impl Mutation {
    /// The objects it names.
    pub fn objects(&self) -> [Option<&ObjectId>; 2] {
        match self {
            Mutation::CreateCollection(_) | Mutation::RemoveCollection(_) => [None, None],
            Mutation::Touch(id)
            | Mutation::Write { id, .. }
            | Mutation::Zero { id, .. }
            | Mutation::Truncate { id, .. }
            | Mutation::Remove(id)
            | Mutation::SetXattrs { id, .. }
            | Mutation::RmXattr { id, .. }
            | Mutation::ClearXattrs(id)
            | Mutation::SetOmapHeader { id, .. }
            | Mutation::SetOmap { id, .. }
            | Mutation::RmOmap { id, .. }
            | Mutation::RmOmapRange { id, .. }
            | Mutation::ClearOmap(id) => [Some(id), None],
            Mutation::Clone { from, to } | Mutation::Rename { from, to } => [Some(from), Some(to)],
        }
    }
}

/// Changes that happen together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    pub ops: Vec<Mutation>,
}

impl Transaction {
    pub fn new() -> Transaction {
        Transaction::default()
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn push(&mut self, op: Mutation) {
        self.ops.push(op);
    }
}

/// Transactions in the order they were queued; they commit in that order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxnId(pub u64);

/// A read under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectStat {
    pub size: u64,
    /// Bytes of the device the data takes; holes take none.
    pub allocated: u64,
    pub omap_keys: u64,
    /// Bytes of omap's header, keys and values.
    pub omap_len: u64,
}

/// Units: bytes, but for the counts. Cumulative counters start at open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreStats {
    pub total: u64,
    pub available: u64,
    /// Device space that object data takes.
    pub data: u64,
    /// Bytes of omap keys and values.
    pub omap: u64,
    /// Log, checkpoints, tables.
    pub internal: u64,
    pub objects: u64,
    pub device_writes: u64,
    pub device_write_bytes: u64,
    pub writes_by_part: WritesByPart,
    pub device_reads: u64,
    pub device_read_bytes: u64,
    pub flushes: u64,
    /// Writes that were made durable by themselves.
    pub durable_writes: u64,
    pub transactions: u64,
    /// Of these, so many waited until a checkpoint had written enough of what changed before.
    pub transactions_paced: u64,
    pub checksum_errors: u64,
    /// Stretches of objects that were put together again, and their blocks.
    pub mended_units: u64,
    pub mended_blocks: u64,
    /// Blocks that made room for them elsewhere.
    pub moved_blocks: u64,
    /// Pages of the index read because they were not in memory.
    pub metadata_reads: u64,
    /// Bytes of the index in memory.
    pub metadata_memory: u64,
    /// Blocks of object data that were read from memory, and bytes kept for that.
    pub cache_hits: u64,
    pub cache_memory: u64,
}

/// Requests to the device that write, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Writes {
    pub requests: u64,
    pub bytes: u64,
}

/// What was written to the device since open; superblocks are no part of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WritesByPart {
    /// Log records, with the data that is in them.
    pub log: Writes,
    /// Data to fresh places.
    pub data: Writes,
    /// Logged data to its places.
    pub in_place: Writes,
    /// Pages of the index and their directory.
    pub checkpoints: Writes,
    /// Zeros ahead of what is to come.
    pub laid: Writes,
}

/// What the store holds in memory, by part. Nothing where it does not keep count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreMemory {
    /// Blocks of object data, for reads.
    pub cache: MemoryUse,
    /// Pages of the index: of objects themselves,
    pub objects: MemoryUse,
    /// and of what belongs to them.
    pub maps: MemoryUse,
    /// Of writes on their way, and kept for the next ones.
    pub buffers: MemoryUse,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("no collection {0:?}")]
    NoCollection(CollId),
    #[error("no such object")]
    NoObject,
    #[error("collection {0:?} still holds objects")]
    NotEmpty(CollId),
    /// Beyond one of [`crate::limits`]; nothing of the transaction was applied.
    #[error("{what} of {len} is above the limit of {limit}")]
    TooLarge { what: &'static str, len: u64, limit: u64 },
    /// Nothing of the transaction was applied.
    #[error("the device is full: {need_bytes} bytes needed, {available_bytes} available")]
    NoSpace { need_bytes: u64, available_bytes: u64 },
    /// What the device returned is not what was written there.
    #[error("checksum mismatch at device offset {device_offset}, object {object} offset {offset}")]
    Checksum { object: String, offset: u64, device_offset: u64 },
    #[error("read error {errno} at device offset {device_offset}, object {object} offset {offset}")]
    Io { object: String, offset: u64, device_offset: u64, errno: i32 },
    /// The store is not open yet, was opened for reading only, or has failed.
    #[error("the store has stopped, or is not open for this")]
    Stopped,
    /// The metadata is not in memory; a load has begun. Ask again after
    /// [`StoreEvent::Loaded`] with this id.
    #[error("metadata is being loaded")]
    Pending(FetchId),
}

impl StoreError {
    pub fn errno(&self) -> Errno {
        match self {
            StoreError::NoCollection(_) | StoreError::NoObject => Errno::ENOENT,
            StoreError::NotEmpty(_) => Errno::ENOTEMPTY,
            StoreError::TooLarge { .. } => Errno::EFBIG,
            StoreError::NoSpace { .. } => Errno::ENOSPC,
            StoreError::Checksum { .. } | StoreError::Io { .. } | StoreError::Stopped => Errno::EIO,
            StoreError::Pending(_) => Errno::EAGAIN,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreEvent {
    /// This transaction and all before it survive a power cut.
    Committed(TxnId),
    /// A [`ObjectStore::read`] ended. The data is shorter than asked where the
    /// object ends.
    Read { id: FetchId, result: Result<Bytes, StoreError> },
    /// See [`StoreError::Pending`].
    Loaded(FetchId),
}

/// What the OSD asks of a store.
///
/// Metadata calls answer from the state that includes every queued
/// transaction, durable or not: the caller decides what may be shown to whom
/// before it is durable. All of them may answer [`StoreError::Pending`].
///
/// A missing object is `Ok(None)` for [`stat`](Self::stat), [`StoreError::NoObject`]
/// for the others.
pub trait ObjectStore {
    fn stat(&self, id: &ObjectId) -> Result<Option<ObjectStat>, StoreError>;
    fn xattr(&self, id: &ObjectId, name: &str) -> Result<Option<Bytes>, StoreError>;
    fn xattrs(&self, id: &ObjectId) -> Result<BTreeMap<String, Bytes>, StoreError>;
    fn omap_header(&self, id: &ObjectId) -> Result<Bytes, StoreError>;
    fn omap_get(&self, id: &ObjectId, key: &[u8]) -> Result<Option<Bytes>, StoreError>;
    /// Entries with keys greater than `after` (all when `None`) that start with `prefix`,
    /// ascending, as many as the limit allows; and whether there are more.
    fn omap_list(
        &self,
        id: &ObjectId,
        after: Option<&[u8]>,
        prefix: &[u8],
        limit: OmapLimit,
    ) -> Result<OmapPage, StoreError>;
    /// Ranges with data in `offset..offset+len`, ascending, not adjacent, as (offset,
    /// length), none past the object's end; what lies between reads as zeros. Data is
    /// tracked in whole blocks of [`BLOCK_LEN`](crate::limits::BLOCK_LEN).
    fn data_extents(&self, id: &ObjectId, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, StoreError>;

    fn collections(&self) -> Vec<CollId>;
    fn has_collection(&self, coll: CollId) -> bool;
    /// Objects at or after `start`, ascending in [`HObject`] order, at most `max`.
    fn list(&self, coll: CollId, start: &HObject, max: usize) -> Result<Vec<HObject>, StoreError>;

    /// Starts reading object data; answered by [`StoreEvent::Read`]. Sees all
    /// transactions queued before it. Every byte is verified against its checksum.
    /// Of a missing object, or longer than [`READ_LEN_MAX`](crate::limits::READ_LEN_MAX):
    /// an error at once.
    fn read(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError>;

    /// The same for scrubbing: what is on the device is read there, even if it is in memory
    /// as well.
    fn read_device(&mut self, id: &ObjectId, offset: u64, len: u64) -> Result<FetchId, StoreError> {
        self.read(id, offset, len)
    }

    /// Applies a transaction to the visible state and queues it for commit with
    /// everything else of this batch. An error means that nothing was applied.
    ///
    /// Never [`StoreError::Pending`]: where metadata is not in memory, the transaction
    /// keeps its place in the order and is applied when that has been loaded; until
    /// then calls about the objects it names are pending. A caller who cannot
    /// know whether the objects that a transaction needs exist asks before
    /// ([`stat`](Self::stat)): one that turns out to be impossible then ends the store.
    fn queue(&mut self, txn: Transaction) -> Result<TxnId, StoreError>;

    /// The caller has had little to do lately: the store may use the time to put what it holds in
    /// order, until somebody asks for something. True when there is more to do: then it is called
    /// again some time later, or at once by who waits for the end.
    fn rest(&mut self) -> bool {
        false
    }

    /// The result of the read that was asked for last, if it is there: no event brings it then.
    fn take_read(&mut self, _id: FetchId) -> Option<Result<Bytes, StoreError>> {
        None
    }

    fn poll_event(&mut self) -> Option<StoreEvent>;
    fn stats(&self) -> StoreStats;
    fn memory(&self) -> StoreMemory;
}
