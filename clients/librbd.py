#!/usr/bin/python3
"""What python3-rbd offers, and the parts of librbd's C interface that it lacks.
Passes on real Ceph too: run it there with --conf.

    librbd.py --conf DIR/ceph.conf [CHECK ...]
"""
import ctypes, os, random, sys, threading, time

import rados, rbd

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, fails, run
from cluster import arguments

MIB = 1 << 20
LAYERING, STRIPING = rbd.RBD_FEATURE_LAYERING, rbd.RBD_FEATURE_STRIPINGV2
LOCKED = LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK
MAPPED = LOCKED | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF
DEFAULT = MAPPED | rbd.RBD_FEATURE_DEEP_FLATTEN
api = rbd.RBD()


class Run:
    """The cluster, a pool for images and one for data."""

    def __init__(self, conf):
        self.conf = conf
        self.cluster = rados.Rados(conffile=conf)
        self.cluster.connect(timeout=20)
        for pool in ("librbd", "librbd-data"):
            if not self.cluster.pool_exists(pool):
                self.cluster.create_pool(pool)
        self.io = self.cluster.open_ioctx("librbd")
        self.data = self.cluster.open_ioctx("librbd-data")
        api.pool_init(self.io, True)
        api.pool_init(self.data, True)

    def create(self, name, size, features=DEFAULT, **more):
        api.create(self.io, name, size, old_format=False, features=features, **more)
        return rbd.Image(self.io, name)

    def clean(self):
        """Every image away, so that a check that failed does not spoil the next."""
        for name in api.list(self.io):
            try:
                with rbd.Image(self.io, name) as image:
                    for snap in list(image.list_snaps()):
                        if image.is_protected_snap(snap["name"]):
                            image.unprotect_snap(snap["name"])
                        image.remove_snap(snap["name"])
                api.remove(self.io, name)
            except rbd.Error:
                pass


@check
def images(t):
    api.create(t.io, "i", 5 * MIB, old_format=False)
    fails(rbd.ImageExists, api.create, t.io, "i", MIB, old_format=False)
    fails(rbd.ImageNotFound, rbd.Image, t.io, "absent")
    fails(rbd.ImageNotFound, api.remove, t.io, "absent")
    fails(rbd.ArgumentOutOfRange, api.create, t.io, "j", MIB, order=11, old_format=False)
    assert api.list(t.io) == ["i"]
    with rbd.Image(t.io, "i") as image:
        facts = image.stat()
        assert (facts["size"], facts["obj_size"], facts["num_objs"], facts["order"]) == (5 * MIB, 4 * MIB, 2, 22), facts
        assert image.features() == DEFAULT and image.flags() == 0 and image.get_name() == "i"
        assert facts["block_name_prefix"] == "rbd_data." + image.id() == image.block_name_prefix()
        assert abs(image.create_timestamp().timestamp() - time.time()) < 3600 * 24
        fails(rbd.ImageBusy, api.remove, t.io, "i")
        watchers = list(image.watchers_list())
        assert len(watchers) == 1 and watchers[0]["id"] == t.cluster.get_instance_id(), watchers
        with rbd.Image(t.io, "i", read_only=True) as reader:
            fails(rbd.ReadOnlyImage, reader.write, b"x", 0)
            fails(rbd.ReadOnlyImage, reader.create_snap, "s")
            assert reader.read(0, 10) == bytes(10)
        fails(rbd.InvalidArgument, image.write, b"x", 6 * MIB)
        fails(rbd.InvalidArgument, image.read, 6 * MIB, 1)
    api.rename(t.io, "i", "k")
    with rbd.Image(t.io, image_id=list(api.list2(t.io))[0]["id"]) as image:
        assert image.get_name() == "k"
    api.remove(t.io, "k")
    assert api.list(t.io) == []


# What the model is played on: name -> arguments of create.
LAYOUTS = {
    "plain": dict(features=LAYERING),
    "locked": dict(features=LOCKED, order=20),
    "mapped": dict(features=DEFAULT),
    "striped": dict(features=DEFAULT | STRIPING, order=20, stripe_unit=65536, stripe_count=5),
    "data-pool": dict(features=DEFAULT, data_pool="librbd-data", order=16),
}


class Model:
    """An image, and in memory the bytes that it and each of its snapshots must have."""

    def __init__(self, t, name, rng, image, content):
        self.t, self.name, self.rng, self.image, self.bytes, self.snaps, self.count = t, name, rng, image, content, {}, 0

    def extent(self, most=300_000):
        """Where to write: around boundaries of 64 KiB, 1 MiB and 4 MiB more often than elsewhere."""
        length = self.rng.choice([1, 512, 4096, 4096, 65536, self.rng.randrange(1, most)])
        near = self.rng.choice([65536, MIB, 4 * MIB, 1])
        start = self.rng.randrange(0, len(self.bytes)) // near * near - self.rng.choice([0, 0, length // 2, 512])
        start = min(max(start, 0), len(self.bytes) - 1)
        return start, min(length, len(self.bytes) - start)

    def put(self, start, data):
        self.bytes[start:start + len(data)] = data

    def write(self):
        start, length = self.extent()
        data = self.rng.randbytes(length)
        self.image.write(data, start)
        self.put(start, data)

    def burst(self):
        """Writes, discards and zeroes that do not wait for each other, on places of their own."""
        pieces = len(self.bytes) // 65536
        pending = []
        for piece in self.rng.sample(range(pieces), min(12, pieces)):
            start, length = piece * 65536, self.rng.choice([4096, 65536, 10000])
            data = self.rng.randbytes(length)
            kind = self.rng.choice(["write", "write", "discard", "zeroes"])
            if kind == "write":
                pending.append(self.image.aio_write(data, start, lambda c: None))
            elif kind == "discard":
                # Whole object extents or multiples of the granularity only: smaller ones are left alone.
                length, data = 65536, bytes(65536)
                pending.append(self.image.aio_discard(start, length, lambda c: None))
            else:
                data = bytes(length)
                pending.append(self.image.aio_write_zeroes(start, length, lambda c: None))
            self.put(start, data)
        pending.append(self.image.aio_flush(lambda c: None))
        for completion in pending:
            completion.wait_for_complete_and_cb()
            assert completion.get_return_value() >= 0, completion.get_return_value()

    def discard(self):
        start = self.extent()[0] // 65536 * 65536
        length = min(self.rng.choice([65536, 4 * MIB, 1_500 * 65536]), (len(self.bytes) - start) // 65536 * 65536)
        if length:
            self.image.discard(start, length)
            self.put(start, bytes(length))

    def zeroes(self):
        start, length = self.extent()
        thick = self.rng.random() < 0.3
        self.image.write_zeroes(start, length, rbd.RBD_WRITE_ZEROES_FLAG_THICK_PROVISION if thick else 0)
        self.put(start, bytes(length))

    def resize(self):
        size = self.rng.choice([len(self.bytes) + 777_777, len(self.bytes) * 2 // 3, len(self.bytes), 7 * MIB])
        self.image.resize(size)
        self.bytes = self.bytes[:size] + bytes(max(0, size - len(self.bytes)))

    def snapshot(self):
        self.count += 1
        self.image.create_snap(f"s{self.count}")
        self.snaps[f"s{self.count}"] = bytes(self.bytes)

    def remove(self):
        if self.snaps:
            name = self.rng.choice(list(self.snaps))
            self.image.remove_snap(name)
            del self.snaps[name]

    def rollback(self):
        if self.snaps:
            name = self.rng.choice(list(self.snaps))
            self.image.rollback_to_snap(name)
            self.bytes = bytearray(self.snaps[name])

    def reopen(self):
        self.image.close()
        self.image = rbd.Image(self.t.io, self.name)

    def diff(self):
        """A diff between two moments covers every byte that differs, and calls absent only what is zero."""
        since = self.rng.choice([None, *self.snaps])
        old = self.snaps[since] if since else b""
        old = old[:len(self.bytes)].ljust(len(self.bytes), b"\0")
        whole = self.rng.random() < 0.3
        covered = bytearray(old)

        def changed(offset, length, exists):
            now = self.bytes[offset:offset + length]
            assert exists or not any(now), f"{offset}~{length} is said to be absent"
            covered[offset:offset + length] = now

        self.image.diff_iterate(0, len(self.bytes), since, changed, True, whole)
        assert covered == self.bytes, f"the diff since {since} leaves out a change at {first_difference(covered, self.bytes)}"

    def compare(self):
        start, length = self.extent(2 * MIB)
        assert self.image.read(start, length) == self.bytes[start:start + length]

    def compare_all(self):
        assert self.image.size() == len(self.bytes)
        got = self.image.read(0, len(self.bytes))
        assert got == self.bytes, f"differs from {first_difference(got, self.bytes)} on"
        for name, want in self.snaps.items():
            with rbd.Image(self.t.io, self.name, snapshot=name) as old:
                assert old.size() == len(want), f"{name}: {old.size()}"
                got = old.read(0, len(want))
                assert got == want, f"snapshot {name} differs from {first_difference(got, want)} on"

    STEPS = {write: 10, burst: 4, discard: 3, zeroes: 3, resize: 1, snapshot: 3, remove: 1, rollback: 1, reopen: 1, diff: 3, compare: 3}

    def play(self, steps):
        kinds, weights = list(self.STEPS), list(self.STEPS.values())
        for number in range(steps):
            kind = self.rng.choices(kinds, weights)[0]
            try:
                kind(self)
            except Exception as error:
                raise AssertionError(f"{self.name}, step {number}, {kind.__name__}: {error!r}") from error
        self.compare_all()


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


@check
def model(t):
    """Random operations on every layout, then on a clone of each, then on the clone flattened."""
    for number, (name, layout) in enumerate(LAYOUTS.items()):
        rng = random.Random(number)
        parent = Model(t, name, rng, t.create(name, 9 * MIB + 4096, **layout), bytearray(9 * MIB + 4096))
        parent.play(60)
        parent.snapshot()
        last = f"s{parent.count}"
        parent.image.protect_snap(last)
        more = {k: v for k, v in layout.items() if k in ("order", "stripe_unit", "stripe_count", "data_pool")}
        api.clone(t.io, name, last, t.io, name + "-clone", features=layout["features"], **more)
        clone = Model(t, name + "-clone", rng, rbd.Image(t.io, name + "-clone"), bytearray(parent.bytes))
        clone.play(30)
        # What the parent does after its snapshot is nothing to the clone.
        parent.write()
        clone.image.flatten()
        clone.play(20)
        assert clone.image.overlap() == 0
        parent.compare_all()
        for played in (clone, parent):
            played.image.close()


@check
def asynchronous(t):
    image = t.create("a", 16 * MIB)
    done, order = [], []
    pending = [image.aio_write(bytes([i]) * 8192, i * 65536, lambda c, i=i: done.append((i, c.get_return_value()))) for i in range(200)]
    flushed = image.aio_flush(lambda c: order.append(len(done)))
    flushed.wait_for_complete_and_cb()
    assert flushed.get_return_value() == 0
    for completion in pending:
        completion.wait_for_complete_and_cb()
    assert sorted(done) == [(i, 0) for i in range(200)], done
    got = {}
    pending = [image.aio_read(i * 65536, 10000, lambda c, data, i=i: got.__setitem__(i, data)) for i in range(200)]
    for completion in pending:
        completion.wait_for_complete_and_cb()
    assert all(got[i] == bytes([i]) * 8192 + bytes(1808) for i in range(200))
    beyond = image.aio_read(17 * MIB, 10, lambda c, data: None)
    beyond.wait_for_complete_and_cb()
    assert beyond.get_return_value() == -22, beyond.get_return_value()
    image.close()


@check
def snapshots(t):
    image = t.create("s", 8 * MIB)
    image.write(b"one", 0)
    image.create_snap("one")
    fails(rbd.ImageExists, image.create_snap, "one")
    image.write(b"two", 0)
    image.create_snap("two")
    image.resize(MIB)
    listed = [(s["name"], s["size"]) for s in image.list_snaps()]
    assert listed == [("one", 8 * MIB), ("two", 8 * MIB)], listed
    image.set_snap("one")
    assert image.read(0, 3) == b"one" and image.size() == 8 * MIB
    fails(rbd.ReadOnlyImage, image.write, b"x", 0)
    image.set_snap(None)
    assert image.read(0, 3) == b"two" and image.size() == MIB
    # Another client learns of it, and sees through its own open image.
    with rbd.Image(t.io, "s") as other:
        other.create_snap("three")
        assert [s["name"] for s in image.list_snaps()] == ["one", "two", "three"]
        other.remove_snap("three")
        assert not image.snap_exists("three")
    image.rename_snap("two", "zwei")
    assert image.snap_get_name(image.snap_get_id("zwei")) == "zwei"
    image.protect_snap("zwei")
    assert image.is_protected_snap("zwei")
    fails(rbd.ImageBusy, image.remove_snap, "zwei")
    image.unprotect_snap("zwei")
    image.set_snap_limit(2)
    assert image.get_snap_limit() == 2
    fails(rbd.DiskQuotaExceeded, image.create_snap, "four")
    image.remove_snap_limit()
    image.close()
    fails(rbd.ImageHasSnapshots, api.remove, t.io, "s")


@check
def clones(t):
    parent = t.create("p", 8 * MIB)
    parent.write(b"p" * 10000, 4 * MIB - 5000)
    parent.create_snap("base")
    for version in ("1", "2"):
        t.cluster.conf_set("rbd_default_clone_format", version)
        name = "clone" + version
        if version == "1":
            fails(rbd.InvalidArgument, api.clone, t.io, "p", "base", t.io, name)
            parent.protect_snap("base")
        api.clone(t.io, "p", "base", t.io, name)
        with rbd.Image(t.io, name) as clone:
            assert clone.parent_info() == ("librbd", "p", "base") and clone.overlap() == 8 * MIB
            assert clone.read(4 * MIB - 5000, 10000) == b"p" * 10000
            clone.write(b"c", 4 * MIB)
            assert clone.read(4 * MIB - 1, 3) == b"pcp"
        if version == "1":
            fails(rbd.ImageBusy, parent.unprotect_snap, "base")
            assert [c["image"] for c in parent.list_children2()] == ["clone1"]
            api.remove(t.io, name)
            parent.unprotect_snap("base")
    with rbd.Image(t.io, "clone2") as clone:
        clone.deep_copy(t.io, "deep")
    # A snapshot that has clones of the second kind goes to the trash until the last one leaves it.
    parent.remove_snap("base")
    trashed = list(parent.list_snaps())
    assert len(trashed) == 1 and trashed[0]["namespace"] == rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH, trashed
    with rbd.Image(t.io, "clone2") as clone:
        assert clone.read(4 * MIB - 1, 3) == b"pcp"
        clone.copy(t.io, "flat")
        clone.flatten()
        assert clone.read(4 * MIB - 1, 3) == b"pcp"
    t.cluster.conf_set("rbd_default_clone_format", "auto")
    with rbd.Image(t.io, "deep") as deep:
        assert deep.read(4 * MIB - 1, 3) == b"pcp" and deep.overlap() == 8 * MIB
    with rbd.Image(t.io, "flat") as flat:
        assert flat.read(4 * MIB - 1, 3) == b"pcp"
        fails(rbd.ImageNotFound, flat.parent_info)
    api.remove(t.io, "deep")
    assert list(parent.list_snaps()) == []
    parent.close()


@check
def metadata(t):
    with t.create("m", MIB) as image:
        want = {f"key{i:03}": f"value {i}" for i in range(200)}
        for key, value in want.items():
            image.metadata_set(key, value)
        assert dict(image.metadata_list()) == want
        assert image.metadata_get("key007") == "value 7"
        image.metadata_remove("key007")
        fails(KeyError, image.metadata_get, "key007")
        fails(KeyError, image.metadata_remove, "key007")
        image.metadata_set("conf_rbd_cache", "false")
        assert {o["name"]: o["value"] for o in image.config_list()}["rbd_cache"] == "false"
    api.pool_metadata_set(t.io, "pool-key", "value")
    assert dict(api.pool_metadata_list(t.io)) == {"pool-key": "value"}
    api.pool_metadata_remove(t.io, "pool-key")


@check
def many_images(t):
    names = sorted(f"many{i:03}" for i in range(100))
    for name in names:
        api.create(t.io, name, MIB, old_format=False, features=LAYERING)
    assert sorted(api.list(t.io)) == names
    stats = api.pool_stats_get(t.io)
    assert stats["image_count"] == 100 and stats["image_provisioned_bytes"] == 100 * MIB, stats
    for name in names:
        api.remove(t.io, name)


@check
def groups(t):
    for name in ("g1", "g2"):
        with t.create(name, 8 * MIB) as image:
            image.write(name.encode(), 0)
    api.group_create(t.io, "group")
    fails(rbd.ObjectExists, api.group_create, t.io, "group")
    group = rbd.Group(t.io, "group")
    for name in ("g1", "g2"):
        group.add_image(t.io, name)
    assert sorted(i["name"] for i in group.list_images()) == ["g1", "g2"]
    group.create_snap("s")
    for name in ("g1", "g2"):
        with rbd.Image(t.io, name) as image:
            image.write(b"later", 0)
            assert image.group()["name"] == "group"
            assert [s["namespace"] for s in image.list_snaps()] == [rbd.RBD_SNAP_NAMESPACE_TYPE_GROUP]
    group.rollback_to_snap("s")
    for name in ("g1", "g2"):
        with rbd.Image(t.io, name) as image:
            assert image.read(0, 5) == name.encode() + bytes(3)
    group.rename_snap("s", "t")
    assert [(s["name"], s["state"]) for s in group.list_snaps()] == [("t", rbd.RBD_GROUP_SNAP_STATE_COMPLETE)]
    group.remove_snap("t")
    group.remove_image(t.io, "g1")
    api.group_rename(t.io, "group", "renamed")
    assert api.group_list(t.io) == ["renamed"]
    api.group_remove(t.io, "renamed")
    assert api.group_list(t.io) == []


@check
def trash(t):
    t.create("t", MIB).close()
    api.trash_move(t.io, "t", delay=3600)
    assert api.list(t.io) == []
    entry, = api.trash_list(t.io)
    assert entry["name"] == "t" and entry["source"] == "USER", entry
    fails(rbd.PermissionError, api.trash_remove, t.io, entry["id"])
    fails(rbd.ImageNotFound, api.trash_restore, t.io, "123456789abc", "u")
    api.trash_restore(t.io, entry["id"], "u")
    assert api.list(t.io) == ["u"]
    api.trash_move(t.io, "u", delay=0)
    api.trash_remove(t.io, entry["id"])
    assert list(api.trash_list(t.io)) == []


@check
def namespaces(t):
    api.namespace_create(t.io, "ns")
    assert list(api.namespace_list(t.io)) == ["ns"]
    with t.cluster.open_ioctx("librbd") as inside:
        inside.set_namespace("ns")
        api.create(inside, "n", MIB, old_format=False)
        with rbd.Image(inside, "n") as image:
            image.write(b"inside", 0)
            assert image.read(0, 6) == b"inside"
        assert api.list(t.io) == [] and api.list(inside) == ["n"]
        fails(rbd.ImageBusy, api.namespace_remove, t.io, "ns")
        api.remove(inside, "n")
    api.namespace_remove(t.io, "ns")
    assert not api.namespace_exists(t.io, "ns")


@check
def removed_under_a_client(t):
    """The objects of an open image go: who reads gets zeros, who opens it again is told."""
    image = t.create("gone", 8 * MIB, features=LAYERING)
    image.write(b"x" * 4096, 0)
    fails(rbd.ImageBusy, api.remove, t.io, "gone")
    number = image.id()
    for name in [o.key for o in t.io.list_objects() if number in o.key]:
        t.io.remove_object(name)
    assert image.read(0, 4096) == bytes(4096)
    fails(rbd.ImageNotFound, image.create_snap, "s")
    image.close()
    fails(rbd.ImageNotFound, rbd.Image, t.io, "gone")
    api.remove(t.io, "gone")
    assert "gone" not in api.list(t.io)


class CImage:
    """An image through librbd's C interface, for what the Python one leaves out."""

    CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

    def __init__(self, conf, pool, name):
        self.rados, self.rbd = ctypes.CDLL("librados.so.2"), ctypes.CDLL("librbd.so.1")
        self.cluster, self.io, self.image = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.must(self.rados.rados_create2(ctypes.byref(self.cluster), b"ceph", b"client.admin", ctypes.c_uint64(0)))
        self.must(self.rados.rados_conf_read_file(self.cluster, conf.encode()))
        self.must(self.rados.rados_connect(self.cluster))
        self.must(self.rados.rados_ioctx_create(self.cluster, pool.encode(), ctypes.byref(self.io)))
        self.must(self.rbd.rbd_open(self.io, name.encode(), ctypes.byref(self.image), None))
        self.rbd.rbd_writesame.restype = self.rbd.rbd_compare_and_write.restype = ctypes.c_ssize_t

    @staticmethod
    def must(code):
        assert code >= 0, code
        return code

    def close(self):
        self.must(self.rbd.rbd_close(self.image))
        self.rados.rados_ioctx_destroy(self.io)
        self.rados.rados_shutdown(self.cluster)

    def writesame(self, offset, length, data):
        return self.rbd.rbd_writesame(self.image, ctypes.c_uint64(offset), ctypes.c_size_t(length), data, ctypes.c_size_t(len(data)), 0)

    def compare_and_write(self, offset, old, new):
        """(code, where it differs)"""
        at = ctypes.c_uint64(0)
        code = self.rbd.rbd_compare_and_write(self.image, ctypes.c_uint64(offset), ctypes.c_size_t(len(old)), old, new, ctypes.byref(at), 0)
        return code, at.value

    def on_quiesce(self, quiesce, unquiesce):
        handle = ctypes.c_uint64()

        def told(_):
            quiesce()
            self.rbd.rbd_quiesce_complete(self.image, handle, 0)

        self.kept = self.CALLBACK(told), self.CALLBACK(lambda _: unquiesce())
        self.must(self.rbd.rbd_quiesce_watch(self.image, *self.kept, None, ctypes.byref(handle)))
        return handle

    def on_update(self, updated):
        handle = ctypes.c_uint64()
        self.kept_update = self.CALLBACK(lambda _: updated())
        self.must(self.rbd.rbd_update_watch(self.image, ctypes.byref(handle), self.kept_update, None))


@check
def write_same(t):
    t.create("w", 12 * MIB).close()
    c = CImage(t.conf, "librbd", "w")
    assert c.writesame(4 * MIB - 8192, 5 * MIB, b"pattern!" * 64) == 5 * MIB
    assert c.writesame(0, 1000, b"pattern!" * 64) == -22
    c.close()
    with rbd.Image(t.io, "w") as image:
        assert image.read(0, 12 * MIB) == bytes(4 * MIB - 8192) + b"pattern!" * (5 * MIB // 8) + bytes(3 * MIB + 8192)


@check
def compare_and_write(t):
    with t.create("c", 8 * MIB) as image:
        image.write(b"a" * 4096, 8192)
    c = CImage(t.conf, "librbd", "c")
    assert c.compare_and_write(8192, b"a" * 512, b"b" * 512) == (512, 0)
    code, at = c.compare_and_write(8192, b"b" * 300 + b"x" * 212, b"c" * 512)
    assert (code, at) == (-84, 300), (code, at)
    assert c.compare_and_write(4 * MIB, bytes(512), b"new" * 100 + bytes(212))[0] == 512
    # From here into the next stripe would be two objects.
    assert c.compare_and_write(4 * MIB - 256, bytes(512), b"z" * 512)[0] == -22
    c.close()
    with rbd.Image(t.io, "c") as image:
        assert image.read(8192, 4096) == b"b" * 512 + b"a" * 3584
        assert image.read(4 * MIB, 300) == b"new" * 100


@check
def quiesce(t):
    """A snapshot by one client waits until another has quiesced, and tells it when it is done."""
    image = t.create("q", 8 * MIB)
    c = CImage(t.conf, "librbd", "q")
    events, updates = [], threading.Event()

    def quiet():
        time.sleep(0.5)
        events.append(("quiesce", image.snap_exists("s")))

    handle = c.on_quiesce(quiet, lambda: events.append(("unquiesce", image.snap_exists("s"))))
    c.on_update(updates.set)
    image.create_snap("s")
    assert updates.wait(10), "the other client was not told of the snapshot"
    began = time.time()
    while len(events) < 2 and time.time() - began < 10:
        time.sleep(0.02)
    assert events == [("quiesce", False), ("unquiesce", True)], events
    CImage.must(c.rbd.rbd_quiesce_unwatch(c.image, handle))
    image.create_snap("t")
    assert len(events) == 2
    c.close()
    image.close()


def main():
    arg = arguments(__doc__)
    arg.add_argument("checks", nargs="*")
    opt = arg.parse_args()
    t = Run(opt.conf)
    code = run("librbd", t, only=opt.checks, after=t.clean)
    sys.stdout.flush()
    os._exit(code)  # images of failed checks may still be open


main()
