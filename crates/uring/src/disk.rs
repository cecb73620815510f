//! The node's one device: a regular file or a block device.

#![allow(unsafe_code)]

use crate::disk_facts::{self, DiskFacts, Finding};
use crate::sys::{self, check};
use env::DiskInfo;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A regular file's block: the file system's own, so that no transfer is a
/// read-modify-write inside it.
const FILE_BLOCK_LEN: u32 = 4096;

#[derive(Clone, Copy, Debug, Default)]
pub struct DiskOptions {
    /// Creates a missing or empty regular file with this length. The file is
    /// sparse unless `preallocate` is set.
    /// Units: bytes, a multiple of 4096.
    pub create_len: Option<u64>,
    /// Reserves a created file's space at once, so that a full file system
    /// shows when the device is created and not under a write.
    pub preallocate: bool,
    /// Nothing can be written; others may read at the same time.
    pub read_only: bool,
}

/// An opened device, locked against every other process that could write.
#[derive(Debug)]
pub struct Disk {
    file: File,
    info: DiskInfo,
    facts: DiskFacts,
    /// A block device without a volatile cache keeps what it has completed.
    flush_is_free: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DiskOpenError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{path}: no permission; run this as the user of the OSDs, or as root")]
    Denied { path: PathBuf },
    #[error("{path}: in use by another process; is its OSD running?")]
    InUse { path: PathBuf },
    #[error("{path}: the block device is mounted, part of another device, or in use by another process")]
    Claimed { path: PathBuf },
    #[error("{path}: a directory; a store is a regular file or a block device")]
    Directory { path: PathBuf },
    #[error("{path}: neither a regular file nor a block device")]
    WrongKind { path: PathBuf },
    #[error("{path}: does not exist, and no size to create it with was given")]
    Missing { path: PathBuf },
    #[error("{path}: {len_bytes} bytes is not a usable length; need a multiple of {block_len}")]
    BadLength { path: PathBuf, len_bytes: u64, block_len: u32 },
}

impl Disk {
    /// Opens, and when asked creates, the device at `path`.
    ///
    /// Uses direct I/O where the file system takes it; else says so in the log
    /// and goes through the page cache, where `Flush` still means durable.
    ///
    /// Errors: see [`DiskOpenError`]; an existing file's length is never changed.
    pub fn open(path: &Path, options: DiskOptions) -> Result<Disk, DiskOpenError> {
        let fail = |source| failure(path, source);
        check_create_len(path, options)?;
        let (file, direct) = open_direct_or_buffered(path, options)?;
        let exclusive = if options.read_only { libc::LOCK_SH } else { libc::LOCK_EX };
        lock(&file, exclusive).map_err(|error| match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => DiskOpenError::InUse { path: path.to_owned() },
            _ => fail(error),
        })?;
        let metadata = file.metadata().map_err(fail)?;
        let kind = metadata.file_type();
        let (facts, block_len) = if kind.is_block_device() {
            let facts = disk_facts::of_block_device(&file, metadata.rdev(), direct).map_err(fail)?;
            (facts, facts.logical_block_len)
        } else if kind.is_file() {
            if metadata.len() == 0 && !options.read_only {
                create_content(path, &file, options)?;
            }
            (disk_facts::of_file(&file, direct, FILE_BLOCK_LEN).map_err(fail)?, FILE_BLOCK_LEN)
        } else {
            return Err(DiskOpenError::WrongKind { path: path.to_owned() });
        };
        let info =
            DiskInfo { len_bytes: facts.len_bytes, block_len, volatile_cache: facts.volatile_cache.yes };
        let usable = info.len_bytes - info.len_bytes % u64::from(info.block_len);
        if usable == 0 || (kind.is_file() && usable != info.len_bytes) {
            return Err(DiskOpenError::BadLength {
                path: path.to_owned(),
                len_bytes: info.len_bytes,
                block_len: info.block_len,
            });
        }
        let flush_is_free = kind.is_block_device() && direct.yes && !info.volatile_cache;
        Ok(Disk { file, info, facts, flush_is_free })
    }

    pub fn info(&self) -> DiskInfo {
        self.info
    }

    pub fn facts(&self) -> &DiskFacts {
        &self.facts
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.facts.direct.yes
    }

    pub(crate) fn flush_is_free(&self) -> bool {
        self.flush_is_free
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn failure(path: &Path, source: io::Error) -> DiskOpenError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => DiskOpenError::Denied { path },
        _ => DiskOpenError::Io { path, source },
    }
}

fn open_direct_or_buffered(path: &Path, options: DiskOptions) -> Result<(File, Finding), DiskOpenError> {
    let fail = |source| failure(path, source);
    let mut flags = libc::O_CLOEXEC;
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_block_device() => {
            // The kernel refuses a device that is mounted or claimed.
            flags |= libc::O_EXCL;
        }
        Ok(metadata) if metadata.is_file() => {}
        Ok(metadata) if metadata.is_dir() => {
            return Err(DiskOpenError::Directory { path: path.to_owned() });
        }
        // Opening a pipe or a terminal could block or do something.
        Ok(_) => {
            return Err(DiskOpenError::WrongKind { path: path.to_owned() });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if options.create_len.is_none() {
                return Err(DiskOpenError::Missing { path: path.to_owned() });
            }
        }
        Err(error) => return Err(fail(error)),
    }
    let open = |flags: i32| {
        OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create_len.is_some() && !options.read_only && flags & libc::O_EXCL == 0)
            .truncate(false)
            .mode(0o600)
            .custom_flags(flags)
            .open(path)
    };
    match sys::outwait_predecessor(libc::EBUSY, || open(flags | libc::O_DIRECT)) {
        Ok(file) => Ok((file, Finding { yes: true, reason: "the device takes it" })),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            tracing::warn!(path = %path.display(), "no direct I/O here: using the page cache");
            let reason = "the file system has no direct I/O: through the page cache";
            Ok((open(flags).map_err(fail)?, Finding { yes: false, reason }))
        }
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            Err(DiskOpenError::Claimed { path: path.to_owned() })
        }
        Err(error) => Err(fail(error)),
    }
}

/// Before anything is created, so that a refusal leaves nothing behind.
fn check_create_len(path: &Path, options: DiskOptions) -> Result<(), DiskOpenError> {
    match options.create_len {
        Some(len_bytes) if len_bytes == 0 || !len_bytes.is_multiple_of(u64::from(FILE_BLOCK_LEN)) => {
            let path = path.to_owned();
            Err(DiskOpenError::BadLength { path, len_bytes, block_len: FILE_BLOCK_LEN })
        }
        _ => Ok(()),
    }
}

fn create_content(path: &Path, file: &File, options: DiskOptions) -> Result<(), DiskOpenError> {
    let fail = |source| DiskOpenError::Io { path: path.to_owned(), source };
    let Some(len_bytes) = options.create_len else {
        return Ok(()); // an empty file: refused by the length check
    };
    if options.preallocate {
        let len =
            libc::off_t::try_from(len_bytes).map_err(|_| fail(io::Error::from_raw_os_error(libc::EFBIG)))?;
        // SAFETY: no pointers.
        check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) }).map_err(fail)?;
    } else {
        file.set_len(len_bytes).map_err(fail)?;
    }
    // The length and the name must survive a power cut, or the first flush
    // after it promises data in a file that is gone.
    file.sync_all().map_err(fail)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all()).map_err(fail)
}

/// Released with the descriptor, so a killed process leaves no lock behind.
fn lock(file: &File, kind: libc::c_int) -> io::Result<()> {
    sys::outwait_predecessor(libc::EWOULDBLOCK, || {
        // SAFETY: no pointers.
        check(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) }).map(|_| ())
    })
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A ring may hold the file open a little longer than we do.
        // SAFETY: no pointers. Failure leaves what closing does anyway.
        unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk_facts::DiskKind;

    fn sized(len: u64) -> DiskOptions {
        DiskOptions { create_len: Some(len), ..DiskOptions::default() }
    }

    #[test]
    fn a_file_is_created_once_and_then_keeps_its_length() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk");
        let disk = Disk::open(&path, sized(1 << 20)).expect("created");
        assert_eq!(disk.info().len_bytes, 1 << 20);
        assert!(disk.info().volatile_cache);
        drop(disk);
        let disk = Disk::open(&path, sized(1 << 30)).expect("opened");
        assert_eq!(disk.info().len_bytes, 1 << 20);
    }

    #[test]
    fn a_disk_is_opened_once_at_a_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk");
        let first = Disk::open(&path, sized(1 << 20)).expect("created");
        let second = Disk::open(&path, DiskOptions::default());
        assert!(matches!(second, Err(DiskOpenError::InUse { .. })), "{second:?}");
        drop(first);
        Disk::open(&path, DiskOptions::default()).expect("the lock goes with the disk");
    }

    #[test]
    fn unusable_paths_are_refused_with_their_reason() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let missing = Disk::open(&folder.path().join("none"), DiskOptions::default());
        assert!(matches!(missing, Err(DiskOpenError::Missing { .. })));
        let odd = Disk::open(&folder.path().join("odd"), sized(1000));
        assert!(matches!(odd, Err(DiskOpenError::BadLength { len_bytes: 1000, .. })));
        assert!(!folder.path().join("odd").exists(), "a refusal leaves nothing behind");
        let kind = Disk::open(Path::new("/dev/null"), DiskOptions::default());
        assert!(matches!(kind, Err(DiskOpenError::WrongKind { .. })));
        assert!(matches!(
            Disk::open(folder.path(), DiskOptions::default()),
            Err(DiskOpenError::Directory { .. })
        ));
    }

    #[test]
    fn readers_share_a_disk_and_exclude_a_writer() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk");
        drop(Disk::open(&path, sized(1 << 20)).expect("created"));
        let reading = DiskOptions { read_only: true, ..DiskOptions::default() };
        let first = Disk::open(&path, reading).expect("opened");
        let _second = Disk::open(&path, reading).expect("two may read");
        let writer = Disk::open(&path, DiskOptions::default());
        assert!(matches!(writer, Err(DiskOpenError::InUse { .. })), "{writer:?}");
        assert_eq!(first.facts().kind, DiskKind::File);
        assert_eq!(first.facts().physical_block_len, 4096);
    }

    #[test]
    fn asking_for_holes_changes_nothing() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a temporary folder");
        let path = folder.path().join("disk");
        std::fs::write(&path, vec![7; 8192]).expect("written");
        let disk = Disk::open(&path, DiskOptions::default()).expect("opened");
        assert_eq!(disk.info().len_bytes, 8192);
        assert_eq!(std::fs::read(&path).expect("read"), vec![7; 8192]);
    }
}
