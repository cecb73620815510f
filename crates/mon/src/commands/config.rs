//! Central configuration.

use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::config_options::{self, Lookup, OPTIONS};
use crate::config_store::{Change, ConfigStore, Section};
use crate::format::table::{Align, Table};
use crate::format::time;
use base::{Errno, Json};

const VALUE_LEN_MAX: usize = 16 * 1024;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "config set name=who,type=CephString name=name,type=CephString name=value,type=CephString name=force,type=CephBool,req=false",
        access: "config rw",
        help: "set an option for a section",
        run: set,
    },
    Command {
        signature: "config rm name=who,type=CephString name=name,type=CephString",
        access: "config rw",
        help: "clear an option of a section",
        run: remove,
    },
    Command {
        signature: "config get name=who,type=CephString name=key,type=CephString,req=false",
        access: "config r",
        help: "show the options that concern a daemon or client",
        run: get,
    },
    Command { signature: "config dump", access: "mon r", help: "show all options that are set", run: dump },
    Command { signature: "config ls", access: "config r", help: "list the options there are", run: list },
    Command {
        signature: "config help name=key,type=CephString",
        access: "config r",
        help: "explain an option",
        run: help,
    },
    Command {
        signature: "config log name=num,type=CephInt,req=false",
        access: "config r",
        help: "show recent changes",
        run: log,
    },
    Command {
        signature: "config generate-minimal-conf",
        access: "config r",
        help: "print a ceph.conf that reaches this cluster",
        run: minimal_conf,
    },
    Command {
        signature: "config assimilate-conf",
        access: "config rw",
        help: "take over options from a ceph.conf",
        run: assimilate,
    },
];

fn section(text: &str) -> Result<Section, Failure> {
    match Section::parse(text) {
        Some(section) => Ok(section),
        None => fail(Errno::EINVAL, format!("unrecognized config target '{text}'")),
    }
}

fn set(r: &mut Request) -> Outcome {
    let section = section(&r.args.string("who")?)?;
    let name = ConfigStore::canonical_name(&r.args.string("name")?);
    let value = r.args.string("value")?;
    if value.len() > VALUE_LEN_MAX {
        return fail(Errno::EINVAL, "the value is too long");
    }
    let value = match config_options::lookup(&name) {
        Lookup::Known(option) => match option.check(&value) {
            Ok(value) => value,
            Err(why) => return fail(Errno::EINVAL, why),
        },
        Lookup::PassedOn => value,
        Lookup::Unknown if r.args.flag("force") && is_name(&name) => value,
        Lookup::Unknown => return fail(Errno::EINVAL, format!("unrecognized config option '{name}'")),
    };
    r.core.config.set(&section, &name, &value, r.turn.wall, &mut r.core.writes);
    publish(r);
    Ok(Reply::default())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 200 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Sessions get their new options once the change is durable: the answers of
/// this turn leave after its commit.
fn publish(r: &mut Request) {
    // Cannot fail: options are not read from the store.
    drop(r.core.publish(r.turn, "config"));
}

fn remove(r: &mut Request) -> Outcome {
    let section = section(&r.args.string("who")?)?;
    let name = ConfigStore::canonical_name(&r.args.string("name")?);
    r.core.config.remove(&section, &name, r.turn.wall, &mut r.core.writes);
    publish(r);
    Ok(Reply::default())
}

fn get(r: &mut Request) -> Outcome {
    let who = r.args.string("who")?;
    let entity =
        if who.contains('.') || matches!(who.as_str(), "mon" | "osd" | "mgr" | "mds" | "client" | "global") {
            who
        } else {
            return fail(Errno::EINVAL, format!("unrecognized entity '{who}'"));
        };
    let host = host_of(r, &entity);
    let effective = r.core.config.effective(&entity, &host);
    let Some(key) = r.args.optional_string("key") else {
        return Ok(r.json_or(
            || {
                effective.iter().fold(Json::object(), |json, (name, (section, value))| {
                    let mask = match section.mask.split_once(':') {
                        Some((kind, what)) => Json::object().with(kind, what),
                        None => Json::object(),
                    };
                    let option = Json::object()
                        .with("value", value.as_str())
                        .with("section", section.who.as_str())
                        .with("mask", mask)
                        .with("can_update_at_runtime", true);
                    json.with(name.as_str(), option)
                })
            },
            || {
                let mut table = table();
                for (name, (section, value)) in &effective {
                    table.row([section.who.as_str(), &section.mask, "advanced", name, value, ""]);
                }
                table.render()
            },
        ));
    };
    let name = ConfigStore::canonical_name(&key);
    if let Some((_, value)) = effective.get(&name) {
        return Ok(Reply::text(format!("{value}\n")));
    }
    match (name.as_str(), config_options::lookup(&name)) {
        ("fsid", _) => Ok(Reply::text(format!("{}\n", r.core.fsid))),
        (_, Lookup::Known(option)) => Ok(Reply::text(match option.default.parse::<f64>() {
            Ok(value) if option.kind == config_options::Kind::Float => format!("{value:.6}"),
            _ => option.default.to_string(),
        })),
        (_, Lookup::PassedOn) => {
            fail(Errno::ENOENT, format!("'{name}' is not set here; its default is the client's own"))
        }
        (_, Lookup::Unknown) => fail(Errno::ENOENT, format!("unrecognized key '{key}'")),
    }
}

/// Where a daemon runs, for options that concern its host.
fn host_of(r: &Request, entity: &str) -> String {
    let osd = entity.strip_prefix("osd.").and_then(|id| id.parse().ok()).map(wire::types::OsdId);
    let metadata = osd.and_then(|osd| r.core.metadata.get(&osd));
    metadata.and_then(|m| m.get("hostname")).cloned().unwrap_or_default()
}

fn table() -> Table {
    Table::new().columns(Align::Left, &["WHO", "MASK", "LEVEL", "OPTION", "VALUE", "RO"])
}

fn dump(r: &mut Request) -> Outcome {
    let all = r.core.config.all();
    let json = || {
        Json::array(all.iter().map(|(section, name, value)| {
            Json::object()
                .with("section", section.who.as_str())
                .with("name", *name)
                .with("value", *value)
                .with("level", "advanced")
                .with("can_update_at_runtime", true)
                .with("mask", section.mask.as_str())
        }))
    };
    let text = || {
        let mut table = table();
        for (section, name, value) in &all {
            // Narrower sections are indented below wider ones.
            let depth = if section.who == "global" { 0 } else { 1 + section.who.matches('.').count() };
            let who = format!("{}{}", "  ".repeat(depth), section.who);
            table.row([who.as_str(), &section.mask, "advanced", name, value, ""]);
        }
        table.render()
    };
    Ok(r.json_or(json, text))
}

fn list(r: &mut Request) -> Outcome {
    let names = || OPTIONS.iter().map(|o| o.name);
    Ok(r.json_or(|| Json::array(names()), || names().map(|n| format!("{n}\n")).collect()))
}

fn help(r: &mut Request) -> Outcome {
    let name = ConfigStore::canonical_name(&r.args.string("key")?);
    let Lookup::Known(option) = config_options::lookup(&name) else {
        return fail(Errno::ENOENT, format!("configuration option '{name}' not recognized"));
    };
    let json = || {
        Json::object()
            .with("name", option.name)
            .with("type", option.kind.name())
            .with("level", "advanced")
            .with("desc", option.help)
            .with("default", option.default)
            .with("can_update_at_runtime", true)
    };
    let text = || {
        format!(
            "{} - {}\n  ({}, advanced)\n  Default: {}\n  Can update at runtime: true\n",
            option.name,
            option.help,
            option.kind.name(),
            option.default
        )
    };
    Ok(r.json_or(json, text))
}

fn log(r: &mut Request) -> Outcome {
    let count = usize::try_from(r.args.optional_int("num")?.unwrap_or(10)).unwrap_or(0);
    let changes: Vec<&Change> = r.core.config.changes().take(count).collect();
    let json = || {
        Json::array(changes.iter().map(|c| {
            let options = c.options.iter().map(|(name, before, after)| {
                let mut json = Json::object().with("name", name.as_str());
                if let Some(before) = before {
                    json.push("previous_value", before.as_str());
                }
                if let Some(after) = after {
                    json.push("new_value", after.as_str());
                }
                json
            });
            Json::object()
                .with("version", c.version)
                .with("timestamp", time::stamp(c.stamp))
                .with("name", c.name.as_str())
                .with("changes", Json::array(options))
        }))
    };
    let text = || {
        let mut out = String::new();
        for c in &changes {
            out.push_str(&format!("--- {} --- {} ---", c.version, time::stamp(c.stamp)));
            if !c.name.is_empty() {
                out.push_str(&format!(" {} ---", c.name));
            }
            out.push('\n');
            for (name, before, after) in &c.options {
                if let Some(before) = before {
                    out.push_str(&format!("- {name} = {before}\n"));
                }
                if let Some(after) = after {
                    out.push_str(&format!("+ {name} = {after}\n"));
                }
            }
        }
        out
    };
    Ok(r.json_or(json, text))
}

fn minimal_conf(r: &mut Request) -> Outcome {
    let mons: Vec<String> =
        r.core.mon_map.mon_info.values().map(|m| wire::dump::addrs_text(&m.public_addrs)).collect();
    Ok(Reply::text(format!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {mons}\n",
        fsid = r.core.fsid,
        mons = mons.join(" ")
    )))
}

fn assimilate(_: &mut Request) -> Outcome {
    fail(Errno::EOPNOTSUPP, "config assimilate-conf: not supported; use config set")
}
