#!/usr/bin/python3
"""What python3-rados offers for pools, objects, xattrs, omap, operations, aio
and listings. Passes on real Ceph too: run it there with --conf."""
import os, sys, threading

import rados

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, fails, run
from cluster import arguments


@check
def cluster_facts(cluster, ioctx):
    assert len(cluster.get_fsid()) == 36
    stats = cluster.get_cluster_stats()
    assert stats["kb"] > 0 and stats["kb_avail"] <= stats["kb"], stats
    assert cluster.get_instance_id() > 0
    assert cluster.conf_get("fsid")


@check
def pools(cluster, ioctx):
    cluster.create_pool("short-lived")
    assert cluster.pool_exists("short-lived") and "short-lived" in cluster.list_pools()
    fails(rados.ObjectExists, cluster.create_pool, "short-lived")
    number = cluster.pool_lookup("short-lived")
    assert cluster.pool_reverse_lookup(number) == "short-lived"
    with cluster.open_ioctx("short-lived") as other:
        other.write_full("o", b"x")
        assert other.get_pool_id() == number and other.get_pool_name() == "short-lived"
    with cluster.open_ioctx2(number) as other:
        assert other.read("o") == b"x"
    cluster.delete_pool("short-lived")
    assert not cluster.pool_exists("short-lived")
    fails(rados.ObjectNotFound, cluster.delete_pool, "short-lived")
    fails(rados.ObjectNotFound, cluster.open_ioctx, "short-lived")


@check
def commands(cluster, ioctx):
    code, out, status = cluster.mon_command('{"prefix":"osd stat","format":"json"}', b"")
    assert code == 0 and b"num_up_osds" in out
    code, _, _ = cluster.mon_command('{"prefix":"no such command"}', b"")
    assert code == -22, code
    code, out, _ = cluster.osd_command(0, '{"prefix":"version"}', b"")
    assert code == 0 and b"version" in out


@check
def data(cluster, ioctx):
    ioctx.write_full("d", b"0123456789")
    assert ioctx.read("d") == b"0123456789"
    assert ioctx.read("d", 3, 4) == b"456"
    assert ioctx.read("d", 100, 8) == b"89" and ioctx.read("d", 5, 50) == b""
    ioctx.write("d", b"AB", 2)
    ioctx.append("d", b"xyz")
    assert ioctx.read("d") == b"01AB456789xyz"
    ioctx.trunc("d", 4)
    assert ioctx.read("d") == b"01AB" and ioctx.stat("d")[0] == 4
    ioctx.trunc("d", 6)
    assert ioctx.read("d") == b"01AB\0\0"
    ioctx.write("d", b"end", 10000)
    got = ioctx.read("d", 20000)
    assert len(got) == 10003 and got[6:10000] == bytes(9994) and got.endswith(b"end")
    ioctx.writesame("d", b"ab", 10, 0)
    assert ioctx.read("d", 10) == b"ababababab"
    ioctx.remove_object("d")
    fails(rados.ObjectNotFound, ioctx.read, "d")
    fails(rados.ObjectNotFound, ioctx.stat, "d")
    fails(rados.ObjectNotFound, ioctx.remove_object, "d")


@check
def big_object(cluster, ioctx):
    block = os.urandom(1 << 20)
    for i in range(8):
        ioctx.write("big", block, i << 20)
    assert ioctx.stat("big")[0] == 8 << 20
    assert ioctx.read("big", 1 << 20, 3 << 20) == block
    assert ioctx.read("big", 4096, (1 << 20) - 2048) == block[-2048:] + block[:2048]
    ioctx.remove_object("big")


@check
def compare_extent(cluster, ioctx):
    ioctx.write_full("c", b"compare")
    assert ioctx.cmpext("c", b"comp", 0) == 0
    code = ioctx.cmpext("c", b"coXp", 0)
    assert code == -4095 - 2, code
    ioctx.remove_object("c")


@check
def xattrs(cluster, ioctx):
    ioctx.write_full("x", b"")
    ioctx.set_xattr("x", "colour", b"blue")
    ioctx.set_xattr("x", "empty", b"")
    ioctx.set_xattr("x", "binary", bytes(range(256)))
    assert ioctx.get_xattr("x", "colour") == b"blue"
    assert dict(ioctx.get_xattrs("x")) == {"colour": b"blue", "empty": b"", "binary": bytes(range(256))}
    ioctx.rm_xattr("x", "colour")
    fails(rados.NoData, ioctx.get_xattr, "x", "colour")
    fails(rados.ObjectNotFound, ioctx.get_xattr, "absent", "colour")
    ioctx.set_xattr("made-by-xattr", "a", b"b")
    assert ioctx.stat("made-by-xattr")[0] == 0
    ioctx.remove_object("made-by-xattr")
    ioctx.remove_object("x")


def omap(ioctx, name, after="", prefix="", count=1000):
    with rados.ReadOpCtx() as op:
        values, code = ioctx.get_omap_vals(op, after, prefix, count)
        ioctx.operate_read_op(op, name)
        return dict(values)


@check
def omaps(cluster, ioctx):
    keys = tuple(f"key{i:03}" for i in range(200))
    with rados.WriteOpCtx() as op:
        ioctx.set_omap(op, keys, tuple(k.encode() * 3 for k in keys))
        ioctx.operate_write_op(op, "m")
    assert list(omap(ioctx, "m")) == list(keys)
    assert list(omap(ioctx, "m", after="key100", count=5)) == [f"key{i}" for i in range(101, 106)]
    assert list(omap(ioctx, "m", prefix="key01")) == [f"key{i:03}" for i in range(10, 20)]
    with rados.ReadOpCtx() as op:
        values, _ = ioctx.get_omap_keys(op, "key197", 10)
        ioctx.operate_read_op(op, "m")
        assert [k for k, _ in values] == ["key198", "key199"]
    with rados.ReadOpCtx() as op:
        values, _ = ioctx.get_omap_vals_by_keys(op, ("key005", "absent"))
        ioctx.operate_read_op(op, "m")
        assert dict(values) == {"key005": b"key005" * 3}
    with rados.WriteOpCtx() as op:
        ioctx.remove_omap_keys(op, ("key000", "key001"))
        ioctx.operate_write_op(op, "m")
    assert len(omap(ioctx, "m")) == 198
    with rados.WriteOpCtx() as op:
        ioctx.remove_omap_range2(op, "key010", "key020")
        ioctx.operate_write_op(op, "m")
    assert len(omap(ioctx, "m")) == 188
    with rados.WriteOpCtx() as op:
        ioctx.clear_omap(op)
        ioctx.operate_write_op(op, "m")
    assert omap(ioctx, "m") == {}
    ioctx.remove_object("m")


@check
def write_operations(cluster, ioctx):
    with rados.WriteOpCtx() as op:
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        op.write_full(b"first")
        op.append(b"+second")
        op.write(b"F", 0)
        op.set_xattr("a", b"1")
        ioctx.operate_write_op(op, "w")
    assert ioctx.read("w") == b"First+second" and ioctx.get_xattr("w", "a") == b"1"
    with rados.WriteOpCtx() as op:
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        op.write_full(b"never")
        fails(rados.ObjectExists, ioctx.operate_write_op, op, "w")
    assert ioctx.read("w") == b"First+second"
    with rados.WriteOpCtx() as op:
        # 16.2's binding hands over offset and length swapped: these are 0~5.
        # (The other way round it asks for a length of 0, which aborts a real OSD.)
        op.zero(5, 0)
        op.truncate(8)
        op.rm_xattr("a")
        ioctx.operate_write_op(op, "w")
    assert ioctx.read("w") == bytes(5) + b"+se"
    with rados.WriteOpCtx() as op:
        op.writesame(b"xy", 4, 0)
        ioctx.operate_write_op(op, "w", mtime=1234567890)
    assert ioctx.read("w", 4) == b"xyxy"
    size, mtime = ioctx.stat("w")
    assert __import__("time").mktime(mtime) > 0
    with rados.WriteOpCtx() as op:
        op.remove()
        ioctx.operate_write_op(op, "w")
    fails(rados.ObjectNotFound, ioctx.stat, "w")


@check
def versions(cluster, ioctx):
    ioctx.write_full("v", b"1")
    first = ioctx.get_last_version()
    ioctx.write_full("v", b"2")
    second = ioctx.get_last_version()
    assert second > first
    ioctx.read("v")
    assert ioctx.get_last_version() == second
    with rados.ReadOpCtx() as op:
        ioctx.get_omap_keys(op, "", 1)
        ioctx.operate_read_op(op, "v")
    with rados.WriteOpCtx() as op:
        op.assert_version(second) if hasattr(op, "assert_version") else None
        op.write_full(b"3")
        ioctx.operate_write_op(op, "v")
    ioctx.remove_object("v")


@check
def asynchronous(cluster, ioctx):
    done = []
    lock = threading.Lock()

    def on_complete(completion, *rest):
        with lock:
            done.append(completion.get_return_value())

    pending = [ioctx.aio_write(f"a{i}", bytes([i]) * 5000, 0, on_complete) for i in range(100)]
    pending += [ioctx.aio_write_full("af", b"full", on_complete), ioctx.aio_append("af2", b"x", on_complete)]
    for completion in pending:
        completion.wait_for_complete_and_cb()
    assert done == [0] * 102, done
    read = {}
    pending = [ioctx.aio_read(f"a{i}", 6000, 0, lambda c, data, i=i: read.__setitem__(i, data)) for i in range(100)]
    for completion in pending:
        completion.wait_for_complete_and_cb()
    assert all(read[i] == bytes([i]) * 5000 for i in range(100))
    stat = []
    ioctx.aio_stat("a1", lambda c, size, mtime: stat.append(size)).wait_for_complete_and_cb()
    assert stat == [5000]
    code = []
    ioctx.aio_read("absent", 10, 0, lambda c, data: code.append(c.get_return_value())).wait_for_complete_and_cb()
    assert code == [-2], code
    for i in range(100):
        ioctx.aio_remove(f"a{i}").wait_for_complete()
    ioctx.remove_object("af")
    ioctx.remove_object("af2")
    ioctx.aio_flush() if hasattr(ioctx, "aio_flush") else None


@check
def listings(cluster, ioctx):
    names = {f"list{i:04}" for i in range(500)}
    pending = [ioctx.aio_write_full(name, b"") for name in names]
    for completion in pending:
        completion.wait_for_complete()
    assert {o.key for o in ioctx.list_objects() if o.key.startswith("list")} == names
    ioctx.set_namespace("ns")
    ioctx.write_full("inside", b"")
    assert [o.key for o in ioctx.list_objects()] == ["inside"]
    ioctx.set_namespace(rados.LIBRADOS_ALL_NSPACES)
    both = {(o.nspace, o.key) for o in ioctx.list_objects()}
    assert ("ns", "inside") in both and ("", "list0000") in both
    ioctx.set_namespace("ns")
    ioctx.remove_object("inside")
    ioctx.set_namespace("")
    ioctx.set_locator_key("anchor")
    ioctx.write_full("placed", b"p")
    assert ioctx.read("placed") == b"p"
    ioctx.remove_object("placed")
    ioctx.set_locator_key("")
    for name in names:
        ioctx.remove_object(name)


@check
def limits(cluster, ioctx):
    ioctx.write_full("n" * 2048, b"x")
    ioctx.remove_object("n" * 2048)
    fails(rados.Error, ioctx.write_full, "n" * 2049, b"x")
    fails(rados.Error, ioctx.write, "far", b"x", 200 << 20)
    fails(rados.Error, ioctx.set_xattr, "o", "a" * 300, b"x")


@check
def unsupported_is_said(cluster, ioctx):
    ioctx.write_full("u", b"")
    fails(rados.Error, ioctx.execute, "u", "nosuchclass", "nosuchmethod", b"")
    ioctx.remove_object("u")


def main():
    opt = arguments(__doc__).parse_args()
    cluster = rados.Rados(conffile=opt.conf)
    cluster.connect(timeout=20)
    if not cluster.pool_exists("librados"):
        cluster.create_pool("librados")
    with cluster.open_ioctx("librados") as ioctx:
        def plain():
            ioctx.set_namespace("")
            ioctx.set_locator_key("")

        code = run("librados", cluster, ioctx, after=plain)
    cluster.shutdown()
    sys.exit(code)


main()
