//! A process that only works on a store: formats it, or opens it to look.

use crate::device_store::{DeviceStore, OpenState};
use base::Time;
use env::{Env, Event, Node};

/// Drives a store until it is open and quiet, then ends: status 0, or 1 with
/// the reason in [`StoreJob::error`].
pub struct StoreJob<S: DeviceStore> {
    pub store: S,
    pub error: Option<String>,
    in_flight: usize,
}

impl<S: DeviceStore> StoreJob<S> {
    pub fn new(store: S) -> StoreJob<S> {
        StoreJob { store, error: None, in_flight: 0 }
    }
}

impl<S: DeviceStore> Node for StoreJob<S> {
    fn start(&mut self, env: &mut dyn Env) {
        self.on_batch_end(env);
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::DiskDone { token, result } => {
                self.in_flight -= 1;
                self.store.on_disk_done(token, result);
            }
            Event::Shutdown => {
                self.error = Some("interrupted".into());
                env.exit(1);
            }
            _ => {}
        }
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        while let Some(request) = self.store.poll_disk() {
            self.in_flight += 1;
            env.submit(request);
        }
        match self.store.open_state() {
            OpenState::Failed(reason) => {
                self.error = Some(reason);
                env.exit(1);
            }
            OpenState::Open if self.in_flight == 0 => env.exit(0),
            OpenState::Open | OpenState::Opening => {}
        }
    }

    fn next_wake(&self) -> Time {
        Time::MAX
    }
}
