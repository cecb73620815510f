//! A JSON value and its text as Ceph prints it, which tools and scripts compare:
//! object keys in the order they were added, floating point with 17 significant
//! digits, four spaces of indentation when pretty.
//!
//! Source: Ceph `src/common/Formatter.cc` (`JSONFormatter`).

use std::fmt::Write;

#[derive(Clone, PartialEq, Debug)]
pub enum Json {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Str(String),
    Array(Vec<Json>),
    /// In printing order; keys may repeat, as they do in some of Ceph's dumps.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// An object without fields yet.
    pub fn object() -> Json {
        Json::Object(Vec::new())
    }

    /// Adds a field; only for objects.
    pub fn push(&mut self, key: impl Into<String>, value: impl Into<Json>) {
        match self {
            Json::Object(fields) => fields.push((key.into(), value.into())),
            _ => unreachable!("push on a JSON value that is no object"),
        }
    }

    /// `push`, for chains.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Json>) -> Json {
        self.push(key, value);
        self
    }

    pub fn array<T: Into<Json>>(items: impl IntoIterator<Item = T>) -> Json {
        Json::Array(items.into_iter().map(Into::into).collect())
    }

    /// The field of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// On one line, without spaces.
    pub fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, None);
        out
    }

    /// Indented, with a newline at the end.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Some(0));
        out.push('\n');
        out
    }

    fn write(&self, out: &mut String, depth: Option<usize>) {
        match self {
            Json::Bool(v) => out.push_str(if *v { "true" } else { "false" }),
            Json::Int(v) => drop(write!(out, "{v}")),
            Json::Uint(v) => drop(write!(out, "{v}")),
            Json::Float(v) => out.push_str(&float(*v)),
            Json::Str(v) => quote(v, out),
            Json::Array(items) => {
                let items = items.iter().map(|item| (None, item));
                write_list(out, depth, ('[', ']'), items);
            }
            Json::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (Some(key.as_str()), value));
                write_list(out, depth, ('{', '}'), fields);
            }
        }
    }
}

fn write_list<'a>(
    out: &mut String,
    depth: Option<usize>,
    brackets: (char, char),
    items: impl Iterator<Item = (Option<&'a str>, &'a Json)>,
) {
    out.push(brackets.0);
    let mut empty = true;
    for (key, value) in items {
        if !empty {
            out.push(',');
        }
        empty = false;
        new_line(out, depth.map(|d| d + 1));
        if let Some(key) = key {
            quote(key, out);
            out.push(':');
            if depth.is_some() {
                out.push(' ');
            }
        }
        value.write(out, depth.map(|d| d + 1));
    }
    if !empty {
        new_line(out, depth);
    }
    out.push(brackets.1);
}

fn new_line(out: &mut String, depth: Option<usize>) {
    if let Some(depth) = depth {
        out.push('\n');
        for _ in 0..depth {
            out.push_str("    ");
        }
    }
}

fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// C's `%.17g`. JSON has no word for the values that are no number; Ceph
/// prints C's, and so do we, within quotes so that the text stays JSON.
fn float(v: f64) -> String {
    if v.is_finite() { general(v, 17) } else { format!("\"{v}\"") }
}

/// C's `%.Ng`: `digits` significant digits, no trailing zeros, an exponent
/// when the number is far from 1.
pub fn general(v: f64, digits: usize) -> String {
    let digits = digits.max(1);
    if v == 0.0 {
        return "0".into();
    }
    let scientific = format!("{v:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= limit {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(limit - 1 - exponent).unwrap_or(0);
    trim_zeros(&format!("{v:.decimals$}")).to_string()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

macro_rules! from {
    ($($t:ty => $variant:ident as $as:ty;)*) => {$(
        impl From<$t> for Json {
            fn from(v: $t) -> Json { Json::$variant(<$as>::from(v)) }
        }
    )*};
}
from! {
    bool => Bool as bool;
    i8 => Int as i64;
    i16 => Int as i64;
    i32 => Int as i64;
    i64 => Int as i64;
    u8 => Uint as u64;
    u16 => Uint as u64;
    u32 => Uint as u64;
    u64 => Uint as u64;
    f32 => Float as f64;
    f64 => Float as f64;
    &str => Str as String;
    String => Str as String;
}

impl From<usize> for Json {
    fn from(v: usize) -> Json {
        Json::Uint(v as u64)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(items: Vec<T>) -> Json {
        Json::array(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_ceph_prints_them() {
        // From a real cluster: `osd dump`, `status`, `osd tree`, `df`.
        for (value, text) in [
            (f64::from(0.95f32), "0.94999998807907104"),
            (f64::from(0.4f32), "0.40000000596046448"),
            (0.0194854736328125, "0.0194854736328125"),
            (0.00013914711598772556, "0.00013914711598772556"),
            (1.0, "1"),
            (0.0, "0"),
            (-1.0, "-1"),
            (100.0, "100"),
        ] {
            assert_eq!(float(value), text);
        }
        assert_eq!(float(1e-7), "9.9999999999999995e-08");
        assert_eq!(float(1e20), "1e+20");
    }

    #[test]
    fn pretty_and_compact_have_cephs_layout() {
        let v = Json::object()
            .with("a", 1)
            .with("b", Json::array(["x\"y", "z"]))
            .with("c", Json::object())
            .with("d", Json::Array(vec![]));
        assert_eq!(v.compact(), r#"{"a":1,"b":["x\"y","z"],"c":{},"d":[]}"#);
        let pretty = "{\n    \"a\": 1,\n    \"b\": [\n        \"x\\\"y\",\n        \"z\"\n    ],\n    \"c\": {},\n    \"d\": []\n}\n";
        assert_eq!(v.pretty(), pretty);
    }
}
