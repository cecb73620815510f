//! Trees of OSDs.

use super::osd_view::map_of_epoch;
use super::{Command, Failure, Outcome, Request, fail};
use base::{Errno, Json};
use crush::CrushMap;
use crush::tree::{self, StateFilter};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd tree name=epoch,type=CephInt,range=0,req=false name=states,type=CephChoices,strings=up|down|in|out|destroyed,req=false,n=N",
        access: "osd r",
        help: "show the tree of OSDs",
        run: osd_tree,
    },
    Command {
        signature: "osd tree-from name=epoch,type=CephInt,range=0,req=false name=bucket,type=CephString name=states,type=CephChoices,strings=up|down|in|out|destroyed,req=false,n=N",
        access: "osd r",
        help: "show the tree of OSDs below a bucket",
        run: osd_tree,
    },
    Command {
        signature: "osd ls-tree name=epoch,type=CephInt,range=0,req=false name=name,type=CephString,req=true",
        access: "osd r",
        help: "list OSD ids below a bucket",
        run: ls_tree,
    },
    Command {
        signature: "osd crush tree name=shadow,type=CephChoices,strings=--show-shadow,req=false",
        access: "osd r",
        help: "show the CRUSH map's tree",
        run: crush_tree,
    },
];

fn crush_of(map: &wire::maps::OsdMap) -> Result<CrushMap, Failure> {
    CrushMap::decode(&map.crush).map_err(|e| Failure::new(Errno::EIO, e.to_string()))
}

fn osd_tree(r: &mut Request) -> Outcome {
    let map = map_of_epoch(r)?;
    let crush = crush_of(&map)?;
    let mut filter = StateFilter::default();
    for state in r.args.strings("states") {
        if !filter.add(&state) {
            return fail(Errno::EINVAL, format!("{state} is not a valid state"));
        }
    }
    let root = match r.args.optional_string("bucket") {
        None => None,
        Some(name) => match crush.item_id(&name) {
            Some(id) if id < 0 => Some(id),
            Some(_) => return fail(Errno::EINVAL, format!("item '{name}' is not a bucket")),
            None => return fail(Errno::ENOENT, format!("bucket '{name}' does not exist")),
        },
    };
    Ok(r.json_or(
        || tree::osd_tree_json(&map, &crush, filter, root),
        || tree::osd_tree_text(&map, &crush, filter, root),
    ))
}

fn ls_tree(r: &mut Request) -> Outcome {
    let map = map_of_epoch(r)?;
    let crush = crush_of(&map)?;
    let name = r.args.string("name")?;
    let Some(id) = crush.item_id(&name) else {
        return fail(Errno::ENOENT, format!("node '{name}' does not exist in the crush map"));
    };
    let ids = crush.devices_below(id);
    Ok(r.json_or(|| Json::array(ids.iter().copied()), || ids.iter().map(|id| format!("{id}\n")).collect()))
}

fn crush_tree(r: &mut Request) -> Outcome {
    let with_shadows = r.args.has("shadow");
    let crush = r.core.osd.crush();
    Ok(r.json_or(
        || tree::crush_tree_json(crush, with_shadows),
        || tree::crush_tree_text(crush, with_shadows),
    ))
}
