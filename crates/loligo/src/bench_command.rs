//! `loligo bench`: a quick look at a pool's speed, on any cluster that speaks
//! Ceph's protocol.

use crate::ceph_conf;
use crate::cluster_client::{ClusterClient, Progress};
use crate::cpu_time::CpuMeter;
use crate::identity;
use crate::options::{BenchOp, BenchOptions};
use crate::progress::PhaseBar;
use anyhow::{Context, Result, bail};
use bench::{Limit, ObjectSet, PhaseResult, PhaseSpec, Plan, SizeMix, table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Objects of a working set, unless they would take more than this together.
const OBJECTS: u64 = 1024;
const SET_BYTES: u64 = 1 << 30;

/// Objects are read whole, in one message.
const SIZE_MAX: u64 = 64 << 20;

pub fn run(options: &BenchOptions) -> Result<ExitCode> {
    let (client, conf) = find_cluster(options)?;
    if options.size == 0 || options.size > SIZE_MAX {
        bail!("--size {}: between 1 byte and 64M", options.size);
    }
    let size = usize::try_from(options.size)?;
    let depth = usize::try_from(options.depth)?;
    let fitting = (SET_BYTES / options.size)
        .clamp(2 * u64::from(options.depth), OBJECTS.max(2 * u64::from(options.depth)));
    let count = usize::try_from(options.objects.unwrap_or(fitting))?;
    let seed = identity::random_u64()?;
    let prefix = format!("loligo_bench_{seed:016x}_");
    let mut bench = Bench {
        client,
        pool: &options.pool,
        objects: ObjectSet::new(&prefix, count, &SizeMix::fixed(size), seed),
        depth,
        verify: options.verify,
        seed,
        run_dir: conf.and_then(|conf| Some(conf.parent()?.join("run"))),
        results: Vec::new(),
    };
    let outcome = bench.measure(options);
    // Also after a failure or an interruption: the pool may be in use.
    let removed = if options.keep || !bench.objects.is_touched() { Ok(()) } else { bench.remove() };
    outcome?;
    removed?;
    let Bench { results, .. } = bench;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{}", table::render(&results));
    }
    for result in &results {
        if let Some(failure) = &result.first_failure {
            eprintln!("loligo: {}: {} requests failed; the first: {failure}", result.name, result.failures);
        }
    }
    let failed = results.iter().any(|r| r.failures > 0);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// By `--mon`, `--conf`, `$CEPH_CONF`, or where Ceph's tools look.
fn find_cluster(options: &BenchOptions) -> Result<(ClusterClient, Option<PathBuf>)> {
    if let Some(mons) = &options.mon {
        return Ok((ClusterClient::new(ceph_conf::parse_monitors(mons)?), None));
    }
    let from_env = || std::env::var_os("CEPH_CONF").map(PathBuf::from);
    let conf =
        options.conf.clone().or_else(from_env).unwrap_or_else(|| Path::new("/etc/ceph/ceph.conf").into());
    let mons = ceph_conf::monitors(&conf).context("give --conf or --mon")?;
    Ok((ClusterClient::new(mons), Some(conf)))
}

struct Bench<'a> {
    client: ClusterClient,
    pool: &'a str,
    objects: ObjectSet,
    depth: usize,
    verify: bool,
    seed: u64,
    /// Of a cluster on this machine: where its OSDs' pid files are.
    run_dir: Option<PathBuf>,
    results: Vec<PhaseResult>,
}

impl Bench<'_> {
    fn measure(&mut self, options: &BenchOptions) -> Result<()> {
        let time = Duration::from_secs(u64::from(options.seconds));
        let limit = Limit { ops: None, time: Some(time) };
        let plan = match options.op {
            BenchOp::Write => Plan::Write,
            BenchOp::Read => Plan::Read,
            BenchOp::Mix => Plan::Mix { read_percent: options.read_percent },
        };
        if options.op != BenchOp::Write {
            self.step("prepare", Plan::WriteEach, Limit::default())?;
        }
        let name = match options.op {
            BenchOp::Write => "write".to_string(),
            BenchOp::Read => "read".to_string(),
            BenchOp::Mix => format!("mix, {} % reads", options.read_percent),
        };
        self.step(&name, plan, limit)?;
        if self.verify && options.op != BenchOp::Read {
            self.step("read back", Plan::ReadEach, Limit::default())?;
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        let spec = self.spec("remove", Plan::RemoveEach, Limit::default());
        let result = self.client.phase(self.pool, &mut self.objects, spec, &mut |_| Ok(()))?;
        match result.first_failure {
            Some(failure) => bail!("objects {}… stay in the pool: {failure}", self.objects.name(0)),
            None => Ok(()),
        }
    }

    fn spec(&self, name: &str, plan: Plan, limit: Limit) -> PhaseSpec {
        PhaseSpec { name: name.into(), plan, depth: self.depth, limit, verify: self.verify, seed: self.seed }
    }

    fn step(&mut self, name: &str, plan: Plan, limit: Limit) -> Result<()> {
        // After a failure there is nothing worth measuring.
        if self.results.iter().any(|r| r.failures > 0) {
            return Ok(());
        }
        let spec = self.spec(name, plan, limit);
        let mut meter = self.run_dir.as_deref().and_then(CpuMeter::new);
        let bar = PhaseBar::new(name);
        let mut watch = |progress: Progress| {
            bar.show(progress);
            Ok(())
        };
        let mut result = self.client.phase(self.pool, &mut self.objects, spec, &mut watch)?;
        result.osd_cpu_seconds = meter.as_mut().map(|meter| meter.read().as_secs_f64());
        self.results.push(result);
        Ok(())
    }
}
