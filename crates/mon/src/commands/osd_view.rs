//! What the OSDMap says.

use super::cluster::{counts_json, osd_versions};
use super::status::{osd_summary, osd_summary_text};
use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::serde_bridge::from_serde;
use base::{Errno, Json};
use crush::pg_to_up_acting;
use std::collections::BTreeMap;
use wire::codec::Decode;
use wire::dump;
use wire::features::Features;
use wire::maps::OsdMap;
use wire::types::{Epoch, ObjectLocator, OsdId};

pub const COMMANDS: &[Command] = &[
    Command { signature: "osd stat", access: "osd r", help: "summarize the OSDs", run: osd_stat },
    Command {
        signature: "osd dump name=epoch,type=CephInt,range=0,req=false",
        access: "osd r",
        help: "show the OSD map",
        run: osd_dump,
    },
    Command {
        signature: "osd ls name=epoch,type=CephInt,range=0,req=false",
        access: "osd r",
        help: "list OSD ids",
        run: osd_ls,
    },
    Command {
        signature: "osd info name=id,type=CephOsdName,req=false",
        access: "osd r",
        help: "show an OSD's entry of the map, or all",
        run: osd_info,
    },
    Command {
        signature: "osd find name=id,type=CephOsdName",
        access: "osd r",
        help: "show where an OSD is",
        run: osd_find,
    },
    Command {
        signature: "osd metadata name=id,type=CephOsdName,req=false",
        access: "osd r",
        help: "show what OSDs say of themselves",
        run: osd_metadata,
    },
    Command { signature: "osd versions", access: "osd r", help: "show the OSDs' versions", run: versions },
    Command {
        signature: "osd count-metadata name=property,type=CephString",
        access: "osd r",
        help: "count OSDs by something they say of themselves",
        run: count_metadata,
    },
    Command {
        signature: "osd getmap name=epoch,type=CephInt,range=0,req=false",
        access: "osd r",
        help: "fetch the OSD map's bytes",
        run: getmap,
    },
    Command {
        signature: "osd getcrushmap name=epoch,type=CephInt,range=0,req=false",
        access: "osd r",
        help: "fetch the CRUSH map's bytes",
        run: getcrushmap,
    },
    Command {
        signature: "osd getmaxosd",
        access: "osd r",
        help: "show the bound of OSD ids",
        run: getmaxosd,
    },
    Command {
        signature: "osd map name=pool,type=CephPoolname name=object,type=CephObjectname name=nspace,type=CephString,req=false",
        access: "osd r",
        help: "show where an object is or would be",
        run: osd_map,
    },
    Command { signature: "osd lspools", access: "osd r", help: "list pools", run: lspools },
    Command {
        signature: "osd get-require-min-compat-client",
        access: "osd r",
        help: "show how old clients may be",
        run: min_compat_client,
    },
    Command {
        signature: "osd erasure-code-profile ls",
        access: "osd r",
        help: "list erasure code profiles",
        run: profile_ls,
    },
    Command {
        signature: "osd erasure-code-profile get name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd r",
        help: "show an erasure code profile",
        run: profile_get,
    },
];

/// The epoch that an `epoch` argument names, or the newest.
pub fn map_of_epoch(r: &Request) -> Result<OsdMap, Failure> {
    match r.args.optional_int("epoch")? {
        None | Some(0) => Ok(r.core.osd.map().clone()),
        Some(epoch) => {
            let bytes = full_of_epoch(r, epoch)?;
            OsdMap::from_bytes(bytes, Features::PACIFIC).map_err(|e| Failure::new(Errno::EIO, e.to_string()))
        }
    }
}

fn full_of_epoch(r: &Request, epoch: i64) -> Result<bytes::Bytes, Failure> {
    let found = match u32::try_from(epoch) {
        Ok(epoch) => r.core.osd.full(r.turn.store, Epoch(epoch)),
        Err(_) => Ok(None),
    };
    match found {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => fail(Errno::ENOENT, format!("there is no map for epoch {epoch}")),
        Err(error) => fail(Errno::EIO, error.to_string()),
    }
}

fn osd_stat(r: &mut Request) -> Outcome {
    let text = || format!("{}; epoch: e{}", osd_summary_text(r), r.core.osd.epoch());
    Ok(r.json_or(|| osd_summary(r), text))
}

fn osd_dump(r: &mut Request) -> Outcome {
    let map = map_of_epoch(r)?;
    Ok(r.json_or(|| from_serde(&dump::osd_map(&map)), || dump::osd_map_text(&map)))
}

fn osd_ls(r: &mut Request) -> Outcome {
    let map = map_of_epoch(r)?;
    let ids: Vec<i32> = map.osds().map(|o| o.0).collect();
    Ok(r.json_or(|| Json::array(ids.clone()), || ids.iter().map(|id| format!("{id}\n")).collect()))
}

/// The map's dump has a list of OSDs; these are its entries.
fn osd_entries(map: &OsdMap) -> Vec<Json> {
    match from_serde(&dump::osd_map(map)).get("osds") {
        Some(Json::Array(entries)) => entries.clone(),
        _ => Vec::new(),
    }
}

fn osd_info(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let wanted = r.args.optional_osd("id")?;
    if let Some(osd) = wanted.filter(|osd| !map.exists(*osd)) {
        return fail(Errno::EINVAL, format!("osd.{osd} does not exist"));
    }
    let is_wanted = |entry: &Json| {
        wanted.is_none_or(|osd| match entry.get("osd") {
            Some(Json::Int(id)) => *id == i64::from(osd.0),
            Some(Json::Uint(id)) => i64::try_from(*id) == Ok(i64::from(osd.0)),
            _ => false,
        })
    };
    let json = || {
        let mut entries: Vec<Json> = osd_entries(map).into_iter().filter(is_wanted).collect();
        match (wanted, entries.len()) {
            (Some(_), 1) => entries.remove(0),
            _ => Json::Array(entries),
        }
    };
    let text = || {
        let lines = dump::osd_map_text(map);
        let lines = lines.lines().filter(|line| match wanted {
            Some(osd) => line.starts_with(&format!("osd.{osd} ")),
            None => line.starts_with("osd."),
        });
        lines.map(|line| format!("{line}\n")).collect()
    };
    Ok(r.json_or(json, text))
}

fn existing_osd(r: &Request) -> Result<OsdId, Failure> {
    let osd = r.args.osd("id")?;
    if r.core.osd.map().exists(osd) {
        return Ok(osd);
    }
    fail(Errno::ENOENT, format!("osd.{osd} does not exist"))
}

fn osd_find(r: &mut Request) -> Outcome {
    let osd = existing_osd(r)?;
    let map = r.core.osd.map();
    let addrs = map.client_addrs(osd).cloned().unwrap_or_default();
    let mut json = Json::object()
        .with("osd", osd.0)
        .with("addrs", from_serde(&dump::addrs(&addrs)))
        .with("osd_fsid", map.uuid(osd).unwrap_or_default().to_string());
    if let Some(metadata) = r.core.metadata.get(&osd) {
        for (field, key) in [
            ("host", "hostname"),
            ("pod_name", "pod_name"),
            ("pod_namespace", "pod_namespace"),
            ("container_name", "container_name"),
        ] {
            if let Some(value) = metadata.get(key) {
                json.push(field, value.as_str());
            }
        }
    }
    let mut location: Vec<(String, String)> = r.core.osd.crush().full_location(osd.0);
    location.sort();
    let location = location.into_iter().fold(Json::object(), |json, (kind, name)| json.with(kind, name));
    json.push("crush_location", location);
    Ok(r.json(&json))
}

fn metadata_json(osd: OsdId, metadata: &BTreeMap<String, String>) -> Json {
    metadata
        .iter()
        .fold(Json::object().with("id", osd.0), |json, (key, value)| json.with(key.as_str(), value.as_str()))
}

fn osd_metadata(r: &mut Request) -> Outcome {
    if !r.args.has("id") {
        let known = r.core.osd.map().osds().map(|osd| {
            let metadata = r.core.metadata.get(&osd);
            metadata.map_or_else(|| Json::object().with("id", osd.0), |m| metadata_json(osd, m))
        });
        let json = Json::array(known.collect::<Vec<_>>());
        return Ok(r.json(&json));
    }
    let osd = existing_osd(r)?;
    match r.core.metadata.get(&osd) {
        Some(metadata) => {
            let json = metadata_json(osd, metadata);
            Ok(r.json(&json))
        }
        None => fail(Errno::ENOENT, format!("osd.{osd} has not reported any metadata")),
    }
}

fn versions(r: &mut Request) -> Outcome {
    let json = counts_json(&osd_versions(r));
    Ok(r.json(&json))
}

fn count_metadata(r: &mut Request) -> Outcome {
    let property = r.args.string("property")?;
    let mut counts = BTreeMap::new();
    for osd in r.core.osd.map().osds() {
        let value = r.core.metadata.get(&osd).and_then(|m| m.get(&property));
        *counts.entry(value.cloned().unwrap_or_else(|| "unknown".into())).or_default() += 1;
    }
    let json = counts_json(&counts);
    Ok(r.json(&json))
}

fn getmap(r: &mut Request) -> Outcome {
    let epoch = r.args.optional_int("epoch")?.filter(|e| *e != 0).unwrap_or(i64::from(r.core.osd.epoch().0));
    let bytes = full_of_epoch(r, epoch)?;
    Ok(Reply::bytes(bytes).and_status(format!("got osdmap epoch {epoch}")))
}

fn getcrushmap(r: &mut Request) -> Outcome {
    let map = map_of_epoch(r)?;
    Ok(Reply::bytes(map.crush.clone()).and_status(map.crush_version.to_string()))
}

fn getmaxosd(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    Ok(r.json_or(
        || Json::object().with("epoch", map.epoch.0).with("max_osd", map.max_osd),
        || format!("max_osd = {} in epoch {}", map.max_osd, map.epoch),
    ))
}

/// An OSD set as `[1,0]`.
pub fn set_text(osds: &[OsdId]) -> String {
    let ids: Vec<String> = osds.iter().map(|o| crate::health::osd_text(*o)).collect();
    format!("[{}]", ids.join(","))
}

fn osd_map(r: &mut Request) -> Outcome {
    let name = r.args.string("pool")?;
    let object = r.args.string("object")?;
    let namespace = r.args.optional_string("nspace").unwrap_or_default();
    let map = r.core.osd.map();
    let Some((pool_id, pool)) = map.pool_by_name(&name) else {
        return fail(Errno::ENOENT, format!("pool {name} does not exist"));
    };
    let mut locator = ObjectLocator::pool(pool_id);
    locator.nspace = namespace.as_str().into();
    let hash = wire::maps::placement_hash(&locator, &object);
    let pg = pool.raw_hash_to_pg(pool_id, hash);
    let raw = wire::types::PgId { pool: pool_id, seed: hash };
    let set = pg_to_up_acting(map, r.core.osd.crush(), pg);
    let (up, acting) = (set.up.as_slice().to_vec(), set.acting.as_slice().to_vec());
    let primary = |osd: Option<OsdId>| osd.map_or(-1, |o| o.0);
    let (up_primary, acting_primary) = (primary(set.up_primary), primary(set.acting_primary));
    let full_name = if namespace.is_empty() { object.clone() } else { format!("{namespace}/{object}") };
    let json = || {
        let mut json = Json::object()
            .with("epoch", map.epoch.0)
            .with("pool", name.as_str())
            .with("pool_id", pool_id.0)
            .with("objname", full_name.as_str())
            .with("raw_pgid", raw.to_string())
            .with("pgid", pg.to_string());
        json.push("up", Json::array(up.iter().map(|o| o.0)));
        json.push("up_primary", up_primary);
        json.push("acting", Json::array(acting.iter().map(|o| o.0)));
        json.push("acting_primary", acting_primary);
        json
    };
    let text = || {
        format!(
            "osdmap e{} pool '{name}' ({pool_id}) object '{full_name}' -> pg {raw} ({pg}) -> up ({}, p{up_primary}) acting ({}, p{acting_primary})",
            map.epoch,
            set_text(&up),
            set_text(&acting)
        )
    };
    Ok(r.json_or(json, text))
}

fn lspools(r: &mut Request) -> Outcome {
    let names = &r.core.osd.map().pool_names;
    let json = || {
        Json::array(
            names
                .iter()
                .map(|(id, name)| Json::object().with("poolnum", id.0).with("poolname", name.as_str())),
        )
    };
    let text = || names.iter().map(|(id, name)| format!("{id} {name}\n")).collect();
    Ok(r.json_or(json, text))
}

fn min_compat_client(r: &mut Request) -> Outcome {
    let release = r.core.osd.map().require_min_compat_client;
    Ok(Reply::text(format!("{release}\n")))
}

fn profile_ls(r: &mut Request) -> Outcome {
    let profiles = &r.core.osd.map().erasure_code_profiles;
    Ok(r.json_or(
        || Json::array(profiles.keys().map(String::as_str)),
        || profiles.keys().map(|name| format!("{name}\n")).collect(),
    ))
}

fn profile_get(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let Some(profile) = r.core.osd.map().erasure_code_profiles.get(&name) else {
        return fail(Errno::ENOENT, format!("unknown erasure code profile '{name}'"));
    };
    Ok(r.json_or(
        || profile.iter().fold(Json::object(), |json, (key, value)| json.with(key.as_str(), value.as_str())),
        || profile.iter().map(|(key, value)| format!("{key}={value}\n")).collect(),
    ))
}
