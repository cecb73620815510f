//! A pool, as in `ceph osd dump` and `ceph osd pool ls detail`.

use super::{general, number, snap_intervals_text, wall_time};
use crate::maps::{
    AutoscaleMode, HitSetParams, OsdMap, PeeringCrush, PgPool, PoolFlags, PoolOptValue, PoolType,
};
use crate::types::PoolId;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What Ceph shows where no pool of a stretch cluster says otherwise.
const NO_PEERING_CRUSH: PeeringCrush = PeeringCrush {
    bucket_count: 0,
    bucket_target: 0,
    bucket_barrier: 0,
    // CRUSH_ITEM_NONE
    mandatory_member: 0x7fff_ffff,
};

/// Bounds what a dump of a hostile map can cost; real pools have a handful.
const GRADES_MAX: usize = 1024;

fn autoscale_name(mode: AutoscaleMode) -> &'static str {
    match mode {
        AutoscaleMode::Off => "off",
        AutoscaleMode::Warn => "warn",
        AutoscaleMode::On => "on",
        AutoscaleMode::Unknown => "???",
    }
}

fn cache_mode_name(mode: u8) -> &'static str {
    const NAMES: [&str; 7] =
        ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];
    NAMES.get(usize::from(mode)).copied().unwrap_or("unknown")
}

fn hit_set(params: HitSetParams) -> Value {
    match params {
        HitSetParams::None => json!({"type": "none"}),
        HitSetParams::ExplicitHash => json!({"type": "explicit_hash"}),
        HitSetParams::ExplicitObject => json!({"type": "explicit_object"}),
        HitSetParams::Bloom { fpp_micro, target_size, seed } => json!({
            "type": "bloom",
            "false_positive_probability": number(f64::from(fpp_micro) / 1_000_000.0),
            "target_size": target_size,
            "seed": seed,
        }),
    }
}

/// How much a hit in each older hit set counts.
fn grade_table(pool: &PgPool) -> Vec<u32> {
    let keep = 1.0 - f64::from(pool.hit_set_grade_decay_rate) / 100.0;
    let count = usize::try_from(pool.hit_set_count).unwrap_or(GRADES_MAX).min(GRADES_MAX);
    let grades = std::iter::successors(Some(1_000_000_u32), |grade| Some((f64::from(*grade) * keep) as u32));
    grades.skip(1).take(count).collect()
}

fn option_value(value: &PoolOptValue) -> Value {
    match value {
        PoolOptValue::Str(v) => json!(v),
        PoolOptValue::Int(v) => json!(v),
        PoolOptValue::Double(v) => number(*v),
    }
}

/// The fields of a pool, without its id and name.
pub fn pg_pool(pool: &PgPool) -> Map<String, Value> {
    let mut out = Map::new();
    for part in [placement(pool), history(pool), tiering(pool), rest(pool)] {
        if let Value::Object(fields) = part {
            out.extend(fields);
        }
    }
    out
}

fn placement(pool: &PgPool) -> Value {
    let peering = pool.peering_crush.unwrap_or(NO_PEERING_CRUSH);
    json!({
        "create_time": wall_time(pool.create_time),
        "flags": pool.flags.0,
        "flags_names": pool.flags.to_string(),
        "type": match pool.pool_type { PoolType::Replicated => 1, PoolType::Erasure => 3 },
        "size": pool.size,
        "min_size": pool.min_size,
        "crush_rule": pool.crush_rule,
        "peering_crush_bucket_count": peering.bucket_count,
        "peering_crush_bucket_target": peering.bucket_target,
        "peering_crush_bucket_barrier": peering.bucket_barrier,
        "peering_crush_bucket_mandatory_member": peering.mandatory_member,
        "object_hash": pool.object_hash,
        "pg_autoscale_mode": autoscale_name(pool.pg_autoscale_mode),
        "pg_num": pool.pg_num,
        "pg_placement_num": pool.pgp_num,
        "pg_placement_num_target": pool.pgp_num_target,
        "pg_num_target": pool.pg_num_target,
        "pg_num_pending": pool.pg_num_pending,
    })
}

/// Epochs are strings here, because Ceph streams them.
fn history(pool: &PgPool) -> Value {
    let merge = &pool.last_pg_merge_meta;
    let snaps: Vec<Value> = (pool.snaps.values())
        .map(|s| json!({"snapid": s.snapid.0, "stamp": wall_time(s.stamp), "name": s.name}))
        .collect();
    json!({
        "last_pg_merge_meta": {
            "source_pgid": merge.source_pgid.to_string(),
            "ready_epoch": merge.ready_epoch.0,
            "last_epoch_started": merge.last_epoch_started.0,
            "last_epoch_clean": merge.last_epoch_clean.0,
            "source_version": merge.source_version.to_string(),
            "target_version": merge.target_version.to_string(),
        },
        "last_change": pool.last_change.to_string(),
        "last_force_op_resend": pool.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": pool.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": pool.last_force_op_resend_preluminous.to_string(),
        "auid": pool.auid,
        "snap_mode": if pool.flags.contains(PoolFlags::POOL_SNAPS) { "pool" } else { "selfmanaged" },
        "snap_seq": pool.snap_seq.0,
        "snap_epoch": pool.snap_epoch.0,
        "pool_snaps": snaps,
        "removed_snaps": snap_intervals_text(&pool.removed_snaps),
        "quota_max_bytes": pool.quota_max_bytes,
        "quota_max_objects": pool.quota_max_objects,
    })
}

fn tiering(pool: &PgPool) -> Value {
    json!({
        "tiers": pool.tiers.iter().map(|id| id.0).collect::<Vec<_>>(),
        "tier_of": pool.tier_of.0,
        "read_tier": pool.read_tier.0,
        "write_tier": pool.write_tier.0,
        "cache_mode": cache_mode_name(pool.cache_mode),
        "target_max_bytes": pool.target_max_bytes,
        "target_max_objects": pool.target_max_objects,
        "cache_target_dirty_ratio_micro": pool.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": pool.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": pool.cache_target_full_ratio_micro,
        "cache_min_flush_age": pool.cache_min_flush_age,
        "cache_min_evict_age": pool.cache_min_evict_age,
        "erasure_code_profile": pool.erasure_code_profile,
        "hit_set_params": hit_set(pool.hit_set_params),
        "hit_set_period": pool.hit_set_period,
        "hit_set_count": pool.hit_set_count,
        "use_gmt_hitset": pool.use_gmt_hitset,
        "min_read_recency_for_promote": pool.min_read_recency_for_promote,
        "min_write_recency_for_promote": pool.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": pool.hit_set_grade_decay_rate,
        "hit_set_search_last_n": pool.hit_set_search_last_n,
        "grade_table": grade_table(pool),
    })
}

fn rest(pool: &PgPool) -> Value {
    let options: Map<String, Value> =
        pool.opts.iter_by_name().map(|(name, value)| (name.to_owned(), option_value(value))).collect();
    json!({
        "stripe_width": pool.stripe_width,
        "expected_num_objects": pool.expected_num_objects,
        "fast_read": pool.fast_read,
        "options": options,
        "application_metadata": pool.application_metadata,
    })
}

pub(super) fn pool_name(map: &OsdMap, id: PoolId) -> &str {
    map.pool_name(id).unwrap_or("<unknown>")
}

/// `ceph osd pool ls detail -f json`
pub fn pools_detail(map: &OsdMap) -> Value {
    map.pools.iter().map(|(id, pool)| with_name("pool_id", map, *id, pool)).collect()
}

/// A pool's id under the key that the command uses, its name, and its fields.
pub(super) fn with_name(id_key: &str, map: &OsdMap, id: PoolId, pool: &PgPool) -> Value {
    let mut out = Map::new();
    out.insert(id_key.to_owned(), json!(id.0));
    out.insert("pool_name".to_owned(), json!(pool_name(map, id)));
    out.extend(pg_pool(pool));
    Value::Object(out)
}

/// A pool's line in `ceph osd dump`, after its number and name.
pub fn pool_text(pool: &PgPool) -> String {
    let mut out = String::new();
    match pool.pool_type {
        PoolType::Replicated => out.push_str("replicated"),
        PoolType::Erasure => out.push_str("erasure"),
    }
    if !pool.erasure_code_profile.is_empty() {
        let _ = write!(out, " profile {}", pool.erasure_code_profile);
    }
    let hash = if pool.object_hash == 2 { "rjenkins" } else { "unknown" };
    let _ = write!(
        out,
        " size {} min_size {} crush_rule {} object_hash {hash} pg_num {} pgp_num {}",
        pool.size, pool.min_size, pool.crush_rule, pool.pg_num, pool.pgp_num
    );
    write_pg_num_targets(&mut out, pool);
    if pool.pg_autoscale_mode != AutoscaleMode::Unknown {
        let _ = write!(out, " autoscale_mode {}", autoscale_name(pool.pg_autoscale_mode));
    }
    let _ = write!(out, " last_change {}", pool.last_change);
    let resends = [
        pool.last_force_op_resend,
        pool.last_force_op_resend_prenautilus,
        pool.last_force_op_resend_preluminous,
    ];
    if resends.iter().any(|epoch| epoch.0 != 0) {
        let _ = write!(out, " lfor {}/{}/{}", resends[0], resends[1], resends[2]);
    }
    write_limits(&mut out, pool);
    write_tiering(&mut out, pool);
    write_rest(&mut out, pool);
    out
}

fn write_pg_num_targets(out: &mut String, pool: &PgPool) {
    if pool.pg_num_target != pool.pg_num {
        let _ = write!(out, " pg_num_target {}", pool.pg_num_target);
    }
    if pool.pgp_num_target != pool.pgp_num {
        let _ = write!(out, " pgp_num_target {}", pool.pgp_num_target);
    }
    if pool.pg_num_pending != pool.pg_num {
        let _ = write!(out, " pg_num_pending {}", pool.pg_num_pending);
    }
}

fn write_limits(out: &mut String, pool: &PgPool) {
    if pool.auid != 0 {
        let _ = write!(out, " owner {}", pool.auid);
    }
    if !pool.flags.is_empty() {
        let _ = write!(out, " flags {}", pool.flags);
    }
    write_unless_zero(out, "max_bytes", pool.quota_max_bytes);
    write_unless_zero(out, "max_objects", pool.quota_max_objects);
}

fn write_unless_zero(out: &mut String, name: &str, value: u64) {
    if value != 0 {
        let _ = write!(out, " {name} {value}");
    }
}

fn write_tiering(out: &mut String, pool: &PgPool) {
    if !pool.tiers.is_empty() {
        let tiers: Vec<String> = pool.tiers.iter().map(PoolId::to_string).collect();
        let _ = write!(out, " tiers {}", tiers.join(","));
    }
    for (name, tier) in
        [("tier_of", pool.tier_of), ("read_tier", pool.read_tier), ("write_tier", pool.write_tier)]
    {
        if tier.0 >= 0 {
            let _ = write!(out, " {name} {tier}");
        }
    }
    if pool.cache_mode != 0 {
        let _ = write!(out, " cache_mode {}", cache_mode_name(pool.cache_mode));
    }
    write_unless_zero(out, "target_bytes", pool.target_max_bytes);
    write_unless_zero(out, "target_objects", pool.target_max_objects);
    let params = match pool.hit_set_params {
        HitSetParams::None => None,
        HitSetParams::ExplicitHash => Some("explicit_hash{}".to_owned()),
        HitSetParams::ExplicitObject => Some("explicit_object{}".to_owned()),
        HitSetParams::Bloom { fpp_micro, target_size, seed } => {
            let fpp = general(f64::from(fpp_micro) / 1_000_000.0);
            Some(format!(
                "bloom{{false_positive_probability: {fpp}, target_size: {target_size}, seed: {seed}}}"
            ))
        }
    };
    if let Some(params) = params {
        let _ = write!(
            out,
            " hit_set {params} {}s x{} decay_rate {} search_last_n {}",
            pool.hit_set_period,
            pool.hit_set_count,
            pool.hit_set_grade_decay_rate,
            pool.hit_set_search_last_n
        );
    }
    write_unless_zero(out, "min_read_recency_for_promote", pool.min_read_recency_for_promote.into());
    write_unless_zero(out, "min_write_recency_for_promote", pool.min_write_recency_for_promote.into());
}

fn write_rest(out: &mut String, pool: &PgPool) {
    let _ = write!(out, " stripe_width {}", pool.stripe_width);
    write_unless_zero(out, "expected_num_objects", pool.expected_num_objects);
    if pool.fast_read {
        out.push_str(" fast_read 1");
    }
    for (name, value) in pool.opts.iter_by_name() {
        let text = match value {
            PoolOptValue::Str(v) => v.clone(),
            PoolOptValue::Int(v) => v.to_string(),
            PoolOptValue::Double(v) => general(*v),
        };
        let _ = write!(out, " {name} {text}");
    }
    if !pool.application_metadata.is_empty() {
        let names: Vec<&str> = pool.application_metadata.keys().map(String::as_str).collect();
        let _ = write!(out, " application {}", names.join(","));
    }
}
