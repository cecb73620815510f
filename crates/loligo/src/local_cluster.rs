//! A cluster's daemons as processes of this machine: started, watched, killed.

use crate::cluster_dir::ClusterDir;
use crate::options::{Backend, UpOptions};
use crate::process;
use crate::wait_healthy::{self, Want};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::fs;
use std::process::Child;
use std::time::Duration;

/// Longest wait for a cluster to serve, or to be clean.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a killed daemon takes to end; its memory and its requests under way go first.
const DYING: Duration = Duration::from_millis(500);

/// Daemons outlive this value; who wants them gone says so.
pub struct LocalCluster {
    pub dir: ClusterDir,
    backend: Backend,
    /// Daemons that this process started.
    started: Vec<(String, Child)>,
}

impl LocalCluster {
    /// Opens the cluster in a directory, or lays out a new one. Starts nothing.
    pub fn open(options: &UpOptions) -> Result<LocalCluster> {
        let dir = ClusterDir::open_or_create(options)?;
        Ok(LocalCluster { dir, backend: options.backend, started: Vec::new() })
    }

    /// Starts what is not running, and waits until the cluster serves.
    ///
    /// Errors: what this call started is then still there, see [`LocalCluster::stop_started`].
    pub fn start(&mut self) -> Result<()> {
        self.start_missing()?;
        if self.started.len() < self.dir.daemons().len() {
            // One that was killed a moment ago still holds its pid file, and the monitor still takes it for alive.
            std::thread::sleep(DYING);
            self.start_missing()?;
        }
        self.wait(Want::Serving)
    }

    pub fn wait(&mut self, want: Want) -> Result<()> {
        let (mon, osds) = (self.dir.mon_addr(), self.dir.settings.osds);
        wait_healthy::wait(mon, osds, want, PATIENCE, || {
            self.first_failure()?;
            // A daemon that was being killed still held its pid file a moment ago.
            self.start_missing()
        })
    }

    pub fn started_count(&self) -> usize {
        self.started.len()
    }

    /// Starts every daemon that is not running and that this process has not started.
    pub fn start_missing(&mut self) -> Result<()> {
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

    /// An error naming the first daemon that ended, with the end of its log.
    pub fn first_failure(&mut self) -> Result<()> {
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

    /// Asks the daemons that this process started to stop, and kills those that do not.
    pub fn stop_started(&mut self, patience: Duration) {
        for (name, mut child) in self.started.drain(..) {
            process::stop(&[&self.dir.pid_file(&name)], patience);
            // One that held no pid file yet.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills (SIGKILL) a daemon that this process started.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let at = self.started.iter().position(|(n, _)| n == name);
        let (_, mut child) = self.started.remove(at.with_context(|| format!("{name} was not started here"))?);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Kills what this process started: for clusters whose data nobody wants.
    pub fn kill_started(&mut self) {
        for (_, child) in &mut self.started {
            let _ = child.kill();
        }
        for (_, mut child) in self.started.drain(..) {
            let _ = child.wait();
        }
    }

    /// Forgets the daemons that this process started: they go on.
    pub fn leave_running(&mut self) {
        self.started.clear();
    }

    fn daemon_args(&self, name: &str) -> [String; 2] {
        let backend = self.backend.to_possible_value().expect("no hidden values");
        let pid_file = self.dir.pid_file(name);
        [format!("--pid-file={}", pid_file.display()), format!("--backend={}", backend.get_name())]
    }

    fn mon_args(&self) -> Result<Vec<String>> {
        let (dir, settings) = (&self.dir, &self.dir.settings);
        // A clear word beats a daemon that dies with a line in its log.
        drop(
            uring::listen(dir.mon_addr())
                .with_context(|| format!("port {} is in use; choose another with --port", settings.port))?,
        );
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
        let (dir, settings) = (&self.dir, &self.dir.settings);
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
}
