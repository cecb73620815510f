//! The OSDMap's history: the newest epoch, what is pending for the next one,
//! and the encoded epochs that peers are brought up to date with.
//!
//! Invariants: an epoch is stored before anybody sees it; epochs have no gaps
//! between `oldest` and the newest; a pending change is part of exactly one
//! later epoch.

use crate::{Batch, MapStore, MapStoreError, MonError, keys};
use base::WallTime;
use bytes::Bytes;
use crush::CrushMap;
use std::collections::BTreeMap;
use wire::codec::{Decode, Decoder, Encode, Encoder};
use wire::features::Features;
use wire::maps::{OsdMap, OsdMapIncremental, OsdState, OsdXInfo, PgPool};
use wire::types::{Epoch, OsdId, PoolId};

/// Epochs kept at least, as Ceph's `mon_min_osdmap_epochs`.
pub const EPOCHS_KEPT: u32 = 500;
/// Epochs trimmed with one commit, so that no commit takes long.
const TRIM_MAX: u32 = 100;
/// Encoded incrementals in memory: peers are rarely further behind.
const CACHED_MAX: usize = 256;

pub struct OsdMaps {
    map: OsdMap,
    crush: CrushMap,
    encoded: Bytes,
    oldest: Epoch,
    incrementals: BTreeMap<Epoch, Bytes>,
    pending: Option<Box<OsdMapIncremental>>,
    pending_crush: Option<CrushMap>,
}

/// An epoch that is encoded but not yet stored.
pub struct Prepared {
    map: OsdMap,
    crush: CrushMap,
    full: Bytes,
    incremental: Bytes,
    oldest: Epoch,
}

impl OsdMaps {
    /// A history that begins with this map.
    pub fn begin(map: OsdMap, crush: CrushMap, batch: &mut Batch) -> OsdMaps {
        let encoded = map.to_bytes(Features::PACIFIC);
        let oldest = map.epoch;
        batch.put(keys::osd_map_full(oldest), encoded.clone());
        batch.put(keys::OSD_MAP_RANGE, encode_range(oldest, oldest));
        OsdMaps {
            map,
            crush,
            encoded,
            oldest,
            incrementals: BTreeMap::new(),
            pending: None,
            pending_crush: None,
        }
    }

    pub fn load(store: &dyn MapStore) -> Result<OsdMaps, MonError> {
        let range = store.get(keys::OSD_MAP_RANGE)?.ok_or(MonError::Empty)?;
        let (oldest, newest) = decode_range(range)?;
        let key = keys::osd_map_full(newest);
        let corrupt = || MapStoreError::Corrupt(format!("{key} is missing"));
        let encoded = store.get(&key)?.ok_or_else(corrupt)?;
        let map = OsdMap::from_bytes(encoded.clone(), Features::PACIFIC)
            .map_err(|error| MonError::Decode { key: key.clone(), error })?;
        let crush = CrushMap::decode(&map.crush).map_err(|error| MonError::Decode { key, error })?;
        Ok(OsdMaps {
            map,
            crush,
            encoded,
            oldest,
            incrementals: BTreeMap::new(),
            pending: None,
            pending_crush: None,
        })
    }

    /// The newest epoch that is durable.
    pub fn map(&self) -> &OsdMap {
        &self.map
    }

    pub fn crush(&self) -> &CrushMap {
        &self.crush
    }

    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    pub fn oldest(&self) -> Epoch {
        self.oldest
    }

    /// The newest epoch's encoding.
    pub fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    pub fn has_pending(&self) -> bool {
        self.pending.is_some() || self.pending_crush.is_some()
    }

    /// Changes for the next epoch; asking for them makes that epoch happen.
    pub fn pending(&mut self) -> &mut OsdMapIncremental {
        let (fsid, next) = (self.map.fsid, self.map.epoch.next());
        self.pending.get_or_insert_with(|| Box::new(OsdMapIncremental::new(fsid, next)))
    }

    /// The CRUSH map of the next epoch, to be edited.
    pub fn pending_crush(&mut self) -> &mut CrushMap {
        self.pending_crush.get_or_insert_with(|| self.crush.clone())
    }

    /// Drops what a command prepared before it failed.
    pub fn discard_pending(&mut self) {
        self.pending = None;
        self.pending_crush = None;
    }

    /// The epoch that pending changes will be part of, or the newest.
    pub fn coming_epoch(&self) -> Epoch {
        if self.has_pending() { self.map.epoch.next() } else { self.map.epoch }
    }

    /// A pool as the next epoch will have it, to be changed.
    pub fn pool_mut(&mut self, id: PoolId) -> Option<&mut PgPool> {
        let current = self.map.pools.get(&id)?.clone();
        Some(self.pending().new_pools.entry(id).or_insert(current))
    }

    /// An OSD's extra information as the next epoch will have it.
    pub fn xinfo_mut(&mut self, osd: OsdId) -> &mut OsdXInfo {
        let current = self.map.xinfo(osd).copied().unwrap_or_default();
        self.pending().new_xinfo.entry(osd).or_insert(current)
    }

    /// State bits that the next epoch turns over. Not for `UP`: see [`Self::mark_down`].
    pub fn toggle_state(&mut self, osd: OsdId, bits: OsdState) {
        let mask = self.pending().new_state.entry(osd).or_default();
        *mask = *mask ^ bits;
    }

    /// False if it is down, or on its way down, already.
    pub fn mark_down(&mut self, osd: OsdId) -> bool {
        if !self.map.is_up(osd) || self.is_going_down(osd) {
            return false;
        }
        self.pending().new_state.entry(osd).or_default().insert(OsdState::UP);
        true
    }

    fn is_going_down(&self, osd: OsdId) -> bool {
        let masks = self.pending.as_ref().map(|p| &p.new_state);
        masks.and_then(|m| m.get(&osd)).is_some_and(|mask| mask.is_empty() || mask.contains(OsdState::UP))
    }

    /// Up, and nothing pending says otherwise.
    pub fn stays_up(&self, osd: OsdId) -> bool {
        self.map.is_up(osd) && !self.is_going_down(osd)
    }

    /// Does anything pending concern this OSD's life?
    pub fn is_pending_for(&self, osd: OsdId) -> bool {
        self.pending.as_ref().is_some_and(|p| {
            p.new_state.contains_key(&osd)
                || p.new_up_client.contains_key(&osd)
                || p.new_weight.contains_key(&osd)
                || p.new_xinfo.contains_key(&osd)
        })
    }

    /// Encodes the next epoch and adds it to the batch. `None` when nothing is pending.
    ///
    /// `trim_below`: epochs from here on are still needed by somebody.
    pub fn prepare(
        &mut self,
        wall: WallTime,
        trim_below: Epoch,
        batch: &mut Batch,
    ) -> Result<Option<Prepared>, MonError> {
        if !self.has_pending() {
            return Ok(None);
        }
        self.pending();
        let Some(mut inc) = self.pending.take() else { return Ok(None) };
        inc.modified = wall;
        if let Some(crush) = self.pending_crush.take() {
            inc.crush = crush.encode();
        }
        let next = self.map.advanced(&inc).map_err(|e| MonError::Invalid(e.to_string()))?;
        let crush = if inc.crush.is_empty() {
            self.crush.clone()
        } else {
            let key = keys::osd_map_full(next.epoch);
            CrushMap::decode(&next.crush).map_err(|error| MonError::Decode { key, error })?
        };
        let full = next.to_bytes(Features::PACIFIC);
        inc.full_crc = full.last_chunk().map_or(0, |crc| u32::from_le_bytes(*crc));
        let incremental = inc.to_bytes(Features::PACIFIC);
        let oldest = self.trimmed_to(next.epoch, trim_below);
        for epoch in self.oldest.0..oldest.0 {
            batch.remove(keys::osd_map_full(Epoch(epoch)));
            batch.remove(keys::osd_map_incremental(Epoch(epoch)));
        }
        batch.put(keys::osd_map_full(next.epoch), full.clone());
        batch.put(keys::osd_map_incremental(next.epoch), incremental.clone());
        batch.put(keys::OSD_MAP_RANGE, encode_range(oldest, next.epoch));
        Ok(Some(Prepared { map: next, crush, full, incremental, oldest }))
    }

    fn trimmed_to(&self, newest: Epoch, trim_below: Epoch) -> Epoch {
        let by_count = newest.0.saturating_sub(EPOCHS_KEPT);
        let target = by_count.min(trim_below.0).min(self.oldest.0 + TRIM_MAX);
        Epoch(target.max(self.oldest.0))
    }

    /// The prepared epoch is durable now.
    pub fn install(&mut self, prepared: Prepared) {
        self.incrementals.insert(prepared.map.epoch, prepared.incremental);
        while self.incrementals.len() > CACHED_MAX {
            self.incrementals.pop_first();
        }
        self.map = prepared.map;
        self.crush = prepared.crush;
        self.encoded = prepared.full;
        self.oldest = prepared.oldest;
    }

    /// The encoded change that made `epoch`; `None` for those trimmed or to come.
    pub fn incremental(&self, store: &dyn MapStore, epoch: Epoch) -> Result<Option<Bytes>, MonError> {
        if epoch <= self.oldest || epoch > self.map.epoch {
            return Ok(None);
        }
        match self.incrementals.get(&epoch) {
            Some(bytes) => Ok(Some(bytes.clone())),
            None => Ok(store.get(&keys::osd_map_incremental(epoch))?),
        }
    }

    /// An epoch's full encoding.
    pub fn full(&self, store: &dyn MapStore, epoch: Epoch) -> Result<Option<Bytes>, MonError> {
        if epoch == self.map.epoch {
            return Ok(Some(self.encoded.clone()));
        }
        if epoch < self.oldest || epoch > self.map.epoch {
            return Ok(None);
        }
        Ok(store.get(&keys::osd_map_full(epoch))?)
    }
}

fn encode_range(oldest: Epoch, newest: Epoch) -> Bytes {
    let mut e = Encoder::plain();
    e.put(&oldest);
    e.put(&newest);
    e.finish()
}

fn decode_range(bytes: Bytes) -> Result<(Epoch, Epoch), MonError> {
    let mut d = Decoder::plain(bytes);
    let mut read = || Ok((d.get()?, d.get()?));
    read().map_err(|error| MonError::Decode { key: keys::OSD_MAP_RANGE.into(), error })
}
