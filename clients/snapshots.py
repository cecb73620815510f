#!/usr/bin/python3
"""Snapshots as python3-rados and `rados` offer them: self-managed ones and those of pools, reads at a snapshot,
rollback, removal, trimming. Passes on real Ceph 16.2 too: run it there with --conf, after
`ceph config set osd osd_snap_trim_sleep 0.0001`, because on files it takes five seconds for each clone."""
import json, os, subprocess, sys, time

import rados

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, fails, run
from cluster import arguments

ENV = {}


def command(cluster, **arguments):
    code, out, text = cluster.mon_command(json.dumps(dict(arguments, format="json")), b"")
    assert code == 0, (arguments, code, text)
    return json.loads(out) if out.strip() else None


def tool(*argv, code=0):
    done = subprocess.run(argv, env=dict(os.environ, **ENV), capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (argv, done.returncode, done.stdout, done.stderr)
    return done.stdout


def until(what, within=60):
    end = time.time() + within
    while True:
        answer = what()
        if answer:
            return answer
        assert time.time() < end, f"not within {within} s: {what.__doc__}"
        time.sleep(0.5)


def pool_of(cluster, name):
    (pool,) = [p for p in command(cluster, prefix="osd dump")["pools"] if p["pool_name"] == name]
    return pool


def counts(cluster, name):
    """Objects and clones, as rados df reports them."""
    (pool,) = [p for p in json.loads(tool("rados", "df", "--format", "json"))["pools"] if p["name"] == name]
    return pool["num_objects"], pool["num_object_clones"]


class Fresh:
    """A pool for one check."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name

    def __enter__(self):
        command(self.cluster, prefix="osd pool create", pool=self.name, pg_num=8, pgp_num=8)
        self.cluster.wait_for_latest_osdmap()
        self.ioctx = self.cluster.open_ioctx(self.name)
        return self.ioctx

    def __exit__(self, *_):
        self.ioctx.close()
        self.cluster.delete_pool(self.name)


@check
def self_managed(cluster):
    with Fresh(cluster, "snaps-self") as ioctx:
        first = ioctx.create_self_managed_snap()
        assert first == 2, first
        ioctx.set_self_managed_snap_write([first])
        ioctx.write_full("o", b"before")
        ioctx.set_xattr("o", "x", b"1")
        second = ioctx.create_self_managed_snap()
        ioctx.set_self_managed_snap_write([second, first])
        ioctx.write_full("o", b"after it")
        ioctx.set_xattr("o", "x", b"2")
        assert ioctx.read("o") == b"after it"
        ioctx.set_read(second)
        assert ioctx.read("o") == b"before" and ioctx.get_xattr("o", "x") == b"1" and ioctx.stat("o")[0] == 6
        ioctx.set_read(first)
        fails(rados.ObjectNotFound, ioctx.read, "o")
        ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)
        ioctx.remove_object("o")
        fails(rados.ObjectNotFound, ioctx.stat, "o")
        ioctx.set_read(second)
        assert ioctx.read("o") == b"before"
        ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)
        ioctx.rollback_self_managed_snap("o", second)
        assert ioctx.read("o") == b"before"
        ioctx.rollback_self_managed_snap("o", first)
        fails(rados.ObjectNotFound, ioctx.read, "o")
        fails(rados.InvalidArgumentError, ioctx.create_snap, "named")
        assert pool_of(cluster, "snaps-self")["flags_names"] == "hashpspool,selfmanaged_snaps"


@check
def omap_at_a_snapshot(cluster):
    with Fresh(cluster, "snaps-omap") as ioctx:
        with rados.WriteOpCtx() as op:
            ioctx.set_omap(op, ("a", "b"), (b"1", b"2"))
            ioctx.operate_write_op(op, "o")
        snap = ioctx.create_self_managed_snap()
        ioctx.set_self_managed_snap_write([snap])
        with rados.WriteOpCtx() as op:
            ioctx.remove_omap_keys(op, ("a",))
            ioctx.set_omap(op, ("c",), (b"3",))
            ioctx.operate_write_op(op, "o")

        def entries():
            with rados.ReadOpCtx() as op:
                found, _ = ioctx.get_omap_vals(op, "", "", 10)
                ioctx.operate_read_op(op, "o")
                return dict(found)

        assert entries() == {"b": b"2", "c": b"3"}
        ioctx.set_read(snap)
        assert entries() == {"a": b"1", "b": b"2"}


@check
def ids(cluster):
    with Fresh(cluster, "snaps-ids") as ioctx:
        assert [ioctx.create_self_managed_snap() for _ in range(3)] == [2, 3, 4]
        ioctx.remove_self_managed_snap(3)
        ioctx.remove_self_managed_snap(3)
        fails(rados.ObjectNotFound, ioctx.remove_self_managed_snap, 99)
        assert ioctx.create_self_managed_snap() == 6
        code, _, text = cluster.mon_command(json.dumps(dict(prefix="osd pool mksnap", pool="snaps-ids", snap="s")), b"")
        assert (code, text) == (-22, "pool snaps-ids is in unmanaged snaps mode"), (code, text)


@check
def of_a_pool(cluster):
    with Fresh(cluster, "snaps-pool") as ioctx:
        ioctx.write_full("o", b"first")
        ioctx.create_snap("one")
        fails(rados.ObjectExists, ioctx.create_snap, "one")
        fails(rados.InvalidArgumentError, ioctx.create_self_managed_snap)
        # No context of the client's: the pool's counts.
        ioctx.write_full("o", b"second")
        ioctx.write_full("later", b"x")
        snap = ioctx.lookup_snap("one")
        assert [(s.snap_id, s.name) for s in ioctx.list_snaps()] == [(1, "one")] and snap.snap_id == 1
        ioctx.set_read(snap.snap_id)
        assert ioctx.read("o") == b"first"
        fails(rados.ObjectNotFound, ioctx.read, "later")
        ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)
        ioctx.snap_rollback("o", "one")
        ioctx.snap_rollback("later", "one")
        assert ioctx.read("o") == b"first"
        fails(rados.ObjectNotFound, ioctx.read, "later")
        ioctx.remove_snap("one")
        fails(rados.ObjectNotFound, ioctx.remove_snap, "one")
        fails(rados.ObjectNotFound, ioctx.lookup_snap, "one")
        ioctx.create_snap("two")
        assert [(s.snap_id, s.name) for s in ioctx.list_snaps()] == [(3, "two")]


@check
def with_rados(cluster):
    with Fresh(cluster, "snaps-tool") as ioctx:
        ioctx.write_full("o", b"0123456789")
        tool("rados", "-p", "snaps-tool", "mksnap", "s1")
        ioctx.write("o", b"xyz", 4)
        assert tool("rados", "-p", "snaps-tool", "-s", "s1", "get", "o", "-").endswith("0123456789")
        listed = tool("rados", "-p", "snaps-tool", "listsnaps", "o").split("\n")
        assert [line.split("\t") for line in listed[:4]] == [
            ["o:"], ["cloneid", "snaps", "size", "overlap"], ["1", "1", "10", "[0~4,7~3]"], ["head", "-", "10"]], listed
        assert "s1" in tool("rados", "-p", "snaps-tool", "lssnap")
        tool("rados", "-p", "snaps-tool", "rollback", "o", "s1")
        assert ioctx.read("o") == b"0123456789"
        tool("rados", "-p", "snaps-tool", "rm", "o")
        assert tool("rados", "-p", "snaps-tool", "-s", "s1", "get", "o", "-").endswith("0123456789")
        tool("rados", "-p", "snaps-tool", "rmsnap", "s1")
        tool("ceph", "osd", "pool", "mksnap", "snaps-tool", "s2")
        tool("ceph", "osd", "pool", "rmsnap", "snaps-tool", "s2")


@check
def trimming(cluster):
    with Fresh(cluster, "snaps-trim") as ioctx:
        names = ["o%02d" % i for i in range(40)]
        snaps = []
        for turn in range(3):
            for name in names:
                ioctx.write_full(name, b"%d" % turn * 5000)
            snaps.insert(0, ioctx.create_self_managed_snap())
            ioctx.set_self_managed_snap_write(snaps)
        for name in names[:20]:
            ioctx.remove_object(name)
        until(lambda: counts(cluster, "snaps-trim") == (140, 100))
        newest, middle, oldest = snaps
        ioctx.remove_self_managed_snap(middle)
        until(lambda: counts(cluster, "snaps-trim") == (100, 60))
        ioctx.set_read(oldest)
        assert all(ioctx.read(name, 10) == b"0" * 10 for name in names)
        ioctx.set_read(newest)
        assert all(ioctx.read(name, 10) == b"2" * 10 for name in names)
        ioctx.set_read(middle)
        fails(rados.ObjectNotFound, ioctx.read, names[0])
        ioctx.set_read(rados.LIBRADOS_SNAP_HEAD)
        ioctx.remove_self_managed_snap(oldest)
        ioctx.remove_self_managed_snap(newest)
        # Deleted heads go with their last clones.
        until(lambda: counts(cluster, "snaps-trim") == (20, 0))
        assert sorted(o.key for o in ioctx.list_objects()) == names[20:]

        def nothing_queued():
            """removed_snaps_queue is empty"""
            number = cluster.pool_lookup("snaps-trim")
            return not [q for q in command(cluster, prefix="osd dump")["removed_snaps_queue"] if q["pool"] == number]

        until(nothing_queued)


@check
def a_snapshot_removed_of_several(cluster):
    with Fresh(cluster, "snaps-several") as ioctx:
        ioctx.write_full("o", b"shared")
        snaps = [ioctx.create_self_managed_snap() for _ in range(3)][::-1]
        ioctx.set_self_managed_snap_write(snaps)
        ioctx.write_full("o", b"new")
        ioctx.remove_self_managed_snap(snaps[1])

        def is_gone():
            listed = tool("rados", "-p", "snaps-several", "listsnaps", "o")
            return f"\t{snaps[2]},{snaps[0]}\t" in listed

        until(is_gone)
        for snap in (snaps[0], snaps[2]):
            ioctx.set_read(snap)
            assert ioctx.read("o") == b"shared"


@check
def bytes_of_clones(cluster):
    with Fresh(cluster, "snaps-bytes") as ioctx:
        ioctx.write_full("o", b"a" * 100_000)
        ioctx.set_self_managed_snap_write([ioctx.create_self_managed_snap()])
        ioctx.write("o", b"b" * 10_000, 20_000)


        def counted():
            (pool,) = [p for p in json.loads(tool("rados", "df", "--format", "json"))["pools"] if p["name"] == "snaps-bytes"]
            return pool["num_objects"] == 2

        until(counted)
        number = cluster.pool_lookup("snaps-bytes")
        stats = command(cluster, prefix="pg dump", dumpcontents=["pools"])
        stats = stats.get("pg_map", stats)["pool_stats"]
        (pool,) = [p for p in stats if p["poolid"] == number]
        assert pool["stat_sum"]["num_bytes"] == 110_000, pool["stat_sum"]


def main():
    parser = arguments(__doc__)
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    ENV["CEPH_CONF"] = options.conf
    cluster = rados.Rados(conffile=options.conf)
    cluster.connect()
    sys.exit(run("snapshots", cluster, only=options.only))


main()
