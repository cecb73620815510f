//! Requests run against [`MemStore`], fetching what they need as the PG would.

mod calls;
mod compound;
mod copy;
mod data;
mod listing;
mod omap;
mod property;
mod real_ceph;
mod real_classes;
mod refusals;
mod snaps;
mod watch;

use super::*;
use store::{MemStore, StoreEvent, Transaction};
use wire::codec::Encoder;
use wire::maps::placement_hash;
use wire::messages::osd_op::{ExtentArgs, XattrArgs};
use wire::types::{EntityAddr, EntityName, ObjectLocator, PgId, PoolId, SnapId, SpgId};

pub(super) const PG: PgId = PgId { pool: PoolId(3), seed: 0 };
pub(super) const COLL: CollId = CollId::Pg(PG);

pub(super) fn object(name: &str) -> HObject {
    let hash = placement_hash(&ObjectLocator::pool(PG.pool), name);
    HObject { pool: PG.pool, hash, name: name.into(), snap: SnapId::HEAD, ..HObject::default() }
}

pub(super) fn id(name: &str) -> ObjectId {
    ObjectId { coll: COLL, object: object(name) }
}

pub(super) fn request(ops: Vec<OsdOp>) -> MOsdOp {
    MOsdOp {
        pg: SpgId::replicated(PG),
        raw_hash: 0,
        epoch: Epoch(1),
        flags: flags::RETURNVEC,
        reqid: None,
        client_inc: 0,
        mtime: WallTime { sec: 100, nsec: 5 },
        locator: ObjectLocator::pool(PG.pool),
        object: "o".into(),
        ops,
        snap: SnapId::HEAD,
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: 0,
    }
}

/// One object store and a counter of versions: as much of a PG as requests notice.
pub(super) struct Bench {
    pub(super) store: MemStore,
    pub(super) version: u64,
    user_version: u64,
    pub(super) pool: PgPool,
    pub(super) removed_snaps: IntervalSet,
    pub(super) caller: cls::Origin,
    pub(super) now: WallTime,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let mut store = MemStore::new();
        store.queue(Transaction { ops: vec![Mutation::CreateCollection(COLL)] }).unwrap();
        while store.poll_event().is_some() {}
        Bench {
            store,
            version: 0,
            user_version: 0,
            removed_snaps: IntervalSet::new(),
            pool: PgPool { pg_num: 1, ..PgPool::default() },
            caller: cls::Origin { name: EntityName::client(1), addr: EntityAddr::BLANK },
            now: WallTime { sec: 200, nsec: 0 },
        }
    }

    /// Runs the operations on object `o` and applies the change.
    pub(super) fn run(&mut self, ops: Vec<OsdOp>) -> Outcome {
        self.run_request(&request(ops))
    }

    pub(super) fn run_request(&mut self, request: &MOsdOp) -> Outcome {
        let outcome = self.decide(request, &mut Fetched::default());
        if !matches!(outcome.effect, Effect::None) {
            self.version += 1;
        }
        if let Effect::Change(change) = &outcome.effect {
            self.version = change.version.version;
            self.user_version = self.user_version.max(outcome.user_version);
            self.store.queue(Transaction { ops: change.mutations.clone() }).unwrap();
            while self.store.poll_event().is_some() {}
        }
        outcome
    }

    /// Runs without applying; data and copies are fetched into `fetched`.
    pub(super) fn decide(&mut self, request: &MOsdOp, fetched: &mut Fetched) -> Outcome {
        for _ in 0..10 {
            let (early, outcome) = (fetched.answer(), self.attempt(request, fetched));
            if let Some(early) = early {
                let early: Result<Outcome, Need> = Ok(early);
                assert_eq!(format!("{early:?}"), format!("{outcome:?}"), "what needs no other run");
            }
            let need = match outcome {
                Ok(outcome) => return outcome,
                Err(need) => need,
            };
            match need {
                Need::Data(ranges) => {
                    for range in ranges {
                        let data = self.fetch(&range);
                        fetched.data.push((range, Ok(data)));
                    }
                }
                Need::Copy(source) => {
                    let copied = self.copy(&source);
                    fetched.copies.push((source, copied));
                }
                Need::Object(_) => panic!("nothing is missing here"),
                Need::Metadata(error) => panic!("MemStore is never pending: {error}"),
            }
        }
        panic!("a request that never has enough");
    }

    pub(super) fn attempt(&self, request: &MOsdOp, fetched: &Fetched) -> Result<Outcome, Need> {
        let object = HObject { nspace: request.locator.nspace.clone(), ..object(&request.object) };
        let context = Context {
            request,
            reqid: ReqId { name: EntityName::client(1), tid: self.version, inc: 0 },
            pool: &self.pool,
            coll: COLL,
            object,
            at_version: EVersion::new(Epoch(1), self.version + 1),
            epoch: Epoch(1),
            now: self.now,
            origin: self.caller,
            pg_user_version: self.user_version,
            seed: self.version,
            watch: Default::default(),
            ignore_lock_holders: false,
            clones: self.clones(),
        };
        execute(&context, &self.store, fetched)
    }

    fn clones(&self) -> Clones<'_> {
        Clones { removed_snaps: Some(&self.removed_snaps), is_unready: &|_, _| false }
    }

    fn fetch(&mut self, range: &DataRange) -> Bytes {
        self.store.read(&range.id, range.offset, range.len).unwrap();
        match self.store.poll_event() {
            Some(StoreEvent::Read { result, .. }) => result.unwrap(),
            other => panic!("no read answer: {other:?}"),
        }
    }

    pub(super) fn copy(&mut self, source: &CopySource) -> Result<CopiedObject, Errno> {
        let mut fetched = Fetched::default();
        loop {
            match read_whole(&self.store, COLL, source, &self.clones(), &fetched) {
                Ok(copied) => return copied,
                Err(Need::Data(ranges)) => {
                    for range in ranges {
                        let data = self.fetch(&range);
                        fetched.data.push((range, Ok(data)));
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    pub(super) fn data(&mut self) -> Option<Vec<u8>> {
        let outcome = self.run(vec![read(0, 0)]);
        if outcome.result == -2 {
            return None;
        }
        Some(outcome.ops[0].outdata.to_vec())
    }

    pub(super) fn info(&self) -> Option<ObjectInfo> {
        ObjectInfo::load(&self.store, &id("o")).unwrap()
    }
}

pub(super) fn op(code: OpCode, args: [u8; 28], indata: &[u8]) -> OsdOp {
    OsdOp::new(code, args, Bytes::copy_from_slice(indata))
}

pub(super) fn bare(code: OpCode) -> OsdOp {
    op(code, [0; 28], b"")
}

pub(super) fn extent(code: OpCode, offset: u64, len: u64, indata: &[u8]) -> OsdOp {
    op(code, ExtentArgs::new(offset, len).into_args(), indata)
}

pub(super) fn read(offset: u64, len: u64) -> OsdOp {
    extent(OpCode::READ, offset, len, b"")
}

pub(super) fn write(offset: u64, data: &[u8]) -> OsdOp {
    extent(OpCode::WRITE, offset, data.len() as u64, data)
}

pub(super) fn write_full(data: &[u8]) -> OsdOp {
    extent(OpCode::WRITEFULL, 0, data.len() as u64, data)
}

pub(super) fn xattr_op(code: OpCode, name: &[u8], value: &[u8]) -> OsdOp {
    let args =
        XattrArgs { name_len: name.len() as u32, value_len: value.len() as u32, ..XattrArgs::default() };
    op(code, args.into_args(), &[name, value].concat())
}

pub(super) fn set_xattr(name: &str, value: &str) -> OsdOp {
    xattr_op(OpCode::SETXATTR, name.as_bytes(), value.as_bytes())
}

pub(super) fn get_xattr(name: &str) -> OsdOp {
    xattr_op(OpCode::GETXATTR, name.as_bytes(), b"")
}

pub(super) fn failok(mut op: OsdOp) -> OsdOp {
    op.flags |= op_flags::FAILOK;
    op
}

pub(super) fn encoded(encode: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut e = Encoder::plain();
    encode(&mut e);
    e.finish().to_vec()
}

pub(super) fn omap_set(entries: &[(&str, &str)]) -> OsdOp {
    let indata = encoded(|e| {
        e.count(entries.len());
        for (key, value) in entries {
            e.string(key);
            e.string(value);
        }
    });
    op(OpCode::OMAPSETVALS, [0; 28], &indata)
}

pub(super) fn omap_keys_op(code: OpCode, keys: &[&str]) -> OsdOp {
    let indata = encoded(|e| {
        e.count(keys.len());
        keys.iter().for_each(|key| e.string(key));
    });
    op(code, [0; 28], &indata)
}

pub(super) fn rvals(outcome: &Outcome) -> Vec<i32> {
    outcome.ops.iter().map(|op| op.rval).collect()
}

pub(super) fn change(outcome: &Outcome) -> &Change {
    match &outcome.effect {
        Effect::Change(change) => change,
        other => panic!("no change: {other:?}"),
    }
}
