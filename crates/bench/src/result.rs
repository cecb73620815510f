//! What a phase measured.

use crate::latency::Latency;
use base::Duration;
use serde::Serialize;

/// Units: microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencySummary {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl LatencySummary {
    /// `None` without any request.
    fn of(latency: &Latency) -> Option<LatencySummary> {
        let us = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        (latency.count() > 0).then(|| LatencySummary {
            mean: us(latency.mean()),
            p50: us(latency.at(0.5)),
            p99: us(latency.at(0.99)),
            p999: us(latency.at(0.999)),
            max: us(latency.max()),
        })
    }
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseResult {
    pub name: String,
    /// Requests that succeeded.
    pub ops: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Of all requests; the two below of one kind, where both occurred.
    pub latency_us: Option<LatencySummary>,
    pub read_latency_us: Option<LatencySummary>,
    pub write_latency_us: Option<LatencySummary>,
    /// Reads whose every byte was checked.
    pub verified: u64,
    /// CPU time of the OSDs; `None` where it is not known.
    pub osd_cpu_seconds: Option<f64>,
    pub failures: u64,
    pub first_failure: Option<String>,
}

impl PhaseResult {
    pub(crate) fn new(
        name: String,
        reads: &Latency,
        writes: &Latency,
        bytes: u64,
        elapsed: Duration,
    ) -> PhaseResult {
        let mut all = reads.clone();
        all.add(writes);
        let both = reads.count() > 0 && writes.count() > 0;
        PhaseResult {
            name,
            ops: all.count(),
            reads: reads.count(),
            writes: writes.count(),
            bytes,
            seconds: elapsed.as_secs_f64(),
            latency_us: LatencySummary::of(&all),
            read_latency_us: LatencySummary::of(reads).filter(|_| both),
            write_latency_us: LatencySummary::of(writes).filter(|_| both),
            verified: 0,
            osd_cpu_seconds: None,
            failures: 0,
            first_failure: None,
        }
    }

    pub(crate) fn with_verified(self, verified: u64) -> PhaseResult {
        PhaseResult { verified, ..self }
    }

    pub(crate) fn with_failures(self, failures: u64, first_failure: Option<String>) -> PhaseResult {
        PhaseResult { failures, first_failure, ..self }
    }

    pub fn ops_per_second(&self) -> f64 {
        per(self.ops as f64, self.seconds)
    }

    pub fn mib_per_second(&self) -> f64 {
        per(self.bytes as f64 / f64::from(1 << 20), self.seconds)
    }

    pub fn osd_cpu_us_per_op(&self) -> Option<f64> {
        self.osd_cpu_seconds.map(|seconds| per(seconds * 1e6, self.ops as f64))
    }
}

/// Zero instead of a division by zero.
fn per(what: f64, by: f64) -> f64 {
    if by > 0.0 { what / by } else { 0.0 }
}
