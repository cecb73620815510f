//! Collections, objects and bytes as people and programs read them.

use base64::Engine as _;
use serde_json::{Value, json};
use store::CollId;
use wire::types::{HObject, PgId, PoolId, SnapId};

pub fn collection(coll: CollId) -> String {
    match coll {
        CollId::Meta => "meta".into(),
        CollId::Pg(pg) => pg.to_string(),
    }
}

/// The reverse of [`collection`].
pub fn parse_collection(text: &str) -> Result<CollId, String> {
    let pg = || {
        let (pool, seed) = text.split_once('.')?;
        let pg = PgId { pool: PoolId(pool.parse().ok()?), seed: u32::from_str_radix(seed, 16).ok()? };
        Some(CollId::Pg(pg))
    };
    match text {
        "meta" => Ok(CollId::Meta),
        _ => pg().ok_or_else(|| format!("{text}: neither `meta` nor a PG such as 1.1f")),
    }
}

pub fn snap(snap: SnapId) -> String {
    match snap {
        SnapId::HEAD => "head".into(),
        SnapId(number) => number.to_string(),
    }
}

/// Like `rbd_data.1` or `nspace/rbd_data.1@4`; the empty name as `""`.
pub fn object(object: &HObject) -> String {
    let mut text = String::new();
    if !object.nspace.is_empty() {
        text = format!("{}/", object.nspace.escape_default());
    }
    match object.name.is_empty() {
        true => text.push_str("\"\""),
        false => text.extend(object.name.escape_default()),
    }
    if !object.key.is_empty() {
        text.push_str(&format!(" (key {})", object.key.escape_default()));
    }
    if object.snap != SnapId::HEAD {
        text.push_str(&format!("@{}", snap(object.snap)));
    }
    text
}

/// A string where the bytes are one that can be shown, else `{"base64": …}`.
pub fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => json!(text),
        _ => json!({ "base64": base64::engine::general_purpose::STANDARD.encode(bytes) }),
    }
}

/// The beginning, with what cannot be shown escaped, and the length.
pub fn bytes_text(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{}{more} ({} bytes)", shown.escape_ascii(), bytes.len())
}

pub fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_read_as_they_are_written() {
        for text in ["meta", "1.0", "12.1f"] {
            assert_eq!(parse_collection(text).map(collection), Ok(text.to_string()));
        }
        for text in ["", "1", "1.", ".1", "1.zz", "Meta"] {
            assert!(parse_collection(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_still_whole_in_json() {
        assert_eq!(bytes_json(b"plain"), json!("plain"));
        assert_eq!(bytes_json(b"\0\xff"), json!({ "base64": "AP8=" }));
        assert_eq!(bytes_text(b"a\n"), "a\\n (2 bytes)");
    }
}
