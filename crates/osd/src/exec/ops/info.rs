//! Operations that answer from the object's record: STAT, ASSERT_VER, LIST_SNAPS.

use super::{Done, OpEnd, StagedObject};
use base::Errno;
use std::cmp::Ordering;
use wire::codec::Encoder;
use wire::messages::OsdOp;
use wire::messages::osd_op::AssertVersionArgs;
use wire::types::SnapId;

pub(super) fn stat(object: &StagedObject<'_>) -> OpEnd {
    if !object.exists {
        return Err(Errno::ENOENT.into());
    }
    let mut e = Encoder::plain();
    e.u64(object.size);
    e.put(&object.info.mtime);
    Ok(Done::keep_with(e.finish()))
}

pub(super) fn assert_version(object: &StagedObject<'_>, op: &OsdOp) -> OpEnd {
    let wanted = AssertVersionArgs::of(&op.args).version;
    if wanted == 0 {
        return Err(Errno::EINVAL.into());
    }
    match wanted.cmp(&object.info.user_version) {
        Ordering::Less => Err(Errno::ERANGE.into()),
        Ordering::Equal => Ok(Done::KEEP),
        Ordering::Greater => Err(Errno::EOVERFLOW.into()),
    }
}

/// Clones ascending, their snapshots ascending, then the head unless it is deleted.
pub(super) fn list_snaps(object: &StagedObject<'_>) -> OpEnd {
    let clones = &object.before.snapset.clones;
    let mut e = Encoder::plain();
    e.versioned(2, 1, |e| {
        e.count(clones.len() + usize::from(object.exists));
        for clone in clones {
            e.versioned(1, 1, |e| {
                e.put(&clone.id);
                e.put(&clone.snaps.iter().rev().copied().collect::<Vec<SnapId>>());
                e.put(&clone.overlap);
                e.u64(clone.size);
            });
        }
        if object.exists {
            e.versioned(1, 1, |e| {
                e.put(&SnapId::HEAD);
                e.count(0); // snapshots
                e.count(0); // overlap
                e.u64(object.size);
            });
        }
        e.u64(object.info.snap_seq);
    });
    Ok(Done::ok_with(e.finish()))
}
