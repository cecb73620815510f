//! A pool's variables: `osd pool set` and `get`.

use super::{Command, Failure, Outcome, Reply, Request, fail};
use crate::config_options::parse_bool;
use base::{Errno, Json};
use crush::RULE_REPLICATED;
use wire::maps::{AutoscaleMode, PgPool, PoolFlags, PoolOpt, PoolOptType, PoolOptValue};
use wire::types::PoolId;

pub const COMMANDS: &[Command] = &[
    Command {
        signature: "osd pool set name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk name=val,type=CephString name=yes_i_really_mean_it,type=CephBool,req=false",
        access: "osd rw",
        help: "set a pool's variable",
        run: set,
    },
    Command {
        signature: "osd pool get name=pool,type=CephPoolname name=var,type=CephChoices,strings=size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk",
        access: "osd r",
        help: "show a pool's variable, or all",
        run: get,
    },
];

/// Flags that are variables of their own, in the order in which `get all` shows them.
const FLAGS: [(&str, PoolFlags); 7] = [
    ("hashpspool", PoolFlags::HASHPSPOOL),
    ("nodelete", PoolFlags::NODELETE),
    ("nopgchange", PoolFlags::NOPGCHANGE),
    ("nosizechange", PoolFlags::NOSIZECHANGE),
    ("write_fadvise_dontneed", PoolFlags::WRITE_FADVISE_DONTNEED),
    ("noscrub", PoolFlags::NOSCRUB),
    ("nodeep-scrub", PoolFlags::NODEEP_SCRUB),
];

// ---- get ----

fn get(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let var = r.args.string("var")?;
    let Some(pool) = r.core.osd.map().pool(id) else { return fail(Errno::ENOENT, "") };
    let found = if var == "all" { all(r, pool) } else { vec![(var.clone(), value(r, id, pool, &var)?)] };
    let json = || {
        let head = Json::object().with("pool", name.as_str()).with("pool_id", id.0);
        found.iter().fold(head, |json, (var, value)| json.with(var.as_str(), value.clone()))
    };
    let text = || found.iter().map(|(var, value)| format!("{var}: {}\n", plain(var, value))).collect();
    Ok(r.json_or(json, text))
}

/// Some truths print as numbers.
fn plain(var: &str, value: &Json) -> String {
    match value {
        Json::Bool(v) if var == "use_gmt_hitset" => u8::from(*v).to_string(),
        Json::Str(v) => v.clone(),
        Json::Float(v) => wire::dump::general(*v),
        other => other.compact(),
    }
}

fn all(r: &Request, pool: &PgPool) -> Vec<(String, Json)> {
    let mut vars: Vec<&str> = vec!["size", "min_size", "pg_num", "pgp_num", "crush_rule"];
    vars.extend(FLAGS.iter().map(|(name, _)| *name));
    vars.extend(["use_gmt_hitset", "fast_read"]);
    vars.extend(pool.opts.iter_by_name().map(|(name, _)| name));
    vars.extend(["pg_autoscale_mode", "bulk"]);
    let id = PoolId(0);
    vars.into_iter().filter_map(|var| Some((var.to_string(), value(r, id, pool, var).ok()?))).collect()
}

fn value(r: &Request, _: PoolId, pool: &PgPool, var: &str) -> Result<Json, Failure> {
    if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
        return Ok(pool.flags.contains(*flag).into());
    }
    let name = r.args.optional_string("pool").unwrap_or_default();
    if let Some(opt) = PoolOpt::by_name(var) {
        return match pool.opts.get(opt.key) {
            Some(PoolOptValue::Str(v)) => Ok(v.as_str().into()),
            Some(PoolOptValue::Int(v)) => Ok((*v).into()),
            Some(PoolOptValue::Double(v)) => Ok((*v).into()),
            None => fail(Errno::ENOENT, format!("option '{var}' is not set on pool '{name}'")),
        };
    }
    Ok(match var {
        "size" => pool.size.into(),
        "min_size" => pool.min_size.into(),
        "pg_num" => pool.pg_num.into(),
        "pgp_num" => pool.pgp_num.into(),
        "crush_rule" => match r.core.osd.crush().rule_name(i32::from(pool.crush_rule)) {
            Some(rule) => rule.into(),
            None => pool.crush_rule.to_string().into(),
        },
        "use_gmt_hitset" => pool.use_gmt_hitset.into(),
        "fast_read" => u8::from(pool.fast_read).into(),
        "bulk" => pool.flags.contains(PoolFlags::BULK).into(),
        "pg_autoscale_mode" => match pool.pg_autoscale_mode {
            AutoscaleMode::On => "on",
            AutoscaleMode::Warn => "warn",
            AutoscaleMode::Off => "off",
            AutoscaleMode::Unknown => "???",
        }
        .into(),
        "erasure_code_profile" | "allow_ec_overwrites" => {
            return fail(
                Errno::EACCES,
                format!("pool '{name}' is not a erasure pool: variable not applicable"),
            );
        }
        _ if is_tier_variable(var) => {
            return fail(Errno::EACCES, format!("pool '{name}' is not a tier pool: variable not applicable"));
        }
        _ => return fail(Errno::EINVAL, format!("unknown variable '{var}'")),
    })
}

fn is_tier_variable(var: &str) -> bool {
    var.starts_with("hit_set_")
        || var.starts_with("cache_")
        || matches!(var, "target_max_objects" | "target_max_bytes")
        || var.ends_with("_recency_for_promote")
}

// ---- set ----

fn set(r: &mut Request) -> Outcome {
    let (id, name) = r.pool("pool")?;
    let var = r.args.string("var")?;
    let text = r.args.string("val")?;
    let Some(mut pool) = r.core.osd.map().pool(id).cloned() else { return fail(Errno::ENOENT, "") };
    change(r, id, &name, &mut pool, &var, &text)?;
    let unset = PoolOpt::by_name(&var).is_some_and(|opt| pool.opts.get(opt.key).is_none());
    if let Some(pending) = r.core.osd.pool_mut(id) {
        *pending = pool;
    }
    Ok(Reply::status(if unset {
        format!("unset pool {id} {var}")
    } else {
        format!("set pool {id} {var} to {text}")
    }))
}

fn int(text: &str) -> Result<i64, Failure> {
    match text.trim().parse() {
        Ok(value) => Ok(value),
        Err(_) => fail(
            Errno::EINVAL,
            format!(
                "error parsing integer value '{text}': Expected option value to be integer, got '{text}'"
            ),
        ),
    }
}

fn boolean(text: &str) -> Result<bool, Failure> {
    match parse_bool(text) {
        Some(value) => Ok(value),
        None => fail(Errno::EINVAL, format!("expecting value 'true', 'false', '0', or '1', not '{text}'")),
    }
}

fn change(
    r: &Request,
    id: PoolId,
    name: &str,
    pool: &mut PgPool,
    var: &str,
    text: &str,
) -> Result<(), Failure> {
    if let Some((_, flag)) = FLAGS.iter().find(|(flag_name, _)| *flag_name == var) {
        let on = boolean(text)?;
        if *flag == PoolFlags::HASHPSPOOL && !r.args.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "are you SURE?  this will remap all placement groups in this pool, this may be a lot of data movement; pass --yes-i-really-mean-it if you really do.",
            );
        }
        pool.flags.set(*flag, on);
        return Ok(());
    }
    if let Some(opt) = PoolOpt::by_name(var) {
        return set_option(pool, opt, text);
    }
    match var {
        "size" => set_size(r, id, pool, int(text)?),
        "min_size" => set_min_size(pool, int(text)?),
        "pg_num" | "pgp_num" | "pgp_num_actual" => check_pg_num_unchanged(r, id, pool, var, int(text)?),
        "crush_rule" => set_rule(r, pool, text),
        "use_gmt_hitset" => {
            pool.use_gmt_hitset = boolean(text)?;
            Ok(())
        }
        "bulk" => {
            pool.flags.set(PoolFlags::BULK, boolean(text)?);
            Ok(())
        }
        "fast_read" => match boolean(text)? {
            false => Ok(()),
            true => fail(Errno::EINVAL, "fast read is not supported in replication pool"),
        },
        "pg_autoscale_mode" => {
            pool.pg_autoscale_mode = match text {
                "on" => AutoscaleMode::On,
                "warn" => AutoscaleMode::Warn,
                "off" => AutoscaleMode::Off,
                _ => return fail(Errno::EINVAL, format!("specified invalid mode {text}")),
            };
            Ok(())
        }
        "allow_ec_overwrites" => {
            fail(Errno::EINVAL, "ec overwrites can only be enabled for an erasure coded pool")
        }
        _ if is_tier_variable(var) => fail(
            Errno::EOPNOTSUPP,
            format!("pool '{name}': cache tiers are not supported, so '{var}' means nothing"),
        ),
        _ => fail(Errno::EINVAL, format!("unrecognized variable '{var}'")),
    }
}

fn set_option(pool: &mut PgPool, opt: &PoolOpt, text: &str) -> Result<(), Failure> {
    let value = match opt.kind {
        PoolOptType::Str => PoolOptValue::Str(text.to_string()),
        PoolOptType::Int => match crate::format::units::parse_size(text) {
            Some(v) => PoolOptValue::Int(i64::try_from(v).unwrap_or(i64::MAX)),
            None => PoolOptValue::Int(int(text)?),
        },
        PoolOptType::Double => match text.trim().parse::<f64>().ok().filter(|v| v.is_finite()) {
            Some(v) => PoolOptValue::Double(v),
            None => return fail(Errno::EINVAL, format!("error parsing floating point value '{text}'")),
        },
    };
    if opt.name == "recovery_priority" && !matches!(value, PoolOptValue::Int(-10..=10)) {
        return fail(Errno::EINVAL, "pool recovery_priority must be between -10 and 10");
    }
    // Nothing, zero and `unset` take most options back to their defaults, as in Ceph.
    let is_zero = match &value {
        PoolOptValue::Str(v) => v.is_empty() || v == "unset",
        PoolOptValue::Int(v) => *v == 0,
        PoolOptValue::Double(v) => *v == 0.0,
    };
    if is_zero {
        pool.opts.unset(opt.key);
    } else {
        pool.opts.set(opt.key, value);
    }
    Ok(())
}

fn set_size(r: &Request, id: PoolId, pool: &mut PgPool, size: i64) -> Result<(), Failure> {
    if pool.flags.contains(PoolFlags::NOSIZECHANGE) {
        return fail(
            Errno::EPERM,
            "pool size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    let size = match u8::try_from(size) {
        Ok(size @ 1..=10) => size,
        _ => return fail(Errno::EINVAL, "pool size must be between 1 and 10"),
    };
    if size == 1 {
        r.core.check_size_one(1, true)?;
        if !r.args.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
            );
        }
    }
    let fits = r.core.osd.crush().find_rule(pool.crush_rule, RULE_REPLICATED, usize::from(size)).is_some();
    if !fits {
        return fail(Errno::EINVAL, format!("pool size {size} is beyond what its crush rule serves"));
    }
    if size > pool.size {
        r.core.check_pg_num(Some(id), pool.pg_num, size)?;
    }
    // Fewer replicas than ever served writes: the bound follows.
    if size < pool.min_size || pool.min_size == pool.size - pool.size / 2 {
        pool.min_size = r.core.default_min_size(size);
    }
    pool.size = size;
    Ok(())
}

fn set_min_size(pool: &mut PgPool, min_size: i64) -> Result<(), Failure> {
    if pool.flags.contains(PoolFlags::NOSIZECHANGE) {
        return fail(
            Errno::EPERM,
            "pool min size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    match u8::try_from(min_size) {
        Ok(min_size) if (1..=pool.size).contains(&min_size) => {
            pool.min_size = min_size;
            Ok(())
        }
        _ => fail(
            Errno::EINVAL,
            format!("pool min_size must be between 1 and size, which is set to {}", pool.size),
        ),
    }
}

/// Splitting and merging PGs is not implemented; the OSDs would look for
/// objects where they are not.
fn check_pg_num_unchanged(
    r: &Request,
    id: PoolId,
    pool: &PgPool,
    var: &str,
    wanted: i64,
) -> Result<(), Failure> {
    let current = if var == "pg_num" { pool.pg_num } else { pool.pgp_num };
    if wanted == i64::from(current) {
        return Ok(());
    }
    let Ok(n) = u32::try_from(wanted) else {
        return fail(Errno::EINVAL, format!("specified {var} {wanted} is out of range"));
    };
    if n == 0 {
        return fail(Errno::EINVAL, format!("specified {var} 0 must be greater than 0"));
    }
    if pool.flags.contains(PoolFlags::NOPGCHANGE) {
        return fail(
            Errno::EPERM,
            format!("pool {var} change is disabled; you must unset nopgchange flag for the pool first"),
        );
    }
    if var != "pg_num" && n > pool.pg_num {
        return fail(Errno::EINVAL, format!("specified pgp_num {n} > pg_num {}", pool.pg_num));
    }
    if var == "pg_num" {
        r.core.check_pg_num(Some(id), n, pool.size)?;
    }
    fail(Errno::EOPNOTSUPP, format!("changing {var} of a pool is not supported yet"))
}

fn set_rule(r: &Request, pool: &mut PgPool, name: &str) -> Result<(), Failure> {
    let crush = r.core.osd.crush();
    let Some(number) = crush.rule_id(name) else {
        return fail(Errno::ENOENT, format!("crush rule {name} does not exist"));
    };
    let fits = crush.rule(number).is_some_and(|rule| {
        rule.rule_type == RULE_REPLICATED && (rule.min_size..=rule.max_size).contains(&pool.size)
    });
    match u8::try_from(number) {
        Ok(number) if fits => {
            pool.crush_rule = number;
            Ok(())
        }
        _ => fail(Errno::EINVAL, format!("crush rule {name} type does not match pool")),
    }
}
