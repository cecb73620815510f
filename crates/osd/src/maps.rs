//! The OSD's cluster maps: the newest one, and the incrementals that led to it.
//!
//! Epochs are taken in order, without gaps: intervals are computed from every
//! single one. Incrementals are kept to bring clients and peers up to date.

use bytes::Bytes;
use crush::CrushMap;
use crush::placement::pg_to_up_acting;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::features::Features;
use wire::maps::{OsdMap, OsdMapIncremental};
use wire::messages::MOsdMap;
use wire::types::{Epoch, OsdId, PgId};
use wire::{Decode, Encode};

/// Incrementals kept in memory and in the store.
pub const INCREMENTALS_MAX: usize = 500;
/// Epochs sent in one message.
pub const SHARE_MAX: usize = 100;

/// Who is responsible for a PG in one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    pub up: Vec<OsdId>,
    pub acting: Vec<OsdId>,
    pub up_primary: Option<OsdId>,
    pub primary: Option<OsdId>,
}

impl Placement {
    /// Acting members, holes left out.
    pub fn members(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.acting.iter().copied().filter(|osd| *osd != OsdId::NONE)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    #[error("map epoch {epoch}: {reason}")]
    Invalid { epoch: Epoch, reason: String },
}

/// One epoch, ready for use.
#[derive(Clone, Debug)]
pub struct Maps {
    map: Arc<OsdMap>,
    crush: Arc<CrushMap>,
    incrementals: BTreeMap<Epoch, Bytes>,
}

impl Default for Maps {
    fn default() -> Maps {
        Maps {
            map: Arc::new(OsdMap::default()),
            crush: Arc::new(CrushMap::empty()),
            incrementals: BTreeMap::new(),
        }
    }
}

impl Maps {
    pub fn epoch(&self) -> Epoch {
        self.map.epoch
    }

    pub fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    pub fn placement(&self, pg: PgId) -> Placement {
        let found = pg_to_up_acting(&self.map, &self.crush, pg);
        Placement {
            up: found.up.0,
            acting: found.acting.0,
            up_primary: found.up_primary,
            primary: found.acting_primary,
        }
    }

    /// Starts over from a full map.
    pub fn install_full(&mut self, epoch: Epoch, bytes: Bytes) -> Result<(), MapError> {
        let invalid = |reason: String| MapError::Invalid { epoch, reason };
        let map = OsdMap::from_bytes(bytes, Features::PACIFIC).map_err(|e| invalid(e.to_string()))?;
        if map.epoch != epoch {
            return Err(invalid(format!("the map says it is {}", map.epoch)));
        }
        self.crush = Arc::new(decode_crush(&map)?);
        self.map = Arc::new(map);
        self.incrementals.clear();
        Ok(())
    }

    /// The next epoch. On an error nothing has changed.
    pub fn apply(&mut self, epoch: Epoch, bytes: Bytes) -> Result<(), MapError> {
        let invalid = |reason: String| MapError::Invalid { epoch, reason };
        let inc = OsdMapIncremental::from_bytes(bytes.clone(), Features::PACIFIC)
            .map_err(|e| invalid(e.to_string()))?;
        let mut next = (*self.map).clone();
        next.apply(&inc).map_err(|e| invalid(e.to_string()))?;
        if next.epoch != epoch {
            return Err(invalid(format!("the map says it is {}", next.epoch)));
        }
        if next.crush != self.map.crush {
            self.crush = Arc::new(decode_crush(&next)?);
        }
        self.map = Arc::new(next);
        self.incrementals.insert(epoch, bytes);
        while self.incrementals.len() > INCREMENTALS_MAX {
            self.incrementals.pop_first();
        }
        Ok(())
    }

    /// Incrementals after `epoch`, at most `SHARE_MAX`; `None` when they do
    /// not reach back so far.
    pub fn incrementals_after(&self, epoch: Epoch) -> Option<Vec<(Epoch, Bytes)>> {
        if epoch >= self.epoch() {
            return Some(Vec::new());
        }
        self.incrementals.get(&epoch.next())?;
        Some(self.incrementals.range(epoch.next()..).take(SHARE_MAX).map(|(e, b)| (*e, b.clone())).collect())
    }

    /// What brings a client from `epoch` towards ours, and the epoch it has then.
    pub fn share(&self, epoch: Epoch) -> (MOsdMap, Epoch) {
        let mut message = MOsdMap {
            fsid: self.map.fsid,
            oldest: self.incrementals.keys().next().copied().unwrap_or(self.epoch()),
            newest: self.epoch(),
            ..MOsdMap::default()
        };
        match self.incrementals_after(epoch) {
            Some(list) => {
                let reached = list.last().map_or(epoch, |(e, _)| *e);
                message.incrementals = list.into_iter().collect();
                (message, reached)
            }
            None => {
                message.fulls.insert(self.epoch(), self.map.to_bytes(Features::PACIFIC));
                (message, self.epoch())
            }
        }
    }
}

fn decode_crush(map: &OsdMap) -> Result<CrushMap, MapError> {
    CrushMap::decode(&map.crush)
        .map_err(|e| MapError::Invalid { epoch: map.epoch, reason: format!("CRUSH map: {e}") })
}
