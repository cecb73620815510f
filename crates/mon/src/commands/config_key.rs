//! `config-key`: a small store of anything, for tools.

use super::{Command, Outcome, Reply, Request, fail};
use crate::keys;
use base::{Errno, Json};
use bytes::Bytes;

/// As Ceph's `mon_config_key_max_entry_size`.
const VALUE_LEN_MAX: usize = 64 * 1024;
const KEY_LEN_MAX: usize = 4096;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "config-key get name=key,type=CephString",
        access: "config-key r",
        help: "fetch a value",
        run: get,
    },
    Command {
        signature: "config-key set name=key,type=CephString name=val,type=CephString,req=false",
        access: "config-key rw",
        help: "store a value, given here or as input",
        run: set,
    },
    Command {
        signature: "config-key put name=key,type=CephString name=val,type=CephString,req=false",
        access: "config-key rw",
        help: "the older name of config-key set",
        run: set,
    },
    Command {
        signature: "config-key rm name=key,type=CephString",
        access: "config-key rw",
        help: "remove a key",
        run: remove,
    },
    Command {
        signature: "config-key del name=key,type=CephString",
        access: "config-key rw",
        help: "the older name of config-key rm",
        run: remove,
    },
    Command {
        signature: "config-key exists name=key,type=CephString",
        access: "config-key r",
        help: "tell whether there is such a key",
        run: exists,
    },
    Command { signature: "config-key ls", access: "config-key r", help: "list keys", run: list },
    Command {
        signature: "config-key list",
        access: "config-key r",
        help: "the older name of config-key ls",
        run: list,
    },
    Command {
        signature: "config-key dump name=key,type=CephString,req=false",
        access: "config-key r",
        help: "show keys and values, all or with a prefix",
        run: dump,
    },
];

fn get(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    match r.core.config_keys.get(&key) {
        Some(value) => Ok(Reply::bytes(value.clone())),
        None => fail(Errno::ENOENT, ""),
    }
}

fn set(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    let value = match r.args.optional_string("val") {
        Some(value) => Bytes::from(value),
        None => r.input.clone(),
    };
    if key.is_empty() || key.len() > KEY_LEN_MAX {
        return fail(Errno::EINVAL, "the key is empty or too long");
    }
    if value.len() > VALUE_LEN_MAX {
        return fail(
            Errno::EFBIG,
            format!(
                "error: entry size limited to {VALUE_LEN_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
            ),
        );
    }
    r.core.writes.put(format!("{}{key}", keys::CONFIG_KEY), value.clone());
    r.core.config_keys.insert(key.clone(), value);
    Ok(Reply::status(format!("set {key}")))
}

fn remove(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    // Ceph says so whether or not there was one.
    if r.core.config_keys.remove(&key).is_some() {
        r.core.writes.remove(format!("{}{key}", keys::CONFIG_KEY));
    }
    Ok(Reply::status("key deleted"))
}

fn exists(r: &mut Request) -> Outcome {
    let key = r.args.string("key")?;
    if r.core.config_keys.contains_key(&key) {
        return Ok(Reply::status(format!("key '{key}' exists")));
    }
    fail(Errno::ENOENT, format!("key '{key}' doesn't exist"))
}

fn list(r: &mut Request) -> Outcome {
    let json = Json::array(r.core.config_keys.keys().map(String::as_str));
    Ok(r.json(&json))
}

fn dump(r: &mut Request) -> Outcome {
    let prefix = r.args.optional_string("key").unwrap_or_default();
    let mut json = Json::object();
    for (key, value) in r.core.config_keys.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let text = match std::str::from_utf8(value) {
            Ok(text) if !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') => text.to_string(),
            _ => format!("<<< binary blob of length {} >>>", value.len()),
        };
        json.push(key.as_str(), text);
    }
    Ok(r.json(&json))
}
