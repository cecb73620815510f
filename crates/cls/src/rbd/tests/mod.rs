//! The class on an object in memory.

mod bit_vector;
mod hostile;
mod mirror;
mod real_ceph;
