//! The little that an OSDMap must know of its CRUSH map. A full decoder lives
//! in the `crush` crate, which depends on this one; here everything else is
//! stepped over.
//!
//! Source: Ceph 16.2.15, src/crush/CrushWrapper.{h,cc} (`encode`, `decode`).

use crate::codec::{DecodeError, Decoder, Result};
use bytes::Bytes;
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;
/// Where `max_devices` stands: after magic, `max_buckets` and `max_rules`.
const MAX_DEVICES_AT: usize = 12;

/// What can be read off an encoded CRUSH map.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct CrushSummary {
    pub max_devices: i32,
    /// One more than the highest device in any bucket or with a name.
    pub devices_used: i32,
    pub has_straw2: bool,
    pub item_names: BTreeMap<i32, String>,
    pub chooseleaf_descend_once: bool,
    pub chooseleaf_vary_r: bool,
    pub chooseleaf_stable: bool,
    pub class_names: BTreeMap<i32, String>,
    pub has_choose_args: bool,
}

/// What a reader of this CRUSH map would write: Ceph recounts the devices
/// whenever it decodes one, and an OSDMap's checksum covers the result.
pub(super) fn canonical(crush: &Bytes, summary: &CrushSummary) -> Bytes {
    if summary.max_devices == summary.devices_used {
        return crush.clone();
    }
    let mut bytes = crush.to_vec();
    bytes[MAX_DEVICES_AT..MAX_DEVICES_AT + 4].copy_from_slice(&summary.devices_used.to_le_bytes());
    bytes.into()
}

impl CrushSummary {
    pub(crate) fn of(crush: &Bytes) -> Result<CrushSummary> {
        let mut d = Decoder::plain(crush.clone());
        let mut summary = CrushSummary::default();
        if d.u32()? != MAGIC {
            return Err(DecodeError::Invalid { what: "CRUSH magic" });
        }
        // Every slot takes four bytes at least.
        let buckets = d.u32()?;
        let rules = d.u32()?;
        summary.max_devices = d.i32()?;
        for _ in 0..buckets {
            summary.read_bucket(&mut d)?;
        }
        for _ in 0..rules {
            skip_rule(&mut d)?;
        }
        let _type_names: BTreeMap<i32, String> = d.get()?;
        summary.item_names = d.get()?;
        if let Some((last, _)) = summary.item_names.last_key_value() {
            summary.devices_used = summary.devices_used.max(last.saturating_add(1));
        }
        let _rule_names: BTreeMap<i32, String> = d.get()?;
        summary.read_tail(&mut d)?;
        Ok(summary)
    }

    fn read_bucket(&mut self, d: &mut Decoder) -> Result<()> {
        if d.u32()? == 0 {
            return Ok(());
        }
        d.skip("CRUSH bucket id and type", 6)?;
        let alg = d.u8()?;
        d.skip("CRUSH bucket hash and weight", 5)?;
        let size = d.count("CRUSH bucket items", 4)?;
        for _ in 0..size {
            self.devices_used = self.devices_used.max(d.i32()?.saturating_add(1));
        }
        self.has_straw2 |= alg == 5;
        let weights = match alg {
            1 => 4,
            2 | 4 => 8 * size,
            3 => 4 * usize::from(d.u8()?),
            5 => 4 * size,
            _ => return Err(DecodeError::Invalid { what: "CRUSH bucket algorithm" }),
        };
        d.skip("CRUSH bucket weights", weights)
    }

    /// Tunables and what follows; older maps end anywhere in here.
    fn read_tail(&mut self, d: &mut Decoder) -> Result<()> {
        if d.is_empty() {
            return Ok(());
        }
        d.skip("CRUSH choose tries", 12)?;
        if d.is_empty() {
            return Ok(());
        }
        self.chooseleaf_descend_once = d.u32()? != 0;
        if d.is_empty() {
            return Ok(());
        }
        self.chooseleaf_vary_r = d.u8()? != 0;
        if d.is_empty() {
            return Ok(());
        }
        d.skip("CRUSH straw_calc_version", 1)?;
        if d.is_empty() {
            return Ok(());
        }
        d.skip("CRUSH allowed_bucket_algs", 4)?;
        if d.is_empty() {
            return Ok(());
        }
        self.chooseleaf_stable = d.bool()?;
        if d.is_empty() {
            return Ok(());
        }
        let _classes: BTreeMap<i32, i32> = d.get()?;
        self.class_names = d.get()?;
        let _shadows: BTreeMap<i32, BTreeMap<i32, i32>> = d.get()?;
        if !d.is_empty() {
            self.has_choose_args = d.u32()? != 0;
        }
        Ok(())
    }
}

fn skip_rule(d: &mut Decoder) -> Result<()> {
    if d.u32()? == 0 {
        return Ok(());
    }
    let steps = d.u32()? as usize;
    d.skip("CRUSH rule mask", 4)?;
    d.skip("CRUSH rule steps", steps.saturating_mul(12))
}
