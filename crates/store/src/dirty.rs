//! Blocks whose newest content is in the log and not yet in its place.
//!
//! A block has at most one version for each record that carries it. Reads
//! take the newest; writeback takes the newest durable one. Invariant: an
//! entry leaves only when its newest version is in place, or when the block's
//! release is durable; until then the log record that holds it is needed.

use crate::alloc::Run;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Bytes laid over a block whose content is still being read.
#[derive(Clone, Debug)]
pub(crate) struct Patch {
    pub(crate) start: usize,
    pub(crate) data: Bytes,
}

pub(crate) fn lay_over(block: &mut [u8], overlay: &[Patch]) {
    for patch in overlay {
        block[patch.start..patch.start + patch.data.len()].copy_from_slice(&patch.data);
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Image {
    /// In the batch's own buffers, which may still change.
    Slot(u32),
    /// In a record that has been written out.
    Frozen(Bytes),
    /// What the slot will hold once the block below has been read.
    Waiting { slot: u32, overlay: Vec<Patch> },
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    /// The record's.
    pub(crate) sequence: u64,
    pub(crate) image: Image,
    /// What it was merged with could not be read: it must not be served.
    pub(crate) poisoned: bool,
}

pub(crate) struct DirtyBlock {
    pub(crate) newest: Version,
    /// Ascending by sequence.
    pub(crate) older: Vec<Version>,
}

impl DirtyBlock {
    pub(crate) fn versions_mut(&mut self) -> impl Iterator<Item = &mut Version> {
        self.older.iter_mut().chain(std::iter::once(&mut self.newest))
    }

    pub(crate) fn newest_durable(&self, durable: u64) -> Option<&Version> {
        std::iter::once(&self.newest)
            .chain(self.older.iter().rev())
            .find(|version| version.sequence <= durable)
    }
}

#[derive(Default)]
pub(crate) struct Dirty {
    blocks: BTreeMap<u32, DirtyBlock>,
}

/// Adjacent blocks to be put in place.
pub(crate) struct Writeback {
    pub(crate) run: Run,
    pub(crate) data: Vec<Bytes>,
    /// The version written for each block.
    pub(crate) sequences: Vec<u64>,
}

impl Dirty {
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(crate) fn get(&self, device: u32) -> Option<&DirtyBlock> {
        self.blocks.get(&device)
    }

    pub(crate) fn get_mut(&mut self, device: u32) -> Option<&mut DirtyBlock> {
        self.blocks.get_mut(&device)
    }

    /// The content as of the record `version.sequence`, replacing what the same
    /// record said before. Versions that a durable one supersedes are dropped.
    pub(crate) fn put(&mut self, device: u32, version: Version, durable: u64) {
        match self.blocks.entry(device) {
            std::collections::btree_map::Entry::Vacant(slot) => {
                slot.insert(DirtyBlock { newest: version, older: Vec::new() });
            }
            std::collections::btree_map::Entry::Occupied(mut slot) => {
                let block = slot.get_mut();
                let same = block.newest.sequence == version.sequence;
                let previous = std::mem::replace(&mut block.newest, version);
                if !same {
                    block.older.push(previous);
                    let keep = block.older.iter().rposition(|old| old.sequence <= durable);
                    block.older.drain(..keep.unwrap_or(0));
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, device: u32) {
        // Of a tree without entries, too, a removal costs something.
        if !self.blocks.is_empty() {
            self.blocks.remove(&device);
        }
    }

    /// The record's buffers will not change any more.
    pub(crate) fn freeze(&mut self, device: u32, sequence: u64, content: Bytes) {
        let block = self.blocks.get_mut(&device);
        let version =
            block.and_then(|block| block.versions_mut().find(|version| version.sequence == sequence));
        if let Some(version) = version {
            version.image = Image::Frozen(content);
        }
    }

    /// Blocks whose newest durable version is at most `limit`, ascending.
    pub(crate) fn due(&self, durable: u64, limit: u64) -> Vec<u32> {
        self.blocks
            .iter()
            .filter(|(_, block)| block.newest_durable(durable).is_some_and(|v| v.sequence <= limit))
            .map(|(device, _)| *device)
            .collect()
    }

    /// The block's newest durable content, if it is still due.
    pub(crate) fn due_content(&self, device: u32, durable: u64, limit: u64) -> Option<(u64, &Bytes)> {
        let version = self.blocks.get(&device)?.newest_durable(durable)?;
        match &version.image {
            Image::Frozen(content) if version.sequence <= limit => Some((version.sequence, content)),
            _ => None,
        }
    }

    /// The version `sequence` is in place now.
    pub(crate) fn written(&mut self, device: u32, sequence: u64) {
        let Some(block) = self.blocks.get_mut(&device) else {
            return;
        };
        if block.newest.sequence <= sequence {
            self.blocks.remove(&device);
        } else {
            block.older.retain(|version| version.sequence > sequence);
        }
    }
}
