//! Pool changes that librados asks for directly instead of by command.

use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{DecodeError, Decoder, Encoder, Result};
use crate::types::{Epoch, PoolId, SnapId, Uuid};
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolOpKind {
    Create,
    Delete,
    AuidChange,
    CreateSnap,
    DeleteSnap,
    CreateUnmanagedSnap,
    DeleteUnmanagedSnap,
}

impl PoolOpKind {
    fn from_u32(v: u32) -> Result<PoolOpKind> {
        Ok(match v {
            0x01 => PoolOpKind::Create,
            0x02 => PoolOpKind::Delete,
            0x03 => PoolOpKind::AuidChange,
            0x11 => PoolOpKind::CreateSnap,
            0x12 => PoolOpKind::DeleteSnap,
            0x21 => PoolOpKind::CreateUnmanagedSnap,
            0x22 => PoolOpKind::DeleteUnmanagedSnap,
            _ => return Err(DecodeError::Invalid { what: "pool operation" }),
        })
    }

    fn as_u32(self) -> u32 {
        match self {
            PoolOpKind::Create => 0x01,
            PoolOpKind::Delete => 0x02,
            PoolOpKind::AuidChange => 0x03,
            PoolOpKind::CreateSnap => 0x11,
            PoolOpKind::DeleteSnap => 0x12,
            PoolOpKind::CreateUnmanagedSnap => 0x21,
            PoolOpKind::DeleteUnmanagedSnap => 0x22,
        }
    }
}

/// `MPoolOp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MPoolOp {
    pub fsid: Uuid,
    pub pool: PoolId,
    pub op: PoolOpKind,
    pub snap: SnapId,
    /// The new pool's or the snapshot's name.
    pub name: String,
    /// −1 for the default rule.
    pub crush_rule: i16,
}

impl Payload for MPoolOp {
    const KIND: u16 = 49;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.put(&self.fsid);
        e.u32(u32::try_from(self.pool.0).unwrap_or(u32::MAX));
        e.u32(self.op.as_u32());
        e.u64(0);
        e.put(&self.snap);
        e.string(&self.name);
        e.u8(0);
        e.i16(self.crush_rule);
    }
    fn decode(d: &mut Decoder, _: Bytes, version: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        let fsid = d.get()?;
        let pool = PoolId(i64::from(d.u32()?));
        let op = PoolOpKind::from_u32(d.u32()?)?;
        d.u64()?;
        let snap = d.get()?;
        let name = d.string()?;
        d.u8()?;
        let crush_rule = if version >= 4 { d.i16()? } else { -1 };
        Ok(MPoolOp { fsid, pool, op, snap, name, crush_rule })
    }
}

/// `MPoolOpReply`: the client then waits for OSDMap `epoch`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MPoolOpReply {
    pub fsid: Uuid,
    /// 0 or a negative errno.
    pub code: i32,
    pub epoch: Epoch,
    /// For a new self-managed snapshot, its id as a u64.
    pub data: Option<Bytes>,
}

impl Payload for MPoolOpReply {
    const KIND: u16 = 48;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, u64::from(self.epoch.0));
        e.put(&self.fsid);
        e.i32(self.code);
        e.put(&self.epoch);
        e.put(&self.data);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        Ok(MPoolOpReply { fsid: d.get()?, code: d.i32()?, epoch: d.get()?, data: d.get()? })
    }
}
