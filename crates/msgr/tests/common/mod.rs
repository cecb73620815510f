//! Two endpoints stepped in memory.
#![allow(dead_code)]

pub mod raw;

use base::{Random, Time};
use bytes::{Bytes, BytesMut};
use msgr::auth::{AuthName, AuthNoneClient, AuthNoneServer, AuthRole};
use msgr::{AcceptConfig, ConnectConfig, OwnAddrs, Session, SessionError, SessionEvent};
use std::net::SocketAddr;
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

pub const CLIENT_SOCKET: &str = "10.0.0.9:43210";
pub const ASSIGNED: GlobalId = GlobalId(4711);

pub fn socket(s: &str) -> SocketAddr {
    s.parse().unwrap()
}

pub fn mon_addr() -> EntityAddr {
    EntityAddr::msgr2(socket("127.0.0.1:4300"), 0)
}

pub fn mon_config() -> AcceptConfig {
    let auth = Box::new(AuthNoneServer::new(AuthRole::Mon));
    AcceptConfig::new(EntityName::mon(0), EntityAddrVec::one(mon_addr()), auth)
}

pub fn client_config() -> ConnectConfig {
    let name = AuthName::new(EntityType::Client, "admin");
    ConnectConfig::new(
        EntityName::client(-1),
        OwnAddrs::Learn { nonce: 77 },
        mon_addr(),
        EntityType::Mon,
        Box::new(AuthNoneClient::new(AuthRole::Mon, name, GlobalId(0))),
    )
}

pub fn accept(config: AcceptConfig) -> Session {
    Session::accept(config, socket(CLIENT_SOCKET), Time::ZERO)
}

pub fn connect(config: ConnectConfig) -> Session {
    Session::connect(config, Time::ZERO)
}

/// Everything a session wants to write.
pub fn output(session: &mut Session) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(piece) = session.poll_output() {
        all.extend_from_slice(&piece);
    }
    all.freeze()
}

/// All events so far; global ids are assigned on the way.
pub fn events(session: &mut Session) -> Vec<SessionEvent> {
    let mut all = Vec::new();
    while let Some(event) = session.poll_event() {
        if let SessionEvent::NeedGlobalId { .. } = event {
            // Closed if the same chunk went wrong further on.
            assert_eq!(session.assign_global_id(ASSIGNED).is_err(), session.is_closed());
        }
        all.push(event);
    }
    all
}

/// How a stream is cut into chunks.
pub enum Cut {
    Whole,
    Bytes(usize),
    Random(Random),
}

impl Cut {
    fn next(&mut self, left: usize) -> usize {
        match self {
            Cut::Whole => left,
            Cut::Bytes(n) => left.min(*n),
            Cut::Random(random) => 1 + random.below(left.min(300) as u64) as usize,
        }
    }

    /// Hands `stream` over piece by piece; each piece is memory of its own.
    pub fn feed(
        &mut self,
        session: &mut Session,
        stream: &[u8],
    ) -> (Vec<SessionEvent>, Result<(), SessionError>) {
        let (mut at, mut seen) = (0, Vec::new());
        while at < stream.len() {
            let len = self.next(stream.len() - at);
            let result = session.on_bytes(Bytes::copy_from_slice(&stream[at..at + len]));
            at += len;
            seen.extend(events(session));
            if result.is_err() {
                return (seen, result);
            }
        }
        (seen, Ok(()))
    }
}

/// Steps both ends until neither has anything to say.
pub fn settle(
    a: &mut Session,
    b: &mut Session,
    cut: &mut Cut,
) -> Result<(Vec<SessionEvent>, Vec<SessionEvent>), SessionError> {
    let (mut at_a, mut at_b) = (events(a), events(b));
    loop {
        let (from_a, from_b) = (output(a), output(b));
        if from_a.is_empty() && from_b.is_empty() {
            return Ok((at_a, at_b));
        }
        let (seen, result) = cut.feed(b, &from_a);
        at_b.extend(seen);
        result?;
        let (seen, result) = cut.feed(a, &from_b);
        at_a.extend(seen);
        result?;
    }
}

/// A client's and a monitor's session, ready.
pub fn ready_pair() -> (Session, Session) {
    let (mut client, mut mon) = (connect(client_config()), accept(mon_config()));
    settle(&mut client, &mut mon, &mut Cut::Whole).unwrap();
    assert!(client.peer().is_some() && mon.peer().is_some());
    (client, mon)
}

pub fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/fixtures/16.2.15/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}
