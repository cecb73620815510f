//! The one thing that an OSDMap must know of its CRUSH map: which device
//! classes exist. A full decoder lives in the `crush` crate, which depends on
//! this one; here everything else is only stepped over.
//!
//! Source: Ceph 16.2.15, src/crush/CrushWrapper.cc (`CrushWrapper::decode`).

use crate::codec::{DecodeError, Decoder, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: u32 = 0x0001_0000;

/// The ids of the device classes that an encoded CRUSH map names.
pub(super) fn device_class_ids(crush: &Bytes) -> Result<BTreeSet<i32>> {
    let mut d = Decoder::plain(crush.clone());
    if d.u32()? != MAGIC {
        return Err(DecodeError::Invalid { what: "CRUSH magic" });
    }
    let buckets = d.u32()?;
    let rules = d.u32()?;
    d.i32()?;
    for _ in 0..buckets {
        skip_bucket(&mut d)?;
    }
    for _ in 0..rules {
        skip_rule(&mut d)?;
    }
    // Names of types, items and rules.
    for _ in 0..3 {
        d.get::<BTreeMap<i32, Bytes>>()?;
    }
    // Tunables: three u32, descend_once, vary_r, straw_calc, allowed algorithms, stable.
    d.skip("CRUSH tunables", 3 * 4 + 4 + 1 + 1 + 4 + 1)?;
    d.get::<BTreeMap<i32, i32>>()?;
    let names: BTreeMap<i32, Bytes> = d.get()?;
    Ok(names.into_keys().collect())
}

fn skip_bucket(d: &mut Decoder) -> Result<()> {
    if d.u32()? == 0 {
        return Ok(());
    }
    d.skip("CRUSH bucket id and type", 6)?;
    let alg = d.u8()?;
    d.skip("CRUSH bucket hash and weight", 5)?;
    let items = d.count("CRUSH bucket items", 4)?;
    d.skip("CRUSH bucket items", 4 * items)?;
    let weights = match alg {
        1 => 4,
        2 | 4 => 8 * items,
        3 => 4 * usize::from(d.u8()?),
        5 => 4 * items,
        _ => return Err(DecodeError::Invalid { what: "CRUSH bucket algorithm" }),
    };
    d.skip("CRUSH bucket weights", weights)
}

fn skip_rule(d: &mut Decoder) -> Result<()> {
    if d.u32()? == 0 {
        return Ok(());
    }
    let steps = d.u32()? as usize;
    d.skip("CRUSH rule mask", 4)?;
    d.skip("CRUSH rule steps", steps.saturating_mul(12))
}
