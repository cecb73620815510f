#!/usr/bin/python3
"""fio's rados engine writes and verifies checksums."""
import os, shutil, subprocess, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import arguments, make_pool


def main():
    opt = arguments(__doc__).parse_args()
    if not shutil.which("fio"):
        print("fio is not installed: SKIPPED")
        return
    make_pool(opt.conf, "fio")
    env = dict(os.environ, CEPH_CONF=opt.conf)
    common = ["fio", "--ioengine=rados", "--clientname=admin", "--pool=fio", "--busy_poll=0", "--nr_files=8", "--size=32M",
              "--iodepth=16", "--name=t", f"--conf={opt.conf}"]
    for extra in (["--rw=randwrite", "--bs=4k", "--verify=crc32c", "--do_verify=1"],
                  ["--rw=write", "--bs=1M", "--verify=crc32c", "--do_verify=1"],
                  ["--rw=randread", "--bs=4k"], ["--rw=randrw", "--bs=16k"]):
        done = subprocess.run(common + extra, env=env, capture_output=True, text=True, timeout=300)
        if done.returncode or "error" in done.stderr.lower():
            sys.exit(f"fio {' '.join(extra)}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    print("fio: writes, reads and verification passed")


main()
