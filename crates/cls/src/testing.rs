//! An object in memory, for the tests and fuzzing of methods: as the OSD shows it.

use crate::object::{OMAP_ENTRIES_MAX, Origin, Uses};
use crate::{Access, CLASSES, Fault, Found, Method, Object, find};
use base::{Errno, Random, WallTime};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use wire::types::{AddrType, EntityAddr, EntityName};

/// `osd_max_object_size`.
const SIZE_MAX: u64 = 128 << 20;

/// Every method there is, with its class's name.
pub fn methods() -> impl Iterator<Item = (&'static str, &'static Method)> {
    CLASSES.iter().flat_map(|(class, methods)| methods.iter().map(|method| (*class, method)))
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Content {
    pub data: Bytes,
    pub mtime: WallTime,
    pub xattrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub omap_header: Bytes,
    pub snap_seq: u64,
}

/// One object, its caller and its clock. Tests set the fields as they please.
#[derive(Clone, Debug)]
pub struct MemObject {
    /// `None`: the object is not there.
    pub content: Option<Content>,
    pub origin: Origin,
    pub now: WallTime,
    pub version: u64,
    pub random: Random,
    pub watchers: Vec<Origin>,
    /// The use of this number, from 0, ends in [`Fault::Later`].
    pub lacking: Option<u32>,
    uses: Uses,
    steps: u32,
}

impl Default for MemObject {
    fn default() -> MemObject {
        MemObject::new()
    }
}

impl MemObject {
    /// An object that is not there; `client.4100` calls at 1000 s.
    pub fn new() -> MemObject {
        let socket = ([127, 0, 0, 1], 0).into();
        MemObject {
            content: None,
            origin: Origin {
                name: EntityName::client(4100),
                addr: EntityAddr { kind: AddrType::Any, nonce: 77, socket: Some(socket) },
            },
            now: WallTime { sec: 1000, nsec: 0 },
            version: 1,
            random: Random::from_seed(1),
            watchers: Vec::new(),
            lacking: None,
            uses: Uses::default(),
            steps: 0,
        }
    }

    /// An object that is there.
    pub fn holding(content: Content) -> MemObject {
        let mut object = MemObject::new();
        object.content = Some(content);
        object
    }

    /// What the OSD does with a CALL that is alone in its request: return code and
    /// output. What failed leaves no trace.
    pub fn call(&mut self, class: &str, method: &str, input: &[u8]) -> (i32, Bytes) {
        let method = match find(class.as_bytes(), method.as_bytes()) {
            Found::Method(method) => method,
            Found::NoMethod | Found::NotImplemented => return (Errno::EOPNOTSUPP.negative(), Bytes::new()),
            Found::NoClass => return (Errno::EPERM.negative(), Bytes::new()),
        };
        if !self.may_be_called(method) {
            return (Errno::ENOENT.negative(), Bytes::new());
        }
        let before = self.content.clone();
        let (code, output) =
            self.attempt(method, input).expect("only an object that lacks something has a method run again");
        if code < 0 {
            self.content = before;
        } else if method.access.writes() {
            self.version += 1;
        }
        (code, output)
    }

    /// One run of a method; `None` if it lacks something. What it changed stays.
    pub fn attempt(&mut self, method: &Method, input: &[u8]) -> Option<(i32, Bytes)> {
        (self.uses, self.steps) = (Uses::default(), 0);
        method.call(self, Bytes::copy_from_slice(input))
    }

    /// Methods that only read are not called without the object.
    pub fn may_be_called(&self, method: &Method) -> bool {
        method.access != Access::Read || self.content.is_some()
    }

    /// [`Self::call`] of a method that must succeed.
    pub fn ok(&mut self, class: &str, method: &str, input: &[u8]) -> Bytes {
        let (code, output) = self.call(class, method, input);
        assert!(code >= 0, "{class}.{method} answers {code}");
        output
    }

    /// [`Self::call`] of which only the code counts.
    pub fn code(&mut self, class: &str, method: &str, input: &[u8]) -> i32 {
        self.call(class, method, input).0
    }

    fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        if self.lacking == Some(self.steps - 1) { Err(Fault::Later) } else { Ok(()) }
    }

    fn reading(&mut self) -> Result<(), Fault> {
        self.step()?;
        self.uses.read = true;
        Ok(())
    }

    /// For changes that need the object.
    fn changing(&mut self) -> Result<&mut Content, Fault> {
        self.step()?;
        self.uses.wrote = true;
        self.content.as_mut().ok_or(Fault::Errno(Errno::ENOENT))
    }

    /// For changes that make the object.
    fn creating(&mut self) -> Result<&mut Content, Fault> {
        self.step()?;
        self.uses.wrote = true;
        Ok(self.content.get_or_insert_default())
    }

    fn there(&self) -> Result<&Content, Fault> {
        self.content.as_ref().ok_or(Fault::Errno(Errno::ENOENT))
    }
}

fn check_extent(offset: u64, len: u64) -> Result<(), Fault> {
    let fits = offset < SIZE_MAX && offset.checked_add(len).is_some_and(|end| end <= SIZE_MAX);
    if fits { Ok(()) } else { Err(Errno::EFBIG.into()) }
}

/// The data with `edit` done to the range, grown by zeros where it must.
fn edited(data: &Bytes, offset: u64, len: u64, edit: impl FnOnce(&mut [u8])) -> Bytes {
    let (from, to) = (offset as usize, (offset + len) as usize);
    let mut data = BytesMut::from(&data[..]);
    data.resize(data.len().max(to), 0);
    edit(&mut data[from..to]);
    data.freeze()
}

impl Object for MemObject {
    fn exists(&self) -> bool {
        self.content.is_some()
    }

    fn stat(&mut self) -> Result<(u64, WallTime), Fault> {
        self.step()?;
        let content = self.there()?;
        Ok((content.data.len() as u64, content.mtime))
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Fault> {
        self.reading()?;
        let Some(content) = &self.content else { return Ok(Bytes::new()) };
        let size = content.data.len() as u64;
        let len = if len == 0 { size } else { len };
        let from = offset.min(size);
        Ok(content.data.slice(from as usize..(from + len.min(size - from)) as usize))
    }

    fn create(&mut self, exclusive: bool) -> Result<(), Fault> {
        let there = self.exists();
        if exclusive && there {
            self.uses.wrote = true;
            return Err(Errno::EEXIST.into());
        }
        self.creating().map(drop)
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Fault> {
        check_extent(offset, data.len() as u64)?;
        let content = self.creating()?;
        content.data = edited(&content.data, offset, data.len() as u64, |range| range.copy_from_slice(&data));
        Ok(())
    }

    fn write_full(&mut self, data: Bytes) -> Result<(), Fault> {
        check_extent(0, data.len() as u64)?;
        self.creating()?.data = data;
        Ok(())
    }

    fn truncate(&mut self, size: u64) -> Result<(), Fault> {
        check_extent(size, 0)?;
        if !self.exists() {
            self.uses.wrote = true;
            return self.step();
        }
        let content = self.changing()?;
        let mut data = BytesMut::from(&content.data[..]);
        data.resize(size as usize, 0);
        content.data = data.freeze();
        Ok(())
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        let size = self.content.as_ref().map_or(0, |content| content.data.len() as u64);
        if offset.saturating_add(len) >= size {
            return if offset >= size { Ok(()) } else { self.truncate(offset) };
        }
        if len == 0 {
            return Err(Errno::EINVAL.into());
        }
        let content = self.changing()?;
        content.data = edited(&content.data, offset, len, |range| range.fill(0));
        Ok(())
    }

    fn remove(&mut self) -> Result<(), Fault> {
        self.changing()?;
        self.content = None;
        Ok(())
    }

    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Fault> {
        self.reading()?;
        self.there()?.xattrs.get(name).cloned().ok_or(Fault::Errno(Errno::ENODATA))
    }

    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Fault> {
        self.reading()?;
        Ok(self.there()?.xattrs.clone())
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Fault> {
        let name = Bytes::copy_from_slice(name);
        self.creating()?.xattrs.insert(name, value);
        Ok(())
    }

    fn remove_xattr(&mut self, name: &[u8]) -> Result<(), Fault> {
        self.changing()?.xattrs.remove(name);
        Ok(())
    }

    fn omap_get(&mut self, key: &[u8]) -> Result<Bytes, Fault> {
        self.reading()?;
        self.there()?.omap.get(key).cloned().ok_or(Fault::Errno(Errno::ENOENT))
    }

    fn omap_list(
        &mut self,
        start_after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Fault> {
        self.reading()?;
        let Some(content) = &self.content else { return Ok((Vec::new(), false)) };
        let after = content.omap.range::<[u8], _>((Bound::Excluded(start_after), Bound::Unbounded));
        let mut matching =
            after.filter(|(key, _)| key.starts_with(prefix)).map(|(key, value)| (key.clone(), value.clone()));
        let entries = matching.by_ref().take(max.min(OMAP_ENTRIES_MAX)).collect();
        Ok((entries, matching.next().is_some()))
    }

    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Fault> {
        self.creating()?.omap.extend(entries);
        Ok(())
    }

    fn omap_remove(&mut self, keys: BTreeSet<Bytes>) -> Result<(), Fault> {
        self.changing()?.omap.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    fn omap_remove_range(&mut self, from: Bytes, to: Bytes) -> Result<(), Fault> {
        self.changing()?.omap.retain(|key, _| *key < from || *key >= to);
        Ok(())
    }

    fn omap_clear(&mut self) -> Result<(), Fault> {
        let content = self.changing()?;
        content.omap.clear();
        content.omap_header = Bytes::new();
        Ok(())
    }

    fn omap_header(&mut self) -> Result<Bytes, Fault> {
        self.reading()?;
        Ok(self.content.as_ref().map(|content| content.omap_header.clone()).unwrap_or_default())
    }

    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Fault> {
        self.creating()?.omap_header = header;
        Ok(())
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn now(&self) -> WallTime {
        self.now
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn snap_seq(&mut self) -> Result<u64, Fault> {
        Ok(self.there()?.snap_seq)
    }

    fn watchers(&mut self) -> Result<Vec<Origin>, Fault> {
        self.reading()?;
        Ok(self.watchers.clone())
    }

    fn operation_index(&self) -> u32 {
        self.steps
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn uses(&self) -> Uses {
        self.uses
    }
}
