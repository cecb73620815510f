//! What a broken network or a hostile peer sends: an error or patience, never
//! a panic, a wrong message, or memory for bytes that did not come.

mod common;

use base::{Random, Time};
use bytes::Bytes;
use common::*;
use msgr::auth::{AuthNoneServer, AuthRole};
use msgr::limits::{DATA_LEN_MAX, FRONT_LEN_MAX, RESERVE_FACTOR, RESERVE_FIRST};
use msgr::{AcceptConfig, FrameError, Session, SessionError, SessionEvent};
use wire::types::{EntityAddr, EntityAddrVec, EntityName};

fn osd() -> Session {
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(socket("127.0.0.1:6800"), 8558));
    let auth = Box::new(AuthNoneServer::new(AuthRole::Service));
    accept(AcceptConfig::new(EntityName::osd(0), addrs, auth))
}

/// A real client's stream: handshake and one OSD_OP with data.
fn stream() -> Vec<u8> {
    fixture("osd-write.client.bin")
}

#[test]
fn stream_cut_short_anywhere_is_waited_for() {
    let stream = stream();
    let (whole, _) = Cut::Whole.feed(&mut osd(), &stream);
    for len in 0..stream.len() {
        let (seen, result) = Cut::Whole.feed(&mut osd(), &stream[..len]);
        assert_eq!(result, Ok(()), "cut at {len}");
        assert!(seen.len() < whole.len() && whole.starts_with(&seen), "cut at {len}");
    }
}

#[test]
fn every_flipped_bit_is_found_or_means_nothing() {
    let stream = stream();
    let (whole, _) = Cut::Whole.feed(&mut osd(), &stream);
    let mut harmless = Vec::new();
    for bit in 0..stream.len() * 8 {
        let mut bad = stream.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let (seen, result) = Cut::Whole.feed(&mut osd(), &bad);
        if result.is_ok() {
            assert_eq!(seen, whole, "bit {} of byte {} goes unnoticed", bit % 8, bit / 8);
            harmless.push(bit);
        }
    }
    // No checksum covers these, and none is needed: the banner's features (all
    // but the one we need may be supported, only that one required), and half
    // of the late status.
    assert_eq!(harmless.len(), 63 + 1 + 4, "{harmless:?}");
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_anything_is_reserved() {
    let over = [
        (17, 4, [41, FRONT_LEN_MAX + 1, 0, 1]),
        (17, 4, [41, 1, u32::MAX, 1]),
        (17, 4, [41, 1, 0, DATA_LEN_MAX + 1]),
        (17, 1, [u32::MAX, 0, 0, 0]),
        (17, 1, [40, 0, 0, 0]),
        (18, 1, [8193, 0, 0, 0]),
        (18, 2, [8, 8, 0, 0]),
        (17, 0, [0, 0, 0, 0]),
        (17, 5, [41, 1, 1, 1]),
        (17, 2, [41, 0, 0, 0]),
    ];
    for (tag, count, lens) in over {
        let (_client, mut mon) = ready_pair();
        let end = mon.on_bytes(raw::preamble(tag, count, lens, 0).into());
        assert!(matches!(end, Err(SessionError::Frame(_))), "{tag} {count} {lens:?}: {end:?}");
        assert!(mon.reserved_len() == 0);
    }
    let (_client, mut mon) = ready_pair();
    let end = mon.on_bytes(raw::preamble(17, 1, [41, 0, 0, 0], 1).into());
    assert!(matches!(end, Err(SessionError::Frame(FrameError::UnknownFlags { .. }))));
    // A stranger gets less: control frames only, and small ones.
    let mut early = raw::banner(1, 0);
    early.extend(raw::preamble(1, 1, [1 << 20, 0, 0, 0], 0));
    let end = accept(mon_config()).on_bytes(early.into());
    assert!(matches!(end, Err(SessionError::Frame(FrameError::SegmentTooLarge { .. }))));
}

#[test]
fn stalled_frame_holds_memory_for_what_arrived_only() {
    let (_client, mut mon) = ready_pair();
    let header = raw::message(1, 42, &[], 0);
    let mut start = raw::preamble(17, 4, [41, 0, 0, DATA_LEN_MAX], 0);
    start.extend(&header[32..]);
    mon.on_bytes(start.into()).unwrap();
    assert!(mon.reserved_len() <= RESERVE_FIRST);
    let mut arrived = 0;
    for _ in 0..300 {
        let piece = Bytes::from(vec![0; 9999]);
        arrived += piece.len();
        mon.on_bytes(piece).unwrap();
        let bound = RESERVE_FIRST + 2 * RESERVE_FACTOR * arrived;
        assert!(mon.reserved_len() <= bound, "{} for {arrived}", mon.reserved_len());
    }
    assert!(events(&mut mon).is_empty());
    // And nothing at all once the session has failed.
    mon.on_tick(Time::ZERO).unwrap();
    mon.on_tick(Time::MAX).unwrap_err();
    assert_eq!(mon.reserved_len(), 0);
}

#[test]
fn wrong_banner_is_an_error_at_every_byte() {
    for at in 0..10 {
        let mut banner = raw::banner(1, 0);
        banner[at] ^= 0x80;
        banner.resize(4096, 0);
        assert!(accept(mon_config()).on_bytes(banner.into()).is_err(), "byte {at}");
    }
}

/// Cut, spliced, repeated and overwritten pieces of a valid stream, and frames
/// with valid checksums around random bytes.
#[test]
fn random_streams_neither_panic_nor_hoard() {
    let valid = stream();
    let mut random = Random::from_seed(0x006d_7367_7232);
    for _ in 0..4000 {
        let mut session = match random.below(3) {
            0 => osd(),
            1 => connect(client_config()),
            _ => ready_pair().1,
        };
        let mut bad = Vec::new();
        for _ in 0..1 + random.below(6) {
            let body: Vec<u8> = (0..random.below(80)).map(|_| random.next_u64() as u8).collect();
            match random.below(5) {
                0 => bad.extend(body),
                1 => bad.extend(raw::control(random.below(24) as u8, &body)),
                2 => bad.extend(raw::message(bad.len() as u64, 42, &[&body, b"", b"d"], 0x0e)),
                3 => {
                    let from = random.below(valid.len() as u64) as usize;
                    let len = random.below((valid.len() - from) as u64) as usize;
                    bad.extend(&valid[from..from + len]);
                }
                _ => {
                    bad.extend(&valid[..random.below(700) as usize]);
                    let at = random.below(bad.len() as u64 + 1) as usize;
                    bad.get_mut(at).into_iter().for_each(|b| *b ^= 1 << random.below(8));
                }
            }
        }
        let mut cut = Cut::Random(random.fork());
        let (seen, result) = cut.feed(&mut session, &bad);
        assert!(session.reserved_len() <= RESERVE_FIRST + 2 * RESERVE_FACTOR * bad.len());
        assert_eq!(result.is_err(), session.is_closed());
        let messages = seen.iter().filter(|e| matches!(e, SessionEvent::Message(_))).count();
        assert!(messages <= bad.len() / 32);
        output(&mut session);
    }
}
