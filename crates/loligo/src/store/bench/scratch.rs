//! Where a benchmark's store is made, and that nothing of value is lost by it.

use crate::identity;
use crate::progress::PhaseBar;
use crate::store::names;
use anyhow::{Context, Result, bail};
use base::{AlignedBuf, Random};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of one write while a file is written out.
const PIECE_LEN: usize = 8 << 20;

pub struct Scratch {
    pub path: PathBuf,
    remove: bool,
}

impl Scratch {
    /// Errors: something is at `path` and `overwrite` was not given.
    pub fn new(path: Option<&Path>, overwrite: bool) -> Result<Scratch> {
        let Some(path) = path else {
            let name = format!("loligo-store-bench-{:08x}", identity::random_u64()? as u32);
            return Ok(Scratch { path: std::env::temp_dir().join(name), remove: true });
        };
        let found = fs::metadata(path);
        let is_new = match &found {
            Ok(metadata) => metadata.is_file() && metadata.len() == 0,
            Err(_) => true,
        };
        if !is_new && !overwrite {
            bail!("{}: there is something already; --overwrite destroys it", path.display());
        }
        Ok(Scratch { path: path.to_owned(), remove: false })
    }

    pub fn is_block_device(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|m| m.file_type().is_block_device())
    }

    /// Gives a new file its length, and unless it is to be sparse, content: the
    /// file system then has found room for all of it, as on a device.
    pub fn make_file(&self, len: u64, sparse: bool, random: &mut Random) -> Result<()> {
        let failed = || format!("cannot make {}", self.path.display());
        let open = |flags: i32| {
            OpenOptions::new()
                .create(true)
                .write(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(flags)
                .open(&self.path)
        };
        let mut file: File =
            if sparse { open(0) } else { open(libc::O_DIRECT).or_else(|_| open(0)) }.with_context(failed)?;
        file.set_len(len).with_context(failed)?;
        if !sparse {
            let mut piece = AlignedBuf::zeroed(PIECE_LEN);
            for word in piece.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next_u64().to_le_bytes());
            }
            let bar = PhaseBar::new("writing the file once");
            let mut done = 0;
            while done < len {
                let part = (len - done).min(PIECE_LEN as u64);
                file.write_all(&piece[..part as usize]).with_context(failed)?;
                done += part;
                bar.set(done as f64 / len as f64, names::size(done));
            }
        }
        file.sync_all().with_context(failed)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.remove {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_overwritten_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "content").unwrap();
        assert!(Scratch::new(Some(&path), false).is_err());
        drop(Scratch::new(Some(&path), true).unwrap());
        assert!(path.exists(), "a path that was given is kept");
        assert!(Scratch::new(Some(&folder.path().join("new")), false).is_ok());
    }

    #[test]
    fn a_file_of_our_own_is_removed() {
        let scratch = Scratch::new(None, false).unwrap();
        scratch.make_file(1 << 20, true, &mut Random::from_seed(1)).unwrap();
        let path = scratch.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        drop(scratch);
        assert!(!path.exists());
    }
}
