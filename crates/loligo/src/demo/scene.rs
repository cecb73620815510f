//! The demo's cluster and its directory, which end with this value.

use crate::identity;
use crate::local_cluster::LocalCluster;
use crate::options::{Command, DemoOptions, Options};
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const OSDS: u32 = 3;
/// Of each OSD's file, which is sparse.
const OSD_SIZE: &str = "8G";

pub struct Scene {
    folder: Folder,
    pub cluster: LocalCluster,
}

impl Scene {
    /// Lays out the cluster. Starts nothing.
    pub fn set_up(options: &DemoOptions) -> Result<Scene> {
        let folder = Folder::make(options)?;
        let words: [OsString; 9] = [
            "loligo".into(),
            "up".into(),
            folder.path.clone().into(),
            format!("--osds={OSDS}").into(),
            format!("--replicas={}", options.replicas).into(),
            format!("--osd-size={OSD_SIZE}").into(),
            format!("--port={}", free_port()?).into(),
            "--backend".into(),
            backend_name(options).into(),
        ];
        let Command::Up(up) = Options::try_parse_from(words)?.command else {
            unreachable!("the words of `up`");
        };
        Ok(Scene { cluster: LocalCluster::open(&up)?, folder })
    }

    pub fn path(&self) -> &Path {
        &self.folder.path
    }

    /// Leaves the cluster running, and its files where they are.
    pub fn keep(mut self) {
        self.folder.keep = true;
        self.cluster.leave_running();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Nobody wants the data, so there is nothing to flush. The folder goes
        // after them, as the last field to be dropped.
        self.cluster.kill_started();
    }
}

/// A directory that is removed at the end, with all that is in it.
struct Folder {
    path: PathBuf,
    /// One that was there before stays, empty as it was.
    was_there: bool,
    keep: bool,
}

impl Folder {
    fn make(options: &DemoOptions) -> Result<Folder> {
        let path = match &options.dir {
            Some(dir) => dir.clone(),
            None => std::env::temp_dir().join(format!("loligo-demo-{:08x}", identity::random_u64()? as u32)),
        };
        let was_there = path.exists();
        if was_there && fs::read_dir(&path)?.next().is_some() {
            bail!("{} is not empty; the demo takes a new or empty directory", path.display());
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        // Daemons have other working directories in mind than ours.
        let path = fs::canonicalize(path)?;
        Ok(Folder { path, was_there, keep: false })
    }

    fn remove(&self) -> std::io::Result<()> {
        if !self.was_there {
            return fs::remove_dir_all(&self.path);
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // A daemon killed this moment may have made a last file.
        let again = |_| {
            std::thread::sleep(Duration::from_millis(50));
            self.remove()
        };
        if let Err(error) = self.remove().or_else(again) {
            eprintln!("loligo: {} is left behind: {error}", self.path.display());
        }
    }
}

/// For the monitor. Another process may take it before the monitor does; that
/// is an error then, and the demo can be run again.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on 127.0.0.1")?;
    Ok(listener.local_addr()?.port())
}

fn backend_name(options: &DemoOptions) -> String {
    let value = clap::ValueEnum::to_possible_value(&options.backend);
    value.expect("no hidden values").get_name().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Backend;

    fn options(dir: PathBuf) -> DemoOptions {
        DemoOptions { dir: Some(dir), keep: false, quick: true, replicas: 3, backend: Backend::Auto }
    }

    #[test]
    fn folder_leaves_things_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        let scene = Scene::set_up(&options(new.clone())).unwrap();
        assert!(new.join("ceph.conf").exists());
        drop(scene);
        assert!(!new.exists());
        drop(Scene::set_up(&options(dir.path().into())).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        fs::write(dir.path().join("precious"), "").unwrap();
        assert!(Scene::set_up(&options(dir.path().into())).is_err());
        assert!(dir.path().join("precious").exists());
    }
}
