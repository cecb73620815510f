//! What kind of message it is, and what is refused before any operation runs.
//!
//! Source: Ceph `src/osd/osd_op_util.cc` (`OpInfo::set_from_op`),
//! `src/osd/PrimaryLogPG.cc` (`do_op`).

use super::{Context, limits};
use base::Errno;
use wire::messages::MOsdOp;
use wire::messages::osd_op::{CallArgs, OpCode, WatchArgs};
use wire::types::SnapId;

/// Decided by the operations' codes alone. Message flags do not count: clients send
/// methods that write in messages flagged as reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Answered at once; needs the object to exist.
    Read,
    /// Takes a version, even if it fails.
    Write,
    /// Addressed to the PG: see [`super::execute_pg_op`].
    PgOp,
}

pub fn classify(request: &MOsdOp) -> Class {
    if request.ops.iter().any(|op| op.code.is_pg_op()) {
        return Class::PgOp;
    }
    const WATCH_PING: u8 = 7;
    // CALL is a read until object classes say what their methods do.
    let writes = request.ops.iter().any(|op| {
        op.code.is_write() && !(op.code == OpCode::WATCH && WatchArgs::of(&op.args).op == WATCH_PING)
    });
    if writes { Class::Write } else { Class::Read }
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) unsupported: Vec<OpCode>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal { errno, unsupported: Vec::new() }
    }
}

pub(super) fn check(context: &Context<'_>) -> Result<Class, Refusal> {
    let request = context.request;
    let class = classify(request);
    if request.ops.is_empty() || class == Class::PgOp {
        return Err(Errno::EINVAL.into());
    }
    check_names(request)?;
    check_calls(request)?;
    check_snapshots(request, class)?;
    let data_len: u64 = request.ops.iter().map(|op| op.indata.len() as u64).sum();
    if class == Class::Write && data_len > limits::WRITE_LEN_MAX {
        return Err(Errno::EMSGSIZE.into());
    }
    Ok(class)
}

/// `osd_class_load_list`: the classes that Ceph 16.2 would load.
const CLASSES: [&[u8]; 14] = [
    b"cephfs",
    b"hello",
    b"journal",
    b"lock",
    b"log",
    b"numops",
    b"otp",
    b"rbd",
    b"refcount",
    b"rgw",
    b"timeindex",
    b"user",
    b"version",
    b"cas",
];

/// The seam for object classes: a class host will resolve each call here and say
/// whether it writes. Ceph, too, refuses an unknown class before anything runs, and
/// whatever the operation's flags.
fn check_calls(request: &MOsdOp) -> Result<(), Refusal> {
    let Some(call) = request.ops.iter().find(|op| op.code == OpCode::CALL) else {
        return Ok(());
    };
    let class_len = usize::from(CallArgs::of(&call.args).class_len);
    match call.indata.get(..class_len) {
        None => Err(Errno::EINVAL.into()),
        Some(class) if !CLASSES.contains(&class) => Err(Errno::EPERM.into()),
        Some(_) => Err(Refusal { errno: Errno::EOPNOTSUPP, unsupported: vec![OpCode::CALL] }),
    }
}

fn check_names(request: &MOsdOp) -> Result<(), Refusal> {
    let locator = &request.locator;
    let too_long = request.object.len() > limits::NAME_LEN_MAX
        || locator.key.len() > limits::NAME_LEN_MAX
        || locator.nspace.len() > limits::NAMESPACE_LEN_MAX;
    if too_long {
        return Err(Errno::ENAMETOOLONG.into());
    }
    if request.object.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    Ok(())
}

/// Snapshots are not implemented: a write that might need a clone made, or a read of
/// one, is refused rather than done without. A context with a number but no snapshots
/// needs no clone; CephFS sends such ones always.
fn check_snapshots(request: &MOsdOp, class: Class) -> Result<(), Refusal> {
    let lists_snaps = |op: &wire::messages::OsdOp| op.code == OpCode::LIST_SNAPS;
    match (class, request.snap) {
        (Class::Write, SnapId::HEAD) if request.snaps.is_empty() => Ok(()),
        (Class::Write, SnapId::HEAD) if !is_valid_context(request) => Err(Errno::EINVAL.into()),
        (Class::Write, SnapId::HEAD) => Err(Errno::EOPNOTSUPP.into()),
        (Class::Write, _) => Err(Errno::EINVAL.into()),
        (_, SnapId::SNAPDIR) if request.ops.iter().all(lists_snaps) => Ok(()),
        (_, SnapId::HEAD) if !request.ops.iter().any(lists_snaps) => Ok(()),
        (_, SnapId::SNAPDIR | SnapId::HEAD) => Err(Errno::EINVAL.into()),
        (_, _) => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// `SnapContext::is_valid`: descending, none above the sequence number, none zero.
fn is_valid_context(request: &MOsdOp) -> bool {
    let bounded = request.snaps.first().is_none_or(|newest| *newest <= request.snap_seq);
    let descending = request.snaps.windows(2).all(|pair| pair[0] > pair[1]);
    bounded && descending && request.snaps.last().is_none_or(|oldest| *oldest > SnapId(0))
}
