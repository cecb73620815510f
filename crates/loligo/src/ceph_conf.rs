//! The one thing we take from a `ceph.conf`: where the monitors are.
//!
//! Source: Ceph `doc/rados/configuration/msgr2.rst`, `mon-lookup-dns` aside.

use anyhow::{Context, Result, bail};
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

/// msgr2's port where none is given.
const DEFAULT_PORT: u16 = 3300;

pub fn monitors(path: &Path) -> Result<Vec<SocketAddr>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let hosts = mon_host(&text).with_context(|| format!("{} has no \"mon host\"", path.display()))?;
    parse_monitors(&hosts)
}

/// Of the `[global]` section, or before any; the last one counts.
fn mon_host(text: &str) -> Option<String> {
    let mut section = "global".to_string();
    let mut found = None;
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or("").trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']'))
            && !line.contains('=')
        {
            section = name.trim().to_string();
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.trim().replace(['_', '-'], " ");
            let key = key.split_whitespace().collect::<Vec<_>>().join(" ");
            if section == "global" && key == "mon host" {
                found = Some(value.trim().to_string());
            }
        }
    }
    found
}

/// `[v2:10.0.0.1:3300,v1:10.0.0.1:6789],10.0.0.2`, names, or single addresses;
/// those of the old protocol are left out.
pub fn parse_monitors(text: &str) -> Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    for word in split(text) {
        let word = word.trim();
        if word.is_empty() || word.starts_with("v1:") {
            continue;
        }
        let addr = word.strip_prefix("v2:").unwrap_or(word);
        // A nonce may follow.
        let addr = addr.split('/').next().unwrap_or(addr);
        found.push(resolve(addr)?);
    }
    if found.is_empty() {
        bail!("{text:?} names no monitor that speaks msgr2");
    }
    Ok(found)
}

/// At commas, semicolons and spaces, without the brackets that group one
/// monitor's addresses. Brackets of IPv6 addresses stay.
fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (i, c) in text.char_indices() {
        let groups = c == '[' && text[i + 1..].trim_start().starts_with('v');
        let word = words.last_mut().expect("never empty");
        match c {
            ',' | ';' | ' ' | '\t' => words.push(String::new()),
            '[' if groups => {}
            ']' if !word.contains('[') || word.contains(']') => {}
            c => word.push(c),
        }
    }
    words
}

fn resolve(addr: &str) -> Result<SocketAddr> {
    if let Ok(socket) = addr.parse::<SocketAddr>() {
        return Ok(socket);
    }
    if let Ok(ip) = addr.trim_matches(['[', ']']).parse() {
        return Ok(SocketAddr::new(ip, DEFAULT_PORT));
    }
    let with_port = if addr.contains(':') { addr.to_string() } else { format!("{addr}:{DEFAULT_PORT}") };
    let mut found = with_port.to_socket_addrs().with_context(|| format!("monitor address {addr:?}"))?;
    found.next().with_context(|| format!("monitor {addr:?} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<String> {
        parse_monitors(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_form_of_monitor_address_is_understood() {
        assert_eq!(parsed("10.0.0.1"), ["10.0.0.1:3300"]);
        assert_eq!(parsed("[v2:10.0.0.1:3300,v1:10.0.0.1:6789]"), ["10.0.0.1:3300"]);
        assert_eq!(
            parsed("[v2:10.0.0.1:3301/0,v1:10.0.0.1:6789/0] , [v2:[::1]:3300,v1:[::1]:6789] 10.0.0.3:4000"),
            ["10.0.0.1:3301", "[::1]:3300", "10.0.0.3:4000"]
        );
        assert_eq!(parsed("v2:[fe80::1]:3300;[::2]"), ["[fe80::1]:3300", "[::2]:3300"]);
        assert!(parse_monitors("v1:10.0.0.1:6789").is_err() && parse_monitors("").is_err());
    }

    #[test]
    fn mon_host_is_the_last_one_of_global() {
        let conf = "# mon host = no\nmon_host = a\n[client]\nmon host = b\n[global]\n  mon-host =  [v2:1.2.3.4:3300] ; yes\n";
        assert_eq!(mon_host(conf).as_deref(), Some("[v2:1.2.3.4:3300]"));
        assert_eq!(mon_host("[osd]\nmon host = b\n"), None);
    }
}
