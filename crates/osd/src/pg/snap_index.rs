//! Which clones stand for a snapshot, so that trimming need not look at every object.
//!
//! Shape:  in the omap of the PG's meta object, `s` + snapshot (u64 BE) + encoded clone,
//!         without a value: all clones of a snapshot side by side.
//! Truth:  the heads' snapsets. The index has at least what they have: an entry is written
//!         in the transaction that makes a clone, or that brings its first part from
//!         another OSD, and goes in the transaction that takes the snapshot from the
//!         clone. Where a clone goes for another reason (a divergent entry, a backfill)
//!         its entries stay until trimming finds that they say nothing.

use bytes::{BufMut, Bytes, BytesMut};
use store::{ObjectId, ObjectStore, OmapLimit, StoreError};
use wire::types::{HObject, SnapId};
use wire::{Decode, Encode, Features};

const PREFIX: u8 = b's';

fn prefix(snap: SnapId) -> BytesMut {
    let mut key = BytesMut::with_capacity(96);
    key.put_u8(PREFIX);
    key.put_u64(snap.0);
    key
}

pub fn key(snap: SnapId, clone: &HObject) -> Bytes {
    let mut key = prefix(snap);
    key.put_slice(&clone.to_bytes(Features::ALL));
    key.freeze()
}

/// One entry of the index.
pub struct Entry {
    pub key: Bytes,
    pub snap: SnapId,
    /// `None` where it does not decode: it names no clone.
    pub clone: Option<HObject>,
}

/// The first entry of this snapshot or of one with a greater number.
pub fn next(store: &dyn ObjectStore, meta: &ObjectId, from: u64) -> Result<Option<Entry>, StoreError> {
    let start = prefix(SnapId(from));
    // No key is as short as that.
    let one = OmapLimit { entries: 1, ..OmapLimit::NONE };
    let page = store.omap_list(meta, Some(&start), &[PREFIX], one)?;
    Ok(page.entries.into_iter().next().map(|(key, _)| {
        let snap = key.get(1..start.len()).and_then(|raw| raw.try_into().ok()).map(u64::from_be_bytes);
        let clone = key.get(start.len()..).map(Bytes::copy_from_slice);
        let clone = clone.and_then(|encoded| HObject::from_bytes(encoded, Features::ALL).ok());
        // A key that is too short stands before every snapshot.
        Entry { snap: SnapId(snap.unwrap_or(from)), clone: clone.filter(|_| snap.is_some()), key }
    }))
}
