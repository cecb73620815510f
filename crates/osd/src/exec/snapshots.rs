//! Snapshots of objects: clones, and what a head remembers of them.
//!
//! A write under a context with a snapshot newer than the object's `snap_seq` first
//! makes a clone of the head: an object of its own, whose id's snap is the context's
//! sequence number. The head keeps the [`SnapSet`] in the xattr [`SNAPSET_ATTR`], there
//! only while there are clones ([`super::ObjectInfo::has_clones`]): an object without
//! snapshots costs nothing. A clone keeps the snapshots it stands for in
//! [`SNAPS_ATTR`], so that it can be indexed wherever it is copied to. A deleted head
//! with clones stays as an empty object, a whiteout.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`make_writeable`, `find_object_context`,
//! `_do_rollback_to`), `src/osd/osd_types.cc` (`SnapSet`).

use super::object_info::INFO_ATTR;
use super::staged::{StagedObject, Stop};
use super::{Clones, Context, InfoError, StatDelta};
use base::Errno;
use bytes::Bytes;
use store::{Mutation, ObjectId, ObjectStore, StoreError};
use wire::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::maps::PoolFlags;
use wire::messages::osd_op::flags;
use wire::types::{EVersion, HObject, IntervalSet, SnapId};

/// The head's xattr in the store that holds its [`SnapSet`].
pub const SNAPSET_ATTR: &str = "snapset";
/// A clone's xattr in the store that holds the snapshots it stands for.
pub const SNAPS_ATTR: &str = "snaps";

/// One clone, as the head knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CloneInfo {
    /// The snap of the clone's object id.
    pub id: SnapId,
    /// The snapshots it stands for, newest first; never empty.
    pub snaps: Vec<SnapId>,
    pub size: u64,
    /// Bytes that are the same in the next newer clone, or in the head.
    pub overlap: IntervalSet,
}

impl CloneInfo {
    /// Bytes that only this clone has: what the PG's statistics count of it.
    pub fn own_bytes(&self) -> u64 {
        self.size.saturating_sub(self.overlap.total_len())
    }
}

/// `SnapSet`: the clones of one object, oldest first. Its `seq` is the object info's `snap_seq`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapSet {
    pub clones: Vec<CloneInfo>,
}

impl SnapSet {
    /// Of a head whose object info says that it has clones.
    pub fn load(store: &dyn ObjectStore, head: &ObjectId) -> Result<SnapSet, InfoError> {
        match store.xattr(head, SNAPSET_ATTR)? {
            Some(record) => Ok(SnapSet::from_record(record)?),
            None => Err(InfoError::Missing),
        }
    }

    pub fn from_record(record: Bytes) -> DecodeResult<SnapSet> {
        Decoder::plain(record).get()
    }

    pub fn to_record(&self) -> Bytes {
        let mut e = Encoder::plain();
        e.put(self);
        e.finish()
    }

    /// Position of the clone that shows a snapshot; `None` if the object was not there then.
    pub fn find(&self, snap: SnapId) -> Option<usize> {
        let at = self.clones.partition_point(|clone| clone.id < snap);
        self.clones.get(at).filter(|clone| clone.snaps.contains(&snap)).map(|_| at)
    }

    /// The clone's bytes that the head still has.
    fn shared_with_head(&self, clone: usize) -> IntervalSet {
        let mut shared = self.clones[clone].overlap.clone();
        for newer in &self.clones[clone + 1..] {
            shared = shared.intersection(&newer.overlap);
        }
        shared
    }

    /// Forgets a clone. Returns by how much the bytes that clones alone have become fewer.
    pub fn remove(&mut self, clone: usize) -> i64 {
        let gone = self.clones.remove(clone);
        let mut fewer = signed(gone.own_bytes());
        if let Some(older) = clone.checked_sub(1).map(|at| &mut self.clones[at]) {
            fewer += signed(older.own_bytes());
            older.overlap = older.overlap.intersection(&gone.overlap);
            fewer -= signed(older.own_bytes());
        }
        fewer
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

impl Encode for SnapSet {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.count(self.clones.len());
            for clone in &self.clones {
                e.put(&clone.id);
                e.put(&clone.snaps);
                e.u64(clone.size);
                e.put(&clone.overlap);
            }
        });
    }
}

impl Decode for SnapSet {
    const MIN_LEN: usize = 10;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("snapset", 1, |d, _| {
            let count = d.count("clones", 24)?;
            let mut clones = Vec::with_capacity(count);
            for _ in 0..count {
                clones.push(CloneInfo { id: d.get()?, snaps: d.get()?, size: d.u64()?, overlap: d.get()? });
            }
            let ascending = clones.windows(2).all(|pair: &[CloneInfo]| pair[0].id < pair[1].id);
            match ascending {
                true => Ok(SnapSet { clones }),
                false => Err(DecodeError::Invalid { what: "order of clones" }),
            }
        })
    }
}

/// A clone's [`SNAPS_ATTR`].
pub fn encode_snaps(snaps: &[SnapId]) -> Bytes {
    let mut e = Encoder::plain();
    e.put(snaps);
    e.finish()
}

pub fn decode_snaps(record: Bytes) -> DecodeResult<Vec<SnapId>> {
    Decoder::plain(record).get()
}

/// What a change does to a clone besides the head: a part of its log entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloneChange {
    pub object: HObject,
    /// The PG's version of this; the head's follows.
    pub version: EVersion,
    /// The clone's version before; ZERO for a new one.
    pub prior_version: EVersion,
    pub deleted: bool,
    /// Snapshots that it stands for from now on, to be indexed.
    pub snaps: Vec<SnapId>,
    /// Snapshots that it does not stand for any more.
    pub dropped: Vec<SnapId>,
}

impl Encode for CloneChange {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.object);
        e.put(&self.version);
        e.put(&self.prior_version);
        e.bool(self.deleted);
        e.put(&self.snaps);
        e.put(&self.dropped);
    }
}

impl Decode for CloneChange {
    const MIN_LEN: usize = 72;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        Ok(CloneChange {
            object: d.get()?,
            version: d.get()?,
            prior_version: d.get()?,
            deleted: d.bool()?,
            snaps: d.get()?,
            dropped: d.get()?,
        })
    }
}

/// `SnapContext`: which snapshots exist, as a write sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SnapContext {
    pub seq: SnapId,
    /// Newest first.
    pub snaps: Vec<SnapId>,
}

impl SnapContext {
    /// The pool's where it has snapshots of its own, else what the client says of those
    /// that have not been removed.
    pub(super) fn of(context: &Context<'_>) -> SnapContext {
        let request = context.request;
        let pool_snaps = context.pool.flags.contains(PoolFlags::POOL_SNAPS);
        if pool_snaps && request.flags & flags::ENFORCE_SNAPC == 0 {
            let snaps = context.pool.snaps.keys().rev().copied().collect();
            return SnapContext { seq: context.pool.snap_seq, snaps };
        }
        let mut snaps = request.snaps.clone();
        snaps.retain(|snap| !context.clones.is_removed(*snap));
        SnapContext { seq: request.snap_seq, snaps }
    }

    /// Descending, none above the sequence number; and the number must do as a clone's.
    pub(super) fn is_valid(&self) -> bool {
        let bounded = self.snaps.first().is_none_or(|newest| *newest <= self.seq);
        let descending = self.snaps.windows(2).all(|pair| pair[0] > pair[1]);
        bounded && descending && (self.snaps.is_empty() || self.seq < SnapId::HEAD)
    }

    /// A write needs the head as it is kept for these.
    fn news(&self, seq: u64) -> &[SnapId] {
        &self.snaps[..self.snaps.partition_point(|snap| snap.0 > seq)]
    }
}

/// What a snapshot shows of an object.
pub(super) enum Shown {
    Head,
    Clone(ObjectId),
}

/// Errors: ENOENT when the snapshot is gone or the object was not there.
pub(super) fn show(
    clones: &Clones<'_>,
    head: &StagedObject<'_>,
    snap: SnapId,
    write: bool,
) -> Result<Shown, Stop> {
    if clones.is_removed(snap) {
        return Err(Errno::ENOENT.into());
    }
    if snap.0 > head.before.info.snap_seq {
        return Ok(Shown::Head);
    }
    let at = head.before.snapset.find(snap).ok_or(Errno::ENOENT)?;
    let object = HObject { snap: head.before.snapset.clones[at].id, ..head.id.object.clone() };
    clones.require(&object, write)?;
    Ok(Shown::Clone(ObjectId { coll: head.id.coll, object }))
}

/// Whether a write under this context first makes a clone of the head.
pub(super) fn will_clone(object: &StagedObject<'_>, context: &SnapContext) -> bool {
    object.before.exists && !context.news(object.before.info.snap_seq).is_empty()
}

/// The clone that the write owes to its context: comes before its other mutations.
///
/// Returns what goes into the log entry. `object.snapset` has the clone afterwards.
pub(super) fn make_clone(
    object: &mut StagedObject<'_>,
    snap_context: &SnapContext,
    version: EVersion,
) -> CloneChange {
    let before = &object.before;
    let snaps = snap_context.news(before.info.snap_seq).to_vec();
    let id = ObjectId {
        coll: object.id.coll,
        object: HObject { snap: snap_context.seq, ..object.id.object.clone() },
    };
    let mut info = before.info.clone();
    info.prior_version = info.version;
    info.version = version;
    info.has_clones = false;
    info.watchers.clear();
    let attrs = [(INFO_ATTR, info.to_record()), (SNAPS_ATTR, encode_snaps(&snaps))].into();
    let mut mutations = vec![Mutation::Clone { from: object.id.clone(), to: id.clone() }];
    if before.info.has_clones {
        mutations.push(Mutation::RmXattr { id: id.clone(), name: SNAPSET_ATTR.to_string() });
    }
    mutations.push(Mutation::SetXattrs { id: id.clone(), attrs });
    mutations.append(&mut object.mutations);
    object.mutations = mutations;
    let mut overlap = IntervalSet::new();
    overlap.insert(0, before.size);
    let clone = CloneInfo { id: snap_context.seq, snaps: snaps.clone(), size: before.size, overlap };
    object.snapset.clones.push(clone);
    object.snapset_changed = true;
    CloneChange {
        object: id.object,
        version,
        prior_version: EVersion::ZERO,
        deleted: false,
        snaps,
        dropped: Vec::new(),
    }
}

/// What the newest clone does not share with the head any more; returns how many bytes that is.
pub(super) fn reduce_overlap(object: &mut StagedObject<'_>) -> u64 {
    let Some(newest) = object.snapset.clones.last_mut() else { return 0 };
    let lost = object.modified.intersection(&newest.overlap);
    if !lost.is_empty() {
        newest.overlap.subtract(&lost);
        object.snapset_changed = true;
    }
    lost.total_len()
}

/// The head's bytes that becoming a copy of a clone changes.
pub(super) fn changed_by_rollback(snapset: &SnapSet, clone: SnapId, head_size: u64) -> IntervalSet {
    let mut changed = IntervalSet::new();
    changed.insert(0, head_size);
    if let Some(at) = snapset.clones.iter().position(|known| known.id == clone) {
        changed.subtract(&snapset.shared_with_head(at));
    }
    changed
}

/// What removing snapshots from a clone changes.
#[derive(Clone, Debug)]
pub struct Trimmed {
    pub mutations: Vec<Mutation>,
    pub clone: CloneChange,
    /// The version that the head gets.
    pub version: EVersion,
    pub head_prior_version: EVersion,
    /// The head was there only for its last clone.
    pub head_deleted: bool,
    pub delta: StatDelta,
}

/// Takes the snapshots that `is_removed` knows from a clone; without any left, it goes.
///
/// `None`: there is nothing to do, because clone or snapshots are gone already.
/// `at_version`: the clone's; the head's is the next one.
/// Source: Ceph `src/osd/PrimaryLogPG.cc` (`trim_object`).
pub fn trim(
    store: &dyn ObjectStore,
    clone: &ObjectId,
    is_removed: impl Fn(SnapId) -> bool,
    at_version: EVersion,
) -> Result<Option<Trimmed>, InfoError> {
    let head = ObjectId { object: HObject { snap: SnapId::HEAD, ..clone.object.clone() }, ..clone.clone() };
    let Some(mut head_info) = super::ObjectInfo::load(store, &head)? else { return Ok(None) };
    if !head_info.has_clones {
        return Ok(None);
    }
    let mut snapset = SnapSet::load(store, &head)?;
    let Some(at) = snapset.clones.iter().position(|known| known.id == clone.object.snap) else {
        return Ok(None);
    };
    let (dropped, kept): (Vec<SnapId>, Vec<SnapId>) =
        snapset.clones[at].snaps.iter().partition(|snap| is_removed(**snap));
    if dropped.is_empty() {
        return Ok(None);
    }
    let mut info = super::ObjectInfo::load(store, clone)?.ok_or(InfoError::Store(StoreError::NoObject))?;
    let mut delta = StatDelta::default();
    let mut mutations = Vec::new();
    let change = CloneChange {
        object: clone.object.clone(),
        version: at_version,
        prior_version: info.version,
        deleted: kept.is_empty(),
        snaps: kept.clone(),
        dropped,
    };
    if kept.is_empty() {
        delta.objects -= 1;
        delta.clones -= 1;
        delta.bytes -= snapset.remove(at);
        delta.omap_keys -= signed(info.omap_keys);
        delta.omap_bytes -= signed(info.omap_bytes);
        mutations.push(Mutation::Remove(clone.clone()));
    } else {
        info.prior_version = info.version;
        info.version = at_version;
        let attrs = [(INFO_ATTR, info.to_record()), (SNAPS_ATTR, encode_snaps(&kept))].into();
        mutations.push(Mutation::SetXattrs { id: clone.clone(), attrs });
        snapset.clones[at].snaps = kept;
    }
    let version = EVersion { version: at_version.version + 1, ..at_version };
    let head_prior_version = head_info.version;
    let head_deleted = snapset.clones.is_empty() && head_info.is_whiteout;
    if head_deleted {
        delta.objects -= 1;
        mutations.push(Mutation::Remove(head));
    } else {
        head_info.prior_version = head_info.version;
        head_info.version = version;
        head_info.has_clones = !snapset.clones.is_empty();
        let snapset = head_info.has_clones.then(|| (SNAPSET_ATTR, snapset.to_record()));
        let attrs = std::iter::once((INFO_ATTR, head_info.to_record())).chain(snapset).collect();
        if !head_info.has_clones {
            mutations.push(Mutation::RmXattr { id: head.clone(), name: SNAPSET_ATTR.to_string() });
        }
        mutations.push(Mutation::SetXattrs { id: head, attrs });
    }
    Ok(Some(Trimmed { mutations, clone: change, version, head_prior_version, head_deleted, delta }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u64, u64)]) -> IntervalSet {
        let mut set = IntervalSet::new();
        ranges.iter().for_each(|(start, len)| set.insert(*start, *len));
        set
    }

    fn clone(id: u64, snaps: &[u64], size: u64, overlap: &[(u64, u64)]) -> CloneInfo {
        let snaps = snaps.iter().map(|s| SnapId(*s)).collect();
        CloneInfo { id: SnapId(id), snaps, size, overlap: set(overlap) }
    }

    #[test]
    fn a_snapset_survives_and_every_truncation_is_an_error() {
        let snapset =
            SnapSet { clones: vec![clone(2, &[2, 1], 9, &[(0, 4), (6, 1)]), clone(5, &[5], 0, &[])] };
        let record = snapset.to_record();
        assert_eq!(SnapSet::from_record(record.clone()), Ok(snapset.clone()));
        for cut in 0..record.len() {
            assert!(SnapSet::from_record(record.slice(..cut)).is_err(), "cut at {cut}");
        }
        let reversed = SnapSet { clones: snapset.clones.into_iter().rev().collect() };
        assert!(SnapSet::from_record(reversed.to_record()).is_err());
    }

    #[test]
    fn a_snapshot_is_shown_by_the_first_clone_that_lists_it() {
        let snapset = SnapSet { clones: vec![clone(4, &[4, 2], 0, &[]), clone(9, &[9, 7], 0, &[])] };
        let found = |snap| snapset.find(SnapId(snap));
        assert_eq!([found(2), found(4), found(7), found(9)], [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!([found(1), found(3), found(8), found(10)], [None; 4]);
    }

    #[test]
    fn a_clone_that_goes_leaves_its_older_neighbour_what_both_shared() {
        let mut snapset = SnapSet {
            clones: vec![
                clone(1, &[1], 10, &[(0, 8)]),
                clone(2, &[2], 10, &[(4, 6)]),
                clone(3, &[3], 10, &[(0, 10)]),
            ],
        };
        assert_eq!(snapset.shared_with_head(0), set(&[(4, 4)]));
        // The middle one had 4 bytes of its own; the older one now has 6 instead of 2.
        assert_eq!(snapset.remove(1), 0);
        assert_eq!(snapset.clones[0].overlap, set(&[(4, 4)]));
        assert_eq!(snapset.remove(0), 6);
        assert_eq!(snapset.remove(0), 0);
    }
}
