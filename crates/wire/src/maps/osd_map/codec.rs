//! The two sections of an OSDMap and the checksum over them.
//!
//! Source: Ceph 16.2.15, src/osd/OSDMap.cc (`OSDMap::encode`, `decode`).
//! WIRE: maps#osdmap

use super::{OsdMap, StretchMode};
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::features::Features;
use base::ceph_crc32c;

const VERSION: u8 = 8;
const COMPAT: u8 = 7;
const CLIENT_VERSION: u8 = 9;
const OSD_VERSION: u8 = 9;
const OSD_VERSION_STRETCH: u8 = 10;
const OSD_VERSION_RANGE_BLOCKLIST: u8 = 11;
const CRC_LEN: usize = 4;
pub(in crate::maps) const CRC_SEED: u32 = 0xffff_ffff;

/// The form for peers with all of [`crate::maps::REQUIRED_FEATURES`], whatever
/// the encoder's features say.
impl Encode for OsdMap {
    fn encode(&self, e: &mut Encoder) {
        let start = e.len();
        e.versioned(VERSION, COMPAT, |e| {
            e.versioned(CLIENT_VERSION, 1, |e| self.encode_client_section(e));
            e.versioned(self.osd_section_version(), 1, |e| self.encode_osd_section(e));
            e.u32(0);
        });
        // The checksum covers the final length in the header too.
        let at = e.len() - CRC_LEN;
        let crc = ceph_crc32c(CRC_SEED, &e.as_slice()[start..at]);
        e.patch_u32(at, crc);
    }
}

impl OsdMap {
    /// The checksum that this map has when encoded.
    pub fn crc(&self) -> u32 {
        let bytes = self.to_bytes(Features::PACIFIC);
        bytes.last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc))
    }

    fn osd_section_version(&self) -> u8 {
        if !self.range_blocklist.is_empty() {
            OSD_VERSION_RANGE_BLOCKLIST
        } else if self.stretch_mode.is_some_and(|s| s.enabled) {
            OSD_VERSION_STRETCH
        } else {
            OSD_VERSION
        }
    }

    fn encode_client_section(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.epoch);
        e.put(&self.created);
        e.put(&self.modified);
        e.put(&self.pools);
        e.put(&self.pool_names);
        e.i32(self.pool_max);
        e.put(&self.flags);
        e.i32(self.max_osd);
        e.put(&self.osd_state);
        e.put(&self.osd_weight);
        e.put(&self.client_addrs);
        e.put(&self.pg_temp);
        e.put(&self.primary_temp);
        e.put(&self.primary_affinity);
        e.put(&self.crush);
        e.put(&self.erasure_code_profiles);
        e.put(&self.pg_upmap);
        e.put(&self.pg_upmap_items);
        e.i32(self.crush_version);
        e.put(&self.new_removed_snaps);
        e.put(&self.new_purged_snaps);
        e.put(&self.last_up_change);
        e.put(&self.last_in_change);
    }

    fn encode_osd_section(&self, e: &mut Encoder) {
        let version = self.osd_section_version();
        e.put(&self.hb_back_addrs);
        e.put(&self.osd_info);
        e.put(&self.blocklist);
        e.put(&self.cluster_addrs);
        e.put(&self.cluster_snapshot_epoch);
        e.string(&self.cluster_snapshot);
        e.put(&self.osd_uuid);
        e.put(&self.osd_xinfo);
        e.put(&self.hb_front_addrs);
        e.f32(self.nearfull_ratio);
        e.f32(self.full_ratio);
        e.f32(self.backfillfull_ratio);
        e.put(&self.require_min_compat_client);
        e.put(&self.require_osd_release);
        e.put(&self.removed_snaps_queue);
        e.put(&self.crush_node_flags);
        e.put(&self.device_class_flags);
        if version >= OSD_VERSION_STRETCH {
            e.put(&self.stretch_mode.unwrap_or_default());
        }
        if version >= OSD_VERSION_RANGE_BLOCKLIST {
            e.put(&self.range_blocklist);
        }
    }

    fn decode_client_section(&mut self, d: &mut Decoder) -> Result<()> {
        self.fsid = d.get()?;
        self.epoch = d.get()?;
        self.created = d.get()?;
        self.modified = d.get()?;
        self.pools = d.get()?;
        self.pool_names = d.get()?;
        self.pool_max = d.i32()?;
        self.flags = d.get()?;
        self.max_osd = d.i32()?;
        self.osd_state = d.get()?;
        self.osd_weight = d.get()?;
        self.client_addrs = d.get()?;
        self.pg_temp = d.get()?;
        self.primary_temp = d.get()?;
        self.primary_affinity = d.get()?;
        self.crush = d.get()?;
        self.erasure_code_profiles = d.get()?;
        self.pg_upmap = d.get()?;
        self.pg_upmap_items = d.get()?;
        self.crush_version = d.i32()?;
        self.new_removed_snaps = d.get()?;
        self.new_purged_snaps = d.get()?;
        self.last_up_change = d.get()?;
        self.last_in_change = d.get()?;
        Ok(())
    }

    fn decode_osd_section(&mut self, d: &mut Decoder, version: u8) -> Result<()> {
        self.hb_back_addrs = d.get()?;
        self.osd_info = d.get()?;
        self.blocklist = d.get()?;
        self.cluster_addrs = d.get()?;
        self.cluster_snapshot_epoch = d.get()?;
        self.cluster_snapshot = d.string()?;
        self.osd_uuid = d.get()?;
        self.osd_xinfo = d.get()?;
        self.hb_front_addrs = d.get()?;
        self.nearfull_ratio = d.f32()?;
        self.full_ratio = d.f32()?;
        self.backfillfull_ratio = d.f32()?;
        self.require_min_compat_client = d.get()?;
        self.require_osd_release = d.get()?;
        self.removed_snaps_queue = d.get()?;
        self.crush_node_flags = d.get()?;
        self.device_class_flags = d.get()?;
        if version >= OSD_VERSION_STRETCH {
            self.stretch_mode = Some(d.get::<StretchMode>()?).filter(|s| *s != StretchMode::default());
        }
        if version >= OSD_VERSION_RANGE_BLOCKLIST {
            self.range_blocklist = d.get()?;
        }
        Ok(())
    }

    /// Every per-OSD vector must have the length that `max_osd` announces.
    fn check_shape(&self) -> Result<()> {
        let bad = Err(DecodeError::Invalid { what: "OSDMap: per-OSD vectors do not match max_osd" });
        if self.max_osd > Self::OSDS_MAX {
            return Err(DecodeError::Invalid { what: "OSDMap: max_osd beyond the limit" });
        }
        let Ok(n) = usize::try_from(self.max_osd) else { return bad };
        let lens = [
            self.osd_state.len(),
            self.osd_weight.len(),
            self.client_addrs.len(),
            self.cluster_addrs.len(),
            self.hb_back_addrs.len(),
            self.hb_front_addrs.len(),
            self.osd_info.len(),
            self.osd_xinfo.len(),
            self.osd_uuid.len(),
        ];
        let affinities = self.primary_affinity.len();
        if lens.iter().any(|len| *len != n) || (affinities != 0 && affinities != n) {
            return bad;
        }
        Ok(())
    }
}

impl Decode for OsdMap {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let whole = d.rest_bytes();
        d.versioned("OSDMap", VERSION, |d, version| {
            if version < VERSION {
                return Err(DecodeError::TooOld { what: "OSDMap", version, oldest: VERSION });
            }
            let body_len = d.remaining();
            let mut map = OsdMap::default();
            d.versioned("OSDMap client section", CLIENT_VERSION, |d, version| {
                too_old("OSDMap client section", version, CLIENT_VERSION)?;
                map.decode_client_section(d)
            })?;
            d.versioned("OSDMap osd section", OSD_VERSION_RANGE_BLOCKLIST, |d, version| {
                too_old("OSDMap osd section", version, OSD_VERSION)?;
                map.decode_osd_section(d, version)
            })?;
            let crc_at = ENVELOPE_LEN + body_len - d.remaining();
            let expected = d.u32()?;
            // A newer writer's tail is covered as if the checksum were not there.
            let found = ceph_crc32c(ceph_crc32c(CRC_SEED, &whole[..crc_at]), d.rest());
            if found != expected {
                return Err(DecodeError::Checksum { what: "OSDMap", found, expected });
            }
            map.check_shape()?;
            Ok(map)
        })
    }
}

pub(in crate::maps) const ENVELOPE_LEN: usize = 6;

pub(in crate::maps) fn too_old(what: &'static str, version: u8, oldest: u8) -> Result<()> {
    if version < oldest { Err(DecodeError::TooOld { what, version, oldest }) } else { Ok(()) }
}

impl Encode for StretchMode {
    fn encode(&self, e: &mut Encoder) {
        e.bool(self.enabled);
        e.u32(self.bucket_count);
        e.u32(self.degraded);
        e.u32(self.recovering);
        e.i32(self.bucket);
    }
}

impl Decode for StretchMode {
    const MIN_LEN: usize = 17;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(StretchMode {
            enabled: d.bool()?,
            bucket_count: d.u32()?,
            degraded: d.u32()?,
            recovering: d.u32()?,
            bucket: d.i32()?,
        })
    }
}
