//! What the CRUSH map says.

use super::{Command, Outcome, Request, fail};
use base::{Errno, Json};

pub const COMMANDS: &[Command] = &[
    Command { signature: "osd crush dump", access: "osd r", help: "dump the CRUSH map", run: dump },
    Command { signature: "osd crush rule ls", access: "osd r", help: "list rules", run: rule_ls },
    Command {
        signature: "osd crush rule list",
        access: "osd r",
        help: "the older name of osd crush rule ls",
        run: rule_ls,
    },
    Command {
        signature: "osd crush rule dump name=name,type=CephString,goodchars=[A-Za-z0-9-_.],req=false",
        access: "osd r",
        help: "show a rule, or all",
        run: rule_dump,
    },
    Command {
        signature: "osd crush rule ls-by-class name=class,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd r",
        help: "list rules that take a device class",
        run: rule_ls_by_class,
    },
    Command { signature: "osd crush class ls", access: "osd r", help: "list device classes", run: class_ls },
    Command {
        signature: "osd crush class ls-osd name=class,type=CephString,goodchars=[A-Za-z0-9-_]",
        access: "osd r",
        help: "list OSDs of a device class",
        run: class_ls_osd,
    },
    Command {
        signature: "osd crush ls name=node,type=CephString,goodchars=[A-Za-z0-9-_.]",
        access: "osd r",
        help: "list what a bucket holds",
        run: ls,
    },
    Command {
        signature: "osd crush show-tunables",
        access: "osd r",
        help: "show the CRUSH map's tunables",
        run: show_tunables,
    },
    Command {
        signature: "osd crush get-device-class name=ids,type=CephString,n=N",
        access: "osd r",
        help: "show OSDs' device classes",
        run: get_device_class,
    },
];

fn dump(r: &mut Request) -> Outcome {
    let json = r.core.osd.crush().dump();
    Ok(r.json(&json))
}

/// A list of names: one per line, or a JSON array.
fn names(r: &Request, names: &[String]) -> super::Reply {
    r.json_or(
        || Json::array(names.iter().map(String::as_str)),
        || names.iter().map(|name| format!("{name}\n")).collect(),
    )
}

fn rule_ls(r: &mut Request) -> Outcome {
    let rules: Vec<String> = r.core.osd.crush().rule_names.values().cloned().collect();
    Ok(names(r, &rules))
}

fn rule_dump(r: &mut Request) -> Outcome {
    let crush = r.core.osd.crush();
    let json = match r.args.optional_string("name").filter(|name| !name.is_empty()) {
        None => crush.dump_rules(),
        Some(name) => match crush.rule_id(&name).and_then(|number| crush.dump_rule(number)) {
            Some(json) => json,
            None => return fail(Errno::ENOENT, format!("unknown crush rule '{name}'")),
        },
    };
    Ok(r.json(&json))
}

fn rule_ls_by_class(r: &mut Request) -> Outcome {
    let class = r.args.string("class")?;
    let crush = r.core.osd.crush();
    let Some(id) = crush.class_id(&class) else {
        return fail(Errno::ENOENT, format!("failed to get rules by class '{class}'"));
    };
    let rules: Vec<String> =
        crush.rules_of_class(id).into_iter().filter_map(|n| crush.rule_name(n)).map(str::to_string).collect();
    Ok(names(r, &rules))
}

fn class_ls(r: &mut Request) -> Outcome {
    let json = Json::array(r.core.osd.crush().class_names.values().map(String::as_str));
    Ok(r.json(&json))
}

fn class_ls_osd(r: &mut Request) -> Outcome {
    let class = r.args.string("class")?;
    let crush = r.core.osd.crush();
    let osds = crush.class_id(&class).map(|id| crush.devices_of_class(id)).unwrap_or_default();
    Ok(r.json_or(|| Json::array(osds.iter().copied()), || osds.iter().map(|id| format!("{id}\n")).collect()))
}

fn ls(r: &mut Request) -> Outcome {
    let node = r.args.string("node")?;
    let crush = r.core.osd.crush();
    let Some(id) = crush.item_id(&node) else {
        return fail(Errno::ENOENT, format!("node '{node}' does not exist"));
    };
    let items: Vec<i32> = crush.bucket(id).map_or_else(|| vec![id], |bucket| bucket.items.clone());
    let items: Vec<String> = items.into_iter().map(|i| crush.name(i).unwrap_or("?").to_string()).collect();
    Ok(names(r, &items))
}

fn show_tunables(r: &mut Request) -> Outcome {
    let json = r.core.osd.crush().dump_tunables();
    Ok(r.json(&json))
}

fn get_device_class(r: &mut Request) -> Outcome {
    let crush = r.core.osd.crush();
    let mut found = Vec::new();
    for text in r.args.strings("ids") {
        let Some(osd) = super::args::parse_osd(&text).filter(|o| r.core.osd.map().exists(*o)) else {
            return fail(Errno::EINVAL, format!("unable to parse osd id or osd does not exist: '{text}'"));
        };
        found.push((osd, crush.item_class(osd.0).unwrap_or("").to_string()));
    }
    let json = || {
        Json::array(
            found
                .iter()
                .map(|(osd, class)| Json::object().with("osd", osd.0).with("device_class", class.as_str())),
        )
    };
    Ok(r.json_or(json, || found.iter().map(|(_, class)| format!("{class}\n")).collect()))
}
