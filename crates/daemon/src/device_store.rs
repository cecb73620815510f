//! What the OSD's driver asks of a store that lives on a device, besides what
//! the OSD core asks ([`store::ObjectStore`]).

use env::{DiskOp, DiskRequest, DiskResult};
use store::{Engine, FetchId, ObjectStore, PendingStore};
use wire::types::Uuid;

/// Calling order: until [`OpenState::Open`], only the disk calls; then, in each
/// batch, disk completions, core calls, [`DeviceStore::commit`], disk requests.
/// Requests may be taken earlier as well: those that need no commit are there.
pub trait DeviceStore: ObjectStore {
    fn open_state(&self) -> OpenState;
    /// The store's own identity, once open.
    fn uuid(&self) -> Uuid;
    /// Ends a batch: everything queued since the last call becomes one commit.
    fn commit(&mut self);
    fn poll_disk(&mut self) -> Option<DiskRequest>;
    fn on_disk_done(&mut self, token: u64, result: DiskResult);
    /// Puts everything where the next start finds it without replaying the log.
    /// Never needed for safety.
    fn begin_shutdown(&mut self);
    /// Nothing queued, nothing in flight.
    fn is_idle(&self) -> bool;
    /// The store can promise nothing any more: the process must end.
    fn fatal_error(&self) -> Option<String>;
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenState {
    Opening,
    Open,
    Failed(String),
}

impl DeviceStore for Engine {
    fn open_state(&self) -> OpenState {
        match self.open_error() {
            Some(error) => OpenState::Failed(error.to_string()),
            None if self.is_open() => OpenState::Open,
            None => OpenState::Opening,
        }
    }

    fn uuid(&self) -> Uuid {
        self.info().expect("asked once the store is open").identity.uuid
    }

    fn commit(&mut self) {
        Engine::commit(self);
    }

    fn poll_disk(&mut self) -> Option<DiskRequest> {
        Engine::poll_disk(self)
    }

    fn on_disk_done(&mut self, token: u64, result: DiskResult) {
        Engine::on_disk_done(self, token, result);
    }

    fn begin_shutdown(&mut self) {
        self.checkpoint();
    }

    fn is_idle(&self) -> bool {
        Engine::is_idle(self)
    }

    fn fatal_error(&self) -> Option<String> {
        Engine::fatal_error(self).map(ToString::to_string)
    }
}

/// Tells the loads' disk requests from the store's own.
const LOAD_TOKEN: u64 = 1 << 63;

/// For the simulator: each load takes as long as a read of the device.
impl<S: DeviceStore> DeviceStore for PendingStore<S> {
    fn open_state(&self) -> OpenState {
        self.inner().open_state()
    }

    fn uuid(&self) -> Uuid {
        self.inner().uuid()
    }

    fn commit(&mut self) {
        self.end_turn();
        self.inner_mut().commit();
    }

    fn poll_disk(&mut self) -> Option<DiskRequest> {
        if let Some(FetchId(id)) = self.poll_load() {
            return Some(DiskRequest { token: id | LOAD_TOKEN, op: DiskOp::read(0, 4096) });
        }
        self.inner_mut().poll_disk()
    }

    fn on_disk_done(&mut self, token: u64, result: DiskResult) {
        if token & LOAD_TOKEN != 0 {
            return self.finish_load(FetchId(token));
        }
        self.inner_mut().on_disk_done(token, result);
    }

    fn begin_shutdown(&mut self) {
        self.inner_mut().begin_shutdown();
    }

    fn is_idle(&self) -> bool {
        !self.is_loading() && self.inner().is_idle()
    }

    fn fatal_error(&self) -> Option<String> {
        self.inner().fatal_error()
    }
}
