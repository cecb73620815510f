//! What OSDs say to each other. Ours alone: no client sees it.
//!
//! Knows bodies only; links, checksums and identities belong to `msgr`. The
//! receiver may get any message twice, or not at all when a link breaks: each
//! one is idempotent and repeated by its sender until it is answered.
//!
//! Source: `docs/protocol/osd-peer.md`.

mod mutation;

pub use mutation::{decode_mutations, encode_mutations};

use crate::action::Channel;
use crate::exec::CopiedObject;
use crate::pg::info::{History, PgInfo, PgSums};
use crate::pg::intervals::PastIntervals;
use crate::pg::log::LogEntry;
use crate::pg::missing::Missing;
use crate::pg::scrub::Copy;
use crate::space::Space;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::{DecodeError, Result};
use wire::types::{EVersion, Epoch, HObject, IntervalSet, OsdId, PgId, SnapId};
use wire::{Decode, Decoder, Encode, Encoder};

/// Which PG, and in which interval the sender is. Receivers in another
/// interval drop the message, or wait for their map when the sender's is newer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PgHeader {
    pub pg: PgId,
    pub interval: Epoch,
    /// The sender's map.
    pub epoch: Epoch,
}

impl Encode for PgHeader {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.pg);
        e.put(&self.interval);
        e.put(&self.epoch);
    }
}

impl Decode for PgHeader {
    const MIN_LEN: usize = 25;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(PgHeader { pg: d.get()?, interval: d.get()?, epoch: d.get()? })
    }
}

/// An object that another is made from: a clone of the same head, or the head. What
/// [`Push`] does not bring is as it is there.
#[derive(Clone, PartialEq, Debug)]
pub struct Base {
    pub snap: SnapId,
    /// The receiver must have this very version.
    pub version: EVersion,
    /// Nothing from here on is shared.
    pub cut: u64,
    /// Ranges before that which hold zeros.
    pub zeros: IntervalSet,
}

impl Encode for Base {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.snap);
        e.put(&self.version);
        e.u64(self.cut);
        e.put(&self.zeros);
    }
}

impl Decode for Base {
    const MIN_LEN: usize = 32;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Base { snap: d.get()?, version: d.get()?, cut: d.u64()?, zeros: d.get()? })
    }
}

/// Declares one PG message: a struct whose fields are encoded in order.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident = $kind:literal { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug)]
            pub struct $name { $($(#[$fdoc])* pub $field: $t,)* }

            impl Encode for $name {
                #[allow(unused_variables)]
                fn encode(&self, e: &mut Encoder) { $(e.put(&self.$field);)* }
            }
            impl Decode for $name {
                #[allow(unused_variables)]
                fn decode(d: &mut Decoder) -> Result<Self> { Ok($name { $($field: d.get()?,)* }) }
            }
            impl From<$name> for PgMessage {
                fn from(m: $name) -> PgMessage { PgMessage::$name(m) }
            }
        )*

        /// Every message about a PG, but for [`Repl`], which has its own form.
        #[derive(Clone, PartialEq, Debug)]
        pub enum PgMessage { $($name($name),)* }

        impl PgMessage {
            pub fn kind(&self) -> u16 {
                match self { $(PgMessage::$name(_) => $kind,)* }
            }
            fn encode(&self, e: &mut Encoder) {
                match self { $(PgMessage::$name(m) => m.encode(e),)* }
            }
            fn decode(kind: u16, d: &mut Decoder) -> Result<PgMessage> {
                Ok(match kind {
                    $($kind => PgMessage::$name(d.get()?),)*
                    _ => return Err(DecodeError::Invalid { what: "kind of OSD message" }),
                })
            }
        }
    };
}

bodies! {
    /// Primary to anyone who may know: tell me what you have.
    QueryInfo = 32 {}
    /// A primary that knows nothing of the PG to every OSD: have you seen it?
    Discover = 33 {}
    /// The answer when the PG is unknown; `epoch` in the header counts.
    NotHere = 34 {}
    /// The answer to [`QueryInfo`], and what a stray tells the primary unasked.
    Notify = 35 {
        /// `None`: no copy here.
        info: Option<PgInfo>,
        past: PastIntervals,
        /// Promises not to help others serve reads: to whom, for how much longer (ms).
        leases: Vec<(OsdId, u32)>,
        /// The same, to unknown primaries: this OSD has restarted since.
        lease_floor_ms: u32,
    }
    /// Primary to the OSD with the best log.
    QueryLog = 36 {
        /// Entries after this, or after the newest common version before it.
        since: EVersion,
    }
    /// The answer.
    Log = 37 {
        info: PgInfo,
        base: EVersion,
        entries: Vec<LogEntry>,
        missing: Missing,
    }
    /// Primary to every member: take this log, then tell when that is durable.
    Activate = 38 {
        info: PgInfo,
        past: PastIntervals,
        /// Copy everything: forget your log, objects come later.
        restart: bool,
        base: EVersion,
        entries: Vec<LogEntry>,
        /// Becomes `last_epoch_started`.
        activation: Epoch,
    }
    /// Durable.
    Activated = 39 {
        missing: Missing,
        last_backfill: HObject,
    }
    /// The member's log lacks the base.
    NeedLog = 40 {
        /// Ask again from here; `None`: only a full copy helps.
        since: Option<EVersion>,
    }
    /// The PG is active, or clean: facts for the members to remember.
    Settled = 41 {
        history: History,
        clean: bool,
    }
    /// Everything up to here is durable at the sender.
    ReplAck = 48 { through: EVersion, }
    /// A gap: send again what follows.
    ReplResend = 49 { after: EVersion, }
    /// Primary: send me this object.
    Pull = 50 {
        object: HObject,
        need: EVersion,
        /// Clones of the same head, or the head, that the primary misses, too: no bases.
        lacks: Vec<HObject>,
        /// The primary's copy is damaged, and what it shares blocks with may be as well: no base.
        whole: bool,
    }
    /// Part of an object, in answer to a pull or on the primary's own account.
    Push = 51 {
        /// Tells parts of this attempt from those of another: attempts differ in what they leave out.
        attempt: u64,
        object: HObject,
        version: EVersion,
        /// In the first part: what the object is made from.
        base: Option<Base>,
        /// Counts from 0; the receiver acknowledges each before the next comes.
        part: u32,
        last: bool,
        /// The object's size, once all parts are there.
        size: u64,
        /// Object offset and bytes.
        data: Vec<(u64, Bytes)>,
        xattrs: BTreeMap<String, Bytes>,
        omap_header: Bytes,
        omap: BTreeMap<Bytes, Bytes>,
        /// The receiver's own copy is damaged, which the primary knows from it.
        repair: bool,
    }
    PushAck = 52 {
        attempt: u64,
        object: HObject,
        version: EVersion,
        part: u32,
    }
    /// The sender does not have the object in this version.
    PullFailed = 53 {
        object: HObject,
        need: EVersion,
        /// It should, but its device lost it.
        damaged: bool,
    }
    /// The receiver does not have the base in that version: it needs the whole object.
    PushRefused = 54 {
        attempt: u64,
        object: HObject,
    }
    /// Primary to a backfill target: what do you have from here to there?
    Scan = 55 {
        begin: HObject,
        end: HObject,
        max: u32,
    }
    ScanResult = 56 {
        begin: HObject,
        /// Complete up to here, which may be before what was asked.
        end: HObject,
        objects: Vec<(HObject, EVersion)>,
    }
    /// Primary to a backfill target: everything up to here is there.
    Backfilled = 57 {
        last_backfill: HObject,
        sums: PgSums,
        /// Only the target has these; they were deleted.
        drops: Vec<HObject>,
    }
    /// Durable.
    BackfilledAck = 58 { last_backfill: HObject, }
    /// Primary to a stray, once the PG is clean: you are not needed any more.
    Remove = 59 {}
    /// Primary to every member: what do you have after `begin` up to `end`? Writes to it wait.
    ScrubScan = 60 {
        id: u64,
        begin: HObject,
        end: HObject,
        deep: bool,
    }
    ScrubMap = 61 {
        id: u64,
        /// Busy with other scrubs: ask again later.
        refused: bool,
        copies: Vec<(HObject, Copy)>,
    }
    /// A whole object for COPY_FROM; to the primary of the source's PG.
    CopyGet = 64 {
        id: u64,
        object: HObject,
        version: u64,
    }
}

/// The answer to [`CopyGet`]; concerns no PG of the receiver's.
#[derive(Clone, PartialEq, Debug)]
pub struct CopyResult {
    pub id: u64,
    /// A positive errno, or 0.
    pub errno: i32,
    pub object: Option<CopiedObject>,
}

/// One write, from the primary to a replica.
#[derive(Clone, PartialEq, Debug)]
pub struct Repl {
    /// The entry before this one: a gap shows.
    pub prev: EVersion,
    pub entry: LogEntry,
    /// As it goes into the store.
    pub entry_bytes: Bytes,
    /// The receiver lacks the object until its backfill gets there.
    pub log_only: bool,
    pub mutations: Vec<store::Mutation>,
}

pub const KIND_PING: u16 = 16;
pub const KIND_PONG: u16 = 17;
pub const KIND_MAPS: u16 = 18;
pub const KIND_REPL: u16 = 47;
pub const KIND_COPY_RESULT: u16 = 65;

const VERSION: u8 = 4;
/// Of a write to an image, rounded up.
const REPL_FRONT_LEN: usize = 512;

/// Any message.
#[derive(Clone, PartialEq, Debug)]
pub enum PeerMessage {
    /// Heartbeat, and a primary's request for a lease.
    Ping {
        epoch: Epoch,
        stamp: u64,
        space: Space,
    },
    /// Sent at once: alive, and the lease is granted as of `stamp`.
    Pong {
        epoch: Epoch,
        stamp: u64,
        space: Space,
    },
    /// Incremental maps for a peer that is behind.
    Maps(Vec<(Epoch, Bytes)>),
    Pg(PgHeader, PgMessage),
    Repl(PgHeader, Repl),
    CopyResult(CopyResult),
}

impl PeerMessage {
    pub fn decode(kind: u16, body: Bytes) -> Result<PeerMessage> {
        let mut d = Decoder::plain(body);
        if d.u8()? != VERSION {
            return Err(DecodeError::Invalid { what: "version of OSD message" });
        }
        match kind {
            KIND_PING => {
                Ok(PeerMessage::Ping { epoch: d.get()?, stamp: d.u64()?, space: decode_space(&mut d)? })
            }
            KIND_PONG => {
                Ok(PeerMessage::Pong { epoch: d.get()?, stamp: d.u64()?, space: decode_space(&mut d)? })
            }
            KIND_MAPS => Ok(PeerMessage::Maps(d.get()?)),
            KIND_REPL => decode_repl(&mut d),
            KIND_COPY_RESULT => {
                Ok(PeerMessage::CopyResult(CopyResult { id: d.u64()?, errno: d.i32()?, object: d.get()? }))
            }
            _ => Ok(PeerMessage::Pg(d.get()?, PgMessage::decode(kind, &mut d)?)),
        }
    }
}

fn begin() -> Encoder {
    let mut e = Encoder::plain();
    e.u8(VERSION);
    e
}

fn decode_space(d: &mut Decoder) -> Result<Space> {
    Ok(Space { total: d.u64()?, available: d.u64()? })
}

pub fn encode_ping(epoch: Epoch, stamp: u64, space: Space) -> Vec<Bytes> {
    let mut e = begin();
    e.put(&epoch);
    e.u64(stamp);
    e.u64(space.total);
    e.u64(space.available);
    vec![e.finish()]
}

pub fn encode_maps(maps: &[(Epoch, Bytes)]) -> Vec<Bytes> {
    let mut e = begin();
    e.put(maps);
    vec![e.finish()]
}

pub fn encode_pg(header: &PgHeader, message: &PgMessage) -> Vec<Bytes> {
    let mut e = begin();
    e.put(header);
    message.encode(&mut e);
    vec![e.finish()]
}

pub fn encode_copy_result(result: &CopyResult) -> Vec<Bytes> {
    let mut e = begin();
    e.u64(result.id);
    e.i32(result.errno);
    e.put(&result.object);
    vec![e.finish()]
}

/// Shape: header, previous version, log-only flag, entry, mutations; the data
/// of writes follows as pieces of its own, so that it is never copied here.
pub fn encode_repl(
    header: &PgHeader,
    prev: EVersion,
    entry: &LogEntry,
    entry_bytes: &Bytes,
    mutations: Option<&[store::Mutation]>,
) -> Vec<Bytes> {
    let mut e = Encoder::with_capacity(REPL_FRONT_LEN);
    e.u8(VERSION);
    e.put(header);
    e.put(&prev);
    e.bool(mutations.is_none());
    e.blob(entry_bytes);
    // The front, once it is complete.
    let mut pieces = vec![Bytes::new()];
    encode_mutations(mutations.unwrap_or(&[]), &entry.object, &mut e, &mut pieces);
    pieces[0] = e.finish();
    pieces
}

fn decode_repl(d: &mut Decoder) -> Result<PeerMessage> {
    let header: PgHeader = d.get()?;
    let prev = d.get()?;
    let log_only = d.bool()?;
    let entry_bytes = d.blob()?;
    let entry: LogEntry = Decoder::plain(entry_bytes.clone()).get()?;
    let mutations = decode_mutations(header.pg, &entry.object, d)?;
    Ok(PeerMessage::Repl(header, Repl { prev, entry, entry_bytes, log_only, mutations }))
}

pub fn channel_of(kind: u16) -> Channel {
    if kind == KIND_PING || kind == KIND_PONG { Channel::Heartbeat } else { Channel::Data }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::types::PoolId;

    #[test]
    fn a_push_from_a_base_survives_and_every_truncation_is_an_error() {
        let pg = PgId { pool: PoolId(1), seed: 3 };
        let header = PgHeader { pg, interval: Epoch(4), epoch: Epoch(5) };
        let mut zeros = IntervalSet::new();
        zeros.insert(4096, 8192);
        let base = Base { snap: SnapId(7), version: EVersion::new(Epoch(3), 9), cut: 1 << 20, zeros };
        let push = PgMessage::from(Push {
            attempt: 11,
            object: HObject { pool: pg.pool, name: "a".into(), snap: SnapId(8), ..HObject::default() },
            version: EVersion::new(Epoch(3), 10),
            base: Some(base),
            part: 0,
            last: true,
            size: 2 << 20,
            data: vec![(0, Bytes::from_static(b"data"))],
            xattrs: [("_".to_string(), Bytes::from_static(b"info"))].into(),
            omap_header: Bytes::new(),
            omap: BTreeMap::new(),
            repair: false,
        });
        let body = Bytes::from(encode_pg(&header, &push).concat());
        let back = PeerMessage::decode(push.kind(), body.clone()).unwrap();
        assert_eq!(back, PeerMessage::Pg(header, push.clone()));
        for cut in 0..body.len() {
            assert!(PeerMessage::decode(push.kind(), body.slice(..cut)).is_err(), "cut at {cut}");
        }
    }
}
