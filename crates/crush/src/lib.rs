//! CRUSH: from a map and a placement group to the OSDs that hold it. A pure
//! function; knows no I/O, no time and no cluster beyond the maps it is given.
//!
//! - [`CrushMap`]: the map and its encoding, bit for bit Ceph's.
//! - [`do_rule`]: the mapping, identical with `crushtool`'s.
//! - [`placement`]: what the OSDMap makes of it: up and acting sets.

mod choose;
mod codec;
pub mod hash;
pub mod ln;
mod map;
mod mapper;
pub mod placement;

pub use map::{
    Bucket, BucketWeights, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, DEVICE_TYPE, ITEM_NONE,
    RULE_ERASURE, RULE_REPLICATED, Rule, RuleStep, Tunables, WEIGHT_ONE, op,
};
pub use mapper::do_rule;
pub use placement::{ActingSet, UpActing, UpSet, pg_to_raw_osds, pg_to_up_acting};
