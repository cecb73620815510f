//! Connections.

use crate::support::{Step, config, drive, drive_with_wake, local_listener};
use base::{Duration, Random, Time};
use bytes::Bytes;
use env::{CloseReason, ConnId, Event};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::thread;
use uring::Backend;

contract!(
    echoes_random_chunks,
    small_messages_after_a_large_one_arrive,
    ended_reactor_frees_its_port,
    moves_64_mib_each_way,
    gathers_long_parts_aligned,
    opens_and_closes_1000_connections,
    refused_dial_says_so,
    silent_dial_is_unreachable,
    peer_reset_gives_one_closed,
    close_delivers_the_output_first,
    close_while_dialing_delivers_the_output_first,
    no_event_after_close,
    linger_is_bounded,
    paused_connection_delivers_nothing,
    send_after_the_end_is_dropped,
    exit_delivers_the_output,
    idle_reactor_does_not_spin,
);

/// Starts a node that echoes everything, until the first connection closes
/// when `once`, else for ever.
fn echo_server(backend: Backend, once: bool) -> (SocketAddr, thread::JoinHandle<()>) {
    let (listener, addr) = local_listener();
    let handle = thread::spawn(move || {
        let mut config = config(backend);
        config.listeners.push(listener);
        drive(config, |env, step| match step {
            Step::Event(Event::Received { conn, data }) => env.send(conn, data),
            Step::Event(Event::Closed { reason, .. }) => {
                assert_eq!(reason, CloseReason::Peer);
                if once {
                    env.exit(0);
                }
            }
            _ => {}
        });
    });
    (addr, handle)
}

fn random_bytes(random: &mut Random, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.next_u64() as u8).collect()
}

fn echoes_random_chunks(backend: Backend) {
    let (addr, server) = echo_server(backend, true);
    let mut random = Random::from_seed(7);
    let data = random_bytes(&mut random, 3 << 20);
    let mut sent = 0;
    let mut got = Vec::new();
    let mut connected = None;
    let status = drive(config(backend), |env, step| {
        match step {
            Step::Start => {
                env.connect(addr);
            }
            Step::Event(Event::Connected { conn, local }) => {
                assert!(local.ip().is_loopback() && local.port() != addr.port());
                connected = Some(conn);
            }
            Step::Event(Event::Received { conn, data: piece }) => {
                assert_eq!(Some(conn), connected);
                assert!(!piece.is_empty());
                got.extend_from_slice(&piece);
                if got.len() == data.len() {
                    env.exit(3);
                }
            }
            Step::Event(other) => panic!("unexpected {other:?}"),
            Step::BatchEnd => {}
        }
        let Some(conn) = connected else { return };
        // Many odd pieces per batch, but never more than 256 KiB unsent.
        while sent < data.len() && env.unsent_len(conn) < 256 << 10 {
            let most = if random.chance(1, 8) { 100_000 } else { 300 };
            let len = (1 + random.below(most) as usize).min(data.len() - sent);
            env.send(conn, Bytes::copy_from_slice(&data[sent..sent + len]));
            sent += len;
        }
    });
    assert_eq!(status, 3);
    assert!(got == data, "the echo differs");
    server.join().expect("the server saw the end");
}

fn small_messages_after_a_large_one_arrive(backend: Backend) {
    // The receive buffer has grown for the large one, and shrinks meanwhile.
    let (addr, server) = echo_server(backend, true);
    let (mut sent, mut got, mut rounds) = (0, 0, 0u32);
    drive(config(backend), |env, step| match step {
        Step::Start => {
            env.connect(addr);
        }
        Step::Event(Event::Connected { conn, .. }) => {
            sent = 4 << 20;
            env.send(conn, Bytes::from(vec![1; sent]));
        }
        Step::Event(Event::Received { conn, data }) => {
            got += data.len();
            if got < sent {
                return;
            }
            rounds += 1;
            if rounds == 300 {
                return env.exit(0);
            }
            let len = 1 + (rounds as usize * 37) % 5000;
            sent += len;
            env.send(conn, Bytes::from(vec![2; len]));
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {}
    });
    assert_eq!(got, sent);
    server.join().expect("the server saw the end");
}

fn ended_reactor_frees_its_port(backend: Backend) {
    let (listener, addr) = local_listener();
    let mut listener = Some(listener);
    for _ in 0..5 {
        let mut config = config(backend);
        config.listeners.extend(listener.take());
        let wake = Rc::new(Cell::new(Time::MAX));
        drive_with_wake(config, &wake.clone(), |env, step| match step {
            Step::Start => wake.set(env.now() + Duration::from_millis(10)),
            Step::BatchEnd if wake.get() <= env.now() => env.exit(0),
            _ => {}
        });
        listener = Some(uring::listen(addr).expect("the port is free again"));
    }
}

fn moves_64_mib_each_way(backend: Backend) {
    const LEN: usize = 64 << 20;
    let (addr, server) = echo_server(backend, true);
    let piece = Bytes::from(random_bytes(&mut Random::from_seed(1), 1 << 20));
    let (mut got, mut connection) = (0, None);
    drive(config(backend), |env, step| match step {
        Step::Start => connection = Some(env.connect(addr)),
        Step::Event(Event::Connected { conn, .. }) => {
            // All at once: the queue is ours, its limit is the node's affair.
            for _ in 0..LEN >> 20 {
                env.send(conn, piece.clone());
            }
            assert_eq!(env.unsent_len(conn), LEN);
        }
        Step::Event(Event::Received { conn, data }) => {
            let mut rest = &data[..];
            while !rest.is_empty() {
                let at = got % piece.len();
                let len = rest.len().min(piece.len() - at);
                assert!(rest[..len] == piece[at..at + len], "differs near byte {got}");
                got += len;
                rest = &rest[len..];
            }
            if got == LEN {
                assert_eq!(env.unsent_len(conn), 0);
                env.exit(0);
            }
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {}
    });
    server.join().expect("the server saw the end");
}

/// Parts with their length before them; each arrives in one piece.
fn gathers_long_parts_aligned(backend: Backend) {
    const PARTS: usize = 5;
    const LEAD: usize = 123;
    let parts: Vec<Vec<u8>> = {
        let mut random = Random::from_seed(9);
        (0..PARTS).map(|i| random_bytes(&mut random, (1 << 20) + i * 77_777)).collect()
    };
    let (listener, addr) = local_listener();
    let expected = parts.clone();
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("connected");
        for part in &parts {
            let mut message = (part.len() as u32).to_le_bytes().to_vec();
            message.extend_from_slice(part);
            for chunk in message.chunks(300_000) {
                stream.write_all(chunk).expect("sent");
            }
        }
        assert_eq!(stream.read(&mut [0]).expect("closed"), 0);
    });
    let mut config = config(backend);
    config.listeners.push(listener);
    let mut done = 0;
    let mut start = Vec::new();
    let mut gathering = false;
    drive(config, |env, step| {
        let Step::Event(Event::Received { conn, data }) = step else { return };
        if gathering {
            assert_eq!(data, expected[done], "the whole part and no more");
            assert_eq!(data[LEAD..].as_ptr() as usize % base::aligned::ALIGNMENT, 0);
            gathering = false;
            done += 1;
            if done == PARTS {
                env.exit(0);
            }
            return;
        }
        start.extend_from_slice(&data);
        if start.len() >= 4 {
            let len = u32::from_le_bytes([start[0], start[1], start[2], start[3]]) as usize;
            assert!(env.gather(conn, &start[4..], len, LEAD));
            assert!(!env.gather(conn, &start[4..], len, LEAD), "one at a time");
            start.clear();
            gathering = true;
        }
    });
    client.join().expect("the client ends well");
}

fn opens_and_closes_1000_connections(backend: Backend) {
    const COUNT: usize = 1000;
    // The count of descriptors is the whole process's: one backend at a time.
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // One node is both ends, so that it also sees every id.
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    let mut ids = BTreeSet::new();
    let mut fresh = move |conn: ConnId| assert!(ids.insert(conn), "{conn:?} was used before");
    let (mut opened, mut ended, mut dialed) = (0, 0, BTreeSet::new());
    let open_before = open_descriptors();
    drive(config, |env, step| match step {
        Step::Start => {
            for _ in 0..COUNT / 2 {
                dialed.insert(env.connect(addr));
            }
            dialed.iter().copied().for_each(&mut fresh);
        }
        Step::Event(Event::Accepted { conn, peer, .. }) => {
            assert!(peer.ip().is_loopback());
            fresh(conn);
        }
        Step::Event(Event::Connected { conn, .. }) => {
            opened += 1;
            env.send(conn, Bytes::from_static(b"x"));
        }
        Step::Event(Event::Received { conn, .. }) => {
            assert!(!dialed.contains(&conn), "only the accepting end is sent to");
            env.close(conn);
        }
        Step::Event(Event::Closed { conn, reason }) => {
            assert_eq!(reason, CloseReason::Peer);
            assert!(dialed.remove(&conn), "the accepting end has called close");
            ended += 1;
            if opened + dialed.len() < COUNT {
                let conn = env.connect(addr);
                fresh(conn);
                dialed.insert(conn);
            }
            if ended == COUNT {
                env.exit(0);
            }
        }
        _ => {}
    });
    assert_eq!(opened, COUNT);
    // Other tests of this process open some meanwhile, but not hundreds.
    assert!(open_descriptors() < open_before + 200, "descriptors leak");
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

fn refused_dial_says_so(backend: Backend) {
    let (listener, addr) = local_listener();
    drop(listener);
    let mut dialed = None;
    drive(config(backend), |env, step| match step {
        Step::Start => dialed = Some(env.connect(addr)),
        Step::Event(Event::Closed { conn, reason }) => {
            assert_eq!((Some(conn), reason), (dialed, CloseReason::Refused));
            env.exit(0);
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {}
    });
}

fn silent_dial_is_unreachable(backend: Backend) {
    // A full accept queue drops what comes: a dial without an answer.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    shrink_backlog(&listener);
    let addr = listener.local_addr().expect("a bound socket");
    let _queued: Vec<_> =
        (0..4).filter_map(|_| TcpStream::connect_timeout(&addr, Duration::from_millis(100)).ok()).collect();
    let mut config = config(backend);
    config.dial_timeout = Duration::from_millis(200);
    let mut started = Time::ZERO;
    drive(config, |env, step| match step {
        Step::Start => {
            started = env.now();
            let abandoned = env.connect(addr);
            env.close(abandoned);
            env.connect(addr);
        }
        Step::Event(Event::Closed { reason, .. }) => {
            assert_eq!(reason, CloseReason::Unreachable);
            assert!(env.now().since(started) >= Duration::from_millis(200));
            env.exit(0);
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {}
    });
}

#[allow(unsafe_code)]
fn shrink_backlog(listener: &std::net::TcpListener) {
    use std::os::fd::AsRawFd;
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
}

fn peer_reset_gives_one_closed(backend: Backend) {
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    let peer = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("accepted");
        stream.write_all(b"hello").expect("sent");
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("answered");
        // Closing over unread bytes resets the connection.
        thread::sleep(Duration::from_millis(50));
    });
    let wake = Rc::new(Cell::new(Time::MAX));
    let mut closed = 0;
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Event(Event::Received { conn, .. }) => {
            env.send(conn, Bytes::from(vec![0; 100_000]));
        }
        Step::Event(Event::Closed { reason, .. }) => {
            assert_eq!(reason, CloseReason::Peer);
            closed += 1;
            wake.set(env.now() + Duration::from_millis(100));
        }
        Step::Event(Event::Accepted { .. }) | Step::Start => {}
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {
            if wake.get() <= env.now() {
                env.exit(0);
            }
        }
    });
    assert_eq!(closed, 1);
    peer.join().expect("the peer's own checks");
}

/// Reads slowly until the end; returns the length.
fn slow_reader(addr: SocketAddr) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("accepted");
        stream.write_all(b"more than the node reads").expect("sent");
        thread::sleep(Duration::from_millis(100));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an orderly end, not a reset");
        all.len()
    })
}

fn close_delivers_the_output_first(backend: Backend) {
    const LEN: usize = 8 << 20; // more than the socket's buffers take
    let (listener, addr) = local_listener();
    let reader = slow_reader(addr);
    let mut config = config(backend);
    config.listeners.push(listener);
    config.linger = Duration::from_secs(20);
    let wake = Rc::new(Cell::new(Time::MAX));
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Event(Event::Accepted { conn, .. }) => {
            env.send(conn, Bytes::from(vec![1; LEN / 2]));
            env.send(conn, Bytes::from(vec![2; LEN / 2]));
            env.close(conn);
            env.send(conn, Bytes::from_static(b"too late"));
            assert_eq!(env.unsent_len(conn), LEN);
            wake.set(env.now() + Duration::from_millis(500));
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::Start => {}
        Step::BatchEnd => {
            if wake.get() <= env.now() {
                env.exit(0);
            }
        }
    });
    assert_eq!(reader.join().expect("the reader's own checks"), LEN);
}

fn close_while_dialing_delivers_the_output_first(backend: Backend) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("a bound socket");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        listener.accept().expect("dialed").0.read_to_string(&mut text).expect("an orderly end");
        text
    });
    let wake = Rc::new(Cell::new(Time::MAX));
    drive_with_wake(config(backend), &wake.clone(), |env, step| match step {
        Step::Start => {
            let conn = env.connect(addr);
            env.send(conn, Bytes::from_static(b"last words"));
            env.close(conn);
            wake.set(env.now() + Duration::from_millis(200));
        }
        Step::Event(other) => panic!("unexpected {other:?}"),
        Step::BatchEnd => {
            if wake.get() <= env.now() {
                env.exit(0);
            }
        }
    });
    assert_eq!(reader.join().expect("the reader's own checks"), "last words");
}

fn no_event_after_close(backend: Backend) {
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    let peer = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("accepted");
        for _ in 0..200 {
            if stream.write_all(&[7; 5000]).is_err() {
                break;
            }
        }
    });
    let wake = Rc::new(Cell::new(Time::MAX));
    let mut ended = None;
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Event(Event::Received { conn, .. }) => {
            assert_eq!(ended, None, "closed before");
            env.close(conn);
            env.close(conn);
            env.pause_reading(conn, true);
            ended = Some(conn);
            wake.set(env.now() + Duration::from_millis(200));
        }
        Step::Event(Event::Closed { .. }) => panic!("the node has closed it itself"),
        Step::BatchEnd if wake.get() <= env.now() => env.exit(0),
        _ => {}
    });
    peer.join().expect("the peer is never stuck");
}

fn linger_is_bounded(backend: Backend) {
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    config.linger = Duration::from_millis(100);
    // A peer that never reads, and never closes by itself.
    let mut peer = TcpStream::connect(addr).expect("the backlog takes it");
    let wake = Rc::new(Cell::new(Time::MAX));
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Event(Event::Accepted { conn, .. }) => {
            env.send(conn, Bytes::from(vec![0; 64 << 20]));
            env.close(conn);
            wake.set(env.now() + Duration::from_millis(400));
        }
        Step::BatchEnd if wake.get() <= env.now() => env.exit(0),
        _ => {}
    });
    let mut all = Vec::new();
    let end = peer.read_to_end(&mut all);
    assert!(end.is_err() || all.len() < 64 << 20, "nobody waited for this peer");
}

fn paused_connection_delivers_nothing(backend: Backend) {
    const LEN: usize = 32 << 20;
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    let peer = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("accepted");
        stream.write_all(&vec![5; LEN]).expect("all is read in the end");
    });
    let wake = Rc::new(Cell::new(Time::MAX));
    let (mut paused, mut got, mut pauses) = (None, 0, 0);
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Event(Event::Received { conn, data }) => {
            assert_eq!(paused, None, "paused");
            got += data.len();
            if got / (8 << 20) > pauses {
                pauses += 1;
                env.pause_reading(conn, true);
                paused = Some(conn);
                wake.set(env.now() + Duration::from_millis(50));
            }
        }
        Step::Event(Event::Closed { .. }) => {
            assert_eq!(got, LEN, "the end waits behind the bytes before it");
            env.exit(0);
        }
        Step::BatchEnd => {
            if let Some(conn) = paused
                && wake.get() <= env.now()
            {
                env.pause_reading(conn, false);
                paused = None;
                wake.set(Time::MAX);
            }
        }
        _ => {}
    });
    assert!(pauses >= 3);
    peer.join().expect("the peer's own checks");
}

fn send_after_the_end_is_dropped(backend: Backend) {
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    drop(TcpStream::connect(addr).expect("the backlog takes it"));
    let mut batches_left = 3;
    let mut ended = None;
    drive(config, |env, step| match step {
        Step::Event(Event::Closed { conn, reason }) => {
            assert_eq!(reason, CloseReason::Peer);
            assert_eq!(ended.replace(conn), None, "one Closed");
            drop(TcpStream::connect(addr).expect("a second one"));
        }
        Step::Event(Event::Accepted { conn, .. }) => {
            if let Some(ended) = ended {
                assert_ne!(conn, ended, "its slot is used again, its id is not");
                env.exit(0);
            }
        }
        Step::BatchEnd => {
            if let Some(conn) = ended {
                env.send(conn, Bytes::from_static(b"nobody"));
                assert_eq!(env.unsent_len(conn), 0);
                env.pause_reading(conn, true);
                env.close(conn);
                batches_left -= 1;
                assert!(batches_left > 0);
            }
        }
        _ => {}
    });
}

fn exit_delivers_the_output(backend: Backend) {
    const LEN: usize = 8 << 20;
    let (listener, addr) = local_listener();
    let reader = thread::spawn(move || {
        let mut stream = TcpStream::connect(addr).expect("accepted");
        thread::sleep(Duration::from_millis(50));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an orderly end");
        all.len()
    });
    let mut config = config(backend);
    config.listeners.push(listener);
    drive(config, |env, step| {
        if let Step::Event(Event::Accepted { conn, .. }) = step {
            env.send(conn, Bytes::from(vec![1; LEN]));
            env.exit(0);
        }
    });
    assert_eq!(reader.join().expect("the reader's own checks"), LEN);
}

fn idle_reactor_does_not_spin(backend: Backend) {
    // Ended, paused and lingering connections are where a wait could return
    // at once, for ever.
    let (listener, addr) = local_listener();
    let mut config = config(backend);
    config.listeners.push(listener);
    let half = TcpStream::connect(addr).expect("the backlog takes it");
    half.shutdown(std::net::Shutdown::Write).expect("open");
    let _silent = TcpStream::connect(addr).expect("the backlog takes it");
    let reset = TcpStream::connect(addr).expect("the backlog takes it");
    let mut reset = Some(reset);
    let wake = Rc::new(Cell::new(Time::MAX));
    let mut connections = BTreeMap::new();
    let mut batches = 0;
    drive_with_wake(config, &wake.clone(), |env, step| match step {
        Step::Start => wake.set(env.now() + Duration::from_millis(300)),
        Step::Event(Event::Accepted { conn, .. }) => {
            connections.insert(conn, ());
            env.pause_reading(conn, true);
            if connections.len() == 2 {
                env.close(conn);
            }
            if connections.len() == 3 {
                drop(reset.take());
            }
        }
        Step::BatchEnd => {
            batches += 1;
            if wake.get() <= env.now() {
                env.exit(0);
            }
        }
        _ => {}
    });
    assert_eq!(connections.len(), 3);
    assert!(batches < 20, "{batches} batches without a cause");
}
