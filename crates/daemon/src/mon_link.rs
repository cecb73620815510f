//! The one session that an OSD or a client keeps to a monitor.

use crate::sessions::{Dial, SessionTable};
use base::{Duration, Time};
use env::Env;
use tracing::debug;
use wire::messages::{Outgoing, SessionId};
use wire::types::EntityAddr;

/// Between attempts: short, as a monitor restarts in milliseconds.
const RETRY: Duration = Duration::from_millis(100);

pub struct MonLink {
    /// One per monitor; tried in turn.
    addrs: Vec<EntityAddr>,
    next_addr: usize,
    session: Option<SessionId>,
    open: bool,
    retry_at: Time,
}

impl MonLink {
    pub fn new(addrs: Vec<EntityAddr>) -> MonLink {
        assert!(!addrs.is_empty(), "at least one monitor's address");
        MonLink { addrs, next_addr: 0, session: None, open: false, retry_at: Time::ZERO }
    }

    pub fn is(&self, session: SessionId) -> bool {
        self.session == Some(session)
    }

    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Dials when there is no session and the pause is over. `dial` says who
    /// we are; its target is filled in here.
    pub fn drive(&mut self, env: &mut dyn Env, sessions: &mut SessionTable, dial: &Dial) {
        if self.session.is_some() || env.now() < self.retry_at {
            return;
        }
        let target = self.addrs[self.next_addr % self.addrs.len()];
        self.next_addr += 1;
        self.session = sessions.dial(env, Dial { target, ..dial.clone() });
        debug!(%target, "dialling a monitor");
    }

    pub fn on_opened(&mut self) {
        self.open = true;
    }

    pub fn on_closed(&mut self, now: Time) {
        self.session = None;
        self.open = false;
        self.retry_at = now + RETRY;
    }

    /// Dropped while there is no open session: what must arrive is sent again
    /// when the next one opens.
    pub fn send(&self, sessions: &mut SessionTable, message: Outgoing) {
        if let Some(session) = self.session.filter(|_| self.open) {
            sessions.send(session, message);
        }
    }

    pub fn next_wake(&self) -> Time {
        if self.session.is_some() { Time::MAX } else { self.retry_at }
    }
}
