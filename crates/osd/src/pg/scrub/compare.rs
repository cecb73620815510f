//! What the copies of a range of objects say against each other: pure.
//!
//! A copy whose checksums do not hold, or whose record cannot be read, bears witness of nothing
//! but that the object exists, and in which version. Of the others those are right that the log
//! names, else those that are more than any others that agree. Where nobody is, nothing is
//! guessed: what is known to be older is never put in the place of what cannot be read.
//!
//! That something was lost is proved by what is missing, unreadable, or older than the log has it.
//! Copies of one version that can be read and yet differ are none that a device has changed, for
//! the store's checksums hold: some software did, perhaps wherever it ran, and the number of
//! witnesses proves nothing. Only an operator lets it decide.
//!
//! Source: Ceph `src/osd/PGBackend.cc` (`be_select_auth_object`, `be_compare_scrubmaps`),
//! `src/osd/PrimaryLogPG.cc` (`scrub_snapshot_metadata`); the choice is ours.

use crate::exec::{self, SnapSet};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::codec::Result;
use wire::types::{EVersion, HObject, IntervalSet, OsdId, SnapId};
use wire::{Decode, Decoder, Encode, Encoder};

/// One copy of one object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copy {
    /// ZERO when there is no record of the object that can be read.
    pub version: EVersion,
    pub size: u64,
    pub omap_keys: u64,
    /// Digest of all xattrs, names and values.
    pub attrs: u32,
    /// A head's snapset, or the snapshots that a clone stands for, as recorded.
    pub snaps: Option<Bytes>,
    /// Data, or a deep scrub's omap, cannot be read.
    pub is_unreadable: bool,
    /// A clone that the index of snapshots does not have.
    pub is_unindexed: bool,
    /// Digests of content, of a deep scrub.
    pub data: u32,
    pub omap: u32,
}

impl Copy {
    /// May be right.
    fn is_intact(&self) -> bool {
        !self.is_unreadable && self.version != EVersion::ZERO
    }

    /// The first way in which this copy is not the other one.
    fn difference(&self, right: &Copy) -> Option<Fault> {
        let faults = [
            (self.version == EVersion::ZERO, Fault::NoRecord),
            (self.is_unreadable, Fault::Unreadable),
            (self.version != right.version, Fault::Version),
            (self.size != right.size, Fault::Size),
            (self.attrs != right.attrs || self.snaps != right.snaps, Fault::Attrs),
            (self.omap_keys != right.omap_keys, Fault::OmapKeys),
            (self.data != right.data, Fault::Data),
            (self.omap != right.omap, Fault::Omap),
            (self.is_unindexed, Fault::Unindexed),
        ];
        faults.into_iter().find(|(is, _)| *is).map(|(_, fault)| fault)
    }

    fn is_same(&self, other: &Copy) -> bool {
        self.difference(other).is_none_or(|fault| fault == Fault::Unindexed)
    }
}

impl Encode for Copy {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.version);
        e.u64(self.size);
        e.u64(self.omap_keys);
        e.u32(self.attrs);
        e.put(&self.snaps);
        e.bool(self.is_unreadable);
        e.bool(self.is_unindexed);
        e.u32(self.data);
        e.u32(self.omap);
    }
}

impl Decode for Copy {
    const MIN_LEN: usize = 43;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Copy {
            version: d.get()?,
            size: d.u64()?,
            omap_keys: d.u64()?,
            attrs: d.u32()?,
            snaps: d.get()?,
            is_unreadable: d.bool()?,
            is_unindexed: d.bool()?,
            data: d.u32()?,
            omap: d.u32()?,
        })
    }
}

/// What is wrong with one copy, or with an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    Missing,
    /// Most others do not have it.
    Extra,
    NoRecord,
    Unreadable,
    Version,
    Size,
    Attrs,
    OmapKeys,
    Data,
    Omap,
    Unindexed,
    /// All copies alike: of clones without a head,
    Headless,
    /// a clone that its head does not list,
    UnexpectedClone,
    /// one that is listed and not there,
    LostClone,
    /// and one that is not as it is listed.
    OtherClone,
    BadSnapSet,
}

impl Fault {
    /// Only a deep scrub sees it.
    pub fn is_deep(self) -> bool {
        matches!(self, Fault::Unreadable | Fault::Data | Fault::Omap)
    }

    /// Shows by itself that it is this copy that is wrong.
    fn is_evident(self) -> bool {
        !matches!(self, Fault::Size | Fault::Attrs | Fault::OmapKeys | Fault::Data | Fault::Omap)
    }
}

/// In Ceph's words where it has some.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Missing => "missing",
            Fault::Extra => "unexpected object",
            Fault::NoRecord => "object info corrupted or missing",
            Fault::Unreadable => "candidate had a read error",
            Fault::Version => "object info inconsistent: another version",
            Fault::Size => "size mismatch",
            Fault::Attrs => "attr value mismatch",
            Fault::OmapKeys => "omap key count mismatch",
            Fault::Data => "data_digest mismatch",
            Fault::Omap => "omap_digest mismatch",
            Fault::Unindexed => "clone is not in the snapshot index",
            Fault::Headless => "no head",
            Fault::UnexpectedClone => "is an unexpected clone",
            Fault::LostClone => "clone missing",
            Fault::OtherClone => "clone is not as its head has it",
            Fault::BadSnapSet => "snapset corrupted or missing",
        })
    }
}

/// An object with something wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub object: HObject,
    /// Copies that are not as they should be.
    pub copies: Vec<(OsdId, Fault)>,
    /// What is wrong with the object itself, wherever it is: nothing mends that.
    pub itself: Option<Fault>,
    /// A copy that is certainly right, and the version that it has.
    pub right: Option<(OsdId, EVersion)>,
}

impl Finding {
    pub fn faults(&self) -> impl Iterator<Item = Fault> {
        self.copies.iter().map(|(_, fault)| *fault).chain(self.itself)
    }

    /// Somebody has what others lack.
    pub fn is_repairable(&self) -> bool {
        self.right.is_some() && !self.copies.is_empty()
    }
}

/// What the log last says of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Logged {
    pub version: EVersion,
    pub deleted: bool,
}

pub type Map = BTreeMap<HObject, Copy>;

pub struct Comparison<'a> {
    pub maps: &'a BTreeMap<OsdId, Map>,
    /// Asked for objects about which copies do not agree.
    pub logged: &'a dyn Fn(&HObject) -> Option<Logged>,
    /// An operator wants it: the majority is right, and so is what few have and others merely lack.
    pub insists: bool,
}

impl Comparison<'_> {
    /// Ascending by object.
    pub fn findings(&self) -> Vec<Finding> {
        let objects: BTreeSet<&HObject> = self.maps.values().flat_map(BTreeMap::keys).collect();
        let mut findings = BTreeMap::new();
        // Each object as it should be, or as somebody has it.
        let mut shown: BTreeMap<&HObject, &Copy> = BTreeMap::new();
        for object in objects {
            let copies: Vec<(OsdId, Option<&Copy>)> =
                self.maps.iter().map(|(osd, map)| (*osd, map.get(object))).collect();
            let (right, wrong) = self.judge(object, &copies);
            let right_copy = right.and_then(|osd| self.maps.get(&osd)?.get(object));
            let any = copies.iter().filter_map(|(_, copy)| *copy).max_by_key(|copy| copy.version);
            shown.extend(right_copy.or(any).map(|copy| (object, copy)));
            if !wrong.is_empty() {
                // Nothing but a fault of software makes a copy newer than the log.
                let newest = copies.iter().filter_map(|(_, copy)| Some((*copy)?.version)).max();
                let is_newest = right_copy.is_some_and(|copy| Some(copy.version) >= newest);
                let is_evident = is_newest && wrong.iter().all(|(_, fault)| fault.is_evident());
                let is_proved = self.insists || is_evident;
                let right = right.filter(|_| is_proved).zip(right_copy.map(|copy| copy.version));
                let finding = Finding { object: object.clone(), copies: wrong, itself: None, right };
                findings.insert(object.clone(), finding);
            }
        }
        for (object, fault) in structural_faults(&shown) {
            let bare = || Finding { object: object.clone(), copies: Vec::new(), itself: None, right: None };
            findings.entry(object.clone()).or_insert_with(bare).itself = Some(fault);
        }
        findings.into_values().collect()
    }

    /// Who is most likely right, and who is not, and why.
    fn judge(
        &self,
        object: &HObject,
        copies: &[(OsdId, Option<&Copy>)],
    ) -> (Option<OsdId>, Vec<(OsdId, Fault)>) {
        let [(first, first_copy), others @ ..] = copies else { return (None, Vec::new()) };
        // The common case.
        if let Some(copy) = first_copy.filter(|copy| copy.is_intact() && !copy.is_unindexed)
            && others.iter().all(|(_, other)| *other == Some(copy))
        {
            return (Some(*first), Vec::new());
        }
        let logged = (self.logged)(object);
        let absent = copies.iter().filter(|(_, copy)| copy.is_none()).count();
        let present = || copies.iter().filter_map(|(osd, copy)| Some((*osd, (*copy)?)));
        let is_ghost = match logged {
            Some(logged) => logged.deleted,
            None => absent > present().count() && !self.insists,
        };
        if is_ghost {
            return (None, present().map(|(osd, _)| (osd, Fault::Extra)).collect());
        }
        let right = self.choose(logged, present().collect());
        let wrong = copies.iter().filter_map(|(osd, copy)| {
            let fault = match (copy, right) {
                (None, _) => Some(Fault::Missing),
                (Some(copy), Some((_, right))) => copy.difference(right),
                // Nobody to be compared with but the first one there is.
                (Some(copy), None) => present().find_map(|(_, other)| copy.difference(other)),
            };
            fault.map(|fault| (*osd, fault))
        });
        (right.map(|(osd, _)| osd), wrong.collect())
    }

    /// One of the copies that are right.
    fn choose<'c>(
        &self,
        logged: Option<Logged>,
        present: Vec<(OsdId, &'c Copy)>,
    ) -> Option<(OsdId, &'c Copy)> {
        let known =
            || present.iter().map(|(_, copy)| copy.version).filter(|version| *version != EVersion::ZERO);
        let newest = logged.map(|logged| logged.version).or(known().max())?;
        let is_lost = present.iter().any(|(_, copy)| !copy.is_intact() && copy.version == newest);
        if logged.is_none() && !self.insists && known().any(|version| version != newest) {
            // Which of two writes happened, the number of their witnesses does not tell.
            return None;
        }
        let may_be_right = |copy: &Copy| copy.version == newest || (logged.is_none() && !is_lost);
        let intact = present.into_iter().filter(|(_, copy)| copy.is_intact() && may_be_right(copy));
        most(intact.collect())
    }
}

/// One of those that are more than any others that agree.
fn most(copies: Vec<(OsdId, &Copy)>) -> Option<(OsdId, &Copy)> {
    let votes = |copy: &Copy| copies.iter().filter(|(_, other)| other.is_same(copy)).count();
    let best = copies.iter().max_by_key(|(_, copy)| votes(copy))?;
    let rivals = |copy: &Copy| votes(copy) == votes(best.1) && !copy.is_same(best.1);
    (!copies.iter().any(|(_, copy)| rivals(copy))).then_some(*best)
}

/// What heads and clones say against each other.
fn structural_faults(objects: &BTreeMap<&HObject, &Copy>) -> Vec<(HObject, Fault)> {
    let mut faults = Vec::new();
    let mut clones: Vec<(&HObject, &Copy)> = Vec::new();
    for (object, copy) in objects {
        // Clones come before their head.
        if let Some((last, _)) = clones.last()
            && last.head() != object.head()
        {
            faults.extend(clones.drain(..).map(|(clone, _)| (clone.clone(), Fault::Headless)));
        }
        match object.is_clone() {
            true => clones.push((object, copy)),
            false => check_clones(object, copy, &std::mem::take(&mut clones), &mut faults),
        }
    }
    faults.extend(clones.into_iter().map(|(clone, _)| (clone.clone(), Fault::Headless)));
    faults
}

fn check_clones(
    head: &HObject,
    copy: &Copy,
    clones: &[(&HObject, &Copy)],
    faults: &mut Vec<(HObject, Fault)>,
) {
    let record = copy.snaps.clone().map(SnapSet::from_record);
    let Ok(snapset) = record.unwrap_or_else(|| Ok(SnapSet::default())) else {
        return faults.push((head.clone(), Fault::BadSnapSet));
    };
    let there: BTreeMap<SnapId, &Copy> = clones.iter().map(|(clone, copy)| (clone.snap, *copy)).collect();
    for (clone, _) in clones.iter().filter(|(o, _)| snapset.clones.iter().all(|c| c.id != o.snap)) {
        faults.push(((*clone).clone(), Fault::UnexpectedClone));
    }
    let newer = snapset.clones.iter().skip(1).map(|clone| clone.size).chain([copy.size]);
    for (clone, newer_size) in snapset.clones.iter().zip(newer) {
        let object = || HObject { snap: clone.id, ..head.clone() };
        let Some(copy) = there.get(&clone.id) else {
            faults.push((object(), Fault::LostClone));
            continue;
        };
        let snaps = copy.snaps.clone().map(exec::decode_snaps);
        let is_listed = snaps.is_some_and(|snaps| snaps.as_ref() == Ok(&clone.snaps));
        let end = end_of(&clone.overlap);
        if !is_listed || clone.size != copy.size || end > clone.size.min(newer_size) {
            faults.push((object(), Fault::OtherClone));
        }
    }
}

fn end_of(set: &IntervalSet) -> u64 {
    set.iter().map(|(start, len)| start.saturating_add(len)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
