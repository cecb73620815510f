//! CALL: a method of an object class runs on the staged object.
//!
//! Source: Ceph `src/osd/PrimaryLogPG.cc` (`do_osd_ops`), `src/osd/objclass.cc`:
//! there, each use of the object by a method is an operation like any other, and so
//! it is here.

use super::{Done, OpEnd, StagedObject, Stop, Surroundings, omap, read, write, xattr};
use crate::exec::classify::{Call, call_of};
use crate::exec::limits;
use base::{Errno, Random, WallTime};
use bytes::Bytes;
use cls::object::OMAP_ENTRIES_MAX;
use cls::{Fault, Found, Object, Origin, Uses};
use std::collections::{BTreeMap, BTreeSet};
use wire::messages::OsdOp;
use wire::messages::osd_op::ExtentArgs;

const _: () = assert!(OMAP_ENTRIES_MAX as u64 == limits::OMAP_ENTRIES_MAX);

pub(super) fn call(object: &mut StagedObject<'_>, op: &OsdOp, around: &Surroundings<'_>) -> OpEnd {
    // That the names are there and known was checked before any operation ran.
    let Some(Call { found: Found::Method(method), input, class, method: name }) = call_of(op) else {
        return Err(Errno::EOPNOTSUPP.into());
    };
    let input = input.ok_or(Errno::EINVAL)?;
    let seed = around.context.seed ^ u64::from(object.uses);
    let blind = around.context.ignore_lock_holders && class == "lock" && name == "lock";
    let random = Random::from_seed(seed);
    let mut host = Host { object, around, uses: Uses::default(), random, stop: None, blind };
    let answer = method.call(&mut host, input);
    match (host.stop, answer) {
        (Some(stop), _) => Err(stop),
        (None, Some((code, outdata))) => Ok(Done { code: Some(code), outdata, long: Vec::new() }),
        (None, None) => Err(Errno::EIO.into()),
    }
}

/// The staged object as a method sees it.
struct Host<'a, 'o, 's> {
    object: &'a mut StagedObject<'o>,
    around: &'a Surroundings<'s>,
    uses: Uses,
    random: Random,
    /// What [`Fault::Later`] stood for.
    stop: Option<Stop>,
    /// Sees no xattr.
    blind: bool,
}

impl Host<'_, '_, '_> {
    /// One use of the object, which does as an operation would.
    fn operate<T>(
        &mut self,
        operation: impl FnOnce(&mut StagedObject<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        let end = operation(self.object);
        self.object.uses += 1;
        match end {
            Ok(done) => Ok(done),
            Err(Stop::Code(code)) => Err(Fault::Errno(Errno(-code))),
            Err(stop) => {
                self.stop.get_or_insert(stop);
                Err(Fault::Later)
            }
        }
    }

    fn reading<T>(
        &mut self,
        read: impl FnOnce(&mut StagedObject<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        self.uses.read = true;
        self.operate(read)
    }

    fn writing<T>(
        &mut self,
        write: impl FnOnce(&mut StagedObject<'_>) -> Result<T, Stop>,
    ) -> Result<(), Fault> {
        self.uses.wrote = true;
        self.operate(write).map(drop)
    }
}

fn require(object: &StagedObject<'_>) -> Result<(), Stop> {
    if object.exists { Ok(()) } else { Err(Errno::ENOENT.into()) }
}

impl Object for Host<'_, '_, '_> {
    fn exists(&self) -> bool {
        self.object.exists
    }

    fn stat(&mut self) -> Result<(u64, WallTime), Fault> {
        self.operate(|object| {
            require(object)?;
            Ok((object.size, object.info.mtime))
        })
    }

    fn read(&mut self, offset: u64, len: u64) -> Result<Bytes, Fault> {
        self.reading(|object| {
            let (offset, len) = read::readable(object, ExtentArgs::new(offset, len));
            object.read(offset, len)
        })
    }

    fn create(&mut self, exclusive: bool) -> Result<(), Fault> {
        self.writing(|object| {
            if exclusive && object.exists {
                return Err(Errno::EEXIST.into());
            }
            object.create();
            Ok(())
        })
    }

    fn write(&mut self, offset: u64, data: Bytes) -> Result<(), Fault> {
        let args = ExtentArgs::new(offset, data.len() as u64);
        self.writing(|object| write::write(object, args, data))
    }

    fn write_full(&mut self, data: Bytes) -> Result<(), Fault> {
        let args = ExtentArgs::new(0, data.len() as u64);
        self.writing(|object| write::write_full(object, args, data))
    }

    fn truncate(&mut self, size: u64) -> Result<(), Fault> {
        self.writing(|object| write::truncate(object, ExtentArgs::new(size, 0)))
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<(), Fault> {
        self.writing(|object| write::zero(object, ExtentArgs::new(offset, len)))
    }

    fn remove(&mut self) -> Result<(), Fault> {
        self.writing(write::delete)
    }

    fn xattr(&mut self, name: &[u8]) -> Result<Bytes, Fault> {
        let blind = self.blind;
        self.reading(|object| {
            require(object)?;
            if blind {
                return Err(xattr::no_attr(object));
            }
            object.xattr(name)?.ok_or_else(|| xattr::no_attr(object))
        })
    }

    fn xattrs(&mut self) -> Result<BTreeMap<Bytes, Bytes>, Fault> {
        self.reading(|object| {
            require(object)?;
            object.xattrs()
        })
    }

    fn set_xattr(&mut self, name: &[u8], value: Bytes) -> Result<(), Fault> {
        self.writing(|object| {
            xattr::check_lengths(name.len(), value.len())?;
            object.set_xattr(name, value);
            Ok(())
        })
    }

    fn remove_xattr(&mut self, name: &[u8]) -> Result<(), Fault> {
        self.writing(|object| {
            require(object)?;
            object.rm_xattr(name);
            Ok(())
        })
    }

    fn omap_get(&mut self, key: &[u8]) -> Result<Bytes, Fault> {
        self.reading(|object| {
            let value = if object.exists { object.omap_get(key)? } else { None };
            value.ok_or(Errno::ENOENT.into())
        })
    }

    fn omap_list(
        &mut self,
        start_after: &[u8],
        prefix: &[u8],
        max: usize,
    ) -> Result<(Vec<(Bytes, Bytes)>, bool), Fault> {
        self.reading(|object| {
            let page = omap::entries(object, start_after, prefix, max as u64)?;
            Ok((page.entries, page.more))
        })
    }

    fn omap_set(&mut self, entries: BTreeMap<Bytes, Bytes>) -> Result<(), Fault> {
        self.writing(|object| omap::set_entries(object, entries))
    }

    fn omap_remove(&mut self, keys: BTreeSet<Bytes>) -> Result<(), Fault> {
        self.writing(|object| {
            require(object)?;
            object.rm_omap(keys)
        })
    }

    fn omap_remove_range(&mut self, from: Bytes, to: Bytes) -> Result<(), Fault> {
        self.writing(|object| {
            require(object)?;
            object.rm_omap_range(from, to)
        })
    }

    fn omap_clear(&mut self) -> Result<(), Fault> {
        self.writing(omap::clear)
    }

    fn omap_header(&mut self) -> Result<Bytes, Fault> {
        self.reading(|object| if object.exists { object.omap_header() } else { Ok(Bytes::new()) })
    }

    fn set_omap_header(&mut self, header: Bytes) -> Result<(), Fault> {
        self.writing(|object| {
            omap::check_value(&header)?;
            object.set_omap_header(header);
            Ok(())
        })
    }

    fn origin(&self) -> Origin {
        self.around.context.origin
    }

    fn now(&self) -> WallTime {
        self.around.context.now
    }

    fn version(&self) -> u64 {
        self.around.context.pg_user_version
    }

    fn snap_seq(&mut self) -> Result<u64, Fault> {
        if self.object.exists { Ok(self.object.before.info.snap_seq) } else { Err(Errno::ENOENT.into()) }
    }

    fn watchers(&mut self) -> Result<Vec<Origin>, Fault> {
        self.reading(|object| {
            let watchers = object.info.watchers.iter();
            Ok(watchers.map(|(key, info)| Origin { name: key.client, addr: info.addr }).collect())
        })
    }

    fn operation_index(&self) -> u32 {
        self.object.uses
    }

    fn random(&mut self) -> u64 {
        self.random.next_u64()
    }

    fn uses(&self) -> Uses {
        self.uses
    }
}
