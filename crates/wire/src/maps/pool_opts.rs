use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::collections::BTreeMap;
use std::fmt;

/// One pool option's value, of the type its key demands.
#[derive(Clone, PartialEq, Debug)]
pub enum PoolOptValue {
    Str(String),
    Int(i64),
    Double(f64),
}

/// `pool_opts_t`: per-pool settings that not every pool has.
///
/// Shape: by key number; unknown keys of a newer writer are kept as they came.
/// Source: Ceph 16.2.15, src/osd/osd_types.h (`pool_opts_t`).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PoolOpts(pub BTreeMap<i32, PoolOptValue>);

/// An option's key number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolOptKey(pub i32);

/// Which variant of [`PoolOptValue`] an option holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolOptType {
    Str,
    Int,
    Double,
}

/// A known option: its name for `ceph osd pool set`, its key and its type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolOpt {
    pub name: &'static str,
    pub key: PoolOptKey,
    pub kind: PoolOptType,
}

macro_rules! options {
    ($($konst:ident = $key:literal, $name:literal, $kind:ident;)*) => {
        impl PoolOptKey {
            $(pub const $konst: PoolOptKey = PoolOptKey($key);)*
        }

        impl PoolOpt {
            /// Every known option by name, ascending: Ceph's printing order.
            pub const ALL: &'static [PoolOpt] = &[$(PoolOpt {
                name: $name,
                key: PoolOptKey($key),
                kind: PoolOptType::$kind,
            }),*];
        }
    };
}

options! {
    COMPRESSION_ALGORITHM = 7, "compression_algorithm", Str;
    COMPRESSION_MAX_BLOB_SIZE = 9, "compression_max_blob_size", Int;
    COMPRESSION_MIN_BLOB_SIZE = 10, "compression_min_blob_size", Int;
    COMPRESSION_MODE = 6, "compression_mode", Str;
    COMPRESSION_REQUIRED_RATIO = 8, "compression_required_ratio", Double;
    CSUM_MAX_BLOCK = 12, "csum_max_block", Int;
    CSUM_MIN_BLOCK = 13, "csum_min_block", Int;
    CSUM_TYPE = 11, "csum_type", Int;
    DEDUP_CDC_CHUNK_SIZE = 22, "dedup_cdc_chunk_size", Int;
    DEDUP_CHUNK_ALGORITHM = 21, "dedup_chunk_algorithm", Str;
    DEDUP_TIER = 20, "dedup_tier", Int;
    DEEP_SCRUB_INTERVAL = 2, "deep_scrub_interval", Double;
    FINGERPRINT_ALGORITHM = 14, "fingerprint_algorithm", Str;
    PG_AUTOSCALE_BIAS = 18, "pg_autoscale_bias", Double;
    PG_NUM_MAX = 23, "pg_num_max", Int;
    PG_NUM_MIN = 15, "pg_num_min", Int;
    READ_LEASE_INTERVAL = 19, "read_lease_interval", Double;
    RECOVERY_OP_PRIORITY = 4, "recovery_op_priority", Int;
    RECOVERY_PRIORITY = 3, "recovery_priority", Int;
    SCRUB_MAX_INTERVAL = 1, "scrub_max_interval", Double;
    SCRUB_MIN_INTERVAL = 0, "scrub_min_interval", Double;
    SCRUB_PRIORITY = 5, "scrub_priority", Int;
    TARGET_SIZE_BYTES = 16, "target_size_bytes", Int;
    TARGET_SIZE_RATIO = 17, "target_size_ratio", Double;
}

impl PoolOpt {
    pub fn by_name(name: &str) -> Option<&'static PoolOpt> {
        PoolOpt::ALL.iter().find(|o| o.name == name)
    }
}

impl PoolOpts {
    pub fn get(&self, key: PoolOptKey) -> Option<&PoolOptValue> {
        self.0.get(&key.0)
    }

    pub fn set(&mut self, key: PoolOptKey, value: PoolOptValue) {
        self.0.insert(key.0, value);
    }

    pub fn unset(&mut self, key: PoolOptKey) -> bool {
        self.0.remove(&key.0).is_some()
    }

    /// Known options that are set, in Ceph's printing order.
    pub fn iter_by_name(&self) -> impl Iterator<Item = (&'static str, &PoolOptValue)> {
        PoolOpt::ALL.iter().filter_map(|o| Some((o.name, self.get(o.key)?)))
    }
}

/// As in `ceph osd pool ls detail`.
impl fmt::Display for PoolOptValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolOptValue::Str(v) => f.write_str(v),
            PoolOptValue::Int(v) => write!(f, "{v}"),
            PoolOptValue::Double(v) => write!(f, "{v}"),
        }
    }
}

impl Encode for PoolOpts {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 1, |e| {
            e.count(self.0.len());
            for (key, value) in &self.0 {
                e.i32(*key);
                match value {
                    PoolOptValue::Str(v) => {
                        e.i32(0);
                        e.string(v);
                    }
                    PoolOptValue::Int(v) => {
                        e.i32(1);
                        e.i64(*v);
                    }
                    PoolOptValue::Double(v) => {
                        e.i32(2);
                        e.f64(*v);
                    }
                }
            }
        });
    }
}

impl Decode for PoolOpts {
    const MIN_LEN: usize = 6 + 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("pool_opts_t", 2, |d, version| {
            let n = d.count("pool options", 12)?;
            let mut opts = BTreeMap::new();
            for _ in 0..n {
                let key = d.i32()?;
                let value = match d.i32()? {
                    0 => PoolOptValue::Str(d.string()?),
                    1 if version >= 2 => PoolOptValue::Int(d.i64()?),
                    1 => PoolOptValue::Int(i64::from(d.i32()?)),
                    2 => PoolOptValue::Double(d.f64()?),
                    _ => return Err(DecodeError::Invalid { what: "pool option type" }),
                };
                opts.insert(key, value);
            }
            Ok(PoolOpts(opts))
        })
    }
}
