//! The maps of a cluster without a file system, for clients and tools that
//! subscribe to them whether there is one or not.
//!
//! Source: Ceph 16.2.15, src/mds/{FSMap,MDSMap}.cc.

use bytes::Bytes;
use wire::codec::Encoder;
use wire::messages::Outgoing;
use wire::types::Uuid;

pub const FS_MAP_EPOCH: u32 = 1;

const MDS_MAP: u16 = 21;
const FS_MAP: u16 = 45;
const FS_MAP_USER: u16 = 103;

/// The on-disk features that a file system would have, by id; 7 is missing as in Ceph.
pub const DEFAULT_INCOMPAT: [(u64, &str); 9] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
];

fn message(kind: u16, version: u16, front: Bytes) -> Outgoing {
    Outgoing { kind, version, compat: 1, tid: 0, priority: 127, front, data: Vec::new() }
}

fn compat_set(e: &mut Encoder) {
    // compat and ro_compat are empty but for the mask's lowest bit, which is always set.
    for _ in 0..2 {
        e.u64(1);
        e.count(0);
    }
    e.u64(DEFAULT_INCOMPAT.iter().fold(1, |mask, (id, _)| mask | 1 << id));
    e.count(DEFAULT_INCOMPAT.len());
    for (id, name) in DEFAULT_INCOMPAT {
        e.u64(id);
        e.string(name);
    }
}

/// `MFSMap` without file systems.
pub fn fs_map() -> Outgoing {
    let mut e = Encoder::plain();
    e.u32(FS_MAP_EPOCH);
    e.versioned(7, 6, |e| {
        e.u32(FS_MAP_EPOCH);
        e.u64(1); // next id
        e.i32(-1); // no legacy client's file system
        compat_set(e);
        e.bool(true); // several file systems are allowed
        e.count(0); // file systems
        e.count(0); // roles
        e.count(0); // standbys
        e.count(0); // their epochs
        e.bool(true);
    });
    message(FS_MAP, 1, e.finish())
}

/// `MFSMapUser` without file systems.
pub fn fs_map_user() -> Outgoing {
    let mut e = Encoder::plain();
    e.u32(FS_MAP_EPOCH);
    e.versioned(1, 1, |e| {
        e.u32(FS_MAP_EPOCH);
        e.i32(-1);
        e.count(0);
    });
    message(FS_MAP_USER, 1, e.finish())
}

/// `MMDSMap` of no file system.
pub fn mds_map(fsid: Uuid) -> Outgoing {
    let mut e = Encoder::plain();
    e.put(&fsid);
    e.u32(FS_MAP_EPOCH);
    e.sized(encode_mds_map);
    e.string("");
    message(MDS_MAP, 2, e.finish())
}

fn encode_mds_map(e: &mut Encoder) {
    e.versioned(5, 4, |e| {
        e.u32(FS_MAP_EPOCH);
        e.u32(0x12); // flags
        e.u32(0); // last failure
        e.i32(0); // root
        e.u32(60); // session timeout
        e.u32(300); // session autoclose
        e.u64(1 << 40); // largest file
        e.i32(1); // max_mds
        e.count(0); // daemons
        e.count(0); // data pools
        e.i64(-1); // content-addressable pool
        e.u16(16);
        compat_set(e);
        e.i64(-1); // metadata pool
        e.raw(&[0; 16]); // created, modified
        e.i32(0); // table server
        for _ in 0..5 {
            e.count(0); // in, inc, up, failed, stopped
        }
        e.u32(0); // last failure's OSD epoch
        e.u8(0);
        e.u8(0);
        e.bool(false); // inline data
        e.bool(false); // not enabled
        e.string("cephfs");
        e.count(0); // damaged
        e.string("");
        e.i32(-1); // standbys wanted
        e.i32(1); // old max_mds
        e.u8(0); // oldest client release
        e.count(0); // client features
    });
}
