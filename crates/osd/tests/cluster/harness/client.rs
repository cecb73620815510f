//! Toy clients: they send to the primary that their map names, again when it names another.

use super::*;

pub struct PendingOp {
    pub op: MOsdOp,
    pub(super) attempts: i32,
    pub(super) target: Option<(usize, u64)>,
    sent: Time,
}

#[derive(Default)]
pub struct Client {
    pub epoch: Epoch,
    next_tid: u64,
    pub pending: BTreeMap<u64, PendingOp>,
    pub replies: BTreeMap<u64, (Time, MOsdOpReply)>,
    pub(super) sessions: BTreeSet<(usize, u64)>,
    /// Does not follow new maps: keeps talking to whom it knew.
    pub frozen: bool,
    /// OSD, its life, PG.
    pub backoffs: BTreeSet<(usize, u64, PgId)>,
    /// Of watches and notifications, oldest first.
    pub told: Vec<MWatchNotify>,
}

impl World {
    pub fn submit(&mut self, client: usize, object: &str, ops: Vec<OsdOp>) -> u64 {
        self.submit_at(client, object, ops, SnapId::HEAD, &[])
    }

    /// Of a snapshot, or under these snapshots, the newest first.
    pub fn submit_at(
        &mut self,
        client: usize,
        object: &str,
        ops: Vec<OsdOp>,
        snap: SnapId,
        under: &[SnapId],
    ) -> u64 {
        let write = ops.iter().any(|o| o.code.is_write());
        let locator = ObjectLocator::pool(POOL);
        let hash = placement_hash(&locator, object);
        let op = MOsdOp {
            pg: SpgId::replicated(PgId { pool: POOL, seed: 0 }),
            raw_hash: hash,
            epoch: Epoch(0),
            flags: if write { flags::WRITE } else { flags::READ } | flags::ONDISK,
            reqid: None,
            client_inc: 0,
            mtime: WallTime { sec: 1, nsec: 1 },
            locator,
            object: object.into(),
            ops,
            snap,
            snap_seq: under.first().copied().unwrap_or(SnapId(0)),
            snaps: under.to_vec(),
            retry_attempt: 0,
            features: 0,
        };
        let c = &mut self.clients[client];
        c.next_tid += 1;
        let tid = ((client as u64) << 32) | c.next_tid;
        if c.epoch.0 == 0 {
            c.epoch = self.mon.map.epoch;
        }
        c.pending.insert(tid, PendingOp { op, attempts: 0, target: None, sent: Time::ZERO });
        self.send_op(client, tid);
        tid
    }

    pub(super) fn send_op(&mut self, client: usize, tid: u64) {
        let epoch = self.clients[client].epoch;
        let map = self.mon.maps[&epoch].clone();
        let delay = self.delay();
        let Some(pending) = self.clients[client].pending.get_mut(&tid) else { return };
        let Some(pool) = map.pool(POOL) else { return };
        pending.op.pg = SpgId::replicated(pool.raw_hash_to_pg(POOL, pending.op.raw_hash));
        pending.op.epoch = epoch;
        let pending_pg = pending.op.pg.pg;
        let primary = pg_to_up_acting(&map, &self.mon.crush, pending_pg).acting_primary;
        pending.op.retry_attempt = pending.attempts;
        pending.attempts += 1;
        pending.target = None;
        pending.sent = self.now;
        let Some(primary) = primary else { return };
        let osd = primary.0 as usize;
        let Some(node) = &self.nodes[osd] else { return };
        let life = node.life;
        // An old map means an old address.
        if map.client_addrs(primary) != Some(&node.osd.config().client_addrs) {
            return;
        }
        if self.clients[client].backoffs.contains(&(osd, life, pending_pg)) {
            return;
        }
        let Some(pending) = self.clients[client].pending.get_mut(&tid) else { return };
        pending.target = Some((osd, life));
        let message = Outgoing::new(&pending.op, tid, Features::PACIFIC);
        self.after_in_order((3, osd, client as u64), delay, Event::ToOsd { osd, life, message });
    }

    pub(super) fn retarget(&mut self, client: usize) {
        let tids: Vec<u64> = self.clients[client].pending.keys().copied().collect();
        for tid in tids {
            self.send_op(client, tid);
        }
    }

    /// Sends again what is unanswered, as after a lost connection.
    pub fn resend(&mut self, client: usize) {
        self.retarget(client);
    }

    /// The client's connections break; it dials again when it has something to say.
    pub fn disconnect(&mut self, client: usize) {
        for (osd, _) in std::mem::take(&mut self.clients[client].sessions) {
            self.with(osd, |o, ctx| o.on_client_close(ctx, SessionId(client as u64)));
        }
    }

    pub(super) fn on_backoff(&mut self, osd: usize, life: u64, client: usize, message: Outgoing) {
        let backoff: MOsdBackoff = incoming(message).decode(Features::PACIFIC).unwrap();
        let key = (osd, life, backoff.pg.pg);
        let c = &mut self.clients[client];
        if backoff.op == BackoffOp::Block {
            c.backoffs.insert(key);
            let ack = MOsdBackoff { op: BackoffOp::AckBlock, ..backoff };
            // The session is known by what carries it.
            let message = Outgoing::new(&ack, (client as u64) << 32, Features::PACIFIC);
            let delay = self.delay();
            return self.after_in_order((3, osd, client as u64), delay, Event::ToOsd { osd, life, message });
        }
        assert!(c.backoffs.remove(&key), "unblocked what was not blocked");
        let held = c.pending.iter().filter(|(_, p)| p.op.pg.pg == backoff.pg.pg);
        for tid in held.map(|(tid, _)| *tid).collect::<Vec<_>>() {
            self.send_op(client, tid);
        }
    }

    pub(super) fn on_reply(&mut self, message: Outgoing) {
        if message.kind != MOsdOpReply::KIND {
            return;
        }
        let tid = message.tid;
        let client = (tid >> 32) as usize;
        let reply: MOsdOpReply = incoming(message).decode(Features::PACIFIC).unwrap();
        let c = &mut self.clients[client];
        let Some(pending) = c.pending.get(&tid) else { return };
        if reply.retry_attempt != pending.attempts - 1 {
            return;
        }
        c.pending.remove(&tid);
        c.replies.insert(tid, (self.now, reply));
    }

    #[track_caller]
    pub fn wait(&mut self, tid: u64) -> MOsdOpReply {
        let client = (tid >> 32) as usize;
        self.run_until("a reply", Duration::from_secs(30), |w| w.clients[client].replies.contains_key(&tid));
        self.clients[client].replies[&tid].1.clone()
    }

    #[track_caller]
    pub fn write(&mut self, object: &str, data: &[u8]) -> MOsdOpReply {
        let tid = self.submit(0, object, vec![write_full(data)]);
        let reply = self.wait(tid);
        assert_eq!(reply.result, 0, "{object}");
        reply
    }

    #[track_caller]
    pub fn read(&mut self, object: &str) -> Option<Bytes> {
        let tid = self.submit(0, object, vec![read_all()]);
        let reply = self.wait(tid);
        match reply.result {
            -2 => None,
            result => {
                assert!(result >= 0, "{object}: {result}");
                Some(reply.ops[0].outdata.clone())
            }
        }
    }
}

pub fn client_addr(client: usize) -> EntityAddr {
    let socket = format!("10.9.0.{}:0", client + 1).parse().unwrap();
    EntityAddr { kind: AddrType::Any, nonce: client as u32 + 100, socket: Some(socket) }
}

pub fn write_full(data: &[u8]) -> OsdOp {
    let args = ExtentArgs::new(0, data.len() as u64).into_args();
    OsdOp::new(OpCode::WRITEFULL, args, Bytes::copy_from_slice(data))
}

pub fn append(data: &[u8]) -> OsdOp {
    let args = ExtentArgs::new(0, data.len() as u64).into_args();
    OsdOp::new(OpCode::APPEND, args, Bytes::copy_from_slice(data))
}

pub fn read_all() -> OsdOp {
    OsdOp::new(OpCode::READ, ExtentArgs::new(0, 0).into_args(), Bytes::new())
}

pub fn delete() -> OsdOp {
    OsdOp::new(OpCode::DELETE, [0; 28], Bytes::new())
}
