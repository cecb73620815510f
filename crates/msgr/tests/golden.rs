//! Streams of a real client and real daemons (fixtures/16.2.15), replayed.

mod common;

use base::{Random, Time};
use bytes::Bytes;
use common::*;
use msgr::auth::{AuthName, AuthNoneClient, AuthNoneServer, AuthRole};
use msgr::{AcceptConfig, Session, SessionEvent};
use std::net::SocketAddr;
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

const MON: &str = "127.0.0.1:4300";
const OSD: &str = "127.0.0.1:6800";
const OSD_NONCE: u32 = 8558;

fn addr(socket: &str, nonce: u32) -> EntityAddr {
    EntityAddr::msgr2(socket.parse::<SocketAddr>().unwrap(), nonce)
}

/// An acceptor where the captured client found the real daemon.
fn daemon(entity: EntityName, addr: EntityAddr, role: AuthRole) -> Session {
    let auth = Box::new(AuthNoneServer::new(role));
    accept(AcceptConfig::new(entity, EntityAddrVec::one(addr), auth))
}

fn kinds(events: &[SessionEvent]) -> Vec<u16> {
    let kind = |e: &SessionEvent| match e {
        SessionEvent::Message(m) => Some(m.kind),
        _ => None,
    };
    events.iter().filter_map(kind).collect()
}

#[test]
fn captured_client_boots_from_our_monitor() {
    for mut cut in [Cut::Whole, Cut::Bytes(1), Cut::Random(Random::from_seed(2))] {
        let mut mon = daemon(EntityName::mon(0), addr(MON, 0), AuthRole::Mon);
        let stream = fixture("mon-bootstrap.client.bin");
        // A real client waits for the answers before it signs; the replay may
        // not run ahead of the global id either.
        let (banner, hello, request) = (26, 32 + 36 + 4, 32 + 38 + 4);
        let (asking, rest) = stream.split_at(banner + hello + request);
        let (mut seen, result) = cut.feed(&mut mon, asking);
        result.unwrap();
        let (rest, result) = cut.feed(&mut mon, rest);
        result.unwrap();
        seen.extend(rest);
        let peer = mon.peer().unwrap();
        assert_eq!(peer.auth_name.to_string(), "client.admin");
        // The bootstrap connection would like to be resumed.
        assert!(peer.cookie != 0 && peer.lossy);
        assert_eq!(kinds(&seen), [5, 15]);
    }
}

#[test]
fn captured_client_writes_to_our_osd() {
    let payload: Bytes = (0..6000usize).map(|i| (7 * i + i / 256) as u8).collect();
    for mut cut in [Cut::Whole, Cut::Bytes(1), Cut::Random(Random::from_seed(3))] {
        let mut osd = daemon(EntityName::osd(0), addr(OSD, OSD_NONCE), AuthRole::Service);
        let (seen, result) = cut.feed(&mut osd, &fixture("osd-write.client.bin"));
        result.unwrap();
        let [SessionEvent::Ready(peer), SessionEvent::Message(op)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!(peer.entity, EntityName::client(peer.global_id.0 as i64));
        assert_eq!(peer.addrs.0[0].socket.unwrap().port(), 0);
        assert_eq!((op.kind, op.version, op.compat, op.priority), (42, 8, 3, 63));
        assert_eq!((op.data.clone(), op.middle.len()), (payload.clone(), 0));
    }
}

#[test]
fn our_client_understands_the_captured_daemons() {
    let cases = [
        ("mon-bootstrap.mon.bin", EntityType::Mon, addr(MON, 0), AuthRole::Mon, vec![4, 62, 4]),
        ("osd-write.osd.bin", EntityType::Osd, addr(OSD, OSD_NONCE), AuthRole::Service, vec![43]),
    ];
    for (file, kind, target, role, expected) in cases {
        for mut cut in [Cut::Whole, Cut::Bytes(1)] {
            let mut config = client_config();
            let name = AuthName::new(EntityType::Client, "admin");
            config.auth = Box::new(AuthNoneClient::new(role, name, GlobalId(4124)));
            (config.target, config.target_kind) = (target, kind);
            let mut client = Session::connect(config, Time::ZERO);
            let (seen, result) = cut.feed(&mut client, &fixture(file));
            result.unwrap();
            assert_eq!(client.peer().unwrap().entity, EntityName { kind, num: 0 });
            assert_eq!(kinds(&seen), expected);
        }
    }
}
