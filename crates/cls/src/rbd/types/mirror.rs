//! Mirroring between clusters.

use super::{NO_POOL, fields};
use base::WallTime;
use bytes::Bytes;
use wire::types::{AddrType, EntityAddr, EntityName};
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

const NEVER: WallTime = WallTime { sec: 0, nsec: 0 };

/// `MirrorMode`.
pub mod mode {
    pub const DISABLED: u32 = 0;
    pub const IMAGE: u32 = 1;
    pub const POOL: u32 = 2;
}

/// `MirrorPeerDirection`: who copies from whom.
pub mod direction {
    pub const RX: u8 = 0;
    pub const TX: u8 = 1;
    pub const RX_TX: u8 = 2;
}

/// `MirrorImageState`.
pub mod image_state {
    pub const DISABLING: u8 = 0;
    pub const ENABLED: u8 = 1;
}

/// `MirrorImageStatusState`.
pub mod status_state {
    pub const UNKNOWN: u8 = 0;
    pub const ERROR: u8 = 1;
}

/// `cls::rbd::MirrorPeer`: another cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorPeer {
    pub uuid: Bytes,
    pub site_name: Bytes,
    pub client_name: Bytes,
    pub direction: u8,
    pub mirror_uuid: Bytes,
    pub last_seen: WallTime,
}

impl Default for MirrorPeer {
    fn default() -> MirrorPeer {
        MirrorPeer {
            uuid: Bytes::new(),
            site_name: Bytes::new(),
            client_name: Bytes::new(),
            direction: direction::RX_TX,
            mirror_uuid: Bytes::new(),
            last_seen: NEVER,
        }
    }
}

impl MirrorPeer {
    pub fn is_valid(&self) -> bool {
        let direction_is_valid = match self.direction {
            direction::TX => true,
            direction::RX | direction::RX_TX => !self.client_name.is_empty(),
            _ => false,
        };
        direction_is_valid && !self.uuid.is_empty() && !self.site_name.is_empty()
    }
}

impl Encode for MirrorPeer {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.put(&self.uuid);
            e.put(&self.site_name);
            e.put(&self.client_name);
            e.i64(NO_POOL); // no longer used
            e.u8(self.direction);
            e.put(&self.mirror_uuid);
            e.put(&self.last_seen);
        });
    }
}

impl Decode for MirrorPeer {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<MirrorPeer, DecodeError> {
        d.versioned("MirrorPeer", 2, |d, version| {
            let mut peer = MirrorPeer {
                uuid: d.get()?,
                site_name: d.get()?,
                client_name: d.get()?,
                ..MirrorPeer::default()
            };
            d.skip("pool", 8)?;
            if version >= 2 {
                peer.direction = d.get()?;
                peer.mirror_uuid = d.get()?;
                peer.last_seen = d.get()?;
            }
            Ok(peer)
        })
    }
}

/// `cls::rbd::MirrorImage`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MirrorImage {
    pub global_id: Bytes,
    pub state: u8,
    /// 0 journal, 1 snapshot.
    pub mode: u8,
}

fields!(MirrorImage, 2, 1: [global_id, state] [mode], 2);

/// `cls::rbd::MirrorImageMap`: which instance of the mirror daemon has the image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorImageMap {
    pub instance: Bytes,
    pub mapped_at: WallTime,
    pub data: Bytes,
}

impl Default for MirrorImageMap {
    fn default() -> MirrorImageMap {
        MirrorImageMap { instance: Bytes::new(), mapped_at: NEVER, data: Bytes::new() }
    }
}

fields!(MirrorImageMap, 1, 1: [instance, mapped_at, data]);

/// `cls::rbd::MirrorImageSiteStatus`: how one cluster's copy is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SiteStatus {
    /// Empty for the cluster that holds this.
    pub mirror_uuid: Bytes,
    pub state: u8,
    pub description: Bytes,
    pub last_update: WallTime,
    pub up: bool,
}

impl Default for SiteStatus {
    fn default() -> SiteStatus {
        SiteStatus {
            mirror_uuid: Bytes::new(),
            state: status_state::UNKNOWN,
            description: Bytes::new(),
            last_update: NEVER,
            up: false,
        }
    }
}

impl SiteStatus {
    pub fn is_local(&self) -> bool {
        self.mirror_uuid.is_empty()
    }

    /// The fields; version 1 leaves out the site.
    fn encode_fields(&self, version: u8, e: &mut Encoder) {
        if version >= 2 {
            e.put(&self.mirror_uuid);
        }
        e.u8(self.state);
        e.put(&self.description);
        e.put(&self.last_update);
        e.bool(self.up);
    }
}

impl Encode for SiteStatus {
    fn encode(&self, e: &mut Encoder) {
        let version = if self.is_local() { 1 } else { 2 };
        e.versioned(version, version, |e| self.encode_fields(version, e));
    }
}

impl Decode for SiteStatus {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<SiteStatus, DecodeError> {
        d.versioned("MirrorImageSiteStatus", 2, |d, version| {
            Ok(SiteStatus {
                mirror_uuid: if version >= 2 { d.get()? } else { Bytes::new() },
                state: d.get()?,
                description: d.get()?,
                last_update: d.get()?,
                up: d.get()?,
            })
        })
    }
}

/// `entity_inst_t` as the class keeps it: the address's type says nothing about
/// who it is, so it is always "any".
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    pub name: EntityName,
    addr: EntityAddr,
}

impl Instance {
    pub fn new(name: EntityName, addr: EntityAddr) -> Instance {
        Instance { name, addr: addr.with_kind(AddrType::Any) }
    }
}

impl Encode for Instance {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.name);
        e.put(&self.addr);
    }
}

impl Decode for Instance {
    const MIN_LEN: usize = 10;
    fn decode(d: &mut Decoder) -> Result<Instance, DecodeError> {
        Ok(Instance::new(d.get()?, d.get()?))
    }
}

/// `cls::rbd::MirrorImageSiteStatusOnDisk`: a status, and who reported it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredStatus {
    pub origin: Instance,
    pub status: SiteStatus,
}

impl Encode for StoredStatus {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| e.put(&self.origin));
        e.put(&self.status);
    }
}

impl Decode for StoredStatus {
    const MIN_LEN: usize = 12;
    fn decode(d: &mut Decoder) -> Result<StoredStatus, DecodeError> {
        let origin = d.versioned("MirrorImageSiteStatusOnDisk", 1, |d, _| d.get())?;
        Ok(StoredStatus { origin, status: d.get()? })
    }
}

/// `cls::rbd::MirrorImageStatus`: what all clusters reported about an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ImageStatus {
    pub sites: Vec<SiteStatus>,
}

impl ImageStatus {
    pub fn local(&self) -> Option<&SiteStatus> {
        self.sites.iter().find(|site| site.is_local())
    }

    pub fn remotes(&self) -> impl Iterator<Item = &SiteStatus> {
        self.sites.iter().filter(|site| !site.is_local())
    }
}

impl Encode for ImageStatus {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            let local = self.local();
            local.unwrap_or(&SiteStatus::default()).encode_fields(1, e);
            e.bool(local.is_some());
            e.count(self.remotes().count());
            for site in self.remotes() {
                site.encode_fields(2, e);
            }
        });
    }
}
