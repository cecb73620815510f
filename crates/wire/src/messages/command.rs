//! Commands: JSON text in, errno, status line and output out.

use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{Decoder, Encoder, Result};
use crate::types::Uuid;
use bytes::Bytes;

/// `MMonCommand`: a command for the monitor. `cmd` holds one JSON object;
/// `input` is bulk input (`-i FILE`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMonCommand {
    pub fsid: Uuid,
    pub cmd: Vec<String>,
    pub input: Bytes,
}

impl Payload for MMonCommand {
    const KIND: u16 = 50;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, 0);
        e.put(&self.fsid);
        e.put(&self.cmd);
    }
    fn data(&self) -> Vec<Bytes> {
        vec![self.input.clone()]
    }
    fn decode(d: &mut Decoder, data: Bytes, _: u16) -> Result<Self> {
        decode_paxos_prefix(d)?;
        Ok(MMonCommand { fsid: d.get()?, cmd: d.get()?, input: data })
    }
}

/// `MMonCommandAck`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MMonCommandAck {
    pub version: u64,
    /// 0 or a negative errno.
    pub result: i32,
    /// The status line, shown on stderr.
    pub status: String,
    pub cmd: Vec<String>,
    pub output: Bytes,
}

impl Payload for MMonCommandAck {
    const KIND: u16 = 51;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, self.version);
        e.i32(self.result);
        e.string(&self.status);
        e.put(&self.cmd);
    }
    fn data(&self) -> Vec<Bytes> {
        vec![self.output.clone()]
    }
    fn decode(d: &mut Decoder, data: Bytes, _: u16) -> Result<Self> {
        let version = decode_paxos_prefix(d)?;
        Ok(MMonCommandAck { version, result: d.i32()?, status: d.string()?, cmd: d.get()?, output: data })
    }
}

/// `MCommand`: `ceph tell osd.N …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MCommand {
    pub fsid: Uuid,
    pub cmd: Vec<String>,
    pub input: Bytes,
}

impl Payload for MCommand {
    const KIND: u16 = 97;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.cmd);
    }
    fn data(&self) -> Vec<Bytes> {
        vec![self.input.clone()]
    }
    fn decode(d: &mut Decoder, data: Bytes, _: u16) -> Result<Self> {
        Ok(MCommand { fsid: d.get()?, cmd: d.get()?, input: data })
    }
}

/// `MCommandReply`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MCommandReply {
    /// 0 or a negative errno.
    pub result: i32,
    pub status: String,
    pub output: Bytes,
}

impl Payload for MCommandReply {
    const KIND: u16 = 98;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.i32(self.result);
        e.string(&self.status);
    }
    fn data(&self) -> Vec<Bytes> {
        vec![self.output.clone()]
    }
    fn decode(d: &mut Decoder, data: Bytes, _: u16) -> Result<Self> {
        Ok(MCommandReply { result: d.i32()?, status: d.string()?, output: data })
    }
}
