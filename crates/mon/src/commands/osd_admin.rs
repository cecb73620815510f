//! Making, removing and excluding: OSD ids, ratios, explicit placements.

use super::osd_state::lost_at;
use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::liveness::OSD_ID_MAX;
use base::{Errno, Json};
use wire::dump;
use wire::maps::{OsdMap, OsdState, Release};
use wire::types::{OsdId, PgId, Uuid};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd setmaxosd name=newmax,type=CephInt,range=0",
        access: "osd rw",
        help: "set the bound of OSD ids",
        run: setmaxosd,
    },
    Command {
        signature: "osd new name=uuid,type=CephUUID,req=true name=id,type=CephOsdName,req=false",
        access: "osd rw",
        help: "make an OSD id for a store",
        run: osd_new,
    },
    Command {
        signature: "osd create name=uuid,type=CephUUID,req=false name=id,type=CephOsdName,req=false",
        access: "osd rw",
        help: "the older form of osd new",
        run: osd_new,
    },
    Command {
        signature: "osd rm name=ids,type=CephString,n=N",
        access: "osd rw",
        help: "forget OSDs that are down",
        run: osd_rm,
    },
    Command {
        signature: "osd destroy name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "give an OSD's data up, but keep its id and place",
        run: osd_destroy,
    },
    Command {
        signature: "osd purge name=id,type=CephOsdName name=force,type=CephBool,req=false name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "give an OSD's data up, and forget its id and place",
        run: osd_purge,
    },
    Command {
        signature: "osd lost name=id,type=CephOsdName name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "declare that an OSD's data will not come back",
        run: osd_lost,
    },
    Command {
        signature: "osd set-full-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        access: "osd rw",
        help: "set how full an OSD may be before it takes no writes",
        run: set_full_ratio,
    },
    Command {
        signature: "osd set-backfillfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        access: "osd rw",
        help: "set how full an OSD may be before it takes no backfill",
        run: set_backfillfull_ratio,
    },
    Command {
        signature: "osd set-nearfull-ratio name=ratio,type=CephFloat,range=0.0|1.0",
        access: "osd rw",
        help: "set how full an OSD may be before it is a warning",
        run: set_nearfull_ratio,
    },
    Command {
        signature: "osd set-require-min-compat-client name=version,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "set how old clients may be",
        run: set_min_compat_client,
    },
    Command {
        signature: "osd require-osd-release name=release,type=CephChoices,strings=luminous|mimic|nautilus|octopus|pacific name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "set how old OSDs may be",
        run: require_osd_release,
    },
    Command {
        signature: "osd pg-temp name=pgid,type=CephPgid name=id,type=CephOsdName,req=false,n=N",
        access: "osd rw",
        help: "set a PG's acting set for a time (developers)",
        run: pg_temp,
    },
    Command {
        signature: "osd pg-upmap-items name=pgid,type=CephPgid name=id,type=CephOsdName,n=N",
        access: "osd rw",
        help: "move a PG's copies from OSDs to others, in pairs",
        run: pg_upmap_items,
    },
    Command {
        signature: "osd rm-pg-upmap-items name=pgid,type=CephPgid",
        access: "osd rw",
        help: "undo osd pg-upmap-items",
        run: rm_pg_upmap_items,
    },
];

// ---- ids ----

fn setmaxosd(r: &mut Request) -> Outcome {
    let wanted = r.args.int("newmax")?;
    let wanted = match i32::try_from(wanted) {
        Ok(n) if (0..=OSD_ID_MAX).contains(&n) => n,
        _ => {
            return fail(
                Errno::ERANGE,
                format!("cannot set max_osd to {wanted} which is > conf.mon_max_osd ({OSD_ID_MAX})"),
            );
        }
    };
    let map = r.core.osd.map();
    if let Some(osd) = map.osds().find(|osd| osd.0 >= wanted) {
        return fail(
            Errno::EBUSY,
            format!("cannot shrink max_osd to {wanted} because osd.{osd} (and possibly others) still in use"),
        );
    }
    r.core.osd.pending().new_max_osd = wanted;
    Ok(Reply::status(format!("set new max_osd = {wanted}")))
}

fn osd_new(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let uuid = match r.args.optional_string("uuid") {
        Some(text) => match text.parse::<Uuid>() {
            Ok(uuid) => uuid,
            Err(_) => return fail(Errno::EINVAL, format!("invalid uuid '{text}'")),
        },
        None => Uuid::from_random(r.turn.random.next_u64(), r.turn.random.next_u64()),
    };
    let wanted = r.args.optional_osd("id")?;
    if let Some(osd) = map.osds().find(|o| map.uuid(*o) == Some(uuid)) {
        if wanted.is_some_and(|w| w != osd) {
            return fail(Errno::EEXIST, format!("uuid {uuid} already in use by osd.{osd}"));
        }
        return Ok(new_id(r, osd));
    }
    let free = (0..OSD_ID_MAX).map(OsdId).find(|osd| !map.exists(*osd));
    let Some(osd) = wanted.or(free) else { return fail(Errno::ERANGE, "no OSD id is free") };
    if osd.0 >= OSD_ID_MAX {
        return fail(Errno::ERANGE, format!("osd id {osd} is out of range"));
    }
    let destroyed = map.state(osd).contains(OsdState::DESTROYED);
    if map.exists(osd) && !destroyed {
        return fail(Errno::EEXIST, format!("osd.{osd} already exists"));
    }
    let max_osd = map.max_osd;
    let mut bits = OsdState::NEW;
    if destroyed {
        bits = bits | OsdState::DESTROYED;
    } else {
        bits = bits | OsdState::EXISTS;
    }
    if osd.0 >= max_osd {
        r.core.osd.pending().new_max_osd = osd.0 + 1;
    }
    r.core.osd.toggle_state(osd, bits);
    r.core.osd.pending().new_uuid.insert(osd, uuid);
    Ok(new_id(r, osd))
}

fn new_id(r: &Request, osd: OsdId) -> Reply {
    r.json_or(|| Json::object().with("osdid", osd.0), || format!("{osd}\n"))
}

fn osd_rm(r: &mut Request) -> Outcome {
    let mut status = String::new();
    for id in r.args.strings("ids") {
        let Some(osd) = super::args::parse_osd(&id) else {
            return fail(Errno::EINVAL, format!("invalid osd id {id}"));
        };
        if !r.core.osd.map().exists(osd) {
            status.push_str(&format!("osd.{osd} does not exist. "));
            continue;
        }
        if r.core.osd.map().is_up(osd) {
            return fail(Errno::EBUSY, format!("osd.{osd} is still up; must be down before removal. "));
        }
        forget(r, osd);
        status.push_str(&format!("removed osd.{osd}. "));
    }
    Ok(Reply::status(status))
}

fn forget(r: &mut Request, osd: OsdId) {
    r.core.osd.toggle_state(osd, OsdState::EXISTS);
    r.core.osd.pending().new_weight.insert(osd, OsdMap::WEIGHT_OUT);
    r.core.writes.remove(crate::keys::osd_metadata(osd));
    r.core.metadata.remove(&osd);
}

/// Destroying and purging need consent, and an OSD that is down.
fn check_destroy(r: &Request, word: &str) -> Result<OsdId, Failure> {
    let osd = r.args.osd("id")?;
    let pgs = r.core.pgs.pgs_on(osd);
    if pgs > 0 && !r.args.flag("force") {
        return fail(
            Errno::EBUSY,
            format!(
                "OSD(s) {osd} have {pgs} pgs currently mapped to them. \nYou can proceed by passing --force, but be warned that this will likely mean real, permanent data loss."
            ),
        );
    }
    if !r.args.flag("yes_i_really_mean_it") && !r.args.flag("force") {
        return fail(
            Errno::EPERM,
            format!(
                "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do want to {word} this OSD."
            ),
        );
    }
    if r.core.osd.map().is_up(osd) {
        return fail(Errno::EBUSY, format!("osd.{osd} is not `down`."));
    }
    Ok(osd)
}

fn osd_destroy(r: &mut Request) -> Outcome {
    let osd = check_destroy(r, "destroy")?;
    if !r.core.osd.map().exists(osd) {
        return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
    }
    if !r.core.osd.map().state(osd).contains(OsdState::DESTROYED) {
        r.core.osd.toggle_state(osd, OsdState::DESTROYED);
        r.core.osd.pending().new_uuid.insert(osd, Uuid::ZERO);
    }
    Ok(Reply::status(format!("destroyed osd.{osd}")))
}

fn osd_purge(r: &mut Request) -> Outcome {
    let osd = check_destroy(r, "purge")?;
    if !r.core.osd.map().exists(osd) {
        return Ok(Reply::status(format!("osd.{osd} does not exist")));
    }
    if r.core.osd.crush().is_linked(osd.0) {
        r.core.osd.pending_crush().remove_item(osd.0)?;
    }
    forget(r, osd);
    Ok(Reply::status(format!("purged osd.{osd}")))
}

fn osd_lost(r: &mut Request) -> Outcome {
    let osd = r.args.osd("id")?;
    if !r.args.flag("yes_i_really_mean_it") {
        return fail(
            Errno::EPERM,
            "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
        );
    }
    let map = r.core.osd.map();
    if !map.exists(osd) {
        return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
    }
    if map.is_up(osd) {
        return fail(Errno::EBUSY, format!("osd.{osd} is not down"));
    }
    let epoch = lost_at(r, osd);
    r.core.osd.pending().new_lost.insert(osd, epoch);
    Ok(Reply::status(format!("marked osd lost in epoch {epoch}")))
}

// ---- settings ----

fn ratio(r: &Request) -> Result<f32, Failure> {
    let ratio = r.args.float("ratio")?;
    if (0.0..=1.0).contains(&ratio) {
        return Ok(ratio as f32);
    }
    fail(Errno::EINVAL, format!("ratio {ratio} is not between 0 and 1"))
}

fn set_full_ratio(r: &mut Request) -> Outcome {
    let ratio = ratio(r)?;
    r.core.osd.pending().new_full_ratio = ratio;
    Ok(Reply::status(format!("osd set-full-ratio {}", dump::general(f64::from(ratio)))))
}

fn set_backfillfull_ratio(r: &mut Request) -> Outcome {
    let ratio = ratio(r)?;
    r.core.osd.pending().new_backfillfull_ratio = ratio;
    Ok(Reply::status(format!("osd set-backfillfull-ratio {}", dump::general(f64::from(ratio)))))
}

fn set_nearfull_ratio(r: &mut Request) -> Outcome {
    let ratio = ratio(r)?;
    r.core.osd.pending().new_nearfull_ratio = ratio;
    Ok(Reply::status(format!("osd set-nearfull-ratio {}", dump::general(f64::from(ratio)))))
}

fn release(r: &Request, arg: &str) -> Result<Release, Failure> {
    let name = r.args.string(arg)?;
    match Release::from_name(&name) {
        Some(release) => Ok(release),
        None => fail(Errno::EINVAL, format!("version {name} is not recognized")),
    }
}

fn set_min_compat_client(r: &mut Request) -> Outcome {
    let wanted = release(r, "version")?;
    let needed = dump::min_compat_client(r.core.osd.map());
    if wanted < needed {
        return fail(
            Errno::EPERM,
            format!(
                "osdmap current utilizes features that require {needed}; cannot set require_min_compat_client below that to {wanted}"
            ),
        );
    }
    r.core.osd.pending().new_require_min_compat_client = wanted;
    Ok(Reply::status(format!("set require_min_compat_client to {wanted}")))
}

fn require_osd_release(r: &mut Request) -> Outcome {
    let wanted = release(r, "release")?;
    let current = r.core.osd.map().require_osd_release;
    if wanted < current {
        return fail(Errno::EPERM, "require_osd_release cannot be lowered once it has been set");
    }
    if wanted > current {
        r.core.osd.pending().new_require_osd_release = wanted;
    }
    Ok(Reply::default())
}

// ---- explicit placements ----

fn existing_pg(r: &Request) -> Result<PgId, Failure> {
    let pg = r.args.pg("pgid")?;
    let exists = r.core.osd.map().pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num);
    if exists { Ok(pg) } else { fail(Errno::ENOENT, format!("pgid '{pg}' does not exist")) }
}

fn osd_list(r: &Request) -> Result<Vec<OsdId>, Failure> {
    let mut osds = Vec::new();
    for text in r.args.strings("id") {
        match super::args::parse_osd(&text) {
            Some(osd) if r.core.osd.map().exists(osd) => osds.push(osd),
            _ => return fail(Errno::ENOENT, format!("osd.{text} does not exist")),
        }
    }
    Ok(osds)
}

fn pg_temp(r: &mut Request) -> Outcome {
    let pg = existing_pg(r)?;
    let osds = osd_list(r)?;
    let size = r.core.osd.map().pool(pg.pool).map_or(0, |p| usize::from(p.size));
    if osds.len() > size {
        return fail(Errno::EINVAL, "num of osds > pool size");
    }
    let text = super::osd_view::set_text(&osds);
    r.core.osd.pending().new_pg_temp.insert(pg, osds);
    Ok(Reply::status(format!("set {pg} pg_temp mapping to {text}")))
}

fn pg_upmap_items(r: &mut Request) -> Outcome {
    let pg = existing_pg(r)?;
    let osds = osd_list(r)?;
    if osds.is_empty() || osds.len() % 2 != 0 {
        return fail(Errno::EINVAL, "you must specify pairs of osds");
    }
    let pairs: Vec<(OsdId, OsdId)> = osds.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    if let Some((from, _)) = pairs.iter().find(|(from, to)| from == to) {
        return fail(Errno::EINVAL, format!("osd.{from} is mapped to itself"));
    }
    let text: Vec<String> = pairs.iter().map(|(from, to)| format!("{from}->{to}")).collect();
    r.core.osd.pending().new_pg_upmap_items.insert(pg, pairs);
    Ok(Reply::status(format!("set {pg} pg_upmap_items mapping to [{}]", text.join(","))))
}

fn rm_pg_upmap_items(r: &mut Request) -> Outcome {
    let pg = existing_pg(r)?;
    if r.core.osd.map().pg_upmap_items.contains_key(&pg) {
        r.core.osd.pending().old_pg_upmap_items.insert(pg);
    }
    Ok(Reply::status(format!("clear {pg} pg_upmap_items mapping")))
}
