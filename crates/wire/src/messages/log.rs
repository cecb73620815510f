//! The cluster log: entries from daemons, and to `ceph -w`.

use super::{Payload, decode_paxos_prefix, encode_paxos_prefix};
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::types::{EntityAddrVec, EntityName, Uuid};
use base::WallTime;
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    Debug,
    Info,
    Security,
    Warn,
    Error,
}

impl LogLevel {
    /// As `ceph log last` and `ceph -w` print it.
    pub fn tag(self) -> &'static str {
        match self {
            LogLevel::Debug => "[DBG]",
            LogLevel::Info => "[INF]",
            LogLevel::Security => "[SEC]",
            LogLevel::Warn => "[WRN]",
            LogLevel::Error => "[ERR]",
        }
    }

    fn as_u16(self) -> u16 {
        self as u16
    }

    fn from_u16(v: u16) -> Result<LogLevel> {
        Ok(match v {
            0 => LogLevel::Debug,
            1 => LogLevel::Info,
            2 => LogLevel::Security,
            3 => LogLevel::Warn,
            4 => LogLevel::Error,
            _ => return Err(DecodeError::Invalid { what: "log level" }),
        })
    }
}

/// `LogEntry`.
///
/// Source: Ceph `src/common/LogEntry.cc` (encoding v5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// The sender's type bits and id: (1, "a") for mon.a.
    pub name: (u32, String),
    pub rank: EntityName,
    pub addrs: EntityAddrVec,
    pub stamp: WallTime,
    pub seq: u64,
    pub level: LogLevel,
    pub text: String,
    /// "cluster" or "audit".
    pub channel: String,
}

impl Encode for LogEntry {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(5, 5, |e| {
            e.u32(self.name.0);
            e.string(&self.name.1);
            e.put(&self.rank);
            e.put(&self.addrs);
            e.put(&self.stamp);
            e.u64(self.seq);
            e.u16(self.level.as_u16());
            e.string(&self.text);
            e.string(&self.channel);
        });
    }
}

impl Decode for LogEntry {
    const MIN_LEN: usize = 6 + 48;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("LogEntry", 5, |d, version| {
            if version < 5 {
                return Err(DecodeError::TooOld { what: "LogEntry", version, oldest: 5 });
            }
            Ok(LogEntry {
                name: (d.u32()?, d.string()?),
                rank: d.get()?,
                addrs: d.get()?,
                stamp: d.get()?,
                seq: d.u64()?,
                level: LogLevel::from_u16(d.u16()?)?,
                text: d.string()?,
                channel: d.string()?,
            })
        })
    }
}

/// `MLog`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MLog {
    pub version: u64,
    pub fsid: Uuid,
    pub entries: Vec<LogEntry>,
}

impl Payload for MLog {
    const KIND: u16 = 52;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        encode_paxos_prefix(e, self.version);
        e.put(&self.fsid);
        e.put(&self.entries);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        let version = decode_paxos_prefix(d)?;
        Ok(MLog { version, fsid: d.get()?, entries: d.get()? })
    }
}

/// `MLogAck`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MLogAck {
    pub fsid: Uuid,
    pub last: u64,
    pub channel: String,
}

impl Payload for MLogAck {
    const KIND: u16 = 53;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.u64(self.last);
        e.string(&self.channel);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MLogAck { fsid: d.get()?, last: d.u64()?, channel: d.string()? })
    }
}
