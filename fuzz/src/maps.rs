//! Decoders of cluster maps: whatever comes in, no panic; what is understood
//! survives being written and read again, can be printed, and can be applied.

use base::ceph_crc32c;
use bytes::Bytes;
use wire::maps::{MgrMap, MonMap, OsdMap, OsdMapIncremental};
use wire::types::Epoch;
use wire::{Decode, Encode, Features, dump};

const ENVELOPE_LEN: usize = 6;

pub fn osd_map(data: &[u8]) {
    for input in [Bytes::copy_from_slice(data), with_right_crc(data)] {
        let Some(map) = reread::<OsdMap>(input) else { continue };
        let _ = (dump::osd_map(&map), dump::osd_map_text(&map));
        let _ = (dump::pools_detail(&map), dump::pools_detail_text(&map));
    }
}

pub fn osd_map_incremental(data: &[u8]) {
    for input in [Bytes::copy_from_slice(data), with_right_crc(data)] {
        let Some(mut inc) = reread::<OsdMapIncremental>(input) else { continue };
        let mut map = OsdMap { fsid: inc.fsid, ..OsdMap::default() };
        map.set_max_osd(8);
        inc.epoch = Epoch(1);
        if let Ok(next) = map.advanced(&inc) {
            inc.full_crc = next.crc();
            assert_eq!(map.apply(&inc), Ok(()));
        }
    }
}

pub fn mon_map(data: &[u8]) {
    if let Some(map) = reread::<MonMap>(Bytes::copy_from_slice(data)) {
        let _ = (dump::mon_map(&map, &[]), dump::mon_map_text(&map));
    }
}

pub fn mgr_map(data: &[u8]) {
    reread::<MgrMap>(Bytes::copy_from_slice(data));
}

/// Decodes; what was understood must encode to something stable.
fn reread<T: Decode + Encode>(input: Bytes) -> Option<T> {
    let value = T::from_bytes(input, Features::PACIFIC).ok()?;
    let bytes = value.to_bytes(Features::PACIFIC);
    let again = T::from_bytes(bytes.clone(), Features::PACIFIC).expect("our own encoding");
    assert_eq!(again.to_bytes(Features::PACIFIC), bytes, "encoding is not stable");
    Some(value)
}

/// Random changes would all end at the checksum; this puts it right where the
/// two sections before it can be found.
fn with_right_crc(data: &[u8]) -> Bytes {
    let mut bytes = data.to_vec();
    let section_end = |bytes: &[u8], start: usize| -> Option<usize> {
        let len = bytes.get(start + 2..start + ENVELOPE_LEN)?;
        let len = u32::from_le_bytes(len.try_into().ok()?) as usize;
        start.checked_add(ENVELOPE_LEN)?.checked_add(len)
    };
    let crc_at = section_end(&bytes, ENVELOPE_LEN).and_then(|osd| section_end(&bytes, osd));
    // What follows the checksum within the envelope is covered as well.
    let end = section_end(&bytes, 0);
    if let (Some(at), Some(end)) = (crc_at, end)
        && at + 4 <= end
        && end <= bytes.len()
    {
        let crc = ceph_crc32c(ceph_crc32c(u32::MAX, &bytes[..at]), &bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes.into()
}
