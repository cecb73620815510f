//! The map of a new cluster: Ceph's types, a root `default`, the rule
//! `replicated_rule`.
//!
//! Source: Ceph 16.2.15 `src/osd/OSDMap.cc` (`build_simple_crush_map`).

use crate::edit::Location;
use crate::error::EditResult;
use crate::map::*;
use crate::rules::{RuleMode, SimpleRule};

/// Ceph's bucket types, by id.
pub const DEFAULT_TYPES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

pub const DEFAULT_ROOT: &str = "default";
pub const DEFAULT_RULE: &str = "replicated_rule";

/// What no two replicas of a new cluster's pools share
/// (`osd_crush_chooseleaf_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureDomain {
    /// A cluster on one machine.
    Osd,
    Host,
}

impl FailureDomain {
    pub fn type_name(self) -> &'static str {
        match self {
            FailureDomain::Osd => "osd",
            FailureDomain::Host => "host",
        }
    }
}

impl CrushMap {
    /// A new cluster's map, without OSDs: they add themselves when they start
    /// ([`CrushMap::create_or_move_item`]).
    pub fn new_cluster(failure_domain: FailureDomain) -> CrushMap {
        let mut map = CrushMap::empty();
        map.types = (0..).zip(DEFAULT_TYPES.map(str::to_string)).collect();
        let built = map.add_bucket(DEFAULT_ROOT, "root").and_then(|_| {
            map.add_simple_rule(SimpleRule {
                name: DEFAULT_RULE,
                root: DEFAULT_ROOT,
                failure_domain: failure_domain.type_name(),
                device_class: None,
                mode: RuleMode::Firstn,
                rule_type: RULE_REPLICATED,
            })
        });
        built.expect("an empty map takes a root and a rule");
        map
    }

    /// What an OSD's start does to the map: its class, if it has none yet, and
    /// its place. True if anything changed.
    pub fn boot_device(
        &mut self,
        device: i32,
        weight: u32,
        class: Option<&str>,
        host: &str,
    ) -> EditResult<bool> {
        let at: Location =
            [("root", DEFAULT_ROOT), ("host", host)].map(|(k, v)| (k.to_string(), v.to_string())).into();
        self.atomically(|map| {
            let mut changed = false;
            // The class comes first, as when an OSD of Ceph starts: ids of new
            // buckets depend on the order.
            if let (Some(class), None) = (class, map.item_class(device)) {
                let class = map.get_or_create_class(class);
                map.item_classes.insert(device, class);
                map.rebuild_shadow_trees()?;
                changed = true;
            }
            changed |= map.create_or_move_item(device, weight, &format!("osd.{device}"), &at)?;
            Ok(changed)
        })
    }
}
