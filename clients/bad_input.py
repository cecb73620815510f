#!/usr/bin/python3
"""Rubbish on every port, and commands that must be refused with a clear word;
the cluster goes on serving."""
import json, os, random, shutil, socket, struct, subprocess, sys, tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS, arguments, ceph_json, make_pool, pid_of, sh

BANNER = b"ceph v2\n" + struct.pack("<HQQ", 16, 1, 0)


def ports(directory, conf):
    """Every TCP port that the daemons listen on."""
    pids = {pid_of(directory, d) for d in ["mon.a", *(f"osd.{o}" for o in ceph_json(conf, "osd", "ls"))]}
    inodes = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    found = set()
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            found.add(int(fields[1].split(":")[1], 16))
    return sorted(found)


def send(port, *chunks, linger=0.05):
    """Sends and looks whether the peer hangs up; never waits long."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as s:
            for chunk in chunks:
                s.sendall(chunk)
            s.settimeout(linger)
            while s.recv(65536):
                pass
    except OSError:
        pass


def frame(tag, segments, lie=None):
    """A preamble without a right checksum, or with lengths that lie."""
    sizes = lie or [len(s) for s in segments]
    head = bytes([tag, len(sizes)]) + b"".join(struct.pack("<IH", n & 0xFFFFFFFF, 8) for n in sizes)
    head = head.ljust(28, b"\0") + struct.pack("<I", 0xDEADBEEF)
    return head + b"".join(segments)


def attack(port, seed):
    rng = random.Random(seed)
    send(port, b"GET / HTTP/1.0\r\n\r\n")
    send(port, b"ceph v1\n" + bytes(100))
    send(port, b"ceph v2\n" + struct.pack("<H", 0xFFFF) + bytes(70000))
    send(port, BANNER[:5])
    send(port, BANNER, frame(1, [b"x" * 20]))
    send(port, BANNER, frame(17, [b""], lie=[0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF]))
    for _ in range(20):
        send(port, BANNER, rng.randbytes(rng.randrange(1, 2000)), linger=0.01)
        send(port, rng.randbytes(rng.randrange(1, 2000)), linger=0.01)


def serves(conf):
    sh(conf, "rados", "-p", "bad", "put", "probe", "/etc/hostname", timeout=20)
    sh(conf, "rados", "-p", "bad", "get", "probe", "/dev/null", timeout=20)


def refuses(what, words, *argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    text = done.stdout + done.stderr
    if done.returncode == 0 or words not in text or "panicked" in text:
        sys.exit(f"{what}: exit code {done.returncode}, wanted a refusal with {words!r}:\n{text}")
    print(f"{what}: {text.strip().splitlines()[0]}")


def main():
    opt = arguments(__doc__, DAEMONS).parse_args()
    make_pool(opt.conf, "bad")
    before = {d: pid_of(opt.dir, d) for d in ("mon.a", "osd.0", "osd.1", "osd.2")}
    listening = ports(opt.dir, opt.conf)
    if len(listening) < 7:
        sys.exit(f"expected a monitor's port and two for each OSD, found {listening}")
    # Stalled in the middle of a frame, all the while.
    stalled = []
    for port in listening:
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(BANNER + b"\x01")
        stalled.append(s)
    for port in listening:
        attack(port, port)
    serves(opt.conf)
    after = {d: pid_of(opt.dir, d) for d in before}
    if before != after or any(not os.path.exists(f"/proc/{p}") for p in after.values()):
        sys.exit("a daemon died of bad input")
    print(f"rubbish on ports {listening}: still serving")
    with tempfile.TemporaryDirectory() as top:
        port = str(listening[0])
        other = os.path.join(top, "other")
        mon_port = json.load(open(os.path.join(opt.dir, "cluster.json")))["port"]
        refuses("port in use", "in use", opt.loligo, "up", other, "--port", str(mon_port))
        full = os.path.join(top, "full")
        os.mkdir(full)
        open(os.path.join(full, "somebody's file"), "w").close()
        refuses("a directory of something else", "not empty", opt.loligo, "up", full)
        newer = os.path.join(top, "newer")
        os.mkdir(newer)
        settings = json.load(open(os.path.join(opt.dir, "cluster.json")))
        json.dump(dict(settings, format=99), open(os.path.join(newer, "cluster.json"), "w"))
        refuses("a newer format", "newer", opt.loligo, "up", newer)
        small = os.path.join(top, "small")
        refuses("a device too small", "small", opt.loligo, "up", small, "--osd-size", "1M", "--port", "13399")
        subprocess.run([opt.loligo, "down", small], capture_output=True)
        # An OSD's device of another cluster.
        fsid = "00000000-1111-4222-8333-444444444444"
        stolen = os.path.join(top, "stolen")
        shutil.copyfile(os.path.join(opt.dir, "osd.0", "block"), stolen) if os.path.getsize(os.path.join(opt.dir, "osd.0", "block")) < 1 << 28 else \
            subprocess.run(["cp", "--sparse=always", os.path.join(opt.dir, "osd.0", "block"), stolen], check=True)
        refuses("a device of another cluster", "cluster", opt.loligo, "osd", "--id", "0", "--device", stolen,
                "--mons", f"127.0.0.1:{mon_port}", "--fsid", fsid)
    for s in stalled:
        s.close()
    serves(opt.conf)


main()
