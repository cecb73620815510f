//! Requests to a node's device.
//!
//! What a driver promises, and the simulator attacks:
//!
//! - a write is durable only when a [`DiskOp::Flush`] submitted *after* the
//!   write completed has itself completed, or when it was a *durable* write
//!   and has completed;
//! - until then a power cut may keep it, lose it, or tear it at 512 bytes, in
//!   any order relative to other unflushed writes;
//! - a durable write says nothing of other writes, except that earlier ones to
//!   the same place cannot come back;
//! - a failed flush or durable write is final: the node must stop, never retry
//!   and acknowledge.

use base::Part;
use bytes::Bytes;

/// Fixed facts of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskInfo {
    pub len_bytes: u64,
    /// Offsets, lengths and memory must be multiples of it: 512 or 4096.
    pub block_len: u32,
    /// Whether a completed write can be lost by a power cut before a flush.
    pub volatile_cache: bool,
}

#[derive(Debug)]
pub enum DiskOp {
    /// Writes `data` back to back at `offset`. Each piece's address and length
    /// are multiples of [`base::aligned::ALIGNMENT`].
    Write {
        offset: u64,
        data: Vec<Bytes>,
        /// Completes when the data is on stable storage: one request and one wake-up
        /// instead of two, and the device is not kept waiting in between.
        durable: bool,
    },
    Read {
        offset: u64,
        len: u32,
        /// Where its bytes are to lie, as long and as aligned as they are; else in memory of the driver's.
        into: Option<Part>,
    },
    /// Makes every write that has completed before durable.
    Flush,
    /// The range's content is no longer needed; reads of it may return anything.
    Discard { offset: u64, len: u64 },
}

impl DiskOp {
    /// A read whose memory is the driver's business.
    pub fn read(offset: u64, len: u32) -> DiskOp {
        DiskOp::Read { offset, len, into: None }
    }

    /// Bytes that are to be written, read or discarded.
    pub fn byte_len(&self) -> u64 {
        match self {
            // Their sum in memory cannot pass 2^64.
            DiskOp::Write { data, .. } => data.iter().map(|piece| piece.len() as u64).sum(),
            DiskOp::Read { len, .. } => u64::from(*len),
            DiskOp::Discard { len, .. } => *len,
            DiskOp::Flush => 0,
        }
    }
}

#[derive(Debug)]
pub struct DiskRequest {
    /// The submitter's own number, returned in `DiskDone`.
    pub token: u64,
    pub op: DiskOp,
}

/// The bytes of a read, in the memory that was given for them if any was; empty for the other operations.
pub type DiskResult = Result<Bytes, DiskError>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DiskError {
    /// The device refused or failed the request, with the errno it gave.
    #[error("device error {errno}")]
    Io { errno: i32 },
    /// Outside the device, or not aligned: our bug or a changed device.
    #[error("request outside the device or not aligned")]
    BadRange,
}

/// What a read answers that has found `data` in memory: a device that is not one.
pub fn read_into(into: Option<Part>, data: Bytes) -> Bytes {
    match into {
        Some(mut part) if part.len() == data.len() => {
            part.copy_from_slice(&data);
            part.freeze()
        }
        _ => data,
    }
}
