//! COPY_FROM and COPY_FROM2: the object becomes a copy of another one.

use super::{Done, OpEnd, StagedObject, Stop, Surroundings, input};
use crate::exec::{CopiedObject, CopySource, Need, limits, object_info};
use base::Errno;
use wire::maps::placement_hash;
use wire::messages::OsdOp;
use wire::messages::osd_op::{CopyFromArgs, OpCode};
use wire::types::{HObject, ObjectLocator, SnapId};

/// `CEPH_OSD_COPY_FROM_FLAG_TRUNCATE_SEQ`: the input ends in the truncation to record.
const FLAG_TRUNCATE_SEQ: u8 = 0x20;
/// `CEPH_OSD_COPY_FROM_FLAGS`: all that COPY_FROM2 knows.
const FLAGS_KNOWN: u8 = 0x3f;

pub(super) fn copy_from(object: &mut StagedObject<'_>, op: &OsdOp, around: &Surroundings<'_>) -> OpEnd {
    let args = CopyFromArgs::of(&op.args);
    let second = op.code == OpCode::COPY_FROM2;
    if second && args.flags & !FLAGS_KNOWN != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut d = input(op);
    let name = d.string()?;
    let locator: ObjectLocator = d.get()?;
    let truncation =
        if second && args.flags & FLAG_TRUNCATE_SEQ != 0 { Some((d.u32()?, d.u64()?)) } else { None };
    let source = CopySource { object: source_object(name, locator, args.snap), version: args.src_version };
    // Of its own snapshots Ceph's waits for itself: this request holds the object.
    if (HObject { snap: SnapId::HEAD, ..source.object.clone() }) == around.context.object {
        return Err(Errno::EINVAL.into());
    }
    let copied = match around.fetched.copies.iter().find(|(fetched, _)| *fetched == source) {
        None => return Err(Stop::Need(Need::Copy(source))),
        // As Ceph: the message ends here, whatever its flags say.
        Some((_, Err(errno))) => return Err(Stop::Abort(*errno)),
        Some((_, Ok(copied))) => copied,
    };
    if copied.data.len() as u64 > limits::OBJECT_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    replace(object, copied)?;
    let (seq, size) = truncation.unwrap_or((copied.truncate_seq, copied.truncate_size));
    object.info.truncate_seq = seq;
    object.info.truncate_size = size;
    Ok(Done::OK)
}

/// The source's user version and times come along.
fn replace(object: &mut StagedObject<'_>, copied: &CopiedObject) -> Result<(), Stop> {
    if object.exists {
        // The content is replaced; who watches the object goes on watching it.
        let watchers = std::mem::take(&mut object.info.watchers);
        object.remove();
        object.info.watchers = watchers;
    }
    object.write(0, copied.data.clone());
    for (name, value) in &copied.xattrs {
        let name =
            object_info::user_name(&format!("{}{name}", object_info::USER_PREFIX)).ok_or(Errno::EIO)?;
        object.set_xattr(&name, value.clone());
    }
    if copied.has_omap {
        object.set_omap_header(copied.omap_header.clone());
        object.set_omap(copied.omap.clone())?;
    }
    object.info.user_version = copied.user_version;
    object.info.mtime = copied.mtime;
    object.copied = true;
    Ok(())
}

fn source_object(name: String, locator: ObjectLocator, snap: u64) -> HObject {
    let hash = placement_hash(&locator, &name);
    HObject {
        pool: locator.pool,
        hash,
        nspace: locator.nspace,
        // The key is recorded only where it says something.
        key: if locator.key == name { Default::default() } else { locator.key },
        name: name.into(),
        snap: SnapId(snap),
        is_max: false,
    }
}
