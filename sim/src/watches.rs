//! A client that watches objects, answers the notifications that come, sends some itself, and
//! ends its watches or dies with them. [`crate::checkers::watch`] says whether all was as it must be.

use crate::cluster::POOL;
use crate::watch_history::{Completed, Listed, Loss, Notified, Watched};
use crate::workload::SharedHistory;
use base::{Duration, Random, Time};
use bytes::Bytes;
use client::{Completion, ObjectRequest, RequestId, WatchEvent, WatchId, ops};
use daemon::ClientHost;
use std::collections::{BTreeMap, BTreeSet};
use tracing::debug;
use wire::types::{EntityName, PoolId};
use wire::{DecodeError, Decoder};

const OBJECTS: usize = 2;
/// Notifications of one client at once.
const NOTIFIES_MAX: usize = 2;
pub const TIMEOUT_MAX: Duration = Duration::from_secs(5);
/// Of the last notifications: longer than any watch lives without its client.
const LAST_TIMEOUT_S: u32 = 30;
/// For how long it is remembered when what was sent.
const MOMENTS_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
struct Own {
    id: WatchId,
    /// In the history.
    index: usize,
}

pub struct WatchClient {
    me: usize,
    history: SharedHistory,
    random: Random,
    /// Requests that make the objects; before that there is nothing to watch.
    creating: Option<BTreeSet<RequestId>>,
    watches: [Option<Own>; OBJECTS],
    ending: BTreeMap<RequestId, usize>,
    acks: BTreeSet<RequestId>,
    notifies: BTreeMap<RequestId, usize>,
    /// When, by the history's clock, it was what time by this client's.
    moments: BTreeMap<Time, u64>,
    left: usize,
    pause_us: u64,
    next_at: Time,
    /// Every fault is over, and nothing is begun any more.
    finishing: bool,
    notify_everything: bool,
    list_everything: bool,
    listings: BTreeMap<RequestId, usize>,
}

impl WatchClient {
    pub fn new(
        me: usize,
        history: SharedHistory,
        random: Random,
        steps: usize,
        pause_us: u64,
    ) -> WatchClient {
        WatchClient {
            me,
            history,
            random,
            creating: None,
            watches: [None; OBJECTS],
            ending: BTreeMap::new(),
            acks: BTreeSet::new(),
            notifies: BTreeMap::new(),
            moments: BTreeMap::new(),
            left: steps,
            pause_us,
            next_at: Time::ZERO,
            finishing: false,
            notify_everything: false,
            list_everything: false,
            listings: BTreeMap::new(),
        }
    }

    /// What is left to do for whoever takes its place.
    pub fn remaining(&self) -> usize {
        self.left
    }

    pub fn is_done(&self) -> bool {
        let asked = self.creating.as_ref().map_or(0, BTreeSet::len) + self.ending.len() + self.acks.len();
        let last = self.notify_everything || self.list_everything;
        self.left == 0 && asked == 0 && self.notifies.is_empty() && self.listings.is_empty() && !last
    }

    /// Every watch is known to be lost, or to have lived since peace came.
    pub fn is_sure(&self) -> bool {
        let history = self.history.borrow();
        let alive = |own: &Own| history.peace.is_some_and(|peace| history.watches[own.index].alive > peace);
        self.finishing && self.watches.iter().flatten().all(alive)
    }

    /// Nothing is begun any more.
    pub fn finish(&mut self) {
        self.left = 0;
        self.finishing = true;
    }

    pub fn notify_everything(&mut self) {
        self.notify_everything = true;
        self.next_at = Time::ZERO;
    }

    /// Which watches are recorded.
    pub fn list_everything(&mut self) {
        self.list_everything = true;
        self.next_at = Time::ZERO;
    }

    pub fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        self.note_life(host, now);
        let Some(pool) = host.client.pool_id(POOL) else {
            self.next_at = now + Duration::from_millis(10);
            return;
        };
        if self.creating.is_none() {
            let create = |object| ObjectRequest::new(pool, name(object), vec![ops::create()]);
            let requests = (0..OBJECTS).map(|object| host.client.submit(create(object), host.env.wall()));
            self.creating = Some(requests.collect());
        }
        if !self.is_ready() {
            return;
        }
        if std::mem::take(&mut self.notify_everything) {
            (0..OBJECTS).for_each(|object| self.notify(host, pool, object, LAST_TIMEOUT_S));
        }
        if std::mem::take(&mut self.list_everything) {
            for object in 0..OBJECTS {
                let request = ObjectRequest::new(pool, name(object), vec![ops::list_watchers()]);
                self.listings.insert(host.client.submit(request, host.env.wall()), object);
            }
        }
        while now >= self.next_at && self.left > 0 {
            self.left -= 1;
            self.step(host, pool);
            self.next_at = now + Duration::from_micros(self.random.below(2 * self.pause_us + 1));
        }
    }

    fn is_ready(&self) -> bool {
        self.creating.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// What the confirmed signs of life say of the watches.
    fn note_life(&mut self, host: &ClientHost<'_>, now: Time) {
        let mut history = self.history.borrow_mut();
        for own in self.watches.iter().flatten() {
            let sent = host.client.watch_valid_thru(own.id);
            if let Some(at) = sent.and_then(|sent| self.moments.get(&sent)) {
                let watch = &mut history.watches[own.index];
                watch.alive = watch.alive.max(*at);
            }
        }
        let index = history.tick();
        self.moments.entry(now).or_insert(index);
        while let Some((first, _)) = self.moments.first_key_value()
            && now.since(*first) > MOMENTS_MAX
        {
            self.moments.pop_first();
        }
    }

    fn step(&mut self, host: &mut ClientHost<'_>, pool: PoolId) {
        let object = self.random.below(OBJECTS as u64) as usize;
        match (self.random.below(8), self.watches[object]) {
            (0..=3, None) => self.watch(host, pool, object),
            (0, Some(own)) => self.unwatch(host, object, own),
            _ if self.notifies.len() < NOTIFIES_MAX => {
                let timeout_s = [1, 4, LAST_TIMEOUT_S][self.random.below(3) as usize];
                self.notify(host, pool, object, timeout_s);
            }
            _ => {}
        }
    }

    fn watch(&mut self, host: &mut ClientHost<'_>, pool: PoolId, object: usize) {
        let timeout_s = 2 + self.random.below(TIMEOUT_MAX.as_secs() - 1) as u32;
        let Some(gid) = host.global_id else { return };
        let request = ObjectRequest::new(pool, name(object), vec![]);
        let id = host.client.watch(request, timeout_s, host.env.wall());
        let mut history = self.history.borrow_mut();
        let index = history.watches.len();
        history.watches.push(Watched {
            client: self.me,
            name: (gid.0, id.0),
            object,
            timeout: Duration::from_secs(u64::from(timeout_s)),
            established: None,
            alive: 0,
            leaving: None,
            left: None,
            lost: None,
            heard: Vec::new(),
        });
        debug!(index, object, cookie = id.0, timeout_s, "watching");
        self.watches[object] = Some(Own { id, index });
    }

    fn unwatch(&mut self, host: &mut ClientHost<'_>, object: usize, own: Own) {
        self.watches[object] = None;
        let mut history = self.history.borrow_mut();
        let now = history.tick();
        history.watches[own.index].leaving = Some(now);
        if let Some(id) = host.client.unwatch(own.id, host.env.wall()) {
            self.ending.insert(id, own.index);
        }
    }

    fn notify(&mut self, host: &mut ClientHost<'_>, pool: PoolId, object: usize, timeout_s: u32) {
        let mut history = self.history.borrow_mut();
        let token = history.notifies.len();
        let notified = Notified {
            client: self.me,
            object,
            fenced: host.client.map().map_or(Vec::new(), |map| history.fenced(map)),
            invoked: history.tick(),
            last: self.finishing,
            completed: None,
        };
        history.notifies.push(notified);
        let request = ObjectRequest::new(pool, name(object), vec![]);
        let payload = (token as u64).to_le_bytes();
        let id = host.client.notify(request, &payload, timeout_s, host.env.wall());
        debug!(token, object, timeout_s, "notifying");
        self.notifies.insert(id, token);
    }

    pub fn on_watch(&mut self, host: &mut ClientHost<'_>, id: WatchId, event: WatchEvent) {
        let mut history = self.history.borrow_mut();
        let Some(index) = history.watches.iter().position(|w| w.client == self.me && w.name.1 == id.0) else {
            unreachable!("an event of a watch that was never asked for");
        };
        let now = history.tick();
        debug!(index, ?event, "watch");
        match event {
            WatchEvent::Established => history.watches[index].established = Some(now),
            WatchEvent::Notify { notify_id, payload, .. } => {
                let token = payload.first_chunk::<8>().map_or(u64::MAX, |token| u64::from_le_bytes(*token));
                history.watches[index].heard.push((now, token as usize));
                // Some do not answer.
                if self.finishing || self.random.chance(9, 10) {
                    let reply = (index as u64).to_le_bytes();
                    let wall = host.env.wall();
                    self.acks.extend(host.client.notify_ack(id, notify_id, &reply, wall));
                }
            }
            WatchEvent::Lost(errno) => {
                let valid = host.client.watch_valid_thru(id);
                let silence = valid.map_or(Duration::ZERO, |valid| host.env.now().since(valid));
                history.watches[index].lost = Some(Loss { at: now, errno, silence });
                let slot = self.watches.iter_mut().find(|own| own.is_some_and(|own| own.index == index));
                slot.into_iter().for_each(|own| *own = None);
                // Nothing comes of that but its answer.
                self.acks.extend(host.client.unwatch(id, host.env.wall()));
            }
        }
    }

    /// False if it is not about one of ours.
    pub fn on_completion(&mut self, id: RequestId, completion: &Completion) -> bool {
        match completion {
            Completion::Notify { result, replies, missed } => {
                let Some(token) = self.notifies.remove(&id) else { return false };
                let mut history = self.history.borrow_mut();
                let says =
                    |reply: &[u8]| reply.first_chunk::<8>().map_or(u64::MAX, |i| u64::from_le_bytes(*i));
                let replies = replies.iter().map(|r| ((r.gid, r.cookie), says(&r.reply) as usize)).collect();
                let (at, result, missed) = (history.tick(), *result, missed.clone());
                debug!(token, result, ?replies, ?missed, "notified");
                history.notifies[token].completed = Some(Completed { at, result, replies, missed });
                true
            }
            Completion::Object { result, ops, .. } => {
                if let Some(object) = self.listings.remove(&id) {
                    let data = ops.first().map(|op| op.outdata.clone()).unwrap_or_default();
                    let names = match *result {
                        0 => names(data).map_err(|error| error.to_string()),
                        errno => Err(format!("an error {errno} instead of the watches")),
                    };
                    self.history.borrow_mut().listed.push(Listed { object, names });
                    return true;
                }
                if let Some(index) = self.ending.remove(&id) {
                    let mut history = self.history.borrow_mut();
                    let now = history.tick();
                    history.watches[index].left = (*result == 0).then_some(now);
                    return true;
                }
                if self.creating.as_mut().is_some_and(|creating| creating.remove(&id)) {
                    // It is fenced: there is nothing to do for it.
                    self.left = if *result == 0 { self.left } else { 0 };
                    return true;
                }
                self.acks.remove(&id)
            }
            Completion::Command { .. } => false,
        }
    }

    pub fn next_wake(&self) -> Time {
        let waits = self.is_ready() && self.left == 0 && !self.notify_everything && !self.list_everything;
        let creating = self.creating.as_ref().is_some_and(|creating| !creating.is_empty());
        if waits || creating { Time::MAX } else { self.next_at }
    }
}

/// What LIST_WATCHERS answers: `obj_list_watch_response_t`.
fn names(data: Bytes) -> Result<BTreeSet<(u64, u64)>, DecodeError> {
    Decoder::plain(data).versioned("watchers", 1, |d, _| {
        let mut names = BTreeSet::new();
        for _ in 0..d.u32()? {
            d.versioned("watcher", 2, |d, _| {
                let client: EntityName = d.get()?;
                names.insert((client.num as u64, d.u64()?));
                Ok(())
            })?;
        }
        Ok(names)
    })
}

fn name(object: usize) -> String {
    format!("watch-{object}")
}
