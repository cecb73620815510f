//! What the class stores and exchanges, with its encodings.
//!
//! Strings are bytes: Ceph does not insist on UTF-8. Enumerations travel as
//! numbers, and numbers without a meaning are kept, as Ceph keeps them.
//!
//! Source: Ceph 16.2 `src/cls/rbd/cls_rbd.h`, `src/cls/rbd/cls_rbd_types.{h,cc}`.

mod group;
mod migration;
pub mod mirror;
mod parent;
mod snapshot;
mod trash;

pub use group::{GroupImageSpec, GroupImageStatus, GroupSnapshot, GroupSpec};
pub use migration::MigrationSpec;
pub use parent::{ChildImageSpec, Parent, ParentImageSpec};
pub use snapshot::{MirrorSnapshot, Protection, Snapshot, SnapshotInfo, SnapshotKind, SnapshotNamespace};
pub use trash::TrashImageSpec;

/// `CEPH_NOSNAP`: the image itself, not one of its snapshots.
pub const HEAD: u64 = u64::MAX - 1;
/// `CEPH_MAXSNAP`.
pub const SNAP_ID_MAX: u64 = u64::MAX - 2;
/// No pool.
pub const NO_POOL: i64 = -1;

/// Gives a struct whose versions only ever added fields at the end its encoding:
/// `Type, version, compat: [fields] [later fields], since`. Needs `Default`.
macro_rules! fields {
    ($type:ident, $version:literal, $compat:literal: [$($field:ident),*]) => {
        $crate::rbd::types::fields!($type, $version, $compat: [$($field),*] [], 255);
    };
    ($type:ident, $version:literal, $compat:literal: [$($field:ident),*] [$($later:ident),*], $since:literal) => {
        impl wire::Encode for $type {
            fn encode(&self, e: &mut wire::Encoder) {
                e.versioned($version, $compat, |e| {
                    $(e.put(&self.$field);)*
                    $(e.put(&self.$later);)*
                });
            }
        }

        impl wire::Decode for $type {
            const MIN_LEN: usize = 6;
            fn decode(d: &mut wire::Decoder) -> Result<$type, wire::DecodeError> {
                d.versioned(stringify!($type), $version, |d, version| {
                    let mut value = $type::default();
                    $(value.$field = d.get()?;)*
                    if version >= $since {
                        $(value.$later = d.get()?;)*
                    }
                    Ok(value)
                })
            }
        }
    };
}
use fields;
