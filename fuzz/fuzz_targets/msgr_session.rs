//! A msgr2.1 session against whatever a peer may send.
//!
//! First byte: bit 0 the role, bit 1 whether the handshake is over. The rest
//! is a script: each step's first byte chooses raw bytes, a control frame or a
//! message, the second its tag or kind, the third a length.
#![no_main]

#[path = "../../crates/msgr/tests/common/raw.rs"]
mod raw;
mod script;

use base::Time;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use msgr::auth::{AuthName, AuthNoneClient, AuthNoneServer, AuthRole};
use msgr::limits::{RESERVE_FACTOR, RESERVE_FIRST};
use msgr::{AcceptConfig, ConnectConfig, OwnAddrs, Session, SessionEvent};
use script::{Script, Step};
use std::net::{Ipv4Addr, SocketAddr};
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

fn pair() -> [Session; 2] {
    let socket = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 3300);
    let target = EntityAddr::msgr2(socket, 0);
    let auth = Box::new(AuthNoneServer::new(AuthRole::Mon));
    let accept = AcceptConfig::new(EntityName::mon(0), EntityAddrVec::one(target), auth);
    let name = AuthName::new(EntityType::Client, "admin");
    let connect = ConnectConfig::new(
        EntityName::client(-1),
        OwnAddrs::Learn { nonce: 1 },
        target,
        EntityType::Mon,
        Box::new(AuthNoneClient::new(AuthRole::Mon, name, GlobalId(0))),
    );
    [Session::accept(accept, socket, Time::ZERO), Session::connect(connect, Time::ZERO)]
}

fn drain(session: &mut Session) -> usize {
    let mut messages = 0;
    while let Some(event) = session.poll_event() {
        match event {
            SessionEvent::NeedGlobalId { .. } => {
                let _ = session.assign_global_id(GlobalId(4242));
            }
            SessionEvent::Message(_) => messages += 1,
            SessionEvent::Ready(_) => {}
        }
    }
    messages
}

fn shake_hands([acceptor, connector]: &mut [Session; 2]) {
    for _ in 0..8 {
        for (from, to) in [(0, 1), (1, 0)] {
            let (from, to) =
                if from < to { (&mut *acceptor, &mut *connector) } else { (&mut *connector, &mut *acceptor) };
            while let Some(piece) = from.poll_output() {
                to.on_bytes(piece).expect("our own handshake");
            }
            drain(to);
        }
    }
    assert!(acceptor.peer().is_some() && connector.peer().is_some());
}

fuzz_target!(|input: &[u8]| {
    let Some((mode, script)) = input.split_first() else { return };
    let mut sessions = pair();
    let mut stream = Vec::new();
    if mode & 2 != 0 {
        shake_hands(&mut sessions);
    } else {
        stream.extend(raw::banner(1, 0));
    }
    let session = &mut sessions[usize::from(mode & 1)];
    let mut seq = 0;
    for step in Script(script) {
        match step {
            Step::Raw(bytes) => stream.extend(bytes),
            Step::Frame { kind, body } => stream.extend(raw::control(kind, body)),
            Step::Message { kind, body } => {
                seq += 1;
                let (front, data) = body.split_at(body.len() / 2);
                stream.extend(raw::message(seq, kind.into(), &[front, b"", data], 0x0e));
            }
        }
    }
    let (chunk, mut messages) = (1 + usize::from(mode >> 2) * 3, 0);
    for piece in stream.chunks(chunk) {
        let closed = session.on_bytes(Bytes::copy_from_slice(piece)).is_err();
        messages += drain(session);
        assert!(session.reserved_len() <= RESERVE_FIRST + 2 * RESERVE_FACTOR * stream.len());
        while session.poll_output().is_some() {}
        assert_eq!(closed, session.is_closed());
        if closed {
            break;
        }
    }
    assert!(messages <= stream.len() / 32);
});
