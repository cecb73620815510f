//! `loligo store info`.

use super::node::{Ending, Place, Reached, Step, Task, run_task};
use super::options::InfoOptions;
use super::process_use::resident_bytes;
use super::{device_report, names};
use anyhow::{Context, Result};
use base::Time;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use store::{Engine, FORMAT_VERSION, Options, StoreInfo};
use uring::DiskOptions;

/// Opening is all there is to do.
struct Look {
    began: Instant,
    opened_in: Duration,
}

impl Task for Look {
    fn step(&mut self, _: &mut Engine, _: Time) -> Result<Step> {
        self.opened_in = self.began.elapsed();
        Ok(Step::Done)
    }
}

pub fn run(options: &InfoOptions) -> Result<ExitCode> {
    let target = &options.target;
    let disk_options = DiskOptions { read_only: true, ..DiskOptions::default() };
    let place = Place { path: &target.path, backend: target.backend, options: disk_options };
    let mut look = Look { began: Instant::now(), opened_in: Duration::ZERO };
    let read_only = Options { read_only: true, ..Options::default() };
    let reached =
        run_task(&place, Ending::Abrupt, &mut look, |disk| Engine::open(disk.info(), None, read_only))?;
    let info = reached.engine.info().context("the store is not open")?;
    if target.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&info, &reached, &look))?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", target.path.display());
    print_lines(&store_lines(&info, &look));
    println!("device");
    print_lines(&device_report::lines(&reached.facts, Some(reached.backend)));
    Ok(ExitCode::SUCCESS)
}

fn print_lines(lines: &[(&str, String)]) {
    for (name, text) in lines {
        println!("  {name:<16}{text}");
    }
}

fn store_lines(info: &StoreInfo, look: &Look) -> Vec<(&'static str, String)> {
    let stats = &info.stats;
    let percent = |part: u64, whole: u64| part as f64 / whole.max(1) as f64 * 100.0;
    vec![
        ("cluster", info.identity.fsid.to_string()),
        ("osd", info.identity.osd.0.to_string()),
        ("uuid", info.identity.uuid.to_string()),
        ("format", format!("version {FORMAT_VERSION}")),
        (
            "space",
            format!(
                "{}, {} free, {} available for data ({:.1} % used)",
                names::size(stats.total),
                names::size(info.free),
                names::size(stats.available),
                percent(stats.total - stats.available.min(stats.total), stats.total)
            ),
        ),
        (
            "content",
            format!(
                "{} objects, {} of data, {} of omap, {} of log, checkpoints and tables",
                stats.objects,
                names::size(stats.data),
                names::size(stats.omap),
                names::size(stats.internal)
            ),
        ),
        (
            "log",
            format!(
                "{}, {} of it ({:.1} %) since the last checkpoint",
                names::size(info.log_len),
                names::size(info.log_used),
                percent(info.log_used, info.log_len)
            ),
        ),
        (
            "history",
            format!(
                "epoch {}, checkpoint {}, last record {}",
                info.epoch, info.checkpoint_generation, info.last_sequence
            ),
        ),
        (
            "opening",
            format!(
                "took {:.3} s, {} device reads of {} together; {} resident",
                look.opened_in.as_secs_f64(),
                stats.device_reads,
                names::size(stats.device_read_bytes),
                names::size(resident_bytes())
            ),
        ),
    ]
}

fn as_json(info: &StoreInfo, reached: &Reached, look: &Look) -> Value {
    let stats = &info.stats;
    json!({
        "fsid": info.identity.fsid.to_string(),
        "osd": info.identity.osd.0,
        "uuid": info.identity.uuid.to_string(),
        "format_version": FORMAT_VERSION,
        "device_len_bytes": info.device_len,
        "free_bytes": info.free,
        "available_bytes": stats.available,
        "data_bytes": stats.data,
        "omap_bytes": stats.omap,
        "internal_bytes": stats.internal,
        "objects": stats.objects,
        "log_len_bytes": info.log_len,
        "log_used_bytes": info.log_used,
        "epoch": info.epoch,
        "checkpoint_generation": info.checkpoint_generation,
        "last_sequence": info.last_sequence,
        "open_seconds": look.opened_in.as_secs_f64(),
        "resident_bytes": resident_bytes(),
        "counters": {
            "device_reads": stats.device_reads,
            "device_read_bytes": stats.device_read_bytes,
            "device_writes": stats.device_writes,
            "device_write_bytes": stats.device_write_bytes,
            "flushes": stats.flushes,
            "transactions": stats.transactions,
            "checksum_errors": stats.checksum_errors,
        },
        "device": device_report::json(&reached.facts, Some(reached.backend)),
    })
}
