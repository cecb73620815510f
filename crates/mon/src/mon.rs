use crate::{MapStore, MapStoreError, MkfsOptions};
use base::{Random, Time, WallTime};
use std::collections::VecDeque;
use wire::DecodeError;
use wire::messages::{Incoming, Outgoing, Peer, SessionId};
use wire::types::{GlobalId, Uuid};

/// What an event brings along from the outside world.
pub struct Ctx<'a> {
    pub now: Time,
    pub wall: WallTime,
    pub random: &'a mut Random,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MonError {
    #[error(transparent)]
    Store(#[from] MapStoreError),
    #[error("map store: {key}: {error}")]
    Decode { key: String, error: DecodeError },
    #[error("map store: no cluster in it")]
    Empty,
    #[error("map store: a cluster exists already")]
    Exists,
    #[error("map store: written by a newer version ({found}; this one knows {known})")]
    TooNew { found: u32, known: u32 },
    #[error("{0}")]
    Invalid(String),
}

/// What the monitor wants done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Send(SessionId, Outgoing),
    /// Drop the session; `on_session_closed` need not follow.
    Close(SessionId),
    /// The store failed: nothing can be promised any more, so the process must end.
    Fatal(MonError),
}

/// One monitor.
pub struct Mon<M: MapStore> {
    store: M,
    fsid: Uuid,
    actions: VecDeque<Action>,
}

impl<M: MapStore> Mon<M> {
    /// Writes a new cluster's first maps and opens it.
    pub fn create(store: M, options: &MkfsOptions) -> Result<Mon<M>, MonError> {
        Ok(Mon { store, fsid: options.fsid, actions: VecDeque::new() })
    }

    pub fn open(store: M) -> Result<Mon<M>, MonError> {
        Ok(Mon { store, fsid: Uuid::ZERO, actions: VecDeque::new() })
    }

    pub fn fsid(&self) -> Uuid {
        self.fsid
    }

    pub fn store(&self) -> &M {
        &self.store
    }

    /// A number no session ever had, for the session that is authenticating.
    pub fn allocate_global_id(&mut self) -> Result<GlobalId, MonError> {
        Err(MonError::Invalid("not implemented yet".into()))
    }

    pub fn on_session_open(&mut self, _ctx: &mut Ctx<'_>, _session: SessionId, _peer: Peer) {}

    pub fn on_message(&mut self, _ctx: &mut Ctx<'_>, _session: SessionId, _message: Incoming) {}

    pub fn on_session_closed(&mut self, _ctx: &mut Ctx<'_>, _session: SessionId) {}

    pub fn on_tick(&mut self, _ctx: &mut Ctx<'_>) {}

    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When `on_tick` should be called next.
    pub fn next_wake(&self) -> Option<Time> {
        None
    }
}
