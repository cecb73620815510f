//! Frames built by hand, independently of the code under test: for what our
//! own side would never send. Also used by the fuzz targets.
#![allow(dead_code)]

/// CRC32C bit by bit, without inversions.
pub fn ceph_crc32c(seed: u32, data: &[u8]) -> u32 {
    data.iter().fold(seed, |crc, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |crc, _| {
                if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 }
            },
        )
    })
}

pub fn banner(supported: u64, required: u64) -> Vec<u8> {
    let mut out = b"ceph v2\n\x10\0".to_vec();
    out.extend(supported.to_le_bytes());
    out.extend(required.to_le_bytes());
    out
}

pub fn preamble(tag: u8, count: u8, lens: [u32; 4], flags: u8) -> Vec<u8> {
    let mut out = vec![tag, count];
    for (i, len) in lens.into_iter().enumerate() {
        let align: u16 = if i < usize::from(count) { 8 } else { 0 };
        out.extend(len.to_le_bytes());
        out.extend(align.to_le_bytes());
    }
    out.extend([flags, 0]);
    let crc = ceph_crc32c(0, &out);
    out.extend(crc.to_le_bytes());
    out
}

pub fn control(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut out = preamble(tag, 1, [body.len() as u32, 0, 0, 0], 0);
    if !body.is_empty() {
        out.extend(body);
        out.extend(ceph_crc32c(!0, body).to_le_bytes());
    }
    out
}

/// A MESSAGE frame whose segments after the header are as given, all counted.
pub fn message(seq: u64, kind: u16, segments: &[&[u8]], late_status: u8) -> Vec<u8> {
    let mut header = vec![0; 41];
    header[..8].copy_from_slice(&seq.to_le_bytes());
    header[16..18].copy_from_slice(&kind.to_le_bytes());
    let mut lens = [41, 0, 0, 0];
    for (len, segment) in lens[1..].iter_mut().zip(segments) {
        *len = segment.len() as u32;
    }
    let mut out = preamble(17, 1 + segments.len() as u8, lens, 0);
    out.extend(&header);
    out.extend(ceph_crc32c(!0, &header).to_le_bytes());
    if !segments.is_empty() {
        segments.iter().for_each(|s| out.extend(*s));
        out.push(late_status);
        for i in 0..3 {
            let crc = segments.get(i).map_or(0, |s| ceph_crc32c(!0, s));
            out.extend(crc.to_le_bytes());
        }
    }
    out
}

/// One frame of an OSD-to-OSD link.
pub fn link_frame(kind: u16, seq: u64, body: &[u8]) -> Vec<u8> {
    let mut out = b"LLNK\x01\0".to_vec();
    out.extend(kind.to_le_bytes());
    out.extend(seq.to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend((!ceph_crc32c(!0, body)).to_le_bytes());
    out.extend([0; 4]);
    let crc = !ceph_crc32c(!0, &out);
    out.extend(crc.to_le_bytes());
    out.extend(body);
    out
}
