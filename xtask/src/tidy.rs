//! House rules as checks: what the compiler cannot see.

use crate::run::root;
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that must stay free of I/O, clocks and their own randomness.
const CORES: &[&str] = &["base", "wire", "crush", "cls", "msgr", "store", "mon", "osd", "client", "bench"];

/// (pattern, why) — not in the cores' code.
const BANNED_IN_CORES: &[(&str, &str)] = &[
    ("Instant::now", "cores are handed the time"),
    ("SystemTime::now", "cores are handed the time"),
    ("std::thread", "a core has one owner and no threads"),
    ("std::net::Tcp", "cores open no sockets"),
    ("std::fs::", "cores open no files"),
    ("getrandom", "cores draw from the randomness they are handed"),
];

/// (pattern, why) — nowhere.
const BANNED: &[(&str, &str)] = &[
    ("todo!(", "finish it or answer EOPNOTSUPP"),
    ("unimplemented!(", "finish it or answer EOPNOTSUPP"),
    ("dbg!(", "left over from debugging"),
];

/// Lines of a file, tests included.
const FILE_LINES_MAX: usize = 1200;

pub fn run() -> Result<()> {
    let root = root();
    let mut complaints = Vec::new();
    for file in rust_files(&root)? {
        let text = fs::read_to_string(&file)?;
        let name = file.strip_prefix(&root)?.to_string_lossy().into_owned();
        if name.starts_with("xtask/") {
            continue;
        }
        check(&name, &text, &mut complaints);
    }
    if complaints.is_empty() {
        return Ok(());
    }
    bail!("house rules:\n{}", complaints.join("\n"));
}

fn check(name: &str, text: &str, complaints: &mut Vec<String>) {
    let core = CORES.iter().any(|c| name.starts_with(&format!("crates/{c}/src/")));
    let is_test = name.contains("/tests") || name.ends_with("tests.rs");
    // Tests close a file; they may do what cores may not.
    let code_end = text.find("#[cfg(test)]").unwrap_or(text.len());
    for (i, line) in text[..code_end].lines().enumerate() {
        let code = line.split("//").next().unwrap_or("");
        let mut complain = |pattern: &str, why: &str| {
            complaints.push(format!("{name}:{}: {pattern}: {why}", i + 1));
        };
        for (pattern, why) in BANNED {
            if code.contains(pattern) {
                complain(pattern, why);
            }
        }
        for (pattern, why) in BANNED_IN_CORES {
            if core && !is_test && code.contains(pattern) {
                complain(pattern, why);
            }
        }
    }
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        complaints.push(format!("{name}: {lines} lines: split it along its meaning"));
    }
    if text.lines().next().is_some_and(|l| !l.starts_with("//!")) && name.ends_with("lib.rs") {
        complaints.push(format!("{name}: a crate begins by saying what it is (//!)"));
    }
}

fn rust_files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["crates", "sim", "xtask", "fuzz"].iter().map(|d| root.join(d)).collect();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
