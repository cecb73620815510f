#!/usr/bin/python3
"""What the methods of the object class `rbd` answer, and what they leave in their objects.

    rbd_class_semantics.py --conf A/ceph.conf                        compare with the recording of real Ceph
    rbd_class_semantics.py --conf A/ceph.conf --conf B/ceph.conf     print where the two clusters differ
    rbd_class_semantics.py --conf A/ceph.conf --record               record anew, on real Ceph

Each case is a list of steps on one fresh object; recorded are code and output of every call, and at the
end the object's data and omap. Times near now and random uuids are recorded as zeros. The recording
also feeds the unit tests of crates/cls. Needs python3-rados; leaves a pool `rbd_class` behind.
"""
import argparse
import errno
import json
import os
import re
import struct
import sys
import time

import rados

POOL, NAME = "rbd_class", "the object"
RECORDING = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                         "../crates/cls/src/rbd/tests/fixtures/ceph-16.2.15.txt")
HEAD = 2**64 - 2

# --- encoding ---


def u8(v):
    return struct.pack("<B", v)


def u32(v):
    return struct.pack("<I", v)


def u64(v):
    return struct.pack("<Q", v)


def s64(v):
    return struct.pack("<q", v)


def s(v):
    v = v.encode() if isinstance(v, str) else v
    return u32(len(v)) + v


def versioned(version, compat, body):
    return struct.pack("<BBI", version, compat, len(body)) + body


def v1(body):
    return versioned(1, 1, body)


def utime(sec, nsec=0):
    return u32(sec) + u32(nsec)


def str_map(entries):
    return u32(len(entries)) + b"".join(s(k) + s(v) for k, v in sorted(entries.items()))


def parent_spec(pool=3, nspace="", image="p", snap=7):
    return v1(s64(pool) + s(nspace) + s(image) + u64(snap))


def child_spec(pool=3, image="c", nspace="", version=2):
    body = s64(pool) + s(image) + (s(nspace) if version > 1 else b"")
    return versioned(version, 1, body)


USER, UNKNOWN = v1(u32(0)), v1(u32(77))


def in_group(snapshot="gs", group="g", pool=2):
    return v1(u32(1) + s64(pool) + s(group) + s(snapshot))


def in_trash(name="was", kind=0):
    return v1(u32(2) + s(name) + u32(kind))


def mirrored(state=2, peers=("a", "b")):
    body = u8(state) + u8(0) + u32(len(peers)) + b"".join(map(s, peers)) + s("primary") + u64(5) + u64(9)
    return v1(u32(3) + body + u32(1) + u64(1) + u64(2))


def old_snap(snap, name, overlap, version=6):
    """A snapshot's record as releases before Nautilus wrote it, with a parent."""
    parent = v1(s64(3) + s("p") + u64(7) + u64(overlap))
    body = u64(snap) + s(name) + u64(4096) + u64(1)
    if version >= 2:
        body += parent
    if version >= 3:
        body += u8(0)
    if version >= 4:
        body += u64(0)
    if version >= 5:
        body += USER
    if version >= 6:
        body += utime(5, 6)
    return versioned(version, 1, body)


def states(count, **at):
    data = bytearray((count + 3) // 4)
    for index, state in at.items():
        index = int(index[1:])
        data[index // 4] |= state << (2 * (3 - index % 4))
    return bytes(data)


def object_map(count, footer=b"", **at):
    return s(v1(u64(count))) + states(count, **at) + s(footer)


def group_image(image="i", pool=2):
    return v1(s(image) + s64(pool))


def group_spec(group="g", pool=2):
    return v1(s64(pool) + s(group))


def group_snap(id_="1", name="n", state=0, snaps=()):
    body = s(id_) + s(name) + u8(state) + u32(len(snaps))
    return v1(body + b"".join(v1(s64(p) + s(i) + u64(n)) for p, i, n in snaps))


def trash_spec(name="n", state=0, version=2):
    body = u8(0) + s(name) + utime(100, 1) + utime(200, 2) + (u8(state) if version > 1 else b"")
    return versioned(version, 1, body)


def migration_spec(kind=1, source="", version=3):
    body = u8(kind) + s64(2) + s("ns") + s("name") + s("id") + u32(1) + u64(1) + u64(2) + u64(77) + u8(1) + u8(0)
    body += u8(1) + s("text")
    if version >= 2:
        body += u8(1)
    if version >= 3:
        body += s(source)
    return versioned(version, 3 if source else 1, body)


def peer(uuid="u1", site="site", client="client.a", direction=2, mirror_uuid="m", pool=-1, version=2):
    body = s(uuid) + s(site) + s(client) + s64(pool)
    if version >= 2:
        body += u8(direction) + s(mirror_uuid) + utime(7, 8)
    return versioned(version, 1, body)


def mirror_image(global_id="g1", state=1, mode=1, version=2):
    return versioned(version, 1, s(global_id) + u8(state) + (u8(mode) if version > 1 else b""))


def site_status(state=4, text="fine", mirror_uuid="", up=1):
    version = 2 if mirror_uuid else 1
    body = (s(mirror_uuid) if mirror_uuid else b"") + u8(state) + s(text) + utime(1, 2) + u8(up)
    return versioned(version, version, body)


def image_map(instance="4101", data=b"xyz"):
    return v1(s(instance) + utime(9, 9) + s(data))


TEXT, MIGRATING = b"<<< Rados Block Device Image >>>\n\0", b"<<< Migrating RBD Image      >>>\n\0"


def old_header(text=TEXT, seq=0, snaps=()):
    names = b"".join(n.encode() + b"\0" for _, _, n in snaps)
    raw = text.ljust(40, b"\0") + b"rb.0.1".ljust(24, b"\0") + b"RBD\0" + b"001.005\0" + bytes([22, 0, 0, 0])
    raw += u64(1 << 20) + u64(seq) + u32(len(snaps)) + u32(0) + u64(len(names))
    return raw + b"".join(u64(i) + u64(z) for i, z, _ in snaps) + names


# --- steps ---


def call(method, *args):
    return ("call", method, b"".join(args))


def data(content):
    return ("data", content)


def omap(**entries):
    return ("omap", {k.encode(): v for k, v in entries.items()})


LAYERING, STRIPING, LOCK, MAP, DIFF, DEEP, JOURNAL, DATA_POOL, OPS = (1 << i for i in range(9))
MIGRATING_BIT, NON_PRIMARY, DIRTY = 1 << 9, 1 << 10, 1 << 11
REMOVE = ("remove",)


def create(size=1 << 30, order=22, features=LAYERING, prefix="rbd_data.1", pool=-1):
    return call("create", u64(size), u8(order), u64(features), s(prefix), s64(pool))


def snap_add(name, snap, nspace=None):
    return call("snapshot_add", s(name), u64(snap), nspace or b"")


def cuts(method, *args):
    """The call with its arguments cut short, and with something after them."""
    whole = b"".join(args)
    lengths = sorted({0, 1, len(whole) // 2, len(whole) - 1} - {len(whole), -1})
    return [call(method, whole[:n]) for n in lengths] + [call(method, whole + b"\0")]


SNAPCONTEXT, LIMIT = call("get_snapcontext"), call("snapshot_get_limit")
ALL_SNAPS = [SNAPCONTEXT] + [call("snapshot_get", u64(n)) for n in (3, 5, 9)] + [call("op_features_get")]

# --- cases ---


def header_cases():
    gets = ["get_object_prefix", "get_data_pool", "get_stripe_unit_count", "get_create_timestamp",
            "get_access_timestamp", "get_modify_timestamp", "op_features_get", "get_all_features", "snapshot_get_limit"]
    yield "a fresh header", [create(), call("get_size", u64(HEAD)), call("get_features", u64(HEAD), u8(0)),
                             call("get_features", u64(5), u8(1)), call("get_features", u64(HEAD)),
                             call("get_flags", u64(HEAD))] + [call(m) for m in gets]
    yield "create twice", [create(), create(), create(features=1 << 12), create(prefix="")]
    yield "create refused", [create(features=1 << 12), create(features=1 << 63), create(prefix=""), create(features=OPS),
                             create(features=DATA_POOL), create(pool=4), create(features=LAYERING, pool=-2)]
    yield "create with data pool", [create(features=DATA_POOL | MIGRATING_BIT, pool=4), call("get_data_pool")]
    yield "create without pool argument", [call("create", u64(1), u8(22), u64(1), s("p")), call("get_data_pool")]
    yield "create cut", cuts("create", u64(1), u8(22), u64(1), s("p"), s64(-1))
    yield "create, name not UTF-8", [create(prefix=b"\xff\xfe\0x"), call("get_object_prefix")]
    yield "no header", [data(b"")] + [call(m) for m in gets] + [
        call("get_size", u64(HEAD)), call("get_size", u64(1)), call("get_features", u64(HEAD), u8(0)),
        call("set_size", u64(1)), call("set_features", u64(4), u64(4)), call("get_flags", u64(HEAD)),
        call("get_flags", u64(1)), call("op_features_set", u64(1), u64(1)), SNAPCONTEXT,
        call("set_access_timestamp"), call("set_modify_timestamp"), call("get_access_timestamp")]
    yield "no object", [call(m) for m in gets] + [
        call("get_size", u64(HEAD)), call("set_size", u64(1)), call("set_access_timestamp"), call("set_modify_timestamp"),
        call("op_features_set", u64(1), u64(1)), call("set_stripe_unit_count", u64(1), u64(1)),
        call("set_protection_status", u64(1), u8(1)), call("snapshot_set_limit", u64(2**64 - 1)),
        call("metadata_remove", s("a")), call("set_id", s("abc")), call("snapshot_remove", u64(1)),
        call("snapshot_rename", u64(1), s("x")), call("snapshot_trash_add", u64(1)), snap_add("s", 1),
        call("object_map_update", u64(0), u64(1), u8(1), u8(0)), call("object_map_snap_add"),
        call("object_map_snap_remove", object_map(4)), call("sparsify", u64(4096), u8(1))]
    yield "set_features of no object", [call("set_features", u64(4), u64(4))]
    yield "set_flags of no object", [call("set_flags", u64(4), u64(4))]
    yield "metadata_set of no object", [call("metadata_set", str_map({"a": b"b"}))]
    yield "metadata_set of nothing", [call("metadata_set", str_map({}))]
    yield "snapshot_set_limit of no object", [call("snapshot_set_limit", u64(5))]
    yield "size", [create(), call("set_size", u64(5)), call("get_size", u64(HEAD)), call("get_size", u64(7)),
                   call("set_size", u64(2**64 - 1)), call("get_size", u64(HEAD))] + cuts("set_size", u64(9)) + cuts("get_size", u64(HEAD))
    sets = [(LOCK | MAP, LOCK | MAP), (0, LOCK), (DEEP, DEEP), (0, DEEP), (LAYERING, LAYERING), (0, LAYERING), (0, OPS),
            (OPS, 0), (MIGRATING_BIT, MIGRATING_BIT), (1 << 40, 1 << 40), (0, 1 << 40), (NON_PRIMARY | DIRTY, NON_PRIMARY | DIRTY),
            (0, STRIPING), (0, DATA_POOL), (JOURNAL | DIFF, JOURNAL | DIFF), (2**64 - 1, 0)]
    yield "features", [create(features=LAYERING | DEEP)] + [
        x for f, m in sets for x in (call("set_features", u64(f), u64(m)), call("get_features", u64(HEAD), u8(1)))
    ] + cuts("set_features", u64(4), u64(4)) + cuts("get_features", u64(4), u8(0))
    yield "flags", [create(), call("set_flags", u64(3), u64(1)), call("get_flags", u64(HEAD)),
                    call("set_flags", u64(2), u64(6), u64(HEAD)), call("get_flags", u64(HEAD)), call("set_flags", u64(1), u64(1), u64(9)),
                    snap_add("a", 9), call("get_flags", u64(9)), call("set_flags", u64(4), u64(6), u64(9)), call("get_flags", u64(9)),
                    call("get_flags", u64(HEAD)), call("get_flags", u64(8))] + cuts("set_flags", u64(1), u64(1), u64(HEAD))
    yield "operation features", [create(), call("op_features_set", u64(1), u64(1)), call("op_features_get"),
                                 call("get_features", u64(HEAD), u8(0)), call("op_features_set", u64(0), u64(2)),
                                 call("op_features_set", u64(0), u64(1)), call("op_features_get"),
                                 call("get_features", u64(HEAD), u8(0)), call("op_features_set", u64(0), u64(16)),
                                 call("op_features_set", u64(15), u64(15))] + cuts("op_features_set", u64(0), u64(15))
    yield "stripes", [create(features=STRIPING, order=12), call("get_stripe_unit_count"), call("set_stripe_unit_count", u64(1024), u64(3)),
                      call("get_stripe_unit_count"), call("set_stripe_unit_count", u64(1000), u64(3)),
                      call("set_stripe_unit_count", u64(8192), u64(3)), call("set_stripe_unit_count", u64(0), u64(3)),
                      call("set_stripe_unit_count", u64(1024), u64(0)), call("set_stripe_unit_count", u64(4096), u64(2**40)),
                      call("get_stripe_unit_count")] + cuts("set_stripe_unit_count", u64(512), u64(3))
    yield "stripes without the feature", [create(), call("get_stripe_unit_count"), call("set_stripe_unit_count", u64(1024), u64(3))]
    yield "stripes of a damaged header", [omap(features=u64(STRIPING)), call("get_stripe_unit_count"),
                                          call("set_stripe_unit_count", u64(1024), u64(3)), omap(order=u8(65)), call("get_stripe_unit_count"),
                                          call("set_stripe_unit_count", u64(2), u64(1)), call("set_stripe_unit_count", u64(1), u64(1))]
    yield "timestamps", [create(), call("set_access_timestamp"), call("set_modify_timestamp", b"junk"), call("get_access_timestamp"),
                         call("get_modify_timestamp"), call("get_create_timestamp")]
    damaged = {k: b"\1" for k in ("size", "features", "object_prefix", "snap_seq", "create_timestamp", "access_timestamp",
                                  "modify_timestamp", "data_pool_id", "flags", "op_features", "snap_limit", "stripe_unit")}
    yield "a damaged header", [create(), omap(**damaged)] + [call(m) for m in gets] + [
        call("get_size", u64(HEAD)), call("get_features", u64(HEAD), u8(0)), call("get_flags", u64(HEAD)), call("set_size", u64(1)),
        call("set_features", u64(4), u64(4)), call("set_flags", u64(4), u64(4)), call("op_features_set", u64(1), u64(1)), SNAPCONTEXT,
        snap_add("s", 1), call("parent_get"), call("parent_overlap_get", u64(HEAD)), call("parent_attach", parent_spec(), u64(1), u8(0)),
        call("set_stripe_unit_count", u64(1024), u64(3)), create()]
    yield "id", [call("get_id"), call("set_id", s("abc")), data(b""), call("get_id"), call("set_id", s("")), call("set_id", s("a-b")),
                 call("set_id", s(b"\xe4")), call("set_id", s("1a2B")), call("get_id"), call("set_id", s("other")),
                 call("get_id", b"ignored")] + cuts("set_id", s("xyz"))
    yield "a damaged id", [data(b"\5\0\0\0ab"), call("get_id"), call("set_id", s("abc")), data(b"\1\0"), call("get_id")]
    yield "unknown method", [call("no_such_method"), data(b""), call("no_such_method"), call("")]


def snapshot_cases():
    yield "snapshots", [create(features=LAYERING), snap_add("one", 3, USER), snap_add("two", 5), snap_add("three", 9, in_group())] + ALL_SNAPS + [
        call("get_snapshot_name", u64(3)), call("get_snapshot_timestamp", u64(5)), call("get_size", u64(3)),
        call("set_size", u64(77)), call("get_size", u64(3)), call("get_size", u64(HEAD)),
        call("snapshot_remove", u64(5)), SNAPCONTEXT, call("snapshot_remove", u64(5)), call("snapshot_remove", u64(3)),
        call("snapshot_remove", u64(9)), SNAPCONTEXT]
    yield "snapshots refused", [create(), snap_add("a", 5), snap_add("a", 6), snap_add("b", 5), snap_add("c", 4), snap_add("d", 2**64 - 1),
                                snap_add("d", 2**64 - 2), snap_add("e", 6, UNKNOWN), snap_add("f", 6, v1(b"")), snap_add("g", 6, versioned(2, 2, b"")),
                                snap_add("a", 7, in_group()), snap_add("a", 8, in_group()), snap_add("a", 8, in_group("other")), SNAPCONTEXT,
                                snap_add("max", 2**64 - 3), SNAPCONTEXT] + cuts("snapshot_add", s("x"), u64(2**64 - 3), USER)
    yield "more than a page of snapshots", [create()] + [snap_add("s%d" % n, n) for n in range(1, 70)] + [
        SNAPCONTEXT, snap_add("s1", 70), snap_add("s69", 70), call("snapshot_remove", u64(33)), call("snapshot_set_limit", u64(67)),
        call("snapshot_set_limit", u64(68)), snap_add("new", 100)]
    yield "snapshot limit", [create(), LIMIT, call("snapshot_set_limit", u64(2)), LIMIT, snap_add("a", 1), snap_add("b", 2), snap_add("c", 3),
                             call("snapshot_set_limit", u64(1)), call("snapshot_set_limit", u64(2**64 - 1)), LIMIT, snap_add("c", 3),
                             call("snapshot_set_limit", u64(3)), snap_add("d", 4), snap_add("a", 5), call("snapshot_set_limit", u64(2**64 - 1)),
                             call("snapshot_set_limit", u64(2**64 - 1))] + cuts("snapshot_set_limit", u64(9))
    yield "snapshot limit zero", [create(), call("snapshot_set_limit", u64(0)), snap_add("a", 1), snap_add("b", 2)]
    yield "rename", [create(), snap_add("a", 3), snap_add("b", 5), snap_add("c", 9, in_group()), call("snapshot_rename", u64(3), s("b")),
                     call("snapshot_rename", u64(3), s("a")), call("snapshot_rename", u64(3), s("x")), call("snapshot_rename", u64(4), s("y")),
                     call("snapshot_rename", u64(9), s("z")), call("snapshot_rename", u64(5), s("c"))] + ALL_SNAPS + cuts("snapshot_rename", u64(3), s("q"))
    yield "protection", [create(), snap_add("a", 3)] + [x for n in (0, 1, 2, 3, 255) for x in (
        call("set_protection_status", u64(3), u8(n)), call("get_protection_status", u64(3)))] + [
        call("snapshot_remove", u64(3)), call("snapshot_trash_add", u64(3)), call("set_protection_status", u64(HEAD), u8(0)),
        call("get_protection_status", u64(HEAD)), call("set_protection_status", u64(4), u8(0)), call("get_protection_status", u64(4)),
        call("set_protection_status", u64(HEAD), u8(9)), call("set_protection_status", u64(3), u8(1)), call("snapshot_remove", u64(3)),
        call("set_protection_status", u64(3), u8(0)), call("snapshot_remove", u64(3))] + cuts("set_protection_status", u64(3), u8(1))
    yield "protection without layering", [create(features=0), snap_add("a", 3), call("set_protection_status", u64(3), u8(1)),
                                          call("get_protection_status", u64(3))]
    yield "snapshot trash", [create(), snap_add("a", 3), snap_add("b", 5), snap_add("c", 9, in_group()), call("snapshot_trash_add", u64(3)),
                             call("snapshot_trash_add", u64(3)), call("snapshot_trash_add", u64(9)), call("snapshot_trash_add", u64(4))] + ALL_SNAPS + [
        call("get_features", u64(HEAD), u8(0)), snap_add("a", 11), call("child_attach", u64(3), child_spec()), call("snapshot_rename", u64(3), s("n")),
        call("snapshot_remove", u64(3)), call("op_features_get"), call("snapshot_remove", u64(9)), call("op_features_get"),
        call("get_features", u64(HEAD), u8(0))] + cuts("snapshot_trash_add", u64(5))
    yield "snapshot born in the trash", [create(), snap_add("t", 3, in_trash()), snap_add("t", 5, in_trash("different", 1)), snap_add("u", 5, in_trash("was", 3)),
                                         call("op_features_get")] + ALL_SNAPS
    yield "the head is no snapshot", [create()] + [call(m, u64(HEAD)) for m in (
        "get_snapshot_name", "get_snapshot_timestamp", "snapshot_get", "snapshot_remove", "snapshot_trash_add", "children_list")] + [
        call("snapshot_rename", u64(HEAD), s("x"))] + [call(m, u64(1)) for m in ("get_snapshot_name", "get_snapshot_timestamp", "snapshot_get")]
    yield "snapshot getters cut", [create(), snap_add("a", 3)] + [x for m in (
        "get_snapshot_name", "get_snapshot_timestamp", "snapshot_get", "get_flags", "get_protection_status", "children_list") for x in cuts(m, u64(3))]
    yield "damaged snapshots", [create(), snap_add("a", 3), omap(snapshot_0000000000000005=b"\1\2\3")] + ALL_SNAPS + [
        snap_add("b", 9), call("snapshot_remove", u64(3)), call("snapshot_rename", u64(3), s("x")),
        call("get_snapshot_name", u64(5)), call("get_flags", u64(5)), call("get_size", u64(5)), call("set_flags", u64(1), u64(1), u64(5)),
        call("get_protection_status", u64(5)), call("parent_detach"), call("child_attach", u64(5), child_spec()), call("snapshot_set_limit", u64(2))]
    yield "strange snapshot keys", [create(), omap(snapshot_=b"", snapshot_xyz=b"", snapshot_00ff=b"", snapshot_12zz=b"", snapshou=b""), SNAPCONTEXT]
    for version in range(1, 7):
        yield "snapshot of version %d" % version, [
            create(features=LAYERING | DEEP), omap(snapshot_0000000000000003=old_snap(3, "old", 500, version)), call("snapshot_get", u64(3)),
            call("parent_get"), call("parent_overlap_get", u64(3)), call("get_parent", u64(3)), call("get_parent", u64(HEAD)),
            call("set_flags", u64(1), u64(1), u64(3)), call("parent_get"), call("parent_overlap_get", u64(3)),
            call("parent_overlap_get", u64(HEAD)), call("get_parent", u64(3)), call("snapshot_remove", u64(3)), call("parent_get")]
    yield "an old snapshot of a clone", [
        create(features=LAYERING | DEEP), omap(snapshot_0000000000000003=old_snap(3, "old", 500)), call("parent_attach", parent_spec(image="q"), u64(600), u8(0)),
        call("snapshot_rename", u64(3), s("new")), call("parent_get"), call("parent_detach"), call("parent_get"), call("parent_overlap_get", u64(3))]
    yield "a record under another's key", [create(), omap(snapshot_0000000000000003=old_snap(8, "x", 0)), call("snapshot_get", u64(3)),
                                           call("snapshot_rename", u64(3), s("y")), SNAPCONTEXT]


def parent_cases():
    clone = [create(size=1000), call("parent_attach", parent_spec(), u64(4000), u8(0))]
    asks = [call("parent_get"), call("parent_overlap_get", u64(HEAD)), call("parent_overlap_get", u64(3)), call("get_parent", u64(HEAD)), call("get_parent", u64(3))]
    yield "no parent", [create()] + asks + [call("parent_detach"), call("remove_parent")]
    yield "no layering", [create(features=0)] + asks + [call("parent_attach", parent_spec(), u64(5), u8(0)), call("parent_detach"), call("remove_parent"),
                                                        call("set_parent", s64(3), s("p"), u64(7), u64(5))]
    yield "no object for a parent", asks + [call("parent_attach", parent_spec(), u64(5), u8(0)), call("parent_detach"), call("remove_parent")]
    yield "no features for a parent", [data(b"")] + asks + [call("parent_attach", parent_spec(), u64(5), u8(0)), call("parent_detach"), call("remove_parent")]
    yield "parent", clone + asks + [call("parent_attach", parent_spec(), u64(5), u8(0)), call("parent_attach", parent_spec(image="q"), u64(500), u8(1))] + asks + [
        call("set_size", u64(300)), call("parent_overlap_get", u64(HEAD)), call("set_size", u64(900)), call("parent_overlap_get", u64(HEAD)),
        call("parent_detach")] + asks + [call("parent_detach"), call("parent_attach", parent_spec(nspace="ns"), u64(5))] + asks + [
        call("remove_parent"), call("parent_detach")]
    yield "parent refused", [create()] + [call("parent_attach", x, u64(o), u8(0)) for x, o in (
        (parent_spec(pool=-1), 5), (parent_spec(image=""), 5), (parent_spec(snap=HEAD), 5), (parent_spec(), 0))] + cuts(
        "parent_attach", parent_spec(), u64(5), u8(0)) + cuts("set_parent", s64(3), s("p"), u64(7), u64(5)) + [
        call("parent_attach", versioned(2, 2, b""), u64(5))]
    yield "parent, first form", [create(), call("set_parent", s64(3), s("p"), u64(7), u64(5))] + asks + [
        call("set_parent", s64(3), s("p"), u64(7), u64(5)), call("remove_parent"), call("remove_parent")]
    yield "snapshots of a clone", clone + [snap_add("a", 3), call("parent_overlap_get", u64(3)), call("set_size", u64(500))] + asks + [
        call("parent_detach")] + asks + [call("parent_detach"), call("op_features_get"), call("parent_attach", parent_spec(image="other"), u64(5), u8(0)),
                                         call("parent_attach", parent_spec(), u64(400), u8(0))] + asks + [
        call("parent_detach"), call("snapshot_remove", u64(3))] + asks
    yield "deep flatten", [create(size=1000, features=LAYERING | DEEP), call("parent_attach", parent_spec(), u64(4000), u8(0)),
                           call("op_features_set", u64(2), u64(2)), snap_add("a", 3), snap_add("b", 5), call("parent_detach")] + asks + [
        call("op_features_get"), call("parent_overlap_get", u64(5))]
    yield "a clone's snapshot goes first", clone + [call("op_features_set", u64(2), u64(2)), snap_add("a", 3), call("snapshot_remove", u64(3)),
                                                    call("op_features_get"), call("parent_detach"), call("op_features_get")]
    yield "a damaged parent", [create(), omap(parent=b"\2\2\1"), call("set_size", u64(5)), call("set_size", u64(4)), snap_add("a", 3)] + asks + [
        call("parent_attach", parent_spec(), u64(5), u8(0)), call("parent_detach")]
    yield "a parent of version 1", [create(), omap(parent=v1(s64(3) + s("p") + u64(7) + u64(9)))] + asks + [snap_add("a", 3)] + asks + [
        call("set_size", u64(5))] + asks
    kids = [call("children_list", u64(3)), call("snapshot_get", u64(3)), call("op_features_get")]
    yield "children", [create(), snap_add("a", 3), snap_add("b", 5)] + kids + [
        call("child_attach", u64(3), child_spec()), call("child_attach", u64(3), child_spec()), call("child_attach", u64(3), child_spec(image="b", nspace="n")),
        call("child_attach", u64(3), child_spec(pool=1, image="z", version=1)), call("child_attach", u64(5), child_spec()),
        call("child_attach", u64(9), child_spec())] + kids + [call("snapshot_remove", u64(3)), call("child_detach", u64(3), child_spec(image="no")),
        call("child_detach", u64(3), child_spec()), call("child_detach", u64(3), child_spec(image="b", nspace="n"))] + kids + [
        call("child_detach", u64(3), child_spec(pool=1, image="z"))] + kids + [call("child_detach", u64(5), child_spec()), call("op_features_get"),
        call("child_detach", u64(5), child_spec()), call("child_detach", u64(9), child_spec())] + cuts("child_attach", u64(3), child_spec()) + cuts("child_detach", u64(3), child_spec())
    yield "children miscounted", [create(), snap_add("a", 3), call("child_attach", u64(3), child_spec()),
                                  omap(snap_children_0000000000000003=u32(0)), call("child_detach", u64(3), child_spec()), call("children_list", u64(3)),
                                  omap(snap_children_0000000000000003=b"\1"), call("child_detach", u64(3), child_spec()),
                                  call("child_attach", u64(3), child_spec(image="n")), call("children_list", u64(3))]
    old = u64(3) + s("p") + u64(7)
    yield "children, first form", [call("get_children", old), call("remove_child", old, s("c")), call("add_child", old, s("c2")), call("add_child", old, s("c1")),
                                   call("add_child", old, s("c1")), call("get_children", old), call("remove_child", old, s("no")), call("remove_child", old, s("c2")),
                                   call("get_children", old), call("remove_child", old, s("c1")), call("get_children", old), call("remove_child", old, s("c1")),
                                   call("add_child", u64(2**64 - 1), s(b"\xff\0"), u64(HEAD), s(b"\0")), call("get_children", u64(2**64 - 1), s(b"\xff\0"), u64(HEAD), b"more"),
                                   ] + cuts("add_child", old, s("c")) + cuts("remove_child", old, s("c")) + cuts("get_children", old)


def list_cases():
    many = {"k%02d" % n: b"v%d" % n for n in range(70)}
    asks = [call("metadata_list", s(after), u64(n)) for after, n in (("", 0), ("", 1), ("", 64), ("", 1000), ("k05", 3), ("k69", 3), ("zz", 3), ("", 2**64 - 1))]
    yield "metadata", [call("metadata_list", s(""), u64(0)), data(b""), call("metadata_list", s(""), u64(0)), call("metadata_get", s("a")),
                       call("metadata_set", str_map({"b": b"", "a": b"\0\xff", "": b"empty"})), call("metadata_get", s("a")), call("metadata_get", s("")),
                       call("metadata_list", s(""), u64(0)), call("metadata_remove", s("a")), call("metadata_remove", s("a")), call("metadata_get", s("a")),
                       call("metadata_set", str_map(many))] + asks + cuts("metadata_set", str_map({"a": b"c"})) + cuts("metadata_list", s(""), u64(1)) + cuts(
        "metadata_get", s("b")) + cuts("metadata_remove", s("b"))
    yield "metadata among other keys", [omap(metadatb=b"1", metadata=b"2", metadata_x=b"3", metadat=b"4"), call("metadata_list", s(""), u64(0))]
    for kind, add, remove, rename, lister in (("images", "dir_add_image", "dir_remove_image", "dir_rename_image", "dir_list"),
                                              ("groups", "group_dir_add", "group_dir_remove", "group_dir_rename", "group_dir_list")):
        ls = call(lister, s(""), u64(100))
        yield "directory of " + kind, [
            ls, call(remove, s("n"), s("1")), call(rename, s("n"), s("m"), s("1")), call(add, s(""), s("1")), call(add, s("n"), s("")), call(add, s("n"), s("a.b")),
            call(add, s("n"), s("1")), ls, call(add, s("n"), s("2")), call(add, s("m"), s("1")), call(add, s("n"), s("1")), call(add, s(b"\xff/"), s("Zz9")), ls,
            call(rename, s("n"), s("n"), s("1")), call(rename, s("n"), s(b"\xff/"), s("1")), call(rename, s("n"), s(""), s("1")), call(rename, s("n"), s("q"), s("Zz9")),
            call(rename, s("no"), s("q"), s("1")), call(rename, s("n"), s("q"), s("7")), call(rename, s("n"), s("q"), s("1")), ls, call(remove, s("n"), s("1")),
            call(remove, s("q"), s("2")), call(remove, s("q"), s("Zz9")), call(remove, s("q"), s("1")), ls] + cuts(add, s("x"), s("3")) + cuts(
            remove, s("x"), s("3")) + cuts(rename, s("x"), s("y"), s("3")) + cuts(lister, s(""), u64(1))
        yield "a long directory of " + kind, [call(add, s("n%02d" % n), s("%d" % n)) for n in range(70)] + [
            call(lister, s(after), u64(n)) for after, n in (("", 0), ("", 1), ("", 64), ("", 65), ("", 1000), ("n05", 3), ("n69", 3), ("zz", 3))]
        yield "a damaged directory of " + kind, [omap(name_a=b"\1", id_1=b"", name_b=s("1")), ls, call(add, s("a"), s("5")), call(add, s("c"), s("1")),
                                                 call(remove, s("a"), s("1")), call(remove, s("b"), s("1")), call(rename, s("b"), s("c"), s("1"))]
    yield "directory lookups", [call("dir_get_id", s("n")), call("dir_add_image", s("n"), s("1")), call("dir_get_id", s("n")), call("dir_get_name", s("1")),
                                call("dir_get_id", s("m")), call("dir_get_name", s("2")), omap(name_d=b"\1", id_2=b"\2"), call("dir_get_id", s("d")),
                                call("dir_get_name", s("2"))] + cuts("dir_get_id", s("n")) + cuts("dir_get_name", s("1"))
    yield "directory state", [call("dir_state_assert", u8(0)), call("dir_state_set", u8(1)), call("dir_state_set", u8(2)), call("dir_state_set", u8(0)),
                              call("dir_state_assert", u8(0)), call("dir_state_assert", u8(1)), call("dir_state_assert", u8(7)), call("dir_add_image", s("n"), s("1")),
                              call("dir_state_set", u8(1)), call("dir_remove_image", s("n"), s("1")), call("dir_state_set", u8(1)), call("dir_state_assert", u8(1)),
                              call("dir_state_assert", u8(0)), call("dir_state_set", u8(2)), call("dir_add_image", s("n"), s("1"))] + cuts("dir_state_set", u8(0)) + cuts("dir_state_assert", u8(1))
    yield "no directory state", [data(b""), call("dir_state_assert", u8(0)), omap(state=b""), call("dir_state_assert", u8(0))]
    ls = call("trash_list", s(""), u64(100))
    yield "trash", [ls, call("trash_remove", s("1")), call("trash_state_set", s("1"), u8(1), u8(0)), call("trash_add", s(""), trash_spec()),
                    call("trash_add", s("a.b"), trash_spec()), call("trash_add", s("1"), trash_spec()), call("trash_add", s("1"), trash_spec("other")),
                    call("trash_add", s("2"), trash_spec("v1", version=1)), ls, call("trash_get", s("1")), call("trash_get", s("2")), call("trash_get", s("3")),
                    call("trash_state_set", s("1"), u8(1), u8(0)), call("trash_state_set", s("1"), u8(1), u8(0)), call("trash_state_set", s("1"), u8(3), u8(2)),
                    call("trash_state_set", s("1"), u8(200), u8(1)), call("trash_state_set", s("3"), u8(1), u8(0)), call("trash_get", s("1")),
                    call("trash_list", s("1"), u64(5)), call("trash_list", s(""), u64(1)), call("trash_list", s(""), u64(0)), call("trash_remove", s("1")),
                    call("trash_remove", s("1")), ls] + cuts("trash_add", s("9"), trash_spec()) + cuts("trash_remove", s("2")) + cuts("trash_get", s("2")) + cuts(
        "trash_list", s(""), u64(1)) + cuts("trash_state_set", s("2"), u8(1), u8(0))
    yield "damaged trash", [omap(id_1=b"\1"), call("trash_add", s("1"), trash_spec()), call("trash_get", s("1")), call("trash_state_set", s("1"), u8(1), u8(0)),
                            call("trash_remove", s("1")), call("trash_get", s("1"))]
    yield "a long trash", [call("trash_add", s("%02d" % n), trash_spec(str(n))) for n in range(66)] + [
        call("trash_list", s(after), u64(n)) for after, n in (("", 64), ("", 65), ("", 1000), ("64", 5))]
    ls = call("namespace_list", s(""), u64(100))
    yield "namespaces", [ls, call("namespace_remove", s("a")), call("namespace_add", s("b")), call("namespace_add", s("a")), call("namespace_add", s("a")),
                         call("namespace_add", s("")), call("namespace_add", s(b"\xff")), ls, call("namespace_list", s("a"), u64(1)), call("namespace_list", s(""), u64(0)),
                         call("namespace_remove", s("b")), call("namespace_remove", s("b")), ls] + cuts("namespace_add", s("x")) + cuts("namespace_remove", s("a")) + cuts(
        "namespace_list", s(""), u64(1))
    yield "many namespaces", [call("namespace_add", s("%02d" % n)) for n in range(66)] + [
        call("namespace_list", s(after), u64(n)) for after, n in (("", 64), ("", 65), ("", 1000), ("64", 5))]


def object_map_cases():
    load = call("object_map_load")

    def update(start, end, new, current=None):
        return call("object_map_update", u64(start), u64(end), u8(new), u8(0) if current is None else u8(1) + u8(current))

    yield "object map", [load, call("object_map_save", object_map(9, i0=1, i4=2, i8=3)), load, update(0, 9, 1, 0), load, update(1, 3, 2), load, update(0, 9, 0, 1), load,
                         update(8, 9, 1), update(8, 10, 1), update(9, 10, 1), update(3, 3, 1), update(4, 3, 1), update(2**63, 2**64 - 1, 1), load] + cuts(
        "object_map_update", u64(0), u64(1), u8(1), u8(1), u8(0))
    yield "object map states beyond two bits", [call("object_map_save", object_map(9, i0=1, i4=2, i8=3)), update(1, 2, 5), load, update(0, 9, 255, 7), load,
                                                update(2, 4, 254), load, update(0, 9, 1, 255), load]
    yield "object map save cut", cuts("object_map_save", object_map(9, i0=1, i8=3)) + [load]
    yield "object map, empty", [call("object_map_save", object_map(0)), load, update(0, 1, 1), call("object_map_snap_add"), call("object_map_resize", u64(3), u8(1)), load]
    yield "object map of an empty object", [data(b""), load, update(0, 1, 1), call("object_map_snap_add"), call("object_map_snap_remove", object_map(1)),
                                            call("object_map_resize", u64(3), u8(0)), load]
    sizes = [(5, 0), (4, 0), (8, 1), (5, 0), (5, 1), (6, 1), (7, 3), (0, 3), (0, 0), (7, 2), (7, 255), (2, 2), (20000, 0), (20001, 1), (16385, 0), (20000, 0), (16384, 0), (1, 0), (1, 2)]
    yield "object map resize", [x for n, state in sizes for x in (call("object_map_resize", u64(n), u8(state)), load)]
    yield "object map resize, odd states", [x for n, state in ((3, 5), (9, 7), (3, 7), (3, 3), (12, 254)) for x in (call("object_map_resize", u64(n), u8(state)), load)]
    yield "object map resize refused", [call("object_map_resize", u64(256000001), u8(0)), call("object_map_resize", u64(2**64 - 1), u8(0))] + cuts(
        "object_map_resize", u64(5), u8(0))
    yield "object map of several blocks", [call("object_map_resize", u64(50000), u8(0)), update(16380, 16390, 1), update(16384, 32768, 2, 0), update(49999, 50000, 3),
                                           update(16000, 50000, 1, 2), update(0, 16384, 3), update(0, 50000, 0, 3), call("object_map_snap_add"), load]
    yield "object map snapshots", [call("object_map_snap_add"), call("object_map_save", object_map(10, i0=1, i1=2, i2=3, i5=1, i9=1)), call("object_map_snap_add"), load,
                                   call("object_map_snap_add"), call("object_map_snap_remove", object_map(6, i0=3, i2=1, i5=1)), load,
                                   call("object_map_snap_remove", object_map(20)), load] + cuts("object_map_snap_remove", object_map(6, i0=1))
    yield "object map without checksums", [data(object_map(9, i0=1)), load, update(0, 9, 1), call("object_map_resize", u64(12), u8(1)), call("object_map_snap_add"), load]
    for name, at, to in (("header", 4 + 6, 10), ("length", 0, 15), ("version", 5, 2), ("data", 18, 0xFF), ("footer length", 21, 200), ("header checksum", 25, 1),
                         ("data checksum", 33, 1)):
        # 18 bytes of header, 3 of data, 4 of length, 12 of checksums.
        yield "damaged object map: " + name, [("saved map with", at, to), load, update(0, 1, 3), call("object_map_snap_add"),
                                              call("object_map_resize", u64(12), u8(0)), call("object_map_snap_remove", object_map(3)), load]
    yield "object map cut short", [("saved map of", n) if isinstance(n, int) else n for n in (
        36, load, update(0, 1, 3), 24, load, update(0, 1, 3), 20, load, update(8, 9, 0), 17, load, update(0, 1, 3))]


def data_cases():
    yield "copyup", [call("copyup", b"abc"), call("copyup", b"other")]
    yield "copyup of nothing", [call("copyup")]
    extents = u32(2) + u64(0) + u64(3) + u64(10) + u64(2)
    yield "sparse copyup", [call("sparse_copyup", extents, s(b"abcde")), call("sparse_copyup", extents, s(b"other")), call("sparse_copyup", u32(0), s(b""))]
    yield "sparse copyup, unused data", [call("sparse_copyup", extents, s(b"abcdefgh"))]
    yield "sparse copyup of nothing", [call("sparse_copyup", u32(0), s(b""))]
    yield "sparse copyup of no bytes", [call("sparse_copyup", u32(1), u64(5), u64(0), s(b""))]
    yield "sparse copyup refused", [call("sparse_copyup", extents, s(b"abcd")),
                                    call("sparse_copyup", u32(1), u64(128 << 20), u64(1), s(b"x"))] + cuts("sparse_copyup", extents, s(b"abcde"))
    seq = [call("assert_snapc_seq", u64(n), u8(state)) for n in (0, 1, 2**64 - 1) for state in (0, 1, 2)]
    yield "snapshot context", seq + [data(b"")] + seq + cuts("assert_snapc_seq", u64(1), u8(0))
    x, o = b"x" * 8, bytes(8)
    for name, content in (("zeros", o * 2), ("empty", b""), ("full", x * 2), ("end", x + o), ("start", o + x), ("middle", x + o * 2 + x), ("both", o + x + o), ("odd", x + o + b"xy"),
                          ("unaligned", o[:5] + b"x" + o * 3), ("odd zeros", x + o + b"\0\0")):
        for step in (8, 1, 3, 4096, 2**64 - 1):
            if name in ("zeros", "empty") and step not in (8, 4096):
                continue
            yield "sparsify %s by %d" % (name, step), [data(content), call("sparsify", u64(step), u8(0)), call("sparsify", u64(step), u8(1))]
    yield "sparsify zeros away", [data(o), call("sparsify", u64(4), u8(1)), call("sparsify", u64(4), u8(1))] + cuts("sparsify", u64(4), u8(1))


def group_cases():
    def ls(n, image=None):
        return call("group_image_list", image or group_image("", -1), u64(n))

    yield "images of a group", [ls(5), call("group_image_remove", group_image()), call("group_image_set", v1(group_image() + u8(1))), call("group_image_set", v1(group_image("j", 1) + u8(0))),
                                call("group_image_set", v1(group_image("under_score", 2**62) + u8(9))), call("group_image_set", v1(group_image("i", -5) + u8(9))), ls(100), ls(1), ls(0), ls(5, group_image("j", 1)),
                                call("group_image_set", v1(group_image() + u8(0))), ls(100), call("group_image_remove", group_image()), call("group_image_remove", group_image()), ls(100),
                                ] + cuts("group_image_set", v1(group_image() + u8(0))) + cuts("group_image_remove", group_image()) + cuts("group_image_list", group_image(), u64(1))
    yield "many images of a group", [call("group_image_set", v1(group_image("i%02d" % n) + u8(0))) for n in range(66)] + [ls(64), ls(65), ls(1000), ls(3, group_image("i63"))]
    yield "damaged images of a group", [omap(image_0001=b"\0"), ls(5)]
    yield "damaged states of a group", [omap(image_0000000000000001_a=b""), ls(5)]
    add, remove, get = "image_group_add", "image_group_remove", call("image_group_get")
    yield "an image's group", [get, call(add, group_spec()), create(), get, call(remove, group_spec()), call(add, group_spec()), get, call("op_features_get"), call(add, group_spec()),
                               call(add, group_spec("h")), call(add, group_spec(pool=1)), call(remove, group_spec("h")), call(remove, group_spec()), get, call("op_features_get"),
                               omap(rbd_group_ref=b"\1"), get, call(add, group_spec()), call(remove, group_spec())] + cuts(add, group_spec()) + cuts(remove, group_spec())
    set_ = "group_snap_set"

    def snaps(n, after=""):
        return call("group_snap_list", group_snap(after, ""), u64(n))

    full = group_snap("2", "b", 1, [(1, "i", 4), (2, "j", 5)])
    yield "snapshots of a group", [snaps(5), call(set_, group_snap()), call(set_, group_snap()), call(set_, group_snap(name="other")), call(set_, group_snap(state=1)), call(set_, group_snap("2", "n")),
                                   call(set_, full), call(set_, group_snap("", "x")), call(set_, group_snap("9", "")), snaps(5), snaps(1), snaps(0), snaps(5, "1"), snaps(5, "11"),
                                   call("group_snap_get_by_id", s("2")), call("group_snap_get_by_id", s("3")), call("group_snap_remove", s("1")), call("group_snap_remove", s("1")),
                                   snaps(5)] + cuts(set_, full) + cuts("group_snap_remove", s("2")) + cuts("group_snap_get_by_id", s("2")) + cuts("group_snap_list", group_snap(), u64(1))
    yield "removing a snapshot of no group", [call("group_snap_remove", s("1"))]
    yield "many snapshots of a group", [call(set_, group_snap("%02d" % n, "n%d" % n)) for n in range(66)] + [snaps(64), snaps(65), snaps(1000), snaps(3, "63"), call(set_, group_snap("new", "n65"))]
    yield "damaged snapshots of a group", [omap(snapshot_1=b"\1"), snaps(5), call("group_snap_get_by_id", s("1")), call(set_, group_snap("2"))]


def migration_cases():
    get, remove = call("migration_get"), call("migration_remove")

    def state(n=2, text="t"):
        return call("migration_set_state", u8(n), s(text))

    yield "migration", [get, create(), get, state(), remove, call("migration_set", migration_spec()), call("get_features", u64(HEAD), u8(0)), get, call("migration_set", migration_spec()), state(), get,
                        state(200, ""), get, remove, get, call("get_features", u64(HEAD), u8(0)), remove, call("migration_set", migration_spec(2, "{}")), get
                        ] + cuts("migration_set", migration_spec()) + cuts("migration_set_state", u8(1), s("x"))
    yield "migration of versions 1 and 2", [create(), call("migration_set", migration_spec(version=1)), get, remove, call("migration_set", migration_spec(version=2)), get]
    yield "migration destination", [create(features=LAYERING | MIGRATING_BIT), get, state(), call("migration_set", migration_spec(1)), call("migration_set", migration_spec(2)), get, remove, get]
    yield "migration of the old format", [data(old_header()), get, state(), remove, call("migration_set", migration_spec(2)), call("migration_set", migration_spec(1)), get, state(), get,
                                          call("migration_set", migration_spec(1)), remove, get, remove]
    yield "an old header that migrates", [data(old_header(MIGRATING)), get, state(), call("migration_set", migration_spec(1)), remove, get]
    yield "migration of no header", [data(b"short"), get, state(), call("migration_set", migration_spec()), remove, data(b"x" * 200), get, call("migration_set", migration_spec()), remove]
    yield "migration of no object", [get, state(), call("migration_set", migration_spec()), remove]
    yield "a damaged migration", [create(features=MIGRATING_BIT), omap(migration=b"\1"), get, state(), call("migration_set", migration_spec(2)), remove, omap(features=b""), get, remove,
                                  call("migration_set", migration_spec(2))]


def old_format_cases():
    ls = call("snap_list")

    def add(name, snap):
        return call("snap_add", s(name), u64(snap))

    yield "old header", [data(old_header()), ls, add("a", 3), add("b", 5), add("b", 6), add("c", 4), ls, call("snap_rename", u64(3), s("x")), ls, call("snap_rename", u64(3), s("b")),
                         call("snap_rename", u64(9), s("y")), call("snap_rename", u64(5), s("longer name")), ls, call("snap_remove", s("a")), add("c", 5), ls, call("snap_remove", s("longer name")), ls,
                         call("snap_remove", s("x")), call("snap_remove", s("c")), call("snap_remove", s("c")), ls] + cuts("snap_add", s("z"), u64(9)) + cuts("snap_rename", u64(9), s("z")) + cuts("snap_remove", s("z"))
    yield "old header with snapshots", [data(old_header(seq=9, snaps=[(9, 100, "nine"), (4, 50, "four")])), ls, call("snapshot_set_limit", u64(1)), call("snapshot_set_limit", u64(2)), add("c", 10),
                                        call("snapshot_set_limit", u64(2**64 - 1)), add("c", 10), add("", 11), ls, call("snap_remove", s("")), call("snap_remove", s("four")), ls]
    yield "no old header", [ls, call("snap_remove", s("a")), call("snap_rename", u64(1), s("a")), add("a", 1), data(b"short"), ls, call("snap_remove", s("a")), call("snap_rename", u64(1), s("a")), add("a", 1)]


def mirror_cases():
    enable = [call("mirror_uuid_set", s("m0")), call("mirror_mode_set", u32(2))]
    asks = [call("mirror_uuid_get"), call("mirror_mode_get"), call("mirror_peer_list")]
    yield "mirroring", asks + [call("mirror_mode_set", u32(1)), call("mirror_uuid_set", s("")), call("mirror_uuid_set", s("m0")), call("mirror_uuid_set", s("m1"))] + asks + [
        call("mirror_mode_set", u32(1))] + asks + [call("mirror_uuid_set", s("m2")), call("mirror_mode_set", u32(3)), call("mirror_mode_set", u32(2)), call("mirror_mode_set", u32(0))] + asks + [
        call("mirror_mode_set", u32(0))] + cuts("mirror_uuid_set", s("x")) + cuts("mirror_mode_set", u32(1))
    yield "mirroring disabled on nothing", [call("mirror_mode_set", u32(0)), call("mirror_peer_remove", s("u")), call("mirror_image_status_remove", s("g")), call("mirror_image_status_remove_down"),
                                            call("mirror_image_map_remove", s("g")), call("mirror_instances_remove", s("1"))]
    ls = call("mirror_peer_list")
    yield "peers", [call("mirror_peer_add", peer())] + enable + [call("mirror_peer_add", x) for x in (
        peer(), peer(), peer("u2"), peer("u2", "s2"), peer("u2", "s2", mirror_uuid="m2"), peer("u3", "s3", mirror_uuid=""), peer("u4", "s4", mirror_uuid="", version=1), peer("m0", "s5"), peer("", "s6"),
        peer("u6", ""), peer("u6", "s6", ""), peer("u6", "s6", "", direction=1), peer("u7", "s7", direction=0, mirror_uuid="m7", pool=5), peer("u8", "s8", direction=9, mirror_uuid="m8"))] + [
        ls, call("mirror_mode_set", u32(0)), call("mirror_peer_set_client", s("u1"), s("client.z")), call("mirror_peer_set_client", s("no"), s("z")), call("mirror_peer_set_cluster", s("u1"), s("s2")),
        call("mirror_peer_set_cluster", s("u1"), s("new")), call("mirror_peer_set_cluster", s("u1"), s("new")), call("mirror_peer_set_cluster", s("no"), s("q")), call("mirror_peer_set_cluster", s("no"), s("new")),
        call("mirror_peer_set_direction", s("u1"), u8(1)), call("mirror_peer_set_direction", s("no"), u8(1)), call("mirror_peer_set_direction", s("u2"), u8(99)), ls,
        call("mirror_peer_remove", s("u1")), call("mirror_peer_remove", s("u1")), ls] + cuts("mirror_peer_add", peer("q")) + cuts("mirror_peer_remove", s("u2")) + cuts(
        "mirror_peer_set_client", s("u2"), s("c")) + cuts("mirror_peer_set_cluster", s("u2"), s("c")) + cuts("mirror_peer_set_direction", s("u2"), u8(0))
    ping = "mirror_peer_ping"
    yield "pings", [call(ping, s("s"), s("m"), u8(1))] + enable + [call(ping, s("s"), s("m"), u8(n)) for n in (0, 2, 1)] + [call(ping, s(""), s("m"), u8(1)), call(ping, s("s"), s(""), u8(1))] + cuts(
        ping, s("s"), s("m"), u8(1)) + [call(ping, s("s"), s("m"), u8(1))]
    for name, site, uuid in (("both", "site", "m"), ("site", "site", "mx"), ("uuid", "sx", "m"), ("first peer's site, second's uuid", "site", "m2"), ("neither has a uuid", "s3", "m9")):
        yield "ping of a known peer: " + name, enable + [call("mirror_peer_add", peer(direction=0)), call("mirror_peer_add", peer("u2", "s2", mirror_uuid="m2")),
                                                         call("mirror_peer_add", peer("u3", "s3", mirror_uuid="")), call(ping, s(site), s(uuid), u8(1)), ls]
    yield "a damaged peer", enable + [omap(mirror_peer_u1=b"\1"), ls, call("mirror_peer_add", peer("u2")), call(ping, s("s"), s("m"), u8(1)), call("mirror_mode_set", u32(0)),
                                      call("mirror_peer_set_client", s("u1"), s("c"))]
    yield "a damaged mode", [omap(mirror_mode=b"\1", mirror_uuid=b"m"), call("mirror_mode_get"), call("mirror_uuid_set", s("x")), call("mirror_peer_add", peer()), call("mirror_mode_set", u32(1))]
    ids = [call("mirror_image_list", s(""), u64(100)), call("mirror_image_get", s("1")), call("mirror_image_get", s("9")), call("mirror_image_get_image_id", s("g1")), call("mirror_image_get_image_id", s("g9"))]
    set_, remove = "mirror_image_set", "mirror_image_remove"
    yield "mirrored images", ids + [call(remove, s("1")), call(set_, s("1"), mirror_image(state=0)), call(set_, s("1"), mirror_image()), call(set_, s("2"), mirror_image()),
                                    call(set_, s("1"), mirror_image("g2")), call(set_, s("2"), mirror_image("g2", version=1)), call(set_, s("3"), mirror_image("g3", 2, 0))] + ids + [
        call("mirror_image_list", s("1"), u64(1)), call("mirror_image_list", s(""), u64(0)), call(remove, s("1")), call(set_, s("1"), mirror_image(state=0)), call(remove, s("1")), call(remove, s("1"))] + ids + cuts(
        set_, s("5"), mirror_image("g5")) + cuts(remove, s("2")) + cuts("mirror_image_list", s(""), u64(1)) + cuts("mirror_image_get", s("2")) + cuts("mirror_image_get_image_id", s("g2"))
    yield "many mirrored images", [call(set_, s("%02d" % n), mirror_image("g%d" % n)) for n in range(66)] + [call(m, s(after), u64(n)) for m in ("mirror_image_list", "mirror_image_status_list") for after, n in (("", 64), ("", 65), ("", 1000), ("64", 5))]
    yield "damaged mirrored images", [omap(image_1=b"\1", global_g2=b"\1")] + ids + [call(set_, s("1"), mirror_image()), call(set_, s("2"), mirror_image("g2")), call(remove, s("1")),
                                                                                      call("mirror_image_status_list", s(""), u64(5)), call("mirror_image_status_get_summary"), call("mirror_image_get_image_id", s("g2"))]
    status, get = "mirror_image_status_set", [call("mirror_image_status_get", s("g1")), call("mirror_image_status_list", s(""), u64(9)), call("mirror_image_status_get_summary"),
                                              call("mirror_image_status_get_summary", u32(2) + peer(direction=1) + peer("u2", direction=0, mirror_uuid="m2")), call("mirror_image_instance_get", s("g1")),
                                              call("mirror_image_instance_list", s(""), u64(9))]
    gone = [call("mirror_image_status_remove_down")] + get + [call(set_, s("1"), mirror_image(state=0)), call(remove, s("1"))]
    yield "status of mirrored images", get + [call(status, s("g1"), site_status())] + get + [call(set_, s("1"), mirror_image()), call(set_, s("2"), mirror_image("g2", 2)), call(status, s("g1"), site_status()),
                                              call(status, s("g2"), site_status())] + get + [call(status, s("g1"), site_status(1, "bad", "m")), call(status, s("g1"), site_status(6, "", "m2"))] + get + gone
    yield "status removed", [call(set_, s("1"), mirror_image()), call(status, s("g1"), site_status()), call(status, s("g1"), site_status(1, "bad", "m")), call("mirror_image_status_remove", s("g1"))] + get + [
        call(status, s("g1"), site_status()), call(status, s("g1"), site_status(1, "bad", "m")), call(set_, s("1"), mirror_image(state=0)), call(remove, s("1"))]
    yield "status cut", [call(set_, s("1"), mirror_image())] + cuts(status, s("g1"), site_status(4, "x", "m")) + cuts("mirror_image_status_get", s("g1")) + cuts("mirror_image_status_list", s(""), u64(1)) + cuts(
        "mirror_image_status_get_summary", u32(1) + peer()) + cuts("mirror_image_instance_get", s("g1")) + cuts("mirror_image_instance_list", s(""), u64(1)) + cuts("mirror_image_status_remove", s("g1")) + gone
    yield "a damaged status", [call(set_, s("1"), mirror_image()), omap(status_global_g1=b"\1")] + get + [call("mirror_image_status_remove_down")]
    yield "instances", [call("mirror_instances_list"), call("mirror_instances_remove", s("1")), call("mirror_instances_add", s("2")), call("mirror_instances_add", s("1")), call("mirror_instances_add", s("1")),
                        call("mirror_instances_list"), call("mirror_instances_remove", s("1")), call("mirror_instances_remove", s("1")), call("mirror_instances_list")] + cuts("mirror_instances_add", s("3")) + cuts(
        "mirror_instances_remove", s("2"))
    maps = [call("mirror_image_map_list", s(after), u64(n)) for after, n in (("", 9), ("", 1), ("", 0), ("g1", 9))]
    yield "image maps", maps + [call("mirror_image_map_remove", s("g1")), call("mirror_image_map_update", s("g1"), image_map()), call("mirror_image_map_update", s("g2"), image_map("x", b"")), call(
        "mirror_image_map_update", s("g1"), image_map("z"))] + maps + [call("mirror_image_map_remove", s("g1")), call("mirror_image_map_remove", s("g1"))] + maps + cuts(
        "mirror_image_map_update", s("g5"), image_map()) + cuts("mirror_image_map_remove", s("g2")) + cuts("mirror_image_map_list", s(""), u64(1)) + [omap(image_map_g0=b"\1"), maps[0]]
    unlink, progress = "mirror_image_snapshot_unlink_peer", "mirror_image_snapshot_set_copy_progress"
    yield "mirroring snapshots", [create(), snap_add("a", 3, mirrored()), snap_add("b", 5, mirrored(0)), snap_add("b", 9)] + ALL_SNAPS + [
        call(unlink, u64(3), s("a")), call(unlink, u64(3), s("a")), call(unlink, u64(9), s("a")), call(unlink, u64(4), s("a")), call(progress, u64(3), u8(1), u64(77)), call(progress, u64(5), u8(7), u64(77)),
        call(progress, u64(9), u8(1), u64(1)), call(progress, u64(4), u8(1), u64(1)), call("snapshot_rename", u64(3), s("x")), call("snapshot_trash_add", u64(5))] + ALL_SNAPS + cuts(unlink, u64(3), s("b")) + cuts(
        progress, u64(3), u8(1), u64(1))


def cases():
    for group in (header_cases, snapshot_cases, parent_cases, list_cases, object_map_cases, data_cases, group_cases, migration_cases, old_format_cases, mirror_cases):
        yield from group()


# --- running and recording ---

UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def mask(raw, now):
    """Zeros for times within an hour of now, and for random uuids."""
    raw = bytearray(UUID4.sub(b"0" * 36, raw))
    at = 0
    while at + 8 <= len(raw):
        if abs(struct.unpack_from("<I", raw, at)[0] - now) < 3600:
            raw[at:at + 8] = bytes(8)
            at += 7
        at += 1
    return bytes(raw)


def text(raw):
    """Hexadecimal; a run of one byte as [XXxN]; - for nothing."""
    out, at = "", 0
    while at < len(raw):
        end = at + 1
        while end < len(raw) and raw[end] == raw[at]:
            end += 1
        out += "[%02xx%d]" % (raw[at], end - at) if end - at > 8 else "%02x" % raw[at] * (end - at)
        at = end
    return out or "-"


class Cluster:
    def __init__(self, conf):
        self.rados = rados.Rados(conffile=conf)
        self.rados.connect()
        command = dict(prefix="osd pool create", pool=POOL, pg_num=8, pgp_num=8, pool_type="replicated")
        code, _, message = self.rados.mon_command(json.dumps(command), b"")
        if code:
            raise SystemExit(message)
        self.rados.wait_for_latest_osdmap()
        self.io = self.rados.open_ioctx(POOL)

    def call(self, method, args):
        try:
            code, out = self.io.execute(NAME, "rbd", method, args, 1 << 20)
            # librados gives the output's length.
            return min(code, 0), out
        except rados.Error as error:
            return -abs(error.errno or errno.EIO), b""

    def remove(self):
        try:
            self.io.remove_object(NAME)
        except rados.ObjectNotFound:
            pass

    def saved_map(self):
        self.remove()
        assert self.call("object_map_save", object_map(9, i0=1, i4=2, i8=3))[0] == 0
        return self.io.read(NAME)

    def content(self, now):
        try:
            raw = self.io.read(NAME, 1 << 24)
        except rados.ObjectNotFound:
            return "left nothing"
        with rados.ReadOpCtx() as op:
            found, _ = self.io.get_omap_vals(op, "", "", 10000)
            self.io.operate_read_op(op, NAME)
            entries = dict(found)
        # python3-rados gives keys as text.
        keys = {(k.encode() if isinstance(k, str) else k): v or b"" for k, v in entries.items()}
        return " ".join(["left", text(mask(raw, now))] + ["%s=%s" % (text(mask(k, now)), text(mask(v, now))) for k, v in sorted(keys.items())])

    def play(self, steps):
        now, lines = time.time(), []
        self.remove()
        for step in steps:
            if step[0] == "saved map with":
                raw = bytearray(self.saved_map())
                raw[step[1]] = step[2]
                step = data(bytes(raw))
            elif step[0] == "saved map of":
                step = data(self.saved_map()[:step[1]])
            if step[0] == "call":
                code, out = self.call(step[1], step[2])
                lines.append("call %s %s %d %s" % (step[1] or "-", text(step[2]), code, text(mask(out, now))))
            elif step[0] == "data":
                self.io.write_full(NAME, step[1])
                lines.append("data " + text(step[1]))
            elif step[0] == "omap":
                with rados.WriteOpCtx() as op:
                    self.io.set_omap(op, tuple(step[1]), tuple(step[1].values()))
                    self.io.operate_write_op(op, NAME)
                lines += ["omap %s %s" % (text(k), text(v)) for k, v in step[1].items()]
        try:
            # Keys with zero bytes come out cut short.
            binary = any(step[0] == "call" and step[1] == "add_child" for step in steps)
            lines.append("left unseen" if binary else self.content(now))
        except UnicodeDecodeError:
            lines.append("left unseen")
        return lines


def played(conf, only):
    cluster = Cluster(conf)
    return {name: cluster.play(steps) for name, steps in cases() if not only or only in name}


def recorded():
    found = {}
    for line in open(RECORDING).read().splitlines():
        if line.startswith("case "):
            lines = found.setdefault(line[5:], [])
        else:
            lines.append(line)
    return found


def differences(ours, theirs):
    count = 0
    for name in ours:
        if ours[name] == theirs.get(name):
            continue
        count += 1
        print(name)
        for i, (a, b) in enumerate(zip(ours[name], theirs.get(name, []))):
            if a != b:
                print("  step %d\n    %.1000s\n    %.1000s" % (i, a, b))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", action="append", required=True, help="a cluster's ceph.conf; at most two")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--record", action="store_true", help="write what the cluster answers as the recording")
    options = parser.parse_args()
    first = played(options.conf[0], options.only)
    if options.record:
        with open(RECORDING, "w") as out:
            for name, lines in first.items():
                out.write("\n".join(["case " + name] + lines) + "\n")
        return 0
    second = played(options.conf[1], options.only) if len(options.conf) > 1 else recorded()
    count = differences(first, second)
    print("%d cases, %d differ" % (len(first), count))
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
