//! Where the monitor's state lives: a small transactional key-value store.
//!
//! Embedded (redb) for one machine, etcd for a quorum, memory in tests and in
//! the simulator. All behave alike: a batch commits whole, durably, and only
//! if nobody else committed since it was prepared.

use bytes::Bytes;
use std::collections::BTreeMap;

/// Keys are `/`-separated paths such as `osdmap/full/00000012`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// `None` removes the key.
    pub writes: BTreeMap<String, Option<Bytes>>,
}

impl Batch {
    pub fn put(&mut self, key: impl Into<String>, value: Bytes) {
        self.writes.insert(key.into(), Some(value));
    }

    pub fn remove(&mut self, key: impl Into<String>) {
        self.writes.insert(key.into(), None);
    }
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapStoreError {
    #[error("map store: {0}")]
    Io(String),
    /// Another monitor committed first: read again and retry.
    #[error("map store: revision {found} instead of {expected}")]
    Conflict { expected: u64, found: u64 },
    #[error("map store: {0}")]
    Corrupt(String),
}

pub trait MapStore {
    fn get(&self, key: &str) -> Result<Option<Bytes>, MapStoreError>;
    /// Keys that start with `prefix`, ascending.
    fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MapStoreError>;
    /// Counts commits; 0 when empty.
    fn revision(&self) -> u64;
    /// Durable when it returns. Fails with `Conflict` unless the store is at `expected_revision`.
    fn commit(&mut self, expected_revision: u64, batch: Batch) -> Result<u64, MapStoreError>;
}

/// The store of tests and of the simulator.
#[derive(Clone, Debug, Default)]
pub struct MemMapStore {
    entries: BTreeMap<String, Bytes>,
    revision: u64,
}

impl MapStore for MemMapStore {
    fn get(&self, key: &str) -> Result<Option<Bytes>, MapStoreError> {
        Ok(self.entries.get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MapStoreError> {
        let from = self.entries.range(prefix.to_string()..);
        Ok(from.take_while(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn commit(&mut self, expected_revision: u64, batch: Batch) -> Result<u64, MapStoreError> {
        if expected_revision != self.revision {
            return Err(MapStoreError::Conflict { expected: expected_revision, found: self.revision });
        }
        for (key, value) in batch.writes {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        self.revision += 1;
        Ok(self.revision)
    }
}
