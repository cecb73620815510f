//! Ceph's primitive encodings and the versioned envelope.
//!
//! Source: Ceph `src/include/encoding.h`, `doc/dev/encoding.rst`.

use crate::features::Features;
use base::WallTime;
use bytes::Bytes;
use ecow::EcoString;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("truncated: {what} needs {need} bytes, {have} are left")]
    Truncated { what: &'static str, need: usize, have: usize },
    /// The writer says that readers of our version cannot understand it.
    #[error("{what}: needs a reader of version {compat}, this one knows {known}")]
    TooNew { what: &'static str, compat: u8, known: u8 },
    #[error("{what}: version {version} is older than the oldest known, {oldest}")]
    TooOld { what: &'static str, version: u8, oldest: u8 },
    #[error("invalid {what}")]
    Invalid { what: &'static str },
    #[error("{what}: checksum is {found:08x}, expected {expected:08x}")]
    Checksum { what: &'static str, found: u32, expected: u32 },
}

pub type Result<T> = std::result::Result<T, DecodeError>;

/// Writes one payload for a peer with the given features.
pub struct Encoder {
    buf: Vec<u8>,
    features: Features,
}

impl Encoder {
    pub fn new(features: Features) -> Encoder {
        Encoder { features, ..Encoder::with_capacity(256) }
    }

    /// For payloads whose form does not depend on features.
    pub fn plain() -> Encoder {
        Encoder::new(Features::ALL)
    }

    /// The same with room for so many bytes.
    pub fn with_capacity(len: usize) -> Encoder {
        Encoder { buf: Vec::with_capacity(len), features: Features::ALL }
    }

    pub fn features(&self) -> Features {
        self.features
    }

    pub fn len(&self) -> usize {
        self.buf.len()
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    pub fn finish(self) -> Bytes {
        self.buf.into()
    }

    /// What has been written so far, for checksums over it.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) {
        value.encode(self);
    }

    pub fn u8(&mut self, v: u8) {
        self.buf.push(v);
    }
    pub fn u16(&mut self, v: u16) {
        self.raw(&v.to_le_bytes());
    }
    pub fn u32(&mut self, v: u32) {
        self.raw(&v.to_le_bytes());
    }
    pub fn u64(&mut self, v: u64) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i8(&mut self, v: i8) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i16(&mut self, v: i16) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i32(&mut self, v: i32) {
        self.raw(&v.to_le_bytes());
    }
    pub fn i64(&mut self, v: i64) {
        self.raw(&v.to_le_bytes());
    }
    pub fn f32(&mut self, v: f32) {
        self.raw(&v.to_le_bytes());
    }
    pub fn f64(&mut self, v: f64) {
        self.raw(&v.to_le_bytes());
    }
    pub fn bool(&mut self, v: bool) {
        self.buf.push(u8::from(v));
    }

    /// Bytes as they are, no length.
    #[inline]
    pub fn raw(&mut self, v: &[u8]) {
        self.buf.extend_from_slice(v);
    }

    /// A u32 length and the bytes: Ceph's `string` and `bufferlist`.
    pub fn blob(&mut self, v: &[u8]) {
        self.count(v.len());
        self.raw(v);
    }

    pub fn string(&mut self, v: &str) {
        self.blob(v.as_bytes());
    }

    /// An element count.
    pub fn count(&mut self, n: usize) {
        self.u32(u32::try_from(n).expect("a collection of fewer than 2^32 items"));
    }

    /// `ENCODE_START(version, compat)` … `ENCODE_FINISH`: version, compat and
    /// the body's length, then the body.
    pub fn versioned(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Encoder)) {
        self.u8(version);
        self.u8(compat);
        self.sized(body);
    }

    /// A u32 length, then the body: a structure carried as a `bufferlist`.
    pub fn sized(&mut self, body: impl FnOnce(&mut Encoder)) {
        let at = self.len();
        self.u32(0);
        body(self);
        let len = u32::try_from(self.len() - at - 4).expect("a body below 4 GiB");
        self.buf[at..at + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Overwrites four bytes written earlier: a checksum known only at the end.
    pub fn patch_u32(&mut self, at: usize, v: u32) {
        self.buf[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
}

/// Reads one payload; slices of it are shared, not copied.
#[derive(Clone)]
pub struct Decoder {
    buf: Bytes,
    /// The unread rest of `buf`: a structure within a structure ends before it does.
    at: usize,
    end: usize,
    features: Features,
}

impl Decoder {
    pub fn new(buf: Bytes, features: Features) -> Decoder {
        Decoder { at: 0, end: buf.len(), buf, features }
    }

    pub fn plain(buf: Bytes) -> Decoder {
        Decoder::new(buf, Features::ALL)
    }

    pub fn features(&self) -> Features {
        self.features
    }

    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// The unread rest.
    pub fn rest(&self) -> &[u8] {
        &self.buf[self.at..self.end]
    }

    /// The unread rest, shared with the input.
    pub fn rest_bytes(&self) -> Bytes {
        self.buf.slice(self.at..self.end)
    }

    pub fn get<T: Decode>(&mut self) -> Result<T> {
        T::decode(self)
    }

    /// The next `len` bytes.
    fn slice(&mut self, what: &'static str, len: usize) -> Result<&[u8]> {
        let start = self.advance(what, len)?;
        Ok(&self.buf[start..self.at])
    }

    /// Passes `len` bytes; returns where they begin.
    #[inline]
    fn advance(&mut self, what: &'static str, len: usize) -> Result<usize> {
        if len > self.remaining() {
            return Err(DecodeError::Truncated { what, need: len, have: self.remaining() });
        }
        let start = self.at;
        self.at += len;
        Ok(start)
    }

    /// The next `len` bytes, shared with the input.
    pub fn take(&mut self, what: &'static str, len: usize) -> Result<Bytes> {
        let start = self.advance(what, len)?;
        Ok(self.buf.slice(start..self.at))
    }

    pub fn skip(&mut self, what: &'static str, len: usize) -> Result<()> {
        self.advance(what, len).map(drop)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let Some(head) = self.rest().first_chunk::<N>().copied() else {
            return Err(DecodeError::Truncated { what, need: N, have: self.remaining() });
        };
        self.at += N;
        Ok(head)
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array("u8")?))
    }
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array("u16")?))
    }
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array("u32")?))
    }
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array("u64")?))
    }
    pub fn i8(&mut self) -> Result<i8> {
        Ok(i8::from_le_bytes(self.array("i8")?))
    }
    pub fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_le_bytes(self.array("i16")?))
    }
    pub fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_le_bytes(self.array("i32")?))
    }
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array("i64")?))
    }
    pub fn f32(&mut self) -> Result<f32> {
        Ok(f32::from_le_bytes(self.array("f32")?))
    }
    pub fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.array("f64")?))
    }
    pub fn bool(&mut self) -> Result<bool> {
        Ok(self.u8()? != 0)
    }
    pub fn raw<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.array("raw bytes")
    }

    pub fn blob(&mut self) -> Result<Bytes> {
        let len = self.u32()? as usize;
        self.take("blob", len)
    }

    /// Object and pool names are UTF-8 here; Ceph itself does not insist.
    fn str(&mut self) -> Result<&str> {
        let len = self.u32()? as usize;
        let blob = self.slice("blob", len)?;
        std::str::from_utf8(blob).map_err(|_| DecodeError::Invalid { what: "UTF-8 string" })
    }

    pub fn string(&mut self) -> Result<String> {
        self.str().map(String::from)
    }

    /// A string whose copies will share its memory.
    pub fn text(&mut self) -> Result<EcoString> {
        self.str().map(EcoString::from)
    }

    /// An element count, checked against what is left so that a hostile count
    /// cannot make the caller reserve memory: each element is at least
    /// `min_item_len` bytes long.
    pub fn count(&mut self, what: &'static str, min_item_len: usize) -> Result<usize> {
        let n = self.u32()? as usize;
        let need = n.saturating_mul(min_item_len.max(1));
        if need > self.remaining() {
            return Err(DecodeError::Truncated { what, need, have: self.remaining() });
        }
        Ok(n)
    }

    /// `DECODE_START(known)` … `DECODE_FINISH`. `body` gets the writer's
    /// version and a decoder limited to the body; what it leaves unread is a
    /// newer writer's and is skipped.
    pub fn versioned<T>(
        &mut self,
        what: &'static str,
        known: u8,
        body: impl FnOnce(&mut Decoder, u8) -> Result<T>,
    ) -> Result<T> {
        let version = self.u8()?;
        let compat = self.u8()?;
        if compat > known {
            return Err(DecodeError::TooNew { what, compat, known });
        }
        let len = self.u32()? as usize;
        let start = self.advance(what, len)?;
        let (after, outer_end) = (self.at, self.end);
        (self.at, self.end) = (start, after);
        let value = body(self, version);
        (self.at, self.end) = (after, outer_end);
        value
    }

    /// A structure carried as a `bufferlist`.
    pub fn sized(&mut self, what: &'static str) -> Result<Decoder> {
        let len = self.u32()? as usize;
        Ok(Decoder::new(self.take(what, len)?, self.features))
    }
}

pub trait Encode {
    fn encode(&self, e: &mut Encoder);

    fn to_bytes(&self, features: Features) -> Bytes {
        let mut e = Encoder::new(features);
        self.encode(&mut e);
        e.finish()
    }
}

pub trait Decode: Sized {
    /// The least number of bytes any value takes: bounds hostile counts.
    const MIN_LEN: usize = 1;

    fn decode(d: &mut Decoder) -> Result<Self>;

    /// Decodes a value that must fill `buf` to the end or leave a tail that a
    /// newer writer added.
    fn from_bytes(buf: Bytes, features: Features) -> Result<Self> {
        Self::decode(&mut Decoder::new(buf, features))
    }
}

macro_rules! primitive {
    ($($t:ident),*) => {$(
        impl Encode for $t {
            fn encode(&self, e: &mut Encoder) { e.$t(*self); }
        }
        impl Decode for $t {
            const MIN_LEN: usize = size_of::<$t>();
            fn decode(d: &mut Decoder) -> Result<Self> { d.$t() }
        }
    )*};
}
primitive!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, bool);

impl Encode for str {
    fn encode(&self, e: &mut Encoder) {
        e.string(self);
    }
}

impl Encode for String {
    fn encode(&self, e: &mut Encoder) {
        e.string(self);
    }
}

impl Decode for String {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.string()
    }
}

impl Encode for Bytes {
    fn encode(&self, e: &mut Encoder) {
        e.blob(self);
    }
}

impl Decode for Bytes {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        d.blob()
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        for item in self {
            item.encode(e);
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn encode(&self, e: &mut Encoder) {
        self.as_slice().encode(e);
    }
}

impl<T: Decode> Decode for Vec<T> {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let n = d.count("list", T::MIN_LEN)?;
        // Elements may be larger in memory than on the wire; grow as they prove real.
        let mut items = Vec::with_capacity(n.min(1024));
        for _ in 0..n {
            items.push(T::decode(d)?);
        }
        Ok(items)
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        for (k, v) in self {
            k.encode(e);
            v.encode(e);
        }
    }
}

impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let n = d.count("map", K::MIN_LEN + V::MIN_LEN)?;
        let mut map = BTreeMap::new();
        for _ in 0..n {
            let key = K::decode(d)?;
            map.insert(key, V::decode(d)?);
        }
        Ok(map)
    }
}

impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        for item in self {
            item.encode(e);
        }
    }
}

impl<T: Decode + Ord> Decode for BTreeSet<T> {
    const MIN_LEN: usize = 4;
    fn decode(d: &mut Decoder) -> Result<Self> {
        let n = d.count("set", T::MIN_LEN)?;
        let mut set = BTreeSet::new();
        for _ in 0..n {
            set.insert(T::decode(d)?);
        }
        Ok(set)
    }
}

impl<T: Encode> Encode for Option<T> {
    fn encode(&self, e: &mut Encoder) {
        e.bool(self.is_some());
        if let Some(value) = self {
            value.encode(e);
        }
    }
}

impl<T: Decode> Decode for Option<T> {
    const MIN_LEN: usize = 1;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(if d.bool()? { Some(T::decode(d)?) } else { None })
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
        self.1.encode(e);
    }
}

impl<A: Decode, B: Decode> Decode for (A, B) {
    const MIN_LEN: usize = A::MIN_LEN + B::MIN_LEN;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok((A::decode(d)?, B::decode(d)?))
    }
}

/// Ceph's `utime_t`.
impl Encode for WallTime {
    fn encode(&self, e: &mut Encoder) {
        e.u32(self.sec);
        e.u32(self.nsec);
    }
}

impl Decode for WallTime {
    const MIN_LEN: usize = 8;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(WallTime { sec: d.u32()?, nsec: d.u32()? })
    }
}

/// A `utime_t` that holds a length of time.
impl Encode for Duration {
    fn encode(&self, e: &mut Encoder) {
        WallTime::from_duration(*self).encode(e);
    }
}

impl Decode for Duration {
    const MIN_LEN: usize = 8;
    fn decode(d: &mut Decoder) -> Result<Self> {
        Ok(WallTime::decode(d)?.as_duration())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_count_is_refused_before_memory_is_reserved() {
        let mut d = Decoder::plain(Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 1, 2]));
        assert!(matches!(d.get::<Vec<u64>>(), Err(DecodeError::Truncated { .. })));
    }

    #[test]
    fn versioned_skips_a_newer_writers_tail() {
        let mut e = Encoder::plain();
        e.versioned(9, 1, |e| {
            e.u32(7);
            e.string("from the future");
        });
        e.u8(42);
        let mut d = Decoder::plain(e.finish());
        assert_eq!(d.versioned("t", 1, |d, v| Ok((d.u32()?, v))).unwrap(), (7, 9));
        assert_eq!(d.u8().unwrap(), 42);
    }

    #[test]
    fn versioned_refuses_an_incompatible_writer() {
        let mut e = Encoder::plain();
        e.versioned(9, 5, |_| ());
        let mut d = Decoder::plain(e.finish());
        assert!(matches!(
            d.versioned("t", 4, |_, _| Ok(())),
            Err(DecodeError::TooNew { compat: 5, known: 4, .. })
        ));
    }
}
