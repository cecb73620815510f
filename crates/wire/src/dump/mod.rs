//! Maps as Ceph's commands print them, plain and as JSON, field for field.
//!
//! Scripts parse both forms, so names, order and oddities are Ceph's. Numbers
//! in JSON are equal, not alike: Ceph writes 17 digits of a fraction, we write
//! the fewest that read back the same.
//!
//! What this module must not know: who asked, and for which format; the
//! monitor appends what a command adds (`ceph osd dump -f json` ends with a
//! newline, `ceph osd pool ls detail -f json` does not).
//!
//! Source: Ceph 16.2.15, src/osd/OSDMap.cc, src/osd/osd_types.cc,
//! src/mon/MonMap.cc, and captured outputs (`fixtures/16.2.15`).

mod addr;
mod mon_map;
mod number;
mod osd_map;
mod osd_map_text;
mod pg_pool;
mod snaps;
mod time;

pub use addr::{addrs, addrs_text, legacy_addr_text};
pub use mon_map::{mon_map, mon_map_text};
pub use number::{general, number};
pub use osd_map::{min_compat_client, osd_map};
pub use osd_map_text::{osd_map_text, pools_detail_text};
pub use pg_pool::{pg_pool, pool_text, pools_detail};
pub use snaps::{snap_intervals_text, snap_text};
pub use time::{wall_time, wall_time_utc};
