//! Does the store's crash enumeration notice a store that is not safe? Each
//! mutant is one deliberate bug, built in a copy of the tree, where the crash
//! tests must fail.
//!
//! The bugs are written as replacements of source lines. When the code they
//! name has changed, the run says so: then the bug must be written anew.

use crate::run::root;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Mutant {
    name: &'static str,
    /// Below `crates/store/src`.
    file: &'static str,
    /// Each text, there once, and what replaces it.
    edits: &'static [(&'static str, &'static str)],
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "acknowledged without a flush",
        file: "commit.rs",
        edits: &[(
            "if first.needs_flush && self.volatile_cache {",
            "if first.needs_flush && self.durable == u64::MAX {",
        )],
    },
    Mutant {
        name: "a record that is to be durable by itself is not",
        file: "commit.rs",
        edits: &[("pieces, !needs_flush, Purpose", "pieces, !needs_flush && sequence == 0, Purpose")],
    },
    Mutant {
        name: "data that is to be durable by itself is not",
        file: "commit.rs",
        edits: &[("data.0.clone(), durable, purpose", "data.0.clone(), durable && run.count == 0, purpose")],
    },
    Mutant {
        name: "recovery looks for carried blocks in their places",
        file: "recovery/replay.rs",
        edits: &[(
            "if let Some(slot) = slots.get(&device) {",
            "if let Some(slot) = slots.get(&device).filter(|_| *logged) {",
        )],
    },
    Mutant {
        name: "acknowledged before direct data has arrived",
        file: "commit.rs",
        edits: &[
            ("let mut writes = batch.direct_writes;", "let mut writes = 0;"),
            ("            None => self.one_write_less(sequence),\n", "            None => (),\n"),
        ],
    },
    Mutant {
        name: "a record written where zeros are on their way",
        file: "lay.rs",
        edits: &[("is_some_and(|from| end > from)", "is_some_and(|_| false && end > 0)")],
    },
    Mutant {
        name: "freed blocks used again before that is durable",
        file: "commit.rs",
        edits: &[(
            "        self.issued.push_back(Issued { sequence, txns: batch.txns, writes, needs_flush, freed: batch.freed });",
            "        self.release_freed(batch.freed);\n        self.issued.push_back(Issued { sequence, txns: batch.txns, writes, needs_flush, freed: Vec::new() });",
        )],
    },
    Mutant {
        name: "a unit is put together although it has changed since it was read",
        file: "mend/unit.rs",
        edits: &[("if unit.failed || unit.changed {", "if unit.failed {")],
    },
    Mutant {
        name: "superblock switched before the checkpoint is flushed",
        file: "reclaim.rs",
        edits: &[(
            "Stage::Switching { step: Step::FlushData, next, chain, stream }",
            "Stage::Switching { step: Step::WriteFirst, next, chain, stream }",
        )],
    },
    Mutant {
        name: "both superblocks written with no flush between",
        file: "reclaim.rs",
        edits: &[("Step::WriteFirst => Step::FlushFirst,", "Step::WriteFirst => Step::WriteSecond,")],
    },
    Mutant {
        name: "the log's head moves before its data is in place",
        file: "reclaim.rs",
        edits: &[(
            "        let due = self.dirty.due(self.durable, limit);",
            "        let due: Vec<u32> = self.dirty.due(self.durable, limit).into_iter().filter(|d| d % 2 == 0).collect();",
        )],
    },
    Mutant {
        name: "the old checkpoint is freed before the new one holds",
        file: "reclaim.rs",
        edits: &[(
            "        let ChunkWriter { stream, taken: chain, .. } = *writer;\n",
            "        let ChunkWriter { stream, taken: chain, .. } = *writer;\n        for run in std::mem::take(&mut self.chain) {\n            self.release(run);\n        }\n",
        )],
    },
    Mutant {
        name: "blocks freed after a snapshot are used again before its checkpoint holds",
        file: "reclaim.rs",
        edits: &[("snapshot.sequence < sequence)", "snapshot.sequence < sequence && sequence == 0)")],
    },
    Mutant {
        name: "recovery does not compare the tail's direct data",
        file: "recovery/tail.rs",
        edits: &[(
            "        let mut runs: Vec<Run> = Vec::new();\n        self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable);",
            "        let mut runs: Vec<Run> = Vec::new();\n        self.rebuilt().direct.retain(|_, (sequence, _)| *sequence > durable && *sequence == 0);",
        )],
    },
    Mutant {
        name: "recovery does not check a record's data",
        file: "recovery/replay.rs",
        edits: &[(
            "        if crc32c(&content) != crc {\n            return None;",
            "        if crc32c(&content) != crc && device == 0 {\n            return None;",
        )],
    },
    Mutant {
        name: "recovery takes records of any epoch",
        file: "recovery/replay.rs",
        edits: &[(
            "            header.epoch == superblock.epoch\n",
            "            header.epoch <= superblock.epoch\n",
        )],
    },
    Mutant {
        name: "opening does not note what it recovered",
        file: "recovery/epoch.rs",
        edits: &[("            superblock.recovered_sequence = last;\n", "            let _ = last;\n")],
    },
    Mutant {
        name: "opening writes both superblocks with no flush between",
        file: "recovery/epoch.rs",
        edits: &[(
            "            0 | 2 | 4 => {\n",
            "            2 => return self.write_superblocks(replay, order, 3),\n            0 | 4 => {\n",
        )],
    },
    Mutant {
        name: "a record does not wait for those before it",
        file: "commit.rs",
        edits: &[(
            "        while let Some(first) = self.issued.front().filter(|first| first.writes == 0) {\n",
            "        if let Some(any) = self.issued.iter().find(|any| any.writes == 0 && !any.needs_flush) {\n            self.on_durable(any.sequence);\n        }\n        while let Some(first) = self.issued.front().filter(|first| first.writes == 0) {\n",
        )],
    },
    Mutant {
        name: "a record is durable by itself, whatever its data needs",
        file: "commit.rs",
        edits: &[(
            "let needs_flush = batch.needs_flush || !self.volatile_cache;",
            "let needs_flush = !self.volatile_cache;",
        )],
    },
    Mutant {
        name: "records vouch for themselves",
        file: "commit.rs",
        edits: &[(
            "batch.into_record(epoch, self.durable, nonce)",
            "batch.into_record(epoch, self.issue_position / 4096, nonce)",
        )],
    },
];

/// Tests of `--test crash`, the quickest first.
const TESTS: [&str; 3] = ["one_or_two", "three_operations", "long"];

pub fn run(only: Option<&str>) -> Result<()> {
    let tree = root().join("target/mutants/tree");
    let mut failed = Vec::new();
    for mutant in MUTANTS {
        if only.is_some_and(|only| !mutant.name.contains(only)) {
            continue;
        }
        copy_tree(&tree)?;
        let path = tree.join("crates/store/src").join(mutant.file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let applies = mutant.edits.iter().all(|(find, _)| text.matches(find).count() == 1);
        if !applies {
            println!("STALE: {}: {} has changed: write it anew", mutant.name, mutant.file);
            failed.push(mutant.name);
            continue;
        }
        let broken = mutant.edits.iter().fold(text, |text, (find, replace)| text.replace(find, replace));
        std::fs::write(&path, broken)?;
        match caught(&tree)? {
            Some(by) => println!("caught: {}: {by}", mutant.name),
            None => {
                println!("MISSED: {}", mutant.name);
                failed.push(mutant.name);
            }
        }
    }
    copy_tree(&tree)?;
    if !failed.is_empty() {
        bail!("{} mutants survive or are stale: {}", failed.len(), failed.join("; "));
    }
    Ok(())
}

/// Writes only what differs, so that little is compiled again.
fn copy_tree(to: &Path) -> Result<()> {
    let list = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("git ls-files")?;
    for name in String::from_utf8_lossy(&list.stdout).lines() {
        let source = root().join(name);
        let wanted = name.starts_with("crates/") || name.starts_with("sim/") || name.starts_with("xtask/");
        if !(wanted || name.starts_with("Cargo.")) || !source.is_file() {
            continue;
        }
        let target: PathBuf = to.join(name);
        let content = std::fs::read(&source)?;
        if std::fs::read(&target).is_ok_and(|old| old == content) {
            continue;
        }
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&target, content)?;
    }
    Ok(())
}

/// The test that failed, and its first complaint.
fn caught(tree: &Path) -> Result<Option<String>> {
    for test in TESTS {
        let output = Command::new("cargo")
            .args(["test", "-p", "store", "--test", "crash", "--", test])
            .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
            .current_dir(tree)
            .output()
            .context("cargo test")?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        ensure!(text.contains("running"), "the mutant does not compile:\n{text}");
        if !output.status.success() {
            let mut lines = text.lines();
            let _ = lines.find(|line| line.contains("panicked at"));
            let complaint = lines.next().unwrap_or_default();
            let replay = text.lines().find_map(|line| line.strip_prefix("reproduce: ")).unwrap_or_default();
            let replay = replay.split(' ').next().unwrap_or_default();
            return Ok(Some(format!("{test}: {complaint} ({replay})")));
        }
    }
    Ok(None)
}
