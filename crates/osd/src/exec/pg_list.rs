//! Operations on a PG: listing its objects, PGNLS and PGNLS_FILTER, and what a scrub has found, SCRUBLS.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_pg_op`), `src/osd/osd_types.cc`
//! (`pg_t::get_hobj_start`, `get_hobj_end`).

use super::object_info::stored_name;
use super::staged::Stop;
use super::{Effect, Need, Outcome, Unsupported, limits, ops, reply_op};
use base::Errno;
use bytes::Bytes;
use store::{CollId, ObjectId, ObjectStore, StoreError};
use wire::codec::{Decode, Decoder, Encoder};
use wire::maps::PgPool;
use wire::messages::osd_op::{OpCode, PgListArgs};
use wire::messages::{MOsdOp, OsdOp};
use wire::types::{HObject, PgId, SnapId};

/// The locator's namespace that stands for all of them (`librados::all_nspaces`).
const ALL_NAMESPACES: &str = "\u{1}";

/// Objects taken from the store in one call.
const STORE_PAGE: usize = 256;

/// A request to a PG rather than to an object in it.
pub struct PgListContext<'a> {
    pub request: &'a MOsdOp,
    pub pool: &'a PgPool,
    pub pg: PgId,
    pub coll: CollId,
    /// Answers SCRUBLS, given its input.
    pub scrub_ls: &'a dyn Fn(Bytes) -> Result<Bytes, Errno>,
}

/// Runs a request that [`super::classify`] calls a PG operation.
///
/// The reply carries the PG's last update and last user version, which the caller knows.
/// Result: 1 when the listing reached the end of the PG, 0 when there is more.
pub fn execute_pg_op(context: &PgListContext<'_>, store: &dyn ObjectStore) -> Result<Outcome, Need> {
    let requested = &context.request.ops;
    let mut outcome = Outcome {
        result: 0,
        ops: Vec::with_capacity(requested.len()),
        user_version: 0,
        effect: Effect::None,
        unsupported: Vec::new(),
        watch: None,
    };
    for op in requested {
        let (code, outdata) = match run(context, op, store) {
            Ok((code, outdata)) => (code, outdata),
            Err(Stop::Code(code)) => (code, Bytes::new()),
            Err(Stop::Abort(errno)) => (errno.negative(), Bytes::new()),
            Err(Stop::Need(need)) => return Err(need),
            Err(Stop::Data) => unreachable!("listing reads no object data"),
        };
        if op.code.is_pg_op() && !is_supported(op.code) {
            outcome.unsupported.push(Unsupported::Operation(op.code));
        }
        outcome.result = code;
        // Ceph keeps no codes of single PG operations.
        outcome.ops.push(reply_op(op, 0, outdata));
        if code < 0 {
            break;
        }
    }
    let ran = outcome.ops.len();
    outcome.ops.extend(requested[ran..].iter().map(|op| reply_op(op, 0, Bytes::new())));
    Ok(outcome)
}

fn is_supported(code: OpCode) -> bool {
    matches!(code, OpCode::PGNLS | OpCode::PGNLS_FILTER | OpCode::SCRUBLS)
}

fn run(context: &PgListContext<'_>, op: &OsdOp, store: &dyn ObjectStore) -> Result<(i32, Bytes), Stop> {
    let mut d = ops::input(op);
    match op.code {
        OpCode::PGNLS => list(context, op, &mut d, None, store),
        OpCode::PGNLS_FILTER => {
            let (_class, _method) = (d.blob()?, d.blob()?);
            let filter = Filter::decode(&mut d)?;
            list(context, op, &mut d, Some(&filter), store)
        }
        OpCode::SCRUBLS => Ok((0, (context.scrub_ls)(op.indata.clone())?)),
        code if code.is_pg_op() => Err(Errno::EOPNOTSUPP.into()),
        // An object's operation in a PG's message.
        _ => Err(Errno::EINVAL.into()),
    }
}

/// `PGLSPlainFilter`: objects with an xattr of this very value.
struct Filter {
    stored_name: String,
    value: Bytes,
}

impl Filter {
    fn decode(d: &mut Decoder) -> Result<Filter, Stop> {
        match &d.blob()?[..] {
            b"plain" => {
                // Clients give the name as Ceph's store spells it.
                let name = d.blob()?;
                let name = name.strip_prefix(b"_").ok_or(Errno::EINVAL)?;
                Ok(Filter { stored_name: stored_name(name), value: d.blob()? })
            }
            b"parent" => Err(Errno::EOPNOTSUPP.into()),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    fn matches(&self, store: &dyn ObjectStore, id: &ObjectId) -> Result<bool, Stop> {
        match store.xattr(id, &self.stored_name) {
            Ok(value) => Ok(value.is_some_and(|value| value == self.value)),
            Err(StoreError::NoObject) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn list(
    context: &PgListContext<'_>,
    op: &OsdOp,
    d: &mut Decoder,
    filter: Option<&Filter>,
    store: &dyn ObjectStore,
) -> Result<(i32, Bytes), Stop> {
    if context.request.snap != SnapId::HEAD {
        return Err(Errno::EINVAL.into());
    }
    let cursor = HObject::decode(d)?;
    let start = HObject::pg_start(context.pg.pool, context.pg.seed);
    let end = pg_end(context.pg, context.pool.pg_num);
    let before_start = cursor < start && cursor != HObject::default();
    if before_start || (!cursor.is_max && cursor >= end) {
        return Err(Errno::EINVAL.into());
    }
    let max = PgListArgs::of(&op.args).count_max.min(limits::PG_LIST_MAX) as usize;
    let (entries, next) = collect(context, cursor.max(start), max, filter, store)?;
    let mut e = Encoder::plain();
    e.versioned(1, 1, |e| {
        e.put(next.as_ref().unwrap_or(&end));
        e.count(entries.len());
        for entry in &entries {
            e.string(&entry.nspace);
            e.string(&entry.name);
            e.string(&entry.key);
        }
    });
    Ok((i32::from(next.is_none()), e.finish()))
}

/// Looks at `max` objects at most, so that a filter that nothing passes does not hold
/// up the PG; returns where to go on, `None` at the end of the PG.
fn collect(
    context: &PgListContext<'_>,
    mut cursor: HObject,
    max: usize,
    filter: Option<&Filter>,
    store: &dyn ObjectStore,
) -> Result<(Vec<HObject>, Option<HObject>), Stop> {
    let mut entries = Vec::new();
    let mut left = max;
    loop {
        // One more than is used, to know where the next page begins.
        let page_len = left.min(STORE_PAGE);
        let mut page = match store.list(context.coll, &cursor, page_len + 1) {
            // A short answer gets the client on; to wait for everything at once might take for ever.
            Err(StoreError::Pending(_)) if left < max => return Ok((entries, Some(cursor))),
            page => page?,
        };
        let next = if page.len() > page_len { page.pop() } else { None };
        for object in page {
            match is_listed(context, &object, filter, store) {
                Ok(true) => entries.push(object),
                Ok(false) => {}
                Err(Stop::Need(_)) if left < max => return Ok((entries, Some(object))),
                Err(stop) => return Err(stop),
            }
            left -= 1;
        }
        match next {
            Some(next) if left > 0 => cursor = next,
            next => return Ok((entries, next)),
        }
    }
}

fn is_listed(
    context: &PgListContext<'_>,
    object: &HObject,
    filter: Option<&Filter>,
    store: &dyn ObjectStore,
) -> Result<bool, Stop> {
    let nspace = &context.request.locator.nspace;
    if object.snap != SnapId::HEAD || (nspace != ALL_NAMESPACES && *nspace != object.nspace) {
        return Ok(false);
    }
    // As Ceph's, listings name deleted heads that have clones: whoever looks for snapshots finds them so.
    match filter {
        None => Ok(true),
        Some(filter) => filter.matches(store, &ObjectId { coll: context.coll, object: object.clone() }),
    }
}

/// Where the PG after this one begins, in the order of listings.
pub fn pg_end(pg: PgId, pg_num: u32) -> HObject {
    let bits = split_bits(pg.seed, pg_num);
    let last = pg.seed.reverse_bits() | u32::MAX.checked_shr(bits).unwrap_or(0);
    match last.checked_add(1) {
        None => HObject::max(),
        Some(next) => HObject { snap: SnapId::HEAD, ..HObject::pg_start(pg.pool, next.reverse_bits()) },
    }
}

/// `pg_t::get_split_bits`: how many low bits of the hash this PG's objects share.
fn split_bits(seed: u32, pg_num: u32) -> u32 {
    if pg_num <= 1 {
        return 0;
    }
    let bits = u32::BITS - (pg_num - 1).leading_zeros();
    // The last round of splitting may not have reached this PG.
    let half = 1_u32 << (bits - 1);
    if (half + (seed % half)) < pg_num { bits } else { bits - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PoolId;

    #[test]
    fn ends_of_pgs_chain_in_bit_reversed_order() {
        for pg_num in [1, 2, 3, 5, 8, 12, 13, 16, 100] {
            let mut seed = 0;
            let mut visited = vec![seed];
            loop {
                let end = pg_end(PgId { pool: PoolId(1), seed }, pg_num);
                if end.is_max {
                    break;
                }
                seed = end.hash;
                visited.push(seed);
            }
            if pg_num == 8 {
                // Ceph 16.2.15 lists a pool of 8 PGs in this order.
                assert_eq!(visited, [0, 4, 2, 6, 1, 5, 3, 7]);
            }
            visited.sort_unstable();
            assert_eq!(visited, (0..pg_num).collect::<Vec<_>>(), "pg_num {pg_num}");
        }
    }
}
