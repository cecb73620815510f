//! Bounds on what a transaction may carry. Callers above have tighter limits
//! of their own (`osd_max_object_size` and friends); these keep every encoded
//! record and every length computation within range.

/// Unit of allocation, of checksums and of hole tracking.
pub const BLOCK_LEN: u64 = 4096;

/// Largest object, in bytes. Offsets below it cannot overflow anything.
pub const OBJECT_LEN_MAX: u64 = 1 << 40;

/// Longest read, in bytes after cutting it at the object's end.
pub const READ_LEN_MAX: u64 = 512 << 20;

/// Object name, namespace and locator key together, in bytes.
pub const OBJECT_NAME_LEN_MAX: u64 = 16 << 10;

/// An xattr's name, in bytes.
pub const XATTR_NAME_LEN_MAX: u64 = 4 << 10;

/// An xattr's value, in bytes (Ceph: `osd_max_attr_size` has none, filesystems 64 KiB).
pub const XATTR_LEN_MAX: u64 = 1 << 20;

/// An omap key, in bytes.
pub const OMAP_KEY_LEN_MAX: u64 = 64 << 10;

/// An omap value or header, in bytes.
pub const OMAP_VALUE_LEN_MAX: u64 = 64 << 20;

/// Everything one transaction carries, in bytes: names, data, keys and values.
pub const TRANSACTION_LEN_MAX: u64 = 512 << 20;

const _: () = assert!(OMAP_VALUE_LEN_MAX < TRANSACTION_LEN_MAX);
const _: () = assert!(TRANSACTION_LEN_MAX < u32::MAX as u64);
