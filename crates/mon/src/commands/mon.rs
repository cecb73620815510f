//! Monitors.

use super::cluster::{counts_json, own_version};
use super::{Command, Outcome, Reply, Request, fail};
use crate::core::Core;
use crate::serde_bridge::from_serde;
use base::{Errno, Json};
use std::collections::BTreeMap;
use wire::codec::Encode;
use wire::dump;
use wire::features::Features;
use wire::maps::MonMap;

/// A monitor alone has won its election once; odd numbers mean a quorum is in office.
pub const ELECTION_EPOCH: u32 = 3;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "mon dump name=epoch,type=CephInt,range=0,req=false",
        access: "mon r",
        help: "show the monitor map",
        run: mon_dump,
    },
    Command { signature: "mon stat", access: "mon r", help: "summarize the monitors", run: mon_stat },
    Command {
        signature: "mon getmap name=epoch,type=CephInt,range=0,req=false",
        access: "mon r",
        help: "fetch the monitor map's bytes",
        run: mon_getmap,
    },
    Command {
        signature: "mon metadata name=id,type=CephString,req=false",
        access: "mon r",
        help: "show what monitors say of themselves",
        run: mon_metadata,
    },
    Command {
        signature: "mon versions",
        access: "mon r",
        help: "show the monitors' versions",
        run: mon_versions,
    },
    Command { signature: "quorum_status", access: "mon r", help: "show the quorum", run: quorum_status },
    Command {
        signature: "mon feature ls name=with_value,type=CephChoices,strings=--with-value,req=false",
        access: "mon r",
        help: "list the monitor map's features",
        run: mon_feature_ls,
    },
];

pub fn quorum_age(r: &Request) -> u64 {
    r.core.started.map_or(0, |at| r.turn.now.since(at).as_secs())
}

/// The dump, without the quorum that `mon dump` appends.
pub fn monmap_json(core: &Core) -> Json {
    let mut json = from_serde(&dump::mon_map(&core.mon_map, &[0]));
    if let Json::Object(fields) = &mut json {
        fields.retain(|(key, _)| key != "quorum");
    }
    json
}

/// There is only one version of the map yet.
fn check_epoch(r: &Request) -> Result<(), super::Failure> {
    match r.args.optional_int("epoch")? {
        Some(epoch) if epoch != 0 && epoch != i64::from(r.core.mon_map.epoch) => {
            fail(Errno::ENOENT, format!("there is no map for epoch {epoch}"))
        }
        _ => Ok(()),
    }
}

fn mon_dump(r: &mut Request) -> Outcome {
    check_epoch(r)?;
    let map = &r.core.mon_map;
    let reply = r.json_or(|| from_serde(&dump::mon_map(map, &[0])), || dump::mon_map_text(map));
    Ok(reply.and_status(format!("dumped monmap epoch {}", map.epoch)))
}

fn mon_stat(r: &mut Request) -> Outcome {
    let map = &r.core.mon_map;
    let leader = &r.core.name;
    let json = || {
        let quorum = Json::object().with("rank", 0).with("name", leader.as_str());
        Json::object()
            .with("epoch", map.epoch)
            .with("min_mon_release_name", map.min_mon_release.name())
            .with("num_mons", map.ranks.len())
            .with("leader", leader.as_str())
            .with("quorum", Json::array([quorum]))
    };
    let text = || {
        let mons: Vec<String> = (map.mon_info.iter())
            .map(|(name, info)| format!("{name}={}", dump::addrs_text(&info.public_addrs)))
            .collect();
        format!(
            "e{}: {} mons at {{{}}} removed_ranks: {{}}, election epoch {ELECTION_EPOCH}, leader 0 {leader}, quorum 0 {leader}",
            map.epoch,
            map.ranks.len(),
            mons.join(",")
        )
    };
    Ok(r.json_or(json, text))
}

fn mon_getmap(r: &mut Request) -> Outcome {
    check_epoch(r)?;
    let map = &r.core.mon_map;
    Ok(Reply::bytes(map.to_bytes(Features::PACIFIC)).and_status(format!("got monmap epoch {}", map.epoch)))
}

fn mon_metadata(r: &mut Request) -> Outcome {
    let one = |name: &str, map: &MonMap| {
        let addrs = map.mon_info.get(name).map(|i| dump::addrs_text(&i.public_addrs)).unwrap_or_default();
        Json::object()
            .with("name", name)
            .with("addrs", addrs)
            .with("arch", std::env::consts::ARCH)
            .with("ceph_release", "pacific")
            .with("ceph_version", own_version())
            .with("ceph_version_short", env!("CARGO_PKG_VERSION"))
            .with("os", std::env::consts::OS)
    };
    let map = &r.core.mon_map;
    let json = match r.args.optional_string("id") {
        Some(id) if !map.mon_info.contains_key(&id) => return fail(Errno::ENOENT, ""),
        Some(id) => one(&id, map),
        None => Json::array(map.ranks.iter().map(|name| one(name, map))),
    };
    Ok(r.json(&json))
}

fn mon_versions(r: &mut Request) -> Outcome {
    let json = counts_json(&BTreeMap::from([(own_version(), r.core.mon_map.ranks.len())]));
    Ok(r.json(&json))
}

fn feature_names() -> Json {
    Json::array(MonMap::FEATURE_NAMES.map(|(_, name)| name))
}

fn quorum_status(r: &mut Request) -> Outcome {
    let features = Json::object()
        .with("quorum_con", Features::PACIFIC.0.to_string())
        .with("quorum_mon", feature_names());
    let json = Json::object()
        .with("election_epoch", ELECTION_EPOCH)
        .with("quorum", Json::array([0]))
        .with("quorum_names", Json::array([r.core.name.as_str()]))
        .with("quorum_leader_name", r.core.name.as_str())
        .with("quorum_age", quorum_age(r))
        .with("features", features)
        .with("monmap", monmap_json(r.core));
    // Plain text has no form of its own here, and Ceph's is not pretty either.
    if r.format.is_json() { Ok(r.json(&json)) } else { Ok(Reply::text(json.compact())) }
}

fn mon_feature_ls(r: &mut Request) -> Outcome {
    let all = || Json::object().with("supported", feature_names()).with("persistent", feature_names());
    let monmap = || {
        Json::object()
            .with("persistent", feature_names())
            .with("optional", Json::Array(vec![]))
            .with("required", feature_names())
    };
    let names = MonMap::FEATURE_NAMES.map(|(_, name)| name).join(",");
    let text = || {
        format!(
            "all features\n\tsupported: [{names}]\n\tpersistent: [{names}]\non current monmap (epoch {})\n\tpersistent: [{names}]\n\trequired: [{names}]\n",
            r.core.mon_map.epoch
        )
    };
    Ok(r.json_or(|| Json::object().with("all", all()).with("monmap", monmap()), text))
}
