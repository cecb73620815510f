//! Who is connected, and what each was promised.

use base::Time;
use std::collections::BTreeMap;
use wire::messages::{Peer, SessionId, Subscription};
use wire::types::{EntityType, OsdId};

/// More sessions than any cluster has clients; a flood is turned away.
pub const SESSIONS_MAX: usize = 100_000;
/// Clients know about a dozen map names.
pub const SUBSCRIPTIONS_MAX: usize = 64;

#[derive(Debug)]
pub struct Session {
    pub peer: Peer,
    pub hostname: String,
    pub opened: Time,
    /// What is wanted next, by map name.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// The options last sent; `None` before the first time.
    pub config_sent: Option<BTreeMap<String, String>>,
}

impl Session {
    pub fn new(peer: Peer, opened: Time) -> Session {
        Session { peer, hostname: String::new(), opened, subscriptions: BTreeMap::new(), config_sent: None }
    }

    /// The OSD at the other end, if it is one.
    pub fn osd(&self) -> Option<OsdId> {
        if self.peer.name.kind != EntityType::Osd {
            return None;
        }
        i32::try_from(self.peer.name.num).ok().map(OsdId)
    }

    /// `client.admin`: what configuration sections and audit entries name.
    pub fn entity(&self) -> String {
        if self.peer.auth_id.is_empty() {
            return self.peer.name.to_string();
        }
        format!("{}.{}", self.peer.name.kind.name(), self.peer.auth_id)
    }
}

pub type Sessions = BTreeMap<SessionId, Session>;
