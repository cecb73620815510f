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
use wire::types::{HObject, SnapId};
use wire::{Encode, Features};

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
