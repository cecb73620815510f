//! The client against maps and answers made up by hand.

mod watches;

use super::*;
use crate::ops;
use crush::FailureDomain;
use std::net::{Ipv4Addr, SocketAddr};
use wire::Encode;
use wire::maps::{OsdMapIncremental, OsdState, PoolType};
use wire::messages::MMonGetVersion;
use wire::types::{EntityAddrVec, PgId};

const POOL: PoolId = PoolId(1);
const EAGAIN: i32 = -11;

/// A monitor's and three OSDs' part of the conversation.
struct World {
    map: OsdMap,
    client: Client,
    actions: Vec<Action>,
}

fn addrs(osd: i32, nonce: u32) -> EntityAddrVec {
    let port = 6800 + u16::try_from(osd).unwrap();
    EntityAddrVec::one(EntityAddr::msgr2(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), nonce))
}

fn first_map() -> OsdMap {
    let mut crush = CrushMap::new_cluster(FailureDomain::Osd);
    let mut map = OsdMap {
        fsid: Uuid::from_random(1, 2),
        epoch: Epoch(10),
        flags: OsdMapFlags::FRESH,
        ..OsdMap::default()
    };
    map.set_max_osd(3);
    for osd in 0..3 {
        crush.boot_device(osd, 0x10000, None, "host").unwrap();
        let i = usize::try_from(osd).unwrap();
        map.osd_state[i] = OsdState::EXISTS | OsdState::UP;
        map.osd_weight[i] = OsdMap::WEIGHT_IN;
        map.client_addrs[i] = addrs(osd, 1);
    }
    map.crush = crush.encode();
    let mut pool = PgPool {
        pool_type: PoolType::Replicated,
        size: 2,
        min_size: 1,
        flags: PoolFlags::HASHPSPOOL,
        ..PgPool::default()
    };
    pool.set_pg_num(8);
    map.pools.insert(POOL, pool);
    map.pool_names.insert(POOL, "data".into());
    map.pool_max = 1;
    map
}

fn incoming<P: Payload>(payload: &P, tid: u64) -> Incoming {
    let out = Outgoing::new(payload, tid, Features::PACIFIC);
    let data = Bytes::from(out.data.concat());
    Incoming { kind: out.kind, version: out.version, tid, front: out.front, data }
}

impl World {
    /// Connected to the monitor, without a map.
    fn unmapped() -> World {
        let client = Client::new(ClientConfig { hostname: "test".into() });
        let mut world = World { map: first_map(), client, actions: Vec::new() };
        world.client.on_mon_open(Features::PACIFIC);
        world
    }

    fn new() -> World {
        let mut world = World::unmapped();
        world.send_full();
        world.take();
        world
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
            .into_iter()
            .chain(std::iter::from_fn(|| self.client.poll_action()))
            .collect()
    }

    /// Requests sent: (OSD, tid, attempt, epoch). Sessions asked for open at once.
    fn sent(&mut self) -> Vec<(OsdId, u64, i32, Epoch)> {
        self.requests().into_iter().map(|(osd, tid, op)| (osd, tid, op.retry_attempt, op.epoch)).collect()
    }

    /// The same, whole: OSD, tid, request.
    fn requests(&mut self) -> Vec<(OsdId, u64, MOsdOp)> {
        let mut sent = Vec::new();
        let mut queue: VecDeque<Action> = self.take().into();
        while let Some(action) = queue.pop_front() {
            match action {
                Action::ConnectOsd { osd, .. } => {
                    self.client.on_osd_open(osd);
                    queue.extend(std::iter::from_fn(|| self.client.poll_action()));
                }
                Action::SendOsd { osd, message } if message.kind == MOsdOp::KIND => {
                    sent.push((osd, message.tid, decode(&message)));
                }
                other => self.actions.push(other),
            }
        }
        sent
    }

    fn tids(&mut self) -> Vec<u64> {
        self.sent().into_iter().map(|(_, tid, _, _)| tid).collect()
    }

    fn send_full(&mut self) {
        let full = self.map.to_bytes(Features::PACIFIC);
        let fulls = BTreeMap::from([(self.map.epoch, full)]);
        let message = MOsdMap { fsid: self.map.fsid, fulls, newest: self.map.epoch, ..MOsdMap::default() };
        self.client.on_mon_message(&incoming(&message, 0)).unwrap();
    }

    /// The next epoch, with a change; returns the encoded incremental.
    fn advance(&mut self, change: impl FnOnce(&mut OsdMapIncremental)) -> Bytes {
        let mut inc = OsdMapIncremental::new(self.map.fsid, self.map.epoch.next());
        change(&mut inc);
        self.map = inc.seal(&self.map).unwrap();
        inc.to_bytes(Features::PACIFIC)
    }

    fn send_incrementals(&mut self, incs: Vec<Bytes>) {
        let first = self.map.epoch.0 + 1 - u32::try_from(incs.len()).unwrap();
        let incrementals = (first..).map(Epoch).zip(incs).collect();
        let message =
            MOsdMap { fsid: self.map.fsid, incrementals, newest: self.map.epoch, ..MOsdMap::default() };
        self.client.on_mon_message(&incoming(&message, 0)).unwrap();
    }

    fn change(&mut self, change: impl FnOnce(&mut OsdMapIncremental)) {
        let inc = self.advance(change);
        self.send_incrementals(vec![inc]);
    }

    fn write(&mut self, object: &str) -> RequestId {
        let ops = vec![ops::write_full(Bytes::from_static(b"x"))];
        self.client.submit(ObjectRequest::new(POOL, object, ops), WallTime::ZERO)
    }

    fn target(&self, object: &str) -> Target {
        let request = ObjectRequest::new(POOL, object, vec![]);
        let crush = CrushMap::decode(&self.map.crush).unwrap();
        Target::calc(&self.map, &crush, &request).unwrap()
    }

    fn primary(&self, object: &str) -> OsdId {
        self.target(object).primary().unwrap()
    }

    fn reply(&mut self, osd: OsdId, id: RequestId, result: i32, retry_attempt: i32) {
        self.reply_with(osd, id, result, retry_attempt, vec![]);
    }

    fn reply_with(&mut self, osd: OsdId, id: RequestId, result: i32, retry_attempt: i32, ops: Vec<OpResult>) {
        let reply = MOsdOpReply {
            object: Default::default(),
            pg: PgId { pool: POOL, seed: 0 },
            flags: 0,
            result,
            bad_replay_version: Default::default(),
            epoch: self.map.epoch,
            ops,
            retry_attempt,
            replay_version: Default::default(),
            user_version: 1,
        };
        self.client.on_osd_message(osd, &incoming(&reply, id.0)).unwrap();
    }

    fn backoff(&mut self, osd: OsdId, op: BackoffOp, object: &str) {
        let target = self.target(object);
        let begin = hobject(&ObjectRequest::new(POOL, object, vec![]), &target);
        let message = MOsdBackoff {
            pg: SpgId::replicated(target.pg),
            epoch: self.map.epoch,
            op,
            id: 7,
            end: begin.clone(),
            begin,
        };
        self.client.on_osd_message(osd, &incoming(&message, 0)).unwrap();
    }

    fn completions(&mut self) -> Vec<(RequestId, i32)> {
        let done = |action| match action {
            Action::Complete(id, Completion::Object { result, .. } | Completion::Command { result, .. }) => {
                Some((id, result))
            }
            _ => None,
        };
        self.take().into_iter().filter_map(done).collect()
    }

    fn messages_to_mon<P: Payload>(&mut self) -> Vec<P> {
        let payload = |action| match action {
            Action::SendMon(message) if message.kind == P::KIND => Some(decode(&message)),
            _ => None,
        };
        self.take().into_iter().filter_map(payload).collect()
    }
}

fn decode<P: Payload>(message: &Outgoing) -> P {
    let data = Bytes::from(message.data.concat());
    let Outgoing { kind, version, tid, front, .. } = message.clone();
    Incoming { kind, version, tid, front, data }.decode(Features::PACIFIC).unwrap()
}

fn down(osd: OsdId) -> impl FnOnce(&mut OsdMapIncremental) {
    move |inc| {
        inc.new_state.insert(osd, OsdState::UP);
    }
}

fn up(osd: OsdId, nonce: u32) -> impl FnOnce(&mut OsdMapIncremental) {
    move |inc| {
        for list in [
            &mut inc.new_up_client,
            &mut inc.new_up_cluster,
            &mut inc.new_hb_back_up,
            &mut inc.new_hb_front_up,
        ] {
            list.insert(osd, addrs(osd.0, nonce));
        }
    }
}

#[test]
fn request_waits_for_the_first_map_and_goes_to_the_primary() {
    let mut world = World::unmapped();
    let id = world.write("a");
    assert_eq!(world.sent(), []);
    world.send_full();
    let primary = world.primary("a");
    assert_eq!(world.sent(), [(primary, id.0, 0, Epoch(10))]);
    world.reply(primary, id, 0, 0);
    assert_eq!(world.completions(), [(id, 0)]);
    assert_eq!(world.client.pending(), 0);
}

#[test]
fn requests_to_one_object_leave_in_order_after_every_kind_of_interruption() {
    let mut world = World::new();
    let ids: Vec<u64> = (0..5).map(|_| world.write("a").0).collect();
    assert_eq!(world.tids(), ids);
    let primary = world.primary("a");
    // The connection is lost and made again; one more came meanwhile.
    world.client.on_osd_closed(primary);
    let late = world.write("a").0;
    assert_eq!(world.sent(), []);
    world.client.reconnect_osd(primary);
    let all: Vec<u64> = ids.iter().copied().chain([late]).collect();
    assert_eq!(world.tids(), all);
    // The primary dies: the other copy's OSD gets them, same tids, in order.
    world.change(down(primary));
    let sent = world.sent();
    let other = world.primary("a");
    assert_ne!(other, primary);
    assert_eq!(sent.iter().map(|s| s.1).collect::<Vec<_>>(), all);
    assert!(sent.iter().all(|s| s.0 == other && s.3 == Epoch(11)));
}

#[test]
fn map_that_leaves_the_interval_alone_resends_nothing() {
    let mut world = World::new();
    world.write("a");
    assert_eq!(world.tids().len(), 1);
    let bystander = (0..3).map(OsdId).find(|osd| !world.target("a").up_acting.acting.contains(*osd)).unwrap();
    world.change(down(bystander));
    assert_eq!(world.sent(), []);
}

#[test]
fn replica_that_left_and_returned_within_one_message_makes_a_new_interval() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, tid, attempt, _) = world.sent()[0];
    assert_eq!((tid, attempt), (id.0, 0));
    let replica = world.target("a").up_acting.acting.0[1];
    let before = world.target("a");
    let incs = vec![world.advance(down(replica)), world.advance(up(replica, 1))];
    assert_eq!(world.target("a").up_acting, before.up_acting);
    world.send_incrementals(incs);
    assert_eq!(world.sent(), [(primary, id.0, 1, Epoch(12))]);
    // The answer to the first attempt does not count, the second's does.
    world.reply(primary, id, 0, 0);
    assert_eq!(world.completions(), []);
    world.reply(primary, id, 0, 1);
    assert_eq!(world.completions(), [(id, 0)]);
}

#[test]
fn skipped_epochs_resend_everything() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, ..) = world.sent()[0];
    world.advance(|_| ());
    world.advance(|_| ());
    world.send_full();
    assert_eq!(world.sent(), [(primary, id.0, 1, Epoch(12))]);
    // The next one in line is no gap.
    world.advance(|_| ());
    world.send_full();
    assert_eq!(world.sent(), []);
}

#[test]
fn gap_that_no_full_map_bridges_is_asked_for() {
    let mut world = World::new();
    world.advance(|_| ());
    let inc = world.advance(|_| ());
    world.send_incrementals(vec![inc]);
    assert_eq!(world.client.map().unwrap().epoch, Epoch(10));
    let asked: Vec<MMonSubscribe> = world.messages_to_mon();
    assert_eq!(asked[0].what["osdmap"], Subscription { start: 11, once: false });
}

#[test]
fn incremental_that_does_not_fit_asks_for_the_full_map() {
    let mut world = World::new();
    let mut inc = OsdMapIncremental::new(world.map.fsid, Epoch(11));
    inc.seal(&world.map).unwrap();
    inc.full_crc ^= 1;
    let incrementals = BTreeMap::from([(Epoch(11), inc.to_bytes(Features::PACIFIC))]);
    let message = MOsdMap { fsid: world.map.fsid, incrementals, newest: Epoch(11), ..MOsdMap::default() };
    world.client.on_mon_message(&incoming(&message, 0)).unwrap();
    let asked: Vec<MMonSubscribe> = world.messages_to_mon();
    assert_eq!(asked[0].what["osdmap"].start, 0);
    world.change(|_| ());
    assert_eq!(world.client.map().unwrap().epoch, Epoch(11));
}

#[test]
fn map_of_another_cluster_is_ignored() {
    let mut world = World::new();
    world.map.fsid = Uuid::from_random(3, 4);
    world.map.epoch = Epoch(50);
    world.send_full();
    assert_eq!(world.client.map().unwrap().epoch, Epoch(10));
}

#[test]
fn osd_that_restarted_gets_a_new_session() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, ..) = world.sent()[0];
    let incs = vec![world.advance(down(primary)), world.advance(up(primary, 2))];
    world.send_incrementals(incs);
    let actions = world.take();
    assert!(matches!(actions[0], Action::DisconnectOsd(osd) if osd == primary));
    assert!(actions.iter().any(|a| matches!(a, Action::ConnectOsd { osd, addr }
        if *osd == primary && addr.nonce == 2)));
    world.client.on_osd_open(primary);
    assert_eq!(world.sent(), [(primary, id.0, 1, Epoch(12))]);
}

#[test]
fn without_any_osd_up_requests_wait() {
    let mut world = World::new();
    for osd in 0..3 {
        world.change(down(OsdId(osd)));
    }
    world.take();
    let id = world.write("a");
    assert_eq!(world.sent(), []);
    world.change(up(OsdId(0), 2));
    assert_eq!(world.sent(), [(OsdId(0), id.0, 0, Epoch(14))]);
}

#[test]
fn eagain_is_sent_again_under_the_same_tid() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, ..) = world.sent()[0];
    world.reply(primary, id, EAGAIN, 0);
    assert_eq!(world.sent(), [(primary, id.0, 1, Epoch(10))]);
    world.reply(primary, id, 0, 1);
    assert_eq!(world.completions(), [(id, 0)]);
}

#[test]
fn reply_that_names_no_attempt_counts() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, ..) = world.sent()[0];
    world.reply(primary, id, 0, -1);
    assert_eq!(world.completions(), [(id, 0)]);
    // And a second one changes nothing.
    world.reply(primary, id, 0, -1);
    assert_eq!(world.completions(), []);
}

#[test]
fn backoff_holds_an_object_until_it_is_lifted() {
    let mut world = World::new();
    let first = world.write("a");
    let (primary, ..) = world.sent()[0];
    world.backoff(primary, BackoffOp::Block, "a");
    let acks: Vec<MOsdBackoff> = world
        .take()
        .into_iter()
        .filter_map(|action| match action {
            Action::SendOsd { message, .. } if message.kind == MOsdBackoff::KIND => Some(decode(&message)),
            _ => None,
        })
        .collect();
    assert_eq!((acks[0].op, acks[0].id), (BackoffOp::AckBlock, 7));
    let second = world.write("a");
    assert_eq!(world.sent(), []);
    world.backoff(primary, BackoffOp::Unblock, "a");
    assert_eq!(world.tids(), [first.0, second.0]);
}

#[test]
fn backoff_ends_with_its_session() {
    let mut world = World::new();
    let id = world.write("a");
    let (primary, ..) = world.sent()[0];
    world.backoff(primary, BackoffOp::Block, "a");
    world.client.on_osd_closed(primary);
    world.client.reconnect_osd(primary);
    assert_eq!(world.sent(), [(primary, id.0, 1, Epoch(10))]);
}

#[test]
fn writes_wait_while_the_cluster_is_full_and_reads_do_not() {
    let mut world = World::new();
    world.change(|inc| inc.new_flags = Some(OsdMapFlags::FRESH | OsdMapFlags::FULL));
    let write = world.write("a");
    let read = world.client.submit(ObjectRequest::new(POOL, "a", vec![ops::read(0, 1)]), WallTime::ZERO);
    assert_eq!(world.tids(), [read.0]);
    let mut insists = ObjectRequest::new(POOL, "a", vec![ops::delete()]);
    insists.extra_flags = flags::FULL_TRY;
    let insists = world.client.submit(insists, WallTime::ZERO);
    assert_eq!(world.tids(), [insists.0]);
    world.change(|inc| inc.new_flags = Some(OsdMapFlags::FRESH));
    assert_eq!(world.tids(), [write.0]);
}

#[test]
fn removed_pool_ends_its_requests() {
    let mut world = World::new();
    let id = world.write("a");
    world.sent();
    world.change(|inc| {
        inc.old_pools.insert(POOL);
    });
    assert_eq!(world.completions(), [(id, -2)]);
    let later = world.write("a");
    assert_eq!(world.completions(), [(later, -2)]);
}

#[test]
fn pool_newer_than_the_map_is_awaited_and_one_that_never_comes_fails() {
    let mut world = World::new();
    let new = PoolId(2);
    let read = |pool| ObjectRequest::new(pool, "a", vec![ops::read(0, 1)]);
    let id = world.client.submit(read(new), WallTime::ZERO);
    let never = world.client.submit(read(PoolId(99)), WallTime::ZERO);
    let asked: Vec<MMonGetVersion> = world.messages_to_mon();
    assert_eq!(asked.iter().map(|m| m.handle).collect::<Vec<_>>(), [id.0, never.0]);
    for id in [id, never] {
        let reply = MMonGetVersionReply { handle: id.0, newest: 11, oldest: 1 };
        world.client.on_mon_message(&incoming(&reply, id.0)).unwrap();
    }
    assert_eq!(world.completions(), []);
    let pool = world.map.pools[&POOL].clone();
    world.change(|inc| {
        inc.new_pool_max = 2;
        inc.new_pools.insert(new, pool);
        inc.new_pool_names.insert(new, "new".into());
    });
    assert_eq!(world.completions(), [(never, -2)]);
    world.client.on_osd_open(OsdId(0));
    world.client.on_osd_open(OsdId(1));
    world.client.on_osd_open(OsdId(2));
    assert_eq!(world.tids(), [id.0]);
}

#[test]
fn listing_of_a_pg_that_does_not_exist_fails() {
    let mut world = World::new();
    let mut request = ObjectRequest::new(POOL, "", vec![]);
    request.pg = Some(PgId { pool: POOL, seed: 8 });
    let id = world.client.submit(request, WallTime::ZERO);
    assert_eq!(world.completions(), [(id, -2)]);
}

#[test]
fn command_waits_for_the_cluster_id_and_survives_the_monitor() {
    let mut world = World::unmapped();
    let id = world.client.command("{}".into(), Bytes::new());
    let sent: Vec<MMonCommand> = world.messages_to_mon();
    assert!(sent.is_empty());
    world.send_full();
    let sent: Vec<MMonCommand> = world.messages_to_mon();
    assert_eq!(sent[0].fsid, world.map.fsid);
    world.client.on_mon_closed();
    world.client.on_mon_open(Features::PACIFIC);
    let sent: Vec<MMonCommand> = world.messages_to_mon();
    assert_eq!(sent.len(), 1);
    let ack =
        MMonCommandAck { version: 0, result: 0, status: String::new(), cmd: vec![], output: Bytes::new() };
    world.client.on_mon_message(&incoming(&ack, id.0)).unwrap();
    assert_eq!(world.completions(), [(id, 0)]);
}

#[test]
fn damaged_messages_are_errors() {
    let mut world = World::new();
    let junk =
        |kind| Incoming { kind, version: 8, tid: 1, front: Bytes::from_static(&[7; 40]), data: Bytes::new() };
    assert!(world.client.on_mon_message(&junk(MOsdMap::KIND)).is_err());
    assert!(world.client.on_osd_message(OsdId(0), &junk(MOsdOpReply::KIND)).is_err());
    assert!(world.client.on_osd_message(OsdId(0), &junk(MOsdBackoff::KIND)).is_err());
}
