#!/usr/bin/python3
"""Two clients, each a process of its own, and one image: its exclusive lock goes
from hand to hand, is broken, and a client that was fenced or died never writes
again. Passes on real Ceph too: run it there with --conf.

    librbd_fencing.py --conf DIR/ceph.conf [CHECK ...]
"""
import argparse, json, os, random, re, select, signal, subprocess, sys, threading, time

import rados, rbd

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, run
from cluster import arguments, freeze, sh

POOL = "fencing"
BLOCK = 4096
BLOCKS = 2048  # 8 MiB: two objects


class Client:
    """A process with the image open, that does what it is told: one JSON line for each request and reply."""

    def __init__(self, conf, image):
        argv = [sys.executable, os.path.abspath(__file__), "--conf", conf, "--client", image]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.facts = self.reply()

    def begin(self, name, *args):
        self.process.stdin.write(json.dumps([name, *args]) + "\n")
        self.process.stdin.flush()

    def reply(self, seconds=60):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise AssertionError(f"no reply within {seconds} s")
        line = self.process.stdout.readline()
        assert line, "the client died"
        return json.loads(line)

    def call(self, name, *args):
        """The result; raises what the client's call raised, by name."""
        self.begin(name, *args)
        return self.result()

    def result(self, seconds=60):
        kind, value = self.reply(seconds)
        if kind == "error":
            raise Refused(value)
        return value

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        try:
            self.begin("exit")
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()


class Refused(Exception):
    pass


def serve(conf, name):
    """What a client's process runs."""
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=20)
    io = cluster.open_ioctx(POOL)
    image = rbd.Image(io, name)
    print(json.dumps({"id": cluster.get_instance_id(), "address": re.search(r"[\d.]+:\d+/\d+", cluster.get_addrs())[0]}), flush=True)
    acked, writer = [], []

    def fill(letter, seconds):
        """Writes every block over and over, until an error or the end; `acked` has each block's last acknowledged round."""
        def loop():
            end, number = time.time() + seconds, 0
            try:
                while time.time() < end:
                    number += 1
                    image.write(f"{letter}{number:09}".encode().ljust(BLOCK, b"."), number % BLOCKS * BLOCK)
                    acked.append(number)
                writer.append("done")
            except rbd.Error as error:
                writer.append(type(error).__name__)
        threading.Thread(target=loop, daemon=True).start()

    verbs = {
        "write": lambda block, text: image.write(text.encode().ljust(BLOCK, b"."), block * BLOCK),
        "read": lambda block: image.read(block * BLOCK, BLOCK).decode().rstrip("."),
        "flush": image.flush,
        "owner": image.is_exclusive_lock_owner,
        "acquire": lambda: image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE),
        "release": image.lock_release,
        "owners": lambda: [o["owner"] for o in image.lock_get_owners()],
        "break": lambda owner: image.lock_break(rbd.RBD_LOCK_MODE_EXCLUSIVE, owner),
        "fill": fill,
        "filled": lambda: [len(acked), acked[-1] if acked else 0, writer],
        "put": lambda key: io.write_full(key, b"x"),
    }
    for line in sys.stdin:
        verb, *args = json.loads(line)
        if verb == "exit":
            image.close()
            cluster.shutdown()
            break
        try:
            answer = ["ok", verbs[verb](*args)]
        except (rbd.Error, rados.Error) as error:
            answer = ["error", type(error).__name__]
        print(json.dumps(answer), flush=True)
    os._exit(0)


class Run:
    def __init__(self, conf):
        self.conf = conf
        self.cluster = rados.Rados(conffile=conf)
        self.cluster.connect(timeout=20)
        if not self.cluster.pool_exists(POOL):
            self.cluster.create_pool(POOL)
        self.io = self.cluster.open_ioctx(POOL)
        rbd.RBD().pool_init(self.io, True)
        self.clients = []

    def image(self, name):
        if name in rbd.RBD().list(self.io):
            rbd.RBD().remove(self.io, name)
        rbd.RBD().create(self.io, name, BLOCKS * BLOCK, old_format=False)

    def open(self, name):
        self.clients.append(Client(self.conf, name))
        return self.clients[-1]

    def ceph(self, *argv):
        return sh(self.conf, "ceph", *argv)

    def blocklist(self):
        return self.ceph("osd", "blocklist", "ls")

    def content(self, name):
        with rbd.Image(self.io, name, read_only=True) as image:
            data = image.read(0, BLOCKS * BLOCK)
        return [data[i:i + BLOCK].rstrip(b".").rstrip(b"\0").decode() for i in range(0, len(data), BLOCK)]

    def clean(self):
        for client in self.clients:
            client.close()
        self.clients = []
        self.ceph("osd", "blocklist", "clear")


def refused(*errors):
    class Expect:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, _):
            assert kind is Refused and value.args[0] in errors, f"{value!r}, not one of {errors}"
            return True

    return Expect()


@check
def hand_over(t):
    """Who writes gets the lock, and the other sees what was written."""
    t.image("hand")
    a, b = t.open("hand"), t.open("hand")
    worst = 0
    for turn in range(10):
        for writer, other in ((a, b), (b, a)):
            text = f"turn {turn} of {writer.facts['id']}"
            began = time.time()
            writer.call("write", turn, text)
            worst = max(worst, time.time() - began)
            assert writer.call("owner") and not other.call("owner"), "two owners, or none"
            writer.call("flush")
            assert other.call("read", turn) == text
    assert worst < 5, f"a hand-over took {worst:.1f} s"
    print(f"  20 hand-overs, the longest {worst * 1000:.0f} ms")


@check
def both_write(t):
    """Two clients that write at once take turns, and no acknowledged write is lost."""
    t.image("both")
    halves = (range(0, BLOCKS // 2), range(BLOCKS // 2, BLOCKS))
    last = [{}, {}]

    def work(client, number, end):
        rng = random.Random(number)
        count = 0
        while time.time() < end:
            count += 1
            block = rng.choice(halves[number])
            text = f"{number}-{count}"
            client.call("write", block, text)
            last[number][block] = text
        client.call("flush")

    end = time.time() + 4
    workers = [threading.Thread(target=work, args=(t.open("both"), n, end)) for n in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive(), "a writer is stuck"
    content = t.content("both")
    for number in (0, 1):
        assert last[number], "a client got nothing done"
        for block, text in last[number].items():
            assert content[block] == text, (block, content[block], text)
    print(f"  {len(last[0])} and {len(last[1])} blocks written in turns")


@check
def held(t):
    """A lock that was asked for is kept: others can neither take it nor write."""
    t.image("held")
    a, b = t.open("held"), t.open("held")
    a.call("acquire")
    with refused("ReadOnlyImage"):
        b.call("acquire")
    with refused("ReadOnlyImage"):
        b.call("write", 0, "no")
    owners = b.call("owners")
    assert len(owners) == 1 and owners == a.call("owners"), owners
    a.call("write", 0, "yes")
    a.call("release")
    assert b.call("owners") == []
    b.call("acquire")
    assert b.call("owner") and b.call("read", 0) == "yes"
    b.call("release")


@check
def broken(t):
    """Breaking a lock puts its owner on the blocklist: all it tries fails from then on."""
    t.image("broken")
    a, b = t.open("broken"), t.open("broken")
    a.call("acquire")
    a.call("write", 0, "before")
    b.call("break", b.call("owners")[0])
    address = a.facts["address"]
    assert address in t.blocklist(), f"{address} is not in {t.blocklist()}"
    b.call("acquire")
    b.call("write", 0, "after")
    with refused("ConnectionShutdown"):
        a.call("write", 0, "late")
    with refused("ConnectionShutdown"):
        a.call("put", "an-object")
    assert b.call("read", 0) == "after"
    # Off the list the old instance stays shut down, and a new one is welcome.
    t.ceph("osd", "blocklist", "rm", address)
    assert address not in t.blocklist()
    b.call("release")
    c = t.open("broken")
    c.call("write", 0, "anew")
    assert b.call("read", 0) == "anew"


@check
def late_writes(t):
    """A client is stopped in the middle of its writes, its lock is broken, it wakes: nothing of it lands any more."""
    for number in range(3):
        t.image("late")
        a, b = t.open("late"), t.open("late")
        a.call("acquire")
        a.call("fill", "a", 60)
        time.sleep(0.5 + number / 3)
        freeze(a.process.pid)
        b.call("break", b.call("owners")[0])
        b.call("acquire")
        b.call("fill", "b", 60)
        a.process.send_signal(signal.SIGCONT)
        began = time.time()
        while not (state := a.call("filled"))[2]:
            assert time.time() - began < 20, "a fenced client goes on"
            time.sleep(0.05)
        assert state[2] == ["ConnectionShutdown"] and state[0] > 0, state
        # The other one writes every block at least once more.
        seen = b.call("filled")[1]
        while b.call("filled")[1] < seen + BLOCKS + 1:
            assert time.time() - began < 40 and not b.call("filled")[2], b.call("filled")
            time.sleep(0.1)
        b.kill()
        wrong = [text for text in t.content("late") if not text.startswith("b")]
        assert not wrong, f"{len(wrong)} blocks of the fenced client: {wrong[:3]}"
        t.clean()


@check
def blocklisted_by_hand(t):
    """`ceph osd blocklist add, ls, rm`: a client is cut off at once, wherever it writes."""
    t.image("byhand")
    a, b = t.open("byhand"), t.open("byhand")
    a.call("write", 0, "a")
    a.call("put", "plain")
    address = a.facts["address"]
    t.ceph("osd", "blocklist", "add", address, "600")
    assert address in t.blocklist()
    listed = [e["addr"] for e in json.JSONDecoder().raw_decode(t.ceph("osd", "blocklist", "ls", "-f", "json").strip())[0]]
    assert listed == [address], listed
    # The map reaches an OSD that it concerns no later than the next client that has it.
    b.call("put", "map")
    began = time.time()
    while True:
        try:
            a.call("put", "plain")
        except Refused as error:
            assert error.args[0] == "ConnectionShutdown", error
            break
        assert time.time() - began < 10, "a blocklisted client goes on"
    with refused("ConnectionShutdown"):
        a.call("write", 0, "late")
    b.call("write", 0, "b")
    assert b.call("read", 0) == "b"


@check
def vanished(t):
    """The lock's owner is killed: once its watch has timed out (30 s), the next writer takes over and fences it."""
    t.image("vanished")
    a, b = t.open("vanished"), t.open("vanished")
    a.call("write", 0, "a")
    a.kill()
    began = time.time()
    b.begin("write", 1, "b")
    b.result(70)
    took = time.time() - began
    assert b.call("owner") and b.call("read", 0) == "a"
    address = a.facts["address"]
    assert address in t.blocklist(), t.blocklist()
    print(f"  the next writer went on after {took:.1f} s")


def main():
    arg = arguments(__doc__)
    arg.add_argument("--client", help=argparse.SUPPRESS)
    arg.add_argument("checks", nargs="*")
    opt = arg.parse_args()
    if opt.client:
        serve(opt.conf, opt.client)
    t = Run(opt.conf)
    code = run("librbd_fencing", t, only=opt.checks, after=t.clean)
    sys.stdout.flush()
    os._exit(code)


main()
