//! The embedded map store: one redb file, for clusters with one monitor.
//!
//! Invariants: a batch and the revision it makes are one transaction, durable
//! when `commit` returns. The file is locked while it is open, so a second
//! monitor on the same data fails to start instead of interleaving.

use bytes::Bytes;
use mon::{Batch, MapStore, MapStoreError};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;

const ENTRIES: TableDefinition<&str, &[u8]> = TableDefinition::new("entries");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const REVISION: &str = "revision";

pub struct RedbMapStore {
    db: Database,
    revision: u64,
}

impl RedbMapStore {
    /// Opens the file, or makes it.
    ///
    /// Errors: `Io` also when another process has it open.
    pub fn open(path: &Path) -> Result<RedbMapStore, MapStoreError> {
        let db = Database::create(path).map_err(|e| MapStoreError::Io(format!("{}: {e}", path.display())))?;
        // Tables come into being here, so that later reads find them.
        let txn = db.begin_write().map_err(io)?;
        let revision = {
            txn.open_table(ENTRIES).map_err(io)?;
            let meta = txn.open_table(META).map_err(io)?;
            let revision = meta.get(REVISION).map_err(io)?;
            revision.map_or(0, |guard| guard.value())
        };
        txn.commit().map_err(io)?;
        Ok(RedbMapStore { db, revision })
    }
}

fn io(error: impl std::fmt::Display) -> MapStoreError {
    MapStoreError::Io(error.to_string())
}

impl MapStore for RedbMapStore {
    fn get(&self, key: &str) -> Result<Option<Bytes>, MapStoreError> {
        let txn = self.db.begin_read().map_err(io)?;
        let entries = txn.open_table(ENTRIES).map_err(io)?;
        let found = entries.get(key).map_err(io)?;
        Ok(found.map(|guard| Bytes::copy_from_slice(guard.value())))
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, Bytes)>, MapStoreError> {
        let txn = self.db.begin_read().map_err(io)?;
        let entries = txn.open_table(ENTRIES).map_err(io)?;
        let mut found = Vec::new();
        for entry in entries.range(prefix..).map_err(io)? {
            let (key, value) = entry.map_err(io)?;
            if !key.value().starts_with(prefix) {
                break;
            }
            found.push((key.value().to_string(), Bytes::copy_from_slice(value.value())));
        }
        Ok(found)
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn commit(&mut self, expected_revision: u64, batch: Batch) -> Result<u64, MapStoreError> {
        if expected_revision != self.revision {
            return Err(MapStoreError::Conflict { expected: expected_revision, found: self.revision });
        }
        let revision = self.revision + 1;
        let mut txn = self.db.begin_write().map_err(io)?;
        txn.set_durability(Durability::Immediate).map_err(io)?;
        {
            let mut entries = txn.open_table(ENTRIES).map_err(io)?;
            for (key, value) in &batch.writes {
                match value {
                    Some(value) => entries.insert(key.as_str(), value.as_ref()).map_err(io)?,
                    None => entries.remove(key.as_str()).map_err(io)?,
                };
            }
            let mut meta = txn.open_table(META).map_err(io)?;
            meta.insert(REVISION, revision).map_err(io)?;
        }
        txn.commit().map_err(io)?;
        self.revision = revision;
        Ok(revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(writes: &[(&str, Option<&str>)]) -> Batch {
        let mut batch = Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(*key, Bytes::copy_from_slice(value.as_bytes())),
                None => batch.remove(*key),
            }
        }
        batch
    }

    #[test]
    fn batches_survive_reopening_and_stale_revisions_conflict() {
        let dir = std::env::temp_dir().join(format!("loligo-redb-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("maps.redb");
        let mut store = RedbMapStore::open(&path).unwrap();
        assert_eq!(store.revision(), 0);
        assert_eq!(
            store.commit(0, batch(&[("a/1", Some("x")), ("a/2", Some("y")), ("b", Some("z"))])),
            Ok(1)
        );
        assert_eq!(store.commit(1, batch(&[("a/1", None)])), Ok(2));
        let stale = store.commit(1, batch(&[("b", Some("lost"))]));
        assert_eq!(stale, Err(MapStoreError::Conflict { expected: 1, found: 2 }));
        assert!(RedbMapStore::open(&path).is_err(), "a second monitor must not open it");
        drop(store);

        let store = RedbMapStore::open(&path).unwrap();
        assert_eq!(store.revision(), 2);
        assert_eq!(store.get("a/1"), Ok(None));
        assert_eq!(store.list("a/"), Ok(vec![("a/2".to_string(), Bytes::from_static(b"y"))]));
        assert_eq!(store.get("b"), Ok(Some(Bytes::from_static(b"z"))));
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
