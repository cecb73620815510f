//! Keeping peers up to date with the maps they subscribed to.
//!
//! A peer names the version it wants next. What exists is sent at once; what
//! does not yet exist is sent when it does, also to those who ask only once.

use crate::core::{Core, MGR_MAP_EPOCH, Turn};
use crate::sessions::SUBSCRIPTIONS_MAX;
use crate::{MonError, fs_maps};
use std::collections::BTreeMap;
use wire::codec::Encode;
use wire::features::Features;
use wire::messages::{LogLevel, MConfig, MLog, MMgrMap, MMonSubscribe, MOsdMap, SessionId, Subscription};
use wire::types::Epoch;

/// Epochs in one message, as Ceph's `osd_map_message_max`.
const EPOCHS_PER_MESSAGE: u32 = 40;
/// Log entries sent to a new `ceph -w` at most.
const LOG_ENTRIES_PER_MESSAGE: usize = 200;

impl Core {
    pub fn on_subscribe(
        &mut self,
        turn: &Turn,
        id: SessionId,
        request: MMonSubscribe,
    ) -> Result<(), MonError> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        if !request.hostname.is_empty() {
            session.hostname = request.hostname;
        }
        let names: Vec<String> = request.what.keys().cloned().collect();
        for (name, wanted) in request.what {
            if session.subscriptions.len() < SUBSCRIPTIONS_MAX {
                session.subscriptions.insert(name, wanted);
            }
        }
        for name in names {
            self.check_subscription(turn, id, &name)?;
        }
        Ok(())
    }

    /// Serves every session that waits for this map.
    pub fn publish(&mut self, turn: &Turn, name: &str) -> Result<(), MonError> {
        let waiting: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.subscriptions.contains_key(name))
            .map(|(id, _)| *id)
            .collect();
        for id in waiting {
            self.check_subscription(turn, id, name)?;
        }
        Ok(())
    }

    fn check_subscription(&mut self, turn: &Turn, id: SessionId, name: &str) -> Result<(), MonError> {
        let Some(wanted) = self.sessions.get(&id).and_then(|s| s.subscriptions.get(name)).copied() else {
            return Ok(());
        };
        let newest = match name {
            "osdmap" => u64::from(self.osd.epoch().0),
            "monmap" => u64::from(self.mon_map.epoch),
            "mgrmap" => u64::from(MGR_MAP_EPOCH),
            "config" => return self.check_config(id, wanted.once),
            _ if name == "fsmap" || name == "fsmap.user" || name.starts_with("mdsmap") => {
                u64::from(fs_maps::FS_MAP_EPOCH)
            }
            _ if name.starts_with("log-") => {
                self.check_log(id, name, wanted);
                return Ok(());
            }
            // Unknown names are ignored, as Ceph does.
            _ => return Ok(()),
        };
        if wanted.start > newest {
            return Ok(());
        }
        match name {
            "osdmap" => self.send_osd_maps(turn, id, wanted.start)?,
            "monmap" => self.send_mon_map(id, 0),
            "mgrmap" => {
                let map = Core::mgr_map().to_bytes(Features::PACIFIC);
                self.send(id, &MMgrMap { map }, 0);
            }
            "fsmap" => self.send_raw(id, fs_maps::fs_map()),
            "fsmap.user" => self.send_raw(id, fs_maps::fs_map_user()),
            _ => self.send_raw(id, fs_maps::mds_map(self.fsid)),
        }
        self.served(id, name, wanted.once, newest + 1);
        Ok(())
    }

    fn served(&mut self, id: SessionId, name: &str, once: bool, next: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if once {
            session.subscriptions.remove(name);
        } else {
            session.subscriptions.insert(name.to_string(), Subscription { start: next, once: false });
        }
    }

    /// The newest full map, or everything from `start` on to one who has the epoch before it.
    fn send_osd_maps(&mut self, turn: &Turn, id: SessionId, start: u64) -> Result<(), MonError> {
        let (oldest, newest) = (self.osd.oldest(), self.osd.epoch());
        let start = Epoch(u32::try_from(start).unwrap_or(u32::MAX));
        if start.0 == 0 {
            let mut message = self.osd_map_message();
            message.fulls.insert(newest, self.osd.encoded().clone());
            self.send(id, &message, 0);
            return Ok(());
        }
        let mut from = start;
        let mut message = self.osd_map_message();
        if start <= oldest {
            // The change that made the oldest epoch is gone: begin with the epoch itself.
            if let Some(full) = self.osd.full(turn.store, oldest)? {
                message.fulls.insert(oldest, full);
            }
            from = oldest.next();
        }
        for epoch in from.0..=newest.0 {
            let Some(bytes) = self.osd.incremental(turn.store, Epoch(epoch))? else {
                let key = crate::keys::osd_map_incremental(Epoch(epoch));
                return Err(crate::MapStoreError::Corrupt(format!("{key} is missing")).into());
            };
            message.incrementals.insert(Epoch(epoch), bytes);
            if message.incrementals.len() >= EPOCHS_PER_MESSAGE as usize {
                self.send(id, &message, 0);
                message = self.osd_map_message();
            }
        }
        if !message.incrementals.is_empty() || !message.fulls.is_empty() {
            self.send(id, &message, 0);
        }
        Ok(())
    }

    fn osd_map_message(&self) -> MOsdMap {
        MOsdMap {
            fsid: self.fsid,
            incrementals: BTreeMap::new(),
            fulls: BTreeMap::new(),
            oldest: self.osd.oldest(),
            newest: self.osd.epoch(),
            gap_removed_snaps: BTreeMap::new(),
        }
    }

    /// Brings a peer to the newest map outside its subscription: its message
    /// showed that it is behind.
    pub fn send_newer_maps(&mut self, turn: &Turn, id: SessionId, has: Epoch) {
        if has >= self.osd.epoch() {
            return;
        }
        let start = if has.0 == 0 { 0 } else { u64::from(has.0) + 1 };
        if let Err(error) = self.send_osd_maps(turn, id, start) {
            self.actions.push_back(crate::Action::Fatal(error));
        }
    }

    /// Options are sent when they differ from what was sent before, and the
    /// first time even if there are none: clients wait for them.
    fn check_config(&mut self, id: SessionId, once: bool) -> Result<(), MonError> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        let options = self.config.options_for(&session.entity(), &session.hostname);
        if session.config_sent.as_ref() != Some(&options) {
            self.send(id, &MConfig { options: options.clone() }, 0);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.config_sent = Some(options);
        }
        if once {
            self.served(id, "config", true, 0);
        }
        Ok(())
    }

    pub fn publish_log(&mut self, turn: &Turn) {
        for name in ["log-debug", "log-info", "log-sec", "log-warn", "log-error"] {
            // Cannot fail: logs are not read from the store.
            drop(self.publish(turn, name));
        }
    }

    fn check_log(&mut self, id: SessionId, name: &str, wanted: Subscription) {
        let least = match name {
            "log-debug" => LogLevel::Debug,
            "log-info" => LogLevel::Info,
            "log-sec" => LogLevel::Security,
            "log-warn" => LogLevel::Warn,
            "log-error" => LogLevel::Error,
            _ => return,
        };
        // 0 asks for what happens from now on, as `ceph -w` does.
        let newest = self.log.newest();
        let from = if wanted.start == 0 { newest + 1 } else { wanted.start };
        let entries: Vec<_> = self.log.since(from).filter(|e| e.level >= least).cloned().collect();
        let skip = entries.len().saturating_sub(LOG_ENTRIES_PER_MESSAGE);
        let entries: Vec<_> = entries.into_iter().skip(skip).collect();
        if !entries.is_empty() {
            self.send(id, &MLog { version: newest, fsid: self.fsid, entries }, 0);
        }
        self.served(id, name, wanted.once, newest + 1);
    }
}
