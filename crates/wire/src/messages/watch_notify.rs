use super::Payload;
use crate::codec::{DecodeError, Decoder, Encoder, Result};
use bytes::Bytes;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchOpcode {
    Notify,
    NotifyComplete,
    Disconnect,
}

/// `MWatchNotify`: a notification to a watcher, or its completion to the notifier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MWatchNotify {
    pub opcode: WatchOpcode,
    pub cookie: u64,
    pub version: u64,
    pub notify_id: u64,
    pub payload: Bytes,
    pub return_code: i32,
    pub notifier_gid: u64,
    /// For a completion: encoded replies and time-outs.
    pub data: Bytes,
}

impl Payload for MWatchNotify {
    const KIND: u16 = 44;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.u8(1);
        e.u8(match self.opcode {
            WatchOpcode::Notify => 1,
            WatchOpcode::NotifyComplete => 2,
            WatchOpcode::Disconnect => 3,
        });
        e.u64(self.cookie);
        e.u64(self.version);
        e.u64(self.notify_id);
        e.blob(&self.payload);
        e.i32(self.return_code);
        e.u64(self.notifier_gid);
    }
    fn data(&self) -> Vec<Bytes> {
        vec![self.data.clone()]
    }
    fn decode(d: &mut Decoder, data: Bytes, version: u16) -> Result<Self> {
        d.u8()?;
        let opcode = match d.u8()? {
            1 => WatchOpcode::Notify,
            2 => WatchOpcode::NotifyComplete,
            3 => WatchOpcode::Disconnect,
            _ => return Err(DecodeError::Invalid { what: "watch opcode" }),
        };
        Ok(MWatchNotify {
            opcode,
            cookie: d.u64()?,
            version: d.u64()?,
            notify_id: d.u64()?,
            payload: d.blob()?,
            return_code: if version >= 2 { d.i32()? } else { 0 },
            notifier_gid: if version >= 3 { d.u64()? } else { 0 },
            data,
        })
    }
}
