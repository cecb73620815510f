//! Changing the CRUSH map.

use super::args::parse_osd;
use super::{Command, Failure, Outcome, Reply, Request, fail};
use base::Errno;
use crush::{CrushMap, Location, RULE_REPLICATED, RuleMode, SimpleRule, parse_location, weight_from};
use wire::types::OsdId;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd crush rule create-replicated name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=class,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        access: "osd rw",
        help: "make a rule for replicated pools",
        run: create_replicated,
    },
    Command {
        signature: "osd crush rule create-simple name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=root,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString,goodchars=[A-Za-z0-9-_.] name=mode,type=CephChoices,strings=firstn|indep,req=false",
        access: "osd rw",
        help: "make a rule, the older way",
        run: create_replicated,
    },
    Command {
        signature: "osd crush rule rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd rw",
        help: "remove a rule",
        run: rule_rm,
    },
    Command {
        signature: "osd crush rule rename name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd rw",
        help: "rename a rule",
        run: rule_rename,
    },
    Command {
        signature: "osd crush set-device-class name=class,type=CephString name=ids,type=CephString,n=N",
        access: "osd rw",
        help: "put OSDs into a device class",
        run: set_device_class,
    },
    Command {
        signature: "osd crush rm-device-class name=ids,type=CephString,n=N",
        access: "osd rw",
        help: "take OSDs out of their device classes",
        run: rm_device_class,
    },
    Command {
        signature: "osd crush add-bucket name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=type,type=CephString name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],req=false,n=N",
        access: "osd rw",
        help: "make a bucket, at a location if one is given",
        run: add_bucket,
    },
    Command {
        signature: "osd crush move name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        access: "osd rw",
        help: "move an item to a location",
        run: move_item,
    },
    Command {
        signature: "osd crush link name=name,type=CephString name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        access: "osd rw",
        help: "give a bucket another place besides those it has",
        run: link,
    },
    Command {
        signature: "osd crush unlink name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        access: "osd rw",
        help: "take an item off its places, or off those below one bucket",
        run: remove,
    },
    Command {
        signature: "osd crush rm name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        access: "osd rw",
        help: "remove an item, everywhere or below one bucket",
        run: remove,
    },
    Command {
        signature: "osd crush remove name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=ancestor,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        access: "osd rw",
        help: "the older name of osd crush rm",
        run: remove,
    },
    Command {
        signature: "osd crush add name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        access: "osd rw",
        help: "add an OSD at a location, or move it there",
        run: set_osd,
    },
    Command {
        signature: "osd crush set name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        access: "osd rw",
        help: "set an OSD's weight and location",
        run: set_osd,
    },
    Command {
        signature: "osd crush create-or-move name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0 name=args,type=CephString,goodchars=[A-Za-z0-9-_.=],n=N",
        access: "osd rw",
        help: "add an OSD at a location, or move it there with the weight it has",
        run: create_or_move,
    },
    Command {
        signature: "osd crush reweight name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        access: "osd rw",
        help: "set an OSD's CRUSH weight",
        run: reweight,
    },
    Command {
        signature: "osd crush reweight-subtree name=name,type=CephString,goodchars=[A-Za-z0-9-_.] name=weight,type=CephFloat,range=0.0",
        access: "osd rw",
        help: "set the CRUSH weight of all OSDs below a bucket",
        run: reweight_subtree,
    },
    Command {
        signature: "osd crush reweight-all",
        access: "osd rw",
        help: "recompute the buckets' weights",
        run: reweight_all,
    },
    Command {
        signature: "osd crush rename-bucket name=srcname,type=CephString,goodchars=[A-Za-z0-9-_.] name=dstname,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd rw",
        help: "rename a bucket",
        run: rename_bucket,
    },
    Command {
        signature: "osd setcrushmap name=prior_version,type=CephInt,req=false",
        access: "osd rw",
        help: "replace the CRUSH map by the given bytes",
        run: setcrushmap,
    },
];

/// Edits a copy, and makes it pending only if the edit succeeds.
fn edit<T>(
    r: &mut Request,
    change: impl FnOnce(&mut CrushMap) -> Result<T, crush::EditError>,
) -> Result<T, Failure> {
    let mut map = r.core.osd.crush().clone();
    let result = change(&mut map)?;
    if map != *r.core.osd.crush() {
        *r.core.osd.pending_crush() = map;
    }
    Ok(result)
}

// ---- rules ----

fn create_replicated(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    if r.core.osd.crush().rule_id(&name).is_some() {
        return Ok(Reply::status(format!("rule {name} already exists")));
    }
    let (root, kind) = (r.args.string("root")?, r.args.string("type")?);
    let class = r.args.optional_string("class").filter(|c| !c.is_empty());
    let mode = match r.args.optional_string("mode").as_deref() {
        Some("indep") => RuleMode::Indep,
        _ => RuleMode::Firstn,
    };
    edit(r, |map| {
        map.add_simple_rule(SimpleRule {
            name: &name,
            root: &root,
            failure_domain: &kind,
            device_class: class.as_deref(),
            mode,
            rule_type: RULE_REPLICATED,
        })
    })?;
    Ok(Reply::default())
}

fn rule_rm(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let Some(number) = r.core.osd.crush().rule_id(&name) else {
        return Ok(Reply::status(format!("rule {name} does not exist")));
    };
    if r.core.osd.map().pools.values().any(|pool| i32::from(pool.crush_rule) == number) {
        return fail(Errno::EBUSY, format!("crush rule {name} ({number}) is in use"));
    }
    edit(r, |map| map.remove_rule(&name))?;
    Ok(Reply::default())
}

fn rule_rename(r: &mut Request) -> Outcome {
    let (from, to) = (r.args.string("srcname")?, r.args.string("dstname")?);
    let crush = r.core.osd.crush();
    if crush.rule_id(&from).is_none() && crush.rule_id(&to).is_some() {
        return Ok(Reply::status(format!("already renamed to '{to}'")));
    }
    edit(r, |map| map.rename_rule(&from, &to))?;
    Ok(Reply::default())
}

// ---- classes ----

fn named_osds(r: &Request) -> Result<Vec<OsdId>, Failure> {
    let map = r.core.osd.map();
    let ids = r.args.strings("ids");
    if ids.iter().any(|id| matches!(id.as_str(), "all" | "any" | "*")) {
        return Ok(map.osds().collect());
    }
    let mut osds = Vec::new();
    for id in ids {
        match parse_osd(&id) {
            Some(osd) if map.exists(osd) => osds.push(osd),
            Some(osd) => return fail(Errno::ENOENT, format!("osd.{osd} does not exist. ")),
            None => return fail(Errno::EINVAL, format!("unable to parse osd id:\"{id}\". ")),
        }
    }
    Ok(osds)
}

fn list_text(osds: &[OsdId]) -> String {
    osds.iter().map(OsdId::to_string).collect::<Vec<_>>().join(",")
}

fn set_device_class(r: &mut Request) -> Outcome {
    let class = r.args.string("class")?;
    let osds = named_osds(r)?;
    edit(r, |map| {
        for osd in &osds {
            map.set_device_class(osd.0, &class)?;
        }
        Ok(())
    })?;
    Ok(Reply::status(format!("set osd(s) {} to class '{class}'", list_text(&osds))))
}

fn rm_device_class(r: &mut Request) -> Outcome {
    let osds = named_osds(r)?;
    edit(r, |map| {
        for osd in &osds {
            map.remove_device_class(osd.0)?;
        }
        Ok(())
    })?;
    Ok(Reply::status(format!("done removing class of osd(s): {}", list_text(&osds))))
}

// ---- buckets and items ----

fn location(r: &Request) -> Result<Location, Failure> {
    Ok(parse_location(&r.args.strings("args"))?)
}

/// As Ceph prints locations in answers: `{host=a,root=default}`.
fn location_text(at: &Location) -> String {
    let parts: Vec<String> = at.iter().map(|(kind, name)| format!("{kind}={name}")).collect();
    format!("{{{}}}", parts.join(","))
}

fn add_bucket(r: &mut Request) -> Outcome {
    let (name, kind) = (r.args.string("name")?, r.args.string("type")?);
    let at = location(r)?;
    if r.core.osd.crush().item_id(&name).is_some() {
        return Ok(Reply::status(format!("bucket '{name}' already exists")));
    }
    edit(r, |map| {
        map.add_bucket(&name, &kind)?;
        if at.is_empty() { Ok(false) } else { map.move_item(&name, &at) }
    })?;
    let place = if at.is_empty() { String::new() } else { format!(" to location {}", location_text(&at)) };
    Ok(Reply::status(format!("added bucket {name} type {kind}{place} to crush map").replace("  ", " ")))
}

fn move_item(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let at = location(r)?;
    let id = r.core.osd.crush().require_item(&name)?;
    let moved = edit(r, |map| map.move_item(&name, &at))?;
    let text = location_text(&at);
    Ok(Reply::status(if moved {
        format!("moved item id {id} name '{name}' to location {text} in crush map")
    } else {
        format!("no need to move item id {id} name '{name}' to location {text} in crush map")
    }))
}

fn link(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let at = location(r)?;
    let id = r.core.osd.crush().require_item(&name)?;
    edit(r, |map| map.link_bucket(&name, &at))?;
    Ok(Reply::status(format!(
        "linked item id {id} name '{name}' to location {} in crush map",
        location_text(&at)
    )))
}

fn remove(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let Some(id) = r.core.osd.crush().item_id(&name) else {
        return Ok(Reply::status(format!("device '{name}' does not appear in the crush map")));
    };
    match r.args.optional_string("ancestor") {
        None => edit(r, |map| map.remove_item(id))?,
        Some(ancestor) => {
            let ancestor = r.core.osd.crush().require_item(&ancestor)?;
            edit(r, |map| map.unlink_under(id, ancestor).map(drop))?;
        }
    }
    Ok(Reply::status(format!("removed item id {id} name '{name}' from crush map")))
}

fn existing_osd(r: &Request) -> Result<OsdId, Failure> {
    let osd = r.args.osd("id")?;
    if r.core.osd.map().exists(osd) {
        return Ok(osd);
    }
    fail(Errno::ENOENT, format!("osd.{osd} does not exist. Create it before updating the crush map"))
}

fn set_osd(r: &mut Request) -> Outcome {
    let osd = existing_osd(r)?;
    let name = format!("osd.{osd}");
    let weight = weight_from(r.args.float("weight")?)?;
    let at = location(r)?;
    let shown = wire::dump::general(r.args.float("weight")?);
    let text = location_text(&at);
    let is_add = r.args.prefix() == "osd crush add";
    edit(r, |map| map.update_item(osd.0, weight, &name, &at))?;
    Ok(Reply::status(if is_add {
        format!("add item id {osd} name '{name}' weight {shown} at location {text} to crush map")
    } else {
        format!("set item id {osd} name '{name}' weight {shown} at location {text} to crush map")
    }))
}

fn create_or_move(r: &mut Request) -> Outcome {
    let osd = existing_osd(r)?;
    let name = format!("osd.{osd}");
    let weight = weight_from(r.args.float("weight")?)?;
    let at = location(r)?;
    let shown = wire::dump::general(r.args.float("weight")?);
    edit(r, |map| map.create_or_move_item(osd.0, weight, &name, &at))?;
    Ok(Reply::status(format!(
        "create-or-move updating item name '{name}' weight {shown} at location {} to crush map",
        location_text(&at)
    )))
}

// ---- weights ----

fn reweight(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let float = r.args.float("weight")?;
    let weight = weight_from(float)?;
    let id = edit(r, |map| map.reweight_device(&name, weight))?;
    let shown = wire::dump::general(float);
    Ok(Reply::status(format!("reweighted item id {id} name '{name}' to {shown} in crush map")))
}

fn reweight_subtree(r: &mut Request) -> Outcome {
    let name = r.args.string("name")?;
    let float = r.args.float("weight")?;
    let weight = weight_from(float)?;
    let id = edit(r, |map| map.reweight_subtree(&name, weight))?;
    let shown = wire::dump::general(float);
    Ok(Reply::status(format!("reweighted subtree id {id} name '{name}' to {shown} in crush map")))
}

fn reweight_all(r: &mut Request) -> Outcome {
    edit(r, CrushMap::reweight_all)?;
    Ok(Reply::status("reweighted crush hierarchy"))
}

fn rename_bucket(r: &mut Request) -> Outcome {
    let (from, to) = (r.args.string("srcname")?, r.args.string("dstname")?);
    edit(r, |map| map.rename_bucket(&from, &to))?;
    Ok(Reply::status(format!("renamed bucket {from} into {to}")))
}

/// Whatever the input is: it must decode, hang together, and keep every rule in use.
fn setcrushmap(r: &mut Request) -> Outcome {
    let current = r.core.osd.map().crush_version;
    if let Some(prior) = r.args.optional_int("prior_version")?.filter(|p| *p != i64::from(current)) {
        return fail(Errno::EPERM, format!("prior_version {prior} != crush version {current}"));
    }
    let map = CrushMap::decode(&r.input)
        .and_then(|map| map.check().map(|()| map))
        .map_err(|e| Failure::new(Errno::EINVAL, format!("Failed to parse crushmap: {e}")))?;
    let osds = r.core.osd.map();
    if let Some(name) = osds.pools.iter().find_map(|(id, pool)| {
        let has_rule = map.rule(i32::from(pool.crush_rule)).is_some();
        (!has_rule).then(|| osds.pool_name(*id).unwrap_or("?").to_string())
    }) {
        return fail(Errno::EINVAL, format!("pool '{name}' uses a rule that this crush map lacks"));
    }
    *r.core.osd.pending_crush() = map;
    Ok(Reply::status((current + 1).to_string()))
}
