//! Our own OSD-to-OSD link: framing, hello, checksums, order. No stock client
//! ever sees it.
//!
//! Knows nothing of bodies: `osd` encodes and decodes them. Like
//! [`crate::Session`] it opens no socket and reads no clock. A link that
//! breaks loses what was in flight; the OSDs' own protocol repeats what must be.
//!
//! Promises: a body is delivered only after its checksum held, in the order
//! sent, from the OSD and the life that the hello named, to the OSD and the
//! life that the dialler meant. Memory follows what has arrived.
//!
//! Protocol: `docs/protocol/peer-link.md`.

mod header;
mod hello;

pub use hello::{Hello, LinkChannel, OsdLife, Refusal, VERSION_MAX, VERSION_MIN};

use crate::limits::{HANDSHAKE_TIMEOUT, PEER_BODY_LEN_MAX};
use crate::rx::{Rx, Unfinished};
use crate::tx::Tx;
use base::Time;
use base::sums;
use bytes::Bytes;
use header::Header;
use std::collections::VecDeque;
use wire::types::Uuid;
use wire::{Decode, DecodeError, Encode, Features};

/// Kinds below are the link's own; bodies use this one and up.
pub const KIND_FIRST: u16 = 16;
const KIND_HELLO: u16 = 0;
const KIND_REFUSE: u16 = 1;

/// Every one of them is final, but for those of [`PeerLink::send`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkError {
    #[error("peer does not speak the OSD-to-OSD protocol: wrong magic")]
    BadMagic,
    #[error("frame header checksum is {found:08x}, computed {computed:08x}")]
    HeaderChecksum { found: u32, computed: u32 },
    #[error("frame header of version {version}, flags {flags:#x}")]
    HeaderVersion { version: u8, flags: u8 },
    #[error("body of {len} bytes exceeds {max}")]
    BodyTooLarge { len: usize, max: usize },
    #[error("frame {seq}: body checksum is {found:08x}, computed {computed:08x}")]
    BodyChecksum { seq: u64, found: u32, computed: u32 },
    #[error("frame {found} follows frame {last}")]
    Sequence { last: u64, found: u64 },
    #[error("unexpected frame of kind {0}")]
    UnexpectedKind(u16),
    #[error("malformed hello: {0}")]
    Malformed(#[from] DecodeError),
    /// We refuse the peer.
    #[error("refused: {0}")]
    Refused(Refusal),
    #[error("peer refuses us: {0}")]
    RefusedByPeer(Refusal),
    #[error("peer answers for another channel")]
    WrongChannel,
    #[error("hello not finished in time")]
    HandshakeTimeout,
    #[error("link is not ready")]
    NotReady,
    #[error("link is closed")]
    Closed,
}

/// Our end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    pub fsid: Uuid,
    pub local: OsdLife,
    pub features: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The peer is who its hello says and may be sent to. Whether the OSDMap
    /// knows this life of it is the caller's to check.
    Ready(LinkPeer),
    /// `kind` is [`KIND_FIRST`] or above.
    Message { kind: u16, body: Bytes },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkPeer {
    pub life: OsdLife,
    pub channel: LinkChannel,
    /// Of the bodies: the highest that both speak.
    pub version: u16,
    /// Bits that both have.
    pub features: u64,
}

enum State {
    AwaitDial,
    AwaitAnswer { target: OsdLife, channel: LinkChannel },
    Ready(LinkPeer),
    Closed,
}

/// One link. Calling order as for [`crate::Session`].
pub struct PeerLink {
    config: LinkConfig,
    state: State,
    rx: Rx,
    tx: Tx,
    /// A header whose body has not arrived.
    header: Option<Header>,
    in_seq: u64,
    out_seq: u64,
    deadline: Time,
    events: VecDeque<LinkEvent>,
}

impl PeerLink {
    /// For an accepted connection; both channels are served.
    pub fn accept(config: LinkConfig, now: Time) -> PeerLink {
        PeerLink::new(config, State::AwaitDial, now)
    }

    /// For a connection dialled to `target`, as the OSDMap has it.
    pub fn connect(config: LinkConfig, target: OsdLife, channel: LinkChannel, now: Time) -> PeerLink {
        let mut link = PeerLink::new(config, State::AwaitAnswer { target, channel }, now);
        link.put_hello(target, channel);
        link
    }

    fn new(config: LinkConfig, state: State, now: Time) -> PeerLink {
        PeerLink {
            config,
            state,
            rx: Rx::new(),
            tx: Tx::new(),
            header: None,
            in_seq: 0,
            out_seq: 0,
            deadline: now + HANDSHAKE_TIMEOUT,
            events: VecDeque::new(),
        }
    }

    /// Received bytes, cut anywhere. Errors close the link; whole messages
    /// before the offending byte can still be polled.
    pub fn on_bytes(&mut self, chunk: Bytes) -> Result<(), LinkError> {
        if matches!(self.state, State::Closed) {
            return Err(LinkError::Closed);
        }
        self.rx.feed(chunk);
        let read = self.read_frames();
        if read.is_err() {
            self.close();
        }
        read
    }

    fn close(&mut self) {
        self.state = State::Closed;
        self.rx.clear();
    }

    fn read_frames(&mut self) -> Result<(), LinkError> {
        loop {
            let header = match self.header.take() {
                Some(header) => header,
                None => match self.rx.read_array() {
                    Some(raw) => self.check_header(&raw)?,
                    None => return Ok(()),
                },
            };
            let Some((body, crc)) = self.rx.read_checked(header.len as usize, header.lead as usize) else {
                self.header = Some(header);
                return Ok(());
            };
            // The usual CRC32C inverts at the end, Ceph's does not.
            let computed = !crc;
            if computed != header.body_crc {
                let Header { seq, body_crc: found, .. } = header;
                return Err(LinkError::BodyChecksum { seq, found, computed });
            }
            self.on_frame(header.kind, body)?;
        }
    }

    fn check_header(&mut self, raw: &[u8; header::HEADER_LEN]) -> Result<Header, LinkError> {
        let header = Header::decode(raw, matches!(self.state, State::Ready(_)))?;
        if header.seq != self.in_seq {
            let last = self.in_seq.wrapping_sub(1);
            return Err(LinkError::Sequence { last, found: header.seq });
        }
        self.in_seq += 1;
        Ok(header)
    }

    fn on_frame(&mut self, kind: u16, body: Bytes) -> Result<(), LinkError> {
        match (&self.state, kind) {
            (State::Ready(_), KIND_FIRST..) => {
                self.events.push_back(LinkEvent::Message { kind, body });
                Ok(())
            }
            (State::AwaitDial, KIND_HELLO) => {
                let hello = Hello::from_bytes(body, Features::ALL)?;
                let peer = self.check_hello(&hello)?;
                self.put_hello(hello.sender, hello.channel);
                self.on_ready(peer);
                Ok(())
            }
            (&State::AwaitAnswer { target, channel }, KIND_HELLO) => {
                let hello = Hello::from_bytes(body, Features::ALL)?;
                if hello.sender.osd != target.osd {
                    return self.refuse(Refusal::Target);
                }
                if hello.sender != target {
                    return self.refuse(Refusal::Incarnation);
                }
                if hello.channel != channel {
                    return Err(LinkError::WrongChannel);
                }
                let peer = self.check_hello(&hello)?;
                self.on_ready(peer);
                Ok(())
            }
            (State::AwaitAnswer { .. } | State::Ready(_), KIND_REFUSE) => {
                Err(LinkError::RefusedByPeer(Refusal::from_bytes(body, Features::ALL)?))
            }
            (_, kind) => Err(LinkError::UnexpectedKind(kind)),
        }
    }

    /// What holds for a hello in either direction.
    fn check_hello(&mut self, hello: &Hello) -> Result<LinkPeer, LinkError> {
        let version = VERSION_MAX.min(hello.version_max);
        if hello.fsid != self.config.fsid {
            self.refuse(Refusal::Cluster)?;
        }
        if version < VERSION_MIN || version < hello.version_min {
            self.refuse(Refusal::Version)?;
        }
        if hello.target.osd != self.config.local.osd {
            self.refuse(Refusal::Target)?;
        }
        if hello.target != self.config.local {
            self.refuse(Refusal::Incarnation)?;
        }
        Ok(LinkPeer {
            life: hello.sender,
            channel: hello.channel,
            version,
            features: self.config.features & hello.features,
        })
    }

    /// Tells the peer, then fails: the caller closes once the output is written.
    fn refuse(&mut self, why: Refusal) -> Result<(), LinkError> {
        self.put(KIND_REFUSE, &[why.to_bytes(Features::ALL)]);
        Err(LinkError::Refused(why))
    }

    fn on_ready(&mut self, peer: LinkPeer) {
        self.state = State::Ready(peer);
        self.events.push_back(LinkEvent::Ready(peer));
    }

    fn put_hello(&mut self, target: OsdLife, channel: LinkChannel) {
        let hello = Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            fsid: self.config.fsid,
            sender: self.config.local,
            target,
            channel,
            features: self.config.features,
        };
        self.put(KIND_HELLO, &[hello.to_bytes(Features::ALL)]);
    }

    fn put(&mut self, kind: u16, body: &[Bytes]) {
        let len: usize = body.iter().map(Bytes::len).sum();
        let header = Header {
            kind,
            seq: self.out_seq,
            len: len as u32,
            lead: if body.len() > 1 { body[0].len() as u32 } else { 0 },
            // The usual CRC32C inverts at both ends.
            body_crc: !body.iter().fold(!0, |crc, piece| sums::continue_crc(crc, piece)),
        };
        self.out_seq += 1;
        self.tx.put(&header.encode());
        for piece in body {
            self.tx.put_bytes(piece);
        }
    }

    /// Queues one message; what is queued between two drains of `poll_output`
    /// leaves as one batch. `body` is a rope, its long pieces are not copied.
    ///
    /// Errors: `NotReady`, `Closed`, `BodyTooLarge`; none of them closes the link.
    pub fn send(&mut self, kind: u16, body: &[Bytes]) -> Result<(), LinkError> {
        assert!(kind >= KIND_FIRST, "kinds below are the link's own");
        match self.state {
            State::Ready(_) => {}
            State::Closed => return Err(LinkError::Closed),
            _ => return Err(LinkError::NotReady),
        }
        let len: usize = body.iter().map(Bytes::len).sum();
        let max = PEER_BODY_LEN_MAX as usize;
        if len > max {
            return Err(LinkError::BodyTooLarge { len, max });
        }
        self.put(kind, body);
        Ok(())
    }

    /// Time passes: only the hello has a deadline. Whether a silent peer is
    /// dead is the heartbeats' question.
    pub fn on_tick(&mut self, now: Time) -> Result<(), LinkError> {
        match self.state {
            State::Closed => Err(LinkError::Closed),
            State::AwaitDial | State::AwaitAnswer { .. } if now >= self.deadline => {
                self.close();
                Err(LinkError::HandshakeTimeout)
            }
            _ => Ok(()),
        }
    }

    /// When `on_tick` has something to do.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            State::AwaitDial | State::AwaitAnswer { .. } => Some(self.deadline),
            State::Ready(_) | State::Closed => None,
        }
    }

    pub fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// The next piece to write. Several calls gather one `writev`.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.tx.pop()
    }

    /// As [`crate::Session::unfinished`].
    pub fn unfinished(&self) -> Option<Unfinished> {
        let lead = self.header.as_ref().map_or(0, |header| header.lead as usize);
        self.rx.unfinished(lead)
    }

    pub fn leave_unfinished(&mut self) {
        self.rx.leave_unfinished();
    }

    /// Bytes queued for output: for back-pressure.
    pub fn output_len(&self) -> usize {
        self.tx.len()
    }

    /// Memory held for a frame whose rest has not arrived.
    pub fn reserved_len(&self) -> usize {
        self.rx.reserved_len()
    }

    /// Who the peer is, once the link is ready.
    pub fn peer(&self) -> Option<&LinkPeer> {
        match &self.state {
            State::Ready(peer) => Some(peer),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }
}
