//! The connector's handshake.
//!
//! Policy: we ask for a lossy session and never resume one. What a server says
//! about resuming leads to a fresh CLIENT_IDENT; WAIT ends the attempt.
//!
//! Source: WIRE: msgr2#handshake, msgr2#reconnect (Ceph v16.2.15 `src/msg/async/ProtocolV2.cc`).

use super::SessionEvent;
use super::accept::Step;
use super::channel::Channel;
use super::control::{self, *};
use crate::auth::{AuthName, ConnectionMode};
use crate::frame::{Frame, Tag};
use crate::{ConnectConfig, OwnAddrs, PeerIdentity, SessionError};
use std::net::SocketAddr;
use wire::types::{AddrType, EntityAddr, EntityAddrVec, EntityName, GlobalId};

enum State {
    Hello,
    AuthReply,
    Signature(control::Signature),
    Ident,
}

impl State {
    fn name(&self) -> &'static str {
        match self {
            State::Hello => "awaiting HELLO",
            State::AuthReply => "awaiting the answer to AUTH_REQUEST",
            State::Signature(_) => "awaiting AUTH_SIGNATURE",
            State::Ident => "awaiting SERVER_IDENT",
        }
    }
}

pub struct Connector {
    config: ConnectConfig,
    socket: SocketAddr,
    state: State,
    own_addr: EntityAddr,
    global_id: GlobalId,
}

impl Connector {
    pub fn new(config: ConnectConfig, socket: SocketAddr, channel: &mut Channel) -> Connector {
        let hello = Hello { kind: config.entity.kind, peer_addr: config.target };
        channel.send(&hello);
        Connector { config, socket, state: State::Hello, own_addr: EntityAddr::BLANK, global_id: GlobalId(0) }
    }

    pub fn on_frame(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        match (&self.state, frame.tag) {
            (State::Hello, Tag::Hello) => self.on_hello(frame, channel),
            (State::AuthReply, Tag::AuthReplyMore) => {
                let more: AuthReplyMore = control::decode(frame)?;
                let payload = self.config.auth.on_more(more.payload).map_err(SessionError::Auth)?;
                channel.send(&AuthRequestMore { payload });
                Ok(None)
            }
            (State::AuthReply, Tag::AuthBadMethod) => {
                let bad: AuthBadMethod = control::decode(frame)?;
                Err(SessionError::AuthRefused {
                    method: bad.method,
                    result: bad.result,
                    allowed: bad.allowed_methods,
                })
            }
            (State::AuthReply, Tag::AuthDone) => self.on_auth_done(frame, channel),
            (State::Signature(expected), Tag::AuthSignature) => {
                channel.check_signature(frame, *expected)?;
                self.state = State::Ident;
                self.send_ident(channel);
                Ok(None)
            }
            (State::Ident, Tag::ServerIdent) => self.on_server_ident(frame),
            (State::Ident, Tag::IdentMissingFeatures) => {
                let missing: IdentMissingFeatures = control::decode(frame)?;
                Err(SessionError::MissingFeatures(missing.missing.0))
            }
            (State::Ident, Tag::Wait) => Err(SessionError::Wait),
            // Answers to a resumption: identify afresh. The number of frames
            // in a handshake bounds how often.
            (State::Ident, Tag::SessionReset | Tag::SessionRetry) => {
                self.send_ident(channel);
                Ok(None)
            }
            (State::Ident, Tag::SessionRetryGlobal) => {
                let retry: SessionRetryGlobal = control::decode(frame)?;
                self.config.global_seq = self.config.global_seq.max(retry.global_seq).saturating_add(1);
                self.send_ident(channel);
                Ok(None)
            }
            (state, tag) => Err(SessionError::UnexpectedFrame { tag, state: state.name() }),
        }
    }

    fn on_hello(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        let hello: Hello = control::decode(frame)?;
        if hello.kind != self.config.target_kind {
            let expected = self.config.target_kind;
            return Err(SessionError::WrongPeerType { found: hello.kind, expected });
        }
        self.own_addr = hello.peer_addr;
        channel.send(&AuthRequest {
            method: self.config.auth.method(),
            modes: vec![ConnectionMode::Crc],
            payload: self.config.auth.start(),
        });
        self.state = State::AuthReply;
        Ok(None)
    }

    fn on_auth_done(&mut self, frame: &Frame, channel: &mut Channel) -> Step {
        let done: AuthDone = control::decode(frame)?;
        if done.mode != ConnectionMode::Crc {
            return Err(SessionError::ModeNotOffered(done.mode));
        }
        let signer = self.config.auth.on_done(done.global_id, done.payload).map_err(SessionError::Auth)?;
        self.global_id = done.global_id;
        self.state = State::Signature(channel.sign_handshake(signer.as_deref()));
        Ok(None)
    }

    fn own_addrs(&self) -> EntityAddrVec {
        match &self.config.addrs {
            OwnAddrs::Known(addrs) => addrs.clone(),
            // As Ceph's clients do: no port, for nobody can dial them.
            OwnAddrs::Learn { nonce } => EntityAddrVec::one(EntityAddr {
                kind: AddrType::Any,
                nonce: *nonce,
                socket: self.own_addr.socket.map(|s| SocketAddr::new(s.ip(), 0)),
            }),
        }
    }

    fn send_ident(&mut self, channel: &mut Channel) {
        channel.send(&ClientIdent {
            addrs: self.own_addrs(),
            target: self.config.target,
            gid: self.config.entity.num,
            global_seq: self.config.global_seq,
            supported: FeatureBits(self.config.features_supported),
            required: FeatureBits(self.config.features_required),
            flags: FLAG_LOSSY,
            cookie: 0,
        });
    }

    fn on_server_ident(&mut self, frame: &Frame) -> Step {
        let ident: ServerIdent = control::decode(frame)?;
        if !ident.addrs.0.contains(&self.config.target) {
            let expected = self.config.target;
            return Err(SessionError::WrongPeerAddr { found: ident.addrs, expected });
        }
        let missing = ident.supported.0.missing(self.config.features_required);
        let lacking = self.config.features_supported.missing(ident.required.0);
        if missing.0 | lacking.0 != 0 {
            return Err(SessionError::MissingFeatures(missing | lacking));
        }
        Ok(Some(SessionEvent::Ready(Box::new(PeerIdentity {
            entity: EntityName { kind: self.config.target_kind, num: ident.gid },
            auth_name: AuthName::new(self.config.target_kind, ""),
            global_id: self.global_id,
            addrs: ident.addrs,
            socket: self.socket,
            features: self.config.features_supported & ident.supported.0,
            lossy: ident.flags & FLAG_LOSSY != 0,
            cookie: ident.cookie,
            own_addr: self.own_addr,
        }))))
    }
}
