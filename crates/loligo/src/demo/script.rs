//! What the demo does, in order, and what it says about it.

use super::say;
use super::scene::{OSDS, Scene};
use crate::cluster_client::{ClusterClient, Progress};
use crate::cpu_time::CpuMeter;
use crate::identity;
use crate::local_cluster::LocalCluster;
use crate::options::DemoOptions;
use crate::progress::PhaseBar;
use crate::wait_healthy::Want;
use anyhow::{Result, bail};
use bench::{Limit, ObjectSet, PhaseResult, PhaseSpec, Plan, SizeMix, table};
use serde_json::json;
use std::time::{Duration, Instant};

const POOL: &str = "demo";
const PGS: u64 = 32;
const VICTIM: &str = "osd.1";
/// When, in the accident's phase, the victim is killed and started again.
const KILL_AT: f64 = 0.3;
const RESTART_AT: f64 = 0.6;

const SMALL: usize = 4 << 10;
const MIB: usize = 1 << 20;
const SMALL_DEPTH: usize = 32;
const LARGE_DEPTH: usize = 4;

/// How much of everything. A phase ends with its objects or its time,
/// whichever comes first, so that slow machines finish too.
struct Scale {
    small: usize,
    large: usize,
    write_time: Duration,
    read_time: Duration,
    accident_time: Duration,
}

const FULL: Scale = Scale {
    small: 20_000,
    large: 60,
    write_time: Duration::from_secs(6),
    read_time: Duration::from_secs(4),
    accident_time: Duration::from_secs(10),
};

const QUICK: Scale = Scale {
    small: 500,
    large: 4,
    write_time: Duration::from_secs(3),
    read_time: Duration::from_millis(500),
    accident_time: Duration::from_secs(3),
};

/// Which objects a phase works on.
#[derive(Clone, Copy)]
enum Set {
    Small,
    Large,
}

pub struct Script {
    scene: Scene,
    scale: Scale,
    replicas: u8,
    began: Instant,
    client: ClusterClient,
    small: ObjectSet,
    large: ObjectSet,
    meter: Option<CpuMeter>,
    results: Vec<PhaseResult>,
}

impl Script {
    pub fn new(scene: Scene, options: &DemoOptions) -> Script {
        let scale = if options.quick { QUICK } else { FULL };
        let large = SizeMix::weighted(vec![(1, MIB), (1, 2 * MIB), (1, 4 * MIB)]);
        Script {
            client: ClusterClient::new(vec![scene.cluster.dir.mon_addr()]),
            scene,
            replicas: options.replicas,
            began: Instant::now(),
            small: ObjectSet::new("small-", scale.small, &SizeMix::fixed(SMALL), 1),
            large: ObjectSet::new("large-", scale.large, &large, 2),
            scale,
            meter: None,
            results: Vec::new(),
        }
    }

    pub fn play(&mut self) -> Result<()> {
        say(format!("Loligo demo: a cluster on this machine, in {}\n", self.scene.path().display()));
        self.start_cluster()?;
        self.make_pool()?;
        self.write_objects()?;
        self.read_at_random()?;
        self.accident()?;
        self.wait_until_clean()?;
        self.read_back()?;
        self.show_table();
        Ok(())
    }

    /// Says how to go on; leaves the cluster, or ends it.
    pub fn end(self, keep: bool) -> Result<()> {
        let program = std::env::args().next().unwrap_or_else(|| "loligo".into());
        let folder = self.scene.path().display().to_string();
        let seconds = self.began.elapsed().as_secs_f64();
        if keep {
            self.scene.keep();
            say(format!(
                "The demo took {seconds:.0} s. Its cluster goes on, until `{program} down {folder}`."
            ));
            say(format!("Stock Ceph clients can use it:\n\n    export CEPH_CONF={folder}/ceph.conf"));
            say(format!("    ceph -s\n    rados -p {POOL} ls | head"));
            return Ok(());
        }
        drop(self.scene);
        say(format!("All daemons are stopped and all files removed. It took {seconds:.0} s.\n"));
        say("To keep a cluster, and use it with stock Ceph clients:\n");
        say(format!("    {program} up /var/tmp/loligo"));
        say("    export CEPH_CONF=/var/tmp/loligo/ceph.conf");
        say("    ceph -s && ceph osd pool create data && rados -p data put hello /etc/hostname");
        Ok(())
    }

    fn start_cluster(&mut self) -> Result<()> {
        let began = Instant::now();
        let bar = PhaseBar::waiting("starting the cluster");
        self.scene.cluster.start()?;
        drop(bar);
        self.meter = CpuMeter::new(&self.scene.path().join("run"));
        step(format!(
            "Started one monitor and {OSDS} OSDs, each a process with a file of its own, in {:.2} s.",
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    fn make_pool(&mut self) -> Result<()> {
        let began = Instant::now();
        let create = json!({"prefix": "osd pool create", "pool": POOL, "pg_num": PGS});
        self.client.command(&create)?;
        // As for any pool: without it, `ceph -s` warns.
        let enable = json!({"prefix": "osd pool application enable", "pool": POOL, "app": "rados"});
        self.client.command(&enable)?;
        self.scene.cluster.wait(Want::Clean { pgs_min: PGS })?;
        step(format!(
            "Created a pool of {PGS} PGs that keeps {} copies of each object, in {:.2} s.",
            self.replicas,
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    fn write_objects(&mut self) -> Result<()> {
        let limit = Limit { ops: None, time: Some(self.scale.write_time) };
        let small =
            self.phase("write 4 KiB objects", Set::Small, Plan::WriteEach, limit, |_, _, _| Ok(()))?;
        let large =
            self.phase("write 1-4 MiB objects", Set::Large, Plan::WriteEach, limit, |_, _, _| Ok(()))?;
        step(format!(
            "Wrote {small} objects of 4 KiB and {large} of 1 to 4 MiB; a write is acknowledged when all \
             {} copies are on stable storage.",
            self.replicas
        ));
        Ok(())
    }

    fn read_at_random(&mut self) -> Result<()> {
        let limit = Limit { ops: None, time: Some(self.scale.read_time) };
        let reads = self.phase("read 4 KiB objects", Set::Small, Plan::Read, limit, |_, _, _| Ok(()))?;
        step(format!("Read {reads} times at random, and compared every byte with what was written."));
        Ok(())
    }

    /// Kills an OSD under load and starts it again.
    fn accident(&mut self) -> Result<()> {
        let plan = Plan::Mix { read_percent: 50 };
        let limit = Limit { ops: None, time: Some(self.scale.accident_time) };
        let mut killed = false;
        let mut restarted = false;
        let name = format!("read and write, {VICTIM} killed");
        let ops = self.phase(&name, Set::Small, plan, limit, |progress, cluster, meter| {
            if !killed && progress.fraction >= KILL_AT {
                killed = true;
                if let Some(meter) = meter {
                    meter.read();
                }
                cluster.kill(VICTIM)?;
            }
            if killed && !restarted && progress.fraction >= RESTART_AT {
                restarted = true;
                cluster.start_missing()?;
            }
            cluster.first_failure()
        })?;
        let away = self.scale.accident_time.as_secs_f64() * (RESTART_AT - KILL_AT);
        step(format!(
            "Read and wrote on while {VICTIM} was killed (SIGKILL) and started again {away:.1} s later: \
             {ops} operations, none failed."
        ));
        Ok(())
    }

    fn wait_until_clean(&mut self) -> Result<()> {
        let began = Instant::now();
        let bar = PhaseBar::waiting(&format!("waiting until {VICTIM} has caught up"));
        self.scene.cluster.wait(Want::Clean { pgs_min: PGS })?;
        drop(bar);
        let seconds = began.elapsed().as_secs_f64();
        step(format!("{VICTIM} has caught up: every PG active+clean {seconds:.1} s after the last write."));
        Ok(())
    }

    fn read_back(&mut self) -> Result<()> {
        self.phase(
            "read back 4 KiB objects",
            Set::Small,
            Plan::ReadEach,
            Limit::default(),
            |_, _, _| Ok(()),
        )?;
        self.phase("read back 1-4 MiB objects", Set::Large, Plan::ReadEach, Limit::default(), |_, _, _| {
            Ok(())
        })?;
        let verified: u64 = self.results.iter().rev().take(2).map(|r| r.verified).sum();
        let ((small, small_bytes), (large, large_bytes)) = (self.small.stored(), self.large.stored());
        if verified != small + large {
            bail!("{verified} of {} objects were read back", small + large);
        }
        let mib = (small_bytes + large_bytes) / (1 << 20);
        step(format!(
            "Read back every object, {verified} with {mib} MiB: each byte is as last acknowledged."
        ));
        Ok(())
    }

    fn show_table(&self) {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        say(format!("\n{}", table::render(&self.results)));
        say(format!(
            "{SMALL_DEPTH} operations in flight for small objects, {LARGE_DEPTH} for large ones; client, monitor \
             and OSDs share {cores} cores.\nOSD CPU is user and system time of the three OSD processes \
             together, all copies included.\n"
        ));
    }

    /// Runs a phase, with a bar on the terminal; the number of operations.
    fn phase(
        &mut self,
        name: &str,
        set: Set,
        plan: Plan,
        limit: Limit,
        mut watch: impl FnMut(Progress, &mut LocalCluster, Option<&mut CpuMeter>) -> Result<()>,
    ) -> Result<u64> {
        let (objects, depth) = match set {
            Set::Small => (&mut self.small, SMALL_DEPTH),
            Set::Large => (&mut self.large, LARGE_DEPTH),
        };
        let seed = identity::random_u64()?;
        let spec = PhaseSpec { name: name.into(), plan, depth, limit, verify: true, seed };
        let (cluster, meter) = (&mut self.scene.cluster, &mut self.meter);
        let before = meter.as_mut().map(CpuMeter::read);
        let bar = PhaseBar::new(name);
        let mut result = self.client.phase(POOL, objects, spec, &mut |progress| {
            bar.show(progress);
            watch(progress, cluster, meter.as_mut())
        })?;
        drop(bar);
        let after = meter.as_mut().map(CpuMeter::read);
        result.osd_cpu_seconds = after.zip(before).map(|(after, before)| (after - before).as_secs_f64());
        if let Some(failure) = &result.first_failure {
            bail!("{name}: {} operations failed; the first: {failure}", result.failures);
        }
        let ops = result.ops;
        self.results.push(result);
        Ok(ops)
    }
}

fn step(line: String) {
    say(format!("  - {line}"));
}
