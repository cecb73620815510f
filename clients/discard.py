#!/usr/bin/python3
"""Space of removed objects goes back to the file system, once the OSDs are quiet.

    discard.py --conf DIR/ceph.conf --loligo PATH --dir DIR
"""
import os, time
import rados
from cluster import DAEMONS, arguments, make_pool

LARGE, SMALL = 24, 2000


def main():
    opt = arguments(__doc__, DAEMONS).parse_args()
    make_pool(opt.conf, "space")
    names = [(f"large-{n}", 4 << 20) for n in range(LARGE)] + [(f"small-{n}", 4096) for n in range(SMALL)]
    written = sum(size for _, size in names) * 2
    with rados.Rados(conffile=opt.conf) as cluster, cluster.open_ioctx("space") as io:
        each(names, lambda name, size: io.aio_write_full(name, os.urandom(size)))
        full = used(opt.dir)
        each(names, lambda name, _: io.aio_remove(name))
        # What stays is the log, which does not shrink, and cells that hold something else.
        expected = full - written * 8 // 10
        began = time.time()
        while used(opt.dir) > expected:
            if time.time() - began > 60:
                raise SystemExit(f"of {full >> 20} MiB {used(opt.dir) >> 20} are still in use; {written >> 20} were freed")
            time.sleep(0.5)
    print(f"{written >> 20} MiB removed: the OSDs' files went from {full >> 20} to {used(opt.dir) >> 20} MiB in {time.time() - began:.1f} s")


def each(names, begin):
    waiting = []
    for name, size in names:
        if len(waiting) == 16:
            waiting.pop(0).wait_for_complete()
        waiting.append(begin(name, size))
    for completion in waiting:
        completion.wait_for_complete()
        assert completion.get_return_value() == 0


def used(directory):
    """Bytes of the file system that the OSDs' files take."""
    files = [os.path.join(top, name) for top, _, names in os.walk(directory) for name in names if name == "block"]
    assert files, "no OSD has a file here"
    return sum(os.stat(path).st_blocks * 512 for path in files)


main()
