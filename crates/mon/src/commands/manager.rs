//! The manager that there is not: its commands are answered by the monitor.

use super::{Command, Outcome, Reply, Request, fail};
use crate::core::{Core, MGR_MAP_EPOCH};
use crate::format::table::{Align, Table};
use crate::format::time;
use crate::serde_bridge::from_serde;
use base::{Errno, Json};
use wire::dump;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "mgr dump name=epoch,type=CephInt,range=0,req=false",
        access: "mgr r",
        help: "show the manager map",
        run: mgr_dump,
    },
    Command { signature: "mgr stat", access: "mgr r", help: "summarize the managers", run: mgr_stat },
    Command {
        signature: "mgr services",
        access: "mgr r",
        help: "list the manager's services",
        run: mgr_services,
    },
    Command {
        signature: "mgr module ls",
        access: "mgr r",
        help: "list the manager's modules",
        run: mgr_module_ls,
    },
    Command {
        signature: "mgr metadata name=who,type=CephString,req=false",
        access: "mgr r",
        help: "show what managers say of themselves",
        run: mgr_metadata,
    },
    Command {
        signature: "mgr versions",
        access: "mgr r",
        help: "show the managers' versions",
        run: mgr_versions,
    },
    Command { signature: "device ls", access: "mgr r", help: "list devices by daemon", run: device_ls },
    Command { signature: "crash ls", access: "mgr r", help: "list crashes", run: unsupported },
    Command {
        signature: "balancer status",
        access: "mgr r",
        help: "show the balancer's state",
        run: balancer_status,
    },
    Command {
        signature: "osd pool autoscale-status name=format,type=CephString,req=false",
        access: "mgr r",
        help: "show what the autoscaler would do",
        run: unsupported,
    },
    Command {
        signature: "fs status name=fs,type=CephString,req=false",
        access: "mgr r",
        help: "show file systems",
        run: fs_status,
    },
    Command { signature: "progress", access: "mgr r", help: "show long-running work", run: progress },
];

fn mgr_dump(r: &mut Request) -> Outcome {
    match r.args.optional_int("epoch")? {
        Some(epoch) if epoch > i64::from(MGR_MAP_EPOCH) => return fail(Errno::ENOENT, ""),
        _ => {}
    }
    let map = Core::mgr_map();
    let json = Json::object()
        .with("epoch", map.epoch)
        .with("active_gid", map.active_gid)
        .with("active_name", map.active_name.as_str())
        .with("active_addrs", from_serde(&dump::addrs(&map.active_addrs)))
        .with("active_addr", "(unrecognized address family 0)/0")
        .with("active_change", time::stamp(map.active_change))
        .with("active_mgr_features", map.active_mgr_features)
        .with("available", map.available)
        .with("standbys", Json::Array(vec![]))
        .with("modules", Json::Array(vec![]))
        .with("available_modules", Json::Array(vec![]))
        .with("services", Json::object())
        .with("always_on_modules", Json::object())
        .with("last_failure_osd_epoch", map.last_failure_osd_epoch.0)
        .with("active_clients", Json::Array(vec![]));
    Ok(r.json(&json))
}

fn mgr_stat(r: &mut Request) -> Outcome {
    let json = Json::object()
        .with("epoch", MGR_MAP_EPOCH)
        .with("available", false)
        .with("active_name", "")
        .with("num_standby", 0);
    Ok(r.json(&json))
}

fn mgr_services(r: &mut Request) -> Outcome {
    Ok(r.json(&Json::object()))
}

fn mgr_module_ls(r: &mut Request) -> Outcome {
    let json = ["always_on_modules", "enabled_modules", "disabled_modules"]
        .into_iter()
        .fold(Json::object(), |json, key| json.with(key, Json::Array(vec![])));
    Ok(r.json(&json))
}

fn mgr_metadata(r: &mut Request) -> Outcome {
    match r.args.optional_string("who") {
        Some(_) => fail(Errno::ENOENT, ""),
        None => Ok(r.json(&Json::Array(vec![]))),
    }
}

fn mgr_versions(r: &mut Request) -> Outcome {
    Ok(r.json(&Json::object()))
}

fn device_ls(r: &mut Request) -> Outcome {
    let table =
        Table::new().columns(Align::Left, &["DEVICE", "HOST:DEV", "DAEMONS", "WEAR", "LIFE EXPECTANCY"]);
    Ok(r.json_or(|| Json::Array(vec![]), || table.render()))
}

fn balancer_status(r: &mut Request) -> Outcome {
    let json = Json::object()
        .with("active", false)
        .with("last_optimize_duration", "")
        .with("last_optimize_started", "")
        .with("mode", "none")
        .with("no_optimization_needed", false)
        .with("optimize_result", "")
        .with("plans", Json::Array(vec![]));
    Ok(r.json(&json))
}

fn fs_status(r: &mut Request) -> Outcome {
    match r.args.optional_string("fs") {
        Some(fs) => fail(Errno::EINVAL, format!("Filesystem not found: {fs}")),
        None => Ok(r.json_or(Json::object, String::new)),
    }
}

fn progress(_: &mut Request) -> Outcome {
    Ok(Reply::default())
}

fn unsupported(r: &mut Request) -> Outcome {
    fail(Errno::EOPNOTSUPP, format!("{}: not supported: there is no such manager module", r.args.prefix()))
}
