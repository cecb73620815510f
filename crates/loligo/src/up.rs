//! `loligo up DIR`.

use crate::cluster_dir::ClusterDir;
use crate::options::{Backend, UpOptions};
use crate::{process, wait_healthy};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::fs;
use std::process::{Child, ExitCode};
use std::time::{Duration, Instant};

/// Longest wait for all OSDs to be up and all PGs active.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn run(options: &UpOptions) -> Result<ExitCode> {
    let began = Instant::now();
    let dir = ClusterDir::open_or_create(options)?;
    let mut cluster = Starter { dir: &dir, backend: options.backend, started: Vec::new() };
    let outcome = cluster.start_missing().and_then(|()| {
        wait_healthy::wait(&dir, PATIENCE, || {
            cluster.first_failure()?;
            // A daemon that was being killed still held its pid file a moment ago.
            cluster.start_missing()
        })
    });
    if let Err(error) = outcome {
        // What this call started is of no use half; what ran before goes on.
        for (name, _) in &cluster.started {
            process::stop(&dir.pid_file(name), Duration::from_secs(2));
        }
        return Err(error);
    }
    println!(
        "up: fsid {}, {} OSDs, {} daemons started, in {:.2} s",
        dir.settings.fsid,
        dir.settings.osds,
        cluster.started.len(),
        began.elapsed().as_secs_f64()
    );
    println!("CEPH_CONF={}/ceph.conf", dir.root.display());
    Ok(ExitCode::SUCCESS)
}

struct Starter<'a> {
    dir: &'a ClusterDir,
    backend: Backend,
    /// Daemons that this call started.
    started: Vec<(String, Child)>,
}

impl Starter<'_> {
    /// Starts every daemon that is not running and that this call has not started.
    fn start_missing(&mut self) -> Result<()> {
        for name in self.dir.daemons().into_iter().rev() {
            let ours = self.started.iter().any(|(n, _)| *n == name);
            if ours || process::running(&self.dir.pid_file(&name)).is_some() {
                continue;
            }
            let args = match name.strip_prefix("osd.") {
                Some(id) => self.osd_args(id.parse()?)?,
                None => self.mon_args()?,
            };
            self.started.push((name.clone(), process::spawn(&args, &self.dir.log_file(&name))?));
        }
        Ok(())
    }

    fn daemon_args(&self, name: &str) -> [String; 2] {
        let backend = self.backend.to_possible_value().expect("no hidden values");
        let pid_file = self.dir.pid_file(name);
        [format!("--pid-file={}", pid_file.display()), format!("--backend={}", backend.get_name())]
    }

    fn mon_args(&self) -> Result<Vec<String>> {
        let (dir, settings) = (self.dir, &self.dir.settings);
        // A clear word beats a daemon that dies with a line in its log.
        drop(uring::listen(dir.mon_addr()).with_context(|| {
            format!("port {} is in use; choose another with --port", settings.port)
        })?);
        let mut args = vec![
            "mon".into(),
            format!("--data={}", dir.mon_data().display()),
            format!("--listen={}", dir.mon_addr()),
            "--mkfs".into(),
            format!("--fsid={}", settings.fsid),
            format!("--replicas={}", settings.replicas),
            "--failure-domain=osd".into(),
            // One person's cluster: the command's own two safety arguments are enough.
            "--config=mon_allow_pool_delete=true".into(),
        ];
        args.extend(self.daemon_args("mon.a"));
        Ok(args)
    }

    fn osd_args(&self, id: u32) -> Result<Vec<String>> {
        let (dir, settings) = (self.dir, &self.dir.settings);
        let device = dir.osd_device(id);
        fs::create_dir_all(device.parent().expect("a file in a folder"))?;
        let mut args = vec![
            "osd".into(),
            format!("--id={id}"),
            format!("--device={}", device.display()),
            format!("--mons={}", dir.mon_addr()),
            format!("--fsid={}", settings.fsid),
            format!("--mkfs-size={}", settings.osd_size),
        ];
        args.extend(self.daemon_args(&format!("osd.{id}")));
        Ok(args)
    }

    /// An error naming the first daemon that ended, with the end of its log.
    fn first_failure(&mut self) -> Result<()> {
        for (name, child) in &mut self.started {
            if let Some(status) = child.try_wait()? {
                let path = self.dir.log_file(name);
                let log = fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(5)..].join("\n");
                bail!("{name} ended ({status}); the end of {}:\n{tail}", path.display());
            }
        }
        Ok(())
    }
}
