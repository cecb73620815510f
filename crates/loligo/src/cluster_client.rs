//! One-off conversations with a cluster: connect, do one thing, leave. Each
//! is a client of its own; connecting takes milliseconds.

use crate::identity;
use anyhow::{Context, Result, anyhow, bail};
use base::{Duration, Time};
use bench::{Now, ObjectSet, Phase, PhaseResult, PhaseSpec};
use bytes::Bytes;
use client::{Completion, RequestId};
use daemon::{ClientHost, ClientNode, Workload};
use std::net::SocketAddr;
use wire::types::{EntityAddr, PoolId};

/// Longest wait for a monitor's first map, or for its answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often a phase's watcher is called.
const TICK: Duration = Duration::from_millis(50);

/// Where a cluster is.
pub struct ClusterClient {
    mons: Vec<SocketAddr>,
}

/// How far a phase is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub ops: u64,
    /// 0 to 1.
    pub fraction: f64,
}

impl ClusterClient {
    pub fn new(mons: Vec<SocketAddr>) -> ClusterClient {
        ClusterClient { mons }
    }

    /// A monitor command; its output.
    ///
    /// Errors: the monitor's status line if it refuses.
    pub fn command(&self, json: &serde_json::Value) -> Result<Bytes> {
        let text = json.to_string();
        let outcome = self.run(Command { text: text.clone(), asked: None, deadline: None, outcome: None })?;
        outcome.with_context(|| format!("command {text}"))
    }

    /// Runs one phase on a pool. `watch` is called every [`TICK`] or so.
    pub fn phase(
        &self,
        pool: &str,
        objects: &mut ObjectSet,
        spec: PhaseSpec,
        watch: &mut dyn FnMut(Progress) -> Result<()>,
    ) -> Result<PhaseResult> {
        self.run(PhaseRun {
            pool: pool.into(),
            pool_id: None,
            objects,
            phase: Some(Phase::new(spec)),
            watch,
            deadline: None,
            next_tick: Time::ZERO,
            outcome: None,
        })?
    }

    fn run<T: OneOff>(&self, workload: T) -> Result<T::Outcome> {
        let mons = self.mons.iter().map(|socket| EntityAddr::msgr2(*socket, 0)).collect();
        // Only has to differ from other processes of this host.
        let nonce = identity::random_u64()? as u32;
        let mut node = ClientNode::new(mons, "admin", nonce, "localhost", workload);
        uring::run(uring::ReactorConfig::new(uring::Backend::Auto), &mut node)?;
        node.workload_mut().take_outcome().context("interrupted")
    }

    fn unreachable(mons: &str) -> anyhow::Error {
        anyhow!("no monitor answered within {} s{mons}", PATIENCE.as_secs())
    }
}

/// A workload that ends with an outcome; without one it was interrupted.
trait OneOff: Workload {
    type Outcome;
    fn take_outcome(&mut self) -> Option<Self::Outcome>;
}

struct Command {
    text: String,
    asked: Option<RequestId>,
    deadline: Option<Time>,
    outcome: Option<Result<Bytes>>,
}

impl OneOff for Command {
    type Outcome = Result<Bytes>;
    fn take_outcome(&mut self) -> Option<Result<Bytes>> {
        self.outcome.take()
    }
}

impl Workload for Command {
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        let deadline = *self.deadline.get_or_insert(now + PATIENCE);
        if self.asked.is_none() {
            self.asked = Some(host.client.command(self.text.clone(), Bytes::new()));
        }
        if now >= deadline && self.outcome.is_none() {
            self.outcome = Some(Err(ClusterClient::unreachable("")));
            host.env.exit(1);
        }
    }

    fn on_completion(&mut self, host: &mut ClientHost<'_>, id: RequestId, completion: Completion) {
        if self.asked != Some(id) || self.outcome.is_some() {
            return;
        }
        let Completion::Command { result, status, output } = completion else { return };
        self.outcome = Some(match result {
            0.. => Ok(output),
            _ => Err(anyhow!("{status} ({})", base::Errno(result.saturating_neg()))),
        });
        host.env.exit(0);
    }

    fn next_wake(&self) -> Time {
        self.deadline.unwrap_or(Time::ZERO)
    }
}

struct PhaseRun<'a> {
    pool: String,
    pool_id: Option<PoolId>,
    objects: &'a mut ObjectSet,
    /// `None` once it has ended.
    phase: Option<Phase>,
    watch: &'a mut dyn FnMut(Progress) -> Result<()>,
    deadline: Option<Time>,
    next_tick: Time,
    outcome: Option<Result<PhaseResult>>,
}

impl OneOff for PhaseRun<'_> {
    type Outcome = Result<PhaseResult>;
    fn take_outcome(&mut self) -> Option<Result<PhaseResult>> {
        self.outcome.take()
    }
}

impl PhaseRun<'_> {
    fn end(&mut self, host: &mut ClientHost<'_>, outcome: Result<PhaseResult>) {
        self.outcome = Some(outcome);
        self.phase = None;
        host.env.exit(0);
    }

    /// The pool's number, once there is a map that says.
    fn find_pool(&mut self, host: &ClientHost<'_>) -> Result<Option<PoolId>> {
        if self.pool_id.is_none() && host.client.map().is_some() {
            self.pool_id = host.client.pool_id(&self.pool);
            if self.pool_id.is_none() {
                bail!("there is no pool {:?}", self.pool);
            }
        }
        let now = host.env.now();
        if self.pool_id.is_none() && now >= *self.deadline.get_or_insert(now + PATIENCE) {
            return Err(ClusterClient::unreachable(""));
        }
        Ok(self.pool_id)
    }

    fn call_watcher(&mut self, now: Time) -> Result<()> {
        let Some(phase) = self.phase.as_ref().filter(|_| now >= self.next_tick) else { return Ok(()) };
        self.next_tick = now + TICK;
        (self.watch)(Progress { ops: phase.completed(), fraction: phase.fraction(self.objects, now) })
    }
}

impl Workload for PhaseRun<'_> {
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        if self.phase.is_none() {
            return;
        }
        let pool = match self.find_pool(host) {
            Ok(Some(pool)) => pool,
            Ok(None) => return self.next_tick = host.env.now() + TICK,
            Err(error) => return self.end(host, Err(error)),
        };
        let now = Now { time: host.env.now(), wall: host.env.wall() };
        if let Some(phase) = &mut self.phase {
            phase.drive(host.client, pool, self.objects, now);
        }
        if let Err(error) = self.call_watcher(now.time) {
            return self.end(host, Err(error));
        }
        if let Some(phase) = self.phase.take_if(|phase| phase.is_done()) {
            let result = phase.finish(now.time);
            self.end(host, Ok(result));
        }
    }

    fn on_completion(&mut self, host: &mut ClientHost<'_>, id: RequestId, completion: Completion) {
        if let Some(phase) = &mut self.phase {
            phase.on_completion(self.objects, host.env.now(), id, &completion);
        }
    }

    fn next_wake(&self) -> Time {
        self.phase.as_ref().map_or(Time::MAX, |_| self.next_tick)
    }
}
