#!/usr/bin/python3
"""Everything is killed at once during writes, again and again: after each
restart every acknowledged object is there, byte for byte."""
import hashlib, os, random, sys, threading, time

import rados

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS, arguments, ceph_json, kill, make_pool, up, wait_clean


def content(name):
    """Bytes that follow from the name: from nothing to 200 KB."""
    rng = random.Random(name)
    size = rng.choice([0, 1, 100, 4096, 4096, 4096, 5000, 65536, 70000, 200000])
    block = hashlib.sha256(name.encode()).digest()
    return (block * (size // 32 + 1))[:size]


def write_until_dead(conf, round_no, acked, stop):
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=10)
    ioctx = cluster.open_ioctx("crash")
    slots = threading.Semaphore(16)
    n = 0
    while not stop.is_set():
        if not slots.acquire(timeout=0.2):
            continue
        name = f"r{round_no}-{n}"
        n += 1

        def done(completion, name=name):
            if completion.get_return_value() == 0:
                acked.append(name)
            slots.release()

        ioctx.aio_write_full(name, content(name), oncomplete=done)
    # The cluster is dead: librados would wait for it for ever, so it is left behind.


def verify(conf, names):
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=30)
    ioctx = cluster.open_ioctx("crash")
    for name in names:
        want = content(name)
        try:
            got = ioctx.read(name, len(want) + 1)
        except rados.Error as error:
            sys.exit(f"acknowledged object {name}: {error}")
        if got != want:
            sys.exit(f"acknowledged object {name}: {len(got)} bytes, not its {len(want)}")
    ioctx.close()
    cluster.shutdown()


def main():
    arg = arguments(__doc__, DAEMONS)
    arg.add_argument("--rounds", type=int, default=20)
    opt = arg.parse_args()
    make_pool(opt.conf, "crash")
    daemons = ["mon.a", *(f"osd.{o}" for o in ceph_json(opt.conf, "osd", "ls"))]
    everything = []
    for round_no in range(opt.rounds):
        acked = []
        # A process of its own: its librados dies with it instead of haunting the next round.
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            stop = threading.Event()
            threading.Thread(target=write_until_dead, args=(opt.conf, round_no, acked, stop), daemon=True).start()
            out = os.fdopen(write_end, "w", buffering=1)
            sent = 0
            while True:
                time.sleep(0.005)
                fresh = acked[sent:]
                sent += len(fresh)
                if fresh:
                    out.write("".join(f"{name}\n" for name in fresh))
        os.close(write_end)
        time.sleep(0.4 + random.random())
        kill(opt.dir, *daemons)
        time.sleep(0.1)
        os.kill(child, 9)
        os.waitpid(child, 0)
        names = os.fdopen(read_end).read().split("\n")[:-1]
        everything += names
        up(opt.loligo, opt.dir)
        verify(opt.conf, names)
        print(f"round {round_no}: {len(names)} acknowledged objects, all there", flush=True)
        if not names:
            sys.exit("nothing was acknowledged: the test tested nothing")
    wait_clean(opt.conf, 60)
    verify(opt.conf, everything)
    print(f"{len(everything)} objects of {opt.rounds} rounds, all there at the end")


main()
