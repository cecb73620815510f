//! `osd blocklist`: addresses whose requests OSDs refuse, for a time. What that
//! is good for stands in the OSD's `blocklist`.
//!
//! Every answer follows the commit of the epoch that it speaks of: whoever gets
//! it and waits for that epoch is sure of it.
//!
//! Source: Ceph `src/mon/OSDMonitor.cc` (`prepare_command_impl`), `src/osd/OSDMap.cc`.

use super::{Command, Outcome, Reply, Request, fail};
use crate::format::time;
use base::{Duration, Errno, Json, WallTime};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use wire::dump;
use wire::types::{AddrType, EntityAddr};

/// As `mon_osd_blocklist_default_expire`.
const BLOCKLIST_SECONDS: f64 = 3600.0;
/// Entries of each kind: each is in every map.
const BLOCKLIST_MAX: usize = 100_000;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd blocklist name=range,type=CephString,goodchars=[range],req=false name=blocklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        access: "osd rw",
        help: "keep an address or a network out, or let it in again",
        run: blocklist,
    },
    Command {
        signature: "osd blacklist name=blacklistop,type=CephChoices,strings=add|rm name=addr,type=CephEntityAddr name=expire,type=CephFloat,range=0.0,req=false",
        access: "osd rw",
        help: "the older name of osd blocklist",
        run: blocklist,
    },
    Command {
        signature: "osd blocklist clear",
        access: "osd rw",
        help: "let all addresses in again",
        run: clear,
    },
    Command {
        signature: "osd blacklist clear",
        access: "osd rw",
        help: "the older name of osd blocklist clear",
        run: clear,
    },
    Command { signature: "osd blocklist ls", access: "osd r", help: "list addresses kept out", run: list },
    Command {
        signature: "osd blacklist ls",
        access: "osd r",
        help: "the older name of osd blocklist ls",
        run: list,
    },
];

/// `1.2.3.4`, `1.2.3.4:0/123`, `v2:…`, `[::1]:5/6`; kept out whatever protocol it speaks.
fn parse_addr(text: &str) -> Option<EntityAddr> {
    let bare = ["v1:", "v2:", "any:"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
    let (socket, nonce) = match bare.rsplit_once('/') {
        Some((socket, nonce)) => (socket, nonce.parse().ok()?),
        None => (bare, 0),
    };
    let socket = socket
        .parse()
        .ok()
        .or_else(|| socket.trim_matches(['[', ']']).parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, 0)))?;
    Some(EntityAddr { kind: AddrType::Any, nonce, socket: Some(socket) })
}

/// `10.9.0.0/16`, `fd00::/48`: the length of the prefix where lives have their nonce.
fn parse_range(text: &str) -> Option<EntityAddr> {
    let addr = parse_addr(text).filter(|_| text.contains('/'))?;
    let bits = if addr.socket?.is_ipv4() { 32 } else { 128 };
    (addr.nonce <= bits).then(|| addr.with_kind(AddrType::Cidr))
}

fn blocklist(r: &mut Request) -> Outcome {
    let op = match r.args.optional_string("blocklistop") {
        Some(op) => op,
        None => r.args.string("blacklistop")?,
    };
    let text = r.args.string("addr")?;
    let is_range = r.args.has("range");
    let parsed = if is_range { parse_range(&text) } else { parse_addr(&text) };
    let Some(addr) = parsed else {
        let reason = match is_range {
            true => format!("You specified a range command, but {text} does not parse as a CIDR range"),
            false => format!("unable to parse address {text}"),
        };
        return fail(Errno::EINVAL, reason);
    };
    let map = r.core.osd.map();
    let list = if is_range { &map.range_blocklist } else { &map.blocklist };
    let (listed, full) = (list.contains_key(&addr), list.len() >= BLOCKLIST_MAX);
    match op.as_str() {
        "add" => {
            let seconds = r.args.optional_float("expire")?.filter(|s| *s >= 0.0).unwrap_or(BLOCKLIST_SECONDS);
            let until = r.turn.wall + Duration::from_secs_f64(seconds.min(1e9));
            if !listed && full {
                return fail(Errno::ENOSPC, "the blocklist is full");
            }
            // Holders of the map keep the first expiry that they learn, so a listed
            // address would need an epoch without it to get another.
            if !listed {
                let pending = r.core.osd.pending();
                let new =
                    if is_range { &mut pending.new_range_blocklist } else { &mut pending.new_blocklist };
                new.insert(addr, until);
            }
            let seconds = dump::general(seconds);
            Ok(Reply::status(format!("blocklisting {addr} until {} ({seconds} sec)", time::stamp(until))))
        }
        "rm" if listed => {
            let pending = r.core.osd.pending();
            let old = if is_range { &mut pending.old_range_blocklist } else { &mut pending.old_blocklist };
            old.push(addr);
            Ok(Reply::status(format!("un-blocklisting {addr}")))
        }
        "rm" => Ok(Reply::status(format!("{addr} isn't blocklisted"))),
        _ => fail(Errno::EINVAL, format!("unknown blocklist operation '{op}'")),
    }
}

fn clear(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let lives: Vec<EntityAddr> = map.blocklist.keys().copied().collect();
    let ranges: Vec<EntityAddr> = map.range_blocklist.keys().copied().collect();
    if !lives.is_empty() || !ranges.is_empty() {
        let pending = r.core.osd.pending();
        pending.old_blocklist = lives;
        pending.old_range_blocklist = ranges;
    }
    Ok(Reply::status(" removed all blocklist entries"))
}

/// Ceph's JSON has networks in a second array behind the first, which no parser
/// takes; ours has them in the one.
fn list(r: &mut Request) -> Outcome {
    let map = r.core.osd.map();
    let member = |key: &str, addr: String, until: WallTime| {
        Json::object().with(key, addr).with("until", time::stamp(until))
    };
    let json = || {
        let lives = map.blocklist.iter().map(|(addr, until)| member("addr", addr.to_string(), *until));
        let ranges = map
            .range_blocklist
            .iter()
            .map(|(range, until)| member("range", range.with_kind(AddrType::Any).to_string(), *until));
        Json::array(lives.chain(ranges))
    };
    let lines = |list: &BTreeMap<EntityAddr, WallTime>| -> String {
        list.iter().map(|(addr, until)| format!("{addr} {}\n", time::stamp(*until))).collect()
    };
    let text = || lines(&map.blocklist) + &lines(&map.range_blocklist);
    let count = map.blocklist.len() + map.range_blocklist.len();
    Ok(r.json_or(json, text).and_status(format!("listed {count} entries")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_the_forms_that_clients_print() {
        for (text, printed) in [
            ("1.2.3.4:0/123", "1.2.3.4:0/123"),
            ("1.2.3.4", "1.2.3.4:0/0"),
            ("v2:1.2.3.4:5/6", "1.2.3.4:5/6"),
            ("[::1]:5/6", "[::1]:5/6"),
        ] {
            assert_eq!(parse_addr(text).map(|a| a.to_string()).as_deref(), Some(printed));
        }
        assert_eq!(parse_addr("nonsense"), None);
        assert_eq!(parse_addr("1.2.3.4:0/x"), None);
    }
}
