#!/usr/bin/python3
"""A cluster of small devices is filled until it refuses writes, emptied with
stock tools, and written to again: once with the monitor's flags in the way, as
in normal life, and once without them, when only the OSDs' own last line holds."""
import os, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import arguments, ceph_json, make_pool, sh, wait_clean

import rados

ENOSPC = 28
MIB = 1 << 20


def fill(ioctx, prefix, size, limit):
    """Writes objects until one is refused; how many fit."""
    data = b"x" * size
    for i in range(limit):
        pending = [ioctx.aio_write_full(f"{prefix}-{i}-{j}", data) for j in range(4)]
        for op in pending:
            try:
                op.wait_for_complete_and_cb()
                if op.get_return_value() == -ENOSPC:
                    return i
                if op.get_return_value() < 0:
                    sys.exit(f"write of {prefix}-{i}: {op.get_return_value()}")
            except rados.NoSpace:
                return i
    sys.exit(f"{limit * 4} objects of {size} bytes and not full")


def wait_for(what, within, claim):
    began = time.time()
    while not claim():
        if time.time() - began > within:
            sys.exit(f"not within {within} s: {what}")
        time.sleep(0.2)
    return time.time() - began


def rados_put(conf, name, source, seconds):
    """The exit code of `rados put`, None if it did not end in time."""
    env = dict(os.environ, CEPH_CONF=conf)
    try:
        return subprocess.run(["rados", "-p", "full", "put", name, source], env=env, capture_output=True, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        return None


def last_line(conf, ioctx):
    """The monitor flags nobody: a write that a device might not hold gets ENOSPC."""
    sh(conf, "ceph", "osd", "set-full-ratio", "1.0")
    fitted = fill(ioctx, "a", MIB, 2000)
    more = fill(ioctx, "b", 16384, 20000)
    wait_clean(conf, 20)
    if fitted < 20:
        sys.exit(f"only {4 * fitted} MiB fitted")
    names = [o.key for o in ioctx.list_objects()]
    began = time.time()
    for name in names:
        ioctx.remove_object(name)
    print(f"{4 * fitted} objects of 1 MiB and {4 * more} of 16 KiB until ENOSPC; "
          f"{len(names)} deleted in {time.time() - began:.1f} s")
    wait_for("a write after the deletes", 10, lambda: rados_put(conf, "again", __file__, 10) == 0)
    wait_clean(conf, 20)


def flags(conf, ioctx):
    """The monitor flags the pool: clients hold their writes back until there is room."""
    sh(conf, "ceph", "osd", "set-nearfull-ratio", "0.4")
    sh(conf, "ceph", "osd", "set-backfillfull-ratio", "0.5")
    sh(conf, "ceph", "osd", "set-full-ratio", "0.6")
    data = b"y" * MIB
    pending = []
    for i in range(400):
        pending.append(ioctx.aio_write_full(f"d-{i}", data))
        began = time.time()
        while not pending[-1].is_complete() and time.time() - began < 3:
            time.sleep(0.002)
        if not pending[-1].is_complete():
            break
        if pending[-1].get_return_value() == -ENOSPC:
            sys.exit(f"full at {i} MiB before the monitor flagged it")
        # The flags come about two seconds after the fact.
        time.sleep(0.04)
    else:
        sys.exit("400 MiB and the pool is not full")
    health = ceph_json(conf, "health", "detail")["checks"]
    for code in ("OSD_FULL", "POOL_FULL"):
        if code not in health:
            sys.exit(f"a full cluster without {code}: {sorted(health)}")
    if "full" not in ceph_json(conf, "osd", "dump")["pools"][-1]["flags_names"]:
        sys.exit("a full pool without the flag")
    if rados_put(conf, "held", __file__, 3) is not None:
        sys.exit("a put into a full pool is not held back")
    began = time.time()
    names = [f"d-{i}" for i in range(len(pending) - 1)]
    sh(conf, "rados", "-p", "full", "rm", *names, "--force-full", timeout=60)
    took = wait_for("the held write", 20, pending[-1].is_complete)
    if pending[-1].get_return_value() != 0:
        sys.exit(f"the held write: {pending[-1].get_return_value()}")
    wait_for("a put", 10, lambda: rados_put(conf, "free", __file__, 10) == 0)
    wait_for("health without full", 10, lambda: "POOL_FULL" not in ceph_json(conf, "health", "detail")["checks"])
    print(f"full at {len(pending) - 1} MiB, writes held; deleted in {time.time() - began - took:.1f} s, going on {took:.1f} s later")


def main():
    opt = arguments(__doc__).parse_args()
    make_pool(opt.conf, "full", pgs=16, size=2)
    cluster = rados.Rados(conffile=opt.conf)
    cluster.connect()
    ioctx = cluster.open_ioctx("full")
    last_line(opt.conf, ioctx)
    flags(opt.conf, ioctx)
    wait_clean(opt.conf, 20)
    ioctx.close()
    cluster.shutdown()


main()
