//! An OSD-to-OSD link against whatever a peer may send; input as for `msgr_session`.
#![no_main]

#[path = "../../crates/msgr/tests/common/raw.rs"]
mod raw;
mod script;

use base::Time;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use msgr::limits::{RESERVE_FACTOR, RESERVE_FIRST};
use msgr::peer::{LinkChannel, LinkConfig, OsdLife, PeerLink};
use script::{Script, Step};
use wire::types::{OsdId, Uuid};

fuzz_target!(|input: &[u8]| {
    let Some((mode, script)) = input.split_first() else { return };
    let life = |osd| OsdLife { osd: OsdId(osd), incarnation: 1 };
    let config = |osd| LinkConfig { fsid: Uuid::ZERO, local: life(osd), features: 0 };
    let mut links = [
        PeerLink::accept(config(0), Time::ZERO),
        PeerLink::connect(config(1), life(0), LinkChannel::Data, Time::ZERO),
    ];
    let mut seq = 0;
    if mode & 2 != 0 {
        let [acceptor, connector] = &mut links;
        acceptor.on_bytes(connector.poll_output().expect("a hello")).expect("our own hello");
        connector.on_bytes(acceptor.poll_output().expect("an answer")).expect("our own hello");
        seq = 1;
    }
    let link = &mut links[usize::from(mode & 1)];
    let mut stream = Vec::new();
    for step in Script(script) {
        match step {
            Step::Raw(bytes) => stream.extend(bytes),
            Step::Frame { kind, body } | Step::Message { kind, body } => {
                stream.extend(raw::link_frame(kind.into(), seq, body));
                seq += 1;
            }
        }
    }
    for piece in stream.chunks(1 + usize::from(mode >> 2) * 3) {
        let closed = link.on_bytes(Bytes::copy_from_slice(piece)).is_err();
        assert!(link.reserved_len() <= RESERVE_FIRST + 2 * RESERVE_FACTOR * stream.len());
        while link.poll_event().is_some() {}
        while link.poll_output().is_some() {}
        assert_eq!(closed, link.is_closed());
        if closed {
            break;
        }
    }
});
