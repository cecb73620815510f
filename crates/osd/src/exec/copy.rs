//! The source side of COPY_FROM: a whole object, or what a snapshot shows of it, to be
//! handed to another PG.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_copy_get`, `_copy_some`).

use super::object_info::{USER_PREFIX, user_name};
use super::staged::{StagedObject, Stop};
use super::{Clones, CopiedObject, CopySource, Fetched, Need, seen_at};
use base::{Errno, WallTime};
use bytes::Bytes;
use std::cmp::Ordering;
use store::{CollId, ObjectId, ObjectStore, OmapLimit};
use wire::codec::{Decode, Decoder, Encode, Encoder, Result as DecodeResult};
use wire::types::{HObject, SnapId};

/// Keys taken from the store in one call.
const OMAP_PAGE: OmapLimit = OmapLimit { entries: 1024, bytes: 4 << 20 };

/// Everything of one object; call again with what it needs.
///
/// Errors: ENOENT, also when the snapshot does not show the object; EINVAL for the
/// snapdir; ERANGE when the object is newer than the version wanted, EOVERFLOW when it is older; EIO.
pub fn read_whole(
    store: &dyn ObjectStore,
    coll: CollId,
    source: &CopySource,
    clones: &Clones<'_>,
    fetched: &Fetched,
) -> Result<Result<CopiedObject, Errno>, Need> {
    let snap = source.object.snap;
    if snap == SnapId::SNAPDIR {
        return Ok(Err(Errno::EINVAL));
    }
    let head = ObjectId { coll, object: HObject { snap: SnapId::HEAD, ..source.object.clone() } };
    let seen = StagedObject::load(store, fetched, head)
        .and_then(|head| Ok(seen_at(snap, clones, &head, store, fetched)?.unwrap_or(head)));
    let mut object = match seen {
        Ok(object) => object,
        Err(stop) => return failed(stop),
    };
    match copy(&mut object, source.version) {
        Ok(copied) => Ok(Ok(copied)),
        Err(Stop::Data) => Err(Need::Data(object.needs)),
        Err(stop) => failed(stop),
    }
}

fn failed(stop: Stop) -> Result<Result<CopiedObject, Errno>, Need> {
    match stop {
        Stop::Need(need) => Err(need),
        Stop::Data => unreachable!("only reading data ends so"),
        Stop::Abort(errno) => Ok(Err(errno)),
        Stop::Code(code) => Ok(Err(Errno(-code))),
    }
}

/// `version` is the user version that it must have, 0 for any.
fn copy(object: &mut StagedObject<'_>, version: u64) -> Result<CopiedObject, Stop> {
    match version.cmp(&object.info.user_version) {
        _ if version == 0 => {}
        Ordering::Less => return Err(Errno::ERANGE.into()),
        Ordering::Equal => {}
        Ordering::Greater => return Err(Errno::EOVERFLOW.into()),
    }
    let mut copied = CopiedObject {
        user_version: object.info.user_version,
        mtime: object.info.mtime,
        data: object.read(0, object.size)?,
        has_omap: object.info.has_omap,
        truncate_seq: object.info.truncate_seq,
        truncate_size: object.info.truncate_size,
        ..CopiedObject::default()
    };
    for (stored, value) in object.stored_xattrs()? {
        if let Some(name) = stored.strip_prefix(USER_PREFIX) {
            copied.xattrs.insert(name.to_string(), value);
        }
    }
    if copied.has_omap {
        copied.omap_header = object.omap_header()?;
        let mut after: Option<Bytes> = None;
        loop {
            let page = object.omap_list(after.as_deref(), &[], OMAP_PAGE)?;
            after = page.last_key().cloned();
            copied.omap.extend(page.entries);
            if !page.more {
                break;
            }
        }
    }
    Ok(copied)
}

impl CopiedObject {
    /// Users' xattrs under the names that users know them by.
    pub fn user_xattrs(&self) -> impl Iterator<Item = (Bytes, &Bytes)> {
        self.xattrs.iter().filter_map(|(name, value)| {
            let stored = format!("{USER_PREFIX}{name}");
            Some((user_name(&stored)?, value))
        })
    }
}

/// Ours: travels between OSDs.
impl Encode for CopiedObject {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(1, 1, |e| {
            e.u64(self.user_version);
            e.put(&self.mtime);
            e.put(&self.data);
            e.put(&self.xattrs);
            e.bool(self.has_omap);
            e.put(&self.omap_header);
            e.put(&self.omap);
            e.u32(self.truncate_seq);
            e.u64(self.truncate_size);
        });
    }
}

impl Decode for CopiedObject {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        d.versioned("copied object", 1, |d, _| {
            Ok(CopiedObject {
                user_version: d.u64()?,
                mtime: d.get::<WallTime>()?,
                data: d.get()?,
                xattrs: d.get()?,
                has_omap: d.bool()?,
                omap_header: d.get()?,
                omap: d.get()?,
                truncate_seq: d.u32()?,
                truncate_size: d.u64()?,
            })
        })
    }
}
