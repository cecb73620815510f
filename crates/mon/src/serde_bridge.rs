//! From the maps' dumps, which are `serde_json` values, to [`Json`], which
//! prints as Ceph does.

use base::Json;
use serde_json::Value;

pub fn from_serde(value: &Value) -> Json {
    match value {
        // Ceph's dumps have no null.
        Value::Null => Json::Str(String::new()),
        Value::Bool(v) => Json::Bool(*v),
        Value::String(v) => Json::Str(v.clone()),
        Value::Array(items) => Json::array(items.iter().map(from_serde)),
        Value::Object(fields) => {
            Json::Object(fields.iter().map(|(key, value)| (key.clone(), from_serde(value))).collect())
        }
        Value::Number(v) => match (v.as_i64(), v.as_u64()) {
            (Some(v), _) => Json::Int(v),
            (None, Some(v)) => Json::Uint(v),
            (None, None) => Json::Float(v.as_f64().unwrap_or(0.0)),
        },
    }
}
