use super::Payload;
use crate::codec::{Decoder, Encoder, Result};
use crate::types::{Epoch, IntervalSet, PoolId, Uuid};
use bytes::Bytes;
use std::collections::BTreeMap;

/// `MOSDMap`: encoded incrementals and full maps, by epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MOsdMap {
    pub fsid: Uuid,
    pub incrementals: BTreeMap<Epoch, Bytes>,
    pub fulls: BTreeMap<Epoch, Bytes>,
    /// What the sender can still provide.
    pub oldest: Epoch,
    pub newest: Epoch,
    pub gap_removed_snaps: BTreeMap<PoolId, IntervalSet>,
}

impl Payload for MOsdMap {
    const KIND: u16 = 41;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.incrementals);
        e.put(&self.fulls);
        e.put(&self.oldest);
        e.put(&self.newest);
        e.put(&self.gap_removed_snaps);
    }
    fn decode(front: &mut Decoder, _: Bytes, version: u16) -> Result<Self> {
        Ok(MOsdMap {
            fsid: front.get()?,
            incrementals: front.get()?,
            fulls: front.get()?,
            oldest: front.get()?,
            newest: front.get()?,
            gap_removed_snaps: if version >= 4 { front.get()? } else { BTreeMap::new() },
        })
    }
}
