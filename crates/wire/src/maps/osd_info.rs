use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use crate::types::Epoch;

/// `osd_info_t`: when an OSD was up, as far as peering needs to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OsdInfo {
    /// The last interval that ended with a clean shutdown: first epoch …
    pub last_clean_begin: Epoch,
    /// … and last epoch.
    pub last_clean_end: Epoch,
    /// When it was last marked up.
    pub up_from: Epoch,
    /// A lower bound on how long it was up: it asked for this to be recorded.
    pub up_thru: Epoch,
    /// When it was last marked down.
    pub down_at: Epoch,
    /// Until when its data is declared lost.
    pub lost_at: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, e: &mut Encoder) {
        e.u8(1);
        e.put(&self.last_clean_begin);
        e.put(&self.last_clean_end);
        e.put(&self.up_from);
        e.put(&self.up_thru);
        e.put(&self.down_at);
        e.put(&self.lost_at);
    }
}

impl Decode for OsdInfo {
    const MIN_LEN: usize = 25;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.u8()?;
        Ok(OsdInfo {
            last_clean_begin: d.get()?,
            last_clean_end: d.get()?,
            up_from: d.get()?,
            up_thru: d.get()?,
            down_at: d.get()?,
            lost_at: d.get()?,
        })
    }
}
