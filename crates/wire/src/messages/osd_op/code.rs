//! Operation codes and flags.
//!
//! Source: Ceph `src/include/rados.h`.

use std::fmt;

/// `CEPH_OSD_OP_*`: mode bits, type bits and a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpCode(pub u16);

macro_rules! codes {
    ($($name:ident = $value:literal;)*) => {
        impl OpCode {
            $(pub const $name: OpCode = OpCode($value);)*

            /// Ceph's name for it, lower case with dashes where a log prints it; empty if unknown.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "" }
            }
        }
    };
}

codes! {
    READ = 0x1201;
    STAT = 0x1202;
    MAPEXT = 0x1203;
    SPARSE_READ = 0x1205;
    NOTIFY = 0x1206;
    NOTIFY_ACK = 0x1207;
    ASSERT_VER = 0x1208;
    LIST_WATCHERS = 0x1209;
    LIST_SNAPS = 0x120a;
    SYNC_READ = 0x120b;
    TMAPGET = 0x120c;
    OMAPGETKEYS = 0x1211;
    OMAPGETVALS = 0x1212;
    OMAPGETHEADER = 0x1213;
    OMAPGETVALSBYKEYS = 0x1214;
    OMAP_CMP = 0x1219;
    COPY_GET = 0x121e;
    CHECKSUM = 0x121f;
    CMPEXT = 0x1220;
    ISDIRTY = 0x121b;
    GETXATTR = 0x1301;
    GETXATTRS = 0x1302;
    CMPXATTR = 0x1303;
    CALL = 0x1401;
    PGLS = 0x1501;
    PGLS_FILTER = 0x1502;
    PG_HITSET_LS = 0x1503;
    PG_HITSET_GET = 0x1504;
    PGNLS = 0x1505;
    PGNLS_FILTER = 0x1506;
    SCRUBLS = 0x1507;
    WRITE = 0x2201;
    WRITEFULL = 0x2202;
    TRUNCATE = 0x2203;
    ZERO = 0x2204;
    DELETE = 0x2205;
    APPEND = 0x2206;
    SETTRUNC = 0x2208;
    TRIMTRUNC = 0x2209;
    TMAPPUT = 0x220b;
    CREATE = 0x220d;
    ROLLBACK = 0x220e;
    WATCH = 0x220f;
    OMAPSETVALS = 0x2215;
    OMAPSETHEADER = 0x2216;
    OMAPCLEAR = 0x2217;
    OMAPRMKEYS = 0x2218;
    COPY_FROM = 0x221a;
    UNDIRTY = 0x221c;
    TMAP2OMAP = 0x2222;
    SETALLOCHINT = 0x2223;
    WRITESAME = 0x2226;
    OMAPRMKEYRANGE = 0x222c;
    COPY_FROM2 = 0x222d;
    SETXATTR = 0x2301;
    SETXATTRS = 0x2302;
    RESETXATTRS = 0x2303;
    RMXATTR = 0x2304;
    TMAPUP = 0x320a;
}

const MODE_WRITE: u16 = 0x2000;
const TYPE_MASK: u16 = 0x0f00;
const TYPE_PG: u16 = 0x0500;

impl OpCode {
    /// By its mode bits; for `CALL` the method decides instead.
    pub fn is_write(self) -> bool {
        self.0 & MODE_WRITE != 0
    }

    /// Addressed to a PG rather than an object.
    pub fn is_pg_op(self) -> bool {
        self.0 & TYPE_MASK == TYPE_PG
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => write!(f, "op {:#06x}", self.0),
            name => f.write_str(name),
        }
    }
}

impl fmt::Debug for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `CEPH_OSD_FLAG_*`: of the whole message.
pub mod flags {
    pub const ACK: u32 = 0x1;
    pub const ONDISK: u32 = 0x4;
    pub const RETRY: u32 = 0x8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    pub const ORDERSNAP: u32 = 0x40;
    pub const BALANCE_READS: u32 = 0x100;
    pub const PGOP: u32 = 0x400;
    pub const LOCALIZE_READS: u32 = 0x2000;
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_CACHE: u32 = 0x8000;
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    pub const FULL_TRY: u32 = 0x80_0000;
    pub const FULL_FORCE: u32 = 0x100_0000;
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    pub const RETURNVEC: u32 = 0x400_0000;
    pub const SUPPORTSPOOLEIO: u32 = 0x800_0000;
}

/// `CEPH_OSD_OP_FLAG_*`: of one operation.
pub mod op_flags {
    pub const EXCL: u32 = 0x1;
    pub const FAILOK: u32 = 0x2;
    pub const FADVISE_RANDOM: u32 = 0x4;
    pub const FADVISE_SEQUENTIAL: u32 = 0x8;
    pub const FADVISE_WILLNEED: u32 = 0x10;
    pub const FADVISE_DONTNEED: u32 = 0x20;
    pub const FADVISE_NOCACHE: u32 = 0x40;
}
