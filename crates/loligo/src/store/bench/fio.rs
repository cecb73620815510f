//! The same workload by fio, on a file of its own: what the device could do.

use super::measured::FioMeasured;
use crate::store::options::WorkloadKind;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub struct Fio {
    path: PathBuf,
    len: u64,
    seconds: f64,
    ramp: f64,
    created: bool,
}

impl Fio {
    /// `path` is made by fio, and removed in the end if it did not exist.
    pub fn new(path: PathBuf, len: u64, seconds: f64, ramp: f64) -> Result<Fio> {
        if Command::new("fio").arg("--version").output().is_err() {
            bail!("--fio: fio is not installed");
        }
        let created = !path.exists();
        if !created && !path.metadata().is_ok_and(|m| m.is_file() && m.len() == len) {
            bail!("--fio: {} exists and is no file of {len} bytes", path.display());
        }
        Ok(Fio { path, len, seconds, ramp, created })
    }

    /// Writes the whole file, so that no row measures how the file system finds room.
    pub fn lay_out(&self) -> Result<()> {
        if self.created {
            self.call(&["--rw=write", "--bs=4M", "--iodepth=8", "--end_fsync=1"])?;
        }
        Ok(())
    }

    /// Writes are made durable about as often as a store must, which commits
    /// half of what is in flight at once: after each at depth 1, after every
    /// 16th at depth 32.
    pub fn run(&self, workload: WorkloadKind, depth: u32) -> Result<FioMeasured> {
        let kind = if workload.is_write() { "randwrite" } else { "randread" };
        let mut args = vec![
            format!("--rw={kind}"),
            format!("--bs={}", workload.len()),
            format!("--iodepth={depth}"),
            "--time_based".into(),
            format!("--runtime={}ms", (self.seconds * 1e3) as u64),
            format!("--ramp_time={}ms", (self.ramp * 1e3) as u64),
            "--norandommap".into(),
            "--randrepeat=0".into(),
        ];
        if workload.is_write() {
            args.push(format!("--fdatasync={}", (depth / 2).max(1)));
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer = self.call(&args)?;
        let side = if workload.is_write() { "write" } else { "read" };
        parse(&answer, side).context("fio's answer is not understood")
    }

    fn call(&self, args: &[&str]) -> Result<Value> {
        let done = Command::new("fio")
            .args(["--name=loligo", "--output-format=json", "--ioengine=io_uring", "--direct=1"])
            .arg(format!("--filename={}", self.path.display()))
            .arg(format!("--size={}", self.len))
            .args(args)
            .output()
            .context("fio")?;
        if !done.status.success() {
            bail!("fio: {}: {}", done.status, String::from_utf8_lossy(&done.stderr));
        }
        // Notes may stand before the answer.
        let text = String::from_utf8_lossy(&done.stdout);
        let begin = text.find('{').context("fio gave no answer")?;
        Ok(serde_json::from_str(&text[begin..])?)
    }
}

fn parse(answer: &Value, side: &str) -> Option<FioMeasured> {
    let job = answer.get("jobs")?.get(0)?;
    let of_side = job.get(side)?;
    let time = of_side.get("runtime")?.as_f64()? / 1e3;
    let percent = job.get("usr_cpu")?.as_f64()? + job.get("sys_cpu")?.as_f64()?;
    Some(FioMeasured {
        time: Duration::from_secs_f64(time),
        ops: of_side.get("total_ios")?.as_u64()?,
        cpu: Duration::from_secs_f64(time * percent / 100.0),
    })
}

impl Drop for Fio {
    fn drop(&mut self) {
        if self.created {
            remove(&self.path);
        }
    }
}

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rate_and_cpu_are_taken_from_fios_answer() {
        let side = json!({ "runtime": 2000, "total_ios": 1000 });
        let answer = json!({ "jobs": [{ "write": side, "usr_cpu": 10.0, "sys_cpu": 15.0 }] });
        let found = parse(&answer, "write").expect("complete");
        assert_eq!((found.ops, found.cpu), (1000, Duration::from_millis(500)));
        assert!(parse(&json!({}), "write").is_none());
    }
}
