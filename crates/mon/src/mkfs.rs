//! The first state of a new cluster.

use crate::osd_maps::OsdMaps;
use crate::{Batch, MkfsOptions, MonError, keys};
use bytes::Bytes;
use crush::CrushMap;
use wire::codec::Encode;
use wire::features::Features;
use wire::maps::{ErasureCodeProfile, MonInfo, MonMap, OsdMap, OsdMapFlags, Release};
use wire::types::Epoch;

/// Ceph's first global id after those of the monitors themselves.
pub const FIRST_GLOBAL_ID: u64 = 4100;

/// Everything that [`crate::Mon::open`] expects to find.
pub fn first_batch(options: &MkfsOptions) -> Result<Batch, MonError> {
    if options.name.is_empty() || options.addrs.0.is_empty() {
        return Err(MonError::Invalid("a monitor needs a name and an address".into()));
    }
    let mut batch = Batch::default();
    batch.put(keys::FORMAT, keys::FORMAT_VERSION.to_bytes(Features::ALL));
    batch.put(keys::MON_NAME, options.name.to_bytes(Features::ALL));
    batch.put(keys::GLOBAL_ID, FIRST_GLOBAL_ID.to_bytes(Features::ALL));
    batch.put(keys::MON_MAP, first_mon_map(options).to_bytes(Features::PACIFIC));
    let crush = CrushMap::new_cluster(options.failure_domain);
    let map = first_osd_map(options, crush.encode());
    OsdMaps::begin(map, crush, &mut batch);
    let defaults = [
        ("osd_pool_default_size", options.pool_size.to_string()),
        ("osd_pool_default_min_size", options.pool_min_size.to_string()),
        ("osd_pool_default_pg_num", options.pool_pg_num.to_string()),
    ];
    for (name, value) in defaults {
        batch.put(format!("{}mon/{name}", keys::CONFIG), Bytes::from(value));
    }
    for (name, value) in options.config.clone() {
        batch.put(format!("{}global/{name}", keys::CONFIG), Bytes::from(value));
    }
    Ok(batch)
}

fn first_mon_map(options: &MkfsOptions) -> MonMap {
    let info =
        MonInfo { name: options.name.clone(), public_addrs: options.addrs.clone(), ..MonInfo::default() };
    MonMap {
        fsid: options.fsid,
        epoch: 1,
        last_changed: options.created,
        created: options.created,
        mon_info: [(options.name.clone(), info)].into(),
        ranks: vec![options.name.clone()],
        ..MonMap::default()
    }
}

fn first_osd_map(options: &MkfsOptions, crush: Bytes) -> OsdMap {
    let profile = [("k", "2"), ("m", "2"), ("plugin", "jerasure"), ("technique", "reed_sol_van")];
    let profile: ErasureCodeProfile =
        profile.into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    OsdMap {
        fsid: options.fsid,
        epoch: Epoch(1),
        created: options.created,
        modified: options.created,
        flags: OsdMapFlags::FRESH,
        crush,
        erasure_code_profiles: [("default".to_string(), profile)].into(),
        nearfull_ratio: 0.85,
        backfillfull_ratio: 0.90,
        full_ratio: 0.95,
        require_min_compat_client: Release::LUMINOUS,
        require_osd_release: Release::PACIFIC,
        ..OsdMap::default()
    }
}
