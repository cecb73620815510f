//! An image on its way to another pool or name.

use super::NO_POOL;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, DecodeError, Decoder, Encode, Encoder};

/// `cls::rbd::MigrationSpec`, under the key `migration` of source and destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MigrationSpec {
    pub header_type: u8,
    pub pool: i64,
    pub nspace: Bytes,
    pub image_name: Bytes,
    pub image: Bytes,
    pub snap_seqs: BTreeMap<u64, u64>,
    pub overlap: u64,
    pub flatten: bool,
    pub mirroring: bool,
    pub state: u8,
    pub state_description: Bytes,
    pub mirror_image_mode: u8,
    /// JSON about a source outside RBD.
    pub source_spec: Bytes,
}

impl MigrationSpec {
    pub const SOURCE: u8 = 1;
    pub const DESTINATION: u8 = 2;
}

impl Default for MigrationSpec {
    fn default() -> MigrationSpec {
        MigrationSpec {
            header_type: MigrationSpec::SOURCE,
            pool: NO_POOL,
            nspace: Bytes::new(),
            image_name: Bytes::new(),
            image: Bytes::new(),
            snap_seqs: BTreeMap::new(),
            overlap: 0,
            flatten: false,
            mirroring: false,
            state: 0,
            state_description: Bytes::new(),
            mirror_image_mode: 0,
            source_spec: Bytes::new(),
        }
    }
}

impl Encode for MigrationSpec {
    fn encode(&self, e: &mut Encoder) {
        // Readers that would overlook the foreign source must refuse.
        let compat = if self.source_spec.is_empty() { 1 } else { 3 };
        e.versioned(3, compat, |e| {
            e.u8(self.header_type);
            e.i64(self.pool);
            e.put(&self.nspace);
            e.put(&self.image_name);
            e.put(&self.image);
            e.put(&self.snap_seqs);
            e.u64(self.overlap);
            e.bool(self.flatten);
            e.bool(self.mirroring);
            e.u8(self.state);
            e.put(&self.state_description);
            e.u8(self.mirror_image_mode);
            e.put(&self.source_spec);
        });
    }
}

impl Decode for MigrationSpec {
    const MIN_LEN: usize = 6;
    fn decode(d: &mut Decoder) -> Result<MigrationSpec, DecodeError> {
        d.versioned("MigrationSpec", 3, |d, version| {
            let mut spec = MigrationSpec {
                header_type: d.get()?,
                pool: d.get()?,
                nspace: d.get()?,
                image_name: d.get()?,
                image: d.get()?,
                snap_seqs: d.get()?,
                overlap: d.get()?,
                flatten: d.get()?,
                mirroring: d.get()?,
                state: d.get()?,
                state_description: d.get()?,
                ..MigrationSpec::default()
            };
            if version >= 2 {
                spec.mirror_image_mode = d.get()?;
            }
            if version >= 3 {
                spec.source_spec = d.get()?;
            }
            Ok(spec)
        })
    }
}
