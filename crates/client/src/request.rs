//! Requests as callers build them.

use bytes::Bytes;
use wire::messages::OsdOp;
use wire::messages::osd_op::{CallArgs, ExtentArgs, OpCode, XattrArgs, flags};
use wire::types::{ObjectLocator, PgId, PoolId, SnapId};

/// Operations on one object, executed together or not at all.
#[derive(Clone, Debug)]
pub struct ObjectRequest {
    pub locator: ObjectLocator,
    /// Empty for operations addressed to a PG.
    pub object: String,
    pub ops: Vec<OsdOp>,
    /// Message flags besides READ or WRITE, which follow from the operations.
    pub extra_flags: u32,
    pub snap: SnapId,
    pub snap_seq: SnapId,
    pub snaps: Vec<SnapId>,
    /// For listings: the PG instead of an object's.
    pub pg: Option<PgId>,
}

impl ObjectRequest {
    pub fn new(pool: PoolId, object: impl Into<String>, ops: Vec<OsdOp>) -> ObjectRequest {
        ObjectRequest {
            locator: ObjectLocator::pool(pool),
            object: object.into(),
            ops,
            extra_flags: 0,
            snap: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            pg: None,
        }
    }

    pub fn is_write(&self) -> bool {
        self.ops.iter().any(|op| op.code.is_write())
    }

    pub(crate) fn message_flags(&self) -> u32 {
        let mode = if self.is_write() { flags::WRITE } else { flags::READ };
        let pg_op = if self.pg.is_some() { flags::PGOP } else { 0 };
        mode | pg_op | flags::ONDISK | flags::KNOWN_REDIR | self.extra_flags
    }
}

/// Constructors of single operations.
pub mod ops {
    use super::*;

    pub fn read(offset: u64, len: u64) -> OsdOp {
        OsdOp::new(OpCode::READ, ExtentArgs::new(offset, len).into_args(), Bytes::new())
    }

    pub fn stat() -> OsdOp {
        OsdOp::new(OpCode::STAT, [0; 28], Bytes::new())
    }

    pub fn write(offset: u64, data: Bytes) -> OsdOp {
        OsdOp::new(OpCode::WRITE, ExtentArgs::new(offset, data.len() as u64).into_args(), data)
    }

    pub fn write_full(data: Bytes) -> OsdOp {
        OsdOp::new(OpCode::WRITEFULL, ExtentArgs::new(0, data.len() as u64).into_args(), data)
    }

    pub fn append(data: Bytes) -> OsdOp {
        OsdOp::new(OpCode::APPEND, ExtentArgs::new(0, data.len() as u64).into_args(), data)
    }

    pub fn truncate(size: u64) -> OsdOp {
        OsdOp::new(OpCode::TRUNCATE, ExtentArgs::new(size, 0).into_args(), Bytes::new())
    }

    /// Makes the object unless it is there.
    pub fn create() -> OsdOp {
        OsdOp::new(OpCode::CREATE, [0; 28], Bytes::new())
    }

    pub fn delete() -> OsdOp {
        OsdOp::new(OpCode::DELETE, [0; 28], Bytes::new())
    }

    pub fn set_xattr(name: &str, value: &[u8]) -> OsdOp {
        let args = XattrArgs {
            name_len: len_u32(name.len()),
            value_len: len_u32(value.len()),
            cmp_op: 0,
            cmp_mode: 0,
        };
        OsdOp::new(OpCode::SETXATTR, args.into_args(), Bytes::from([name.as_bytes(), value].concat()))
    }

    pub fn get_xattr(name: &str) -> OsdOp {
        let args = XattrArgs { name_len: len_u32(name.len()), value_len: 0, cmp_op: 0, cmp_mode: 0 };
        OsdOp::new(OpCode::GETXATTR, args.into_args(), Bytes::copy_from_slice(name.as_bytes()))
    }

    /// `entries` in any order; keys are bytes.
    pub fn omap_set(entries: std::collections::BTreeMap<Bytes, Bytes>) -> OsdOp {
        let mut e = wire::Encoder::plain();
        e.put(&entries);
        OsdOp::new(OpCode::OMAPSETVALS, [0; 28], e.finish())
    }

    /// The object's recorded watches.
    pub fn list_watchers() -> OsdOp {
        OsdOp::new(OpCode::LIST_WATCHERS, [0; 28], Bytes::new())
    }

    /// Up to `max` entries after `after`, as map<string, bytes> and a "more" flag.
    pub fn omap_get(after: &str, max: u64) -> OsdOp {
        let mut e = wire::Encoder::plain();
        e.string(after);
        e.u64(max);
        e.string("");
        OsdOp::new(OpCode::OMAPGETVALS, [0; 28], e.finish())
    }

    /// A method of an object class. One that writes needs [`flags::WRITE`] in the request's
    /// `extra_flags`: the operation's code does not say.
    pub fn call(class: &str, method: &str, input: &[u8]) -> OsdOp {
        let len_u8 = |text: &str| u8::try_from(text.len()).expect("names of classes and methods are short");
        let args = CallArgs {
            class_len: len_u8(class),
            method_len: len_u8(method),
            argc: 0,
            indata_len: len_u32(input.len()),
        };
        let indata = [class.as_bytes(), method.as_bytes(), input].concat();
        OsdOp::new(OpCode::CALL, args.into_args(), Bytes::from(indata))
    }

    fn len_u32(len: usize) -> u32 {
        u32::try_from(len).unwrap_or(u32::MAX)
    }
}
