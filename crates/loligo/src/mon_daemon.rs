//! `loligo mon`: one monitor process.

use crate::options::{Backend, FailureDomain, MonOptions};
use crate::process::PidFile;
use crate::{identity, logging};
use anyhow::{Context, Result};
use base::WallTime;
use daemon::MonNode;
use daemon::map_store::RedbMapStore;
use mon::{MapStore, MkfsOptions, Mon};
use std::fs;
use std::process::ExitCode;
use std::time::SystemTime;
use wire::types::{EntityAddr, EntityAddrVec, Uuid};

pub fn run(options: &MonOptions) -> Result<ExitCode> {
    logging::init();
    let _pid_file = options.daemon.pid_file.as_deref().map(PidFile::claim).transpose()?;
    let listener = uring::listen(options.listen)
        .with_context(|| format!("cannot listen on {}: is another monitor running there?", options.listen))?;
    fs::create_dir_all(&options.data).with_context(|| format!("cannot make {}", options.data.display()))?;
    let store = RedbMapStore::open(&options.data.join("maps.redb"))?;
    // A monitor's address has no nonce: clients know it from ceph.conf.
    let addrs = EntityAddrVec::one(EntityAddr::msgr2(listener.local_addr()?, 0));
    let mon = open(options, store, addrs.clone())?;
    let mut node = MonNode::new(mon, 0, addrs);
    let mut config = uring::ReactorConfig::new(backend(options.daemon.backend));
    config.listeners.push(listener);
    let status = uring::run(config, &mut node)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

fn open(options: &MonOptions, store: RedbMapStore, addrs: EntityAddrVec) -> Result<Mon<RedbMapStore>> {
    if store.revision() > 0 || !options.mkfs {
        let mon = Mon::open(store).with_context(|| {
            format!("{} holds no usable monitor store; --mkfs makes a new cluster", options.data.display())
        })?;
        if let Some(fsid) = &options.fsid {
            let wanted: Uuid = fsid.parse().context("--fsid")?;
            anyhow::ensure!(
                mon.fsid() == wanted,
                "{} belongs to cluster {}, not {wanted}",
                options.data.display(),
                mon.fsid()
            );
        }
        return Ok(mon);
    }
    let fsid = match &options.fsid {
        Some(text) => text.parse().context("--fsid")?,
        None => identity::new_uuid()?,
    };
    let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut mkfs = MkfsOptions::new(fsid, &options.name, addrs, WallTime::from_duration(created));
    mkfs.pool_size = options.replicas;
    // As Ceph derives it from the size: more than half of the copies.
    mkfs.pool_min_size = 0;
    mkfs.config = options.config.iter().cloned().collect();
    mkfs.failure_domain = match options.failure_domain {
        FailureDomain::Osd => mon::FailureDomain::Osd,
        FailureDomain::Host => mon::FailureDomain::Host,
    };
    Ok(Mon::create(store, &mkfs)?)
}

pub fn backend(choice: Backend) -> uring::Backend {
    match choice {
        Backend::Auto => uring::Backend::Auto,
        Backend::Uring => uring::Backend::Uring,
        Backend::Epoll => uring::Backend::Epoll,
    }
}
