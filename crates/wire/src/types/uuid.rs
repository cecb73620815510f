use crate::codec::{Decode, DecodeError, Decoder, Encode, Encoder, Result};
use std::fmt;
use std::str::FromStr;

/// A cluster's or an OSD's identity: 16 bytes as they are printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// A version 4 uuid from random bits.
    pub fn from_random(high: u64, low: u64) -> Uuid {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&high.to_be_bytes());
        b[8..].copy_from_slice(&low.to_be_bytes());
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        Uuid(b)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let dash = if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = DecodeError;
    fn from_str(s: &str) -> Result<Uuid> {
        let bad = DecodeError::Invalid { what: "uuid" };
        let hex: String = s.chars().filter(|c| *c != '-').collect();
        if hex.len() != 32 || !hex.is_ascii() || s.len() != 36 {
            return Err(bad);
        }
        let mut out = [0; 16];
        for (i, byte) in out.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| bad.clone())?;
        }
        Ok(Uuid(out))
    }
}

impl Encode for Uuid {
    fn encode(&self, e: &mut Encoder) {
        e.raw(&self.0);
    }
}

impl Decode for Uuid {
    const MIN_LEN: usize = 16;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(Uuid(d.raw()?))
    }
}
