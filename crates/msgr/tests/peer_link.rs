//! Both ends of an OSD-to-OSD link, stepped in memory, and what may go wrong.

mod common;

use base::{Duration, Random, Time};
use bytes::{Bytes, BytesMut};
use common::raw;
use msgr::limits::{PEER_BODY_LEN_MAX, RESERVE_FACTOR, RESERVE_FIRST};
use msgr::peer::*;
use wire::types::{OsdId, Uuid};

const DIALLER: OsdLife = OsdLife { osd: OsdId(1), incarnation: 111 };
const ACCEPTOR: OsdLife = OsdLife { osd: OsdId(2), incarnation: 222 };

fn config(local: OsdLife) -> LinkConfig {
    LinkConfig { fsid: Uuid([7; 16]), local, features: 0b11 }
}

fn pair() -> (PeerLink, PeerLink) {
    let dialler = PeerLink::connect(config(DIALLER), ACCEPTOR, LinkChannel::Data, Time::ZERO);
    (dialler, PeerLink::accept(config(ACCEPTOR), Time::ZERO))
}

fn output(link: &mut PeerLink) -> Bytes {
    let mut all = BytesMut::new();
    while let Some(piece) = link.poll_output() {
        all.extend_from_slice(&piece);
    }
    all.freeze()
}

fn events(link: &mut PeerLink) -> Vec<LinkEvent> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

/// Moves everything from one end to the other, `step` bytes at a time.
fn carry(from: &mut PeerLink, to: &mut PeerLink, step: usize) -> Result<(), LinkError> {
    let stream = output(from);
    stream.chunks(step).try_for_each(|piece| to.on_bytes(Bytes::copy_from_slice(piece)))
}

fn ready_pair() -> (PeerLink, PeerLink) {
    let (mut dialler, mut acceptor) = pair();
    carry(&mut dialler, &mut acceptor, 1).unwrap();
    carry(&mut acceptor, &mut dialler, 1).unwrap();
    assert_eq!((events(&mut dialler).len(), events(&mut acceptor).len()), (1, 1));
    (dialler, acceptor)
}

#[test]
fn both_ends_learn_which_life_of_which_osd_the_other_is() {
    let (dialler, acceptor) = ready_pair();
    let channel = LinkChannel::Data;
    let at_dialler = LinkPeer { life: ACCEPTOR, channel, version: VERSION_MAX, features: 0b11 };
    assert_eq!(dialler.peer(), Some(&at_dialler));
    assert_eq!(acceptor.peer(), Some(&LinkPeer { life: DIALLER, ..at_dialler }));
    assert_eq!(acceptor.poll_timeout(), None);
}

#[test]
fn bodies_arrive_whole_and_in_order_however_cut() {
    for step in [1, 13, usize::MAX] {
        let (mut dialler, mut acceptor) = ready_pair();
        let large: Bytes = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        let pieces = [Bytes::from_static(b"op"), large.clone(), Bytes::from_static(b"tail")];
        dialler.send(KIND_FIRST, &[]).unwrap();
        dialler.send(99, &pieces).unwrap();
        dialler.send(KIND_FIRST, &pieces[..1]).unwrap();
        carry(&mut dialler, &mut acceptor, step).unwrap();
        let message = |kind, body: &[Bytes]| LinkEvent::Message { kind, body: body.concat().into() };
        let expected = [message(KIND_FIRST, &[]), message(99, &pieces), message(KIND_FIRST, &pieces[..1])];
        assert_eq!(events(&mut acceptor), expected);
    }
}

#[test]
fn batch_leaves_in_one_piece_and_long_bodies_uncopied() {
    let (mut dialler, mut acceptor) = ready_pair();
    for _ in 0..50 {
        dialler.send(20, &[Bytes::from_static(b"acknowledged")]).unwrap();
    }
    let batch = dialler.poll_output().unwrap();
    assert_eq!((batch.len(), dialler.poll_output()), (50 * 44, None));
    acceptor.on_bytes(batch).unwrap();
    assert_eq!(events(&mut acceptor).len(), 50);

    let body = Bytes::from(vec![3; 64 << 10]);
    dialler.send(21, std::slice::from_ref(&body)).unwrap();
    acceptor.on_bytes(dialler.poll_output().unwrap()).unwrap();
    acceptor.on_bytes(dialler.poll_output().unwrap()).unwrap();
    let [LinkEvent::Message { body: arrived, .. }] = &events(&mut acceptor)[..] else { panic!() };
    assert_eq!(arrived.as_ptr(), body.as_ptr());
}

#[test]
fn wrong_cluster_osd_or_life_is_refused_and_told_why() {
    let cluster = LinkConfig { fsid: Uuid([8; 16]), ..config(DIALLER) };
    let other_osd = OsdLife { osd: OsdId(9), ..ACCEPTOR };
    let other_life = OsdLife { incarnation: 223, ..ACCEPTOR };
    for (config_, target, why) in [
        (cluster, ACCEPTOR, Refusal::Cluster),
        (config(DIALLER), other_osd, Refusal::Target),
        (config(DIALLER), other_life, Refusal::Incarnation),
    ] {
        let mut dialler = PeerLink::connect(config_, target, LinkChannel::Heartbeat, Time::ZERO);
        let mut acceptor = PeerLink::accept(config(ACCEPTOR), Time::ZERO);
        let end = carry(&mut dialler, &mut acceptor, usize::MAX);
        assert_eq!(end, Err(LinkError::Refused(why)));
        let told = carry(&mut acceptor, &mut dialler, usize::MAX);
        assert_eq!(told, Err(LinkError::RefusedByPeer(why)));
        assert!(dialler.is_closed() && acceptor.is_closed());
    }
}

fn hello(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        fsid: Uuid([7; 16]),
        sender: DIALLER,
        target: ACCEPTOR,
        channel: LinkChannel::Data,
        features: 0,
    };
    change(&mut hello);
    wire::Encode::to_bytes(&hello, wire::Features::ALL).to_vec()
}

#[test]
fn versions_must_meet_and_later_hellos_may_be_longer() {
    let mut newer = hello(|h| h.version_max = 9);
    newer.extend([0xff; 100]);
    let mut acceptor = PeerLink::accept(config(ACCEPTOR), Time::ZERO);
    acceptor.on_bytes(raw::link_frame(0, 0, &newer).into()).unwrap();
    assert_eq!(acceptor.peer().unwrap().version, VERSION_MAX);

    for (min, max) in [(VERSION_MAX + 1, 9), (0, VERSION_MIN - 1)] {
        let apart = hello(|h| (h.version_min, h.version_max) = (min, max));
        let mut acceptor = PeerLink::accept(config(ACCEPTOR), Time::ZERO);
        let end = acceptor.on_bytes(raw::link_frame(0, 0, &apart).into());
        assert_eq!(end, Err(LinkError::Refused(Refusal::Version)));
    }
}

#[test]
fn answer_from_someone_else_is_not_accepted() {
    let answers = [
        hello(|h| (h.sender, h.target) = (OsdLife { osd: OsdId(5), ..ACCEPTOR }, DIALLER)),
        hello(|h| (h.sender, h.target) = (OsdLife { incarnation: 5, ..ACCEPTOR }, DIALLER)),
        hello(|h| {
            (h.sender, h.target, h.channel) = (ACCEPTOR, DIALLER, LinkChannel::Heartbeat);
        }),
    ];
    for answer in answers {
        let (mut dialler, _) = pair();
        assert!(dialler.on_bytes(raw::link_frame(0, 0, &answer).into()).is_err());
    }
}

#[test]
fn frames_out_of_place_end_the_link() {
    let (mut dialler, _) = pair();
    assert_eq!(dialler.send(KIND_FIRST, &[]), Err(LinkError::NotReady));
    let early = raw::link_frame(KIND_FIRST, 0, b"x");
    assert_eq!(dialler.on_bytes(early.into()), Err(LinkError::UnexpectedKind(KIND_FIRST)));
    for kind in [0, 2, 15] {
        let (_dialler, mut acceptor) = ready_pair();
        let frame = raw::link_frame(kind, 1, &hello(|_| {}));
        assert_eq!(acceptor.on_bytes(frame.into()), Err(LinkError::UnexpectedKind(kind)));
    }
    for seq in [0, 2] {
        let (_dialler, mut acceptor) = ready_pair();
        let end = acceptor.on_bytes(raw::link_frame(20, seq, b"").into());
        assert_eq!(end, Err(LinkError::Sequence { last: 0, found: seq }));
    }
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let mut stream = raw::link_frame(0, 0, &hello(|_| {}));
    stream.extend(raw::link_frame(20, 1, b"a body"));
    for bit in 0..stream.len() * 8 {
        let mut bad = stream.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let mut acceptor = PeerLink::accept(config(ACCEPTOR), Time::ZERO);
        assert!(acceptor.on_bytes(bad.into()).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
    }
    for len in 0..stream.len() {
        let mut acceptor = PeerLink::accept(config(ACCEPTOR), Time::ZERO);
        assert_eq!(acceptor.on_bytes(Bytes::copy_from_slice(&stream[..len])), Ok(()));
        assert!(events(&mut acceptor).len() < 2);
    }
}

#[test]
fn promised_lengths_reserve_nothing() {
    let mut frame = raw::link_frame(20, 1, b"");
    frame[16..20].copy_from_slice(&PEER_BODY_LEN_MAX.to_le_bytes());
    let crc = !raw::ceph_crc32c(!0, &frame[..28]);
    frame[28..].copy_from_slice(&crc.to_le_bytes());
    let (_dialler, mut acceptor) = ready_pair();
    acceptor.on_bytes(Bytes::from(frame.clone())).unwrap();
    acceptor.on_bytes(Bytes::from(vec![0; 100_000])).unwrap();
    assert!(acceptor.reserved_len() <= RESERVE_FIRST + 2 * RESERVE_FACTOR * 100_000);

    // One more byte, or the same before the hello, is too much.
    let (_, mut stranger) = pair();
    assert!(matches!(
        stranger.on_bytes(frame.clone().into()),
        Err(LinkError::Sequence { .. } | LinkError::BodyTooLarge { .. })
    ));
    frame[16..20].copy_from_slice(&(PEER_BODY_LEN_MAX + 1).to_le_bytes());
    let crc = !raw::ceph_crc32c(!0, &frame[..28]);
    frame[28..].copy_from_slice(&crc.to_le_bytes());
    let (_dialler, mut acceptor) = ready_pair();
    assert!(matches!(acceptor.on_bytes(frame.into()), Err(LinkError::BodyTooLarge { .. })));
}

#[test]
fn silent_stranger_is_dropped() {
    let (_, mut acceptor) = pair();
    let late = Time::ZERO + Duration::from_secs(20);
    assert_eq!(acceptor.poll_timeout(), Some(late));
    assert_eq!(acceptor.on_tick(late), Err(LinkError::HandshakeTimeout));
}

#[test]
fn random_streams_neither_panic_nor_hoard() {
    let mut random = Random::from_seed(0x6c69_6e6b);
    for _ in 0..4000 {
        let mut link = match random.below(3) {
            0 => pair().0,
            1 => pair().1,
            _ => ready_pair().1,
        };
        let mut bad = Vec::new();
        for seq in 0..1 + random.below(5) {
            let body: Vec<u8> = (0..random.below(90)).map(|_| random.next_u64() as u8).collect();
            match random.below(3) {
                0 => bad.extend(body),
                1 => bad.extend(raw::link_frame(random.below(20) as u16, seq + 1, &body)),
                _ => {
                    bad.extend(raw::link_frame(0, seq, &hello(|_| {})));
                    let at = random.below(bad.len() as u64 * 2) as usize;
                    bad.get_mut(at).into_iter().for_each(|b| *b ^= 1 << random.below(8));
                }
            }
        }
        let step = 1 + random.below(100) as usize;
        let result = bad.chunks(step).try_for_each(|p| link.on_bytes(Bytes::copy_from_slice(p)));
        assert_eq!(result.is_err(), link.is_closed());
        assert!(link.reserved_len() <= RESERVE_FIRST + 2 * RESERVE_FACTOR * bad.len());
        output(&mut link);
    }
}
