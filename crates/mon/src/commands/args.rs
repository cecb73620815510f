//! A command's arguments: JSON as the `ceph` command and libraries send it,
//! where a number may be a string and a flag may be a word.

use super::{Failure, fail};
use base::Errno;
use serde_json::{Map, Value};
use wire::types::{OsdId, PgId};

pub struct Args(Map<String, Value>);

impl Args {
    /// None unless it is an object with a prefix.
    pub fn parse(text: &str) -> Option<Args> {
        match serde_json::from_str(text) {
            Ok(Value::Object(fields)) if fields.get("prefix").is_some_and(Value::is_string) => {
                Some(Args(fields))
            }
            _ => None,
        }
    }

    pub fn prefix(&self) -> &str {
        self.0.get("prefix").and_then(Value::as_str).unwrap_or("")
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|v| !v.is_null())
    }

    pub fn optional_string(&self, name: &str) -> Option<String> {
        match self.0.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            // Arguments that may repeat come as lists even when they do not.
            Value::Array(items) => Some(items.iter().filter_map(text_of).collect::<Vec<_>>().join(" ")),
            _ => None,
        }
    }

    pub fn string(&self, name: &str) -> Result<String, Failure> {
        match self.optional_string(name) {
            Some(text) => Ok(text),
            None => fail(Errno::EINVAL, format!("missing required parameter {name}")),
        }
    }

    /// An argument that may repeat; empty when it is absent.
    pub fn strings(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Value::Array(items)) => items.iter().filter_map(text_of).collect(),
            Some(value) => text_of(value).into_iter().collect(),
            None => Vec::new(),
        }
    }

    pub fn optional_int(&self, name: &str) -> Result<Option<i64>, Failure> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.string(name)?;
        let parsed = text.trim().parse::<i64>().ok();
        match parsed
            .or_else(|| text.trim().parse::<f64>().ok().filter(|v| v.fract() == 0.0).map(|v| v as i64))
        {
            Some(value) => Ok(Some(value)),
            None => fail(Errno::EINVAL, format!("{name}: '{text}' is not an integer")),
        }
    }

    pub fn int(&self, name: &str) -> Result<i64, Failure> {
        match self.optional_int(name)? {
            Some(value) => Ok(value),
            None => fail(Errno::EINVAL, format!("missing required parameter {name}")),
        }
    }

    pub fn optional_float(&self, name: &str) -> Result<Option<f64>, Failure> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.string(name)?;
        match text.trim().parse::<f64>().ok().filter(|v| v.is_finite()) {
            Some(value) => Ok(Some(value)),
            None => fail(Errno::EINVAL, format!("{name}: '{text}' is not a number")),
        }
    }

    pub fn float(&self, name: &str) -> Result<f64, Failure> {
        match self.optional_float(name)? {
            Some(value) => Ok(value),
            None => fail(Errno::EINVAL, format!("missing required parameter {name}")),
        }
    }

    /// A flag: `true`, `"true"`, or in the form older clients send, the option itself.
    pub fn flag(&self, name: &str) -> bool {
        match self.0.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true" || text.starts_with("--"),
            Some(Value::Array(items)) => items.iter().any(|v| v.as_bool() == Some(true)),
            _ => false,
        }
    }

    pub fn optional_osd(&self, name: &str) -> Result<Option<OsdId>, Failure> {
        if !self.has(name) {
            return Ok(None);
        }
        let text = self.string(name)?;
        match parse_osd(&text) {
            Some(osd) => Ok(Some(osd)),
            None => fail(Errno::EINVAL, format!("osd id {text} is invalid")),
        }
    }

    /// `3` or `osd.3`.
    pub fn osd(&self, name: &str) -> Result<OsdId, Failure> {
        match self.optional_osd(name)? {
            Some(osd) => Ok(osd),
            None => fail(Errno::EINVAL, format!("missing required parameter {name}")),
        }
    }

    pub fn pg(&self, name: &str) -> Result<PgId, Failure> {
        let text = self.string(name)?;
        match text.parse() {
            Ok(pg) => Ok(pg),
            Err(_) => fail(Errno::EINVAL, format!("invalid pgid '{text}'")),
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

pub fn parse_osd(text: &str) -> Option<OsdId> {
    let number = text.strip_prefix("osd.").unwrap_or(text);
    number.parse().ok().filter(|id: &i32| *id >= 0).map(OsdId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_flags_and_lists_are_read_in_every_form_clients_send() {
        let args = Args::parse(
            r#"{"prefix":"x","a":5,"b":"6","c":["osd.1",2],"d":true,"e":"--yes","f":1.5,"g":"1.5","h":null}"#,
        );
        let args = args.unwrap();
        assert_eq!(args.int("a"), Ok(5));
        assert_eq!(args.int("b"), Ok(6));
        assert_eq!(args.strings("c"), ["osd.1", "2"]);
        assert!(args.flag("d") && args.flag("e") && !args.flag("a") && !args.flag("z"));
        assert_eq!(args.float("f"), args.float("g"));
        assert_eq!(args.optional_int("h"), Ok(None));
        assert!(args.int("c").is_err());
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for text in ["", "null", "[]", "{", r#"{"prefix":5}"#, r#"{"a":1}"#] {
            assert!(Args::parse(text).is_none(), "{text}");
        }
    }
}
