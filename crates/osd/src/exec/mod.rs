//! Executes the operations of one client request against one object.
//!
//! Pure: reads the store's metadata and what was fetched beforehand, and
//! returns what to reply and what to change. It never waits. When it lacks
//! something (object data, another object to copy), it returns [`Need`]; the
//! caller fetches it and calls again from the start. Nothing is staged across
//! calls, so a request is atomic by construction.
//!
//! One short cut: a request that has no effects and lacks only what its READs
//! answer is as good as done. Its outcome waits, with holes, beside what is being
//! fetched ([`Fetched::answer`]); a second run would compute the same, for the
//! caller holds the object. Data that does not come whole gets that second run.
//!
//! The caller ([`crate::pg`]) has already checked that the PG is ours and
//! active, that the request is no duplicate, and that no other write to the
//! object is in flight where that matters (reads wait for writes to commit;
//! writes see the store's state including queued transactions).

//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`execute_ctx`, `prepare_transaction`,
//! `do_osd_ops`, `finish_ctx`).

mod classify;
mod copy;
pub mod limits;
mod object_info;
mod on_write;
mod ops;
mod pg_list;
mod snapshots;
mod staged;
#[cfg(test)]
mod tests;
pub mod watch;

pub use classify::{Class, Unsupported, classify};
pub use copy::read_whole;
pub use object_info::{INFO_ATTR, InfoError, ObjectInfo};
pub use pg_list::{PgListContext, execute_pg_op, pg_end};
pub use snapshots::{
    CloneChange, CloneInfo, SNAPS_ATTR, SNAPSET_ATTR, SnapSet, Trimmed, decode_snaps, encode_snaps, trim,
};

use base::{Errno, WallTime};
use bytes::Bytes;
use ops::{Done, Surroundings};
use snapshots::{Shown, SnapContext};
use staged::{Before, StagedObject, Stop};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use store::{CollId, Mutation, ObjectId, ObjectStore, StoreError};
use watch::{WatchContext, WatchEffects, Watching};
use wire::maps::PgPool;
use wire::messages::osd_op::{OpCode, flags, op_flags};
use wire::messages::{MOsdOp, OpResult, OsdOp};
use wire::types::{EVersion, Epoch, HObject, IntervalSet, ReqId, SnapId};

/// The request and the state of the world it runs in.
pub struct Context<'a> {
    pub request: &'a MOsdOp,
    pub reqid: ReqId,
    pub pool: &'a PgPool,
    pub coll: CollId,
    /// The head object addressed.
    pub object: HObject,
    /// The version the change will have if there is one.
    pub at_version: EVersion,
    pub epoch: Epoch,
    pub now: WallTime,
    /// Who sent the request, as object classes record it.
    pub origin: cls::Origin,
    /// The newest user version in the PG.
    pub pg_user_version: u64,
    /// For what object classes draw at random.
    pub seed: u64,
    pub watch: WatchContext,
    /// A deliberate bug (`Sabotage::ignore_lock_holders`).
    pub ignore_lock_holders: bool,
    pub clones: Clones<'a>,
}

/// What of the PG decides which clones can be looked at.
pub struct Clones<'a> {
    /// Snapshots of the pool that are being removed.
    pub removed_snaps: Option<&'a IntervalSet>,
    /// A clone must be recovered before it is read, or (`true`) before a write builds on it.
    pub is_unready: &'a dyn Fn(&HObject, bool) -> bool,
}

impl Clones<'_> {
    fn is_removed(&self, snap: SnapId) -> bool {
        self.removed_snaps.is_some_and(|removed| removed.contains(snap.0))
    }

    /// A clone that the request needs besides its head.
    fn require(&self, object: &HObject, write: bool) -> Result<(), Stop> {
        match (self.is_unready)(object, write) {
            true => Err(Stop::Need(Need::Object(object.clone()))),
            false => Ok(()),
        }
    }
}

/// What execution lacks; fetch all of it and call again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Need {
    /// Object data ranges, for [`ObjectStore::read`].
    Data(Vec<DataRange>),
    /// The whole of another object, perhaps in another PG or pool.
    Copy(CopySource),
    /// An object that has to be recovered first: see [`Clones::is_unready`].
    Object(HObject),
    /// The store is loading metadata ([`StoreError::Pending`]).
    Metadata(StoreError),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataRange {
    pub id: ObjectId,
    pub offset: u64,
    pub len: u64,
}

/// An object named by a client's COPY_FROM.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopySource {
    /// Its snap is the snapshot to be copied, not the clone that shows it.
    pub object: HObject,
    /// The user version it must have; 0 for any.
    pub version: u64,
}

/// A whole object as COPY_FROM takes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CopiedObject {
    pub user_version: u64,
    pub mtime: WallTime,
    pub data: Bytes,
    /// Users' xattrs, named as the store spells them, without the prefix.
    pub xattrs: BTreeMap<String, Bytes>,
    /// Omap was set, if only to nothing.
    pub has_omap: bool,
    pub omap_header: Bytes,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub truncate_seq: u32,
    pub truncate_size: u64,
}

/// What earlier calls asked for, with the outcomes.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    pub data: Vec<(DataRange, Result<Bytes, StoreError>)>,
    pub copies: Vec<(CopySource, Result<CopiedObject, base::Errno>)>,
    /// The object's metadata as the first call found it. The caller holds the
    /// object between calls, so that it is still true; who lets go of the
    /// object throws all of this away.
    before: OnceCell<Before>,
    /// Where the latest call lacked nothing but the data of READs.
    partial: OnceCell<Partial>,
}

/// An outcome that lacks data.
#[derive(Clone, Debug)]
struct Partial {
    outcome: Outcome,
    holes: Vec<Hole>,
}

/// The operation of this index answers just this range.
#[derive(Clone, Debug)]
struct Hole {
    op: usize,
    range: DataRange,
}

impl Fetched {
    /// The request's end without another run, if all its data has come. Before another run,
    /// always ask: what an earlier one left is of no use afterwards.
    pub fn answer(&mut self) -> Option<Outcome> {
        let Partial { mut outcome, holes } = self.partial.take()?;
        for Hole { op, range } in holes {
            match self.data.iter().find(|(fetched, _)| *fetched == range)? {
                (_, Ok(data)) if data.len() as u64 == range.len => outcome.ops[op].outdata = data.clone(),
                _ => return None,
            }
        }
        Some(outcome)
    }
}

/// The end of a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The message's result: 0, the failing operation's negative errno, or the
    /// positive value that a read may end with.
    pub result: i32,
    /// One per operation, with return codes and output data as the reply carries them.
    pub ops: Vec<OpResult>,
    /// The object's user version: after the change, or as read.
    pub user_version: u64,
    pub effect: Effect,
    /// Operations that were met and are not implemented: to count and to log by name.
    pub unsupported: Vec<Unsupported>,
    /// If anybody watches the object, or wants to.
    pub watch: Option<Box<Watching>>,
}

#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing changed: answer at once, as a read.
    None,
    /// A write that failed or changed nothing: takes a version and a log entry,
    /// so that a resend gets the same answer, but no change.
    ErrorOnly,
    Change(Change),
}

/// The change to one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// For the store, object info included.
    pub mutations: Vec<Mutation>,
    /// The object is gone afterwards.
    pub deleted: bool,
    /// The version it gets: beyond [`Context::at_version`] when a clone was made first.
    pub version: EVersion,
    /// The object's version before, ZERO if it was missing.
    pub prior_version: EVersion,
    /// A clone that was made.
    pub clones: Vec<CloneChange>,
    /// Differences to the PG's statistics.
    pub delta: StatDelta,
}

/// Units: objects, bytes, keys; signed differences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatDelta {
    /// Clones and whiteouts count.
    pub objects: i64,
    pub clones: i64,
    pub bytes: i64,
    pub omap_keys: i64,
    pub omap_bytes: i64,
}

/// Runs the whole request. For operations on a PG see [`execute_pg_op`].
pub fn execute(context: &Context<'_>, store: &dyn ObjectStore, fetched: &Fetched) -> Result<Outcome, Need> {
    let request = context.request;
    let class = match classify::check(context) {
        Ok(class) => class,
        Err(refusal) => return Ok(refuse(request, refusal.errno, refusal.unsupported)),
    };
    match run(context, class, store, fetched) {
        Ok(outcome) => Ok(outcome),
        Err(Stop::Need(need)) => Err(need),
        Err(Stop::Abort(errno)) => Ok(refuse(request, errno, Vec::new())),
        Err(Stop::Code(code)) => Ok(refuse(request, Errno(-code), Vec::new())),
        Err(Stop::Data) => unreachable!("operations' needs are gathered where they run"),
    }
}

/// The message as a whole failed: no operation ran, nothing is recorded.
fn refuse(request: &MOsdOp, errno: Errno, unsupported: Vec<Unsupported>) -> Outcome {
    let ops = request.ops.iter().map(|op| reply_op(op, 0, Bytes::new())).collect();
    Outcome { result: errno.negative(), ops, user_version: 0, effect: Effect::None, unsupported, watch: None }
}

fn reply_op(op: &OsdOp, rval: i32, outdata: Bytes) -> OpResult {
    let op = OsdOp { code: op.code, flags: op.flags, args: op.args, indata: Bytes::new() };
    OpResult::new(op, rval, outdata)
}

/// Ceph's own: the client's snapshot context is older than the object's.
const EOLDSNAPC: i32 = 85;

/// What the operations together came to.
struct Executed {
    result: i32,
    ops: Vec<OpResult>,
    unsupported: Vec<Unsupported>,
    /// An operation was there that moves the user version.
    user_modify: bool,
    /// READs without their data, unless something else lacks data, too.
    holes: Option<Vec<Hole>>,
}

fn run(
    context: &Context<'_>,
    class: Class,
    store: &dyn ObjectStore,
    fetched: &Fetched,
) -> Result<Outcome, Stop> {
    let id = ObjectId { coll: context.coll, object: context.object.clone() };
    let mut object = StagedObject::load(store, fetched, id)?;
    let mut snap_context = SnapContext::default();
    if class == Class::Write {
        snap_context = SnapContext::of(context);
        let ordered = context.request.flags & flags::ORDERSNAP != 0;
        if ordered && snap_context.seq.0 < object.before.info.snap_seq {
            return Err(Stop::Abort(Errno(EOLDSNAPC)));
        }
        if !snap_context.is_valid() {
            return Err(Stop::Abort(Errno::EINVAL));
        }
        object.is_tracked |= snapshots::will_clone(&object, &snap_context);
    } else {
        let shown = seen_at(context.request.snap, &context.clones, &object, store, fetched)?;
        if let Some(clone) = shown {
            object = clone;
        }
    }
    let mut executed = run_ops(context, &mut object, fetched)?;
    let needs = std::mem::take(&mut object.needs);
    // Effects on watches belong to the moment at which they take place.
    let holes = executed.holes.take().filter(|_| class == Class::Read && object.watch.is_empty());
    if !needs.is_empty() && holes.is_none() {
        return Err(Stop::Need(Need::Data(needs)));
    }
    let before = object.before.info.watchers.clone();
    let effects = std::mem::take(&mut object.watch);
    let mut outcome = match class {
        Class::Write => finish_write(context, &snap_context, object, executed),
        Class::Read | Class::PgOp => finish_read(object, executed),
    };
    if !before.is_empty() || !effects.is_empty() {
        let effects = if outcome.result < 0 { WatchEffects::default() } else { effects };
        outcome.watch = Some(Box::new(Watching { before, effects }));
    }
    match holes {
        Some(holes) if !needs.is_empty() => {
            fetched.partial.get_or_init(|| Partial { outcome, holes });
            Err(Stop::Need(Need::Data(needs)))
        }
        _ => Ok(outcome),
    }
}

/// What a request that only reads is about: the head (`None`), or the clone that a snapshot shows.
fn seen_at<'a>(
    snap: SnapId,
    clones: &Clones<'_>,
    head: &StagedObject<'a>,
    store: &'a dyn ObjectStore,
    fetched: &'a Fetched,
) -> Result<Option<StagedObject<'a>>, Stop> {
    match snap {
        // A whiteout has clones to list.
        SnapId::SNAPDIR if head.before.stored => return Ok(None),
        SnapId::SNAPDIR | SnapId::HEAD => {}
        snap => match snapshots::show(clones, head, snap, false) {
            Ok(Shown::Head) => {}
            Ok(Shown::Clone(id)) => {
                let clone = StagedObject::load_clone(store, fetched, id)?;
                return if clone.exists { Ok(Some(clone)) } else { Err(Stop::Abort(Errno::EIO)) };
            }
            Err(Stop::Code(code)) => return Err(Stop::Abort(Errno(-code))),
            Err(stop) => return Err(stop),
        },
    }
    if head.exists { Ok(None) } else { Err(Stop::Abort(Errno::ENOENT)) }
}

fn run_ops(
    context: &Context<'_>,
    object: &mut StagedObject<'_>,
    fetched: &Fetched,
) -> Result<Executed, Stop> {
    let requested = &context.request.ops;
    let around = Surroundings { context, fetched };
    let mut executed = Executed {
        result: 0,
        ops: Vec::with_capacity(requested.len()),
        unsupported: Vec::new(),
        user_modify: false,
        holes: Some(Vec::new()),
    };
    let mut reply_len = 0;
    for op in requested {
        executed.user_modify |= classify::writes(op) && moves_user_version(op.code);
        let mut result = match ops::run(object, op, &around) {
            Ok(Done { code, outdata, long }) => {
                OpResult { long, ..reply_op(op, code.unwrap_or(executed.result), outdata) }
            }
            Err(Stop::Code(code)) => reply_op(op, code, Bytes::new()),
            // Go on, to learn what else is missing. A READ's answer needs no other run.
            Err(Stop::Data) => {
                match (&mut executed.holes, ops::range_of_read(object, op)) {
                    (Some(holes), Some(range)) => {
                        reply_len += range.len as usize;
                        holes.push(Hole { op: executed.ops.len(), range });
                    }
                    _ => executed.holes = None,
                }
                reply_op(op, 0, Bytes::new())
            }
            Err(Stop::Need(_)) if !object.needs.is_empty() => {
                executed.holes = None;
                break;
            }
            Err(stop) => return Err(stop),
        };
        object.uses += 1;
        reply_len += result.out_len();
        if reply_len > limits::REPLY_LEN_MAX {
            result.clear_output();
            result.rval = Errno::EMSGSIZE.negative();
            executed.holes = None;
        }
        if !ops::is_supported(op.code) {
            executed.unsupported.push(Unsupported::Operation(op.code));
        }
        let code = result.rval;
        executed.ops.push(result);
        executed.result = if code < 0 && op.flags & op_flags::FAILOK != 0 { 0 } else { code };
        if executed.result < 0 {
            break;
        }
    }
    // Operations after a failing one have run no more.
    let ran = executed.ops.len();
    executed.ops.extend(requested[ran..].iter().map(|op| reply_op(op, 0, Bytes::new())));
    Ok(executed)
}

/// COPY_FROM brings the source's; WATCH changes nothing that a user reads.
fn moves_user_version(code: OpCode) -> bool {
    !matches!(code, OpCode::WATCH | OpCode::UNDIRTY | OpCode::COPY_FROM | OpCode::COPY_FROM2)
}

fn finish_read(object: StagedObject<'_>, executed: Executed) -> Outcome {
    // Ceph leaves the version out of a failed read's reply.
    let user_version = if executed.result < 0 { 0 } else { object.before.info.user_version };
    Outcome {
        result: executed.result,
        ops: executed.ops,
        user_version,
        effect: Effect::None,
        unsupported: executed.unsupported,
        watch: None,
    }
}

fn finish_write(
    context: &Context<'_>,
    snap_context: &SnapContext,
    mut object: StagedObject<'_>,
    mut executed: Executed,
) -> Outcome {
    let unsupported = std::mem::take(&mut executed.unsupported);
    // An object that was not there before and is not there after: nothing happened.
    let idle = !object.touched || (!object.before.exists && !object.exists);
    if executed.result < 0 || idle {
        let user_version = object.before.info.user_version;
        let (result, ops) = (executed.result, executed.ops);
        return Outcome { result, ops, user_version, effect: Effect::ErrorOnly, unsupported, watch: None };
    }
    if context.request.flags & flags::RETURNVEC == 0 {
        // A plain update answers nothing but its success; codes of operations stay.
        executed.result = 0;
        executed.ops.iter_mut().for_each(OpResult::clear_output);
    } else if executed.ops.iter().any(|op| op.out_len() > limits::WRITE_REPLY_LEN_MAX) {
        for op in executed.ops.iter_mut().filter(|op| op.out_len() > limits::WRITE_REPLY_LEN_MAX) {
            op.rval = Errno::EOVERFLOW.negative();
            op.clear_output();
        }
        let result = Errno::EOVERFLOW.negative();
        return Outcome {
            result,
            ops: executed.ops,
            user_version: 0,
            effect: Effect::None,
            unsupported,
            watch: None,
        };
    }
    let mut version = context.at_version;
    let mut clones = Vec::new();
    if snapshots::will_clone(&object, snap_context) {
        clones.push(snapshots::make_clone(&mut object, snap_context, version));
        version.version += 1;
    }
    let unshared = snapshots::reduce_overlap(&mut object);
    if object.snapset.clones.iter().any(|clone| clone.snaps.len() > limits::SNAPS_MAX)
        || object.snapset.clones.len() > limits::CLONES_MAX
    {
        return refuse(context.request, Errno::E2BIG, unsupported);
    }
    stamp(context, &mut object, executed.user_modify, version, snap_context.seq);
    let user_version = object.info.user_version;
    let mut delta = delta(&object);
    delta.bytes += unshared as i64;
    if !clones.is_empty() {
        delta.objects += 1;
        delta.clones += 1;
        delta.omap_keys += object.before.info.omap_keys as i64;
        delta.omap_bytes += object.before.info.omap_bytes as i64;
    }
    let change = Change {
        deleted: !object.exists && object.snapset.clones.is_empty(),
        version,
        prior_version: object.before.info.version,
        clones,
        delta,
        mutations: object.mutations,
    };
    Outcome {
        result: executed.result,
        ops: executed.ops,
        user_version,
        effect: Effect::Change(change),
        unsupported,
        watch: None,
    }
}

/// `finish_ctx`: the versions, and the record of them as the last mutation.
fn stamp(
    context: &Context<'_>,
    object: &mut StagedObject<'_>,
    user_modify: bool,
    version: EVersion,
    snap_seq: SnapId,
) {
    let info = &mut object.info;
    if user_modify {
        // A copy may have brought a user version beyond the PG's own counter.
        let newest = info.user_version.max(context.pg_user_version);
        info.user_version = newest.saturating_add(1).max(version.version);
    }
    info.has_clones = !object.snapset.clones.is_empty();
    info.is_whiteout = !object.exists && info.has_clones;
    if !object.exists && !info.has_clones {
        return;
    }
    info.version = version;
    info.prior_version = object.before.info.version;
    info.last_reqid = Some(context.reqid);
    info.snap_seq = object.before.info.snap_seq.max(snap_seq.0);
    if context.request.mtime != WallTime::ZERO && !object.copied {
        info.mtime = context.request.mtime;
    }
    let snapset =
        (info.has_clones && object.snapset_changed).then(|| (SNAPSET_ATTR, object.snapset.to_record()));
    let attrs = std::iter::once((INFO_ATTR, info.to_record())).chain(snapset).collect();
    object.mutations.push(Mutation::SetXattrs { id: object.id.clone(), attrs });
}

fn delta(object: &StagedObject<'_>) -> StatDelta {
    fn difference(after: u64, before: u64) -> i64 {
        after.wrapping_sub(before) as i64
    }
    let before = &object.before;
    StatDelta {
        objects: i64::from(object.exists || object.info.is_whiteout) - i64::from(before.stored),
        clones: 0,
        bytes: difference(object.size, before.size),
        omap_keys: difference(object.info.omap_keys, before.info.omap_keys),
        omap_bytes: difference(object.info.omap_bytes, before.info.omap_bytes),
    }
}
