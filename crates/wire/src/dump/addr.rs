//! Addresses as JSON and text.

use crate::types::{AddrType, EntityAddr, EntityAddrVec};
use serde_json::{Value, json};

/// What Ceph prints for a socket address that is none.
const BLANK: &str = "(unrecognized address family 0)";

fn socket_text(addr: &EntityAddr) -> String {
    addr.socket.map_or_else(|| BLANK.to_owned(), |socket| socket.to_string())
}

fn type_name(kind: AddrType) -> &'static str {
    match kind {
        AddrType::None => "none",
        AddrType::Legacy => "v1",
        AddrType::Msgr2 => "v2",
        AddrType::Any => "any",
        AddrType::Cidr => "cidr",
    }
}

/// `{"addrvec": [{"type": …, "addr": …, "nonce": …}]}`
pub fn addrs(addrs: &EntityAddrVec) -> Value {
    let list: Vec<Value> = (addrs.0.iter())
        .map(|a| json!({"type": type_name(a.kind), "addr": socket_text(a), "nonce": a.nonce}))
        .collect();
    json!({ "addrvec": list })
}

/// Nothing at all for no address, unlike the brackets around several.
pub fn addrs_text(addrs: &EntityAddrVec) -> String {
    if addrs.0.is_empty() { String::new() } else { addrs.to_string() }
}

/// The one address for readers that know only one: the v1 one, else the first.
pub fn legacy_addr_text(addrs: &EntityAddrVec) -> String {
    let legacy = addrs.0.iter().find(|a| a.kind == AddrType::Legacy);
    let addr = legacy.or(addrs.0.first()).copied().unwrap_or(EntityAddr::BLANK);
    format!("{}/{}", socket_text(&addr), addr.nonce)
}
