//! CRUSH: from a map and a placement group to the OSDs that hold it. A pure
//! function; knows no I/O, no time and no cluster beyond the maps it is given.
//!
//! - [`CrushMap`]: the map and its encoding, bit for bit Ceph's; its edits, as the
//!   monitor's `osd crush` commands need them; its dumps.
//! - [`do_rule`]: the mapping, identical with `crushtool`'s.
//! - [`placement`]: what the OSDMap makes of it, identical with `osdmaptool`'s: up
//!   and acting sets.
//! - [`tree`]: `ceph osd tree` and `ceph osd crush tree`.
//!
//! A map from outside goes through [`CrushMap::check`] before it is edited or
//! shown; mapping over one is safe without.

mod bucket_edit;
mod build;
mod choose;
mod classes;
mod codec;
mod dump;
mod edit;
mod error;
pub mod hash;
pub mod ln;
mod map;
mod mapper;
pub mod placement;
mod rules;
pub mod tree;

pub use build::{DEFAULT_ROOT, DEFAULT_RULE, DEFAULT_TYPES, FailureDomain};
pub use edit::{Location, is_valid_name, parse_location, weight_from, weight_to_f64};
pub use error::{EditError, EditResult};
pub use map::{
    Bucket, BucketWeights, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, DEVICE_TYPE, ITEM_NONE,
    RULE_ERASURE, RULE_REPLICATED, Rule, RuleStep, Tunables, WEIGHT_ONE, op,
};
pub use mapper::do_rule;
pub use placement::{ActingSet, UpActing, UpSet, pg_to_raw_osds, pg_to_up_acting};
pub use rules::{RuleMode, SimpleRule};
