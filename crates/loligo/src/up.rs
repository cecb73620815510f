//! `loligo up DIR`.

use crate::cluster_dir::ClusterDir;
use crate::options::{Backend, UpOptions};
use crate::{process, wait_healthy};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

/// Longest wait for all OSDs to be up and all PGs active.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(options: &UpOptions) -> Result<ExitCode> {
    let began = Instant::now();
    let dir = ClusterDir::open_or_create(options)?;
    let mut started = start(&dir, options.backend)?;
    wait_healthy::wait(&dir, PATIENCE, || first_failure(&dir, &mut started))?;
    println!(
        "up: fsid {}, {} OSDs, {} started, in {:.2} s",
        dir.settings.fsid,
        dir.settings.osds,
        started.len(),
        began.elapsed().as_secs_f64()
    );
    println!("CEPH_CONF={}/ceph.conf", dir.root.display());
    Ok(ExitCode::SUCCESS)
}

type Started = Vec<(String, Child)>;

/// Starts every daemon that is not running.
fn start(dir: &ClusterDir, backend: Backend) -> Result<Started> {
    let mut started = Started::new();
    let backend = backend.to_possible_value().expect("no hidden values").get_name().to_string();
    if process::running(&dir.pid_file("mon.a")).is_none() {
        // A clear word beats a daemon that dies with a line in its log.
        TcpListener::bind(dir.mon_addr()).with_context(|| {
            format!("port {} is in use; choose another with --port", dir.settings.port)
        })?;
        let args = [
            "mon".into(),
            format!("--data={}", dir.mon_data().display()),
            format!("--listen={}", dir.mon_addr()),
            "--mkfs".into(),
            format!("--fsid={}", dir.settings.fsid),
            format!("--replicas={}", dir.settings.replicas),
            "--failure-domain=osd".into(),
            // One person's cluster: the command's own two safety arguments are enough.
            "--config=mon_allow_pool_delete=true".into(),
            format!("--pid-file={}", dir.pid_file("mon.a").display()),
            format!("--backend={backend}"),
        ];
        started.push(("mon.a".into(), process::spawn(&args, &dir.log_file("mon.a"))?));
    }
    for id in 0..dir.settings.osds {
        let name = format!("osd.{id}");
        if process::running(&dir.pid_file(&name)).is_some() {
            continue;
        }
        let device = dir.osd_device(id);
        fs::create_dir_all(device.parent().expect("a file in a folder"))?;
        let args = [
            "osd".into(),
            format!("--id={id}"),
            format!("--device={}", device.display()),
            format!("--mons={}", dir.mon_addr()),
            format!("--fsid={}", dir.settings.fsid),
            format!("--mkfs-size={}", dir.settings.osd_size),
            format!("--pid-file={}", dir.pid_file(&name).display()),
            format!("--backend={backend}"),
        ];
        started.push((name.clone(), process::spawn(&args, &dir.log_file(&name))?));
    }
    Ok(started)
}

/// An error naming the first daemon that ended, with the end of its log.
fn first_failure(dir: &ClusterDir, started: &mut Started) -> Result<()> {
    for (name, child) in started.iter_mut() {
        if let Some(status) = child.try_wait()? {
            let log = fs::read_to_string(dir.log_file(name)).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(5).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("{name} ended ({status}); the end of {}:\n{}", dir.log_file(name).display(), tail.join("\n"));
        }
    }
    Ok(())
}
