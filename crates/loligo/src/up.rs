//! `loligo up DIR`.

use crate::local_cluster::LocalCluster;
use crate::options::UpOptions;
use anyhow::Result;
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub fn run(options: &UpOptions) -> Result<ExitCode> {
    let began = Instant::now();
    let mut cluster = LocalCluster::open(options)?;
    if let Err(error) = cluster.start() {
        // What this call started is of no use half; what ran before goes on.
        cluster.stop_started(Duration::from_secs(2));
        return Err(error);
    }
    println!(
        "up: fsid {}, {} OSDs, {} daemons started, in {:.2} s",
        cluster.dir.settings.fsid,
        cluster.dir.settings.osds,
        cluster.started_count(),
        began.elapsed().as_secs_f64()
    );
    println!("CEPH_CONF={}/ceph.conf", cluster.dir.root.display());
    Ok(ExitCode::SUCCESS)
}
