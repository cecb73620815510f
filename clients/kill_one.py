#!/usr/bin/python3
"""One OSD is killed under `rados bench` and comes back: no error reaches the
client, the cluster heals, and every object reads back right from each replica."""
import os, re, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS, arguments, ceph_json, kill, make_pool, sh, up, wait_clean


def main():
    arg = arguments(__doc__, DAEMONS)
    arg.add_argument("--seconds", type=int, default=30)
    opt = arg.parse_args()
    make_pool(opt.conf, "bench")
    third = opt.seconds / 3
    argv = ["rados", "bench", "-p", "bench", str(opt.seconds), "write", "-b", "4096", "-t", "16", "--no-cleanup"]
    bench = subprocess.Popen(argv, env=dict(os.environ, CEPH_CONF=opt.conf), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(third)
    kill(opt.dir, "osd.1")
    time.sleep(third)
    up(opt.loligo, opt.dir)
    out = bench.communicate(timeout=120)[0]
    if bench.returncode:
        sys.exit(f"rados bench failed: {out}")
    written = int(re.search(r"Total writes made:\s+(\d+)", out)[1])
    worst = float(re.search(r"Max latency\(s\):\s+([\d.]+)", out)[1])
    took = wait_clean(opt.conf, 30)
    print(f"{written} writes through the death of osd.1, longest {worst:.2f} s; clean {took:.1f} s after the last")
    # With one OSD's primary affinity at zero, its PGs are read from their other copy;
    # over the three passes every copy of every object is read.
    osds = [str(o) for o in ceph_json(opt.conf, "osd", "ls")]
    for osd in osds:
        for other in osds:
            sh(opt.conf, "ceph", "osd", "primary-affinity", other, "0" if other == osd else "1")
        wait_clean(opt.conf, 30)
        out = sh(opt.conf, "rados", "bench", "-p", "bench", "600", "seq", "-t", "16", timeout=600)
        read = int(re.search(r"Total reads made:\s+(\d+)", out)[1])
        if read < written or "not correct" in out:
            sys.exit(f"without osd.{osd} as primary: {read} of {written} objects read back\n{out[-2000:]}")
        print(f"without osd.{osd} as primary: {read} objects read back and compared")


main()
