//! The acceptor's handshake: HELLO, authentication, signatures, CLIENT_IDENT.
//!
//! Policy: every accepted session is lossy, nothing is kept for a reconnect;
//! whoever asks to resume is told that there is nothing to resume.
//!
//! Source: WIRE: msgr2#handshake, msgr2#reconnect (Ceph v16.2.15 `src/msg/async/ProtocolV2.cc`).

use super::SessionEvent;
use super::channel::Channel;
use super::control::{self, *};
use crate::auth::{AuthMethod, AuthName, ConnectionMode, ServerStep};
use crate::frame::{Frame, Tag};
use crate::{AcceptConfig, PeerIdentity, SessionError};
use base::Errno;
use std::net::SocketAddr;
use wire::types::{EntityAddr, EntityName, EntityType, GlobalId};

enum State {
    Hello,
    AuthRequest,
    AuthRequestMore,
    GlobalId,
    Signature(control::Signature),
    Ident,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Hello => "awaiting HELLO",
            State::AuthRequest => "awaiting AUTH_REQUEST",
            State::AuthRequestMore => "awaiting AUTH_REQUEST_MORE",
            State::GlobalId => "choosing a global id",
            State::Signature(_) => "awaiting AUTH_SIGNATURE",
            State::Ident => "awaiting CLIENT_IDENT",
        }
    }
}

pub struct Acceptor {
    config: AcceptConfig,
    socket: SocketAddr,
    state: State,
    /// Known from HELLO on.
    peer_kind: EntityType,
    own_addr: EntityAddr,
    /// The peer's last choice.
    method: AuthMethod,
    /// Known once authenticated.
    auth: Option<(AuthName, GlobalId)>,
}

/// What a step of the handshake leads to.
pub type Step = Result<Option<SessionEvent>, SessionError>;

impl Acceptor {
    pub fn new(config: AcceptConfig, socket: SocketAddr, channel: &mut Channel) -> Acceptor {
        let peer_addr = EntityAddr::msgr2(socket, 0);
        channel.send(&Hello { kind: config.entity.kind, peer_addr });
        Acceptor {
            config,
            socket,
            state: State::Hello,
            peer_kind: EntityType::Client,
            own_addr: EntityAddr::BLANK,
            method: AuthMethod::None,
            auth: None,
        }
    }

    pub fn on_frame(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        match (&self.state, frame.tag) {
            (State::Hello, Tag::Hello) => {
                let hello: Hello = control::decode(frame)?;
                self.peer_kind = hello.kind;
                self.own_addr = hello.peer_addr;
                self.state = State::AuthRequest;
                Ok(None)
            }
            (State::AuthRequest, Tag::AuthRequest) => self.on_auth_request(frame, channel),
            (State::AuthRequestMore, Tag::AuthRequestMore) => {
                let more: AuthRequestMore = control::decode(frame)?;
                let step = self.config.auth.on_more(more.payload);
                self.on_auth_step(step, channel)
            }
            (State::Signature(expected), Tag::AuthSignature) => {
                channel.check_signature(frame, *expected)?;
                self.state = State::Ident;
                Ok(None)
            }
            (State::Ident, Tag::ClientIdent) => self.on_client_ident(frame, channel),
            (State::Ident, Tag::SessionReconnect) => {
                let _: SessionReconnect = control::decode(frame)?;
                channel.send(&SessionReset { full: true });
                Ok(None)
            }
            (state, tag) => Err(SessionError::UnexpectedFrame { tag, state: state.name() }),
        }
    }

    fn on_auth_request(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        let request: AuthRequest = control::decode(frame)?;
        let known_method = self.config.auth.methods().contains(&request.method);
        // WIRE: msgr2#secure. NOT-IMPLEMENTED: secure mode; a peer that insists is refused.
        let known_mode = request.modes.contains(&ConnectionMode::Crc);
        self.method = request.method;
        let step = if known_method && known_mode {
            self.config.auth.on_request(request.method, request.payload)
        } else {
            tracing::debug!(method = ?request.method, modes = ?request.modes, "method or mode not offered");
            ServerStep::Refuse(Errno::EOPNOTSUPP)
        };
        self.on_auth_step(step, channel)
    }

    pub fn assign_global_id(&mut self, global_id: GlobalId, channel: &mut Channel) -> Step {
        match self.state {
            State::GlobalId => {
                let step = self.config.auth.on_global_id(global_id);
                self.on_auth_step(step, channel)
            }
            _ => Err(SessionError::Auth("no global id was asked for")),
        }
    }

    fn on_auth_step(&mut self, step: ServerStep, channel: &mut Channel) -> Step {
        match step {
            ServerStep::More(payload) => {
                channel.send(&AuthReplyMore { payload });
                self.state = State::AuthRequestMore;
                Ok(None)
            }
            ServerStep::NeedGlobalId { name, claimed } => {
                self.state = State::GlobalId;
                Ok(Some(SessionEvent::NeedGlobalId { name, claimed }))
            }
            ServerStep::Done(done) => {
                channel.send(&AuthDone {
                    global_id: done.global_id,
                    mode: ConnectionMode::Crc,
                    payload: done.payload,
                });
                self.auth = Some((done.name, done.global_id));
                self.state = State::Signature(channel.sign_handshake(done.signer.as_deref()));
                Ok(None)
            }
            ServerStep::Refuse(errno) => {
                channel.send(&AuthBadMethod {
                    method: self.method,
                    result: errno.negative(),
                    allowed_methods: self.config.auth.methods().to_vec(),
                    allowed_modes: vec![ConnectionMode::Crc],
                });
                self.state = State::AuthRequest;
                Ok(None)
            }
        }
    }

    fn on_client_ident(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        let ident: ClientIdent = control::decode(frame)?;
        if ident.addrs.0.first().is_none_or(EntityAddr::is_blank) {
            return Err(SessionError::NoAddress);
        }
        if self.config.check_target && !self.config.addrs.0.contains(&ident.target) {
            return Err(SessionError::NotTheTarget { wanted: ident.target, ours: self.config.addrs.clone() });
        }
        let missing = ident.supported.0.missing(self.config.features_required);
        if missing.0 != 0 {
            // The peer hangs up, or comes again with what it kept back.
            let missing = FeatureBits(missing);
            channel.send(&IdentMissingFeatures { missing });
            return Ok(None);
        }
        let lacking = self.config.features_supported.missing(ident.required.0);
        if lacking.0 != 0 {
            return Err(SessionError::MissingFeatures(lacking));
        }
        let Some((auth_name, global_id)) = self.auth.take() else {
            return Err(SessionError::Auth("peer is not authenticated"));
        };
        channel.send(&ServerIdent {
            addrs: self.config.addrs.clone(),
            gid: self.config.entity.num,
            global_seq: self.config.global_seq,
            supported: FeatureBits(self.config.features_supported),
            required: FeatureBits(self.config.features_required),
            flags: FLAG_LOSSY,
            cookie: 0,
        });
        // A client does not know its number before the monitor told it.
        let claimed = i64::try_from(global_id.0).unwrap_or(i64::MAX);
        let num = if ident.gid < 0 { claimed } else { ident.gid };
        Ok(Some(SessionEvent::Ready(Box::new(PeerIdentity {
            entity: EntityName { kind: self.peer_kind, num },
            auth_name,
            global_id,
            addrs: ident.addrs,
            socket: self.socket,
            features: self.config.features_supported & ident.supported.0,
            lossy: true,
            cookie: ident.cookie,
            own_addr: self.own_addr,
        }))))
    }
}
