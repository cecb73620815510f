//! Once a cluster is clean and stopped, every OSD of a PG's acting set holds
//! the same objects: data, xattrs, omap header and omap.

use crate::disk::SimDisk;
use crate::offline::OfflineStore;
use base::crc32c;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use store::{CollId, ObjectId, ObjectStore, OmapLimit, Options, StoreError};
use wire::types::{HObject, OsdId, PgId, SnapId};

/// Everything about one object that replicas must agree on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectContent {
    size: u64,
    data_crc: u32,
    xattrs: BTreeMap<String, Bytes>,
    omap_header: Bytes,
    omap: Vec<(Bytes, Bytes)>,
    /// The device lost it, and nobody has read it since: says nothing.
    is_damaged: bool,
}

pub type PgContent = BTreeMap<HObject, ObjectContent>;

/// The PGs of one stopped OSD, from its device; and how many checkpoints its store has taken.
/// Data that cannot be read is an error unless the run damaged this very device.
pub fn content(
    disk: &mut SimDisk,
    options: Options,
    may_be_damaged: bool,
) -> Result<(BTreeMap<PgId, PgContent>, u64), String> {
    let mut store = OfflineStore::open(disk, options)?;
    let mut pgs = BTreeMap::new();
    for coll in store.engine.collections() {
        let CollId::Pg(pg) = coll else { continue };
        let objects = store.engine.list(coll, &HObject::default(), usize::MAX).map_err(|e| e.to_string())?;
        let mut content = PgContent::new();
        for object in objects {
            let id = ObjectId { coll, object: object.clone() };
            let found = match object_content(&mut store, &id) {
                Err(StoreError::Checksum { .. }) if may_be_damaged => {
                    Ok(ObjectContent { is_damaged: true, ..ObjectContent::default() })
                }
                found => found,
            };
            let found = found.map_err(|e| format!("{pg} {object:?}: {e}"))?;
            content.insert(object, found);
        }
        pgs.insert(pg, content);
    }
    let checkpoints = store.engine.info().map_or(0, |info| info.checkpoint_generation);
    Ok((pgs, checkpoints))
}

fn object_content(store: &mut OfflineStore<'_>, id: &ObjectId) -> Result<ObjectContent, StoreError> {
    let data = store.read_all(id)?;
    Ok(ObjectContent {
        size: data.len() as u64,
        data_crc: crc32c(&data),
        xattrs: store.engine.xattrs(id)?,
        omap_header: store.engine.omap_header(id)?,
        omap: store.engine.omap_list(id, None, b"", OmapLimit::NONE)?.entries,
        is_damaged: false,
    })
}

/// Compares one PG's copies.
pub fn compare(pg: PgId, copies: &[(OsdId, Option<&PgContent>)]) -> Vec<String> {
    let mut violations = Vec::new();
    let empty = PgContent::new();
    let copies: Vec<(OsdId, &PgContent)> =
        copies.iter().map(|(osd, content)| (*osd, content.unwrap_or(&empty))).collect();
    let names: BTreeSet<&HObject> = copies.iter().flat_map(|(_, content)| content.keys()).collect();
    for name in names {
        let mut versions: Vec<(Option<&ObjectContent>, Vec<OsdId>)> = Vec::new();
        for (osd, content) in &copies {
            let object = content.get(name);
            if object.is_some_and(|object| object.is_damaged) {
                continue;
            }
            match versions.iter_mut().find(|(known, _)| *known == object) {
                Some((_, osds)) => osds.push(*osd),
                None => versions.push((object, vec![*osd])),
            }
        }
        if versions.len() > 1 {
            let told: Vec<String> =
                versions.iter().map(|(object, osds)| format!("osd {osds:?}: {}", brief(*object))).collect();
            violations.push(format!("{pg}: replicas of {} differ: {}", name.name, told.join("; ")));
        }
    }
    violations
}

/// A clean PG has no clone of which every snapshot has been removed.
pub fn leftover_clones(pg: PgId, copies: &[(OsdId, Option<&PgContent>)], alive: &[SnapId]) -> Vec<String> {
    let mut violations = Vec::new();
    for (osd, content) in copies {
        for (object, content) in content.iter().flat_map(|content| content.iter()) {
            if object.snap == SnapId::HEAD || content.is_damaged {
                continue;
            }
            let record = content.xattrs.get(osd::exec::SNAPS_ATTR).cloned().unwrap_or_default();
            let snaps = osd::exec::decode_snaps(record).unwrap_or_default();
            if !snaps.iter().any(|snap| alive.contains(snap)) {
                violations.push(format!("{pg}: {osd} keeps {object}, of snapshots {snaps:?} that are gone"));
            }
        }
    }
    violations
}

fn brief(object: Option<&ObjectContent>) -> String {
    match object {
        None => "none".into(),
        Some(o) => {
            let xattrs: Vec<String> =
                o.xattrs.iter().map(|(k, v)| format!("{k}={:08x}", crc32c(v))).collect();
            format!(
                "{} bytes (crc {:08x}), xattrs {}, {} omap keys",
                o.size,
                o.data_crc,
                xattrs.join(" "),
                o.omap.len()
            )
        }
    }
}
