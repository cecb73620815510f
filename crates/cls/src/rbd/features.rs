//! Feature bits of images.
//!
//! Source: Ceph 16.2 `src/include/rbd/features.h`.

pub const LAYERING: u64 = 1 << 0;
pub const STRIPINGV2: u64 = 1 << 1;
pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
pub const OBJECT_MAP: u64 = 1 << 3;
pub const FAST_DIFF: u64 = 1 << 4;
pub const DEEP_FLATTEN: u64 = 1 << 5;
pub const JOURNALING: u64 = 1 << 6;
pub const DATA_POOL: u64 = 1 << 7;
pub const OPERATIONS: u64 = 1 << 8;
pub const MIGRATING: u64 = 1 << 9;
pub const NON_PRIMARY: u64 = 1 << 10;
pub const DIRTY_CACHE: u64 = 1 << 11;

pub const ALL: u64 = (1 << 12) - 1;
/// A client that does not know one of these can do nothing with the image,
pub const INCOMPATIBLE: u64 = LAYERING | STRIPINGV2 | DATA_POOL | DIRTY_CACHE;
/// and one that does not know one of these can only read it.
pub const WRITE_INCOMPATIBLE: u64 = ALL;
/// May be switched on and off.
pub const MUTABLE: u64 = EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
/// May be switched off.
pub const DISABLE_ONLY: u64 = DEEP_FLATTEN;
/// Only ever changed by the class itself.
pub const INTERNAL: u64 = OPERATIONS | MIGRATING;

/// Bits of `op_features`: what was done to an image that clients must know of.
pub mod operation {
    pub const CLONE_PARENT: u64 = 1 << 0;
    pub const CLONE_CHILD: u64 = 1 << 1;
    pub const GROUP: u64 = 1 << 2;
    pub const SNAP_TRASH: u64 = 1 << 3;
    pub const ALL: u64 = (1 << 4) - 1;
}
