//! What every other crate may lean on: time, randomness, checksums, aligned
//! buffers and errno values. Knows nothing of Ceph's formats, sockets or disks.

pub mod aligned;
pub mod crc;
pub mod errno;
pub mod json;
pub mod memory_use;
pub mod parts;
pub mod random;
pub mod sums;
pub mod time;

pub use aligned::AlignedBuf;
pub use crc::{ceph_crc32c, crc32c};
pub use errno::Errno;
pub use json::Json;
pub use memory_use::MemoryUse;
pub use parts::Part;
pub use random::Random;
pub use time::{Duration, Time, WallTime};
