//! How much room there is: of OSDs, of the cluster, of pools.

use super::PgMap;
use crush::CrushMap;
use std::collections::BTreeMap;
use wire::maps::OsdMap;
use wire::types::{OsdId, PoolId};

/// Units: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    pub total: u64,
    pub available: u64,
    pub data: u64,
    pub omap: u64,
    pub internal: u64,
}

impl Space {
    pub fn used(&self) -> u64 {
        self.total.saturating_sub(self.available)
    }

    pub fn add(&mut self, other: &Space) {
        self.total = self.total.saturating_add(other.total);
        self.available = self.available.saturating_add(other.available);
        self.data = self.data.saturating_add(other.data);
        self.omap = self.omap.saturating_add(other.omap);
        self.internal = self.internal.saturating_add(other.internal);
    }

    pub fn used_ratio(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.used() as f64 / self.total as f64 }
    }
}

/// A pool in `ceph df`. Units: bytes, but for `objects`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PoolUsage {
    pub stored: u64,
    pub stored_data: u64,
    pub stored_omap: u64,
    pub objects: u64,
    /// All copies.
    pub used: u64,
    pub used_data: u64,
    pub used_omap: u64,
    pub percent_used: f32,
    /// What could still be stored in it, before replication.
    pub max_available: u64,
    pub raw_available: u64,
}

impl PgMap {
    /// An OSD's own figures; zero when it reported none or is out.
    pub fn osd_space(&self, map: &OsdMap, osd: OsdId) -> Space {
        let Some(stat) = self.osd(osd).filter(|_| map.is_in(osd)) else { return Space::default() };
        let l = &stat.load;
        Space {
            total: l.total,
            available: l.available.min(l.total),
            data: l.data,
            omap: l.omap,
            internal: l.internal,
        }
    }

    /// All OSDs together.
    pub fn space(&self, map: &OsdMap) -> Space {
        let mut sum = Space::default();
        for (osd, _) in self.osds() {
            sum.add(&self.osd_space(map, osd));
        }
        sum
    }

    pub fn pool_usage(&self, map: &OsdMap, crush: &CrushMap, id: PoolId) -> PoolUsage {
        let Some(pool) = map.pool(id) else { return PoolUsage::default() };
        let stat = self.pool_stat(id);
        let u = |v: i64| u64::try_from(v).unwrap_or(0);
        let raw_available = self.rule_available(map, crush, i32::from(pool.crush_rule));
        let rate = f32::from(pool.size.max(1));
        let used_data = u(stat.store_stats.allocated);
        let used_omap = u(stat.store_stats.omap_allocated);
        let (stored_data, stored_omap) = (u(stat.stats.num_bytes), u(stat.stats.num_omap_bytes));
        let used = used_data + used_omap;
        let both = used as f32 + raw_available as f32;
        PoolUsage {
            stored: stored_data + stored_omap,
            stored_data,
            stored_omap,
            objects: u(stat.stats.num_objects),
            used,
            used_data,
            used_omap,
            percent_used: if both > 0.0 { used as f32 / both } else { 0.0 },
            max_available: (raw_available as f32 / rate) as u64,
            raw_available,
        }
    }

    /// What can be written through a rule until its first OSD is full.
    ///
    /// Source: Ceph 16.2.15, src/mon/PGMap.cc (`get_rule_avail`).
    fn rule_available(&self, map: &OsdMap, crush: &CrushMap, rule: i32) -> u64 {
        let mut least: Option<f64> = None;
        for (osd, weight) in rule_weights(crush, rule) {
            let space = self.osd_space(map, osd);
            if space.total == 0 || weight <= 0.0 {
                continue;
            }
            let unusable = space.total as f64 * f64::from(1.0 - map.full_ratio);
            let projected = (space.available as f64 - unusable).max(0.0) / weight;
            least = Some(least.map_or(projected, |l| l.min(projected)));
        }
        least.unwrap_or(0.0) as u64
    }
}

/// Each OSD's share of what goes through a rule; the shares of one root sum to 1.
pub fn rule_weights(crush: &CrushMap, rule: i32) -> BTreeMap<OsdId, f64> {
    let mut shares = BTreeMap::new();
    let Some(rule) = crush.rule(rule) else { return shares };
    for step in rule.steps.iter().filter(|s| s.op == crush::op::TAKE) {
        let mut weights = BTreeMap::new();
        if step.arg1 >= 0 {
            weights.insert(OsdId(step.arg1), 1.0);
        }
        leaf_weights(crush, step.arg1, 0, &mut weights);
        let sum: f64 = weights.values().sum();
        for (osd, weight) in weights {
            if sum > 0.0 {
                *shares.entry(osd).or_insert(0.0) += weight / sum;
            }
        }
    }
    shares
}

fn leaf_weights(crush: &CrushMap, id: i32, depth: usize, weights: &mut BTreeMap<OsdId, f64>) {
    const DEPTH_MAX: usize = 64;
    let Some(bucket) = crush.bucket(id).filter(|_| depth < DEPTH_MAX) else { return };
    for (position, item) in bucket.items.iter().enumerate() {
        if *item >= 0 {
            *weights.entry(OsdId(*item)).or_insert(0.0) += f64::from(bucket.item_weight(position)) / 65536.0;
        } else {
            leaf_weights(crush, *item, depth + 1, weights);
        }
    }
}
