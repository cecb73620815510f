//! Dials a monitor, real or ours, and asks for its MonMap.
//!
//!     cargo run -p msgr --example dial_mon -- 127.0.0.1:3300

use base::Time;
use bytes::Bytes;
use msgr::auth::{AuthName, AuthNoneClient, AuthRole};
use msgr::{ConnectConfig, OutMessage, OwnAddrs, Session, SessionEvent};
use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use wire::types::{EntityAddr, EntityName, EntityType, GlobalId};

const MON_MAP: u16 = 4;
const MON_GET_MAP: u16 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    let target = std::env::args().nth(1).unwrap_or("127.0.0.1:3300".into());
    let mut socket = TcpStream::connect(&target)?;

    let name = AuthName::new(EntityType::Client, "admin");
    let config = ConnectConfig::new(
        EntityName::client(-1),
        OwnAddrs::Learn { nonce: std::process::id() },
        EntityAddr::msgr2(socket.peer_addr()?, 0),
        EntityType::Mon,
        Box::new(AuthNoneClient::new(AuthRole::Mon, name, GlobalId(0))),
    );
    let mut session = Session::connect(config, Time::ZERO);
    let mut chunk = vec![0; 64 << 10];
    loop {
        while let Some(piece) = session.poll_output() {
            socket.write_all(&piece)?;
        }
        let len = socket.read(&mut chunk)?;
        if len == 0 {
            return Err("the monitor hung up".into());
        }
        session.on_bytes(Bytes::copy_from_slice(&chunk[..len]))?;
        while let Some(event) = session.poll_event() {
            match event {
                SessionEvent::NeedGlobalId { .. } => return Err("asked for a global id".into()),
                SessionEvent::Ready(peer) => {
                    println!("ready: {peer:#?}");
                    session.send(OutMessage::new(MON_GET_MAP, 0, 1, 0, Bytes::new()))?;
                }
                SessionEvent::Message(m) if m.kind == MON_MAP => {
                    println!("MON_MAP of {} bytes", m.front.len());
                    return Ok(());
                }
                SessionEvent::Message(m) => println!("message {}", m.kind),
            }
        }
    }
}
