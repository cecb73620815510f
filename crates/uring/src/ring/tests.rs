use super::*;
use base::Random;
use bytes::Bytes;
use env::{ConnId, Env};
use std::io::Read;
use std::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// One connection to a peer, or nothing where the kernel has no rings with quiet sends.
fn connected() -> Option<(Ring, Core, ConnId, TcpStream)> {
    let created = Ring::create(None).ok().filter(|created| created.quiet)?;
    let mut core = Core::new(Random::from_seed(1), None, SECOND, SECOND);
    let ring = Ring::new(created, Vec::new(), None, Duration::ZERO, core.pool.clone()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
    let (stream, address) = listener.accept().unwrap();
    core.on_accepted(0, stream, address);
    let conn = core.table.indexes().find_map(|index| core.table.id(index)).unwrap();
    Some((ring, core, conn, peer))
}

fn look(ring: &mut Ring, core: &mut Core) {
    ring.turn(core, Some(Duration::ZERO)).unwrap();
}

/// The peer goes; no request is left that uses memory.
fn end(mut ring: Ring, mut core: Core, peer: TcpStream) {
    drop(peer);
    while !ring.is_idle() {
        ring.turn(&mut core, Some(SECOND)).unwrap();
    }
}

#[test]
fn a_quiet_send_leaves_nothing_to_look_at() {
    let Some((mut ring, mut core, conn, mut peer)) = connected() else { return };
    look(&mut ring, &mut core);
    drop(core.take_events());
    core.send(conn, Bytes::from_static(b"a"));
    look(&mut ring, &mut core);
    assert!(!core.has_work());
    assert!(ring.quiet_sends.is_empty());
    assert_eq!(core.unsent_len(conn), 0);
    peer.read_exact(&mut [0]).unwrap();
    end(ring, core, peer);
}

/// Neither the submission nor all completions of a turn are certain: as when the kernel had no memory.
fn while_a_quiet_send_is_unknown(then: impl FnOnce(&mut Core, ConnId)) -> Option<Vec<u8>> {
    let (mut ring, mut core, conn, peer) = connected()?;
    look(&mut ring, &mut core);
    drop(core.take_events());
    core.send(conn, Bytes::from_static(b"a"));
    ring.queue_requests(&mut core, None).unwrap();
    ring.reap(&mut core).unwrap();
    assert!(core.table.get(0).is_some_and(|conn| conn.requests.quiet), "not submitted, so not over");
    then(&mut core, conn);
    let begun = Instant::now();
    ring.turn(&mut core, Some(SECOND * 5)).unwrap();
    assert!(begun.elapsed().as_secs() < 5, "a turn waits for what ends no wait");
    assert!(core.has_work(), "more to send, or to close");
    look(&mut ring, &mut core);
    // Two bytes, or fewer and the end.
    let mut got = Vec::new();
    (&peer).take(2).read_to_end(&mut got).unwrap();
    end(ring, core, peer);
    Some(got)
}

#[test]
fn what_is_sent_after_a_quiet_send_goes_out() {
    let got = while_a_quiet_send_is_unknown(|core, conn| core.send(conn, Bytes::from_static(b"b")));
    assert!(got.is_none_or(|got| got == b"ab"));
}

#[test]
fn a_close_after_a_quiet_send_is_carried_out() {
    let got = while_a_quiet_send_is_unknown(|core, conn| core.close(conn));
    assert!(got.is_none_or(|got| got == b"a"));
}
