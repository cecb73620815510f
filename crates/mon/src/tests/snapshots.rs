//! Ids of snapshots as Ceph 16.2.15 gives them out; the sequence of numbers was taken from it.

use super::harness::Cluster;
use crate::MapStore;
use wire::messages::*;
use wire::types::*;

const POOL: PoolId = PoolId(1);

struct Run {
    c: Cluster,
    osds: Vec<SessionId>,
    client: SessionId,
}

impl Run {
    fn new() -> Run {
        let (mut c, osds) = Cluster::with_osds(2);
        let client = c.client();
        c.ok(client, r#"{"prefix":"osd pool create","pool":"p","pg_num":1}"#);
        Run { c, osds, client }
    }

    fn op(&mut self, op: PoolOpKind, snap: u64, name: &str) -> MPoolOpReply {
        let fsid = self.c.mon.fsid();
        let request = MPoolOp { fsid, pool: POOL, op, snap: SnapId(snap), name: name.into(), crush_rule: -1 };
        self.c.send(self.client, &request);
        self.c.take::<MPoolOpReply>(self.client).remove(0)
    }

    fn create(&mut self) -> u64 {
        let reply = self.op(PoolOpKind::CreateUnmanagedSnap, 0, "");
        u64::from_le_bytes(reply.data.unwrap()[..].try_into().unwrap())
    }

    fn remove(&mut self, snap: u64) -> i32 {
        self.op(PoolOpKind::DeleteUnmanagedSnap, snap, "").code
    }

    /// The code of a removal, and the id of the next snapshot.
    fn remove_and_create(&mut self, snap: u64) -> (i32, u64) {
        (self.remove(snap), self.create())
    }

    /// The pool's only PG has trimmed everything that was to be.
    fn trim_all(&mut self) {
        let mut report = self.c.pg_report(PgId { pool: POOL, seed: 0 }, &[0, 1], 5);
        report.purged_snaps = self.c.mon.osd_map().removed_snaps_queue[&POOL].clone();
        self.c.report(self.osds[0], 0, vec![report]);
        self.c.run(2);
        assert!(!self.c.mon.osd_map().removed_snaps_queue.contains_key(&POOL), "still in the queue");
    }
}

#[test]
fn a_removal_takes_effect_once_also_when_it_was_trimmed_long_ago() {
    let mut r = Run::new();
    assert_eq!([r.create(), r.create(), r.create()], [2, 3, 4]);
    // The removal takes a number itself; that one was never a snapshot.
    assert_eq!(r.remove_and_create(2), (0, 6));
    assert_eq!(r.remove_and_create(2), (0, 7));
    assert_eq!(r.remove_and_create(5), (0, 8));
    assert_eq!(r.remove_and_create(6), (0, 10));
    assert_eq!(r.remove_and_create(1), (0, 12));
    assert_eq!(r.remove_and_create(0), (0, 14));
    assert_eq!(r.remove_and_create(100), (-2, 15));
    r.trim_all();
    assert_eq!(r.remove_and_create(2), (0, 16));
    r.c = r.c.restart();
    r.client = r.c.client();
    assert_eq!(r.remove_and_create(6), (0, 17));
    assert_eq!(r.remove_and_create(5), (0, 18));
    assert_eq!(r.remove_and_create(3), (0, 20), "this one is there");
}

#[test]
fn what_was_done_already_succeeds_again() {
    let mut r = Run::new();
    assert_eq!(r.remove(2), -95, "a pool without snapshots");
    for _ in 0..2 {
        assert_eq!(r.op(PoolOpKind::Create, 0, "p").code, 0);
        assert_eq!(r.op(PoolOpKind::CreateSnap, 0, "s").code, 0);
    }
    assert_eq!(r.c.mon.osd_map().pool(POOL).unwrap().snaps.len(), 1);
    for _ in 0..2 {
        assert_eq!(r.op(PoolOpKind::DeleteSnap, 0, "s").code, 0);
    }
    assert_eq!(r.c.mon.osd_map().pool(POOL).unwrap().snap_seq, SnapId(2));
    assert_eq!(r.remove(1), -22, "the other kind of snapshots");
}

#[test]
fn a_pool_that_goes_takes_the_notes_of_its_snapshots_along() {
    let mut r = Run::new();
    let snap = r.create();
    r.remove(snap);
    r.trim_all();
    let noted = |r: &Run| r.c.mon.store().list(crate::keys::PURGED_SNAPS).unwrap().len();
    assert_eq!(noted(&r), 1);
    assert_eq!(r.op(PoolOpKind::Delete, 0, "").code, 0);
    assert_eq!(noted(&r), 0);
}
