//! One OSD's object store: objects with data, xattrs and omap, changed by
//! atomic transactions, durable once committed.
//!
//! The rest of the OSD sees only [`ObjectStore`]. [`MemStore`] implements it
//! without a device, for PG tests and as the model the engine is compared with.

mod alloc;
pub mod api;
mod apply;
mod attrs;
mod batch;
mod blocks;
mod buffers;
mod check;
mod checkpoint;
mod chosen;
mod commit;
mod core;
mod dirty;
mod engine;
mod fsck;
mod gather;
mod index;
mod io;
mod keeping;
mod key_map;
mod kinds;
mod known;
mod lay;
pub mod limits;
mod log;
mod mem;
mod mend;
mod name;
mod needs;
mod omap_page;
mod ops;
mod page_group;
mod pager;
mod pairs;
mod pending;
mod pins;
mod place;
mod read_cache;
mod reads;
mod reclaim;
mod recovery;
mod short;
mod stalled;
mod superblock;
mod tree;
mod trim;
mod used;

pub use api::{
    CollId, FetchId, Mutation, ObjectId, ObjectStat, ObjectStore, StoreError, StoreEvent, StoreMemory,
    StoreStats, Transaction, TxnId, Writes, WritesByPart,
};
pub use engine::{Engine, EngineError, OpenError, Options, StoreInfo};
pub use fsck::{Fsck, FsckReport};
pub use mem::MemStore;
pub use omap_page::{OmapLimit, OmapPage};
pub use pairs::Pairs;
pub use pending::PendingStore;
pub use superblock::{DEVICE_LEN_MAX, DEVICE_LEN_MIN, Identity, VERSION as FORMAT_VERSION};
