//! The cluster log: what daemons and commands reported, bounded and durable.
//!
//! Entries ride along with the next commit rather than cause one: losing the
//! last second of the log in a crash is acceptable, a disk flush per entry is not.

use crate::{Batch, MapStore, MonError, keys};
use std::collections::BTreeMap;
use wire::codec::{Decode, Encode};
use wire::features::Features;
use wire::messages::LogEntry;

/// Entries kept, as Ceph's `mon_log_max_summary` is per level.
pub const ENTRIES_MAX: usize = 1000;
/// A longer text is cut: a peer could fill the store otherwise.
const TEXT_MAX: usize = 16 * 1024;

#[derive(Default)]
pub struct ClusterLog {
    /// By the order in which they came.
    entries: BTreeMap<u64, LogEntry>,
    own_seq: u64,
}

impl ClusterLog {
    pub fn load(store: &dyn MapStore) -> Result<ClusterLog, MonError> {
        let mut log = ClusterLog::default();
        for (key, value) in store.list(keys::LOG)? {
            let seq = key[keys::LOG.len()..].parse().map_err(|_| MonError::Invalid(format!("key {key}")))?;
            let entry = LogEntry::from_bytes(value, Features::PACIFIC)
                .map_err(|error| MonError::Decode { key, error })?;
            log.own_seq = log.own_seq.max(entry.seq);
            log.entries.insert(seq, entry);
        }
        Ok(log)
    }

    pub fn next_own_seq(&mut self) -> u64 {
        self.own_seq += 1;
        self.own_seq
    }

    pub fn newest(&self) -> u64 {
        self.entries.last_key_value().map_or(0, |(seq, _)| *seq)
    }

    pub fn add(&mut self, mut entry: LogEntry, batch: &mut Batch) {
        if entry.text.len() > TEXT_MAX {
            let cut = (0..=TEXT_MAX).rev().find(|at| entry.text.is_char_boundary(*at)).unwrap_or(0);
            entry.text.truncate(cut);
        }
        let seq = self.newest() + 1;
        batch.put(keys::log_entry(seq), entry.to_bytes(Features::PACIFIC));
        self.entries.insert(seq, entry);
        while self.entries.len() > ENTRIES_MAX {
            if let Some((old, _)) = self.entries.pop_first() {
                batch.remove(keys::log_entry(old));
            }
        }
    }

    pub fn since(&self, seq: u64) -> impl DoubleEndedIterator<Item = &LogEntry> {
        self.entries.range(seq..).map(|(_, entry)| entry)
    }
}
