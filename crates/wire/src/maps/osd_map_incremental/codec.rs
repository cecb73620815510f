//! Source: Ceph 16.2.15, src/osd/OSDMap.cc (`OSDMap::Incremental::encode`,
//! `decode`). WIRE: maps#incremental

use super::OsdMapIncremental;
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::features::Features;
use crate::maps::osd_map::codec::{CRC_SEED, ENVELOPE_LEN, too_old};
use crate::maps::{OsdMapFlags, StretchMode};
use crate::types::{Epoch, Uuid};
use base::ceph_crc32c;

const VERSION: u8 = 8;
const COMPAT: u8 = 7;
const CLIENT_VERSION: u8 = 8;
const OSD_VERSION: u8 = 9;
const OSD_VERSION_STRETCH: u8 = 10;
const OSD_VERSION_RANGE_BLOCKLIST: u8 = 11;
const UNCHANGED_FLAGS: u32 = u32::MAX;

/// The form for peers with all of [`crate::maps::REQUIRED_FEATURES`], whatever
/// the encoder's features say.
impl Encode for OsdMapIncremental {
    fn encode(&self, e: &mut Encoder) {
        let start = e.len();
        e.versioned(VERSION, COMPAT, |e| {
            e.versioned(CLIENT_VERSION, 1, |e| self.encode_client_section(e));
            e.versioned(self.osd_section_version(), 1, |e| self.encode_osd_section(e));
            e.u32(0);
            e.u32(self.full_crc);
        });
        // The checksum skips itself, and covers the final length in the header.
        let at = e.len() - 8;
        let head = ceph_crc32c(CRC_SEED, &e.as_slice()[start..at]);
        let crc = ceph_crc32c(head, &e.as_slice()[at + 4..]);
        e.patch_u32(at, crc);
    }
}

impl OsdMapIncremental {
    fn osd_section_version(&self) -> u8 {
        if !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty() {
            OSD_VERSION_RANGE_BLOCKLIST
        } else if self.new_stretch_mode.is_some() {
            OSD_VERSION_STRETCH
        } else {
            OSD_VERSION
        }
    }

    fn encode_client_section(&self, e: &mut Encoder) {
        e.put(&self.fsid);
        e.put(&self.epoch);
        e.put(&self.modified);
        e.i64(self.new_pool_max);
        e.u32(self.new_flags.map_or(UNCHANGED_FLAGS, |f| f.0));
        e.put(&self.fullmap);
        e.put(&self.crush);
        e.i32(self.new_max_osd);
        e.put(&self.new_pools);
        e.put(&self.new_pool_names);
        e.put(&self.old_pools);
        e.put(&self.new_up_client);
        e.put(&self.new_state);
        e.put(&self.new_weight);
        e.put(&self.new_pg_temp);
        e.put(&self.new_primary_temp);
        e.put(&self.new_primary_affinity);
        e.put(&self.new_erasure_code_profiles);
        e.put(&self.old_erasure_code_profiles);
        e.put(&self.new_pg_upmap);
        e.put(&self.old_pg_upmap);
        e.put(&self.new_pg_upmap_items);
        e.put(&self.old_pg_upmap_items);
        e.put(&self.new_removed_snaps);
        e.put(&self.new_purged_snaps);
        e.put(&self.new_last_up_change);
        e.put(&self.new_last_in_change);
    }

    fn encode_osd_section(&self, e: &mut Encoder) {
        let version = self.osd_section_version();
        e.put(&self.new_hb_back_up);
        e.put(&self.new_up_thru);
        e.put(&self.new_last_clean_interval);
        e.put(&self.new_lost);
        e.put(&self.new_blocklist);
        e.put(&self.old_blocklist);
        e.put(&self.new_up_cluster);
        e.string(&self.cluster_snapshot);
        e.put(&self.new_uuid);
        e.put(&self.new_xinfo);
        e.put(&self.new_hb_front_up);
        e.u64(self.encode_features.0);
        e.f32(self.new_nearfull_ratio);
        e.f32(self.new_full_ratio);
        e.f32(self.new_backfillfull_ratio);
        e.put(&self.new_require_min_compat_client);
        e.put(&self.new_require_osd_release);
        e.put(&self.new_crush_node_flags);
        e.put(&self.new_device_class_flags);
        if version >= OSD_VERSION_STRETCH {
            let stretch = self.new_stretch_mode.unwrap_or_default();
            e.bool(self.new_stretch_mode.is_some());
            e.u32(stretch.bucket_count);
            e.u32(stretch.degraded);
            e.u32(stretch.recovering);
            e.i32(stretch.bucket);
            e.bool(stretch.enabled);
        }
        if version >= OSD_VERSION_RANGE_BLOCKLIST {
            e.put(&self.new_range_blocklist);
            e.put(&self.old_range_blocklist);
        }
    }

    fn decode_client_section(&mut self, d: &mut Decoder) -> Result<()> {
        self.fsid = d.get()?;
        self.epoch = d.get()?;
        self.modified = d.get()?;
        self.new_pool_max = d.i64()?;
        // Ceph reads a signed number: any negative one means unchanged.
        self.new_flags = Some(d.u32()?).filter(|f| *f <= i32::MAX as u32).map(OsdMapFlags);
        self.fullmap = d.get()?;
        self.crush = d.get()?;
        self.new_max_osd = d.i32()?;
        self.new_pools = d.get()?;
        self.new_pool_names = d.get()?;
        self.old_pools = d.get()?;
        self.new_up_client = d.get()?;
        self.new_state = d.get()?;
        self.new_weight = d.get()?;
        self.new_pg_temp = d.get()?;
        self.new_primary_temp = d.get()?;
        self.new_primary_affinity = d.get()?;
        self.new_erasure_code_profiles = d.get()?;
        self.old_erasure_code_profiles = d.get()?;
        self.new_pg_upmap = d.get()?;
        self.old_pg_upmap = d.get()?;
        self.new_pg_upmap_items = d.get()?;
        self.old_pg_upmap_items = d.get()?;
        self.new_removed_snaps = d.get()?;
        self.new_purged_snaps = d.get()?;
        self.new_last_up_change = d.get()?;
        self.new_last_in_change = d.get()?;
        Ok(())
    }

    fn decode_osd_section(&mut self, d: &mut Decoder, version: u8) -> Result<()> {
        self.new_hb_back_up = d.get()?;
        self.new_up_thru = d.get()?;
        self.new_last_clean_interval = d.get()?;
        self.new_lost = d.get()?;
        self.new_blocklist = d.get()?;
        self.old_blocklist = d.get()?;
        self.new_up_cluster = d.get()?;
        self.cluster_snapshot = d.string()?;
        self.new_uuid = d.get()?;
        self.new_xinfo = d.get()?;
        self.new_hb_front_up = d.get()?;
        self.encode_features = Features(d.u64()?);
        self.new_nearfull_ratio = d.f32()?;
        self.new_full_ratio = d.f32()?;
        self.new_backfillfull_ratio = d.f32()?;
        self.new_require_min_compat_client = d.get()?;
        self.new_require_osd_release = d.get()?;
        self.new_crush_node_flags = d.get()?;
        self.new_device_class_flags = d.get()?;
        if version >= OSD_VERSION_STRETCH {
            let changed = d.bool()?;
            let mut stretch = StretchMode {
                enabled: false,
                bucket_count: d.u32()?,
                degraded: d.u32()?,
                recovering: d.u32()?,
                bucket: d.i32()?,
            };
            stretch.enabled = d.bool()?;
            self.new_stretch_mode = changed.then_some(stretch);
        }
        if version >= OSD_VERSION_RANGE_BLOCKLIST {
            self.new_range_blocklist = d.get()?;
            self.old_range_blocklist = d.get()?;
        }
        Ok(())
    }
}

impl Decode for OsdMapIncremental {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let whole = d.rest_bytes();
        d.versioned("OSDMap::Incremental", VERSION, |d, version| {
            if version < VERSION {
                return Err(DecodeError::TooOld { what: "OSDMap::Incremental", version, oldest: VERSION });
            }
            let body_len = d.remaining();
            let mut inc = OsdMapIncremental::new(Uuid::ZERO, Epoch(0));
            d.versioned("OSDMap::Incremental client section", CLIENT_VERSION, |d, version| {
                too_old("OSDMap::Incremental client section", version, CLIENT_VERSION)?;
                inc.decode_client_section(d)
            })?;
            d.versioned("OSDMap::Incremental osd section", OSD_VERSION_RANGE_BLOCKLIST, |d, version| {
                too_old("OSDMap::Incremental osd section", version, OSD_VERSION)?;
                inc.decode_osd_section(d, version)
            })?;
            let crc_at = ENVELOPE_LEN + body_len - d.remaining();
            let expected = d.u32()?;
            let found = ceph_crc32c(ceph_crc32c(CRC_SEED, &whole[..crc_at]), d.rest());
            inc.full_crc = d.u32()?;
            if found != expected {
                return Err(DecodeError::Checksum { what: "OSDMap::Incremental", found, expected });
            }
            Ok(inc)
        })
    }
}
