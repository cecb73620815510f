#!/usr/bin/python3
"""No write is acknowledged before it is on stable storage.

    ack_after_flush.py --conf DIR/ceph.conf --loligo PATH --dir DIR

Two proofs, from below and from within:

1. A real OSD under strace. Every write's data and name are unique, so that its
   bytes are found again in the system calls that write to the device, and its
   name in the one that sends the reply. Each of those writes must have been durable by
   itself (RWF_DSYNC) and have returned before the reply was sent, or there must be an
   fdatasync in between that began after the write returned.
   The OSD uses epoll for this: with io_uring there are no system calls to see.
2. The engine on a real file by both interfaces, io_uring and epoll, at several
   depths: `loligo store bench --check-order` looks for every write's bytes in the
   requests to the device and checks each acknowledgement the same way.

Needs strace and the right to trace; says so where it skips.
"""
import json, os, re, shutil, signal, subprocess, sys, tempfile, threading
import rados
from cluster import DAEMONS, arguments, pid_of, sh, wait_clean

WRITES = 300
IN_FLIGHT = 16
CALLS = "pwrite64,pwritev,pwritev2,fdatasync,fsync,sendmsg,sendto,openat"


def main():
    opt = arguments(__doc__, DAEMONS).parse_args()
    engine(opt.loligo)
    if not shutil.which("strace"):
        print("an OSD under strace: SKIPPED: strace is not installed")
        return
    top = tempfile.mkdtemp(prefix="loligo-strace.")
    directory = os.path.join(top, "cluster")
    try:
        osd(opt.loligo, directory, os.path.join(top, "trace"))
    finally:
        subprocess.run([opt.loligo, "down", directory], stdout=subprocess.DEVNULL)
        shutil.rmtree(top, ignore_errors=True)


def engine(loligo):
    for backend in ("uring", "epoll"):
        with tempfile.TemporaryDirectory(prefix="loligo-order.") as top:
            done = subprocess.run(
                [loligo, "store", "bench", os.path.join(top, "device"), "--backend", backend, "--check-order", "--json",
                 "--sparse", "--size=512M", "--data-size=64M", "--depth=1,8,32", "--seconds=1", "--ramp=0",
                 "--workload=write-4k,write-4m"], capture_output=True, text=True)
        if done.returncode and backend == "uring" and "io_uring cannot be used" in done.stderr:
            print("the engine by io_uring: SKIPPED:", done.stderr.strip())
            continue
        if done.returncode:
            raise SystemExit(f"the engine by {backend}: {done.stdout}{done.stderr}")
        count = json.loads(done.stdout)["writes_in_order"]
        assert count > 100, count
        print(f"the engine by {backend}: {count} writes at depths 1, 8, 32: each acknowledged when it was durable")


def osd(loligo, directory, trace):
    """One OSD, one copy: the reply follows from this device alone."""
    port = sh("/dev/null", sys.executable, "-c",
              "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])").strip()
    subprocess.run([loligo, "up", directory, "--port", port, "--osds", "1", "--replicas", "1", "--osd-size", "1G",
                    "--backend", "epoll"], check=True, stdout=subprocess.DEVNULL)
    conf = os.path.join(directory, "ceph.conf")
    sh(conf, "ceph", "config", "set", "global", "mon_allow_pool_size_one", "true")
    sh(conf, "ceph", "osd", "pool", "create", "order", "8")
    wait_clean(conf, 30)
    pid = pid_of(directory, "osd.0")
    # Strings whole, one file for all threads: its order is that of the kernel's stops.
    tracer = subprocess.Popen(["strace", "-f", "-p", str(pid), "-e", f"trace={CALLS}", "-o", trace, "-s", "1000000", "-xx", "-y", "-T"],
                              stderr=subprocess.PIPE, text=True)
    line = tracer.stderr.readline()
    if "attached" not in line:
        tracer.wait()
        print("an OSD under strace: SKIPPED:", line.strip())
        return
    threading.Thread(target=tracer.stderr.read, daemon=True).start()
    try:
        write(conf)
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
    check(trace)


def name_of(number):
    return f"ack-after-flush-{number:06d}-name"


def data_of(number):
    return f"ack-after-flush-{number:06d}-data".encode().ljust(64, b".") * 64


def write(conf):
    with rados.Rados(conffile=conf) as cluster, cluster.open_ioctx("order") as io:
        waiting = []
        for number in range(WRITES):
            # The first ones one by one, then many at a time.
            if len(waiting) >= (1 if number < WRITES // 3 else IN_FLIGHT):
                waiting.pop(0).wait_for_complete()
            waiting.append(io.aio_write_full(name_of(number), data_of(number)))
        for completion in waiting:
            completion.wait_for_complete()
            assert completion.get_return_value() == 0


CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
RESULT = re.compile(r"= (-?\d+)[^=]*$")
BYTES = re.compile(r"(?:\\x[0-9a-f]{2})+")
MARK = re.compile(rb"ack-after-flush-(\d{6})-(name|data)")


def events(trace):
    """(moment, thread, call, arguments, whether it began, its result) in the order of strace's lines."""
    begun = {}
    for moment, line in enumerate(open(trace, errors="replace")):
        line = line.rstrip("\n")
        if found := RESUMED.match(line):
            pid, call, rest = found.groups()
            arguments = begun.pop(pid, "")
            yield moment, pid, call, arguments + rest, "end", result_of(rest)
        elif found := CALL.match(line):
            pid, call, rest = found.groups()
            if rest.endswith("<unfinished ...>"):
                begun[pid] = rest
                yield moment, pid, call, rest, "begin", None
            else:
                yield moment, pid, call, rest, "begin", None
                yield moment, pid, call, rest, "end", result_of(rest)


def result_of(text):
    found = RESULT.search(text)
    return int(found.group(1)) if found else None


def marks(arguments):
    """Names and data in the bytes of a call."""
    for run in BYTES.findall(arguments):
        raw = bytes.fromhex(run.replace("\\x", ""))
        for number, kind in MARK.findall(raw):
            yield int(number), kind.decode()


def check(trace):
    written = {}   # (number, kind) -> moment when the first write with it had returned
    lasting = {}   # (number, kind) -> moment when the first durable write with it had returned
    durable = []   # (began, ended) of each flush that succeeded
    replied = {}
    calls = {}
    flushing = {}
    for moment, pid, call, arguments, stage, result in events(trace):
        calls[call] = calls.get(call, 0) + (stage == "end")
        if call.startswith("pwrite") and stage == "end":
            assert result is not None and result > 0, f"a device write failed: {arguments[-80:]}"
            for mark in set(marks(arguments)):
                written.setdefault(mark, moment)
                if "RWF_DSYNC" in arguments:
                    lasting.setdefault(mark, moment)
        elif call in ("fdatasync", "fsync"):
            if stage == "begin":
                flushing[pid] = moment
            elif result == 0:
                durable.append((flushing[pid], moment))
        elif call in ("sendmsg", "sendto") and stage == "begin":
            # One OSD alone, whose only messages with these names are replies.
            for number, kind in marks(arguments):
                if kind == "name":
                    replied.setdefault(number, moment)
    assert len(replied) == WRITES, f"{len(replied)} replies seen of {WRITES}: {calls}"
    for number, reply in sorted(replied.items()):
        for part in ((number, "name"), (number, "data")):
            assert part in written, f"write {number} was acknowledged and its {part[1]} is in no write to the device"
            by_itself = lasting.get(part, reply) < reply
            flushed = any(written[part] <= began and ended <= reply for began, ended in durable)
            assert by_itself or flushed, (
                f"the {part[1]} of write {number} was on its way until {written[part]} and acknowledged at {reply}, "
                "by no durable write and without a flush in between")
    alone = sum(lasting.get((number, "data"), reply) < reply for number, reply in replied.items())
    print(f"an OSD under strace: {len(replied)} replies, {calls.get('pwritev2', 0)} device writes, {len(durable)} flushes: "
          f"each reply was sent when its name and data were durable, the data of {alone} by durable writes")


main()
