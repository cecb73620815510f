//! The options this cluster knows by name and value, and those it passes on to
//! stock clients, which know them themselves.

/// What values an option takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bool,
    Int,
    Uint,
    Float,
    Str,
    Size,
}

impl Kind {
    /// Ceph's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Float => "float",
            Kind::Str => "str",
            Kind::Size => "size",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ConfigOption {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub help: &'static str,
}

macro_rules! options {
    ($($name:ident: $kind:ident = $default:literal, $help:literal;)*) => {
        /// By name.
        pub const OPTIONS: &[ConfigOption] = &[$(ConfigOption {
            name: stringify!($name), kind: Kind::$kind, default: $default, help: $help,
        }),*];
    };
}

options! {
    mon_allow_pool_delete: Bool = "false", "whether pools may be deleted";
    mon_allow_pool_size_one: Bool = "false", "whether pools may have a single replica";
    mon_max_pg_per_osd: Uint = "250", "PGs per OSD that pool changes may lead to at most";
    mon_max_pool_pg_num: Uint = "65536", "PGs that a pool may have at most";
    mon_osd_down_out_interval: Int = "600", "seconds after which an OSD that is down is marked out";
    mon_osd_min_down_reporters: Uint = "2", "OSDs that must report another one as silent";
    mon_osd_min_in_ratio: Float = "0.75", "share of OSDs that is never marked out automatically";
    mon_osd_report_timeout: Int = "900", "seconds without a report after which an OSD is marked down";
    mon_warn_on_pool_no_app: Bool = "true", "whether pools in use without an application are a warning";
    mon_warn_on_pool_no_redundancy: Bool = "true", "whether pools with one replica are a warning";
    osd_crush_chooseleaf_type: Int = "1", "the failure domain of a new cluster's rule, by type id";
    osd_crush_update_on_start: Bool = "true", "whether OSDs take their place in the CRUSH map when they start";
    osd_heartbeat_grace: Int = "20", "seconds of silence after which an OSD counts as failed";
    osd_heartbeat_interval: Int = "6", "seconds between heartbeats";
    osd_max_backfills: Uint = "1", "PGs that one OSD backfills at a time";
    osd_max_object_name_len: Uint = "2048", "longest object name";
    osd_max_object_size: Size = "134217728", "largest object";
    osd_max_write_size: Size = "90", "largest single write, in MiB";
    osd_op_complaint_time: Float = "30", "seconds after which an operation counts as slow";
    osd_pool_default_crush_rule: Int = "-1", "the rule of new pools; -1 takes the first replicated one";
    osd_pool_default_flag_hashpspool: Bool = "true", "whether new pools spread their PGs independently of other pools";
    osd_pool_default_min_size: Uint = "0", "replicas that new pools need to serve writes; 0 derives it from the size";
    osd_pool_default_pg_autoscale_mode: Str = "on", "what the autoscaler may do to new pools";
    osd_pool_default_pg_num: Uint = "32", "PGs of new pools";
    osd_pool_default_pgp_num: Uint = "0", "placements of new pools; 0 for as many as PGs";
    osd_pool_default_size: Uint = "3", "replicas of new pools";
    osd_pool_default_type: Str = "replicated", "the type of new pools";
    osd_recovery_max_active: Uint = "0", "recovery operations of one OSD at a time; 0 for a default by device";
    osd_recovery_sleep: Float = "0", "seconds between recovery operations";
}

/// Options of stock clients and daemons that take theirs from us.
const PASSED_ON: [&str; 14] = [
    "rbd_",
    "rgw_",
    "client_",
    "mds_",
    "objecter_",
    "rados_",
    "ms_",
    "log_",
    "debug_",
    "fuse_",
    "mon_client_",
    "journaler_",
    "crypto_",
    "err_",
];

pub enum Lookup {
    Known(&'static ConfigOption),
    /// Somebody else's; its value cannot be checked here.
    PassedOn,
    Unknown,
}

pub fn lookup(name: &str) -> Lookup {
    if let Some(option) = OPTIONS.iter().find(|o| o.name == name) {
        return Lookup::Known(option);
    }
    let well_formed = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if well_formed && PASSED_ON.iter().any(|prefix| name.len() > prefix.len() && name.starts_with(prefix)) {
        return Lookup::PassedOn;
    }
    Lookup::Unknown
}

pub fn parse_bool(value: &str) -> Option<bool> {
    match value.trim() {
        "true" | "yes" | "1" | "on" => Some(true),
        "false" | "no" | "0" | "off" => Some(false),
        _ => None,
    }
}

impl ConfigOption {
    /// The value in the form it is stored in, or why it is refused.
    pub fn check(&self, value: &str) -> Result<String, String> {
        let value = value.trim();
        let parsed = match self.kind {
            Kind::Bool => parse_bool(value).map(|v| v.to_string()),
            Kind::Int => value.parse::<i64>().ok().map(|v| v.to_string()),
            Kind::Uint => value.parse::<u64>().ok().map(|v| v.to_string()),
            Kind::Float => value.parse::<f64>().ok().filter(|v| v.is_finite()).map(|_| value.to_string()),
            Kind::Size => crate::format::units::parse_size(value).map(|v| v.to_string()),
            Kind::Str => Some(value.to_string()),
        };
        parsed.ok_or_else(|| format!("error parsing value: '{value}' is not of type {}", self.kind.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_names_ascend() {
        for option in OPTIONS {
            assert_eq!(option.check(option.default).as_deref(), Ok(option.default), "{}", option.name);
        }
        assert!(OPTIONS.is_sorted_by_key(|o| o.name));
    }
}
