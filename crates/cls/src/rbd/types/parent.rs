//! The links between clones and the snapshots they came from.

use super::{HEAD, NO_POOL, fields};
use bytes::Bytes;
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

/// `cls::rbd::ParentImageSpec`: a snapshot of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentImageSpec {
    pub pool: i64,
    pub nspace: Bytes,
    pub image: Bytes,
    pub snap: u64,
}

impl Default for ParentImageSpec {
    fn default() -> ParentImageSpec {
        ParentImageSpec { pool: NO_POOL, nspace: Bytes::new(), image: Bytes::new(), snap: HEAD }
    }
}

fields!(ParentImageSpec, 1, 1: [pool, nspace, image, snap]);

/// `cls_rbd_parent`, under the key `parent`: where a clone's data comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parent {
    pub spec: ParentImageSpec,
    /// Bytes of the image that are still the parent's; none when only snapshots
    /// of the image refer to the parent.
    pub head_overlap: Option<u64>,
}

impl Parent {
    pub fn exists(&self) -> bool {
        self.spec.pool >= 0 && !self.spec.image.is_empty() && self.spec.snap != HEAD
    }
}

impl Encode for Parent {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(2, 2, |e| {
            e.i64(self.spec.pool);
            e.put(&self.spec.nspace);
            e.put(&self.spec.image);
            e.u64(self.spec.snap);
            e.put(&self.head_overlap);
        });
    }
}

impl Decode for Parent {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<Parent, DecodeError> {
        d.versioned("cls_rbd_parent", 2, |d, version| {
            let spec = ParentImageSpec {
                pool: d.get()?,
                nspace: if version >= 2 { d.get()? } else { Bytes::new() },
                image: d.get()?,
                snap: d.get()?,
            };
            let head_overlap = if version == 1 { Some(d.u64()?) } else { d.get()? };
            Ok(Parent { spec, head_overlap })
        })
    }
}

/// `cls::rbd::ChildImageSpec`: a clone, as its parent's snapshot knows it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChildImageSpec {
    // Ordered as Ceph orders them: pool, namespace, image.
    pub pool: i64,
    pub nspace: Bytes,
    pub image: Bytes,
}

impl Default for ChildImageSpec {
    fn default() -> ChildImageSpec {
        ChildImageSpec { pool: NO_POOL, nspace: Bytes::new(), image: Bytes::new() }
    }
}

fields!(ChildImageSpec, 2, 1: [pool, image] [nspace], 2);
