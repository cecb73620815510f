//! The integer hashes of CRUSH: Robert Jenkins' 96-bit mix over one to five
//! words. Object names are hashed elsewhere (`wire::maps`).
//!
//! Source: Ceph `src/crush/hash.c`; the mix is Jenkins' public domain one.

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

/// Bucket hash type 0, the only one that exists.
pub const RJENKINS1: u8 = 0;

#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    macro_rules! step {
        ($p:ident, $q:ident, $r:ident, $shifted:expr) => {
            *$p = $p.wrapping_sub(*$q).wrapping_sub(*$r);
            *$p ^= $shifted;
        };
    }
    step!(a, b, c, *c >> 13);
    step!(b, c, a, *a << 8);
    step!(c, a, b, *b >> 13);
    step!(a, b, c, *c >> 12);
    step!(b, c, a, *a << 16);
    step!(c, a, b, *b >> 5);
    step!(a, b, c, *c >> 3);
    step!(b, c, a, *a << 10);
    step!(c, a, b, *b >> 15);
}

/// `crush_hash32_2`.
#[inline]
pub fn hash2(mut a: u32, mut b: u32) -> u32 {
    let mut h = SEED ^ a ^ b;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// `crush_hash32_3`.
#[inline]
pub fn hash3(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let mut h = SEED ^ a ^ b ^ c;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// `crush_hash32_4`.
#[inline]
pub fn hash4(mut a: u32, mut b: u32, mut c: u32, mut d: u32) -> u32 {
    let mut h = SEED ^ a ^ b ^ c ^ d;
    let (mut x, mut y) = (X, Y);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}
