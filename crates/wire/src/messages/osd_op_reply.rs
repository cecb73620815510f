use super::Payload;
use super::osd_op::{OPS_MAX, OsdOp};
use crate::codec::{DecodeError, Decoder, Encoder, Result};
use crate::types::{EVersion, Epoch, PgId};
use bytes::Bytes;
use ecow::EcoString;

/// One operation of a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpResult {
    /// The operation as requested; `indata` is not sent back.
    pub op: OsdOp,
    pub rval: i32,
    pub outdata: Bytes,
    /// Follows `outdata`: long data as it was read, not copied. Empty in a decoded reply.
    pub long: Vec<Bytes>,
}

impl OpResult {
    pub fn new(op: OsdOp, rval: i32, outdata: Bytes) -> OpResult {
        OpResult { op, rval, outdata, long: Vec::new() }
    }

    /// Bytes of output.
    pub fn out_len(&self) -> usize {
        self.outdata.len() + self.long.iter().map(Bytes::len).sum::<usize>()
    }

    pub fn clear_output(&mut self) {
        self.outdata = Bytes::new();
        self.long = Vec::new();
    }
}

/// `MOSDOpReply` v8.
///
/// Source: Ceph `src/messages/MOSDOpReply.h`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdOpReply {
    pub object: EcoString,
    pub pg: PgId,
    pub flags: u64,
    /// 0, a negative errno, or for some reads a positive value.
    pub result: i32,
    pub bad_replay_version: EVersion,
    pub epoch: Epoch,
    /// As many as the request had.
    pub ops: Vec<OpResult>,
    pub retry_attempt: i32,
    pub replay_version: EVersion,
    pub user_version: u64,
}

impl Payload for MOsdOpReply {
    const KIND: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn encode_front(&self, e: &mut Encoder) {
        e.string(&self.object);
        e.put(&self.pg);
        e.u64(self.flags);
        e.i32(self.result);
        e.put(&self.bad_replay_version);
        e.put(&self.epoch);
        e.count(self.ops.len());
        for op in &self.ops {
            op.op.encode_fixed(op.out_len(), e);
        }
        e.i32(self.retry_attempt);
        for op in &self.ops {
            e.i32(op.rval);
        }
        e.put(&self.replay_version);
        e.u64(self.user_version);
        e.bool(false); // no redirect
        e.raw(&[0; 24]); // trace ids
    }

    fn data(&self) -> Vec<Bytes> {
        let pieces = self.ops.iter().flat_map(|op| std::iter::once(&op.outdata).chain(&op.long));
        pieces.filter(|piece| !piece.is_empty()).cloned().collect()
    }

    fn decode(d: &mut Decoder, mut data: Bytes, version: u16) -> Result<Self> {
        if version < 8 {
            return Err(DecodeError::TooOld {
                what: "MOSDOpReply",
                version: u8::try_from(version).unwrap_or(u8::MAX),
                oldest: 8,
            });
        }
        let object = d.text()?;
        let pg = d.get()?;
        let flags = d.u64()?;
        let result = d.i32()?;
        let bad_replay_version = d.get()?;
        let epoch = d.get()?;
        let n = d.count("operations", 38)?;
        if n > OPS_MAX {
            return Err(DecodeError::Invalid { what: "operation count" });
        }
        let mut ops = Vec::with_capacity(n);
        for _ in 0..n {
            let (op, len) = OsdOp::decode_fixed(d)?;
            if len > data.len() {
                return Err(DecodeError::Truncated { what: "operation output", need: len, have: data.len() });
            }
            ops.push(OpResult::new(op, 0, data.split_to(len)));
        }
        let retry_attempt = d.i32()?;
        for op in &mut ops {
            op.rval = d.i32()?;
        }
        let replay_version = d.get()?;
        let user_version = d.u64()?;
        if d.bool()? {
            return Err(DecodeError::Invalid { what: "redirect: not supported" });
        }
        Ok(MOsdOpReply {
            object,
            pg,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version,
            user_version,
        })
    }
}
