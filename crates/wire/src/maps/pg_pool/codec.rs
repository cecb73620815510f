//! Source: Ceph 16.2.15, src/osd/osd_types.cc (`pg_pool_t::encode`, `decode`),
//! src/osd/HitSet.h (`HitSet::Params`). WIRE: maps#pg_pool_t

use super::{AutoscaleMode, HitSetParams, PeeringCrush, PgPool, PoolType};
use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use crate::types::Epoch;

/// Nautilus to Pacific; with the peering fields below since Pacific.
const VERSION: u8 = 29;
const VERSION_STRETCH: u8 = 30;
const COMPAT: u8 = 5;

impl Encode for PgPool {
    fn encode(&self, e: &mut Encoder) {
        let version = if self.is_stretch() { VERSION_STRETCH } else { VERSION };
        e.versioned(version, COMPAT, |e| {
            self.encode_before_tiering(e);
            self.encode_tiering(e);
            self.encode_since_hammer(e);
            self.encode_since_luminous(e);
            if let Some(peering) = self.peering_crush
                && version >= VERSION_STRETCH
            {
                e.u32(peering.bucket_count);
                e.u32(peering.bucket_target);
                e.u32(peering.bucket_barrier);
                e.i32(peering.mandatory_member);
            }
        });
    }
}

impl PgPool {
    fn encode_before_tiering(&self, e: &mut Encoder) {
        e.u8(match self.pool_type {
            PoolType::Replicated => 1,
            PoolType::Erasure => 3,
        });
        e.u8(self.size);
        e.u8(self.crush_rule);
        e.u8(self.object_hash);
        e.u32(self.pg_num);
        e.u32(self.pgp_num);
        // Numbers of localized PGs, which no longer exist.
        e.u32(0);
        e.u32(0);
        e.put(&self.last_change);
        e.put(&self.snap_seq);
        e.put(&self.snap_epoch);
        e.put(&self.snaps);
        e.put(&self.removed_snaps);
        e.u64(self.auid);
        e.put(&self.flags);
        // crash_replay_interval, gone.
        e.u32(0);
        e.u8(self.min_size);
        e.u64(self.quota_max_bytes);
        e.u64(self.quota_max_objects);
    }

    fn encode_tiering(&self, e: &mut Encoder) {
        e.put(&self.tiers);
        e.put(&self.tier_of);
        e.u8(self.cache_mode);
        e.put(&self.read_tier);
        e.put(&self.write_tier);
        e.put(&self.properties);
        e.put(&self.hit_set_params);
        e.u32(self.hit_set_period);
        e.u32(self.hit_set_count);
        e.u32(self.stripe_width);
        e.u64(self.target_max_bytes);
        e.u64(self.target_max_objects);
        e.u32(self.cache_target_dirty_ratio_micro);
        e.u32(self.cache_target_full_ratio_micro);
        e.u32(self.cache_min_flush_age);
        e.u32(self.cache_min_evict_age);
        e.string(&self.erasure_code_profile);
    }

    fn encode_since_hammer(&self, e: &mut Encoder) {
        e.put(&self.last_force_op_resend_preluminous);
        e.u32(self.min_read_recency_for_promote);
        e.u64(self.expected_num_objects);
        e.u32(self.cache_target_dirty_high_ratio_micro);
        e.u32(self.min_write_recency_for_promote);
        e.bool(self.use_gmt_hitset);
        e.bool(self.fast_read);
        e.i32(self.hit_set_grade_decay_rate);
        e.u32(self.hit_set_search_last_n);
        e.put(&self.opts);
    }

    fn encode_since_luminous(&self, e: &mut Encoder) {
        e.put(&self.last_force_op_resend_prenautilus);
        e.put(&self.application_metadata);
        e.put(&self.create_time);
        e.u32(self.pg_num_target);
        e.u32(self.pgp_num_target);
        e.u32(self.pg_num_pending);
        // Two epochs that only existed in 14.1 prereleases.
        e.u32(0);
        e.u32(0);
        e.put(&self.last_force_op_resend);
        e.u8(match self.pg_autoscale_mode {
            AutoscaleMode::Off => 0,
            AutoscaleMode::Warn => 1,
            AutoscaleMode::On => 2,
            AutoscaleMode::Unknown => 0xff,
        });
        e.put(&self.last_pg_merge_meta);
    }

    fn decode_before_tiering(&mut self, d: &mut Decoder) -> Result<()> {
        self.pool_type = match d.u8()? {
            1 => PoolType::Replicated,
            3 => PoolType::Erasure,
            _ => return Err(DecodeError::Invalid { what: "pool type" }),
        };
        self.size = d.u8()?;
        self.crush_rule = d.u8()?;
        self.object_hash = d.u8()?;
        self.pg_num = d.u32()?;
        self.pgp_num = d.u32()?;
        d.skip("localized PG counts", 8)?;
        self.last_change = d.get()?;
        self.snap_seq = d.get()?;
        self.snap_epoch = d.get()?;
        self.snaps = d.get()?;
        self.removed_snaps = d.get()?;
        self.auid = d.u64()?;
        self.flags = d.get()?;
        d.skip("crash_replay_interval", 4)?;
        self.min_size = d.u8()?;
        self.quota_max_bytes = d.u64()?;
        self.quota_max_objects = d.u64()?;
        Ok(())
    }

    fn decode_tiering(&mut self, d: &mut Decoder) -> Result<()> {
        self.tiers = d.get()?;
        self.tier_of = d.get()?;
        self.cache_mode = d.u8()?;
        self.read_tier = d.get()?;
        self.write_tier = d.get()?;
        self.properties = d.get()?;
        self.hit_set_params = d.get()?;
        self.hit_set_period = d.u32()?;
        self.hit_set_count = d.u32()?;
        self.stripe_width = d.u32()?;
        self.target_max_bytes = d.u64()?;
        self.target_max_objects = d.u64()?;
        self.cache_target_dirty_ratio_micro = d.u32()?;
        self.cache_target_full_ratio_micro = d.u32()?;
        self.cache_min_flush_age = d.u32()?;
        self.cache_min_evict_age = d.u32()?;
        self.erasure_code_profile = d.string()?;
        Ok(())
    }

    fn decode_since_hammer(&mut self, d: &mut Decoder) -> Result<()> {
        self.last_force_op_resend_preluminous = d.get()?;
        self.min_read_recency_for_promote = d.u32()?;
        self.expected_num_objects = d.u64()?;
        self.cache_target_dirty_high_ratio_micro = d.u32()?;
        self.min_write_recency_for_promote = d.u32()?;
        self.use_gmt_hitset = d.bool()?;
        self.fast_read = d.bool()?;
        self.hit_set_grade_decay_rate = d.i32()?;
        self.hit_set_search_last_n = d.u32()?;
        self.opts = d.get()?;
        Ok(())
    }

    fn decode_since_luminous(&mut self, d: &mut Decoder) -> Result<()> {
        self.last_force_op_resend_prenautilus = d.get()?;
        self.application_metadata = d.get()?;
        self.create_time = d.get()?;
        self.pg_num_target = d.u32()?;
        self.pgp_num_target = d.u32()?;
        self.pg_num_pending = d.u32()?;
        d.get::<Epoch>()?;
        d.get::<Epoch>()?;
        self.last_force_op_resend = d.get()?;
        self.pg_autoscale_mode = match d.u8()? {
            0 => AutoscaleMode::Off,
            1 => AutoscaleMode::Warn,
            2 => AutoscaleMode::On,
            0xff => AutoscaleMode::Unknown,
            _ => return Err(DecodeError::Invalid { what: "autoscale mode" }),
        };
        self.last_pg_merge_meta = d.get()?;
        Ok(())
    }
}

impl Decode for PgPool {
    const MIN_LEN: usize = 6 + 200;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("pg_pool_t", VERSION_STRETCH, |d, version| {
            if version < VERSION {
                return Err(DecodeError::TooOld { what: "pg_pool_t", version, oldest: VERSION });
            }
            let mut pool = PgPool::default();
            pool.decode_before_tiering(d)?;
            pool.decode_tiering(d)?;
            pool.decode_since_hammer(d)?;
            pool.decode_since_luminous(d)?;
            if version >= VERSION_STRETCH {
                pool.peering_crush = Some(PeeringCrush {
                    bucket_count: d.u32()?,
                    bucket_target: d.u32()?,
                    bucket_barrier: d.u32()?,
                    mandatory_member: d.i32()?,
                });
            }
            Ok(pool)
        })
    }
}

impl Encode for HitSetParams {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| match *self {
            HitSetParams::None => e.u8(0),
            HitSetParams::ExplicitHash => e.u8(1),
            HitSetParams::ExplicitObject => e.u8(2),
            HitSetParams::Bloom { fpp_micro, target_size, seed } => {
                e.u8(3);
                e.versioned(1, 1, |e| {
                    e.u32(fpp_micro);
                    e.u64(target_size);
                    e.u64(seed);
                });
            }
        });
    }
}

impl Decode for HitSetParams {
    const MIN_LEN: usize = 7;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("HitSet::Params", 1, |d, _| {
            // Only the Bloom filter has parameters, in an envelope of their own.
            match d.u8()? {
                0 => Ok(HitSetParams::None),
                1 => Ok(HitSetParams::ExplicitHash),
                2 => Ok(HitSetParams::ExplicitObject),
                3 => d.versioned("BloomHitSet::Params", 1, |d, _| {
                    Ok(HitSetParams::Bloom { fpp_micro: d.u32()?, target_size: d.u64()?, seed: d.u64()? })
                }),
                _ => Err(DecodeError::Invalid { what: "hit set type" }),
            }
        })
    }
}
