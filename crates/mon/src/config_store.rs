//! Options set centrally: by section, delivered to those they concern.
//!
//! Sections from the widest to the narrowest, the narrowest wins: `global`, a
//! daemon type (`osd`), a daemon (`osd.0`); each may be narrowed by a host
//! (`osd/host:a`). Option names are spelled with underscores.

use crate::config_options::{self, Lookup};
use crate::{Batch, MapStore, MonError, keys};
use base::{Duration, WallTime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{Decode, Decoder, Encode, Encoder};
use wire::features::Features;

/// Changes remembered for `ceph config log`.
const CHANGES_MAX: usize = 200;

/// Whom an option concerns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Section {
    /// `global`, `osd` or `osd.0`.
    pub who: String,
    /// `host:a` or `class:ssd`; empty for no mask.
    pub mask: String,
}

impl Section {
    /// Reads `global`, `osd`, `osd.0`, `osd/host:a`, `osd/class:ssd`.
    pub fn parse(text: &str) -> Option<Section> {
        let (who, mask) = text.split_once('/').unwrap_or((text, ""));
        let mask_ok = !text.contains('/')
            || mask
                .strip_prefix("host:")
                .or_else(|| mask.strip_prefix("class:"))
                .is_some_and(|m| !m.is_empty() && !m.contains('/'));
        let kind = who.split_once('.').map_or(who, |(kind, _)| kind);
        let known = matches!(kind, "global" | "mon" | "mgr" | "osd" | "mds" | "client");
        let id_ok = who.split_once('.').is_none_or(|(kind, id)| kind != "global" && !id.is_empty());
        (mask_ok && known && id_ok && !who.is_empty())
            .then(|| Section { who: who.to_string(), mask: mask.to_string() })
    }

    pub fn text(&self) -> String {
        if self.mask.is_empty() { self.who.clone() } else { format!("{}/{}", self.who, self.mask) }
    }

    /// How narrow it is; the widest first.
    fn rank(&self) -> (u8, u8) {
        let who = match self.who.as_str() {
            "global" => 0,
            who if !who.contains('.') => 1,
            _ => 2,
        };
        (who, u8::from(!self.mask.is_empty()))
    }

    fn concerns(&self, entity: &str, host: &str) -> bool {
        let kind = entity.split_once('.').map_or(entity, |(kind, _)| kind);
        let who = self.who == "global" || self.who == kind || self.who == entity;
        let mask = match self.mask.split_once(':') {
            None => true,
            Some(("host", wanted)) => wanted == host,
            // Device classes are not known here; such options wait for OSDs that ask.
            Some(_) => false,
        };
        who && mask
    }
}

/// One change, for `ceph config log`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub version: u64,
    pub stamp: WallTime,
    /// "assimilate-conf" and the like; empty for plain commands.
    pub name: String,
    /// Option (with its section before it), value before, value after.
    pub options: Vec<(String, Option<String>, Option<String>)>,
}

impl Encode for Change {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u64(self.version);
            e.put(&self.stamp);
            e.string(&self.name);
            e.count(self.options.len());
            for (option, before, after) in &self.options {
                e.string(option);
                e.put(before);
                e.put(after);
            }
        });
    }
}

impl Decode for Change {
    fn decode(d: &mut Decoder) -> wire::codec::Result<Self> {
        d.versioned("config change", 1, |d, _| {
            let (version, stamp, name) = (d.u64()?, d.get()?, d.string()?);
            let n = d.count("changed options", 6)?;
            let options = (0..n).map(|_| Ok((d.string()?, d.get()?, d.get()?))).collect::<Result<_, _>>()?;
            Ok(Change { version, stamp, name, options })
        })
    }
}

#[derive(Default)]
pub struct ConfigStore {
    options: BTreeMap<Section, BTreeMap<String, String>>,
    changes: BTreeMap<u64, Change>,
}

impl ConfigStore {
    pub fn load(store: &dyn MapStore) -> Result<ConfigStore, MonError> {
        let mut config = ConfigStore::default();
        for (key, value) in store.list(keys::CONFIG)? {
            let invalid = || MonError::Invalid(format!("key {key} of the map store"));
            let rest = &key[keys::CONFIG.len()..];
            let (section, name) = rest.rsplit_once('/').ok_or_else(invalid)?;
            let section = Section::parse(section).ok_or_else(invalid)?;
            let value = String::from_utf8(value.to_vec()).map_err(|_| invalid())?;
            config.options.entry(section).or_default().insert(name.to_string(), value);
        }
        for (key, value) in store.list(keys::CONFIG_LOG)? {
            let change =
                Change::from_bytes(value, Features::ALL).map_err(|error| MonError::Decode { key, error })?;
            config.changes.insert(change.version, change);
        }
        Ok(config)
    }

    /// Spelled with underscores, whatever the user wrote.
    pub fn canonical_name(name: &str) -> String {
        name.replace([' ', '-'], "_")
    }

    /// False if it has this value already.
    pub fn set(
        &mut self,
        section: &Section,
        name: &str,
        value: &str,
        wall: WallTime,
        batch: &mut Batch,
    ) -> bool {
        let options = self.options.entry(section.clone()).or_default();
        let before = options.insert(name.to_string(), value.to_string());
        if before.as_deref() == Some(value) {
            return false;
        }
        batch.put(key(section, name), Bytes::from(value.to_string()));
        self.remember(section, name, before, Some(value.to_string()), wall, batch);
        true
    }

    /// False if it was not set.
    pub fn remove(&mut self, section: &Section, name: &str, wall: WallTime, batch: &mut Batch) -> bool {
        let Some(before) = self.options.get_mut(section).and_then(|o| o.remove(name)) else { return false };
        self.options.retain(|_, options| !options.is_empty());
        batch.remove(key(section, name));
        self.remember(section, name, Some(before), None, wall, batch);
        true
    }

    fn remember(
        &mut self,
        section: &Section,
        name: &str,
        before: Option<String>,
        after: Option<String>,
        stamp: WallTime,
        batch: &mut Batch,
    ) {
        let version = self.changes.last_key_value().map_or(1, |(v, _)| v + 1);
        let options = vec![(format!("{}/{name}", section.text()), before, after)];
        let change = Change { version, stamp, name: String::new(), options };
        batch.put(keys::config_change(version), change.to_bytes(Features::ALL));
        self.changes.insert(version, change);
        while self.changes.len() > CHANGES_MAX {
            if let Some((old, _)) = self.changes.pop_first() {
                batch.remove(keys::config_change(old));
            }
        }
    }

    /// Newest first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.values().rev()
    }

    /// All options, by section from the widest to the narrowest, then by name.
    pub fn all(&self) -> Vec<(&Section, &str, &str)> {
        let mut sections: Vec<_> = self.options.iter().collect();
        sections.sort_by_key(|(section, _)| (section.rank().0, section.who.clone(), section.mask.clone()));
        let options = sections.into_iter().flat_map(|(section, options)| {
            options.iter().map(move |(name, value)| (section, name.as_str(), value.as_str()))
        });
        options.collect()
    }

    /// What concerns an entity: option to the section it comes from and its value.
    pub fn effective(&self, entity: &str, host: &str) -> BTreeMap<String, (Section, String)> {
        let mut found: Vec<_> = self.options.iter().filter(|(s, _)| s.concerns(entity, host)).collect();
        found.sort_by_key(|(section, _)| section.rank());
        let mut effective = BTreeMap::new();
        for (section, options) in found {
            for (name, value) in options {
                effective.insert(name.clone(), (section.clone(), value.clone()));
            }
        }
        effective
    }

    /// What a session is sent.
    pub fn options_for(&self, entity: &str, host: &str) -> BTreeMap<String, String> {
        let effective = self.effective(entity, host);
        effective.into_iter().map(|(name, (_, value))| (name, value)).collect()
    }

    /// The monitors' own view of an option.
    fn own(&self, name: &str) -> Option<String> {
        let sections = ["mon", "global"].map(|who| Section { who: who.into(), mask: String::new() });
        let set = sections.iter().find_map(|s| self.options.get(s)?.get(name)).cloned();
        set.or_else(|| match config_options::lookup(name) {
            Lookup::Known(option) => Some(option.default.to_string()),
            _ => None,
        })
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.own(name).and_then(|v| v.trim().parse().ok()).unwrap_or(default)
    }

    pub fn float(&self, name: &str, default: f64) -> f64 {
        self.own(name).and_then(|v| v.trim().parse().ok()).filter(|v: &f64| v.is_finite()).unwrap_or(default)
    }

    pub fn seconds(&self, name: &str, default: f64) -> Duration {
        Duration::from_secs_f64(self.float(name, default).clamp(0.0, 1e9))
    }

    pub fn bool(&self, name: &str, default: bool) -> bool {
        self.own(name).and_then(|v| config_options::parse_bool(&v)).unwrap_or(default)
    }
}

fn key(section: &Section, name: &str) -> String {
    format!("{}{}/{name}", keys::CONFIG, section.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_section_wins() {
        let mut config = ConfigStore::default();
        let mut batch = Batch::default();
        for (section, value) in [("global", "1"), ("osd", "2"), ("osd/host:b", "3"), ("osd.1", "4")] {
            let section = Section::parse(section).unwrap();
            assert!(config.set(&section, "osd_max_backfills", value, WallTime::ZERO, &mut batch));
        }
        let value = |entity: &str, host: &str| config.options_for(entity, host)["osd_max_backfills"].clone();
        assert_eq!(value("client.admin", "a"), "1");
        assert_eq!(value("osd.0", "a"), "2");
        assert_eq!(value("osd.0", "b"), "3");
        assert_eq!(value("osd.1", "b"), "4");
    }

    #[test]
    fn sections_that_make_no_sense_are_refused() {
        for text in ["", "nobody", "osd/", "osd/rack:a", "global.1", "osd.", "osd/host:a/b"] {
            assert_eq!(Section::parse(text), None, "{text}");
        }
    }
}
