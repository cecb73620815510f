//! The object as the operations of one message see and change it: the store's
//! object with what earlier operations of the message did on top.
//!
//! Nothing reaches the store from here; the changes are collected as
//! [`Mutation`]s. Reads see them at once (Ceph's do not: there an operation reads
//! what was before the message. Our way is the one a user expects of "in order").

mod omap;

use super::object_info::{InfoError, ObjectInfo, stored_name, user_name};
use super::on_write::OnWrite;
use super::snapshots::{SNAPS_ATTR, SnapSet, changed_by_rollback};
use super::watch::{WatchDisconnect, WatchEffects};
use super::{DataRange, Fetched, Need, limits};
use base::Errno;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Mutation, ObjectId, ObjectStore, StoreError};
use wire::DecodeError;
use wire::types::IntervalSet;

/// Why an operation did not complete.
#[derive(Debug)]
pub(super) enum Stop {
    /// The operation's return code: a negative errno, or CMPEXT's position.
    Code(i32),
    /// The whole message gets this, with no codes for single operations.
    Abort(Errno),
    /// Object data is missing; what, is noted in [`StagedObject::needs`].
    Data,
    Need(Need),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Code(errno.negative())
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        match error {
            StoreError::Pending(_) => Stop::Need(Need::Metadata(error)),
            error => error.errno().into(),
        }
    }
}

/// Operation input that does not decode.
impl From<DecodeError> for Stop {
    fn from(_: DecodeError) -> Stop {
        Errno::EINVAL.into()
    }
}

impl From<InfoError> for Stop {
    fn from(error: InfoError) -> Stop {
        match error {
            InfoError::Store(error) => error.into(),
            // The record is damaged: as bad as unreadable data.
            InfoError::Corrupt(_) | InfoError::Missing => Errno::EIO.into(),
        }
    }
}

#[derive(Debug)]
enum DataEdit {
    Write {
        offset: u64,
        data: Bytes,
    },
    Zero {
        offset: u64,
        len: u64,
    },
    /// To a size; what it cuts away reads as zeros if the object grows again.
    Truncate(u64),
}

impl DataEdit {
    /// Nothing before this edit shows in the range.
    fn covers(&self, offset: u64, len: u64) -> bool {
        match self {
            DataEdit::Write { offset: at, data } => *at <= offset && offset + len <= at + data.len() as u64,
            DataEdit::Zero { .. } => false,
            DataEdit::Truncate(size) => *size <= offset,
        }
    }

    /// Applies the edit to what `buf` holds: the object from `offset` on.
    fn apply(&self, offset: u64, buf: &mut [u8]) {
        let end = offset + buf.len() as u64;
        let (from, to) = match self {
            DataEdit::Write { offset: at, data } => (*at, at + data.len() as u64),
            DataEdit::Zero { offset: at, len } => (*at, at.saturating_add(*len)),
            DataEdit::Truncate(size) => (*size, u64::MAX),
        };
        let (first, last) = (from.max(offset), to.min(end));
        if first >= last {
            return;
        }
        let target = &mut buf[(first - offset) as usize..(last - offset) as usize];
        match self {
            DataEdit::Write { data, .. } => {
                target.copy_from_slice(&data[(first - from) as usize..(last - from) as usize]);
            }
            DataEdit::Zero { .. } | DataEdit::Truncate(_) => target.fill(0),
        }
    }
}

pub(super) struct StagedObject<'a> {
    store: &'a dyn ObjectStore,
    fetched: &'a Fetched,
    pub(super) id: ObjectId,
    pub(super) exists: bool,
    pub(super) size: u64,
    pub(super) info: OnWrite<ObjectInfo>,
    /// The store's object that shows beneath the changes: a clone, after a rollback.
    base: ObjectId,
    /// Its bytes that show beneath the edits.
    base_size: u64,
    /// The store's xattrs and omap show beneath ours.
    base_visible: bool,
    edits: Vec<DataEdit>,
    /// Changes to user xattrs by stored name; `None` removes.
    xattrs: BTreeMap<String, Option<Bytes>>,
    omap: omap::StagedOmap,
    pub(super) mutations: Vec<Mutation>,
    /// A change was made, be it one without effect: the message takes effect as a write.
    pub(super) touched: bool,
    /// The content, its times and its user version came from another object.
    pub(super) copied: bool,
    /// What the operations ask for with regard to watches.
    pub(super) watch: WatchEffects,
    pub(super) snapset: OnWrite<SnapSet>,
    /// The snapset is another one than before, or its record has gone with the old content.
    pub(super) snapset_changed: bool,
    /// There are clones, or will be: changes of data are noted.
    pub(super) is_tracked: bool,
    /// Data ranges that are not as they were before the message, as Ceph notes them.
    pub(super) modified: IntervalSet,
    pub(super) needs: Vec<DataRange>,
    /// Operations so far, methods' uses of the object included.
    pub(super) uses: u32,
    /// Bytes read and generated so far, against [`limits::READ_LEN_TOTAL_MAX`].
    worked_bytes: u64,
    /// As the store has it.
    pub(super) before: Before,
}

/// The object before the message.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// For users; see [`Self::stored`].
    pub(super) exists: bool,
    /// It is in the store, if only as a whiteout.
    pub(super) stored: bool,
    pub(super) size: u64,
    pub(super) info: OnWrite<ObjectInfo>,
    pub(super) snapset: OnWrite<SnapSet>,
}

impl Before {
    fn load(store: &dyn ObjectStore, id: &ObjectId) -> Result<Before, Stop> {
        let Some(stat) = store.stat(id)? else { return Ok(Before::default()) };
        let info = ObjectInfo::load(store, id)?.ok_or(Errno::EIO)?;
        let snapset = if info.has_clones { SnapSet::load(store, id)? } else { SnapSet::default() };
        Ok(Before {
            exists: !info.is_whiteout,
            stored: true,
            size: stat.size,
            info: info.into(),
            snapset: snapset.into(),
        })
    }
}

impl<'a> StagedObject<'a> {
    pub(super) fn load(
        store: &'a dyn ObjectStore,
        fetched: &'a Fetched,
        id: ObjectId,
    ) -> Result<StagedObject<'a>, Stop> {
        let before = match fetched.before.get() {
            Some(before) => before.clone(),
            None => {
                let before = Before::load(store, &id)?;
                fetched.before.get_or_init(|| before).clone()
            }
        };
        Ok(StagedObject::begin(store, fetched, id, before))
    }

    /// A clone of an object, to be read.
    pub(super) fn load_clone(
        store: &'a dyn ObjectStore,
        fetched: &'a Fetched,
        id: ObjectId,
    ) -> Result<StagedObject<'a>, Stop> {
        let before = Before::load(store, &id)?;
        Ok(StagedObject::begin(store, fetched, id, before))
    }

    fn begin(store: &'a dyn ObjectStore, fetched: &'a Fetched, id: ObjectId, before: Before) -> Self {
        StagedObject {
            store,
            fetched,
            base: id.clone(),
            id,
            exists: before.exists,
            size: before.size,
            info: before.info.clone(),
            base_size: before.size,
            base_visible: before.exists,
            edits: Vec::new(),
            xattrs: BTreeMap::new(),
            omap: omap::StagedOmap::default(),
            mutations: Vec::new(),
            touched: false,
            copied: false,
            watch: WatchEffects::default(),
            snapset: before.snapset.clone(),
            snapset_changed: false,
            is_tracked: !before.snapset.clones.is_empty(),
            modified: IntervalSet::new(),
            needs: Vec::new(),
            uses: 0,
            worked_bytes: 0,
            before,
        }
    }

    fn note_modified(&mut self, offset: u64, len: u64) {
        if self.is_tracked {
            self.modified.insert(offset, len);
        }
    }

    /// `maybe_create_new_object`. The object info written at the end brings the
    /// object into being in the store.
    pub(super) fn create(&mut self) {
        self.touched = true;
        if !self.exists {
            self.exists = true;
            self.size = 0;
        }
    }

    /// Counts work that a small request can make large.
    pub(super) fn account(&mut self, bytes: u64) -> Result<(), Stop> {
        self.worked_bytes = self.worked_bytes.saturating_add(bytes);
        if self.worked_bytes > limits::READ_LEN_TOTAL_MAX {
            return Err(Errno::EMSGSIZE.into());
        }
        Ok(())
    }

    // --- data ---

    /// `len` bytes at `offset`; unless there are none, they lie within the size.
    pub(super) fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        assert!(offset < self.size && len <= self.size - offset, "the caller clips to the size");
        self.account(len)?;
        if self.edits.is_empty() {
            return self.read_base(offset, len);
        }
        let first = self.edits.iter().rposition(|edit| edit.covers(offset, len));
        let mut buf = vec![0; len as usize];
        let base_len = self.base_size.saturating_sub(offset).min(len);
        if first.is_none() && base_len > 0 {
            buf[..base_len as usize].copy_from_slice(&self.read_base(offset, base_len)?);
        }
        for edit in &self.edits[first.unwrap_or(0)..] {
            edit.apply(offset, &mut buf);
        }
        Ok(buf.into())
    }

    /// Of what shows beneath the edits.
    pub(super) fn stored_range(&self, offset: u64, len: u64) -> DataRange {
        DataRange { id: self.base.clone(), offset, len }
    }

    fn read_base(&mut self, offset: u64, len: u64) -> Result<Bytes, Stop> {
        let wanted = self.stored_range(offset, len);
        match self.fetched.data.iter().find(|(range, _)| *range == wanted) {
            Some((_, Ok(data))) if data.len() as u64 == len => Ok(data.clone()),
            // The store answers less than its own size promises.
            Some((_, Ok(_))) => Err(Errno::EIO.into()),
            Some((_, Err(error))) => Err(error.clone().into()),
            None => {
                if !self.needs.contains(&wanted) {
                    self.needs.push(wanted);
                }
                Err(Stop::Data)
            }
        }
    }

    /// Ranges within the size that may hold anything but zeros.
    pub(super) fn extents(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>, Stop> {
        let len = len.min(self.size.saturating_sub(offset));
        if len == 0 {
            return Ok(Vec::new());
        }
        if !self.edits.is_empty() || !self.base_visible {
            return Ok(vec![(offset, len)]);
        }
        Ok(self.store.data_extents(&self.base, offset, len)?)
    }

    /// The caller has checked the range against the limits.
    pub(super) fn write(&mut self, offset: u64, data: Bytes) {
        self.create();
        if data.is_empty() {
            return;
        }
        self.size = self.size.max(offset + data.len() as u64);
        self.note_modified(offset, data.len() as u64);
        self.edits.push(DataEdit::Write { offset, data: data.clone() });
        self.mutations.push(Mutation::Write { id: self.id.clone(), offset, data });
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.create();
        if size != self.size {
            self.note_modified(size, self.size.saturating_sub(size));
            self.size = size;
            self.edits.push(DataEdit::Truncate(size));
            self.mutations.push(Mutation::Truncate { id: self.id.clone(), size });
        }
    }

    /// Within the size.
    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        self.touched = true;
        self.note_modified(offset, len);
        self.edits.push(DataEdit::Zero { offset, len });
        self.mutations.push(Mutation::Zero { id: self.id.clone(), offset, len });
    }

    /// Data, xattrs, omap, and the record of it all but the versions. Watchers are told.
    pub(super) fn remove(&mut self) {
        self.touched = true;
        self.note_modified(0, self.size);
        self.exists = false;
        self.size = 0;
        self.base_size = 0;
        self.base_visible = false;
        self.edits.clear();
        self.xattrs.clear();
        self.omap = omap::StagedOmap::hiding_the_store();
        let watchers = std::mem::take(&mut self.info.watchers);
        self.watch.connects.retain(|connect| !watchers.contains_key(&connect.key));
        self.watch.disconnects.extend(watchers.into_keys().map(|key| WatchDisconnect { key, tell: true }));
        self.info = ObjectInfo { user_version: self.info.user_version, ..ObjectInfo::default() }.into();
        // Whatever was staged before has no effect any more.
        self.mutations.clear();
        self.snapset_changed = true;
        if self.before.stored {
            self.mutations.push(Mutation::Remove(self.id.clone()));
        }
    }

    /// Content, xattrs and omap become those of a clone; versions, times and truncation stay.
    pub(super) fn roll_back(&mut self, clone: ObjectId) -> Result<(), Stop> {
        let source = Before::load(self.store, &clone)?;
        if !source.exists {
            return Err(Errno::EIO.into());
        }
        if self.is_tracked {
            let changed = changed_by_rollback(&self.snapset, clone.object.snap, self.size);
            changed.iter().for_each(|(offset, len)| self.modified.insert(offset, len));
        }
        self.create();
        self.size = source.size;
        self.base_size = source.size;
        self.base_visible = true;
        self.edits.clear();
        self.xattrs.clear();
        self.omap = omap::StagedOmap::default();
        self.info.has_omap = source.info.has_omap;
        self.info.omap_keys = source.info.omap_keys;
        self.info.omap_bytes = source.info.omap_bytes;
        self.snapset_changed = true;
        self.mutations = vec![
            Mutation::Clone { from: clone.clone(), to: self.id.clone() },
            Mutation::RmXattr { id: self.id.clone(), name: SNAPS_ATTR.to_string() },
        ];
        self.base = clone;
        Ok(())
    }

    // --- xattrs ---

    pub(super) fn xattr(&self, name: &[u8]) -> Result<Option<Bytes>, Stop> {
        let stored = stored_name(name);
        match self.xattrs.get(&stored) {
            Some(staged) => Ok(staged.clone()),
            None if self.base_visible => Ok(self.store.xattr(&self.base, &stored)?),
            None => Ok(None),
        }
    }

    /// User xattrs by name.
    pub(super) fn xattrs(&self) -> Result<BTreeMap<Bytes, Bytes>, Stop> {
        let stored = self.stored_xattrs()?;
        Ok(stored.into_iter().filter_map(|(name, value)| Some((user_name(&name)?, value))).collect())
    }

    /// All xattrs as the store names them.
    pub(super) fn stored_xattrs(&self) -> Result<BTreeMap<String, Bytes>, Stop> {
        let mut all = if self.base_visible { self.store.xattrs(&self.base)? } else { BTreeMap::new() };
        for (name, value) in &self.xattrs {
            match value {
                Some(value) => drop(all.insert(name.clone(), value.clone())),
                None => drop(all.remove(name)),
            }
        }
        Ok(all)
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: Bytes) {
        self.create();
        let stored = stored_name(name);
        self.xattrs.insert(stored.clone(), Some(value.clone()));
        let attrs = [(stored, value)].into();
        self.mutations.push(Mutation::SetXattrs { id: self.id.clone(), attrs });
    }

    pub(super) fn rm_xattr(&mut self, name: &[u8]) {
        self.touched = true;
        let stored = stored_name(name);
        self.xattrs.insert(stored.clone(), None);
        self.mutations.push(Mutation::RmXattr { id: self.id.clone(), name: stored });
    }
}
