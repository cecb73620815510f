//! What one row measured, and how rows are shown.

use crate::store::options::WorkloadKind;
use crate::store::process_use::CpuTime;
use bench::Latency;
use clap::ValueEnum;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::{Value, json};
use std::time::Duration;

/// Totals of everything measured for a row. Units: counts, bytes.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub time: Duration,
    pub ops: u64,
    pub bytes: u64,
    pub latency: Latency,
    pub cpu: CpuTime,
    pub device: DeviceUse,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceUse {
    pub writes: u64,
    pub write_bytes: u64,
    pub reads: u64,
    pub read_bytes: u64,
    pub flushes: u64,
    pub discards: u64,
}

impl DeviceUse {
    pub fn since(self, earlier: DeviceUse) -> DeviceUse {
        DeviceUse {
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            flushes: self.flushes - earlier.flushes,
            discards: self.discards - earlier.discards,
        }
    }

    fn add(&mut self, other: DeviceUse) {
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.flushes += other.flushes;
        self.discards += other.discards;
    }
}

impl Measured {
    pub fn add(&mut self, other: &Measured) {
        self.time += other.time;
        self.ops += other.ops;
        self.bytes += other.bytes;
        self.latency.add(&other.latency);
        self.cpu.user += other.cpu.user;
        self.cpu.system += other.cpu.system;
        self.device.add(other.device);
    }

    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9)
    }

    fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.time.as_secs_f64().max(1e-9)
    }

    fn per_op(&self, count: u64) -> f64 {
        count as f64 / self.ops.max(1) as f64
    }

    fn per_byte(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes.max(1) as f64
    }

    fn us_per_op(&self, time: Duration) -> f64 {
        time.as_secs_f64() * 1e6 / self.ops.max(1) as f64
    }
}

/// Fio's side of a row. Its latencies of writes leave the flushes out, so only
/// the rate and the CPU are compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct FioMeasured {
    pub time: Duration,
    pub ops: u64,
    pub cpu: Duration,
}

impl FioMeasured {
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.time.as_secs_f64().max(1e-9)
    }

    fn cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops.max(1) as f64
    }

    pub fn add(&mut self, other: FioMeasured) {
        self.time += other.time;
        self.ops += other.ops;
        self.cpu += other.cpu;
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Age {
    /// The first fill, which is a row of its own: new objects.
    Filling,
    Fresh,
    /// After `--fill` and `--age`.
    Filled,
}

pub struct Row {
    pub age: Age,
    pub workload: WorkloadKind,
    pub depth: u32,
    pub measured: Measured,
    pub fio: Option<FioMeasured>,
}

impl WorkloadKind {
    pub fn is_write(self) -> bool {
        matches!(self, WorkloadKind::Write4k | WorkloadKind::Write4m)
    }

    pub fn len(self) -> u64 {
        match self {
            WorkloadKind::Write4k | WorkloadKind::Read4k => 4096,
            WorkloadKind::Write4m | WorkloadKind::Read4m => super::layout::OBJECT_LEN,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_string())
    }
}

impl Row {
    fn label(&self) -> String {
        let name = self.workload.name();
        match self.age {
            Age::Filling => format!("{name}, new objects"),
            Age::Fresh => name,
            Age::Filled => format!("{name}, filled"),
        }
    }

    fn fio_ratio(&self) -> Option<f64> {
        self.fio.map(|fio| self.measured.rate() / fio.rate().max(1e-9))
    }

    /// Requests and bytes of the device: writes of a row that writes, reads of one
    /// that reads. JSON has both.
    fn cells(&self, with_fio: bool) -> Vec<String> {
        let found = &self.measured;
        let us = |at: Duration| number(at.as_secs_f64() * 1e6);
        let when = |shown: bool, text: String| if shown { text } else { "-".into() };
        let writes = self.workload.is_write();
        let device = found.device;
        let (requests, bytes) =
            if writes { (device.writes, device.write_bytes) } else { (device.reads, device.read_bytes) };
        let mut cells = vec![
            self.label(),
            self.depth.to_string(),
            number(found.rate()),
            number(found.mib_per_second()),
            us(found.latency.mean()),
            us(found.latency.at(0.99)),
            us(found.latency.at(0.9999)),
            number(found.per_op(requests)),
            number(found.per_byte(bytes)),
            when(writes, number(found.per_op(found.device.flushes))),
            number(found.us_per_op(found.cpu.total())),
            number(found.us_per_op(found.cpu.user)),
        ];
        if with_fio {
            cells.push(self.fio.map_or("-".into(), |fio| number(fio.rate())));
            cells.push(self.fio.map_or("-".into(), |fio| number(fio.cpu_us_per_op())));
            cells.push(self.fio_ratio().map_or("-".into(), |ratio| format!("{ratio:.2}")));
        }
        cells
    }

    pub fn json(&self) -> Value {
        let found = &self.measured;
        let us = |at: Duration| at.as_secs_f64() * 1e6;
        json!({
            "workload": self.workload.name(),
            "state": match self.age { Age::Filling => "filling", Age::Fresh => "fresh", Age::Filled => "filled" },
            "depth": self.depth,
            "seconds": found.time.as_secs_f64(),
            "ops": found.ops,
            "ops_per_second": found.rate(),
            "mib_per_second": found.mib_per_second(),
            "latency_us": {
                "mean": us(found.latency.mean()),
                "p50": us(found.latency.at(0.5)),
                "p99": us(found.latency.at(0.99)),
                "p99.9": us(found.latency.at(0.999)),
                "p99.99": us(found.latency.at(0.9999)),
                "max": us(found.latency.max()),
            },
            "device_writes_per_op": found.per_op(found.device.writes),
            "device_bytes_written_per_byte": found.per_byte(found.device.write_bytes),
            "device_reads_per_op": found.per_op(found.device.reads),
            "device_bytes_read_per_byte": found.per_byte(found.device.read_bytes),
            "flushes_per_op": found.per_op(found.device.flushes),
            "discards_per_op": found.per_op(found.device.discards),
            "cpu_us_per_op": found.us_per_op(found.cpu.total()),
            "user_cpu_us_per_op": found.us_per_op(found.cpu.user),
            "fio": self.fio.map(|fio| json!({
                "ops_per_second": fio.rate(),
                "cpu_us_per_op": fio.cpu_us_per_op(),
                "ratio": self.fio_ratio(),
            })),
        })
    }
}

pub fn table(rows: &[Row]) -> String {
    let with_fio = rows.iter().any(|row| row.fio.is_some());
    let mut header = vec![
        "workload",
        "depth",
        "ops/s",
        "MiB/s",
        "mean µs",
        "p99 µs",
        "p99.99 µs",
        "device requests/op",
        "device bytes/byte",
        "flushes/op",
        "CPU µs/op",
        "of it user",
    ];
    if with_fio {
        header.extend(["fio ops/s", "fio CPU µs/op", "rate to fio's"]);
    }
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header.into_iter().enumerate().map(|(i, text)| cell(i, text.to_string())));
    for row in rows {
        table.add_row(row.cells(with_fio).into_iter().enumerate().map(|(i, text)| cell(i, text)));
    }
    table.lines().map(|line| line.trim_end().to_string() + "\n").collect()
}

/// Text to the left, numbers to the right.
fn cell(column: usize, text: String) -> Cell {
    let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
    Cell::new(text).set_alignment(alignment)
}

/// Three digits that matter.
pub fn number(value: f64) -> String {
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}
