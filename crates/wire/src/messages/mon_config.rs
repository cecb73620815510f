use super::Payload;
use crate::codec::{Decoder, Encoder, Result};
use bytes::Bytes;
use std::collections::BTreeMap;

/// `MConfig`: every option the monitor sets for the receiver; it replaces the
/// previous set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MConfig {
    pub options: BTreeMap<String, String>,
}

impl Payload for MConfig {
    const KIND: u16 = 62;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.options);
    }
    fn decode(front: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MConfig { options: front.get()? })
    }
}
