//! ROLLBACK: the head becomes what a snapshot shows.

use super::{Done, OpEnd, StagedObject, Stop, Surroundings};
use crate::exec::snapshots::{self, Shown};
use base::Errno;
use wire::messages::OsdOp;
use wire::messages::osd_op::SnapArgs;
use wire::types::SnapId;

/// An object that was not there is removed; one that has not changed since stays as it is.
pub(super) fn roll_back(object: &mut StagedObject<'_>, op: &OsdOp, around: &Surroundings<'_>) -> OpEnd {
    let snap = SnapId(SnapArgs::of(&op.args).snap);
    match snapshots::show(&around.context.clones, object, snap, true) {
        Ok(Shown::Clone(id)) => object.roll_back(id)?,
        Ok(Shown::Head) if object.before.exists => object.touched = true,
        Ok(Shown::Head) => remove(object)?,
        Err(Stop::Code(code)) if code == Errno::ENOENT.negative() => remove(object)?,
        Err(stop) => return Err(stop),
    }
    Ok(Done::OK)
}

fn remove(object: &mut StagedObject<'_>) -> Result<(), Stop> {
    if !object.before.info.watchers.is_empty() {
        return Err(Errno::EBUSY.into());
    }
    if object.exists {
        object.remove();
    }
    Ok(())
}
