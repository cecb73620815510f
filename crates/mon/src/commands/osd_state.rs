//! Changing which OSDs are up and in, and the cluster's flags.

use super::args::parse_osd;
use super::{Command, Failure, Outcome, Reply, Request, fail};
use base::Errno;
use wire::maps::{OsdMap, OsdMapFlags, OsdState};
use wire::messages::LogLevel;
use wire::types::{Epoch, OsdId};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd out name=ids,type=CephString,n=N",
        access: "osd rw",
        help: "take OSDs out of the placement of data",
        run: osd_out,
    },
    Command {
        signature: "osd in name=ids,type=CephString,n=N",
        access: "osd rw",
        help: "take OSDs back in",
        run: osd_in,
    },
    Command {
        signature: "osd down name=ids,type=CephString,n=N name=definitely_dead,type=CephBool,req=false",
        access: "osd rw",
        help: "mark OSDs down; those alive come back",
        run: osd_down,
    },
    Command {
        signature: "osd set name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "set a flag of the cluster",
        run: set_flag,
    },
    Command {
        signature: "osd unset name=key,type=CephChoices,strings=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim",
        access: "osd rw",
        help: "clear a flag of the cluster",
        run: unset_flag,
    },
    Command { signature: "osd pause", access: "osd rw", help: "hold all clients' operations", run: pause },
    Command { signature: "osd unpause", access: "osd rw", help: "let clients go on", run: unpause },
    Command {
        signature: "osd reweight name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        access: "osd rw",
        help: "give an OSD a share of its weight",
        run: reweight,
    },
    Command {
        signature: "osd primary-affinity name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0",
        access: "osd rw",
        help: "set how willing an OSD is to be primary",
        run: primary_affinity,
    },
    Command {
        signature: "osd set-group name=flags,type=CephString name=who,type=CephString,n=N",
        access: "osd rw",
        help: "set flags of single OSDs, CRUSH buckets or device classes",
        run: set_group,
    },
    Command {
        signature: "osd unset-group name=flags,type=CephString name=who,type=CephString,n=N",
        access: "osd rw",
        help: "clear flags of single OSDs, CRUSH buckets or device classes",
        run: unset_group,
    },
];

/// Which of the named OSDs exist, and words on the others.
struct Named {
    osds: Vec<OsdId>,
    status: String,
}

fn named(r: &Request, eligible: impl Fn(&OsdMap, OsdId) -> bool) -> Result<Named, Failure> {
    let map = r.core.osd.map();
    let ids = r.args.strings("ids");
    if ids.iter().any(|id| id == "any" || id == "all" || id == "*") {
        let osds = map.osds().filter(|o| eligible(map, *o)).collect();
        return Ok(Named { osds, status: String::new() });
    }
    let mut named = Named { osds: Vec::new(), status: String::new() };
    for id in &ids {
        let Some(osd) = parse_osd(id) else {
            return fail(Errno::EINVAL, format!("invalid osd id {id}"));
        };
        if map.exists(osd) {
            named.osds.push(osd);
        } else {
            named.status.push_str(&format!("osd.{osd} does not exist. "));
        }
    }
    Ok(named)
}

fn osd_out(r: &mut Request) -> Outcome {
    let mut named = named(r, OsdMap::is_in)?;
    for osd in named.osds {
        if r.core.osd.map().is_out(osd) {
            named.status.push_str(&format!("osd.{osd} is already out. "));
            continue;
        }
        let weight = r.core.osd.map().weight(osd);
        let wall = r.turn.wall;
        r.core.osd.pending().new_weight.insert(osd, OsdMap::WEIGHT_OUT);
        r.core.osd.xinfo_mut(osd).old_weight = weight;
        r.core.osd.pending().new_last_in_change = wall;
        // Out because somebody said so: it does not come back in by itself.
        if r.core.osd.map().state(osd).contains(OsdState::AUTOOUT) {
            r.core.osd.toggle_state(osd, OsdState::AUTOOUT);
        }
        named.status.push_str(&format!("marked out osd.{osd}. "));
        note(r, osd, "out");
    }
    Ok(Reply::status(named.status))
}

fn note(r: &mut Request, osd: OsdId, what: &str) {
    let entity = r.core.sessions.get(&r.session).map(|s| s.entity()).unwrap_or_default();
    let text = format!("{entity} marked osd.{osd} {what}");
    r.core.log_to(r.turn, "cluster", LogLevel::Info, text);
}

fn osd_in(r: &mut Request) -> Outcome {
    let mut named = named(r, OsdMap::is_out)?;
    for osd in named.osds {
        if r.core.osd.map().is_in(osd) {
            named.status.push_str(&format!("osd.{osd} is already in. "));
            continue;
        }
        let old = r.core.osd.map().xinfo(osd).map_or(0, |x| x.old_weight);
        let wall = r.turn.wall;
        r.core.osd.xinfo_mut(osd).old_weight = 0;
        let pending = r.core.osd.pending();
        pending.new_weight.insert(osd, if old > 0 { old } else { OsdMap::WEIGHT_IN });
        pending.new_last_in_change = wall;
        named.status.push_str(&format!("marked in osd.{osd}. "));
        note(r, osd, "in");
    }
    Ok(Reply::status(named.status))
}

fn osd_down(r: &mut Request) -> Outcome {
    let dead = r.args.flag("definitely_dead");
    let mut named = named(r, OsdMap::is_up)?;
    for osd in named.osds {
        if r.core.osd.map().is_down(osd) {
            named.status.push_str(&format!("osd.{osd} is already down. "));
            continue;
        }
        r.core.mark_down_dead(r.turn, osd, dead);
        named.status.push_str(&format!("marked down osd.{osd}. "));
        note(r, osd, "down");
    }
    Ok(Reply::status(named.status))
}

// ---- flags ----

fn flag_of(key: &str) -> Option<(OsdMapFlags, &'static str)> {
    if key == "pause" {
        return Some((OsdMapFlags::PAUSERD | OsdMapFlags::PAUSEWR, "pauserd,pausewr"));
    }
    const SETTABLE: [&str; 13] = [
        "full",
        "noup",
        "nodown",
        "noout",
        "noin",
        "nobackfill",
        "norebalance",
        "norecover",
        "noscrub",
        "nodeep-scrub",
        "notieragent",
        "nosnaptrim",
        "pglog_hardlimit",
    ];
    let name = SETTABLE.into_iter().find(|name| *name == key)?;
    Some((OsdMapFlags::from_name(name)?, name))
}

fn change_flag(r: &mut Request, key: &str, on: bool) -> Outcome {
    let Some((flag, name)) = flag_of(key) else {
        return fail(Errno::EINVAL, format!("unrecognized flag '{key}'"));
    };
    let mut flags = r.core.osd.map().flags;
    flags.set(flag, on);
    if flags != r.core.osd.map().flags {
        r.core.osd.pending().new_flags = Some(flags);
    }
    Ok(Reply::status(format!("{name} is {}", if on { "set" } else { "unset" })))
}

fn set_flag(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    change_flag(r, &key, true)
}

fn unset_flag(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    if key == "pglog_hardlimit" {
        return fail(Errno::EINVAL, "pglog_hardlimit cannot be unset");
    }
    change_flag(r, &key, false)
}

fn pause(r: &mut Request) -> Outcome {
    change_flag(r, "pause", true)
}

fn unpause(r: &mut Request) -> Outcome {
    change_flag(r, "pause", false)
}

// ---- weights ----

fn existing(r: &Request) -> Result<OsdId, Failure> {
    let osd = r.args.osd("id")?;
    if r.core.osd.map().exists(osd) {
        return Ok(osd);
    }
    fail(Errno::ENOENT, format!("osd.{osd} does not exist"))
}

/// A share of 1 as a fraction of 0x10000, cut off as Ceph does.
fn fixed(share: f64) -> Result<u32, Failure> {
    if !(0.0..=1.0).contains(&share) {
        return fail(Errno::EINVAL, format!("weight {share} is not between 0 and 1"));
    }
    Ok((share * f64::from(OsdMap::WEIGHT_IN)) as u32)
}

fn reweight(r: &mut Request) -> Outcome {
    let weight = r.args.float("weight")?;
    let fixed = fixed(weight)?;
    let osd = existing(r)?;
    let wall = r.turn.wall;
    let was_in = r.core.osd.map().is_in(osd);
    let pending = r.core.osd.pending();
    pending.new_weight.insert(osd, fixed);
    if was_in != (fixed > 0) {
        pending.new_last_in_change = wall;
    }
    Ok(Reply::status(format!("reweighted osd.{osd} to {} ({fixed:x})", wire::dump::general(weight))))
}

fn primary_affinity(r: &mut Request) -> Outcome {
    let weight = r.args.float("weight")?;
    let fixed = fixed(weight)?;
    let osd = existing(r)?;
    r.core.osd.pending().new_primary_affinity.insert(osd, fixed);
    let text = wire::dump::general(weight);
    Ok(Reply::status(format!("set osd.{osd} primary-affinity to {text} ({fixed})")))
}

// ---- flags of groups ----

fn set_group(r: &mut Request) -> Outcome {
    change_group(r, true)
}

fn unset_group(r: &mut Request) -> Outcome {
    change_group(r, false)
}

fn change_group(r: &mut Request, on: bool) -> Outcome {
    let mut bits = OsdState::NONE;
    for name in r.args.string("flags")?.split(',') {
        match name {
            "noup" | "nodown" | "noin" | "noout" => {
                bits.insert(OsdState::from_name(name).unwrap_or_default());
            }
            _ => {
                return fail(
                    Errno::EINVAL,
                    format!("unrecognized flag '{name}', must be one of {{noup,nodown,noin,noout}}"),
                );
            }
        }
    }
    let who = r.args.strings("who");
    if who.is_empty() {
        return fail(Errno::EINVAL, "must specify at least one or more targets to set/unset");
    }
    for name in &who {
        change_target(r, name, bits, on)?;
    }
    Ok(Reply::default())
}

fn change_target(r: &mut Request, name: &str, bits: OsdState, on: bool) -> Result<(), Failure> {
    let changed = |before: OsdState| {
        let mut after = before;
        after.set(bits, on);
        after
    };
    if matches!(name, "all" | "any" | "*") {
        let all: Vec<OsdId> = r.core.osd.map().osds().collect();
        all.into_iter().for_each(|osd| toggle(r, osd, bits, on));
        return Ok(());
    }
    if let Some(osd) = parse_osd(name).filter(|osd| r.core.osd.map().exists(*osd)) {
        toggle(r, osd, bits, on);
        return Ok(());
    }
    if let Some(id) = r.core.osd.crush().item_id(name).filter(|id| *id < 0) {
        let before = r.core.osd.map().crush_node_flags.get(&id).copied().unwrap_or_default();
        r.core.osd.pending().new_crush_node_flags.insert(id, changed(before));
        return Ok(());
    }
    if let Some(id) = r.core.osd.crush().class_id(name) {
        let before = r.core.osd.map().device_class_flags.get(&id).copied().unwrap_or_default();
        r.core.osd.pending().new_device_class_flags.insert(id, changed(before));
        return Ok(());
    }
    fail(Errno::EINVAL, format!("unrecognized target '{name}': no such OSD, CRUSH bucket or device class"))
}

fn toggle(r: &mut Request, osd: OsdId, bits: OsdState, on: bool) {
    let before = r.core.osd.map().state(osd);
    let mut after = before;
    after.set(bits, on);
    if after != before {
        r.core.osd.toggle_state(osd, before ^ after);
    }
}

/// For `osd lost`: what is declared lost lies before this epoch.
pub fn lost_at(r: &Request, osd: OsdId) -> Epoch {
    r.core.osd.map().info(osd).map_or(Epoch(0), |i| i.down_at)
}
