//! The logarithm of straw2, in fixed point and bit for bit Ceph's.
//!
//! Ceph ships two tables. The first follows its formula exactly. The second
//! does not: its low half of the mantissa carries a constant error, with
//! exceptions, that every client has by now; placements depend on it. So the
//! tables are computed here from the formula plus that error, and a test
//! checks them against the SHA-256 of the original ones.
//!
//! Source: Ceph `src/crush/crush_ln_table.h`, `mapper.c` (`crush_ln`).

const ONE: u128 = 1 << 48;

/// floor(2^48 · log2(1 + numerator / 2^denominator_bits)), by repeated squaring:
/// each squaring of the mantissa yields one more bit of the logarithm.
const fn log2_fraction(numerator: u64, denominator_bits: u32) -> u64 {
    const POINT: u32 = 63;
    let mut mantissa = (1u128 << POINT) + ((numerator as u128) << (POINT - denominator_bits));
    if mantissa >> (POINT + 1) != 0 {
        return 1 << 48;
    }
    let mut bits = 0;
    let mut i = 0;
    while i < 48 {
        mantissa = (mantissa * mantissa) >> POINT;
        bits <<= 1;
        if mantissa >> (POINT + 1) != 0 {
            mantissa >>= 1;
            bits |= 1;
        }
        i += 1;
    }
    bits
}

/// For k in 0..=128: [2k] = ceil(2^48 · 128 / (128 + k)), the reciprocal, and
/// [2k + 1] = floor(2^48 · log2(1 + k / 128)).
pub(crate) static RECIPROCAL_AND_LOG: [u64; 258] = {
    let mut table = [0; 258];
    let mut k = 0;
    while k <= 128 {
        let divisor = 128 + k as u128;
        table[2 * k] = (ONE * 128).div_ceil(divisor) as u64;
        table[2 * k + 1] = log2_fraction(k as u64, 7);
        k += 1;
    }
    // Ceph's last entry falls short of 2^48.
    table[257] = 0xffff_0000_0000;
    table
};

/// What Ceph's table adds to the formula, except at [`LOW_LOG_EXCEPTIONS`].
const LOW_LOG_ERROR: u64 = 0x1_4770_0000;

const LOW_LOG_EXCEPTIONS: [(usize, u64); 44] = [
    (0, 0),
    (1, 0),
    (56, 0x1_3ed9_b9b0),
    (127, 0x3a4f_4285),
    (134, 0xd5e8_95a5),
    (181, 0xeee4_abc5),
    (184, 0x1_4340_b8bf),
    (188, 0x833e_b34b),
    (193, 0xe43e_ed13),
    (198, 0x95ad_3c32),
    (199, 0x9f2a_5b80),
    (200, 0xe2f4_5e65),
    (203, 0),
    (207, 0x1_2cba_cd37),
    (210, 0x1_144d_0710),
    (212, 0xdac5_961c),
    (216, 0),
    (222, 0),
    (225, 0xbf46_f5f9),
    (227, 0x5a42_d14a),
    (228, 0x9eac_5357),
    (229, 0x217c_fafc),
    (231, 0xd2d5_723c),
    (233, 0),
    (235, 0x1_21cb_06eb),
    (236, 0x1_3ac6_617a),
    (237, 0),
    (238, 0),
    (239, 0),
    (240, 0x9df6_bfdd),
    (241, 0xfa8d_3579),
    (243, 0),
    (244, 0),
    (245, 0),
    (246, 0),
    (247, 0x1595_5a58),
    (248, 0),
    (249, 0),
    (250, 0),
    (251, 0),
    (252, 0),
    (253, 0),
    (254, 0),
    (255, 0),
];

/// For k in 0..256: floor(2^48 · log2(1 + k / 2^15)) plus Ceph's error.
pub(crate) static LOW_LOG: [u64; 256] = {
    let mut table = [0; 256];
    let mut k = 0;
    while k < 256 {
        table[k] = log2_fraction(k as u64, 15) + LOW_LOG_ERROR;
        k += 1;
    }
    let mut i = 0;
    while i < LOW_LOG_EXCEPTIONS.len() {
        let (k, error) = LOW_LOG_EXCEPTIONS[i];
        table[k] = log2_fraction(k as u64, 15) + error;
        i += 1;
    }
    table
};

/// 2^44 · log2(value + 1).
///
/// Units:   `value` at most 0xffff; the result at most 2^48.
#[inline]
pub fn ln(value: u16) -> u64 {
    let mut x = u32::from(value) + 1;
    let mut exponent = 15u64;
    if x & 0x18000 == 0 {
        let shift = x.leading_zeros() - 16;
        x <<= shift;
        exponent -= u64::from(shift);
    }
    // x is now in 2^15 ..= 2^16, so `high` is in 0 ..= 256.
    let high = (((x >> 8) << 1) - 256) as usize;
    let low = (u64::from(x) * RECIPROCAL_AND_LOG[high]) >> 48 & 0xff;
    let log = RECIPROCAL_AND_LOG[high + 1] + LOW_LOG[low as usize];
    (exponent << 44) + (log >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn sha256_of(table: &[u64]) -> String {
        let bytes: Vec<u8> = table.iter().flat_map(|entry| entry.to_le_bytes()).collect();
        Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn tables_are_cephs_bit_for_bit() {
        assert_eq!(
            sha256_of(&RECIPROCAL_AND_LOG),
            "304b097c8de73930d785af5802b1f6b4e9827a69175038f910f6120565e8364c"
        );
        assert_eq!(sha256_of(&LOW_LOG), "56fecbea65b1d35d0d20f0327d783a870652a56356e9a5326b6ab16d6c31b6ca");
    }

    #[test]
    fn ln_covers_its_whole_range() {
        assert_eq!(ln(0), 0);
        assert_eq!(ln(0xffff), 0xffff_f000_0000);
        for value in 0..=0xffff {
            ln(value);
        }
    }
}
