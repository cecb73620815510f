#!/usr/bin/python3
"""Two of three OSDs die under a pool with min_size 2: clients are asked to hold
their requests back, the OSD that lives holds none of them and serves another
pool, and when the others return everything is done, in order."""
import os, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS, arguments, ceph_json, kill, sh, up, wait_clean

import rados


def main():
    opt = arguments(__doc__, DAEMONS).parse_args()
    conf = opt.conf
    sh(conf, "ceph", "osd", "pool", "create", "held", "8")
    sh(conf, "ceph", "osd", "pool", "create", "free", "8")
    for pool, size, min_size in [("held", "3", "2"), ("free", "3", "1")]:
        sh(conf, "ceph", "osd", "pool", "set", pool, "size", size)
        sh(conf, "ceph", "osd", "pool", "set", pool, "min_size", min_size)
    wait_clean(conf, 30)
    cluster = rados.Rados(conffile=conf)
    cluster.connect()
    held, free = cluster.open_ioctx("held"), cluster.open_ioctx("free")
    held.write_full("log", b"")

    kill(opt.dir, "osd.1", "osd.2")
    appends = [held.aio_append("log", b"%04d" % i) for i in range(300)]
    others = [held.aio_write_full(f"o{i}", b"x" * 1000) for i in range(300)]
    time.sleep(4)
    if any(op.is_complete() for op in appends + others):
        sys.exit("a write below min_size was answered")
    counters = ceph_json(conf, "tell", "osd.0", "perf", "dump")["osd"]
    if counters["op_wip"] != 0:
        sys.exit(f"the OSD holds {counters['op_wip']} requests that it cannot serve")
    began = time.time()
    for i in range(50):
        free.write_full(f"o{i}", b"served")
    served = time.time() - began

    up(opt.loligo, opt.dir)
    began = time.time()
    for op in appends + others:
        op.wait_for_complete()
        if op.get_return_value() != 0:
            sys.exit(f"a held write: {op.get_return_value()}")
    took = time.time() - began
    if held.read("log", 10000) != b"".join(b"%04d" % i for i in range(300)):
        sys.exit("held appends were not done in order, each once")
    wait_clean(conf, 30)
    print(f"600 writes held by the client, none by the OSD; 50 writes to another pool meanwhile took {served * 1000:.0f} ms; "
          f"all done {took:.1f} s after the OSDs' return, in order")
    held.close()
    free.close()
    cluster.shutdown()


main()
