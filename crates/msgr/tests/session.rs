//! Both ends of a session, stepped in memory.

mod common;

use base::{Duration, Errno, Random, Time};
use bytes::Bytes;
use common::*;
use msgr::auth::*;
use msgr::{FrameError, OutMessage, Session, SessionError, SessionEvent, Tag};
use wire::Features;
use wire::types::{AddrType, EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

fn messages(events: &[SessionEvent]) -> Vec<&msgr::Message> {
    let mut found = Vec::new();
    for event in events {
        if let SessionEvent::Message(m) = event {
            found.push(m);
        }
    }
    found
}

#[test]
fn both_ends_learn_who_the_other_is() {
    let (mut client, mut mon) = (connect(client_config()), accept(mon_config()));
    let (at_client, at_mon) = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap();
    let [SessionEvent::NeedGlobalId { name, claimed: None }, SessionEvent::Ready(peer)] = &at_mon[..] else {
        panic!("{at_mon:?}")
    };
    assert_eq!(name.to_string(), "client.admin");
    assert_eq!(peer.entity, EntityName::client(ASSIGNED.0 as i64));
    assert_eq!((&peer.auth_name, peer.global_id), (name, ASSIGNED));
    // The client's address is the one the monitor saw, without the port.
    let learned = EntityAddr { kind: AddrType::Any, nonce: 77, socket: Some(socket("10.0.0.9:0")) };
    assert_eq!(peer.addrs, EntityAddrVec::one(learned));
    assert_eq!((peer.socket, peer.lossy), (socket(CLIENT_SOCKET), true));

    let [SessionEvent::Ready(peer)] = &at_client[..] else { panic!("{at_client:?}") };
    assert_eq!((peer.entity, peer.global_id), (EntityName::mon(0), ASSIGNED));
    assert_eq!(peer.own_addr.socket, Some(socket(CLIENT_SOCKET)));
    assert!(peer.lossy);
}

#[test]
fn osd_takes_the_global_id_that_the_peer_brings() {
    let osd_addr = EntityAddr::msgr2(socket("127.0.0.1:6801"), 99);
    let mut server = mon_config();
    server.entity = EntityName::osd(3);
    server.addrs = EntityAddrVec::one(osd_addr);
    server.auth = Box::new(AuthNoneServer::new(AuthRole::Service));
    let mut client = client_config();
    let name = AuthName::new(EntityType::Client, "admin");
    client.entity = EntityName::client(512);
    client.auth = Box::new(AuthNoneClient::new(AuthRole::Service, name, GlobalId(512)));
    (client.target, client.target_kind) = (osd_addr, EntityType::Osd);
    let (mut client, mut osd) = (connect(client), accept(server));
    let (_, at_osd) = settle(&mut client, &mut osd, &mut Cut::Bytes(1)).unwrap();
    let [SessionEvent::Ready(peer)] = &at_osd[..] else { panic!("{at_osd:?}") };
    assert_eq!((peer.entity, peer.global_id), (EntityName::client(512), GlobalId(512)));
    assert_eq!(client.peer().unwrap().entity, EntityName::osd(3));
}

fn patterned(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

#[test]
fn messages_survive_any_chunking() {
    let cuts = [Cut::Whole, Cut::Bytes(1), Cut::Bytes(7), Cut::Random(Random::from_seed(1))];
    for mut cut in cuts {
        let (mut client, mut mon) = ready_pair();
        let mut sent = Vec::new();
        for (i, (front, middle, data)) in
            [(0, 0, 0), (1, 0, 0), (0, 0, 5), (48, 0, 4096), (3, 2, 1), (0, 9, 0), (5000, 0, 70_000)]
                .into_iter()
                .enumerate()
        {
            let rope = patterned(data);
            let (head, tail) = (rope.slice(..data / 3), rope.slice(data / 3..));
            let out = OutMessage {
                kind: 40 + i as u16,
                tid: i as u64 * 1000,
                priority: 63,
                version: 8,
                compat: 3,
                front: patterned(front),
                middle: patterned(middle),
                data: vec![head, Bytes::new(), tail],
            };
            client.send(out.clone()).unwrap();
            mon.send(out.clone()).unwrap();
            sent.push((out, rope));
        }
        let (at_client, at_mon) = settle(&mut client, &mut mon, &mut cut).unwrap();
        for seen in [messages(&at_client), messages(&at_mon)] {
            assert_eq!(seen.len(), sent.len());
            for (m, (out, rope)) in seen.iter().zip(&sent) {
                assert_eq!((m.kind, m.tid, m.priority), (out.kind, out.tid, out.priority));
                assert_eq!((m.version, m.compat), (out.version, out.compat));
                assert_eq!((&m.front, &m.middle, &m.data), (&out.front, &out.middle, rope));
            }
        }
    }
}

#[test]
fn large_payloads_are_neither_copied_out_nor_in() {
    let (mut client, mut mon) = ready_pair();
    let data = patterned(1 << 20);
    client.send(OutMessage::new(42, 1, 8, 3, patterned(200)).with_data(vec![data.clone()])).unwrap();
    let mut pieces = Vec::new();
    while let Some(piece) = client.poll_output() {
        pieces.push(piece);
    }
    assert!(pieces.iter().any(|p| p.as_ptr() == data.as_ptr() && p.len() == data.len()));
    // Delivered in the same pieces, the payload is the very same memory.
    pieces.into_iter().for_each(|p| mon.on_bytes(p).unwrap());
    let seen = events(&mut mon);
    assert_eq!(messages(&seen)[0].data.as_ptr(), data.as_ptr());
}

#[test]
fn many_small_frames_of_one_chunk_share_it() {
    let (mut client, mut mon) = ready_pair();
    for tid in 0..100 {
        client.send(OutMessage::new(42, tid, 8, 3, patterned(180))).unwrap();
    }
    let chunk = output(&mut client);
    let range = chunk.as_ptr_range();
    mon.on_bytes(chunk).unwrap();
    let seen = events(&mut mon);
    assert_eq!(messages(&seen).len(), 100);
    assert!(messages(&seen).iter().all(|m| range.contains(&m.front.as_ptr())));
    assert_eq!(mon.reserved_len(), 0);
}

#[test]
fn oversized_message_is_refused_at_home_and_harmless() {
    let (mut client, mut mon) = ready_pair();
    let piece = Bytes::from(vec![0; 1 << 20]);
    let data = vec![piece; 130];
    let refused = client.send(OutMessage::new(42, 1, 8, 3, Bytes::new()).with_data(data));
    assert!(matches!(refused, Err(SessionError::MessageTooLarge { segment: 3, .. })));
    client.send(OutMessage::new(42, 2, 8, 3, Bytes::new())).unwrap();
    let (_, at_mon) = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap();
    assert_eq!(messages(&at_mon)[0].tid, 2);
}

#[test]
fn nothing_is_sent_before_the_session_is_ready() {
    let mut client = connect(client_config());
    let message = OutMessage::new(5, 0, 1, 0, Bytes::new());
    assert_eq!(client.send(message), Err(SessionError::NotReady));
}

// --- authentication ---------------------------------------------------------

/// A method of two rounds whose signatures depend on a key.
struct ToyServer(u8);
struct ToyClient(u8, AuthMethod);
struct ToySigner(u8);

impl Signer for ToySigner {
    fn sign(&self, transcript: &[u8]) -> [u8; 32] {
        let mut sum = [self.0; 32];
        for (i, byte) in transcript.iter().enumerate() {
            sum[i % 32] = sum[i % 32].wrapping_mul(31).wrapping_add(*byte);
        }
        sum
    }
}

impl AuthServer for ToyServer {
    fn methods(&self) -> &[AuthMethod] {
        &[AuthMethod::Cephx]
    }
    fn on_request(&mut self, _method: AuthMethod, _payload: Bytes) -> ServerStep {
        ServerStep::More(Bytes::from_static(b"challenge"))
    }
    fn on_more(&mut self, payload: Bytes) -> ServerStep {
        if payload != "proof" {
            return ServerStep::Refuse(Errno::EACCES);
        }
        ServerStep::Done(ServerDone {
            name: AuthName::new(EntityType::Client, "toy"),
            global_id: GlobalId(9),
            payload: Bytes::from_static(b"ticket"),
            signer: Some(Box::new(ToySigner(self.0))),
        })
    }
    fn on_global_id(&mut self, _global_id: GlobalId) -> ServerStep {
        ServerStep::Refuse(Errno::EINVAL)
    }
}

impl AuthClient for ToyClient {
    fn method(&self) -> AuthMethod {
        self.1
    }
    fn start(&mut self) -> Bytes {
        Bytes::from_static(b"hello")
    }
    fn on_more(&mut self, payload: Bytes) -> Result<Bytes, &'static str> {
        assert_eq!(payload, "challenge");
        Ok(Bytes::from_static(if self.0 == 0 { b"guess" } else { b"proof" }))
    }
    fn on_done(
        &mut self,
        _global_id: GlobalId,
        payload: Bytes,
    ) -> Result<Option<Box<dyn Signer>>, &'static str> {
        assert_eq!(payload, "ticket");
        Ok(Some(Box::new(ToySigner(self.0))))
    }
}

fn toy_pair(server_key: u8, client_key: u8, method: AuthMethod) -> (Session, Session) {
    let (mut client, mut server) = (client_config(), mon_config());
    client.auth = Box::new(ToyClient(client_key, method));
    server.auth = Box::new(ToyServer(server_key));
    (connect(client), accept(server))
}

#[test]
fn signatures_cover_what_each_side_sent() {
    for mut cut in [Cut::Whole, Cut::Bytes(1)] {
        let (mut client, mut server) = toy_pair(5, 5, AuthMethod::Cephx);
        settle(&mut client, &mut server, &mut cut).unwrap();
        assert_eq!(server.peer().unwrap().auth_name.id, "toy");
        assert!(client.peer().is_some());
    }
}

#[test]
fn signature_with_another_key_ends_the_session() {
    let (mut client, mut server) = toy_pair(5, 6, AuthMethod::Cephx);
    let end = settle(&mut client, &mut server, &mut Cut::Whole);
    assert_eq!(end.unwrap_err(), SessionError::BadSignature);
}

#[test]
fn failed_proof_is_answered_with_an_error_number() {
    let (mut client, mut server) = toy_pair(5, 0, AuthMethod::Cephx);
    let end = settle(&mut client, &mut server, &mut Cut::Whole).unwrap_err();
    assert!(matches!(end, SessionError::AuthRefused { result: -13, .. }), "{end}");
}

#[test]
fn cephx_where_only_none_is_known_is_refused_with_what_is_allowed() {
    let mut client = client_config();
    client.auth = Box::new(ToyClient(1, AuthMethod::Cephx));
    let (mut client, mut mon) = (connect(client), accept(mon_config()));
    let end = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap_err();
    let (method, result) = (AuthMethod::Cephx, -95);
    let allowed = vec![AuthMethod::None];
    assert_eq!(end, SessionError::AuthRefused { method, result, allowed });
}

// --- frames that our own side never sends -----------------------------------

const HELLO: u8 = 1;
const AUTH_REQUEST: u8 = 2;
const AUTH_SIGNATURE: u8 = 7;
const SESSION_RECONNECT: u8 = 11;

fn none_request(modes: &[u32]) -> Vec<u8> {
    let mut body = 1u32.to_le_bytes().to_vec();
    body.extend((modes.len() as u32).to_le_bytes());
    modes.iter().for_each(|m| body.extend(m.to_le_bytes()));
    let payload = b"\x0a\x08\0\0\0\x05\0\0\0admin\0\0\0\0\0\0\0\0";
    body.extend((payload.len() as u32).to_le_bytes());
    body.extend(payload);
    raw::control(AUTH_REQUEST, &body)
}

fn client_hello() -> Vec<u8> {
    let mut out = raw::banner(1, 0);
    let mut body = vec![8];
    body.extend(wire::Encode::to_bytes(&mon_addr(), Features::ALL));
    out.extend(raw::control(HELLO, &body));
    out
}

/// An acceptor that awaits CLIENT_IDENT.
fn authenticated() -> Session {
    let mut mon = accept(mon_config());
    let mut stream = client_hello();
    stream.extend(none_request(&[2, 1]));
    assert_eq!(Cut::Whole.feed(&mut mon, &stream).1, Ok(()));
    mon.on_bytes(raw::control(AUTH_SIGNATURE, &[0; 32]).into()).unwrap();
    output(&mut mon);
    mon
}

#[test]
fn secure_mode_alone_is_refused_and_crc_then_accepted() {
    let mut mon = accept(mon_config());
    let mut stream = client_hello();
    stream.extend(none_request(&[2]));
    mon.on_bytes(stream.into()).unwrap();
    let mut refusal = vec![1, 0, 0, 0];
    refusal.extend((-95i32).to_le_bytes());
    refusal.extend([1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    assert!(output(&mut mon).ends_with(&raw::control(3, &refusal)));
    mon.on_bytes(none_request(&[1]).into()).unwrap();
    assert!(matches!(mon.poll_event(), Some(SessionEvent::NeedGlobalId { .. })));
}

#[test]
fn resumption_is_answered_with_a_full_reset() {
    let mut mon = authenticated();
    let mut body = wire::Encode::to_bytes(&EntityAddrVec::one(mon_addr()), Features::ALL).to_vec();
    body.extend([7; 40]);
    mon.on_bytes(raw::control(SESSION_RECONNECT, &body).into()).unwrap();
    assert_eq!(output(&mut mon), raw::control(12, &[1]));
    assert!(!mon.is_closed());
}

#[test]
fn handshake_without_end_is_cut() {
    let mut mon = accept(mon_config());
    mon.on_bytes(client_hello().into()).unwrap();
    let mut asked = 0;
    let end = loop {
        if let Err(end) = mon.on_bytes(none_request(&[2]).into()) {
            break end;
        }
        asked += 1;
    };
    assert_eq!(end, SessionError::EndlessHandshake);
    assert!(asked < 100);
}

#[test]
fn bytes_before_the_global_id_is_assigned_are_an_error() {
    let mut mon = accept(mon_config());
    let mut stream = client_hello();
    stream.extend(none_request(&[1]));
    stream.extend(none_request(&[1]));
    let end = mon.on_bytes(stream.into()).unwrap_err();
    assert!(matches!(end, SessionError::UnexpectedFrame { tag: Tag::AuthRequest, .. }), "{end}");
}

#[test]
fn unknown_banner_requirements_and_old_revisions_are_named() {
    let end = accept(mon_config()).on_bytes(raw::banner(3, 2).into());
    assert_eq!(end, Err(SessionError::UnknownRequired(2)));
    let end = accept(mon_config()).on_bytes(raw::banner(0, 0).into());
    assert_eq!(end, Err(SessionError::NeedsRevision1(0)));
    let end = accept(mon_config()).on_bytes(Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n"));
    assert_eq!(end, Err(SessionError::BadBanner));
}

#[test]
fn message_before_the_handshake_is_over_is_refused() {
    let mut stream = client_hello();
    stream.extend(raw::message(1, 42, &[b"x"], 0x0e));
    let end = accept(mon_config()).on_bytes(stream.into());
    assert_eq!(end, Err(SessionError::Frame(FrameError::EarlyMessage)));
}

#[test]
fn aborted_frame_is_dropped_and_the_next_one_read() {
    let (_client, mut mon) = ready_pair();
    let mut stream = raw::message(1, 42, &[b"given up"], 0x01);
    stream.extend(raw::message(1, 43, &[b"whole"], 0x0e));
    mon.on_bytes(stream.into()).unwrap();
    let seen = events(&mut mon);
    assert_eq!(messages(&seen).iter().map(|m| m.kind).collect::<Vec<_>>(), [43]);
    let end = mon.on_bytes(raw::message(2, 43, &[b"x"], 0x07).into()).unwrap_err();
    assert!(matches!(end, SessionError::Frame(FrameError::LateStatus { status: 7, .. })));
}

#[test]
fn gap_and_repetition_in_message_numbers_end_the_session() {
    for (second, ok) in [(8, true), (9, false), (7, false)] {
        let (_client, mut mon) = ready_pair();
        mon.on_bytes(raw::message(7, 42, &[], 0).into()).unwrap();
        let end = mon.on_bytes(raw::message(second, 42, &[], 0).into());
        assert_eq!(end.is_ok(), ok, "{end:?}");
    }
}

#[test]
fn handshake_frames_are_refused_once_ready() {
    for tag in (1..=16).chain([21, 0, 255]) {
        let (_client, mut mon) = ready_pair();
        assert!(mon.on_bytes(raw::control(tag, &[0; 40]).into()).is_err(), "tag {tag}");
    }
}

// --- identification ---------------------------------------------------------

#[test]
fn missing_features_are_named_to_the_peer() {
    let mut server = mon_config();
    server.features_required = Features(Features::REQUIRED.0 | 1 << 21);
    let mut client = client_config();
    client.features_supported = Features(Features::PACIFIC.0 & !(1 << 21));
    let (mut client, mut mon) = (connect(client), accept(server));
    let end = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap_err();
    assert_eq!(end, SessionError::MissingFeatures(Features(1 << 21)));
    assert!(!mon.is_closed());
}

#[test]
fn payloads_are_encoded_for_what_both_sides_have() {
    let mut client = client_config();
    client.features_supported = Features(Features::REQUIRED.0 | 1 << 40);
    let (mut client, mut mon) = (connect(client), accept(mon_config()));
    settle(&mut client, &mut mon, &mut Cut::Whole).unwrap();
    let common = Features(Features::REQUIRED.0 | 1 << 40) & Features::PACIFIC;
    assert_eq!(mon.peer().unwrap().features, common);
    assert_eq!(client.peer().unwrap().features, common);
}

#[test]
fn daemon_of_another_life_is_not_mistaken_for_the_one_dialled() {
    let mut client = client_config();
    client.target.nonce = 1;
    let (mut client, mut mon) = (connect(client), accept(mon_config()));
    let end = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap_err();
    assert!(matches!(end, SessionError::NotTheTarget { .. }), "{end}");

    let mut client = client_config();
    client.target.nonce = 1;
    let mut server = mon_config();
    server.check_target = false;
    let (mut client, mut mon) = (connect(client), accept(server));
    let end = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap_err();
    assert!(matches!(end, SessionError::WrongPeerAddr { .. }), "{end}");

    let mut client = client_config();
    client.target_kind = EntityType::Osd;
    let (mut client, mut mon) = (connect(client), accept(mon_config()));
    let end = settle(&mut client, &mut mon, &mut Cut::Whole).unwrap_err();
    assert!(matches!(end, SessionError::WrongPeerType { found: EntityType::Mon, .. }), "{end}");
}

/// A connector that awaits SERVER_IDENT.
fn identifying() -> Session {
    let mut client = connect(client_config());
    let mut stream = raw::banner(1, 0);
    let mut hello = vec![1];
    hello.extend(wire::Encode::to_bytes(&mon_addr(), Features::ALL));
    stream.extend(raw::control(HELLO, &hello));
    let mut done = 5u64.to_le_bytes().to_vec();
    done.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    stream.extend(raw::control(6, &done));
    stream.extend(raw::control(AUTH_SIGNATURE, &[0; 32]));
    client.on_bytes(stream.into()).unwrap();
    output(&mut client);
    client
}

#[test]
fn answers_to_a_resumption_lead_to_a_fresh_ident() {
    const CLIENT_IDENT: u8 = 8;
    for (tag, body) in [(12, vec![1]), (13, vec![0; 8]), (14, 40u64.to_le_bytes().to_vec())] {
        let mut client = identifying();
        client.on_bytes(raw::control(tag, &body).into()).unwrap();
        let again = output(&mut client);
        assert_eq!(again[0], CLIENT_IDENT);
        // global_seq lies before two feature words, flags and cookie.
        let at = again.len() - 4 - 40;
        let global_seq = u64::from_le_bytes(again[at..at + 8].try_into().unwrap());
        assert_eq!(global_seq, if tag == 14 { 41 } else { 1 });
        for _ in 0..30 {
            if client.on_bytes(raw::control(tag, &body).into()).is_err() {
                break;
            }
        }
        assert!(client.is_closed(), "tag {tag} for ever");
    }
    assert_eq!(identifying().on_bytes(raw::control(16, &[]).into()), Err(SessionError::Wait));
}

#[test]
fn lossless_server_gets_acknowledgements() {
    let mut client = identifying();
    let mut ident = wire::Encode::to_bytes(&EntityAddrVec::one(mon_addr()), Features::ALL).to_vec();
    for word in [0, 1, Features::PACIFIC.0, 0, 0, 7] {
        ident.extend(word.to_le_bytes());
    }
    client.on_bytes(raw::control(9, &ident).into()).unwrap();
    assert!(!client.peer().unwrap().lossy);
    client.on_bytes(raw::message(1000, 4, &[b"a"], 0x0e).into()).unwrap();
    client.on_bytes(raw::message(1001, 4, &[b"b"], 0x0e).into()).unwrap();
    assert_eq!(output(&mut client), raw::control(20, &1001u64.to_le_bytes()));
}

// --- time -------------------------------------------------------------------

fn at(sec: u64) -> Time {
    Time::ZERO + Duration::from_secs(sec)
}

#[test]
fn keepalives_keep_a_quiet_session_and_find_a_dead_peer() {
    let (mut client, mut mon) = ready_pair();
    for sec in (0..300).step_by(5) {
        client.on_tick(at(sec)).unwrap();
        mon.on_tick(at(sec)).unwrap();
        settle(&mut client, &mut mon, &mut Cut::Bytes(1)).unwrap();
    }
    let mut ticks = (300..).step_by(5).map(at);
    let end = loop {
        let now = ticks.next().unwrap();
        if let Err(end) = client.on_tick(now) {
            assert!(now <= at(330));
            break end;
        }
    };
    assert_eq!(end, SessionError::PeerDead);
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn stalled_handshake_and_idle_session_end() {
    let mut mon = accept(mon_config());
    mon.on_bytes(client_hello().into()).unwrap();
    assert_eq!(mon.poll_timeout(), Some(at(20)));
    assert_eq!(mon.on_tick(at(20)), Err(SessionError::HandshakeTimeout));
    assert_eq!(mon.on_bytes(Bytes::new()), Err(SessionError::Closed));

    let (_client, mut mon) = ready_pair();
    mon.on_tick(at(1)).unwrap();
    assert_eq!(mon.on_tick(at(901)), Err(SessionError::Idle));
}

#[test]
fn flood_of_keepalives_is_answered_once_per_write() {
    let (_client, mut mon) = ready_pair();
    let mut flood = Vec::new();
    for stamp in 0..10_000u64 {
        flood.extend(raw::control(18, &stamp.to_le_bytes()));
    }
    mon.on_bytes(flood.into()).unwrap();
    assert_eq!(output(&mut mon), raw::control(19, &9_999u64.to_le_bytes()));
}
