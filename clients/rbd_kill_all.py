#!/usr/bin/python3
"""Everything is killed at once while a client writes and flushes an image, again
and again: after each restart every write that a flush had covered is there, or
a later one to the same place, byte for byte.

    rbd_kill_all.py --conf DIR/ceph.conf --loligo PATH --dir DIR [--rounds N]

The writer dies with the cluster, holding the image's exclusive lock: it is removed
as an operator would (`rbd lock rm`), and after the last round it has to go by itself.
"""
import argparse, json, os, random, subprocess, sys, threading, time, traceback, zlib
from struct import Struct

import rados, rbd

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS_IF_OURS, arguments, ceph_json, kill, make_pool, sh, up, wait_clean

POOL, IMAGE = "rbd-crash", "image"
SIZE, OBJECT = 24 << 20, 1 << 20
WRITERS = 4
# A place is a run of records: place, version, number of the record, checksum of these.
RECORD = Struct("<IIII")


def make_places():
    """Where the image is written, as (offset, length): side by side, most unaligned, some across two objects."""
    rng = random.Random(4)
    places, offset = [], 0
    while True:
        length = rng.choice([512, 4096, 4096, 4096, 4112, 16384, 20000, 131072])
        if offset + length > SIZE:
            return places
        places.append((offset, length))
        offset += length


PLACES = make_places()


def content(place, version, skip, length):
    """A place's bytes from `skip` on, as this version's write left them."""
    heads = (RECORD.pack(place, version, n, 0)[:12] for n in range(skip // 16, (skip + length) // 16))
    return b"".join(head + zlib.crc32(head).to_bytes(4, "little") for head in heads)


def parts(place):
    """A place as (offset in the image, offset in the place, length): only what is in one object is written at once."""
    offset, length = PLACES[place]
    cut = min(length, OBJECT - offset % OBJECT)
    yield offset, 0, cut
    if cut < length:
        yield offset + cut, cut, length - cut


def connect(conf):
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=30)
    return cluster, cluster.open_ioctx(POOL)


def write_until_killed(conf, round_no):
    """Prints each write, as place and version, when a flush that began after it has ended."""
    cluster, io = connect(conf)
    image = rbd.Image(io, IMAGE)
    lock = threading.Lock()

    def work(number):
        rng = random.Random(f"{round_no} {number}")
        mine = range(number, len(PLACES), WRITERS)
        version = round_no << 20
        while True:
            # The first writer is fio's fsync=1; the others have several writes under way.
            chosen = rng.sample(mine, 1 if number == 0 else rng.randint(1, 12))
            version += 1
            writes = []
            for place in chosen:
                offset, length = PLACES[place]
                writes.append(image.aio_write(content(place, version, 0, length), offset, lambda completion: None))
            for write in writes:
                write.wait_for_complete_and_cb()
                assert write.get_return_value() == 0, write.get_return_value()
            image.flush()
            with lock:
                print("".join(f"{place} {version}\n" for place in chosen), end="", flush=True)

    def work_or_die(number):
        try:
            work(number)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    for number in range(WRITERS):
        threading.Thread(target=work_or_die, args=(number,), daemon=True).start()
    threading.Event().wait()


def verify(conf, flushed):
    """Reads the image as its lock's owner, thus with its object map; what was read must stay, too."""
    cluster, io = connect(conf)
    later = 0
    with rbd.Image(io, IMAGE) as image:
        image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        data = b"".join(image.read(at, 4 << 20) for at in range(0, SIZE, 4 << 20))
    for place, version in flushed.items():
        found = []
        for offset, skip, length in parts(place):
            got = data[offset:offset + length]
            found.append(RECORD.unpack_from(got)[1])
            if found[-1] < version or got != content(place, found[-1], skip, length):
                sys.exit(f"place {place}, {length} bytes at {offset}: version {version} was flushed, "
                         f"there is {found[-1]}: {got[:48].hex()}…")
        later += max(found) > version
        flushed[place] = min(found)
    io.close()
    cluster.shutdown()
    return later


def remove_lock(conf):
    for lock in json.loads(sh(conf, "rbd", "lock", "ls", f"{POOL}/{IMAGE}", "--format", "json")):
        sh(conf, "rbd", "lock", "rm", f"{POOL}/{IMAGE}", lock["id"], lock["locker"])


def one_round(opt, daemons, round_no, flushed):
    """How many writes were flushed before everything was killed."""
    argv = [sys.executable, os.path.abspath(__file__), "--conf", opt.conf, "--write", str(round_no)]
    writer = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    lines = [writer.stdout.readline()]
    reader = threading.Thread(target=lambda: lines.extend(writer.stdout))
    reader.start()
    time.sleep(0.3 + 0.7 * random.random())
    kill(opt.dir, *daemons)
    time.sleep(0.1)
    if writer.poll() is not None:
        sys.exit(f"the writer ended by itself: exit code {writer.returncode}")
    writer.kill()
    writer.wait()
    reader.join()
    # A line that the kill cut short is of no write.
    noted = [line.split() for line in lines if line.endswith("\n")]
    for place, version in noted:
        flushed[int(place)] = max(int(version), flushed.get(int(place), 0))
    return len(noted)


def main():
    arg = arguments(__doc__, DAEMONS_IF_OURS)
    arg.add_argument("--rounds", type=int, default=10)
    arg.add_argument("--write", type=int, help=argparse.SUPPRESS)
    opt = arg.parse_args()
    if opt.write is not None:
        write_until_killed(opt.conf, opt.write)
    make_pool(opt.conf, POOL)
    sh(opt.conf, "rbd", "pool", "init", POOL)
    sh(opt.conf, "rbd", "create", f"{POOL}/{IMAGE}", "--size", f"{SIZE}B", "--object-size", str(OBJECT))
    daemons = ["mon.a", *(f"osd.{o}" for o in ceph_json(opt.conf, "osd", "ls"))]
    flushed, total = {}, 0
    for round_no in range(1, opt.rounds + 1):
        count = one_round(opt, daemons, round_no, flushed)
        total += count
        up(opt.loligo, opt.dir)
        began = time.time()
        if round_no < opt.rounds:
            remove_lock(opt.conf)
        later = verify(opt.conf, flushed)
        print(f"round {round_no}: {count} flushed writes; {len(flushed)} places hold theirs or ({later}) a later one; "
              f"lock got and all read in {time.time() - began:.1f} s", flush=True)
    wait_clean(opt.conf, 60)
    verify(opt.conf, flushed)
    print(f"{total} flushed writes of {opt.rounds} rounds, all there at the end")


main()
