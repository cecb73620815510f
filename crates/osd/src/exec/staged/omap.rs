//! Omap of a [`StagedObject`]: the store's keys with this message's changes on top.

use super::{StagedObject, Stop};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use store::{Mutation, OmapLimit, OmapPage};

/// Looked at in one call to the store when a range is removed.
const SCAN_PAGE: OmapLimit = OmapLimit { entries: 1024, bytes: 1 << 20 };

#[derive(Debug, Default)]
pub(super) struct StagedOmap {
    /// The store's omap was cleared or never belonged to this object.
    base_hidden: bool,
    /// `None` removes.
    entries: BTreeMap<Bytes, Option<Bytes>>,
    header: Option<Bytes>,
}

impl StagedOmap {
    pub(super) fn hiding_the_store() -> StagedOmap {
        StagedOmap { base_hidden: true, ..StagedOmap::default() }
    }
}

impl StagedObject<'_> {
    fn base_omap_visible(&self) -> bool {
        self.base_visible && !self.omap.base_hidden
    }

    pub(in crate::exec) fn omap_header(&self) -> Result<Bytes, Stop> {
        match &self.omap.header {
            Some(header) => Ok(header.clone()),
            None if self.base_omap_visible() => Ok(self.store.omap_header(&self.base)?),
            None => Ok(Bytes::new()),
        }
    }

    pub(in crate::exec) fn omap_get(&self, key: &[u8]) -> Result<Option<Bytes>, Stop> {
        match self.omap.entries.get(key) {
            Some(staged) => Ok(staged.clone()),
            None if self.base_omap_visible() => Ok(self.store.omap_get(&self.base, key)?),
            None => Ok(None),
        }
    }

    /// As [`store::ObjectStore::omap_list`].
    pub(in crate::exec) fn omap_list(
        &self,
        after: Option<&[u8]>,
        prefix: &[u8],
        limit: OmapLimit,
    ) -> Result<OmapPage, Stop> {
        let mut page = OmapPage::default();
        let mut after = after.map(Bytes::copy_from_slice);
        // Of the store's entries the staged changes may take all away.
        loop {
            let base = match self.base_omap_visible() {
                // One at least, lest this goes on for ever.
                true => {
                    let limit = OmapLimit { entries: limit.entries.max(1), ..limit };
                    self.store.omap_list(&self.base, after.as_deref(), prefix, limit)?
                }
                false => OmapPage::default(),
            };
            let last = if base.more { base.last_key().cloned() } else { None };
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let to = last.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let staged = self.omap.entries.range::<[u8], _>((from, to));
            let mut merged: BTreeMap<Bytes, Option<Bytes>> =
                base.entries.into_iter().map(|(key, value)| (key, Some(value))).collect();
            for (key, value) in staged.filter(|(key, _)| key.starts_with(prefix)) {
                merged.insert(key.clone(), value.clone());
            }
            for (key, value) in merged {
                let Some(value) = value else { continue };
                if !page.add(limit, key.len() + value.len(), || (key, value)) {
                    return Ok(page);
                }
            }
            if last.is_none() {
                return Ok(page);
            }
            after = last;
        }
    }

    pub(in crate::exec) fn set_omap_header(&mut self, header: Bytes) {
        self.create();
        self.info.has_omap = true;
        self.omap.header = Some(header.clone());
        self.mutations.push(Mutation::SetOmapHeader { id: self.id.clone(), header });
    }

    pub(in crate::exec) fn set_omap(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Stop> {
        self.create();
        self.info.has_omap = true;
        for (key, value) in &entries {
            match self.omap_get(key)? {
                Some(old) => self.info.omap_bytes = self.info.omap_bytes.saturating_sub(old.len() as u64),
                None => {
                    self.info.omap_keys += 1;
                    self.info.omap_bytes += key.len() as u64;
                }
            }
            self.info.omap_bytes += value.len() as u64;
            self.omap.entries.insert(key.clone(), Some(value.clone()));
        }
        if !entries.is_empty() {
            self.mutations.push(Mutation::SetOmap { id: self.id.clone(), entries: entries.into() });
        }
        Ok(())
    }

    pub(in crate::exec) fn rm_omap(&mut self, keys: BTreeSet<Bytes>) -> Result<(), Stop> {
        self.touched = true;
        for key in &keys {
            if let Some(value) = self.omap_get(key)? {
                self.forget(key, &value);
            }
        }
        if !keys.is_empty() {
            self.mutations.push(Mutation::RmOmap { id: self.id.clone(), keys });
        }
        Ok(())
    }

    /// Keys in `start..end`.
    pub(in crate::exec) fn rm_omap_range(&mut self, start: Bytes, end: Bytes) -> Result<(), Stop> {
        self.touched = true;
        if start >= end {
            return Ok(());
        }
        if let Some(value) = self.omap_get(&start)? {
            self.forget(&start, &value);
        }
        let mut after = start.clone();
        'pages: loop {
            let page = self.omap_list(Some(&after), &[], SCAN_PAGE)?;
            for (key, value) in page.entries {
                if key >= end {
                    break 'pages;
                }
                self.forget(&key, &value);
                after = key;
            }
            if !page.more {
                break;
            }
        }
        self.mutations.push(Mutation::RmOmapRange { id: self.id.clone(), start, end });
        Ok(())
    }

    fn forget(&mut self, key: &Bytes, value: &Bytes) {
        self.info.omap_keys = self.info.omap_keys.saturating_sub(1);
        self.info.omap_bytes = self.info.omap_bytes.saturating_sub((key.len() + value.len()) as u64);
        self.omap.entries.insert(key.clone(), None);
    }

    /// Header and keys.
    pub(in crate::exec) fn clear_omap(&mut self) {
        self.touched = true;
        self.info.has_omap = false;
        self.info.omap_keys = 0;
        self.info.omap_bytes = 0;
        self.omap = StagedOmap::hiding_the_store();
        self.mutations.push(Mutation::ClearOmap(self.id.clone()));
    }
}
