//! The directory of a cluster on one machine, as `up` lays it out:
//!
//! ```text
//! DIR/cluster.json      what `up` was told; read again at the next `up`
//! DIR/ceph.conf         for stock clients
//! DIR/keyring           client.admin's key
//! DIR/mon.a/            the monitor's map store
//! DIR/osd.0/block       an OSD's device, a sparse file
//! DIR/run/osd.0.pid     locked by the running daemon
//! DIR/log/osd.0.log
//! ```

use crate::options::{Auth, UpOptions};
use crate::{identity, process};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Grows when the layout changes in a way that older programs must not touch.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct ClusterSettings {
    pub format: u32,
    pub fsid: String,
    pub osds: u32,
    pub replicas: u8,
    /// Bytes of each OSD's file when it is made.
    pub osd_size: u64,
    pub port: u16,
}

pub struct ClusterDir {
    pub root: PathBuf,
    pub settings: ClusterSettings,
}

impl ClusterDir {
    /// Opens an existing cluster, or lays out a new one.
    pub fn open_or_create(options: &UpOptions) -> Result<ClusterDir> {
        if options.auth == Auth::Cephx {
            bail!("--auth cephx is not implemented yet; use --auth none");
        }
        if options.mons != 1 {
            bail!("--mons {}: only one monitor is implemented yet", options.mons);
        }
        fs::create_dir_all(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
        let root = fs::canonicalize(&options.dir)?;
        if root.join("cluster.json").exists() {
            let mut dir = ClusterDir::open(&root)?;
            dir.grow(options.osds.unwrap_or(0))?;
            return Ok(dir);
        }
        if fs::read_dir(&root)?.next().is_some() {
            bail!(
                "{} is not empty and holds no Loligo cluster; give an empty or new directory",
                root.display()
            );
        }
        let settings = ClusterSettings {
            format: FORMAT,
            fsid: identity::new_uuid()?.to_string(),
            osds: options.osds.unwrap_or(3),
            replicas: options.replicas,
            osd_size: options.osd_size,
            port: options.port,
        };
        let dir = ClusterDir { root, settings };
        dir.lay_out()?;
        Ok(dir)
    }

    pub fn open(root: &Path) -> Result<ClusterDir> {
        let path = root.join("cluster.json");
        let text = fs::read_to_string(&path)
            .with_context(|| format!("{} holds no Loligo cluster (no cluster.json)", root.display()))?;
        let settings: ClusterSettings =
            serde_json::from_str(&text).with_context(|| format!("{} is damaged", path.display()))?;
        if settings.format > FORMAT {
            bail!(
                "{} was made by a newer Loligo (layout {}, this one knows {FORMAT}); use that version",
                root.display(),
                settings.format
            );
        }
        Ok(ClusterDir { root: fs::canonicalize(root)?, settings })
    }

    /// More OSDs than before join; fewer is not done behind the user's back.
    fn grow(&mut self, osds: u32) -> Result<()> {
        if osds > self.settings.osds {
            self.settings.osds = osds;
            self.write_settings()?;
        }
        Ok(())
    }

    fn lay_out(&self) -> Result<()> {
        for sub in ["run", "log", "mon.a"] {
            fs::create_dir_all(self.root.join(sub))?;
        }
        fs::write(self.root.join("ceph.conf"), self.ceph_conf())?;
        let keyring = format!(
            "[client.admin]\n\tkey = {}\n\tcaps mds = \"allow *\"\n\tcaps mgr = \"allow *\"\n\tcaps mon = \"allow *\"\n\tcaps osd = \"allow *\"\n",
            identity::new_key()?
        );
        process::write_private(&self.root.join("keyring"), &keyring)?;
        // Last: its presence says that the rest is there.
        self.write_settings()
    }

    fn write_settings(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(&self.settings)? + "\n";
        let path = self.root.join("cluster.json");
        let fresh = self.root.join("cluster.json.new");
        fs::write(&fresh, text)?;
        fs::rename(&fresh, &path)?;
        Ok(())
    }

    fn ceph_conf(&self) -> String {
        format!(
            "# Written by `loligo up`; for stock Ceph clients: CEPH_CONF={root}/ceph.conf\n\
             [global]\n\
             fsid = {fsid}\n\
             mon host = [v2:{mon}]\n\
             auth cluster required = none\n\
             auth service required = none\n\
             auth client required = none\n\
             keyring = {root}/keyring\n\
             ms bind ipv6 = false\n\
             [client]\n\
             log file =\n\
             admin socket =\n",
            root = self.root.display(),
            fsid = self.settings.fsid,
            mon = self.mon_addr(),
        )
    }

    pub fn mon_addr(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.settings.port))
    }

    pub fn mon_data(&self) -> PathBuf {
        self.root.join("mon.a")
    }

    pub fn osd_device(&self, id: u32) -> PathBuf {
        self.root.join(format!("osd.{id}")).join("block")
    }

    pub fn pid_file(&self, daemon: &str) -> PathBuf {
        self.root.join("run").join(format!("{daemon}.pid"))
    }

    pub fn log_file(&self, daemon: &str) -> PathBuf {
        self.root.join("log").join(format!("{daemon}.log"))
    }

    /// `osd.0`, …, then the monitor: the order in which they are stopped.
    pub fn daemons(&self) -> Vec<String> {
        let mut names: Vec<String> = (0..self.settings.osds).map(|id| format!("osd.{id}")).collect();
        names.push("mon.a".into());
        names
    }
}
