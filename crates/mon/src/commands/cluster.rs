//! The cluster as a whole: identity, versions, members.

use super::{Command, Outcome, Reply, Request, fail};
use crate::fs_maps;
use base::{Errno, Json, WallTime};
use std::collections::BTreeMap;
use wire::types::EntityType;

pub const COMMANDS: &[Command] = &[
    Command { signature: "fsid", access: "mon r", help: "show the cluster's id", run: fsid },
    Command { signature: "versions", access: "mon r", help: "show the daemons' versions", run: versions },
    Command {
        signature: "features",
        access: "mon r",
        help: "show what connected peers can do",
        run: features,
    },
    Command {
        signature: "time-sync-status",
        access: "mon r",
        help: "show how well the monitors' clocks agree",
        run: time_sync_status,
    },
    Command {
        signature: "node ls name=type,type=CephChoices,strings=all|osd|mon|mds|mgr,req=false",
        access: "mon r",
        help: "list daemons by host",
        run: node_ls,
    },
    Command {
        signature: "report name=tags,type=CephString,req=false,n=N",
        access: "mon r",
        help: "report the cluster's whole state",
        run: report,
    },
    Command {
        signature: "service dump",
        access: "service r",
        help: "dump the service map",
        run: service_dump,
    },
    Command { signature: "service status", access: "service r", help: "show services", run: service_status },
    Command { signature: "fs ls", access: "fs r", help: "list file systems", run: fs_ls },
    Command {
        signature: "fs dump name=epoch,type=CephInt,range=0,req=false",
        access: "mds r",
        help: "dump the file systems' map",
        run: fs_dump,
    },
    Command { signature: "mds stat", access: "mds r", help: "show the metadata servers", run: mds_stat },
];

/// In the form that tools parse: the Ceph release spoken, and who speaks it.
pub fn own_version() -> String {
    format!("ceph version 16.2.15 (loligo {}) pacific (stable)", env!("CARGO_PKG_VERSION"))
}

fn fsid(r: &mut Request) -> Outcome {
    let fsid = r.core.fsid.to_string();
    Ok(r.json_or(|| Json::object().with("fsid", fsid.as_str()), || fsid.clone()))
}

pub fn osd_versions(r: &Request) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for osd in r.core.osd.map().osds().filter(|osd| r.core.osd.map().is_up(*osd)) {
        let said = r.core.metadata.get(&osd).and_then(|m| m.get("ceph_version").or_else(|| m.get("version")));
        *counts.entry(said.cloned().unwrap_or_else(own_version)).or_default() += 1;
    }
    counts
}

pub fn counts_json(counts: &BTreeMap<String, usize>) -> Json {
    let mut json = Json::object();
    for (what, count) in counts {
        json.push(what.as_str(), *count);
    }
    json
}

fn versions(r: &mut Request) -> Outcome {
    let mons = BTreeMap::from([(own_version(), r.core.mon_map.ranks.len())]);
    let osds = osd_versions(r);
    let mut overall = mons.clone();
    for (version, count) in &osds {
        *overall.entry(version.clone()).or_default() += count;
    }
    let json = Json::object()
        .with("mon", counts_json(&mons))
        .with("mgr", Json::object())
        .with("osd", counts_json(&osds))
        .with("mds", Json::object())
        .with("overall", counts_json(&overall));
    Ok(r.json(&json))
}

fn features(r: &mut Request) -> Outcome {
    let mut groups: BTreeMap<(EntityType, u64), usize> = BTreeMap::new();
    *groups.entry((EntityType::Mon, wire::Features::PACIFIC.0)).or_default() += 1;
    for session in r.core.sessions.values() {
        *groups.entry((session.peer.name.kind, session.peer.features.0)).or_default() += 1;
    }
    let mut json = Json::object();
    for kind in [EntityType::Mon, EntityType::Mds, EntityType::Osd, EntityType::Client, EntityType::Mgr] {
        let group: Vec<Json> = (groups.iter().filter(|((k, _), _)| *k == kind))
            .map(|((_, features), count)| {
                Json::object()
                    .with("features", format!("{features:#x}"))
                    .with("release", "luminous")
                    .with("num", *count)
            })
            .collect();
        if !group.is_empty() {
            json.push(kind.name(), Json::Array(group));
        }
    }
    Ok(r.json(&json))
}

fn time_sync_status(r: &mut Request) -> Outcome {
    let checks = Json::object()
        .with("epoch", super::mon::ELECTION_EPOCH)
        .with("round", 0)
        .with("round_status", "finished");
    let json = Json::object().with("timechecks", checks);
    Ok(r.json(&json))
}

fn node_ls(r: &mut Request) -> Outcome {
    let wanted = r.args.optional_string("type").unwrap_or_else(|| "all".into());
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for osd in r.core.osd.map().osds() {
        let host = r.core.metadata.get(&osd).and_then(|m| m.get("hostname")).cloned().unwrap_or_default();
        osds.entry(host).or_default().push(osd.0);
    }
    let mut osd_json = Json::object();
    // A single machine's monitor runs where its OSDs do; the core knows no host name of its own.
    let host = osds.keys().next().cloned().unwrap_or_else(|| "localhost".into());
    for (host, ids) in osds {
        osd_json.push(host, ids);
    }
    let mon_json = Json::object().with(host, Json::array([r.core.name.as_str()]));
    let json = match wanted.as_str() {
        "all" => Json::object().with("mon", mon_json).with("osd", osd_json),
        "mon" => mon_json,
        "osd" => osd_json,
        _ => Json::object(),
    };
    Ok(r.json(&json))
}

fn report(_: &mut Request) -> Outcome {
    fail(Errno::EOPNOTSUPP, "report: not supported; see status, osd dump, pg dump, mon dump")
}

fn service_dump(r: &mut Request) -> Outcome {
    let json = Json::object()
        .with("epoch", 0)
        .with("modified", crate::format::time::stamp(WallTime::ZERO))
        .with("services", Json::object());
    Ok(r.json(&json))
}

fn service_status(r: &mut Request) -> Outcome {
    Ok(r.json(&Json::object()))
}

fn fs_ls(r: &mut Request) -> Outcome {
    Ok(r.json_or(|| Json::Array(vec![]), || "No filesystems enabled\n".into()))
}

fn fs_map_json() -> Json {
    let mut incompat = Json::object();
    for (id, name) in fs_maps::DEFAULT_INCOMPAT {
        incompat.push(format!("feature_{id}"), name);
    }
    let compat = Json::object()
        .with("compat", Json::object())
        .with("ro_compat", Json::object())
        .with("incompat", incompat);
    let flags = Json::object().with("enable_multiple", true).with("ever_enabled_multiple", true);
    Json::object()
        .with("epoch", fs_maps::FS_MAP_EPOCH)
        .with("default_fscid", -1)
        .with("compat", compat)
        .with("feature_flags", flags)
        .with("standbys", Json::Array(vec![]))
        .with("filesystems", Json::Array(vec![]))
}

fn fs_dump(r: &mut Request) -> Outcome {
    let epoch = fs_maps::FS_MAP_EPOCH;
    let incompat: Vec<String> =
        fs_maps::DEFAULT_INCOMPAT.iter().map(|(id, name)| format!("{id}={name}")).collect();
    let incompat = incompat.join(",");
    let reply = r.json_or(fs_map_json, || {
        format!("e{epoch}\nenable_multiple, ever_enabled_multiple: 1,1\ndefault compat: compat={{}},rocompat={{}},incompat={{{incompat}}}\nlegacy client fscid: -1\n \nNo filesystems configured\n")
    });
    Ok(reply.and_status(format!("dumped fsmap epoch {epoch}")))
}

fn mds_stat(r: &mut Request) -> Outcome {
    if !r.format.is_json() {
        return Ok(Reply::default());
    }
    let json = Json::object()
        .with("fsmap", fs_map_json())
        .with("mdsmap_first_committed", fs_maps::FS_MAP_EPOCH)
        .with("mdsmap_last_committed", fs_maps::FS_MAP_EPOCH);
    Ok(r.json(&json))
}
