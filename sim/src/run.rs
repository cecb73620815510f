//! One run: a cluster drawn from a seed, its clients at work, faults, then
//! peace; and what the checkers say about it.
//!
//! What must hold, besides what [`crate::checkers`] check of the history and of
//! the devices: once every fault is over, all requests are answered and every
//! PG becomes active and clean, in bounded time; and no daemon ends by itself.

use crate::checkers;
use crate::cluster::{ClusterPlan, Coverage, FencePlan, POOL, SimCluster};
use crate::faults::{Fault, FaultPlan};
use crate::snapshots::{SNAP_PGS, SNAP_POOL};
use crate::watches::{self, WatchClient};
use crate::world::NodeId;
use base::{Duration, Random, Time};
use osd::Sabotage;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use tracing::info;
use wire::types::{OsdId, PgId, PoolId};

#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    pub seed: u64,
    pub sabotage: Sabotage,
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub seed: u64,
    /// Empty when every promise was kept.
    pub violations: Vec<String>,
    pub trace: u64,
    pub events: u64,
    pub simulated: Duration,
    pub operations: usize,
    pub faults: usize,
    pub coverage: Coverage,
}

/// How long a cluster without faults may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between looks at the cluster.
const SLICE: Duration = Duration::from_millis(20);
/// A clean report may be older than the latest change; by then it is not.
const SETTLE: Duration = Duration::from_millis(2500);
/// More events than any run needs: somebody never sleeps.
const EVENTS_MAX: u64 = 50_000_000;

pub fn run(options: &RunOptions) -> Report {
    let mut run = Run::new(options);
    if let Err(violation) = run.live() {
        run.violations.push(violation);
    }
    run.cluster.coverage.note(&run.cluster.history.borrow());
    let world = &run.cluster.world;
    let mut report = Report {
        seed: options.seed,
        trace: world.trace(),
        events: world.core.events,
        simulated: world.now().since(Time::ZERO),
        operations: run.cluster.history.borrow().operations.len(),
        faults: run.faults_applied,
        coverage: run.cluster.coverage,
        violations: run.violations,
    };
    report.violations.extend(checkers::check(&run.cluster.history.borrow()));
    report
}

enum Due {
    StartOsd(usize),
    StartMon,
    Uncut(Vec<(NodeId, NodeId)>),
    Fence(FencePlan),
    ReplaceClient(usize),
}

struct Run {
    cluster: SimCluster,
    faults: FaultPlan,
    random: Random,
    duration: Duration,
    /// What ends a fault, or was planned from the start; and when.
    agenda: BTreeMap<(Time, u64), Due>,
    next_due: u64,
    faults_applied: usize,
    violations: Vec<String>,
    /// Whether a device loses data in the end, and which.
    damage: Option<Random>,
    /// Whether scrubs, and not the final reads, are to find it; and what it loses besides.
    scrub_after_damage: Option<Random>,
}

/// What the monitor says of the PGs.
#[derive(Default, Debug)]
struct PgSummary {
    total: u64,
    by_state: BTreeMap<String, u64>,
}

impl PgSummary {
    fn parse(output: &[u8]) -> Option<PgSummary> {
        let json: Value = serde_json::from_slice(output).ok()?;
        let summary = json.get("pg_summary")?;
        let mut out = PgSummary { total: summary.get("num_pgs")?.as_u64()?, by_state: BTreeMap::new() };
        for state in summary.get("num_pg_by_state")?.as_array()? {
            out.by_state.insert(state.get("name")?.as_str()?.into(), state.get("num")?.as_u64()?);
        }
        Some(out)
    }

    /// Scrubs may go on.
    fn is_clean(&self, pg_num: u32) -> bool {
        let is_clean =
            |state: &str| state == "active+clean" || state.replace("+deep", "") == "active+clean+scrubbing";
        self.total == u64::from(pg_num) && self.by_state.keys().all(|state| is_clean(state))
    }
}

impl Run {
    fn new(options: &RunOptions) -> Run {
        // Apart from the world's own randomness.
        let mut random = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0001).fork();
        let duration = Duration::from_millis(1000 + random.below(9000));
        let mut plan = ClusterPlan::draw(&mut random, duration);
        plan.sabotage = options.sabotage;
        // Drawn apart: older seeds keep what they were.
        let mut hardships = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0002).fork();
        plan.pending_percent = [0, 0, 10, 50][hardships.below(4) as usize];
        // As well: one run in two takes snapshots.
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0003).fork();
        plan.snapshots = apart.chance(1, 2).then(|| (apart.next_u64(), 30 + apart.below(60) as usize));
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0005).fork();
        plan.image = apart.chance(1, 2).then(|| (apart.next_u64(), 40 + apart.below(100) as usize));
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0006).fork();
        plan.locks = apart.chance(1, 2).then(|| (apart.next_u64(), 8 + apart.below(20) as usize));
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0007).fork();
        plan.watches = apart.chance(1, 2).then(|| (apart.next_u64(), 8 + apart.below(30) as usize));
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0008).fork();
        plan.deaths = draw_deaths(&mut apart, plan.clients, duration);
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0004).fork();
        plan.fences = draw_fences(&mut apart, plan.clients, duration);
        let mut apart = Random::from_seed(options.seed ^ 0x5eed_0000_0000_0009).fork();
        let interval_ms = [50, 300, 1500][apart.below(3) as usize];
        plan.scrubs = apart.chance(2, 3).then(|| Duration::from_millis(interval_ms));
        let scrub_after_damage = apart.chance(1, 2).then(|| apart.fork());
        let faults = FaultPlan::draw(&mut random, plan.osds);
        info!(?plan, "cluster");
        info!(?faults, ?duration, "faults");
        Run {
            cluster: SimCluster::new(options.seed, plan),
            faults,
            random,
            duration,
            agenda: BTreeMap::new(),
            next_due: 0,
            faults_applied: 0,
            violations: Vec::new(),
            damage: hardships.chance(1, 2).then(|| hardships.fork()),
            scrub_after_damage,
        }
    }

    fn live(&mut self) -> Result<(), String> {
        self.cluster.start_everything();
        self.cluster.ask(create_pool(POOL, self.cluster.plan.pg_num));
        if self.cluster.plan.snapshots.is_some() {
            self.cluster.ask(create_pool(SNAP_POOL, SNAP_PGS));
        }
        if self.random.chance(1, 2) {
            self.wait_clean("a new cluster")?;
        }
        self.cluster.start_clients();
        self.endure()?;
        self.heal();
        self.wait("requests", "all answered", |cluster| cluster.clients_done())?;
        self.wait_clean("the cluster without faults")?;
        self.check_scrubs();
        if let Some(mut random) = self.damage.take() {
            let osd = random.below(self.cluster.plan.osds as u64) as usize;
            info!(osd, "a device loses data");
            self.cluster.damage_osd(osd, &mut random)?;
            self.wait_clean("the cluster with a damaged device")?;
            if let Some(mut random) = self.scrub_after_damage.take() {
                self.cluster.lose_objects(&mut random)?;
                self.wait_clean("the cluster that has lost objects")?;
                self.scrub_everything()?;
                self.wait_clean("the cluster after its scrub")?;
            }
        }
        let before = self.cluster.history.borrow().operations.len();
        self.cluster.history.borrow_mut().declare_peace();
        self.cluster.each_workload(|_, workload| workload.read_everything());
        self.wait("final reads", "all answered", |cluster| cluster.clients_done())?;
        self.violations.extend(checkers::failed_reads(&self.cluster.history.borrow(), before));
        self.notify_everything()?;
        if let Some(snapshots) = &self.cluster.client(0).workload().snapshots {
            self.violations.extend(snapshots.violations.iter().cloned());
        }
        if let Some(image) = &self.cluster.client(0).workload().image {
            self.violations.extend(image.violations.iter().cloned());
        }
        self.wait_clean("the cluster after the final reads")?;
        self.compare_replicas();
        self.check_scrubs();
        Ok(())
    }

    fn check_scrubs(&mut self) {
        match self.cluster.false_errors() {
            0 => {}
            errors => self.violations.push(format!("scrubs found {errors} errors where nothing was wrong")),
        }
    }

    /// Nothing that was damaged remains so.
    fn scrub_everything(&mut self) -> Result<(), String> {
        let before = self.cluster.deep_scrubs();
        let deadline = self.now() + PATIENCE;
        let is_done = |cluster: &SimCluster| {
            let now = cluster.deep_scrubs();
            before.iter().all(|(pg, stamp)| now.get(pg).is_some_and(|new| new > stamp))
        };
        while !is_done(&self.cluster) {
            if self.now() > deadline {
                return Err(self.stuck("not all PGs are scrubbed"));
            }
            // Who has become primary since has not heard of it.
            self.cluster.ask(r#"{"prefix":"osd deep-scrub","who":"all"}"#.into());
            let patience = self.now() + Duration::from_secs(5);
            while !is_done(&self.cluster) && self.now() < patience {
                self.advance(SLICE)?;
            }
        }
        info!("everything is scrubbed");
        self.cluster.expect_no_damage();
        Ok(())
    }

    /// Once it is known which watches live, all of them are told something; later, no others are recorded.
    fn notify_everything(&mut self) -> Result<(), String> {
        if self.cluster.plan.watches.is_none() {
            return Ok(());
        }
        self.wait("watches", "all known to live or not", SimCluster::is_sure_of_watches)?;
        self.ask_about_watches(WatchClient::notify_everything);
        self.wait("last notifications", "all complete", SimCluster::clients_done)?;
        // Everybody has heard of every watch by now, so this is the time of those who are dead.
        self.advance(watches::TIMEOUT_MAX + Duration::from_secs(2))?;
        self.ask_about_watches(WatchClient::list_everything);
        self.wait("lists of watches", "all there", SimCluster::clients_done)
    }

    /// The first client lives as long as the run.
    fn ask_about_watches(&mut self, ask: impl Fn(&mut WatchClient)) {
        self.cluster.each_workload(|i, workload| {
            if let (0, Some(watches)) = (i, &mut workload.watches) {
                ask(watches);
            }
        });
    }

    // ---- time ----

    fn now(&self) -> Time {
        self.cluster.world.now()
    }

    fn advance(&mut self, time: Duration) -> Result<(), String> {
        self.cluster.world.run(time, |_| false);
        if self.cluster.world.core.events > EVENTS_MAX {
            return Err(format!("more than {EVENTS_MAX} events: a node never sleeps"));
        }
        match self.cluster.ended_by_themselves() {
            ended if ended.is_empty() => Ok(()),
            ended => Err(ended.join("; ")),
        }
    }

    fn wait(&mut self, what: &str, hope: &str, done: impl Fn(&SimCluster) -> bool) -> Result<(), String> {
        let deadline = self.now() + PATIENCE;
        while !done(&self.cluster) {
            if self.now() > deadline {
                return Err(self.stuck(format!("{what}: not {hope}")));
            }
            self.advance(SLICE)?;
        }
        info!(what, hope);
        Ok(())
    }

    fn stuck(&self, what: impl Display) -> String {
        let lines = self.cluster.describe().join("\n    ");
        let pending = self.cluster.pending_requests().join("\n    ");
        format!(
            "liveness: {what} after {} s of peace\n    {lines}\n  pending:\n    {pending}",
            PATIENCE.as_secs()
        )
    }

    // ---- the cluster's health ----

    fn wait_clean(&mut self, who: &str) -> Result<(), String> {
        let deadline = self.now() + PATIENCE;
        let mut clean_since = None;
        loop {
            let summary = self.ask_pgs()?;
            let clean = self.all_up() && summary.is_clean(self.cluster.plan.pgs());
            match clean_since {
                Some(since) if clean && self.now().since(since) >= SETTLE => break,
                None if clean => clean_since = Some(self.now()),
                _ if !clean => clean_since = None,
                _ => {}
            }
            if self.now() > deadline {
                return Err(self.stuck(format!("{who} is not clean: {summary:?}")));
            }
            self.advance(Duration::from_millis(100))?;
        }
        info!(who, "is clean");
        Ok(())
    }

    fn all_up(&self) -> bool {
        let map = self.cluster.operator().client().map();
        map.is_some_and(|map| (0..self.cluster.plan.osds).all(|i| map.is_up(OsdId(i as i32))))
    }

    /// Empty when the monitor does not answer.
    fn ask_pgs(&mut self) -> Result<PgSummary, String> {
        let patience = self.now() + Duration::from_secs(6);
        while !self.cluster.operator().workload().is_idle() && self.now() < patience {
            self.advance(SLICE)?;
        }
        let before = self.cluster.operator().workload().answered;
        self.cluster.ask(r#"{"prefix":"pg stat","format":"json"}"#.into());
        let patience = self.now() + Duration::from_secs(6);
        while self.cluster.operator().workload().answered == before {
            if self.now() > patience {
                return Ok(PgSummary::default());
            }
            self.advance(Duration::from_millis(5))?;
        }
        let answer = self.cluster.operator().workload().answer.as_ref();
        Ok(answer.and_then(|a| PgSummary::parse(&a.output)).unwrap_or_default())
    }

    // ---- faults ----

    fn endure(&mut self) -> Result<(), String> {
        let end = self.now() + self.duration;
        for fence in self.cluster.plan.fences.clone() {
            self.later(fence.at, Due::Fence(fence));
        }
        for (client, at) in self.cluster.plan.deaths.clone() {
            self.later(at, Due::ReplaceClient(client));
        }
        let mut next_fault = self.pause_before_fault();
        while self.now() < end {
            let next_due = self.agenda.first_key_value().map_or(Time::MAX, |((at, _), _)| *at);
            let until = end.min(next_fault).min(next_due);
            self.advance(until.since(self.now()))?;
            if self.now() >= next_due {
                let (_, due) = self.agenda.pop_first().expect("looked at above");
                self.attend(due);
            } else if self.now() >= next_fault {
                if let Some(fault) = self.faults.next(&mut self.random) {
                    self.strike(fault);
                }
                next_fault = self.pause_before_fault();
            }
        }
        Ok(())
    }

    fn pause_before_fault(&mut self) -> Time {
        let mean = u64::try_from(self.faults.interval.as_micros()).unwrap_or(u64::MAX);
        self.now() + Duration::from_micros(1 + self.random.below(2 * mean))
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.next_due += 1;
        self.agenda.insert((self.now() + after, self.next_due), due);
    }

    fn strike(&mut self, fault: Fault) {
        info!(?fault);
        self.faults_applied += 1;
        match fault {
            Fault::KillOsd { osd, back_after } => {
                self.cluster.kill_osd(osd, false);
                self.later(back_after, Due::StartOsd(osd));
            }
            Fault::CutPower { osd, back_after } => {
                self.cluster.kill_osd(osd, true);
                self.later(back_after, Due::StartOsd(osd));
            }
            Fault::CutPowerEverywhere { back_after } => {
                for osd in 0..self.cluster.plan.osds {
                    self.cluster.kill_osd(osd, true);
                    // Machines do not come back at the same moment.
                    let spread = Duration::from_millis(self.random.below(300));
                    self.later(back_after + spread, Due::StartOsd(osd));
                }
            }
            Fault::KillMon { power_cut, back_after } => {
                self.cluster.kill_mon(power_cut);
                self.later(back_after, Due::StartMon);
            }
            Fault::Isolate { osd, inbound, outbound, heal_after } => {
                let me = self.cluster.osd_id(osd);
                let mut pairs = Vec::new();
                for other in self.cluster.others(me) {
                    pairs.extend(inbound.then_some((other, me)));
                    pairs.extend(outbound.then_some((me, other)));
                }
                self.cut(pairs, heal_after);
            }
            Fault::CutPair { a, b, both_ways, demote, heal_after } => {
                let (from, to) = (self.cluster.osd_id(a), self.cluster.osd_id(b));
                let mut pairs = vec![(from, to)];
                pairs.extend(both_ways.then_some((to, from)));
                self.cut(pairs, heal_after);
                if demote {
                    self.cluster.ask(weight("osd primary-affinity", a, 0));
                }
            }
            Fault::Split { side, lonely, heal_after } => {
                self.cut(self.cluster.split(side, lonely), heal_after);
            }
            Fault::MarkDown { osd } => {
                self.cluster.ask(format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#));
            }
            Fault::Pause { osd, time } => {
                let id = self.cluster.osd_id(osd);
                self.cluster.world.pause(id, time);
            }
            Fault::BreakConnections { count } => {
                for _ in 0..count {
                    self.cluster.world.break_a_connection();
                }
            }
            Fault::Reweight { osd, percent } => self.cluster.ask(weight("osd reweight", osd, percent)),
            Fault::PrimaryAffinity { osd, percent } => {
                self.cluster.ask(weight("osd primary-affinity", osd, percent));
            }
        }
    }

    fn cut(&mut self, pairs: Vec<(NodeId, NodeId)>, heal_after: Duration) {
        for (from, to) in &pairs {
            self.cluster.world.cut(*from, *to);
        }
        self.later(heal_after, Due::Uncut(pairs));
    }

    fn attend(&mut self, due: Due) {
        match due {
            Due::StartOsd(osd) => {
                info!(osd, "OSD starts again");
                self.cluster.start_osd(osd);
            }
            Due::StartMon => {
                info!("monitor starts again");
                self.cluster.start_mon();
            }
            Due::Uncut(pairs) => {
                info!(?pairs, "reachable again");
                for (from, to) in pairs {
                    self.cluster.world.uncut(from, to);
                }
            }
            Due::Fence(fence) => {
                info!(?fence);
                self.cluster.fence(fence.client);
                self.later(fence.rebirth_after, Due::ReplaceClient(fence.client));
            }
            Due::ReplaceClient(client) => {
                info!(client, "starts again");
                self.cluster.replace_client(client);
            }
        }
    }

    fn heal(&mut self) {
        info!("peace");
        self.agenda.clear();
        self.cluster.world.heal();
        self.cluster.start_mon();
        for osd in 0..self.cluster.plan.osds {
            self.cluster.start_osd(osd);
            self.cluster.ask(weight("osd reweight", osd, 100));
            self.cluster.ask(weight("osd primary-affinity", osd, 100));
        }
    }

    // ---- the end ----

    fn compare_replicas(&mut self) {
        let plan = self.cluster.plan.clone();
        let client = self.cluster.operator().client();
        let pool = |name| client.pool_id(name).unwrap_or(PoolId(0));
        let snap_pool = pool(SNAP_POOL);
        let snap_pgs = plan.pgs() - plan.pg_num;
        let pools = [(pool(POOL), plan.pg_num), (snap_pool, snap_pgs)];
        let pgs =
            pools.into_iter().flat_map(|(pool, pg_num)| (0..pg_num).map(move |seed| PgId { pool, seed }));
        let pgs: Vec<PgId> = pgs.collect();
        let owner = self.cluster.client(0).workload();
        let snapshots = owner.snapshots.as_ref().map_or(Vec::new(), |snapshots| snapshots.alive().collect());
        let of_image = owner.image.as_ref().map_or(Vec::new(), |image| image.alive().collect());
        let acting: Vec<(PgId, Vec<OsdId>)> = pgs
            .into_iter()
            .map(|pg| {
                let target = self.cluster.target(pg);
                (pg, target.map_or(Vec::new(), |t| t.up_acting.acting.osds().collect()))
            })
            .collect();
        // What was acknowledged is durable on every replica: a power cut changes nothing.
        let power_cut = self.random.chance(1, 2);
        let mut stores = BTreeMap::new();
        for i in 0..plan.osds {
            self.cluster.kill_osd(i, power_cut);
            match self.cluster.content_of(i) {
                Ok(content) => _ = stores.insert(OsdId(i as i32), content),
                Err(why) => self.violations.push(format!("osd.{i}: {why}")),
            }
        }
        for (pg, acting) in acting {
            if acting.len() != usize::from(plan.pool_size) {
                self.violations.push(format!("{pg} is clean on {acting:?}, not on {} OSDs", plan.pool_size));
            }
            let copies: Vec<_> =
                acting.iter().map(|osd| (*osd, stores.get(osd).and_then(|s| s.get(&pg)))).collect();
            self.violations.extend(checkers::replicas::compare(pg, &copies));
            let alive = if pg.pool == snap_pool { &snapshots } else { &of_image };
            self.violations.extend(checkers::replicas::leftover_clones(pg, &copies, alive));
        }
    }
}

/// In every second run, one or two; never the first client, which works with snapshots.
fn draw_fences(random: &mut Random, clients: usize, duration: Duration) -> Vec<FencePlan> {
    let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let count = [0, 0, 1, 2][random.below(4) as usize];
    let mut draw = || {
        let patience_ms = [10, 4000][random.below(2) as usize];
        FencePlan {
            client: 1 + random.below(clients as u64 - 1) as usize,
            at: Duration::from_micros(random.below(duration_us)),
            rebirth_after: Duration::from_millis(random.below(patience_ms)),
        }
    };
    (0..count).map(|_| draw()).collect()
}

/// In every third run one; never the first client.
fn draw_deaths(random: &mut Random, clients: usize, duration: Duration) -> Vec<(usize, Duration)> {
    let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let client = 1 + random.below(clients as u64 - 1) as usize;
    let at = Duration::from_micros(random.below(duration_us));
    if random.chance(1, 3) { vec![(client, at)] } else { Vec::new() }
}

fn create_pool(name: &str, pg_num: u32) -> String {
    format!(
        r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":{pg_num},"pgp_num":{pg_num},"autoscale_mode":"off"}}"#
    )
}

fn weight(command: &str, osd: usize, percent: u64) -> String {
    let weight = percent as f64 / 100.0;
    format!(r#"{{"prefix":"{command}","id":{osd},"weight":{weight:.2}}}"#)
}
