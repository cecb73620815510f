//! The objects that a workload writes and reads, and what is known of each.

use crate::content::{self, Mismatch};
use crate::size_mix::SizeMix;
use base::Random;
use bytes::Bytes;

/// What is known of an object's content in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Absent,
    /// Acknowledged.
    Version(u64),
    /// A write failed or was given up: it may have taken effect.
    Unknown,
}

struct Object {
    len: usize,
    content: Content,
    /// The last version handed out.
    newest: u64,
    readers: u32,
    written: bool,
}

/// Objects `PREFIX0`, `PREFIX1`, … in one pool.
///
/// While a write of an object is in flight nobody else touches it, so that
/// what a read must return is always known.
pub struct ObjectSet {
    prefix: String,
    seed: u64,
    objects: Vec<Object>,
}

impl ObjectSet {
    /// `seed` decides lengths and contents.
    pub fn new(prefix: &str, count: usize, sizes: &SizeMix, seed: u64) -> ObjectSet {
        let mut random = Random::from_seed(seed);
        let object = |_| Object {
            len: sizes.draw(&mut random),
            content: Content::Absent,
            newest: 0,
            readers: 0,
            written: false,
        };
        ObjectSet { prefix: prefix.into(), seed, objects: (0..count).map(object).collect() }
    }

    /// Objects, whether written yet or not.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Objects that the cluster has acknowledged, and their bytes.
    pub fn stored(&self) -> (u64, u64) {
        let stored = self.objects.iter().filter(|o| matches!(o.content, Content::Version(_)));
        stored.fold((0, 0), |(count, bytes), o| (count + 1, bytes + o.len as u64))
    }

    /// Whether any object may be in the cluster, or was.
    pub fn is_touched(&self) -> bool {
        self.objects.iter().any(|o| o.newest > 0)
    }

    pub fn name(&self, index: usize) -> String {
        format!("{}{index}", self.prefix)
    }

    pub(crate) fn object_len(&self, index: usize) -> usize {
        self.objects[index].len
    }

    pub(crate) fn content(&self, index: usize) -> Content {
        self.objects[index].content
    }

    pub(crate) fn is_writable_now(&self, index: usize) -> bool {
        let object = &self.objects[index];
        !object.written && object.readers == 0
    }

    pub(crate) fn is_readable_now(&self, index: usize) -> bool {
        let object = &self.objects[index];
        !object.written && matches!(object.content, Content::Version(_))
    }

    /// The next version's number and content.
    pub(crate) fn begin_write(&mut self, index: usize) -> (u64, Bytes) {
        let name = self.name(index);
        let object = &mut self.objects[index];
        assert!(!object.written && object.readers == 0, "one writer alone");
        object.written = true;
        object.newest += 1;
        (object.newest, content::generate(self.seed, &name, object.newest, object.len))
    }

    pub(crate) fn begin_remove(&mut self, index: usize) {
        let object = &mut self.objects[index];
        assert!(!object.written && object.readers == 0, "one writer alone");
        object.written = true;
    }

    pub(crate) fn end_write(&mut self, index: usize, outcome: Content) {
        let object = &mut self.objects[index];
        object.written = false;
        object.content = outcome;
    }

    /// The version that a read must return.
    pub(crate) fn begin_read(&mut self, index: usize) -> u64 {
        let object = &mut self.objects[index];
        let Content::Version(version) = object.content else { panic!("only what is stored is read") };
        object.readers += 1;
        version
    }

    pub(crate) fn end_read(&mut self, index: usize) {
        self.objects[index].readers -= 1;
    }

    pub(crate) fn check(&self, index: usize, version: u64, found: &[u8]) -> Result<(), Mismatch> {
        content::check(self.seed, &self.name(index), version, self.objects[index].len, found)
    }
}
