//! What the kernel says about a device, for the choices made at opening and for people.
//!
//! Must not know what is stored there.
//!
//! Sources: ioctl requests of linux/fs.h; /sys/class/block/*/queue
//! (Documentation/ABI/stable/sysfs-block); statx(2); fallocate(2).

#![allow(unsafe_code)]

use crate::sys::check;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskKind {
    File,
    BlockDevice,
}

impl DiskKind {
    pub fn name(self) -> &'static str {
        match self {
            DiskKind::File => "file",
            DiskKind::BlockDevice => "block device",
        }
    }
}

/// Yes or no, and how we know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    pub yes: bool,
    pub reason: &'static str,
}

const fn finding(yes: bool, reason: &'static str) -> Finding {
    Finding { yes, reason }
}

/// Units: bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskFacts {
    pub kind: DiskKind,
    /// A file's own end, for files.
    pub len_bytes: u64,
    /// The device's unit of addressing; for a file the smallest direct transfer.
    pub logical_block_len: u32,
    /// What the device writes without reading around it; for a file what the
    /// file system allocates at once.
    pub physical_block_len: u32,
    /// Whether transfers bypass the page cache.
    pub direct: Finding,
    /// Whether a completed write can be lost by a power cut before a flush.
    pub volatile_cache: Finding,
    /// Whether the device makes a single write durable by itself; else the kernel
    /// flushes after a durable write.
    pub fua: bool,
    /// Whether space that is no longer needed can be given back.
    pub discard: Finding,
    /// Whether the first write to a place may have to find room for it.
    pub holes: Finding,
}

const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKPBSZGET: libc::Ioctl = 0x127b;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;

/// Errors: those of the device, and logical blocks that are neither 512 nor 4096 bytes.
pub(crate) fn of_block_device(file: &File, device: u64, direct: Finding) -> io::Result<DiskFacts> {
    let mut len_bytes = 0u64;
    let mut logical: libc::c_int = 0;
    let mut physical: libc::c_uint = 0;
    // SAFETY: each request writes one value of the type given to it.
    unsafe {
        check(libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut len_bytes))?;
        check(libc::ioctl(file.as_raw_fd(), BLKSSZGET, &mut logical))?;
        check(libc::ioctl(file.as_raw_fd(), BLKPBSZGET, &mut physical))?;
    }
    let logical_block_len = u32::try_from(logical).unwrap_or(0);
    if !matches!(logical_block_len, 512 | 4096) {
        return Err(io::Error::other(format!("logical blocks of {logical} bytes")));
    }
    let queue = Queue::of(device);
    Ok(DiskFacts {
        kind: DiskKind::BlockDevice,
        len_bytes,
        logical_block_len,
        physical_block_len: physical.max(logical_block_len),
        direct,
        volatile_cache: volatile_cache(queue.text("write_cache").as_deref()),
        fua: queue.number("fua") == Some(1),
        discard: block_discard(queue.number("discard_max_bytes"), queue.number("write_zeroes_max_bytes")),
        holes: finding(false, "a block device"),
    })
}

pub(crate) fn of_file(file: &File, direct: Finding, block_len: u32) -> io::Result<DiskFacts> {
    Ok(DiskFacts {
        kind: DiskKind::File,
        len_bytes: file.metadata()?.len(),
        logical_block_len: direct_alignment(file).unwrap_or(block_len),
        physical_block_len: block_len,
        direct,
        volatile_cache: finding(
            true,
            "a file: which device is below is unknown, and the file system has state of its own to flush",
        ),
        fua: false,
        discard: punches_holes(file),
        holes: holes(file),
    })
}

/// The file system counts space that is reserved and was never written as holes, too: as they
/// do, it makes the first write there wait for its journal.
fn holes(file: &File) -> Finding {
    let Ok(metadata) = file.metadata() else { return finding(true, "the file cannot be looked at") };
    // SAFETY: no pointers. Nobody uses the descriptor's position.
    let first = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    match u64::try_from(first) {
        // Every file ends with a hole.
        Ok(first) if first >= metadata.len() => finding(false, "the file was written as a whole"),
        Ok(_) => finding(true, "the file has holes"),
        Err(_) => finding(true, "the file system does not say"),
    }
}

/// When the kernel says nothing, assume the worst.
fn volatile_cache(write_cache: Option<&str>) -> Finding {
    match write_cache {
        Some("write through") => finding(false, "the kernel says: write through"),
        Some("write back") => finding(true, "the kernel says: write back"),
        _ => finding(true, "the kernel does not say"),
    }
}

/// Through fallocate(2), the one call that both backends have: the kernel turns
/// it into "write zeroes, and unmap where you can", and refuses it where the
/// device cannot write zeroes by itself.
fn block_discard(discard_max: Option<u64>, write_zeroes_max: Option<u64>) -> Finding {
    let is_some = |limit: Option<u64>| limit.is_some_and(|bytes| bytes > 0);
    match (is_some(discard_max), is_some(write_zeroes_max)) {
        (true, true) => finding(true, "the device discards and zeroes ranges"),
        (true, false) => finding(false, "the device discards, but cannot zero a range by itself"),
        (false, _) => finding(false, "the device does not discard"),
    }
}

/// Asks beyond the file's end, where there is nothing to lose.
fn punches_holes(file: &File) -> Finding {
    let Ok(metadata) = file.metadata() else { return finding(false, "the file cannot be looked at") };
    let end = metadata.len().next_multiple_of(4096);
    // Our own descriptor may be for reading only.
    let itself = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let Ok(writable) = OpenOptions::new().write(true).open(itself) else {
        return finding(false, "unknown: the file is not writable");
    };
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no pointers.
    match check(unsafe { libc::fallocate(writable.as_raw_fd(), mode, end as libc::off_t, 4096) }) {
        Ok(_) => finding(true, "the file system punches holes"),
        Err(_) => finding(false, "the file system does not punch holes"),
    }
}

/// The file system's alignment for direct I/O; `None` where it does not say.
fn direct_alignment(file: &File) -> Option<u32> {
    // SAFETY: all zero is a valid statx, and the empty path with AT_EMPTY_PATH
    // means the descriptor itself.
    let answer = unsafe {
        let mut answer: libc::statx = zeroed();
        let path = c"".as_ptr();
        let mask = libc::STATX_DIOALIGN;
        check(libc::statx(file.as_raw_fd(), path, libc::AT_EMPTY_PATH, mask, &mut answer)).ok()?;
        answer
    };
    const { assert!(size_of::<libc::statx>() == 256) };
    let known = answer.stx_mask & libc::STATX_DIOALIGN != 0;
    (known && answer.stx_dio_offset_align > 0).then_some(answer.stx_dio_offset_align)
}

/// A block device's folder of settings.
struct Queue(Option<PathBuf>);

impl Queue {
    fn of(device: u64) -> Queue {
        let (major, minor) = (libc::major(device), libc::minor(device));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        // A partition has no queue of its own: it is a folder inside its disk's.
        let places = [folder.join("queue"), folder.join("../queue")];
        Queue(places.into_iter().find(|place| Path::exists(place)))
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.0.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_string())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_word_means_no_volatile_cache() {
        assert!(!volatile_cache(Some("write through")).yes);
        for text in [Some("write back"), Some("none"), Some(""), None] {
            assert!(volatile_cache(text).yes, "{text:?}");
        }
    }

    #[test]
    fn discard_needs_a_device_that_zeroes_ranges() {
        assert!(block_discard(Some(1 << 30), Some(1 << 20)).yes);
        for (discard, zeroes) in [(Some(1 << 30), Some(0)), (Some(0), Some(1)), (None, None)] {
            assert!(!block_discard(discard, zeroes).yes, "{discard:?} {zeroes:?}");
        }
    }
}
