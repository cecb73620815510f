//! One operation each: what it answers and what it stages.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_osd_ops`); where the code and a
//! real OSD were compared, the tests say what Ceph 16.2.15 answers.

mod call;
mod checksum;
mod compare;
mod copy_from;
mod info;
mod omap;
mod read;
mod rollback;
mod watch;
mod write;
mod xattr;

use super::staged::{StagedObject, Stop};
use super::{Context, DataRange, Fetched};
use base::Errno;
use bytes::Bytes;
use wire::codec::Decoder;
use wire::messages::OsdOp;
use wire::messages::osd_op::{ExtentArgs, OpCode};

/// What an operation leaves as the message's result so far, and its output.
#[derive(Debug)]
pub(super) struct Done {
    /// `None` leaves the code of the operation before in place: some operations of
    /// Ceph's never set theirs, and CMPXATTR's 1 then shows up again.
    pub(super) code: Option<i32>,
    pub(super) outdata: Bytes,
    /// Long data behind it, as it was read.
    pub(super) long: Vec<Bytes>,
}

pub(super) type OpEnd = Result<Done, Stop>;

impl Done {
    const OK: Done = Done { code: Some(0), outdata: Bytes::new(), long: Vec::new() };
    const KEEP: Done = Done { code: None, outdata: Bytes::new(), long: Vec::new() };

    fn ok_with(outdata: Bytes) -> Done {
        Done { code: Some(0), outdata, long: Vec::new() }
    }

    fn keep_with(outdata: Bytes) -> Done {
        Done { code: None, outdata, long: Vec::new() }
    }
}

/// What an operation may look at besides the object.
pub(super) struct Surroundings<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) fetched: &'a Fetched,
}

pub(super) fn run(object: &mut StagedObject<'_>, op: &OsdOp, around: &Surroundings<'_>) -> OpEnd {
    match op.code {
        OpCode::READ | OpCode::SYNC_READ => read::read(object, extent(op)),
        OpCode::SPARSE_READ => read::sparse_read(object, extent(op)),
        OpCode::MAPEXT => read::map_extents(object, extent(op)),
        OpCode::CHECKSUM => checksum::checksum(object, op),
        OpCode::CMPEXT => compare::cmpext(object, extent(op), &op.indata),
        OpCode::STAT => info::stat(object),
        OpCode::ASSERT_VER => info::assert_version(object, op),
        OpCode::LIST_WATCHERS => watch::list_watchers(object),
        OpCode::LIST_SNAPS => info::list_snaps(object),
        OpCode::WATCH => watch::watch(object, op, around.context),
        OpCode::NOTIFY => watch::notify(object, op, around.context),
        OpCode::NOTIFY_ACK => watch::notify_ack(object, op),

        OpCode::GETXATTR => xattr::get(object, op),
        OpCode::GETXATTRS => xattr::get_all(object),
        OpCode::CMPXATTR => compare::cmpxattr(object, op),
        OpCode::SETXATTR => xattr::set(object, op),
        OpCode::RMXATTR => xattr::remove(object, op),

        OpCode::OMAPGETKEYS => omap::get_keys(object, op),
        OpCode::OMAPGETVALS => omap::get_values(object, op),
        OpCode::OMAPGETHEADER => omap::get_header(object),
        OpCode::OMAPGETVALSBYKEYS => omap::get_values_by_keys(object, op),
        OpCode::OMAP_CMP => compare::omap_cmp(object, op),
        OpCode::OMAPSETVALS => omap::set_values(object, op),
        OpCode::OMAPSETHEADER => omap::set_header(object, op),
        OpCode::OMAPCLEAR => omap::clear(object),
        OpCode::OMAPRMKEYS => omap::remove_keys(object, op),
        OpCode::OMAPRMKEYRANGE => omap::remove_key_range(object, op),

        OpCode::WRITE => write::write(object, extent(op), op.indata.clone()),
        OpCode::WRITEFULL => write::write_full(object, extent(op), op.indata.clone()),
        OpCode::APPEND => write::append(object, extent(op), op.indata.clone()),
        OpCode::WRITESAME => write::write_same(object, op),
        OpCode::ZERO => write::zero(object, extent(op)),
        OpCode::TRUNCATE => write::truncate(object, extent(op)),
        OpCode::TRIMTRUNC => write::trim_truncate(object, extent(op)),
        OpCode::ROLLBACK => rollback::roll_back(object, op, around),
        OpCode::CREATE => write::create(object, op),
        OpCode::DELETE => write::delete(object),
        OpCode::SETALLOCHINT => write::set_alloc_hint(object, op),
        OpCode::COPY_FROM | OpCode::COPY_FROM2 => copy_from::copy_from(object, op, around),

        OpCode::CALL => call::call(object, op, around),

        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// What a READ answers, byte for byte; other operations make something of what they read.
pub(super) fn range_of_read(object: &StagedObject<'_>, op: &OsdOp) -> Option<DataRange> {
    matches!(op.code, OpCode::READ | OpCode::SYNC_READ).then(|| {
        let (offset, len) = read::readable(object, extent(op));
        object.stored_range(offset, len)
    })
}

/// The operation has an arm above; the others are refused, counted and logged.
pub(super) fn is_supported(code: OpCode) -> bool {
    const SUPPORTED: [OpCode; 41] = [
        OpCode::READ,
        OpCode::SYNC_READ,
        OpCode::SPARSE_READ,
        OpCode::MAPEXT,
        OpCode::CHECKSUM,
        OpCode::CMPEXT,
        OpCode::STAT,
        OpCode::ASSERT_VER,
        OpCode::LIST_WATCHERS,
        OpCode::LIST_SNAPS,
        OpCode::WATCH,
        OpCode::NOTIFY,
        OpCode::NOTIFY_ACK,
        OpCode::GETXATTR,
        OpCode::GETXATTRS,
        OpCode::CMPXATTR,
        OpCode::SETXATTR,
        OpCode::RMXATTR,
        OpCode::OMAPGETKEYS,
        OpCode::OMAPGETVALS,
        OpCode::OMAPGETHEADER,
        OpCode::OMAPGETVALSBYKEYS,
        OpCode::OMAP_CMP,
        OpCode::OMAPSETVALS,
        OpCode::OMAPSETHEADER,
        OpCode::OMAPCLEAR,
        OpCode::OMAPRMKEYS,
        OpCode::OMAPRMKEYRANGE,
        OpCode::WRITE,
        OpCode::WRITEFULL,
        OpCode::APPEND,
        OpCode::WRITESAME,
        OpCode::ZERO,
        OpCode::TRUNCATE,
        OpCode::TRIMTRUNC,
        OpCode::CREATE,
        OpCode::DELETE,
        OpCode::SETALLOCHINT,
        OpCode::COPY_FROM,
        OpCode::CALL,
        OpCode::ROLLBACK,
    ];
    SUPPORTED.contains(&code) || code == OpCode::COPY_FROM2
}

/// The extent arguments, a "no truncation" of old clients taken as such.
fn extent(op: &OsdOp) -> ExtentArgs {
    let mut args = ExtentArgs::of(&op.args);
    if args.truncate_seq == 1 && args.truncate_size == u64::MAX {
        args.truncate_seq = 0;
        args.truncate_size = 0;
    }
    args
}

pub(super) fn input(op: &OsdOp) -> Decoder {
    Decoder::plain(op.indata.clone())
}
