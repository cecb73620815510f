//! Mirroring to other clusters: the object `rbd_mirroring` of a pool, and those
//! that the mirror daemon's instances share.

mod images;
mod pool;
mod status;

pub use images::*;
pub use pool::*;
pub use status::*;
