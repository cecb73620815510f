//! What the OSD itself keeps in its store: who it is, its maps, its PGs.
//!
//! Shape:  in [`CollId::Meta`]: object `osd`, omap key `super`: [`Super`];
//!         object `maps`, omap: `f` + epoch (u32 BE) a full map, `i` + epoch an
//!         incremental. The newest full map is never newer than `super`.
//! Crash:  one transaction takes an epoch in: map, `super`, and what it changes
//!         in every PG.

use super::Osd;
use crate::pg::{self, LoadError, Pg, meta_object};
use crate::shared::Load;
use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use store::{CollId, Mutation, ObjectStore, OmapLimit, Transaction};
use wire::codec::Result;
use wire::types::{Epoch, HObject, OsdId, PgId, PoolId, Uuid};
use wire::{Decode, DecodeError, Decoder, Encode, Encoder, Features};

const KEY_SUPER: &[u8] = b"super";
/// A full map is stored once in so many epochs.
const FULL_EVERY: u32 = 64;
/// Older maps are removed in batches of this.
const TRIM_BATCH: u32 = 64;

/// How far loading has come at the start of the OSD.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Loading {
    #[default]
    HalfReceived,
    Identity,
    Maps(Epoch),
    /// Still to be looked at.
    Pgs(Vec<CollId>),
    Done,
}

/// Identity and progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Super {
    pub fsid: Uuid,
    pub osd: OsdId,
    pub uuid: Uuid,
    /// The newest epoch that all PGs have taken in.
    pub epoch: Epoch,
}

impl Encode for Super {
    fn encode(&self, e: &mut Encoder) {
        e.u8(1);
        e.put(&self.fsid);
        e.put(&self.osd);
        e.put(&self.uuid);
        e.put(&self.epoch);
    }
}

impl Decode for Super {
    fn decode(d: &mut Decoder) -> Result<Self> {
        if d.u8()? != 1 {
            return Err(DecodeError::Invalid { what: "version of the OSD's superblock" });
        }
        Ok(Super { fsid: d.get()?, osd: d.get()?, uuid: d.get()?, epoch: d.get()? })
    }
}

fn map_key(prefix: u8, epoch: Epoch) -> Bytes {
    let mut key = BytesMut::with_capacity(5);
    key.put_u8(prefix);
    key.put_u32(epoch.0);
    key.freeze()
}

impl<S: ObjectStore> Osd<S> {
    fn damaged(what: &'static str, error: DecodeError) -> LoadError {
        LoadError::Damaged { pg: PgId { pool: PoolId(-1), seed: 0 }, what, error }
    }

    /// Reads everything. When metadata has to be loaded first, called again after
    /// that it goes on where it was.
    pub(super) fn load(&mut self) -> std::result::Result<(), LoadError> {
        loop {
            match &self.loading {
                Loading::HalfReceived => {
                    if !self.begin_or_find()? {
                        self.loading = Loading::Done;
                        continue;
                    }
                    self.remove_half_received()?;
                    self.loading = Loading::Identity;
                }
                Loading::Identity => self.loading = Loading::Maps(self.load_identity()?),
                Loading::Maps(epoch) => {
                    self.load_maps(*epoch)?;
                    self.loading = Loading::Pgs(self.sh.store.collections());
                }
                Loading::Pgs(left) => match left.last().copied() {
                    Some(coll) => {
                        self.load_pg(coll)?;
                        if let Loading::Pgs(left) = &mut self.loading {
                            left.pop();
                        }
                    }
                    None => self.loading = Loading::Done,
                },
                Loading::Done => return Ok(()),
            }
        }
    }

    /// False, and a new store's first record on its way, if this is the OSD's first start.
    fn begin_or_find(&mut self) -> std::result::Result<bool, LoadError> {
        if !self.sh.store.has_collection(CollId::Meta) {
            let mut txn = Transaction::new();
            txn.push(Mutation::CreateCollection(CollId::Meta));
            self.store_super(Epoch(0), &mut txn);
            self.sh.must_queue(txn, crate::shared::Commit::Silent);
            return Ok(false);
        }
        Ok(true)
    }

    fn load_identity(&self) -> std::result::Result<Epoch, LoadError> {
        let store = &self.sh.store;
        let Some(bytes) = store.omap_get(&meta_object("osd".into()), KEY_SUPER)? else {
            return Err(Self::damaged(
                "superblock",
                DecodeError::Invalid { what: "OSD superblock: missing" },
            ));
        };
        let sup = Super::from_bytes(bytes, Features::ALL).map_err(|e| Self::damaged("superblock", e))?;
        let config = &self.sh.config;
        if sup.fsid != config.fsid || sup.osd != config.whoami {
            tracing::error!(stored = %sup.osd, cluster = %sup.fsid, "the store belongs to another OSD");
            return Err(Self::damaged("superblock", DecodeError::Invalid { what: "identity of the store" }));
        }
        Ok(sup.epoch)
    }

    fn load_maps(&mut self, epoch: Epoch) -> std::result::Result<(), LoadError> {
        if epoch == Epoch(0) {
            return Ok(());
        }
        let maps = meta_object("maps".into());
        let store = &self.sh.store;
        let fulls = store.omap_list(&maps, None, b"f", OmapLimit::NONE)?;
        let broken = |error: crate::maps::MapError| {
            tracing::error!(%error, "stored map");
            Self::damaged("map", DecodeError::Invalid { what: "stored map" })
        };
        let Some((key, full)) = fulls.entries.into_iter().next_back() else {
            return Err(Self::damaged("map", DecodeError::Invalid { what: "stored maps: no full one" }));
        };
        let mut at = Epoch(key.get(1..5).map_or(0, |k| u32::from_be_bytes([k[0], k[1], k[2], k[3]])));
        let mut incrementals = Vec::new();
        while at < epoch {
            at = at.next();
            let Some(bytes) = store.omap_get(&maps, &map_key(b'i', at))? else {
                return Err(Self::damaged("map", DecodeError::Invalid { what: "stored maps: a gap" }));
            };
            incrementals.push((at, bytes));
        }
        let full_epoch = Epoch(epoch.0 - incrementals.len() as u32);
        self.sh.maps.install_full(full_epoch, full).map_err(broken)?;
        for (at, bytes) in incrementals {
            self.sh.maps.apply(at, bytes).map_err(broken)?;
        }
        Ok(())
    }

    fn load_pg(&mut self, coll: CollId) -> std::result::Result<(), LoadError> {
        let CollId::Pg(id) = coll else { return Ok(()) };
        match pg::load(&self.sh.store, id)? {
            Some(loaded) if self.sh.maps.map().pool(id.pool).is_some() => {
                let placement = self.sh.maps.placement(id);
                self.pgs.insert(id, Pg::from_loaded(id, loaded, placement));
            }
            // Its pool is gone, or its removal had begun.
            _ => {
                self.deleting.insert(id);
            }
        }
        Ok(())
    }

    /// Objects of which a crash left only parts.
    fn remove_half_received(&mut self) -> std::result::Result<(), LoadError> {
        const OBJECTS: usize = 64;
        let start = HObject { pool: pg::TEMP_POOL, ..HObject::default() };
        loop {
            let listed = self.sh.store.list(CollId::Meta, &start, OBJECTS)?;
            let half = listed.into_iter().filter(|object| object.pool == pg::TEMP_POOL);
            let mut txn = Transaction::new();
            for object in half {
                txn.push(Mutation::Remove(store::ObjectId { coll: CollId::Meta, object }));
            }
            if txn.is_empty() {
                return Ok(());
            }
            self.sh.must_queue(txn, crate::shared::Commit::Silent);
        }
    }

    fn store_super(&self, epoch: Epoch, txn: &mut Transaction) {
        let config = &self.sh.config;
        let sup = Super { fsid: config.fsid, osd: config.whoami, uuid: config.uuid, epoch };
        txn.push(Mutation::SetOmap {
            id: meta_object("osd".into()),
            entries: [(Bytes::from_static(KEY_SUPER), sup.to_bytes(Features::ALL))].into(),
        });
    }

    /// The epoch that `sh.maps` is at; `incremental` made it, or it came whole.
    pub(super) fn store_epoch(&self, incremental: Option<Bytes>, txn: &mut Transaction) {
        let epoch = self.sh.epoch();
        let maps = meta_object("maps".into());
        let mut entries = std::collections::BTreeMap::new();
        let whole = incremental.is_none() || epoch.0.is_multiple_of(FULL_EVERY);
        if let Some(bytes) = incremental {
            entries.insert(map_key(b'i', epoch), bytes);
        }
        if whole {
            entries.insert(map_key(b'f', epoch), self.sh.maps.map().to_bytes(Features::PACIFIC));
        }
        txn.push(Mutation::SetOmap { id: maps.clone(), entries: entries.into() });
        if whole {
            // Loading starts from the newest full map.
            let end = map_key(b'f', epoch);
            txn.push(Mutation::RmOmapRange { id: maps.clone(), start: Bytes::from_static(b"f"), end });
        }
        let kept = crate::maps::INCREMENTALS_MAX as u32;
        if epoch.0 > kept && epoch.0.is_multiple_of(TRIM_BATCH) {
            let end = map_key(b'i', Epoch(epoch.0 - kept));
            txn.push(Mutation::RmOmapRange { id: maps, start: Bytes::from_static(b"i"), end });
        }
        self.store_super(epoch, txn);
    }

    /// Removes some objects of PGs that are not needed any more. True when
    /// nothing is left of one.
    /// Crash: the collection remains, without records of its own or without a
    /// pool, and removal goes on.
    pub(super) fn delete_step(&mut self) -> bool {
        const OBJECTS: usize = 64;
        let Some(id) = self.deleting.first().copied() else { return false };
        let coll = CollId::Pg(id);
        let listed = match self.sh.store.list(coll, &HObject::default(), OBJECTS) {
            Ok(listed) => listed,
            Err(error) if self.sh.wait_load(&error, Load::Removal) => return false,
            Err(error) => {
                tracing::error!(pg = %id, %error, "cannot list a PG that is to be removed");
                self.deleting.remove(&id);
                return false;
            }
        };
        let mut txn = Transaction::new();
        let is_gone = listed.is_empty();
        if is_gone {
            txn.push(Mutation::RemoveCollection(coll));
            self.deleting.remove(&id);
        }
        for object in listed.into_iter().collect::<BTreeSet<_>>() {
            txn.push(Mutation::Remove(store::ObjectId { coll, object }));
        }
        self.sh.must_queue(txn, crate::shared::Commit::Silent);
        is_gone
    }

    /// Begins to remove a PG: its records go first.
    pub(super) fn delete_pg(&mut self, id: PgId, txn: &mut Transaction) {
        txn.push(Mutation::Remove(pg::pg_meta(id)));
        self.deleting.insert(id);
        self.reported.remove(&id);
    }
}
