use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use crate::features::Features;
use crate::types::Epoch;
use base::WallTime;

/// `osd_xinfo_t`: more about an OSD, for the monitor's decisions.
///
/// Source: Ceph 16.2.15, src/osd/OSDMap.cc (`osd_xinfo_t::encode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OsdXInfo {
    /// When it was last found down.
    pub down_stamp: WallTime,
    /// How likely it is slow rather than dead.
    ///
    /// Units: fractions of 2^32 - 1, as on the wire: a float would not survive
    /// a decode and an encode bit for bit, and the map's checksum covers it.
    pub laggy_probability: u32,
    /// Units: seconds.
    pub laggy_interval: u32,
    /// What it advertised when it last booted.
    pub features: Features,
    /// The weight it had before it was marked out, to be given back.
    pub old_weight: u32,
    pub last_purged_snaps_scrub: WallTime,
    /// Until when it is known dead: it did not answer its host's OSDs at all.
    pub dead_epoch: Epoch,
}

impl Default for OsdXInfo {
    fn default() -> OsdXInfo {
        OsdXInfo {
            down_stamp: WallTime::ZERO,
            laggy_probability: 0,
            laggy_interval: 0,
            features: Features(0),
            old_weight: 0,
            last_purged_snaps_scrub: WallTime::ZERO,
            dead_epoch: Epoch(0),
        }
    }
}

impl Encode for OsdXInfo {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(4, 1, |e| {
            e.put(&self.down_stamp);
            e.u32(self.laggy_probability);
            e.u32(self.laggy_interval);
            e.u64(self.features.0);
            e.u32(self.old_weight);
            e.put(&self.last_purged_snaps_scrub);
            e.put(&self.dead_epoch);
        });
    }
}

impl Decode for OsdXInfo {
    const MIN_LEN: usize = 6 + 16;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("osd_xinfo_t", 4, |d, version| {
            let down_stamp = d.get()?;
            let laggy_probability = d.u32()?;
            let laggy_interval = d.u32()?;
            Ok(OsdXInfo {
                down_stamp,
                laggy_probability,
                laggy_interval,
                features: Features(if version >= 2 { d.u64()? } else { 0 }),
                old_weight: if version >= 3 { d.u32()? } else { 0 },
                last_purged_snaps_scrub: if version >= 4 { d.get()? } else { WallTime::ZERO },
                dead_epoch: if version >= 4 { d.get()? } else { Epoch(0) },
            })
        })
    }
}
