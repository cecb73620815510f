//! Where the OSD's memory is, so far as somebody keeps count: `dump_mempools`.
//!
//! Source: Ceph `src/include/mempool.h` (the names), and the answer of a real OSD.

use super::Osd;
use base::{Json, MemoryUse};
use store::{ObjectStore, StoreMemory};

impl<S: ObjectStore> Osd<S> {
    /// Ceph's names where the parts mean the same; parts without a count are left out.
    pub fn mempools(&self) -> [(&'static str, MemoryUse); 6] {
        let StoreMemory { cache, objects, maps, buffers } = self.sh.store.memory();
        [
            ("bluestore_cache_data", cache),
            ("bluestore_cache_onode", objects),
            ("bluestore_cache_meta", maps),
            ("bluestore_writing", buffers),
            ("buffer_anon", self.env_buffers),
            ("osd_pglog", self.pgs.values().map(|pg| pg.log_memory()).sum()),
        ]
    }

    /// What only the environment knows, before a command that may ask for it.
    pub fn note_env_buffers(&mut self, buffers: MemoryUse) {
        self.env_buffers = buffers;
    }

    pub(super) fn dump_mempools(&self) -> Json {
        let pool = |used: MemoryUse| Json::object().with("items", used.items).with("bytes", used.bytes);
        let pools = self.mempools();
        let mut by_pool = Json::object();
        pools.iter().for_each(|(name, used)| by_pool.push(*name, pool(*used)));
        let total = pools.iter().map(|(_, used)| *used).sum();
        Json::object().with("mempool", Json::object().with("by_pool", by_pool).with("total", pool(total)))
    }
}
