//! Who is at each end of an OSD-to-OSD link, and whether they can talk.
//! Layout: docs/protocol/peer-link.md.

use wire::codec::Result;
use wire::types::{OsdId, Uuid};
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Versions of the bodies this build speaks.
pub const VERSION_MIN: u16 = 3;
pub const VERSION_MAX: u16 = 3;
const _: () = assert!(VERSION_MIN <= VERSION_MAX);

/// What a link is for. Heartbeats have links of their own, so that they never
/// wait behind data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkChannel {
    Data,
    Heartbeat,
}

/// One life of one OSD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct OsdLife {
    pub osd: OsdId,
    /// Differs between any two lives of an OSD: the nonce of its addresses.
    pub incarnation: u64,
}

/// The first frame in each direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    pub version_min: u16,
    pub version_max: u16,
    pub fsid: Uuid,
    pub sender: OsdLife,
    /// Whom the sender means to talk to.
    pub target: OsdLife,
    pub channel: LinkChannel,
    /// Bits that the bodies' owner gives a meaning; unknown ones are ignored.
    pub features: u64,
}

impl Encode for OsdLife {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.osd);
        e.u64(self.incarnation);
    }
}

impl Decode for OsdLife {
    const MIN_LEN: usize = 12;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(OsdLife { osd: d.get()?, incarnation: d.u64()? })
    }
}

impl Encode for Hello {
    fn encode(&self, e: &mut Encoder) {
        e.u16(self.version_min);
        e.u16(self.version_max);
        e.put(&self.fsid);
        e.put(&self.sender);
        e.put(&self.target);
        e.u8(match self.channel {
            LinkChannel::Data => 0,
            LinkChannel::Heartbeat => 1,
        });
        e.raw(&[0; 7]);
        e.u64(self.features);
    }
}

impl Decode for Hello {
    /// A later version's fields follow and are skipped.
    fn decode(d: &mut Decoder) -> Result<Self> {
        let (version_min, version_max) = (d.u16()?, d.u16()?);
        let (fsid, sender, target) = (d.get()?, d.get()?, d.get()?);
        let channel = match d.u8()? {
            0 => LinkChannel::Data,
            1 => LinkChannel::Heartbeat,
            _ => return Err(DecodeError::Invalid { what: "link channel" }),
        };
        d.skip("padding", 7)?;
        let features = d.u64()?;
        Ok(Hello { version_min, version_max, fsid, sender, target, channel, features })
    }
}

/// Why a hello is refused, told to the peer before hanging up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error("no common version of the OSD-to-OSD protocol")]
    Version,
    #[error("the peer belongs to another cluster")]
    Cluster,
    #[error("another OSD lives at this address")]
    Target,
    #[error("the OSD at this address is in another life")]
    Incarnation,
    #[error("reason {0}, unknown here")]
    Other(u32),
}

impl Encode for Refusal {
    fn encode(&self, e: &mut Encoder) {
        e.u32(match *self {
            Refusal::Version => 1,
            Refusal::Cluster => 2,
            Refusal::Target => 3,
            Refusal::Incarnation => 4,
            Refusal::Other(reason) => reason,
        });
    }
}

impl Decode for Refusal {
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(match d.u32()? {
            1 => Refusal::Version,
            2 => Refusal::Cluster,
            3 => Refusal::Target,
            4 => Refusal::Incarnation,
            other => Refusal::Other(other),
        })
    }
}
