//! The cluster log.

use super::{Command, Outcome, Reply, Request, fail};
use crate::format::time;
use crate::serde_bridge::from_serde;
use base::{Errno, Json};
use wire::messages::{LogEntry, LogLevel};

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "log name=logtext,type=CephString,n=N",
        access: "mon rw",
        help: "add a line to the cluster log",
        run: log,
    },
    Command {
        signature: "log last name=num,type=CephInt,range=1,req=false name=level,type=CephChoices,strings=debug|info|sec|warn|error,req=false name=channel,type=CephChoices,strings=*|cluster|audit|cephadm,req=false",
        access: "mon r",
        help: "show the last lines of the cluster log",
        run: log_last,
    },
];

fn log(r: &mut Request) -> Outcome {
    let text = r.args.strings("logtext").join(" ");
    let Some(session) = r.core.sessions.get(&r.session) else { return Ok(Reply::default()) };
    let entry = LogEntry {
        name: (u32::from(session.peer.name.kind.as_u8()), session.peer.auth_id.clone()),
        rank: session.peer.name,
        addrs: wire::types::EntityAddrVec::one(session.peer.addr),
        stamp: r.turn.wall,
        seq: 0,
        level: LogLevel::Info,
        text,
        channel: "cluster".into(),
    };
    r.core.log.add(entry, &mut r.core.writes);
    r.core.publish_log(r.turn);
    Ok(Reply::default())
}

fn log_last(r: &mut Request) -> Outcome {
    let count = usize::try_from(r.args.optional_int("num")?.unwrap_or(20)).unwrap_or(0);
    let least = match r.args.optional_string("level").as_deref() {
        Some("debug") => LogLevel::Debug,
        None | Some("info") => LogLevel::Info,
        Some("sec") => LogLevel::Security,
        Some("warn") => LogLevel::Warn,
        Some("error") => LogLevel::Error,
        Some(other) => return fail(Errno::EINVAL, format!("unknown log level {other}")),
    };
    let channel = r.args.optional_string("channel").unwrap_or_else(|| "cluster".into());
    let entries = r.core.log.since(0).rev();
    let entries = entries.filter(|e| e.level >= least && (channel == "*" || e.channel == channel));
    let mut entries: Vec<&LogEntry> = entries.take(count).collect();
    entries.reverse();
    Ok(r.json_or(
        || Json::array(entries.iter().map(|e| entry_json(e))),
        || entries.iter().map(|e| format!("{}\n", entry_text(e))).collect(),
    ))
}

fn name_text(entry: &LogEntry) -> String {
    let kind = u8::try_from(entry.name.0).ok().and_then(wire::types::EntityType::from_u8);
    format!("{}.{}", kind.map_or("unknown", |k| k.name()), entry.name.1)
}

fn rank_text(entry: &LogEntry) -> String {
    let rank = entry.rank;
    // Clients have no rank.
    if rank.kind == wire::types::EntityType::Client { "client.?".into() } else { rank.to_string() }
}

fn entry_text(e: &LogEntry) -> String {
    format!(
        "{} {} ({}) {} : {} {} {}",
        time::stamp(e.stamp),
        name_text(e),
        rank_text(e),
        e.seq,
        e.channel,
        e.level.tag(),
        e.text
    )
}

fn entry_json(e: &LogEntry) -> Json {
    Json::object()
        .with("name", name_text(e))
        .with("rank", rank_text(e))
        .with("addrs", from_serde(&wire::dump::addrs(&e.addrs)))
        .with("stamp", time::stamp(e.stamp))
        .with("seq", e.seq)
        .with("channel", e.channel.as_str())
        .with("priority", e.level.tag())
        .with("message", e.text.as_str())
}
