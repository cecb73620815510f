use super::Payload;
use crate::codec::{Decoder, Encoder, Result};
use crate::types::{Epoch, SpgId, Uuid};
use bytes::Bytes;

/// `MOSDScrub2`: asks an OSD to scrub PGs that it is primary of, at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MOsdScrub {
    pub fsid: Uuid,
    pub epoch: Epoch,
    pub pgs: Vec<SpgId>,
    pub repair: bool,
    pub deep: bool,
}

impl Payload for MOsdScrub {
    const KIND: u16 = 121;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    fn encode_front(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.epoch);
        e.put(&self.pgs);
        e.bool(self.repair);
        e.bool(self.deep);
    }
    fn decode(d: &mut Decoder, _: Bytes, _: u16) -> Result<Self> {
        Ok(MOsdScrub { fsid: d.get()?, epoch: d.get()?, pgs: d.get()?, repair: d.bool()?, deep: d.bool()? })
    }
}
