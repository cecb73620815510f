//! Waits until a cluster serves, or is clean.

use crate::identity;
use anyhow::{Result, bail};
use base::{Duration, Time};
use bytes::Bytes;
use client::{Completion, RequestId};
use daemon::{ClientHost, ClientNode, Workload};
use serde::Deserialize;
use std::net::SocketAddr;
use wire::types::EntityAddr;

/// Between questions to the monitor.
const INTERVAL: Duration = Duration::from_millis(20);

/// The parts of `ceph status -f json` that matter here.
#[derive(Deserialize)]
struct Status {
    osdmap: OsdStatus,
    pgmap: PgStatus,
}

#[derive(Deserialize)]
struct OsdStatus {
    num_up_osds: u32,
}

#[derive(Deserialize)]
struct PgStatus {
    num_pgs: u64,
    #[serde(default)]
    pgs_by_state: Vec<PgCount>,
}

#[derive(Deserialize)]
struct PgCount {
    state_name: String,
    count: u64,
}

/// What is waited for. Every OSD is up in both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Every PG is active.
    Serving,
    /// Every PG, and there are so many, has all its copies in order.
    Clean { pgs_min: u64 },
}

impl Status {
    fn is(&self, want: Want, osds: u32) -> bool {
        let in_state = |wanted: &str| -> u64 {
            let has = |state: &PgCount| state.state_name.split('+').any(|s| s == wanted);
            self.pgmap.pgs_by_state.iter().filter(|c| has(c)).map(|c| c.count).sum()
        };
        let pgs = self.pgmap.num_pgs;
        let pgs_are = match want {
            Want::Serving => in_state("active") == pgs,
            Want::Clean { pgs_min } => {
                pgs >= pgs_min && in_state("active") == pgs && in_state("clean") == pgs
            }
        };
        self.osdmap.num_up_osds >= osds && pgs_are
    }

    fn in_words(&self, osds: u32) -> String {
        let states = self.pgmap.pgs_by_state.iter().map(|c| format!(", {} PGs {}", c.count, c.state_name));
        format!("{} of {osds} OSDs are up{}", self.osdmap.num_up_osds, states.collect::<String>())
    }
}

struct Wait<F> {
    osds: u32,
    want: Want,
    /// Fails when waiting on is pointless.
    check: F,
    asked: Option<RequestId>,
    ask_at: Time,
    deadline: Option<Time>,
    patience: Duration,
    last: String,
    outcome: Option<Result<()>>,
}

/// `check` is called again and again, and fails when waiting on is pointless.
pub fn wait(
    mon: SocketAddr,
    osds: u32,
    want: Want,
    patience: Duration,
    check: impl FnMut() -> Result<()>,
) -> Result<()> {
    let wait = Wait {
        osds,
        want,
        check,
        asked: None,
        ask_at: Time::ZERO,
        deadline: None,
        patience,
        last: "the monitor has not answered".into(),
        outcome: None,
    };
    let mon = EntityAddr::msgr2(mon, 0);
    let nonce = identity::random_u64()? as u32;
    let mut node = ClientNode::new(vec![mon], "admin", nonce, "localhost", wait);
    uring::run(uring::ReactorConfig::new(uring::Backend::Auto), &mut node)?;
    match node.workload_mut().outcome.take() {
        Some(outcome) => outcome,
        None => bail!("interrupted"),
    }
}

impl<F: FnMut() -> Result<()>> Wait<F> {
    fn finish(&mut self, host: &mut ClientHost<'_>, outcome: Result<()>) {
        self.outcome = Some(outcome);
        host.env.exit(0);
    }
}

impl<F: FnMut() -> Result<()>> Workload for Wait<F> {
    fn on_batch_end(&mut self, host: &mut ClientHost<'_>) {
        let now = host.env.now();
        let deadline = *self.deadline.get_or_insert(now + self.patience);
        if self.outcome.is_some() || now < self.ask_at {
            return;
        }
        self.ask_at = now + INTERVAL;
        if let Err(error) = (self.check)() {
            return self.finish(host, Err(error));
        }
        if now > deadline {
            let error = anyhow::anyhow!("not healthy after {} s: {}", self.patience.as_secs(), self.last);
            return self.finish(host, Err(error));
        }
        if self.asked.is_none() {
            let ask = r#"{"prefix":"status","format":"json"}"#;
            self.asked = Some(host.client.command(ask.into(), Bytes::new()));
        }
    }

    fn on_completion(&mut self, host: &mut ClientHost<'_>, id: RequestId, completion: Completion) {
        if self.asked != Some(id) {
            return;
        }
        self.asked = None;
        let Completion::Command { output, .. } = completion else { return };
        match serde_json::from_slice::<Status>(&output) {
            Ok(status) if status.is(self.want, self.osds) => self.finish(host, Ok(())),
            Ok(status) => self.last = status.in_words(self.osds),
            Err(error) => self.last = format!("unreadable status: {error}"),
        }
    }

    fn next_wake(&self) -> Time {
        self.ask_at
    }
}
