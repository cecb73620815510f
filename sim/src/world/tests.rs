use super::*;
use env::{CloseReason, DiskOp, DiskRequest};
use std::cell::RefCell;
use std::rc::Rc;

type Log = Rc<RefCell<Vec<String>>>;

/// Does as it is told and writes down what happens.
struct Probe {
    log: Log,
    dial: Option<SocketAddr>,
    conn: Option<ConnId>,
    send_on_connect: usize,
    close_on_receive: bool,
    wake: Time,
}

impl Probe {
    fn new(log: &Log) -> Probe {
        Probe {
            log: log.clone(),
            dial: None,
            conn: None,
            send_on_connect: 0,
            close_on_receive: false,
            wake: Time::MAX,
        }
    }

    fn note(&self, text: String) {
        self.log.borrow_mut().push(text);
    }
}

impl Node for Probe {
    fn start(&mut self, env: &mut dyn Env) {
        if let Some(to) = self.dial {
            self.conn = Some(env.connect(to));
        }
    }

    fn on_event(&mut self, env: &mut dyn Env, event: Event) {
        match event {
            Event::Accepted { conn, .. } => {
                self.conn = Some(conn);
                self.note("accepted".into());
            }
            Event::Connected { conn, .. } => {
                self.note("connected".into());
                for i in 0..self.send_on_connect {
                    env.send(conn, Bytes::from(vec![i as u8; 10]));
                }
            }
            Event::Received { conn, data } => {
                for byte in data {
                    self.note(format!("byte {byte}"));
                }
                if self.close_on_receive {
                    env.close(conn);
                }
            }
            Event::Closed { reason, .. } => self.note(format!("closed {reason:?}")),
            Event::DiskDone { token, .. } => self.note(format!("disk {token}")),
            Event::Shutdown => {}
        }
    }

    fn on_batch_end(&mut self, env: &mut dyn Env) {
        if env.now() >= self.wake {
            self.wake = Time::MAX;
            self.note("woken".into());
        }
    }

    fn next_wake(&self) -> Time {
        self.wake
    }
}

struct Pair {
    world: World<Probe>,
    ids: [NodeId; 2],
    logs: [Log; 2],
    to: SocketAddr,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut world = World::new(seed);
        let ids = [world.add_machine("dialler", None), world.add_machine("server", None)];
        let to = SocketAddr::new(world.ip(ids[1]), 1);
        Pair { world, ids, logs: Default::default(), to }
    }

    fn start_server(&mut self, change: impl FnOnce(&mut Probe)) {
        let mut probe = Probe::new(&self.logs[1]);
        change(&mut probe);
        self.world.start(self.ids[1], probe, &[self.to]);
    }

    fn start_dialler(&mut self, send: usize) {
        let mut probe = Probe::new(&self.logs[0]);
        probe.dial = Some(self.to);
        probe.send_on_connect = send;
        self.world.start(self.ids[0], probe, &[]);
    }

    fn run(&mut self, ms: u64) {
        self.world.run(Duration::from_millis(ms), |_| false);
    }

    fn log(&self, i: usize) -> Vec<String> {
        self.logs[i].borrow().clone()
    }
}

/// Numbers of the chunks received, each once.
fn chunks(log: &[String]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        log.iter().filter_map(|l| l.strip_prefix("byte ")).map(|b| b.parse().unwrap()).collect();
    assert!(bytes.is_sorted(), "the stream keeps its order");
    bytes.dedup();
    bytes
}

#[test]
fn streams_keep_their_order_through_delays_cuts_and_pauses() {
    for seed in 0..50 {
        let mut pair = Pair::new(seed);
        pair.start_server(|_| {});
        pair.start_dialler(100);
        pair.run(seed % 5);
        let [dialler, server] = pair.ids;
        pair.world.pause(server, Duration::from_millis(3));
        pair.run(2);
        pair.world.cut(dialler, server);
        pair.run(50);
        pair.world.heal();
        pair.run(3000);
        let log = pair.log(1);
        if log.iter().any(|l| l == "accepted") {
            assert_eq!(chunks(&log), (0..100).collect::<Vec<u8>>(), "seed {seed}");
        }
    }
}

#[test]
fn a_paused_node_sees_nothing_until_it_resumes() {
    let mut pair = Pair::new(3);
    pair.start_server(|_| {});
    pair.world.pause(pair.ids[1], Duration::from_millis(500));
    pair.start_dialler(5);
    pair.run(400);
    assert!(pair.log(1).is_empty());
    pair.run(400);
    assert_eq!(chunks(&pair.log(1)).len(), 5);
}

#[test]
fn nothing_arrives_on_a_connection_that_its_node_closed() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed);
        pair.start_server(|p| p.close_on_receive = true);
        pair.start_dialler(10);
        // Everything is there at once when the pause ends.
        pair.world.pause(pair.ids[1], Duration::from_millis(500));
        pair.run(2000);
        let log = pair.log(1);
        assert_eq!(chunks(&log), vec![0]);
        assert!(!log.iter().any(|l| l.starts_with("closed")), "{log:?}");
        assert_eq!(pair.log(0).last().unwrap(), "closed Peer");
    }
}

#[test]
fn dials_are_refused_by_machines_without_the_process_and_lost_without_power() {
    for (power_cut, reason) in [(false, CloseReason::Refused), (true, CloseReason::Unreachable)] {
        let mut pair = Pair::new(1);
        pair.start_server(|_| {});
        pair.world.kill(pair.ids[1], power_cut);
        pair.start_dialler(0);
        pair.run(3000);
        assert_eq!(pair.log(0), vec![format!("closed {reason:?}")]);
    }
}

#[test]
fn peers_notice_a_kill_at_once_and_a_power_cut_only_at_its_end() {
    for power_cut in [false, true] {
        let mut pair = Pair::new(1);
        pair.start_server(|_| {});
        pair.start_dialler(0);
        pair.run(100);
        pair.world.kill(pair.ids[1], power_cut);
        pair.run(1000);
        assert_eq!(pair.log(0).len(), if power_cut { 1 } else { 2 }, "{:?}", pair.log(0));
        pair.start_server(|_| {});
        pair.run(1000);
        assert_eq!(pair.log(0), ["connected", "closed Peer"]);
    }
}

#[test]
fn a_wake_comes_when_the_nodes_own_clock_says_so_and_not_before() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed);
        pair.start_server(|_| {});
        let id = pair.ids[1];
        let at = pair.world.core.local_time(id) + Duration::from_millis(700);
        pair.world.poke(id, |p| p.wake = at);
        pair.run(699);
        assert!(pair.log(1).is_empty());
        pair.run(2);
        assert_eq!(pair.log(1), ["woken"]);
    }
}

#[test]
fn completions_of_an_earlier_life_are_not_delivered() {
    let mut world: World<Probe> = World::new(1);
    let id = world.add_machine("osd", Some(SimDisk::new(1 << 20)));
    let log = Log::default();
    world.start(id, Probe::new(&log), &[]);
    let data = vec![Bytes::from(vec![1; 4096])];
    let request = DiskRequest { token: 9, op: DiskOp::Write { offset: 0, data, durable: false } };
    SimEnv { core: &mut world.core, me: id }.submit(request);
    world.kill(id, false);
    world.start(id, Probe::new(&log), &[]);
    world.run(Duration::from_secs(1), |_| false);
    assert!(log.borrow().is_empty());
}

#[test]
fn same_seed_same_trace() {
    let trace = |seed| {
        let mut pair = Pair::new(seed);
        pair.start_server(|_| {});
        pair.start_dialler(50);
        pair.run(1000);
        pair.world.trace()
    };
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
