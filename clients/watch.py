#!/usr/bin/python3
"""Watches, notifications and the blocklist through python3-rados, `rados` and `ceph`:
answers, time-outs, clients that freeze and vanish, deleted objects, an OSD that is
killed, and clients that are fenced. Passes on real Ceph 16.2 too: run it there with
--conf and --dir (`run/osd.0.pid` below it) and without --loligo."""
import argparse, errno, json, os, queue, signal, subprocess, sys, threading, time

import rados

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, fails, run
from cluster import DAEMONS_IF_OURS, arguments, freeze, kill, sh, up

POOL = "watched"
OPT = None


class Client:
    """A process of its own that watches an object and writes to it: see `hold`."""

    def __init__(self, obj, timeout=30, writes=False):
        argv = [sys.executable, os.path.abspath(__file__), "--conf", OPT.conf, "--hold", obj, "--timeout", str(timeout)]
        self.process = subprocess.Popen(argv + ["--writes"] * writes, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.events = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        ready = self.expect("ready")
        self.id, self.addr = ready["client"], ready["addr"]

    def _read(self):
        for line in self.process.stdout:
            self.events.put(json.loads(line))

    def expect(self, event, within=30):
        """The next event of this kind; others before it are dropped."""
        deadline = time.time() + within
        while True:
            try:
                got = self.events.get(timeout=max(0, deadline - time.time()))
            except queue.Empty:
                raise AssertionError(f"no event {event!r} within {within} s") from None
            if got["event"] == event:
                return got

    def quiet(self, event, seconds):
        deadline = time.time() + seconds
        while time.time() < deadline:
            try:
                got = self.events.get(timeout=max(0, deadline - time.time()))
            except queue.Empty:
                return
            assert got["event"] != event, got

    def signal(self, number):
        if number == signal.SIGSTOP:
            freeze(self.process.pid)
        else:
            self.process.send_signal(number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def hold(conf, obj, timeout, writes):
    """What a `Client` runs: watches, prints what happens, and writes on demand or all the time."""
    cluster = rados.Rados(conffile=conf)
    cluster.connect()
    ioctx = cluster.open_ioctx(POOL)

    lock = threading.Lock()

    def say(event, **more):
        with lock:
            print(json.dumps({"event": event, **more}), flush=True)

    watch = ioctx.watch(obj, lambda n, who, w, data: say("notify", id=n, data=data.decode("latin1")),
                        lambda w, code=0: say("error", code=code), timeout)
    say("ready", client=cluster.get_instance_id(), addr=cluster.get_addrs(), cookie=watch.get_id())
    count = 0
    while writes or sys.stdin.readline():
        try:
            ioctx.write_full(obj + ".data", b"late %d" % count)
            count += 1
        except rados.Error as error:
            say("write failed", code=error.errno)
            writes = False
        else:
            if not writes:
                say("written")


def watchers(obj):
    return sh(OPT.conf, "rados", "-p", POOL, "listwatchers", obj).splitlines()


def until(what, within):
    began = time.time()
    while not what():
        if time.time() - began > within:
            raise AssertionError(f"not within {within} s")
        time.sleep(0.2)
    return time.time() - began


def notify(ioctx, obj, message="hello", timeout_ms=5000):
    """Result, those who answered, those who did not, seconds."""
    done, answer = threading.Event(), []

    def complete(_, code, acks, timeouts):
        answer.extend([code, acks, timeouts])
        done.set()

    began = time.time()
    ioctx.aio_notify(obj, complete, message, timeout_ms)
    assert done.wait(timeout_ms / 1000 + 60), "no completion"
    return answer + [time.time() - began]


@check
def a_notification_reaches_the_notifiers_own_watch(cluster, ioctx):
    ioctx.write_full("own", b"")
    heard = queue.Queue()
    with ioctx.watch("own", lambda n, who, w, data: heard.put((who, w, data)), None) as watch:
        code, acks, timeouts, _ = notify(ioctx, "own", "to myself")
        assert code == 0 and not timeouts and len(acks) == 1, (code, acks, timeouts)
        who, cookie, data = heard.get(timeout=5)
        assert (who, cookie) == (cluster.get_instance_id(), watch.get_id()) and data.endswith(b"to myself"), (who, cookie, data)
        assert ioctx.notify("own", "again")
        lines = watchers("own")
        assert len(lines) == 1 and lines[0].endswith(f"client.{cluster.get_instance_id()} cookie={watch.get_id()}"), lines
        assert watch.check() is not None
    assert watchers("own") == []


@check
def without_watchers_a_notification_is_complete_at_once(cluster, ioctx):
    ioctx.write_full("alone", b"")
    code, acks, timeouts, took = notify(ioctx, "alone", timeout_ms=20000)
    assert (code, acks, timeouts) == (0, [], []) and took < 2, (code, acks, timeouts, took)


@check
def objects_that_are_not_there(cluster, ioctx):
    fails(rados.ObjectNotFound, ioctx.watch, "none", lambda *_: None)
    fails(rados.ObjectNotFound, ioctx.notify, "none")
    done = subprocess.run(["rados", "-p", POOL, "listwatchers", "none"], env=dict(os.environ, CEPH_CONF=OPT.conf), capture_output=True)
    assert done.returncode == 1, done


@check
def a_watch_changes_no_user_version(cluster, ioctx):
    ioctx.write_full("version", b"1")
    before = ioctx.get_last_version()
    with ioctx.watch("version", lambda *_: None):
        ioctx.read("version")
        assert ioctx.get_last_version() == before
    ioctx.read("version")
    assert ioctx.get_last_version() == before


@check
def many_watches_all_answer(cluster, ioctx):
    ioctx.write_full("many", b"")
    heard = queue.Queue()
    watches = [ioctx.watch("many", lambda n, who, w, data: heard.put(w)) for _ in range(200)]
    with Client("many") as other:
        code, acks, timeouts, _ = notify(ioctx, "many", timeout_ms=20000)
        assert (code, len(acks), timeouts) == (0, 201, []), (code, len(acks), timeouts)
        other.expect("notify")
    assert {heard.get(timeout=5) for _ in watches} == {w.get_id() for w in watches}
    for watch in watches:
        watch.close()
    assert len(watchers("many")) <= 1


@check
def a_frozen_watcher_is_named_when_time_is_up(cluster, ioctx):
    ioctx.write_full("frozen", b"")
    with Client("frozen") as client, Client("frozen") as awake:
        client.signal(signal.SIGSTOP)
        code, _, _, took = notify(ioctx, "frozen", timeout_ms=3000)
        assert code == -errno.ETIMEDOUT and 2.5 < took < 6, (code, took)
        # python3-rados keeps the lists to itself then.
        done = subprocess.run(["rados", "-p", POOL, "notify", "frozen", "x"], env=dict(os.environ, CEPH_CONF=OPT.conf),
                              capture_output=True, text=True)
        said = [line.split(" cookie")[0] for line in done.stdout.splitlines() if " cookie " in line]
        assert sorted(said) == sorted([f"reply client.{awake.id}", f"timeout client.{client.id}"]), done
        client.signal(signal.SIGCONT)
        client.expect("notify")
        code, acks, timeouts, _ = notify(ioctx, "frozen")
        assert (code, len(acks), timeouts) == (0, 2, []), (code, acks, timeouts)


@check
def a_vanished_watcher_is_waited_for_as_long_as_it_said(cluster, ioctx):
    ioctx.write_full("vanished", b"")
    with Client("vanished", timeout=8) as client:
        assert len(watchers("vanished")) == 1
        client.signal(signal.SIGKILL)
        time.sleep(0.5)
        assert len(watchers("vanished")) == 1, "as long as it may come back"
        code, acks, timeouts, took = notify(ioctx, "vanished", timeout_ms=40000)
        # Its end is no answer, but nobody waits any more.
        assert (code, acks, timeouts) == (0, [], []) and 0.5 < took < 12, (code, acks, timeouts, took)
    assert watchers("vanished") == []


@check
def a_deleted_object_has_no_watchers(cluster, ioctx):
    ioctx.write_full("deleted", b"")
    with Client("deleted") as client:
        ioctx.remove_object("deleted")
        assert client.expect("error")["code"] in (errno.ENOTCONN, -errno.ENOTCONN)
        ioctx.write_full("deleted", b"anew")
        assert watchers("deleted") == []


@check
def a_notification_outlives_the_watcher_that_ends_meanwhile(cluster, ioctx):
    ioctx.write_full("ended", b"")
    with Client("ended") as client:
        client.signal(signal.SIGSTOP)
        done, answer = threading.Event(), []
        ioctx.aio_notify("ended", lambda _, *got: (answer.extend(got), done.set()), "x", 30000)
        time.sleep(0.5)
        assert not done.is_set()
        ioctx.remove_object("ended")
        assert done.wait(5), "the object's removal ends its watches, and what waits for them"
        assert answer == [0, [], []], answer


@check
def watches_survive_the_death_of_an_osd(cluster, ioctx):
    ioctx.write_full("restart", b"")
    with Client("restart") as client:
        before = watchers("restart")
        kill(OPT.dir, *OPT.osds)
        time.sleep(1)
        restart()
        until(lambda: watchers("restart") == before, 60)
        until(lambda: notify(ioctx, "restart")[:3][1] != [], 30)
        client.expect("notify")
        client.quiet("error", 2)
        # And with a client that has died with the OSD.
        kill(OPT.dir, *OPT.osds)
        client.signal(signal.SIGKILL)
        restart()
        until(lambda: watchers("restart") == [], 90)


def restart():
    if OPT.loligo:
        up(OPT.loligo, OPT.dir)
    else:
        for osd in OPT.osds:
            subprocess.run(["ceph-osd", "-i", osd.split(".")[1]], env=dict(os.environ, CEPH_CONF=OPT.conf), check=True)


def life(addr):
    """`v2:…` or bare, as one entry of the blocklist."""
    return addr.strip("[]").split(",")[0].removeprefix("v2:").removeprefix("v1:")


@check
def a_fenced_client_loses_its_watch_and_may_not_write(cluster, ioctx):
    ioctx.write_full("fenced", b"")
    with Client("fenced") as client, Client("fenced") as other:
        for each in (client, other):
            each.process.stdin.write("\n")
            each.process.stdin.flush()
            each.expect("written")
        sh(OPT.conf, "ceph", "osd", "blocklist", "add", life(client.addr))
        cluster.wait_for_latest_osdmap()
        ioctx.write_full("fenced.data", b"after the fence")
        until(lambda: len(watchers("fenced")) == 1, 10)
        assert f"client.{other.id} " in watchers("fenced")[0]
        code, acks, _, _ = notify(ioctx, "fenced")
        assert (code, [a[0] for a in acks]) == (0, [other.id]), (code, acks)
        client.process.stdin.write("\n")
        client.process.stdin.flush()
        assert abs(client.expect("write failed")["code"]) == errno.ESHUTDOWN
        assert ioctx.read("fenced.data") == b"after the fence"
        client.quiet("notify", 1)
        sh(OPT.conf, "ceph", "osd", "blocklist", "rm", life(client.addr))


@check
def a_late_write_never_lands(cluster, ioctx):
    for turn in range(5):
        ioctx.write_full("late", b"")
        with Client("late", writes=True) as client:
            time.sleep(0.3)
            # Whatever of its writes is on its way stays there for a while.
            client.signal(signal.SIGSTOP)
            sh(OPT.conf, "ceph", "osd", "blocklist", "add", life(client.addr), "60")
            cluster.wait_for_latest_osdmap()
            ioctx.write_full("late.data", b"fence %d" % turn)
            client.signal(signal.SIGCONT)
            assert abs(client.expect("write failed")["code"]) == errno.ESHUTDOWN
            time.sleep(0.5)
            assert ioctx.read("late.data") == b"fence %d" % turn
    sh(OPT.conf, "ceph", "osd", "blocklist", "clear")


@check
def a_fence_in_the_midst_of_writes_holds_at_once(cluster, ioctx):
    for turn in range(5):
        ioctx.write_full("race", b"")
        with Client("race", writes=True) as client:
            time.sleep(0.3)
            cluster.blocklist_add(life(client.addr), 60)
            cluster.wait_for_latest_osdmap()
            ioctx.write_full("race.data", b"fence %d" % turn)
            assert abs(client.expect("write failed")["code"]) == errno.ESHUTDOWN
            assert ioctx.read("race.data") == b"fence %d" % turn
    sh(OPT.conf, "ceph", "osd", "blocklist", "clear")


@check
def a_fence_runs_out(cluster, ioctx):
    ioctx.write_full("expiry", b"")
    with Client("expiry") as client:
        sh(OPT.conf, "ceph", "osd", "blocklist", "add", life(client.addr), "3")
        cluster.wait_for_latest_osdmap()
        until(lambda: life(client.addr) not in sh(OPT.conf, "ceph", "osd", "blocklist", "ls"), 20)
        cluster.wait_for_latest_osdmap()
        ioctx.write_full("expiry.data", b"")
        client.process.stdin.write("\n")
        client.process.stdin.flush()
        client.expect("written")


def main():
    global OPT
    arg = arguments(__doc__, DAEMONS_IF_OURS)
    arg.add_argument("--hold", help=argparse.SUPPRESS)
    arg.add_argument("--timeout", type=int, help=argparse.SUPPRESS)
    arg.add_argument("--writes", action="store_true", help=argparse.SUPPRESS)
    arg.add_argument("only", nargs="*")
    OPT = arg.parse_args()
    if OPT.hold:
        return hold(OPT.conf, OPT.hold, OPT.timeout, OPT.writes)
    OPT.dir = OPT.dir or os.path.dirname(os.path.abspath(OPT.conf))
    pids = os.listdir(os.path.join(OPT.dir, "run"))
    OPT.osds = sorted(p.removesuffix(".pid") for p in pids if p.startswith("osd.") and p.endswith(".pid"))
    cluster = rados.Rados(conffile=OPT.conf)
    cluster.connect()
    if not cluster.pool_exists(POOL):
        sh(OPT.conf, "ceph", "osd", "pool", "create", POOL, "8")
    with cluster.open_ioctx(POOL) as ioctx:
        code = run("watch", cluster, ioctx, only=OPT.only)
    cluster.shutdown()
    sys.exit(code)


main()
