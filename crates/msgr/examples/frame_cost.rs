//! CPU per message: builds, frames, parses and checks messages in memory.
//!
//!     cargo run --release -p msgr --example frame_cost

use base::Time;
use bytes::Bytes;
use msgr::auth::{AuthName, AuthNoneClient, AuthNoneServer, AuthRole};
use msgr::{AcceptConfig, ConnectConfig, OutMessage, OwnAddrs, Session, SessionEvent};
use std::net::{Ipv4Addr, SocketAddr};
use wire::types::{EntityAddr, EntityAddrVec, EntityName, EntityType, GlobalId};

const BATCH: usize = 16;

/// CPU time of this process so far, in nanoseconds: other processes' load does
/// not distort it.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("nanoseconds first")
}

/// The socket's part: everything that is to be sent, in chunks of at most this length.
fn carry(from: &mut Session, to: &mut Session, chunk: usize) -> usize {
    while let Some(mut piece) = from.poll_output() {
        while !piece.is_empty() {
            to.on_bytes(piece.split_to(chunk.min(piece.len()))).expect("a valid stream");
        }
    }
    let mut messages = 0;
    while let Some(event) = to.poll_event() {
        match event {
            SessionEvent::NeedGlobalId { .. } => to.assign_global_id(GlobalId(1)).expect("asked"),
            SessionEvent::Message(_) => messages += 1,
            SessionEvent::Ready(_) => {}
        }
    }
    messages
}

fn main() {
    let socket = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 3300);
    let target = EntityAddr::msgr2(socket, 0);
    let server = AuthNoneServer::new(AuthRole::Mon);
    let addrs = EntityAddrVec::one(target);
    let accept = AcceptConfig::new(EntityName::mon(0), addrs, Box::new(server));
    let name = AuthName::new(EntityType::Client, "admin");
    let client = AuthNoneClient::new(AuthRole::Mon, name, GlobalId(0));
    let own = OwnAddrs::Learn { nonce: 1 };
    let connect = ConnectConfig::new(EntityName::client(-1), own, target, EntityType::Mon, Box::new(client));
    let mut a = Session::accept(accept, socket, Time::ZERO);
    let mut c = Session::connect(connect, Time::ZERO);
    for _ in 0..8 {
        carry(&mut c, &mut a, usize::MAX);
        carry(&mut a, &mut c, usize::MAX);
    }

    println!("{:>10} {:>10} {:>16}", "data", "chunk", "CPU ns/message");
    for (data_len, chunk) in [(0, 65536), (4096, 65536), (65536, 65536), (4 << 20, 262_144)] {
        let (front, data) = (Bytes::from(vec![1; 200]), Bytes::from(vec![2; data_len]));
        let rounds = (400_000_000 / (data_len + 20_000) / BATCH).max(4);
        let (start, mut messages) = (cpu_ns(), 0);
        for _ in 0..rounds {
            for tid in 0..BATCH as u64 {
                let m = OutMessage::new(42, tid, 8, 3, front.clone()).with_data(vec![data.clone()]);
                c.send(m).expect("ready");
            }
            messages += carry(&mut c, &mut a, chunk);
        }
        println!("{data_len:>10} {chunk:>10} {:>16}", (cpu_ns() - start) / messages as u64);
    }
}
