//! Authentication as steps of request and reply, and method `none`.
//!
//! The session carries payloads between the two traits and knows nothing of
//! what they mean. A method that proves something (cephx) hands the session a
//! [`Signer`]; with `none` the handshake's signatures are zeros.
//!
//! Source: WIRE: msgr2#auth (Ceph v16.2.15 `src/auth/AuthServer.h`, `AuthClient.h`, `src/auth/none/`).

use base::Errno;
use bytes::Bytes;
use std::fmt;
use wire::codec::Result as DecodeResult;
use wire::types::{EntityType, GlobalId};
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

/// `CEPH_AUTH_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AuthMethod {
    None,
    Cephx,
    Other(u32),
}

impl AuthMethod {
    pub fn from_u32(v: u32) -> AuthMethod {
        match v {
            1 => AuthMethod::None,
            2 => AuthMethod::Cephx,
            other => AuthMethod::Other(other),
        }
    }

    pub fn as_u32(self) -> u32 {
        match self {
            AuthMethod::None => 1,
            AuthMethod::Cephx => 2,
            AuthMethod::Other(v) => v,
        }
    }
}

/// `CEPH_CON_MODE_*`: how frames are protected once both sides are authenticated.
///
/// Only `Crc` is implemented; a peer that offers nothing else is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectionMode {
    Crc,
    Secure,
    Other(u32),
}

impl ConnectionMode {
    pub fn from_u32(v: u32) -> ConnectionMode {
        match v {
            1 => ConnectionMode::Crc,
            2 => ConnectionMode::Secure,
            other => ConnectionMode::Other(other),
        }
    }

    pub fn as_u32(self) -> u32 {
        match self {
            ConnectionMode::Crc => 1,
            ConnectionMode::Secure => 2,
            ConnectionMode::Other(v) => v,
        }
    }
}

/// `EntityName`: whose key is used, such as `client.admin`. Not the session's
/// own name, which is `client.4123`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    pub kind: EntityType,
    pub id: String,
}

impl AuthName {
    pub fn new(kind: EntityType, id: impl Into<String>) -> AuthName {
        AuthName { kind, id: id.into() }
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.name(), self.id)
    }
}

impl fmt::Debug for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Encode for AuthName {
    fn encode(&self, e: &mut Encoder) {
        e.u32(u32::from(self.kind.as_u8()));
        e.string(&self.id);
    }
}

impl Decode for AuthName {
    const MIN_LEN: usize = 8;
    fn decode(d: &mut Decoder) -> DecodeResult<Self> {
        let kind = u8::try_from(d.u32()?)
            .ok()
            .and_then(EntityType::from_u8)
            .ok_or(DecodeError::Invalid { what: "entity type of a name" })?;
        Ok(AuthName { kind, id: d.string()? })
    }
}

/// Signs what one side has received of the handshake, with the session key.
pub trait Signer {
    fn sign(&self, transcript: &[u8]) -> [u8; 32];
}

/// A server's answer to one request.
pub enum ServerStep {
    /// AUTH_REPLY_MORE: the peer goes on with AUTH_REQUEST_MORE.
    More(Bytes),
    /// The peer is `name`; the caller of the session must say which global id
    /// it gets. `claimed` is the one it had before, if any.
    NeedGlobalId {
        name: AuthName,
        claimed: Option<GlobalId>,
    },
    Done(ServerDone),
    /// AUTH_BAD_METHOD with this result; the peer may try another method.
    Refuse(Errno),
}

pub struct ServerDone {
    pub name: AuthName,
    pub global_id: GlobalId,
    /// AUTH_DONE's payload.
    pub payload: Bytes,
    pub signer: Option<Box<dyn Signer>>,
}

/// The acceptor's side of authentication, for one session.
pub trait AuthServer {
    fn methods(&self) -> &[AuthMethod];

    /// AUTH_REQUEST with a method out of `methods`; may come again after a refusal.
    fn on_request(&mut self, method: AuthMethod, payload: Bytes) -> ServerStep;

    /// AUTH_REQUEST_MORE after `ServerStep::More`.
    fn on_more(&mut self, payload: Bytes) -> ServerStep;

    /// The answer to `ServerStep::NeedGlobalId`.
    fn on_global_id(&mut self, global_id: GlobalId) -> ServerStep;
}

/// The connector's side of authentication, for one session.
pub trait AuthClient {
    fn method(&self) -> AuthMethod;

    /// AUTH_REQUEST's payload.
    fn start(&mut self) -> Bytes;

    /// AUTH_REPLY_MORE → AUTH_REQUEST_MORE.
    fn on_more(&mut self, payload: Bytes) -> Result<Bytes, &'static str>;

    /// AUTH_DONE.
    fn on_done(
        &mut self,
        global_id: GlobalId,
        payload: Bytes,
    ) -> Result<Option<Box<dyn Signer>>, &'static str>;
}

/// First byte of a payload to a monitor (`AUTH_MODE_MON`).
const MODE_MON: u8 = 10;
/// First byte of a payload to any other daemon (`AUTH_MODE_AUTHORIZER`).
const MODE_AUTHORIZER: u8 = 1;

/// What the dialled daemon is, as far as authentication cares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthRole {
    /// Hands out global ids.
    Mon,
    /// Takes the global id that a monitor handed out.
    Service,
}

impl AuthRole {
    fn mode(self) -> u8 {
        match self {
            AuthRole::Mon => MODE_MON,
            AuthRole::Service => MODE_AUTHORIZER,
        }
    }
}

/// Method `none`: whoever the peer says it is.
pub struct AuthNoneServer {
    role: AuthRole,
    name: Option<AuthName>,
}

impl AuthNoneServer {
    pub fn new(role: AuthRole) -> AuthNoneServer {
        AuthNoneServer { role, name: None }
    }

    fn done(name: AuthName, global_id: GlobalId) -> ServerStep {
        ServerStep::Done(ServerDone { name, global_id, payload: Bytes::new(), signer: None })
    }
}

impl AuthServer for AuthNoneServer {
    fn methods(&self) -> &[AuthMethod] {
        &[AuthMethod::None]
    }

    fn on_request(&mut self, _method: AuthMethod, payload: Bytes) -> ServerStep {
        let Ok((name, global_id)) = decode_none(self.role, payload) else {
            return ServerStep::Refuse(Errno::EINVAL);
        };
        match self.role {
            AuthRole::Service => Self::done(name, global_id),
            AuthRole::Mon => {
                self.name = Some(name.clone());
                let claimed = (global_id != GlobalId(0)).then_some(global_id);
                ServerStep::NeedGlobalId { name, claimed }
            }
        }
    }

    fn on_more(&mut self, _payload: Bytes) -> ServerStep {
        ServerStep::Refuse(Errno::EINVAL)
    }

    fn on_global_id(&mut self, global_id: GlobalId) -> ServerStep {
        match self.name.take() {
            Some(name) => Self::done(name, global_id),
            None => ServerStep::Refuse(Errno::EINVAL),
        }
    }
}

fn decode_none(role: AuthRole, payload: Bytes) -> DecodeResult<(AuthName, GlobalId)> {
    let mut d = Decoder::plain(payload);
    if d.u8()? != role.mode() {
        return Err(DecodeError::Invalid { what: "authentication mode" });
    }
    Ok((d.get()?, d.get()?))
}

/// Method `none` on the dialling side.
pub struct AuthNoneClient {
    role: AuthRole,
    name: AuthName,
    global_id: GlobalId,
}

impl AuthNoneClient {
    /// `role` is the dialled daemon's; `global_id` is zero before a monitor assigned one.
    pub fn new(role: AuthRole, name: AuthName, global_id: GlobalId) -> AuthNoneClient {
        AuthNoneClient { role, name, global_id }
    }
}

impl AuthClient for AuthNoneClient {
    fn method(&self) -> AuthMethod {
        AuthMethod::None
    }

    fn start(&mut self) -> Bytes {
        let mut e = Encoder::plain();
        e.u8(self.role.mode());
        e.put(&self.name);
        e.put(&self.global_id);
        e.finish()
    }

    fn on_more(&mut self, _payload: Bytes) -> Result<Bytes, &'static str> {
        Err("method none takes one step, the peer wants more")
    }

    fn on_done(
        &mut self,
        _global_id: GlobalId,
        _payload: Bytes,
    ) -> Result<Option<Box<dyn Signer>>, &'static str> {
        Ok(None)
    }
}
