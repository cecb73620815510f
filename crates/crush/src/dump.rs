//! The map as JSON, as `ceph osd crush dump`, `rule dump` and `show-tunables`
//! print it: same keys, same order.
//!
//! Source: Ceph 16.2.15 `src/crush/CrushWrapper.cc` (`dump` and what it calls).

use crate::edit::weight_to_f64;
use crate::hash::RJENKINS1;
use crate::map::*;
use base::Json;

impl CrushMap {
    /// `osd crush dump`.
    pub fn dump(&self) -> Json {
        Json::object()
            .with("devices", Json::array((0..self.max_devices).map(|id| self.dump_device(id))))
            .with("types", self.dump_types())
            .with("buckets", Json::array(self.iter_buckets().map(|bucket| self.dump_bucket(bucket))))
            .with("rules", self.dump_rules())
            .with("tunables", self.dump_tunables())
            .with("choose_args", self.dump_choose_args())
    }

    fn dump_device(&self, id: i32) -> Json {
        let name = self.name(id).map_or_else(|| format!("device{id}"), str::to_string);
        let mut device = Json::object().with("id", id).with("name", name);
        if let Some(class) = self.item_class(id) {
            device.push("class", class);
        }
        device
    }

    fn dump_types(&self) -> Json {
        let entry = |id: i32, name: &str| Json::object().with("type_id", id).with("name", name);
        let unnamed = (!self.types.contains_key(&DEVICE_TYPE)).then(|| entry(DEVICE_TYPE, "device"));
        let named = self.types.iter().map(|(id, name)| entry(*id, name));
        Json::array(unnamed.into_iter().chain(named))
    }

    fn dump_bucket(&self, bucket: &Bucket) -> Json {
        let type_id = i32::from(bucket.type_id);
        let mut json = Json::object().with("id", bucket.id);
        if let Some(name) = self.name(bucket.id) {
            json.push("name", name);
        }
        json.push("type_id", type_id);
        if let Some(name) = self.type_name(type_id) {
            json.push("type_name", name);
        }
        json.push("weight", bucket.weight);
        json.push("alg", bucket.weights.alg_name());
        json.push("hash", if bucket.hash == RJENKINS1 { "rjenkins1" } else { "unknown" });
        let items = bucket.items.iter().enumerate().map(|(position, id)| {
            Json::object().with("id", *id).with("weight", bucket.item_weight(position)).with("pos", position)
        });
        json.with("items", Json::array(items))
    }

    /// `osd crush rule dump` of all rules.
    pub fn dump_rules(&self) -> Json {
        Json::array((0..self.rules.len() as i32).filter_map(|number| self.dump_rule(number)))
    }

    /// `osd crush rule dump` of one.
    pub fn dump_rule(&self, number: i32) -> Option<Json> {
        let rule = self.rule(number)?;
        let mut json = Json::object().with("rule_id", number);
        if let Some(name) = self.rule_name(number) {
            json.push("rule_name", name);
        }
        json.push("ruleset", rule.ruleset);
        json.push("type", rule.rule_type);
        json.push("min_size", rule.min_size);
        json.push("max_size", rule.max_size);
        Some(json.with("steps", Json::array(rule.steps.iter().map(|step| self.dump_step(step)))))
    }

    fn dump_step(&self, step: &RuleStep) -> Json {
        let op = |name: &str| Json::object().with("op", name);
        let choose = |name| {
            let kind = self.type_name(step.arg2).unwrap_or_default();
            op(name).with("num", step.arg1).with("type", kind)
        };
        match step.op {
            op::NOOP => op("noop"),
            op::TAKE => {
                let name = self.name(step.arg1).unwrap_or_default();
                op("take").with("item", step.arg1).with("item_name", name)
            }
            op::EMIT => op("emit"),
            op::CHOOSE_FIRSTN => choose("choose_firstn"),
            op::CHOOSE_INDEP => choose("choose_indep"),
            op::CHOOSELEAF_FIRSTN => choose("chooseleaf_firstn"),
            op::CHOOSELEAF_INDEP => choose("chooseleaf_indep"),
            op::SET_CHOOSE_TRIES => op("set_choose_tries").with("num", step.arg1),
            op::SET_CHOOSELEAF_TRIES => op("set_chooseleaf_tries").with("num", step.arg1),
            other => Json::object().with("opcode", other).with("arg1", step.arg1).with("arg2", step.arg2),
        }
    }

    /// `osd crush show-tunables`.
    pub fn dump_tunables(&self) -> Json {
        let tunables = &self.tunables;
        let uses = |ops: &[u32]| {
            self.rules.iter().flatten().flat_map(|rule| &rule.steps).any(|step| ops.contains(&step.op))
        };
        let v2_rules =
            uses(&[op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP, op::SET_CHOOSE_TRIES, op::SET_CHOOSELEAF_TRIES]);
        let v3_rules = uses(&[op::SET_CHOOSELEAF_VARY_R]);
        let v5_rules = uses(&[op::SET_CHOOSELEAF_STABLE]);
        let v4_buckets =
            self.iter_buckets().any(|bucket| matches!(bucket.weights, BucketWeights::Straw2 { .. }));
        let tries =
            |t: &Tunables| (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries);
        let features1 = tries(tunables) != tries(&Tunables::LEGACY);
        let features2 = tunables.chooseleaf_descend_once != 0;
        let features3 = tunables.chooseleaf_vary_r != 0;
        let features5 = tunables.chooseleaf_stable != 0;
        let needs = match () {
            () if v5_rules || features5 => "jewel",
            () if v4_buckets => "hammer",
            () if v3_rules || features3 => "firefly",
            () if v2_rules || features2 || features1 => "bobtail",
            () => "argonaut",
        };
        let profile = profile(tunables);
        let flag = i32::from;
        Json::object()
            .with("choose_local_tries", tunables.choose_local_tries)
            .with("choose_local_fallback_tries", tunables.choose_local_fallback_tries)
            .with("choose_total_tries", tunables.choose_total_tries)
            .with("chooseleaf_descend_once", tunables.chooseleaf_descend_once)
            .with("chooseleaf_vary_r", tunables.chooseleaf_vary_r)
            .with("chooseleaf_stable", tunables.chooseleaf_stable)
            .with("straw_calc_version", tunables.straw_calc_version)
            .with("allowed_bucket_algs", tunables.allowed_bucket_algs)
            .with("profile", profile)
            .with("optimal_tunables", flag(profile == "jewel"))
            .with("legacy_tunables", flag(profile == "argonaut"))
            .with("minimum_required_version", needs)
            .with("require_feature_tunables", flag(features1))
            .with("require_feature_tunables2", flag(features2))
            .with("has_v2_rules", flag(v2_rules))
            .with("require_feature_tunables3", flag(features3))
            .with("has_v3_rules", flag(v3_rules))
            .with("has_v4_buckets", flag(v4_buckets))
            .with("require_feature_tunables5", flag(features5))
            .with("has_v5_rules", flag(v5_rules))
    }

    fn dump_choose_args(&self) -> Json {
        let mut json = Json::object();
        for (key, args) in &self.choose_args {
            let entries = args.iter().map(|(slot, arg)| {
                let mut entry = Json::object().with("bucket_id", !(*slot as i32));
                if !arg.weight_sets.is_empty() {
                    let sets = arg
                        .weight_sets
                        .iter()
                        .map(|set| Json::array(set.iter().map(|weight| weight_to_f64(*weight))));
                    entry.push("weight_set", Json::array(sets));
                }
                if !arg.ids.is_empty() {
                    entry.push("ids", Json::array(arg.ids.iter().copied()));
                }
                entry
            });
            json.push(key.to_string(), Json::array(entries));
        }
        json
    }
}

/// The named set of tunables that these are; it ignores `straw_calc_version`.
fn profile(tunables: &Tunables) -> &'static str {
    let like = |profile: Tunables| {
        let straw_calc_version = tunables.straw_calc_version;
        *tunables == Tunables { straw_calc_version, ..profile }
    };
    let hammer = Tunables { chooseleaf_stable: 0, ..Tunables::JEWEL };
    let legacy_algs = Tunables::LEGACY.allowed_bucket_algs;
    let firefly = Tunables { allowed_bucket_algs: legacy_algs, ..hammer };
    let bobtail = Tunables { chooseleaf_vary_r: 0, ..firefly };
    match () {
        () if like(Tunables::JEWEL) => "jewel",
        () if like(hammer) => "hammer",
        () if like(firefly) => "firefly",
        () if like(bobtail) => "bobtail",
        () if like(Tunables::LEGACY) => "argonaut",
        () => "unknown",
    }
}
