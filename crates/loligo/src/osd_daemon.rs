//! `loligo osd`: one OSD process.

use crate::mon_daemon::backend;
use crate::options::{Mend, OsdOptions};
use crate::process::PidFile;
use crate::store::device_lines;
use crate::{allocator, identity, logging};
use anyhow::{Context, Result, bail};
use daemon::{OsdNode, StoreJob};
use osd::OsdConfig;
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use store::{Engine, Identity};
use tracing::info;
use uring::{Disk, DiskFacts, DiskKind, DiskOptions, ReactorConfig};
use wire::types::{EntityAddr, EntityAddrVec, OsdId, Uuid};

/// Where Ceph's OSDs listen, and where its users expect them.
const PORTS: std::ops::Range<u16> = 6800..7300;

/// What stock tools are told of our version: they compare it with their own.
pub const CEPH_VERSION: &str = "16.2.15";

pub fn run(options: &OsdOptions) -> Result<ExitCode> {
    logging::init();
    allocator::prepare();
    let _pid_file = options.daemon.pid_file.as_deref().map(PidFile::claim).transpose()?;
    let fsid: Uuid = options.fsid.parse().context("--fsid")?;
    let osd = OsdId(options.id);
    if options.id < 0 {
        bail!("--id {}: OSD numbers start at 0", options.id);
    }
    if let Some(size) = options.mkfs_size {
        mkfs(options, size, fsid, osd)?;
    }
    let disk = open_disk(&options.device, DiskOptions::default())?;
    let info = disk.info();
    for (what, found) in device_lines(disk.facts(), None) {
        info!("device: {what}: {found}");
    }
    let how = store::Options {
        memory_limit: options.memory,
        read_cache: options.read_cache,
        mend: options.mend == Mend::On,
        ..store_options(disk.facts())
    };
    let store = Engine::open(info, Some((fsid, osd)), how);
    let clients = listen(options)?;
    let cluster = listen(options)?;
    let nonce = identity::random_u64()? as u32;
    let addr = |l: &TcpListener| -> Result<EntityAddrVec> {
        Ok(EntityAddrVec::one(EntityAddr::msgr2(l.local_addr()?, nonce)))
    };
    let mut config = OsdConfig::new(fsid, osd, Uuid::ZERO);
    config.client_addrs = addr(&clients)?;
    config.cluster_addrs = addr(&cluster)?;
    config.hb_addrs = addr(&cluster)?;
    config.metadata = metadata(options, info.len_bytes);
    config.version = CEPH_VERSION.into();
    let mons = options.mons.iter().map(|socket| EntityAddr::msgr2(*socket, 0)).collect();
    let mut node = OsdNode::new(config, store, mons);
    let mut reactor = ReactorConfig::new(backend(options.daemon.backend));
    reactor.listeners = vec![clients, cluster];
    reactor.disk = Some(disk);
    let status = uring::run(reactor, &mut node)?;
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(1)))
}

/// How an OSD uses the store on its device.
pub fn store_options(device: &DiskFacts) -> store::Options {
    let default = store::Options::default();
    let lay_ahead = device.kind == DiskKind::File;
    let written_out = !device.holes.yes;
    store::Options { discard: device.discard.yes, lay_ahead, written_out, ..default }
}

/// Formats a device that holds no store yet.
///
/// Crash order, for files: the store is made under another name and takes its
/// own only when it is whole and flushed, so a file of that name is never
/// formatted again.
fn mkfs(options: &OsdOptions, size: u64, fsid: Uuid, osd: OsdId) -> Result<()> {
    let is_block = fs::metadata(&options.device).is_ok_and(|m| m.file_type().is_block_device());
    if !is_block && options.device.exists() {
        return Ok(());
    }
    let path = if is_block { options.device.clone() } else { fresh_name(&options.device) };
    if !is_block {
        let _ = fs::remove_file(&path);
    }
    let disk =
        open_disk(&path, DiskOptions { create_len: (!is_block).then_some(size), ..DiskOptions::default() })?;
    let identity = Identity { fsid, osd, uuid: identity::new_uuid()? };
    let engine = Engine::format(disk.info(), identity, store::Options::default());
    let mut job = StoreJob::new(engine);
    let mut reactor = ReactorConfig::new(backend(options.daemon.backend));
    reactor.disk = Some(disk);
    uring::run(reactor, &mut job)?;
    let exists = matches!(job.store.open_error(), Some(store::OpenError::AlreadyAStore { .. }));
    match job.error {
        // A block device that `--mkfs-size` was given for before.
        Some(_) if is_block && exists => Ok(()),
        Some(reason) => {
            if !is_block {
                let _ = fs::remove_file(&path);
            }
            bail!("cannot format {}: {reason}", options.device.display())
        }
        None if is_block => Ok(()),
        None => {
            fs::rename(&path, &options.device)?;
            let folder =
                options.device.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::File::open(folder)?.sync_all()?;
            info!(device = %options.device.display(), "formatted");
            Ok(())
        }
    }
}

fn fresh_name(device: &Path) -> PathBuf {
    let mut name = device.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

fn open_disk(path: &Path, options: DiskOptions) -> Result<Disk> {
    Disk::open(path, options).with_context(|| format!("cannot open {}", path.display()))
}

/// The first free port of Ceph's range.
fn listen(options: &OsdOptions) -> Result<TcpListener> {
    for port in PORTS {
        // A quick look first: `uring::listen` waits for a port that is only just being left.
        let addr = SocketAddr::new(options.listen, port);
        if TcpListener::bind(addr).is_ok()
            && let Ok(listener) = uring::listen(addr)
        {
            return Ok(listener);
        }
    }
    bail!("no free port on {} between {} and {}", options.listen, PORTS.start, PORTS.end)
}

fn metadata(options: &OsdOptions, size: u64) -> BTreeMap<String, String> {
    let first_line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let field = |text: String, key: &str| {
        text.lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split([':', '=']).nth(1))
            .map(|v| v.trim().trim_matches('"').to_string())
            .unwrap_or_default()
    };
    let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let memory = field(fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal");
    BTreeMap::from(
        [
            ("hostname", first_line("/proc/sys/kernel/hostname")),
            ("arch", std::env::consts::ARCH.to_string()),
            ("kernel_version", first_line("/proc/sys/kernel/osrelease")),
            ("kernel_description", first_line("/proc/sys/kernel/version")),
            ("os", "Linux".into()),
            ("distro", field(os.clone(), "ID=")),
            ("distro_description", field(os.clone(), "PRETTY_NAME=")),
            ("distro_version", field(os, "VERSION_ID=")),
            ("cpu", field(fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), "model name")),
            ("mem_total_kb", memory.trim_end_matches(" kB").to_string()),
            ("mem_swap_kb", "0".into()),
            (
                "ceph_version",
                format!(
                    "ceph version {CEPH_VERSION} (loligo {}) pacific (stable)",
                    env!("CARGO_PKG_VERSION")
                ),
            ),
            ("ceph_version_short", CEPH_VERSION.into()),
            ("ceph_release", "pacific".into()),
            ("osd_objectstore", "loligo".into()),
            ("osd_data", options.device.display().to_string()),
            ("bluestore_bdev_size", size.to_string()),
            ("rotational", "0".into()),
            ("journal_rotational", "0".into()),
            ("default_device_class", "ssd".into()),
        ]
        .map(|(k, v)| (k.to_string(), v)),
    )
}
