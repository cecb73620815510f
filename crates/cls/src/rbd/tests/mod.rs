//! The class on an object in memory.

mod hostile;
mod real_ceph;
