//! Creating and removing rules.
//!
//! Source: Ceph 16.2.15 `src/crush/CrushWrapper.cc` (`add_simple_rule_at`).

use crate::error::{EditError, EditResult};
use crate::map::*;
use base::Errno;

/// How a rule's result treats what it cannot place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleMode {
    /// Ranks close up: replicated pools.
    Firstn,
    /// Positions keep their meaning: erasure-coded pools.
    Indep,
}

/// What `osd crush rule create-replicated` and its siblings ask for.
#[derive(Clone, Copy, Debug)]
pub struct SimpleRule<'a> {
    pub name: &'a str,
    pub root: &'a str,
    /// A type's name: no two replicas below the same item of that type.
    pub failure_domain: &'a str,
    /// Devices of this class only.
    pub device_class: Option<&'a str>,
    pub mode: RuleMode,
    /// [`RULE_REPLICATED`] or [`RULE_ERASURE`].
    pub rule_type: u8,
}

impl CrushMap {
    /// Takes the root, spreads over the failure domains, emits; the rule's number.
    ///
    /// Errors:  EEXIST, or ENOENT and EINVAL for what it names.
    pub fn add_simple_rule(&mut self, wanted: SimpleRule) -> EditResult<i32> {
        let SimpleRule { name, root, failure_domain, device_class, mode, rule_type } = wanted;
        if self.rule_id(name).is_some() {
            return Err(EditError::new(Errno::EEXIST, format!("rule {name} exists")));
        }
        let slot = self.rules.iter().position(Option::is_none).unwrap_or(self.rules.len());
        // The number travels in one byte.
        let ruleset = u8::try_from(slot).map_err(|_| EditError::from(Errno::ENOSPC))?;
        let Some(mut root_id) = self.item_id(root) else {
            return Err(EditError::new(Errno::ENOENT, format!("root item {root} does not exist")));
        };
        let type_id = match failure_domain {
            "" => DEVICE_TYPE,
            name => self
                .type_id(name)
                .ok_or_else(|| EditError::new(Errno::EINVAL, format!("unknown type {name}")))?,
        };
        if let Some(class) = device_class {
            let id = self.class_id(class).ok_or_else(|| {
                EditError::new(Errno::EINVAL, format!("device class {class} does not exist"))
            })?;
            root_id = self.shadow_of(root_id, id).ok_or_else(|| {
                let text = format!("root {root} has no devices with class {class}");
                EditError::new(Errno::EINVAL, text)
            })?;
        }
        let step = |op, arg1, arg2| RuleStep { op, arg1, arg2 };
        let (choose, chooseleaf) = match mode {
            RuleMode::Firstn => (op::CHOOSE_FIRSTN, op::CHOOSELEAF_FIRSTN),
            RuleMode::Indep => (op::CHOOSE_INDEP, op::CHOOSELEAF_INDEP),
        };
        let mut steps = Vec::new();
        if mode == RuleMode::Indep {
            // Holes are worse than attempts.
            steps.push(step(op::SET_CHOOSELEAF_TRIES, 5, 0));
            steps.push(step(op::SET_CHOOSE_TRIES, 100, 0));
        }
        steps.push(step(op::TAKE, root_id, 0));
        let descend = if type_id == DEVICE_TYPE { choose } else { chooseleaf };
        steps.push(step(descend, 0, type_id));
        steps.push(step(op::EMIT, 0, 0));
        let (min_size, max_size) = match mode {
            RuleMode::Firstn => (1, 10),
            RuleMode::Indep => (3, 20),
        };
        let rule = Rule { ruleset, rule_type, min_size, max_size, steps };
        if slot == self.rules.len() {
            self.rules.push(None);
        }
        self.rules[slot] = Some(rule);
        self.rule_names.insert(ruleset.into(), name.to_string());
        Ok(ruleset.into())
    }

    /// The largest pool that the rule serves: k + m for an erasure code's.
    pub fn set_rule_max_size(&mut self, number: i32, max_size: u8) -> EditResult<()> {
        let rule = usize::try_from(number).ok().and_then(|slot| self.rules.get_mut(slot)?.as_mut());
        rule.ok_or(Errno::ENOENT)?.max_size = max_size;
        Ok(())
    }

    /// Whether pools use it is the caller's to check.
    pub fn remove_rule(&mut self, name: &str) -> EditResult<i32> {
        let Some(number) = self.rule_id(name) else {
            return Err(EditError::new(Errno::ENOENT, format!("rule {name} does not exist")));
        };
        self.atomically(|map| {
            if let Some(place) = usize::try_from(number).ok().and_then(|slot| map.rules.get_mut(slot)) {
                *place = None;
            }
            map.rule_names.remove(&number);
            map.rebuild_shadow_trees()?;
            Ok(number)
        })
    }

    pub fn rename_rule(&mut self, from: &str, to: &str) -> EditResult<()> {
        let Some(number) = self.rule_id(from) else {
            let text = format!("source rule name '{from}' does not exist");
            return Err(EditError::new(Errno::ENOENT, text));
        };
        if self.rule_id(to).is_some() {
            let text = format!("destination rule name '{to}' already exists");
            return Err(EditError::new(Errno::EEXIST, text));
        }
        self.rule_names.insert(number, to.to_string());
        Ok(())
    }
}
