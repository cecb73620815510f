//! What happens: messages, commits, time; and what the cores answer to it.

use super::*;

pub(super) enum Event {
    Peer { from: usize, to: usize, generation: u64, channel: Channel, kind: u16, body: Bytes },
    LinkUp { from: usize, to: usize, generation: u64 },
    LinkDown { from: usize, to: usize, generation: u64, reason: DownReason },
    ToMon { osd: usize, life: u64, message: Outgoing },
    FromMon { osd: usize, life: u64, maps: MOsdMap },
    MonCommit,
    ToOsd { osd: usize, life: u64, message: Outgoing },
    Reply { life: u64, osd: usize, client: usize, message: Outgoing },
    ClientMap { epoch: Epoch },
    Store { osd: usize, life: u64 },
    Loaded { osd: usize, life: u64, load: FetchId },
    Wake { osd: usize, life: u64 },
}

impl World {
    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.seq += 1;
        self.events.insert((self.now + delay, self.seq), event);
    }

    /// In order within one stream.
    pub(super) fn after_in_order(&mut self, stream: (u8, usize, u64), delay: Duration, event: Event) {
        let at = (self.now + delay)
            .max(self.order.get(&stream).copied().unwrap_or(Time::ZERO) + Duration::from_nanos(1));
        self.order.insert(stream, at);
        self.seq += 1;
        self.events.insert((at, self.seq), event);
    }

    pub(super) fn delay(&mut self) -> Duration {
        Duration::from_micros(50 + self.random.below(300))
    }

    pub fn step(&mut self) {
        let Some(((at, _), event)) = self.events.pop_first() else { return };
        self.now = self.now.max(at);
        match event {
            Event::Peer { from, to, generation, channel, kind, body } => {
                let current = self.links.get(&(from, to)).is_some_and(|l| l.generation == generation && l.up);
                if current && self.is_cut(from, to) {
                    // What is lost takes its connection along.
                    let link = self.links.get_mut(&(from, to)).unwrap();
                    link.up = false;
                    link.generation += 1;
                    let event = Event::LinkDown { from, to, generation, reason: DownReason::Lost };
                    self.after(Duration::from_millis(20), event);
                } else if current {
                    self.with(to, |o, ctx| o.on_peer_message(ctx, OsdId(from as i32), channel, kind, body));
                }
            }
            Event::LinkUp { from, to, generation } => {
                let Some(link) = self.links.get_mut(&(from, to)) else { return };
                if link.generation != generation {
                    return;
                }
                if self.nodes[to].is_none() {
                    return self
                        .with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), DownReason::Refused));
                }
                if self.is_cut(from, to) {
                    return self.with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), DownReason::Lost));
                }
                self.links.get_mut(&(from, to)).unwrap().up = true;
                self.with(from, |o, ctx| o.on_peer_up(ctx, OsdId(to as i32)));
            }
            Event::LinkDown { from, to, generation, reason } => {
                if self.links.get(&(from, to)).is_some_and(|l| l.generation == generation + 1) {
                    self.with(from, |o, ctx| o.on_peer_down(ctx, OsdId(to as i32), reason));
                }
            }
            Event::ToMon { osd, life, message } => {
                if self.life(osd) == Some(life) && !self.is_cut(osd, MON) {
                    self.on_mon(osd, message);
                }
            }
            Event::FromMon { osd, life, maps } => {
                if self.life(osd) == Some(life) && !self.is_cut(osd, MON) {
                    // Sent before it had loaded what it knows: it asks from there by now.
                    let knows = self.nodes[osd].as_ref().is_some_and(|n| n.osd.epoch().0 > 0);
                    if knows && !maps.fulls.is_empty() {
                        return self.publish(osd, true);
                    }
                    let out = Outgoing::new(&maps, 0, Features::PACIFIC);
                    self.with(osd, |o, ctx| o.on_mon_message(ctx, incoming(out)));
                }
            }
            Event::MonCommit => self.mon_commit(),
            Event::ToOsd { osd, life, message } => {
                if self.life(osd) == Some(life) {
                    let tid = message.tid;
                    let client = (tid >> 32) as usize;
                    let session = SessionId(client as u64);
                    if self.clients[client].sessions.insert((osd, life)) {
                        let peer = Peer {
                            name: EntityName::client(client as i64 + 100),
                            auth_id: "admin".into(),
                            global_id: GlobalId(client as u64 + 100),
                            addr: client_addr(client),
                            features: Features::PACIFIC,
                        };
                        self.with(osd, |o, ctx| o.on_client_open(ctx, session, peer));
                    }
                    self.with(osd, |o, ctx| o.on_client_message(ctx, session, incoming(message)));
                }
            }
            Event::Reply { osd, life, client, message } => {
                if self.life(osd) == Some(life) && message.kind == MOsdBackoff::KIND {
                    self.on_backoff(osd, life, client, message);
                } else if self.life(osd) == Some(life) && message.kind == MWatchNotify::KIND {
                    let told = incoming(message).decode(Features::PACIFIC).unwrap();
                    self.clients[client].told.push(told);
                } else if self.life(osd) == Some(life) {
                    self.on_reply(message);
                }
            }
            Event::ClientMap { epoch } => {
                for client in 0..self.clients.len() {
                    if !self.clients[client].frozen && self.clients[client].epoch < epoch {
                        self.clients[client].epoch = epoch;
                        self.retarget(client);
                    }
                }
            }
            Event::Store { osd, life } => {
                if self.life(osd) != Some(life) {
                    return;
                }
                let node = self.nodes[osd].as_mut().unwrap();
                node.store_pending = false;
                let count = node.osd.store().inner().held_count();
                let some = 1 + self.random.below(count.max(1) as u64) as usize;
                let node = self.nodes[osd].as_mut().unwrap();
                node.osd.store_mut().inner_mut().commit_held(some);
                self.with(osd, |o, ctx| o.on_store_events(ctx));
            }
            Event::Loaded { osd, life, load } => {
                if self.life(osd) == Some(life) {
                    self.nodes[osd].as_mut().unwrap().osd.store_mut().finish_load(load);
                    self.with(osd, |o, ctx| o.on_store_events(ctx));
                }
            }
            Event::Wake { osd, life } => {
                if self.life(osd) == Some(life) {
                    self.nodes[osd].as_mut().unwrap().woken_at = Time::MAX;
                    self.with(osd, |o, ctx| o.on_tick(ctx));
                }
            }
        }
    }

    /// The OSD's own clock: clocks of different processes have nothing in common.
    pub fn local(&self, osd: usize) -> Time {
        let started = self.nodes[osd].as_ref().map_or(Time::ZERO, |n| n.started);
        Time(self.now.0 - started.0 + 5_000_000_000 * (osd as u64 + 1))
    }

    pub fn life(&self, osd: usize) -> Option<u64> {
        self.nodes[osd].as_ref().map(|n| n.life)
    }

    /// One call into a core, and everything that comes out of it.
    pub fn with(&mut self, osd: usize, call: impl FnOnce(&mut Osd<PendingStore<MemStore>>, &mut Ctx<'_>)) {
        let local = self.local(osd);
        let Some(node) = &mut self.nodes[osd] else { return };
        let mut ctx = Ctx {
            now: local,
            wall: WallTime::from_duration(Duration::from_nanos(self.now.0)),
            random: &mut self.random,
        };
        call(&mut node.osd, &mut ctx);
        // Reads answer at once, but through the queue like everything else.
        node.osd.on_store_events(&mut ctx);
        let errors = node.osd.counters().scrub_errors;
        assert!(errors == 0 || self.is_damaged, "osd.{osd}: a scrub found {errors} errors that are none");
        let life = node.life;
        node.osd.store_mut().end_turn();
        let loads: Vec<FetchId> = std::iter::from_fn(|| node.osd.store_mut().poll_load()).collect();
        let mut actions = Vec::new();
        while let Some(action) = node.osd.poll_action() {
            actions.push(action);
        }
        let wake = node.osd.next_wake();
        let skew = 5_000_000_000 * (osd as u64 + 1);
        let wake_at = Time((wake.0.saturating_sub(skew)).saturating_add(node.started.0))
            .max(self.now + Duration::from_micros(10));
        let schedule_wake = wake_at < node.woken_at;
        if schedule_wake {
            node.woken_at = wake_at;
        }
        let schedule_store = node.osd.store().inner().held_count() > 0 && !node.store_pending;
        if schedule_store {
            node.store_pending = true;
        }
        if schedule_wake {
            self.seq += 1;
            self.events.insert((wake_at, self.seq), Event::Wake { osd, life });
        }
        if schedule_store {
            let delay = Duration::from_micros(50 + self.random.below(500));
            self.after(delay, Event::Store { osd, life });
        }
        for load in loads {
            let delay = Duration::from_micros(50 + self.random.below(500));
            self.after(delay, Event::Loaded { osd, life, load });
        }
        for action in actions {
            self.act(osd, life, action);
        }
    }

    fn act(&mut self, osd: usize, life: u64, action: Action) {
        let delay = self.delay();
        match action {
            Action::SendClient { session, message } => {
                let client = session.0 as usize;
                self.after_in_order((0, osd, session.0), delay, Event::Reply { life, osd, client, message });
            }
            Action::SendMon(message) => {
                self.after_in_order((1, osd, life), delay, Event::ToMon { osd, life, message });
            }
            Action::SendPeer { osd: to, channel, kind, body } => {
                let to = to.0 as usize;
                let Some(link) = self.links.get_mut(&(osd, to)).filter(|l| l.up) else { return };
                let at = (self.now + delay).max(link.last_delivery + Duration::from_nanos(1));
                if channel == Channel::Data {
                    link.last_delivery = at;
                }
                let generation = link.generation;
                self.seq += 1;
                let body = Bytes::from(body.concat());
                self.longest_message = self.longest_message.max(body.len());
                self.events
                    .insert((at, self.seq), Event::Peer { from: osd, to, generation, channel, kind, body });
            }
            Action::ConnectPeer { osd: to, addrs } => {
                let to = to.0 as usize;
                let link = self.links.entry((osd, to)).or_insert(Link {
                    generation: 0,
                    up: false,
                    last_delivery: Time::ZERO,
                });
                link.generation += 1;
                link.up = false;
                let generation = link.generation;
                let alive = self.nodes[to].as_ref().is_some_and(|n| n.osd.config().cluster_addrs == addrs);
                if alive || self.is_cut(osd, to) {
                    self.after(delay * 2, Event::LinkUp { from: osd, to, generation });
                } else {
                    // Nobody there, or another life.
                    self.links.get_mut(&(osd, to)).unwrap().generation += 1;
                    self.after(
                        delay * 2,
                        Event::LinkDown { from: osd, to, generation, reason: DownReason::Refused },
                    );
                }
            }
            Action::DisconnectPeer { osd: to } => {
                if let Some(link) = self.links.get_mut(&(osd, to.0 as usize)) {
                    link.up = false;
                    link.generation += 1;
                }
            }
            Action::CloseSession { reason, .. } => panic!("session closed: {reason}"),
            Action::Fatal(reason) => {
                self.fatal.push(format!("osd.{osd}: {reason}"));
                panic!("osd.{osd}: {reason}");
            }
        }
    }
}

pub fn incoming(out: Outgoing) -> Incoming {
    Incoming {
        kind: out.kind,
        version: out.version,
        tid: out.tid,
        front: out.front,
        data: Bytes::from(out.data.concat()),
    }
}
