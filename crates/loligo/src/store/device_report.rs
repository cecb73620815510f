//! What is known of a device, for people and for programs.

use serde_json::{Value, json};
use uring::{BackendKind, DiskFacts, Finding};

pub fn lines(facts: &DiskFacts, backend: Option<BackendKind>) -> Vec<(&'static str, String)> {
    let said = |finding: Finding| format!("{}: {}", if finding.yes { "yes" } else { "no" }, finding.reason);
    let mut lines = vec![
        ("kind", facts.kind.name().to_string()),
        ("size", format!("{} bytes", facts.len_bytes)),
        (
            "blocks",
            format!("{} bytes logical, {} physical", facts.logical_block_len, facts.physical_block_len),
        ),
        ("direct I/O", said(facts.direct)),
        ("volatile cache", said(facts.volatile_cache)),
        ("discard", said(facts.discard)),
    ];
    if let Some(backend) = backend {
        lines.push(("interface", backend.to_string()));
    }
    lines
}

pub fn json(facts: &DiskFacts, backend: Option<BackendKind>) -> Value {
    let said = |finding: Finding| json!({ "yes": finding.yes, "reason": finding.reason });
    json!({
        "kind": facts.kind.name(),
        "len_bytes": facts.len_bytes,
        "logical_block_len": facts.logical_block_len,
        "physical_block_len": facts.physical_block_len,
        "direct": said(facts.direct),
        "volatile_cache": said(facts.volatile_cache),
        "fua": facts.fua,
        "discard": said(facts.discard),
        "interface": backend.map(|b| b.to_string()),
    })
}
