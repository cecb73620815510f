//! What kind of message it is, and what is refused before any operation runs.
//!
//! Source: Ceph `src/osd/osd_op_util.cc` (`OpInfo::set_from_op`),
//! `src/osd/PrimaryLogPG.cc` (`do_op`).

use super::{Context, limits};
use base::Errno;
use bytes::Bytes;
use cls::Found;
use std::fmt;
use wire::messages::osd_op::{CallArgs, OpCode, WatchArgs};
use wire::messages::{MOsdOp, OsdOp};
use wire::types::SnapId;

/// Decided by the operations' codes, and the flags of the methods they call. Message
/// flags do not count: clients send methods that write in messages flagged as reads.
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
    if request.ops.iter().any(writes) { Class::Write } else { Class::Read }
}

pub(super) fn writes(op: &OsdOp) -> bool {
    const WATCH_PING: u8 = 7;
    match op.code {
        OpCode::WATCH => WatchArgs::of(&op.args).op != WATCH_PING,
        OpCode::CALL => {
            call_of(op).is_some_and(|call| matches!(call.found, Found::Method(m) if m.access.writes()))
        }
        code => code.is_write(),
    }
}

/// What a CALL's input holds.
pub(super) struct Call {
    pub(super) class: Bytes,
    pub(super) method: Bytes,
    pub(super) found: Found,
    /// `None` if it is shorter than the arguments say.
    pub(super) input: Option<Bytes>,
}

/// `None` if the input ends before the names do.
pub(super) fn call_of(op: &OsdOp) -> Option<Call> {
    let args = CallArgs::of(&op.args);
    let mut rest = op.indata.clone();
    if rest.len() < usize::from(args.class_len) + usize::from(args.method_len) {
        return None;
    }
    let class = rest.split_to(usize::from(args.class_len));
    let method = rest.split_to(usize::from(args.method_len));
    let input = (args.indata_len as usize <= rest.len()).then(|| rest.slice(..args.indata_len as usize));
    let found = cls::find(&class, &method);
    Some(Call { class, method, found, input })
}

/// Something that was asked for and is not implemented: to count and to log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unsupported {
    Operation(OpCode),
    /// As a client spells the names; at most 255 bytes each.
    Method {
        class: Bytes,
        method: Bytes,
    },
}

impl Unsupported {
    pub fn code(&self) -> OpCode {
        match self {
            Unsupported::Operation(code) => *code,
            Unsupported::Method { .. } => OpCode::CALL,
        }
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Operation(code) => code.fmt(f),
            Unsupported::Method { class, method } => {
                write!(f, "CALL {}.{}", class.escape_ascii(), method.escape_ascii())
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) unsupported: Vec<Unsupported>,
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal { errno, unsupported: Vec::new() }
    }
}

pub(super) fn check(context: &Context<'_>) -> Result<Class, Refusal> {
    let request = context.request;
    check_calls(request)?;
    let class = classify(request);
    if request.ops.is_empty() || class == Class::PgOp {
        return Err(Errno::EINVAL.into());
    }
    check_names(request)?;
    check_snapshots(request, class)?;
    let data_len: u64 = request.ops.iter().map(|op| op.indata.len() as u64).sum();
    if class == Class::Write && data_len > limits::WRITE_LEN_MAX {
        return Err(Errno::EMSGSIZE.into());
    }
    Ok(class)
}

/// Every class and method must be known before anything runs, whatever the
/// operation's flags.
fn check_calls(request: &MOsdOp) -> Result<(), Refusal> {
    for op in request.ops.iter().filter(|op| op.code == OpCode::CALL) {
        let Call { class, method, found, .. } = call_of(op).ok_or(Errno::EINVAL)?;
        match found {
            Found::Method(_) => {}
            Found::NoClass => return Err(Errno::EPERM.into()),
            Found::NoMethod | Found::NotImplemented => {
                let unsupported = vec![Unsupported::Method { class, method }];
                return Err(Refusal { errno: Errno::EOPNOTSUPP, unsupported });
            }
        }
    }
    Ok(())
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

/// Writes go to heads; the list of snapshots is asked of the snapdir, and nothing else is.
fn check_snapshots(request: &MOsdOp, class: Class) -> Result<(), Refusal> {
    let lists_snaps = |op: &wire::messages::OsdOp| op.code == OpCode::LIST_SNAPS;
    let fits = match (class, request.snap) {
        (Class::Write, snap) => snap == SnapId::HEAD,
        (_, SnapId::SNAPDIR) => request.ops.iter().all(lists_snaps),
        _ => !request.ops.iter().any(lists_snaps),
    };
    if fits { Ok(()) } else { Err(Errno::EINVAL.into()) }
}
