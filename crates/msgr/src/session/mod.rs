//! One msgr2.1 connection: the handshake of either role, then messages.
//!
//! Source: WIRE: msgr2#session, msgr2#message (Ceph v16.2.15 `src/msg/async/ProtocolV2.cc`).

mod accept;
mod channel;
mod connect;
mod control;
mod liveness;

use crate::auth::AuthName;
use crate::frame::{Frame, MESSAGE_LENS_MAX, Tag, write_message};
use crate::limits::HANDSHAKE_FRAMES_MAX;
use crate::message::{HEADER_LEN, MessageHeader};
use crate::{AcceptConfig, ConnectConfig, Message, OutMessage, PeerIdentity, SessionError, Unfinished};
use accept::Acceptor;
use base::Time;
use bytes::Bytes;
use channel::Channel;
use connect::Connector;
use control::{Ack, Keepalive2};
use liveness::{Due, Liveness};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use wire::types::GlobalId;

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// A monitor must choose the peer's global id: answer with
    /// [`Session::assign_global_id`], at once or later. `claimed` is the one
    /// the peer had before.
    NeedGlobalId {
        name: AuthName,
        claimed: Option<GlobalId>,
    },
    /// The handshake is over; messages may be sent.
    Ready(Box<PeerIdentity>),
    Message(Message),
}

enum Phase {
    Accept(Box<Acceptor>),
    Connect(Box<Connector>),
    Ready(Box<PeerIdentity>),
    Closed,
}

/// One connection.
///
/// Calling order: create it; then whenever bytes or time arrive, `on_bytes` or
/// `on_tick`, drain `poll_event`, and write what `poll_output` gives while the
/// socket takes it. After an error: drain events (messages that came before
/// it), close the socket. Nothing recovers.
pub struct Session {
    channel: Channel,
    phase: Phase,
    events: VecDeque<SessionEvent>,
    liveness: Liveness,
    handshake_frames: u32,
    /// Last message received; `None` before the first.
    in_seq: Option<u64>,
    /// Last message received that the peer knows we have.
    acked_seq: u64,
    out_seq: u64,
    /// The last unanswered KEEPALIVE2. One suffices: a peer that asks faster
    /// than it reads cannot make answers pile up.
    echo: Option<Keepalive2>,
}

impl Session {
    /// For a connection accepted from `peer`.
    pub fn accept(config: AcceptConfig, peer: SocketAddr, now: Time) -> Session {
        let liveness = Liveness::acceptor(now, config.handshake_timeout, config.idle_timeout);
        let mut channel = Channel::new();
        let acceptor = Acceptor::new(config, peer, &mut channel);
        Session::new(channel, Phase::Accept(Box::new(acceptor)), liveness)
    }

    /// For a connection dialled to `config.target`.
    pub fn connect(config: ConnectConfig, now: Time) -> Session {
        let liveness = Liveness::connector(now, config.handshake_timeout, config.keepalive);
        let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let socket = config.target.socket.unwrap_or(unspecified);
        let mut channel = Channel::new();
        let connector = Connector::new(config, socket, &mut channel);
        Session::new(channel, Phase::Connect(Box::new(connector)), liveness)
    }

    fn new(channel: Channel, phase: Phase, liveness: Liveness) -> Session {
        Session {
            channel,
            phase,
            events: VecDeque::new(),
            liveness,
            handshake_frames: 0,
            in_seq: None,
            acked_seq: 0,
            out_seq: 0,
            echo: None,
        }
    }

    /// Received bytes, cut anywhere.
    ///
    /// Errors: any [`SessionError`]; the session is closed then. Messages that
    /// were complete before the offending byte can still be polled.
    pub fn on_bytes(&mut self, chunk: Bytes) -> Result<(), SessionError> {
        if matches!(self.phase, Phase::Closed) {
            return Err(SessionError::Closed);
        }
        self.liveness.on_heard();
        self.channel.rx.feed(chunk);
        let read = self.read_frames();
        self.close_on_error(read)
    }

    fn read_frames(&mut self) -> Result<(), SessionError> {
        loop {
            let ready = matches!(self.phase, Phase::Ready(_));
            let Some(frame) = self.channel.poll_frame(ready)? else { return Ok(()) };
            self.on_frame(frame)?;
        }
    }

    fn close_on_error(&mut self, result: Result<(), SessionError>) -> Result<(), SessionError> {
        if result.is_err() {
            self.phase = Phase::Closed;
            self.channel.rx.clear();
        }
        result
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), SessionError> {
        let step = match &mut self.phase {
            Phase::Ready(_) => return self.on_ready_frame(frame),
            Phase::Closed => return Err(SessionError::Closed),
            Phase::Accept(acceptor) => acceptor.on_frame(&frame, &mut self.channel),
            Phase::Connect(connector) => connector.on_frame(&frame, &mut self.channel),
        };
        self.handshake_frames += 1;
        if self.handshake_frames > HANDSHAKE_FRAMES_MAX {
            return Err(SessionError::EndlessHandshake);
        }
        self.after_step(step?);
        Ok(())
    }

    fn after_step(&mut self, event: Option<SessionEvent>) {
        if let Some(SessionEvent::Ready(peer)) = &event {
            self.phase = Phase::Ready(peer.clone());
            self.liveness.on_ready();
        }
        self.events.extend(event);
    }

    fn on_ready_frame(&mut self, frame: Frame) -> Result<(), SessionError> {
        match frame.tag {
            Tag::Message => self.on_message(frame),
            Tag::Keepalive2 => {
                self.echo = Some(control::decode(&frame)?);
                Ok(())
            }
            // Any bytes are a sign of life; the echoed time is of no use.
            Tag::Keepalive2Ack => control::decode::<Keepalive2>(&frame).map(drop),
            // Nothing is kept for resending, so nothing is released.
            Tag::Ack => control::decode::<Ack>(&frame).map(drop),
            tag => Err(SessionError::UnexpectedFrame { tag, state: "ready" }),
        }
    }

    fn on_message(&mut self, frame: Frame) -> Result<(), SessionError> {
        let [header, front, middle, data] = frame.segments;
        let header: &[u8; HEADER_LEN] = header[..].try_into().map_err(|_| SessionError::Malformed {
            tag: Tag::Message,
            error: wire::DecodeError::Invalid { what: "message header" },
        })?;
        let header = MessageHeader::decode(header);
        // Sessions are never resumed, so TCP's order leaves no room for gaps
        // or repetition. Lossless peers start anywhere.
        if let Some(last) = self.in_seq
            && header.seq != last.wrapping_add(1)
        {
            return Err(SessionError::Sequence { last, found: header.seq });
        }
        self.in_seq = Some(header.seq);
        self.events.push_back(SessionEvent::Message(Message {
            kind: header.kind,
            tid: header.tid,
            priority: header.priority,
            version: header.version,
            compat: header.compat,
            front,
            middle,
            data,
        }));
        Ok(())
    }

    /// Answers [`SessionEvent::NeedGlobalId`].
    pub fn assign_global_id(&mut self, global_id: GlobalId) -> Result<(), SessionError> {
        let step = match &mut self.phase {
            Phase::Accept(acceptor) => acceptor.assign_global_id(global_id, &mut self.channel),
            Phase::Closed => return Err(SessionError::Closed),
            _ => Err(SessionError::Auth("no global id was asked for")),
        };
        let done = step.map(|event| self.after_step(event));
        self.close_on_error(done)
    }

    /// Time passes. Call at [`Session::poll_timeout`] or more often.
    pub fn on_tick(&mut self, now: Time) -> Result<(), SessionError> {
        if matches!(self.phase, Phase::Closed) {
            return Err(SessionError::Closed);
        }
        let due = self.liveness.on_tick(now);
        if let Ok(Due::Keepalive) = due {
            let stamp = base::WallTime::from_duration(now.since(Time::ZERO));
            let keepalive = Keepalive2 { sec: stamp.sec, nsec: stamp.nsec };
            self.channel.send(&keepalive);
        }
        self.close_on_error(due.map(drop))
    }

    /// When `on_tick` has something to do. Changes with every call into the session.
    pub fn poll_timeout(&self) -> Option<Time> {
        if matches!(self.phase, Phase::Closed) { None } else { self.liveness.deadline() }
    }

    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// Queues a message. Encode it for `peer().features`.
    ///
    /// Errors: `NotReady`, `Closed`, `MessageTooLarge`; none of them ends the session.
    pub fn send(&mut self, message: OutMessage) -> Result<(), SessionError> {
        match self.phase {
            Phase::Ready(_) => {}
            Phase::Closed => return Err(SessionError::Closed),
            _ => return Err(SessionError::NotReady),
        }
        let lens = [message.front.len(), message.middle.len(), message.data_len()];
        for (i, (len, max)) in lens.into_iter().zip(MESSAGE_LENS_MAX).enumerate() {
            let max = max as usize;
            if len > max {
                return Err(SessionError::MessageTooLarge { segment: i + 1, len, max });
            }
        }
        self.out_seq += 1;
        self.acked_seq = self.in_seq.unwrap_or(0);
        let header = MessageHeader {
            seq: self.out_seq,
            tid: message.tid,
            kind: message.kind,
            priority: message.priority,
            version: message.version,
            ack_seq: self.acked_seq,
            compat: message.compat,
        };
        let OutMessage { front, middle, data, .. } = &message;
        write_message(&mut self.channel.tx, &header.encode(), front, middle, data);
        Ok(())
    }

    /// The next piece to write; call when the socket has room. Several calls
    /// gather one `writev`.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        if let Some(keepalive) = self.echo.take() {
            self.channel.send_as(Tag::Keepalive2Ack, &keepalive);
        }
        let in_seq = self.in_seq.unwrap_or(0);
        if let Phase::Ready(peer) = &self.phase
            && !peer.lossy
            && self.acked_seq != in_seq
        {
            self.acked_seq = in_seq;
            self.channel.send(&Ack { seq: in_seq });
        }
        self.channel.tx.pop()
    }

    /// The long part that waits for its rest. Taken up: [`Session::leave_unfinished`],
    /// and the next chunk begins with the part.
    pub fn unfinished(&self) -> Option<Unfinished> {
        self.channel.rx.unfinished(0)
    }

    pub fn leave_unfinished(&mut self) {
        self.channel.rx.leave_unfinished();
    }

    /// Bytes queued for output: for back-pressure.
    pub fn output_len(&self) -> usize {
        self.channel.tx.len()
    }

    /// Memory held for a frame whose rest has not arrived.
    pub fn reserved_len(&self) -> usize {
        self.channel.rx.reserved_len()
    }

    /// Who the peer is, once the session is ready.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        match &self.phase {
            Phase::Ready(peer) => Some(peer),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }
}
