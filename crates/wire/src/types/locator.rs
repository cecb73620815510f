use super::PoolId;
use crate::codec::{Decode, Decoder, Encode, Encoder, Result};
use ecow::EcoString;

/// `object_locator_t`: where an object is placed, besides its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectLocator {
    pub pool: PoolId,
    /// Hashed instead of the object's name when not empty.
    pub key: EcoString,
    pub nspace: EcoString,
    /// Overrides the hash when not negative.
    pub hash: i64,
}

impl ObjectLocator {
    pub fn pool(pool: PoolId) -> ObjectLocator {
        ObjectLocator { pool, key: EcoString::new(), nspace: EcoString::new(), hash: -1 }
    }
}

impl Encode for ObjectLocator {
    fn encode(&self, e: &mut Encoder) {
        e.versioned(6, 3, |e| {
            e.put(&self.pool);
            e.i32(-1);
            e.string(&self.key);
            e.string(&self.nspace);
            e.i64(self.hash);
        });
    }
}

impl Decode for ObjectLocator {
    const MIN_LEN: usize = 34;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.versioned("object_locator_t", 6, |d, version| {
            let pool = d.get()?;
            d.i32()?;
            let key = d.text()?;
            let nspace = if version >= 5 { d.text()? } else { EcoString::new() };
            let hash = if version >= 6 { d.i64()? } else { -1 };
            Ok(ObjectLocator { pool, key, nspace, hash })
        })
    }
}
