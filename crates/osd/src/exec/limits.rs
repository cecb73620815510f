//! Bounds on what a client may ask of one object, each with the option of
//! Ceph's that it equals (defaults of 16.2).

/// `osd_max_object_size`. Offsets and lengths below it cannot overflow.
pub const OBJECT_SIZE_MAX: u64 = 128 << 20;
/// `osd_max_object_name_len`; a locator key has the same bound.
pub const NAME_LEN_MAX: usize = 2048;
/// `osd_max_object_namespace_len`.
pub const NAMESPACE_LEN_MAX: usize = 256;
/// `osd_max_write_size`: data of one message that writes.
pub const WRITE_LEN_MAX: u64 = 90 << 20;
/// `osd_max_attr_name_len`.
pub const XATTR_NAME_LEN_MAX: usize = 100;
/// Ceph sets none (`osd_max_attr_size` is 0); this is what our store takes.
pub const XATTR_VALUE_LEN_MAX: usize = store::limits::XATTR_LEN_MAX as usize;
/// Ceph has none; what our store takes.
pub const OMAP_KEY_LEN_MAX: usize = store::limits::OMAP_KEY_LEN_MAX as usize;
pub const OMAP_VALUE_LEN_MAX: usize = store::limits::OMAP_VALUE_LEN_MAX as usize;
/// `osd_max_omap_entries_per_request`.
pub const OMAP_ENTRIES_MAX: u64 = 1024;
/// Like `osd_max_omap_bytes_per_request`, but 64 MiB instead of 1 GiB: a reply is
/// built in memory. Clients see the flag that says there is more. Counted are keys and
/// values, also where only keys are asked for, since the store reads both.
pub const OMAP_BYTES_MAX: usize = 64 << 20;
/// `osd_max_write_op_reply_len`: output of one operation of a write with RETURNVEC.
pub const WRITE_REPLY_LEN_MAX: usize = 64;
/// Watches of one object. Ceph has no bound; ours keeps the object's record well
/// within one xattr.
pub const WATCHERS_MAX: usize = 8192;
/// What a notification carries, and what a watcher answers. Ceph has no bounds;
/// an OSD of ours holds these in memory until everybody has answered.
pub const NOTIFY_LEN_MAX: usize = 1 << 20;
pub const NOTIFY_REPLY_LEN_MAX: usize = 64 << 10;
/// `osd_max_pgls`.
pub const PG_LIST_MAX: u64 = 1024;
/// Clones of one object, and snapshots of one clone; ours, so that the record of them
/// stays one xattr. (Ceph: `mds_max_snaps_per_dir` is 100, rbd recommends far fewer.)
pub const CLONES_MAX: usize = 2048;
pub const SNAPS_MAX: usize = 4096;

const _: () = assert!(OBJECT_SIZE_MAX <= store::limits::OBJECT_LEN_MAX);
const _: () = assert!(WATCHERS_MAX * 100 < store::limits::XATTR_LEN_MAX as usize);
const _: () = assert!(XATTR_NAME_LEN_MAX * 2 < store::limits::XATTR_NAME_LEN_MAX as usize);
const _: () = assert!((2 * NAME_LEN_MAX + NAMESPACE_LEN_MAX) as u64 <= store::limits::OBJECT_NAME_LEN_MAX);

/// Object data that one message may read or copy within itself; ours. Two of the
/// largest objects, so that no single operation meets it.
pub const READ_LEN_TOTAL_MAX: u64 = 2 * OBJECT_SIZE_MAX;
/// Output of one message; ours.
pub const REPLY_LEN_MAX: usize = READ_LEN_TOTAL_MAX as usize + (64 << 20);
