//! Object classes: methods that clients CALL on an object, run by the OSD
//! inside the operation's transaction.
//!
//! One file (or folder) per class, one function per method. A method sees the
//! object through [`Object`] only: it reads its own earlier writes, it cannot
//! wait, and it cannot reach another object. When it needs data that is not in
//! memory, the read fails with [`Fault::Later`], which the method passes up
//! with `?`; the OSD fetches the data and runs the whole request again.
//!
//! Source: Ceph `src/objclass/objclass.h`, `src/cls/*`.

// The name by which the fuzz target's body knows us.
#[cfg(test)]
extern crate self as cls;
#[cfg(test)]
#[path = "../../../fuzz/src/classes.rs"]
mod fuzz_classes;
#[cfg(test)]
mod fuzz_smoke;
mod hello;
mod lock;
mod log;
mod numops;
pub mod object;
mod rbd;
mod refcount;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time_key;
mod timeindex;
mod version;

pub use object::{Fault, Object, Origin, Output, Uses};

use base::Errno;
use bytes::Bytes;

/// What a method may do; decides whether its request is a read or a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    ReadWrite,
}

impl Access {
    /// The request takes a version and is replicated.
    pub fn writes(self) -> bool {
        self != Access::Read
    }

    fn reads(self) -> bool {
        self != Access::Write
    }
}

/// One method of a class.
pub struct Method {
    pub name: &'static str,
    pub access: Access,
    /// Arguments in Ceph's encoding; the answer as the client decodes it.
    pub run: fn(&mut dyn Object, Bytes) -> Output,
}

impl Method {
    /// The operation's return code and output; `None` when it must run again with
    /// what it lacks.
    ///
    /// A method that did what its access does not say fails with EIO.
    pub fn call(&self, object: &mut dyn Object, input: Bytes) -> Option<(i32, Bytes)> {
        let (code, output) = match (self.run)(object, input) {
            Ok(output) => (0, output),
            Err(Fault::Errno(errno)) => (errno.negative(), Bytes::new()),
            Err(Fault::Code(code, output)) => (code, output),
            Err(Fault::Later) => return None,
        };
        let uses = object.uses();
        if uses.read && !self.access.reads() || uses.wrote && !self.access.writes() {
            return Some((Errno::EIO.negative(), Bytes::new()));
        }
        Some((code, output))
    }
}

/// What the OSD knows about a called name.
#[derive(Clone, Copy)]
pub enum Found {
    Method(&'static Method),
    /// The class is there, the method is not: `-EOPNOTSUPP`.
    NoMethod,
    /// Ceph 16.2 has this class, Loligo has not: `-EOPNOTSUPP`.
    NotImplemented,
    /// No class of that name: `-EPERM`, whatever else the request holds.
    NoClass,
}

/// Every class and its methods, by name.
const CLASSES: &[(&str, &[Method])] = &[
    ("hello", hello::METHODS),
    ("lock", lock::METHODS),
    ("log", log::METHODS),
    ("numops", numops::METHODS),
    ("rbd", rbd::METHODS),
    ("refcount", refcount::METHODS),
    ("timeindex", timeindex::METHODS),
    ("version", version::METHODS),
];

/// `osd_class_load_list`: the other classes that Ceph 16.2 would load.
const NOT_IMPLEMENTED: &[&str] = &["cas", "cephfs", "journal", "otp", "rgw", "user"];

/// Finds a method by the names a CALL carries.
pub fn find(class: &[u8], method: &[u8]) -> Found {
    match CLASSES.iter().find(|(name, _)| name.as_bytes() == class) {
        Some((_, methods)) => match methods.iter().find(|known| known.name.as_bytes() == method) {
            Some(known) => Found::Method(known),
            None => Found::NoMethod,
        },
        None if NOT_IMPLEMENTED.iter().any(|name| name.as_bytes() == class) => Found::NotImplemented,
        None => Found::NoClass,
    }
}
