//! `MOSDOp`: a client's request to an OSD, one or more operations on one object.
//!
//! Source: Ceph `src/messages/MOSDOp.h` (v8), `src/include/rados.h`.

mod args;
mod code;

pub use args::{
    AllocHintArgs, AssertVersionArgs, CallArgs, ChecksumArgs, CopyFromArgs, ExtentArgs, NotifyArgs,
    PgListArgs, SnapArgs, WatchArgs, WriteSameArgs, XattrArgs,
};
pub use code::{OpCode, flags, op_flags};

use super::Payload;
use crate::codec::{DecodeError, Decoder, Encoder, Result};
use crate::types::{Epoch, ObjectLocator, ReqId, SnapId, SpgId};
use base::WallTime;
use bytes::Bytes;
use ecow::EcoString;

/// Operations in one message: Ceph's own limit is what fits a u16; ours keeps
/// one message from occupying the OSD.
pub const OPS_MAX: usize = 1024;

/// One operation: its code, flags, fixed arguments, and input data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OsdOp {
    pub code: OpCode,
    /// [`op_flags`].
    pub flags: u32,
    /// The 28-byte union of `ceph_osd_op`; read it with the `*Args` types.
    pub args: [u8; 28],
    pub indata: Bytes,
}

/// Bytes of one operation in the front segment.
const OP_LEN: usize = 38;

impl OsdOp {
    pub fn new(code: OpCode, args: [u8; 28], indata: Bytes) -> OsdOp {
        OsdOp { code, flags: 0, args, indata }
    }

    pub(super) fn encode_fixed(&self, payload_len: usize, e: &mut Encoder) {
        e.u16(self.code.0);
        e.u32(self.flags);
        e.raw(&self.args);
        e.count(payload_len);
    }

    /// The fixed part and the length of the data that belongs to it.
    pub(super) fn decode_fixed(d: &mut Decoder) -> Result<(OsdOp, usize)> {
        let code = OpCode(d.u16()?);
        let flags = d.u32()?;
        let args = d.raw()?;
        let len = d.u32()? as usize;
        Ok((OsdOp { code, flags, args, indata: Bytes::new() }, len))
    }
}

pub(super) fn decode_ops(d: &mut Decoder, n: usize, mut data: Bytes) -> Result<Vec<OsdOp>> {
    if n > OPS_MAX {
        return Err(DecodeError::Invalid { what: "operation count" });
    }
    if n * OP_LEN > d.remaining() {
        return Err(DecodeError::Truncated { what: "operations", need: n * OP_LEN, have: d.remaining() });
    }
    let mut ops = Vec::with_capacity(n);
    for _ in 0..n {
        let (mut op, len) = OsdOp::decode_fixed(d)?;
        if len > data.len() {
            return Err(DecodeError::Truncated { what: "operation data", need: len, have: data.len() });
        }
        op.indata = data.split_to(len);
        ops.push(op);
    }
    Ok(ops)
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdOp {
    pub pg: SpgId,
    /// The object's hash before it was folded into a PG.
    pub raw_hash: u32,
    /// The client's OSDMap when it chose the target.
    pub epoch: Epoch,
    /// [`flags`].
    pub flags: u32,
    /// All zero from clients; the OSD builds the id from the session, the
    /// header's tid and `client_inc`.
    pub reqid: Option<ReqId>,
    pub client_inc: u32,
    pub mtime: WallTime,
    pub locator: ObjectLocator,
    pub object: EcoString,
    pub ops: Vec<OsdOp>,
    /// What reads see; `SnapId::HEAD` for writes.
    pub snap: SnapId,
    pub snap_seq: SnapId,
    /// Descending.
    pub snaps: Vec<SnapId>,
    /// 0 the first time; −1 when unknown. The reply must echo it.
    pub retry_attempt: i32,
    pub features: u64,
}

impl Payload for MOsdOp {
    const KIND: u16 = 42;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;

    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.pg);
        e.u32(self.raw_hash);
        e.put(&self.epoch);
        e.u32(self.flags);
        match &self.reqid {
            Some(reqid) => e.put(reqid),
            None => e.versioned(2, 2, |e| e.raw(&[0; 21])),
        }
        e.raw(&[0; 24]); // trace ids
        e.u32(self.client_inc);
        e.put(&self.mtime);
        e.put(&self.locator);
        e.string(&self.object);
        e.u16(u16::try_from(self.ops.len()).expect("at most OPS_MAX operations"));
        for op in &self.ops {
            op.encode_fixed(op.indata.len(), e);
        }
        e.put(&self.snap);
        e.put(&self.snap_seq);
        e.put(&self.snaps);
        e.i32(self.retry_attempt);
        e.u64(self.features);
    }

    fn data(&self) -> Vec<Bytes> {
        self.ops.iter().filter(|op| !op.indata.is_empty()).map(|op| op.indata.clone()).collect()
    }

    fn decode(d: &mut Decoder, data: Bytes, version: u16) -> Result<Self> {
        if version < 8 {
            return Err(DecodeError::TooOld {
                what: "MOSDOp",
                version: u8::try_from(version).unwrap_or(u8::MAX),
                oldest: 8,
            });
        }
        let pg = d.get()?;
        let raw_hash = d.u32()?;
        let epoch = d.get()?;
        let flags = d.u32()?;
        let reqid = decode_reqid(d)?;
        d.skip("trace", 24)?;
        let client_inc = d.u32()?;
        let mtime = d.get()?;
        let locator = d.get()?;
        let object = d.text()?;
        let n = usize::from(d.u16()?);
        let ops = decode_ops(d, n, data)?;
        Ok(MOsdOp {
            pg,
            raw_hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            locator,
            object,
            ops,
            snap: d.get()?,
            snap_seq: d.get()?,
            snaps: d.get()?,
            retry_attempt: d.i32()?,
            features: d.u64()?,
        })
    }
}

/// Clients leave the id blank, with an entity type that is none.
fn decode_reqid(d: &mut Decoder) -> Result<Option<ReqId>> {
    let mut probe = d.clone();
    let blank = probe.versioned("osd_reqid_t", 2, |d, _| Ok(d.u8()? == 0))?;
    if blank {
        *d = probe;
        return Ok(None);
    }
    d.get().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::types::{PgId, PoolId};

    fn sample() -> MOsdOp {
        MOsdOp {
            pg: SpgId::replicated(PgId { pool: PoolId(3), seed: 7 }),
            raw_hash: 0xdead_beef,
            epoch: Epoch(11),
            flags: flags::WRITE,
            reqid: None,
            client_inc: 0,
            mtime: WallTime { sec: 5, nsec: 6 },
            locator: ObjectLocator::pool(PoolId(3)),
            object: "name".into(),
            ops: vec![
                OsdOp::new(OpCode::WRITE, ExtentArgs::new(4, 3).into_args(), Bytes::from_static(b"abc")),
                OsdOp::new(OpCode::STAT, [0; 28], Bytes::new()),
            ],
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: vec![],
            retry_attempt: 0,
            features: 0,
        }
    }

    #[test]
    fn request_survives_the_wire_and_every_truncation_is_an_error() {
        let op = sample();
        let front = op.front(Features::ALL);
        let data = Bytes::from(op.data().concat());
        let back = MOsdOp::decode(&mut Decoder::plain(front.clone()), data.clone(), 8).unwrap();
        assert_eq!(back, op);
        for cut in 0..front.len() {
            let short = front.slice(..cut);
            assert!(MOsdOp::decode(&mut Decoder::plain(short), data.clone(), 8).is_err(), "cut at {cut}");
        }
    }
}
