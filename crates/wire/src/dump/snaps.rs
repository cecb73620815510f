//! Snapshot ids as text: hexadecimal.

use crate::types::{IntervalSet, SnapId};

pub fn snap_text(snap: SnapId) -> String {
    match snap {
        SnapId::HEAD => "head".to_owned(),
        SnapId::SNAPDIR => "snapdir".to_owned(),
        SnapId(n) => format!("{n:x}"),
    }
}

/// `[start~length,…]`
pub fn snap_intervals_text(set: &IntervalSet) -> String {
    let ranges: Vec<String> = set.iter().map(|(start, len)| format!("{start:x}~{len:x}")).collect();
    format!("[{}]", ranges.join(","))
}
