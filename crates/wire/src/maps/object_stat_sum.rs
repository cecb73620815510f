use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};

/// Defines the struct and its codec from one list, in wire order.
macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident: $t:ident,)*) => {
        /// `object_stat_sum_t`: counters over a set of objects, and over what
        /// was done to them.
        ///
        /// Units: the `_kb` ones are KiB, `num_bytes…` bytes; all others count.
        /// Source: Ceph 16.2.15, src/osd/osd_types.cc (`object_stat_sum_t::encode`).
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct ObjectStatSum {
            $($(#[$doc])* pub $field: $t,)*
        }

        impl ObjectStatSum {
            /// Adds every counter of `other`.
            pub fn add(&mut self, other: &ObjectStatSum) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }

            /// Subtracts every counter of `other`.
            pub fn sub(&mut self, other: &ObjectStatSum) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }
        }

        impl Encode for ObjectStatSum {
            fn encode(&self, e: &mut Encoder) {
                e.versioned(20, 14, |e| { $(e.$t(self.$field);)* });
            }
        }

        impl Decode for ObjectStatSum {
            const MIN_LEN: usize = 6 + 304;
            fn decode(d: &mut Decoder) -> Result<Self> {
                d.versioned("object_stat_sum_t", 20, |d, version| {
                    if version < 20 {
                        return Err(DecodeError::TooOld {
                            what: "object_stat_sum_t",
                            version,
                            oldest: 20,
                        });
                    }
                    Ok(ObjectStatSum { $($field: d.$t()?,)* })
                })
            }
        }
    };
}

counters! {
    num_bytes: i64,
    num_objects: i64,
    num_object_clones: i64,
    /// Objects times replicas.
    num_object_copies: i64,
    num_objects_missing_on_primary: i64,
    num_objects_degraded: i64,
    num_objects_unfound: i64,
    num_rd: i64,
    num_rd_kb: i64,
    num_wr: i64,
    num_wr_kb: i64,
    num_scrub_errors: i64,
    num_objects_recovered: i64,
    num_bytes_recovered: i64,
    num_keys_recovered: i64,
    num_shallow_scrub_errors: i64,
    num_deep_scrub_errors: i64,
    num_objects_dirty: i64,
    num_whiteouts: i64,
    num_objects_omap: i64,
    num_objects_hit_set_archive: i64,
    num_objects_misplaced: i64,
    num_bytes_hit_set_archive: i64,
    num_flush: i64,
    num_flush_kb: i64,
    num_evict: i64,
    num_evict_kb: i64,
    num_promote: i64,
    num_flush_mode_high: i32,
    num_flush_mode_low: i32,
    num_evict_mode_some: i32,
    num_evict_mode_full: i32,
    num_objects_pinned: i64,
    num_objects_missing: i64,
    num_legacy_snapsets: i64,
    num_large_omap_objects: i64,
    num_objects_manifest: i64,
    num_omap_bytes: i64,
    num_omap_keys: i64,
    num_objects_repaired: i64,
}
