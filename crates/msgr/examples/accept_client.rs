//! Accepts one stock client, plays a monitor's part of the handshake and
//! prints what the client asks for.
//!
//!     cargo run -p msgr --example accept_client -- 127.0.0.1:4310 &
//!     rados -m 127.0.0.1:4310 --auth-client-required none lspools
//!
//! The client never gets its maps, so end it with a timeout.

use base::Time;
use bytes::Bytes;
use msgr::auth::{AuthNoneServer, AuthRole};
use msgr::{AcceptConfig, Session, SessionEvent};
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use wire::types::{EntityAddr, EntityAddrVec, EntityName, GlobalId};

fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1).unwrap_or("127.0.0.1:4310".into());
    let listener = TcpListener::bind(&listen)?;
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(listener.local_addr()?, 0));
    let (mut socket, peer) = listener.accept()?;

    let auth = Box::new(AuthNoneServer::new(AuthRole::Mon));
    let config = AcceptConfig::new(EntityName::mon(0), addrs, auth);
    let mut session = Session::accept(config, peer, Time::ZERO);
    let mut chunk = vec![0; 64 << 10];
    let mut messages = 0;
    while messages < 2 {
        while let Some(piece) = session.poll_output() {
            socket.write_all(&piece)?;
        }
        let len = socket.read(&mut chunk)?;
        if len == 0 {
            return Err("the client hung up".into());
        }
        session.on_bytes(Bytes::copy_from_slice(&chunk[..len]))?;
        while let Some(event) = session.poll_event() {
            match event {
                SessionEvent::NeedGlobalId { name, claimed } => {
                    println!("{name} wants a global id (had {claimed:?}): gets 4242");
                    session.assign_global_id(GlobalId(4242))?;
                }
                SessionEvent::Ready(peer) => println!("ready: {peer:#?}"),
                SessionEvent::Message(m) => {
                    messages += 1;
                    println!("message {} version {}: front {:?}", m.kind, m.version, m.front);
                }
            }
        }
    }
    Ok(())
}
