#!/usr/bin/python3
"""What a cluster's OSDs answer to single operations and compounds of them, in every detail of the reply.

    op_semantics.py --conf A/ceph.conf                          print the answers as JSON
    op_semantics.py --conf A/ceph.conf --conf B/ceph.conf       print where the two clusters differ

librados hides most of a reply, so the operations go to the object's primary OSD over a connection of our
own (msgr2.1, crc mode, auth none). Each case is a list of messages to one fresh object; of each reply the
result, the code and output of every operation, and the steps that user version and PG version took are
recorded. Needs python3-rados, a cluster with auth none, and leaves a pool `op_semantics` behind; where one is
left from before, listings and some user versions differ.
"""
import argparse
import itertools
import json
import socket
import struct
import sys
import time

import rados

POOL = "op_semantics"
FEATURES = 0x3F01CFBDFFFDFFFF
RETURNVEC, FULL_TRY = 0x4000000, 0x800000
EXCL, FAILOK = 1, 2
HEAD, SNAPDIR = 2**64 - 2, 2**64 - 1
EQ, NE, GT, GTE, LT, LTE = range(1, 7)

# --- encoding ---

TABLE = []
for n in range(256):
    for _ in range(8):
        n = (n >> 1) ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(seed, data):
    for byte in data:
        seed = TABLE[(seed ^ byte) & 0xFF] ^ (seed >> 8)
    return seed


def u8(v):
    return struct.pack("<B", v)


def u32(v):
    return struct.pack("<I", v)


def s32(v):
    return struct.pack("<i", v)


def u64(v):
    return struct.pack("<Q", v)


def s64(v):
    return struct.pack("<q", v)


def blob(v):
    v = v.encode() if isinstance(v, str) else v
    return u32(len(v)) + v


def versioned(version, compat, body):
    return struct.pack("<BBI", version, compat, len(body)) + body


def str_map(entries):
    return u32(len(entries)) + b"".join(blob(k) + blob(v) for k, v in sorted(entries.items()))


def str_set(keys):
    return u32(len(keys)) + b"".join(blob(k) for k in sorted(keys))


def address(kind, ip, port, nonce):
    sockaddr = struct.pack("<H", 2) + struct.pack(">H", port) + socket.inet_aton(ip) + bytes(8)
    return u8(1) + versioned(1, 1, u32(kind) + u32(nonce) + u32(len(sockaddr)) + sockaddr)


def locator(pool, key="", nspace=""):
    return versioned(6, 3, s64(pool) + s32(-1) + blob(key) + blob(nspace) + s64(-1))


def hobject(pool, hash_, name="", snap=HEAD, is_max=0, nspace="", key=""):
    body = blob(key) + blob(name) + u64(snap) + u32(hash_) + u8(is_max) + blob(nspace) + s64(pool)
    return versioned(4, 3, body)


# --- connection ---


class Osd:
    """One session with one OSD."""

    def __init__(self, ip, port, nonce, global_id, tids, own_nonce):
        self.sock = socket.create_connection((ip, port), timeout=30)
        self.tids, self.seq = tids, 0
        self.sock.sendall(b"ceph v2\n" + struct.pack("<HQQ", 16, 1, 0))
        assert self.exactly(8) == b"ceph v2\n"
        self.exactly(struct.unpack("<H", self.exactly(2))[0])
        target = address(2, ip, port, nonce)
        mine = address(2, "127.0.0.1", 0, own_nonce)
        self.send(1, [u8(8) + target])
        self.expect(1)
        auth = u8(1) + u32(8) + blob("admin") + u64(global_id)
        self.send(2, [u32(1) + u32(1) + u32(1) + blob(auth)])
        self.expect(6)
        self.send(7, [bytes(32)])
        self.expect(7)
        ident = u8(2) + u32(1) + mine + target + s64(global_id)
        self.send(8, [ident + u64(1) + u64(FEATURES) + u64(1 << 59) + u64(1) + u64(0)])
        self.expect(9)

    def exactly(self, n):
        got = b""
        while len(got) < n:
            part = self.sock.recv(n - len(got))
            if not part:
                raise EOFError("the OSD hung up")
            got += part
        return got

    def send(self, tag, segments):
        head = struct.pack("<BB", tag, len(segments))
        for i in range(4):
            head += struct.pack("<IH", len(segments[i]) if i < len(segments) else 0, 4096 if i == 3 else 8)
        head += bytes(2)
        frame = head + u32(crc32c(0, head)) + segments[0] + u32(crc32c(2**32 - 1, segments[0]))
        if len(segments) > 1:
            frame += b"".join(segments[1:]) + u8(0xE)
            for i in range(1, 4):
                frame += u32(crc32c(2**32 - 1, segments[i]) if i < len(segments) else 0)
        self.sock.sendall(frame)

    def receive(self):
        head = self.exactly(32)
        tag, count = head[0], head[1]
        lengths = [struct.unpack_from("<I", head, 2 + 6 * i)[0] for i in range(4)]
        segments = []
        for i in range(count):
            segments.append(self.exactly(lengths[i]))
            if i == 0 and lengths[0]:
                self.exactly(4)
        if count > 1:
            self.exactly(13)
        return tag, segments + [b""] * (4 - len(segments))

    def expect(self, tag):
        got, segments = self.receive()
        assert got == tag, "frame %d instead of %d: %r" % (got, tag, segments)
        return segments

    def request(self, front, data):
        self.seq += 1
        tid = next(self.tids)
        header = struct.pack("<QQHHHIHQBHH", self.seq, tid, 42, 63, 8, 0, 0, 0, 3, 3, 0)
        self.send(17, [header, front, b"", data] if data else [header, front])
        while True:
            tag, segments = self.receive()
            if tag != 17:
                continue
            _, got_tid, kind = struct.unpack_from("<QQH", segments[0])
            if kind == 43 and got_tid == tid:
                return Reply(segments[1], segments[3])


class Reply:
    def __init__(self, front, data):
        at = 4 + struct.unpack_from("<I", front)[0] + 17 + 8
        (self.result,) = struct.unpack_from("<i", front, at)
        at += 4 + 12 + 4
        (count,) = struct.unpack_from("<I", front, at)
        at += 4
        lengths = [struct.unpack_from("<I", front, at + 38 * i + 34)[0] for i in range(count)]
        at += 38 * count + 4
        self.rvals = list(struct.unpack_from("<%di" % count, front, at))
        at += 4 * count
        self.version, _, self.user_version = struct.unpack_from("<QIQ", front, at)
        self.out = []
        for length in lengths:
            self.out.append(data[:length])
            data = data[length:]


class Cluster:
    def __init__(self, conf, own_nonce=0):
        # An OSD takes two clients at one address for one.
        self.own_nonce = own_nonce
        self.rados = rados.Rados(conffile=conf)
        self.rados.connect()
        self.command(prefix="osd pool create", pool=POOL, pg_num=8, pgp_num=8, pool_type="replicated")
        self.rados.wait_for_latest_osdmap()
        self.pool = self.rados.pool_lookup(POOL)
        # Far from the tids that this client id has used itself: an OSD tells requests apart by them.
        self.tids = itertools.count(1 << 40)
        self.osds = {}

    def command(self, **command):
        code, out, text = self.rados.mon_command(json.dumps(dict(command, format="json")), b"")
        if code:
            raise RuntimeError("%s: %s" % (command, text))
        return json.loads(out) if out.strip() else None

    def locate(self, name, nspace=""):
        command = dict(prefix="osd map", pool=POOL, object=name)
        if nspace:
            command["nspace"] = nspace
        where = self.command(**command)
        raw = int(where["raw_pgid"].split(".")[1], 16)
        seed = int(where["pgid"].split(".")[1], 16)
        return raw, seed, where["acting_primary"], where["epoch"]

    def osd(self, number):
        if number not in self.osds:
            dump = self.command(prefix="osd dump")
            (osd,) = [o for o in dump["osds"] if o["osd"] == number]
            (addr,) = [a for a in osd["public_addrs"]["addrvec"] if a["type"] == "v2"]
            ip, port = addr["addr"].rsplit(":", 1)
            self.osds[number] = Osd(ip, int(port), addr["nonce"], self.rados.get_instance_id(), self.tids, self.own_nonce)
        return self.osds[number]

    def send(self, target, name, ops, flags=RETURNVEC, snap=HEAD, nspace="", key="", mtime=(100, 5), snapc=(0, [])):
        raw, seed, primary, epoch = target
        # Clients always set the KNOWN_REDIR flag; reads and writes are told by the operations.
        writes = any(op[0] & 0x2000 for op in ops)
        flags |= 0x400000 | (0x20 if writes else 0x10)
        pg = versioned(1, 1, u8(1) + u64(self.pool) + u32(seed) + s32(-1) + struct.pack("<b", -1))
        front = pg + u32(raw) + u32(epoch) + u32(flags) + versioned(2, 2, bytes(21)) + bytes(24)
        front += u32(0) + u32(mtime[0]) + u32(mtime[1]) + locator(self.pool, key, nspace) + blob(name)
        front += struct.pack("<H", len(ops))
        for code, op_flags, args, indata in ops:
            front += struct.pack("<HI", code, op_flags) + args.ljust(28, b"\0") + u32(len(indata))
        seq, snaps = snapc
        front += u64(snap) + u64(seq) + u32(len(snaps)) + b"".join(map(u64, snaps)) + s32(0) + u64(FEATURES)
        return self.osd(primary).request(front, b"".join(op[3] for op in ops))


# --- operations: (code, flags, arguments, input) ---


def bare(code, flags=0, indata=b""):
    return (code, flags, b"", indata)


def extent(code, offset, length, indata=b"", tsize=0, tseq=0):
    return (code, 0, u64(offset) + u64(length) + u64(tsize) + u32(tseq), indata)


def read(offset=0, length=0, **truncation):
    return extent(0x1201, offset, length, **truncation)


def sparse_read(offset, length, **truncation):
    return extent(0x1205, offset, length, **truncation)


def write(offset, data, length=None, **truncation):
    return extent(0x2201, offset, len(data) if length is None else length, data, **truncation)


def write_full(data, length=None):
    return extent(0x2202, 0, len(data) if length is None else length, data)


def append(data, **truncation):
    return extent(0x2206, 0, len(data), data, **truncation)


def zero(offset, length, **truncation):
    return extent(0x2204, offset, length, **truncation)


def truncate(size, **truncation):
    return extent(0x2203, size, 0, **truncation)


def trimtrunc(size, seq):
    return extent(0x2209, 0, 0, tsize=size, tseq=seq)


def writesame(offset, length, data, data_len=None):
    data_len = len(data) if data_len is None else data_len
    return (0x2226, 0, u64(offset) + u64(length) + u64(data_len), data)


def checksum(kind, offset, length, chunk, seed):
    return (0x121F, 0, u64(offset) + u64(length) + u32(chunk) + u8(kind), seed)


def cmpext(offset, data, length=None, **truncation):
    return extent(0x1220, offset, len(data) if length is None else length, data, **truncation)


def xattr(code, name, value=b"", op=0, mode=0):
    name, value = name.encode(), value if isinstance(value, bytes) else value.encode()
    return (code, 0, u32(len(name)) + u32(len(value)) + u8(op) + u8(mode), name + value)


def getxattr(name):
    return xattr(0x1301, name)


def setxattr(name, value):
    return xattr(0x2301, name, value)


def rmxattr(name):
    return xattr(0x2304, name)


def cmpxattr(name, op, value):
    if isinstance(value, int):
        return xattr(0x1303, name, u64(value), op, 2)
    return xattr(0x1303, name, value, op, 1)


def assert_ver(version):
    return (0x1208, 0, u64(0) + u64(version), b"")


def omap_keys(after="", count=10):
    return bare(0x1211, 0, blob(after) + u64(count))


def omap_vals(after="", count=10, prefix=""):
    return bare(0x1212, 0, blob(after) + u64(count) + blob(prefix))


def omap_by_keys(*keys):
    return bare(0x1214, 0, str_set(keys))


def omap_set(**entries):
    return bare(0x2215, 0, str_map(entries))


def omap_rm(*keys):
    return bare(0x2218, 0, str_set(keys))


def omap_rm_range(start, end):
    return bare(0x222C, 0, blob(start) + blob(end))


def omap_cmp(**assertions):
    body = b"".join(blob(k) + blob(v) + s32(op) for k, (op, v) in sorted(assertions.items()))
    return bare(0x1219, 0, u32(len(assertions)) + body)


def failok(op):
    return (op[0], op[1] | FAILOK) + op[2:]


STAT, GETXATTRS, OMAP_HEADER = bare(0x1202), bare(0x1302), bare(0x1213)
CREATE, CREATE_EXCL, DELETE, OMAP_CLEAR = bare(0x220D), bare(0x220D, EXCL), bare(0x2205), bare(0x2217)
LIST_WATCHERS, LIST_SNAPS, MAPEXT = bare(0x1209), bare(0x120A), extent(0x1203, 0, 100)
HINT = (0x2223, 0, u64(4 << 20) + u64(4096) + u32(0), b"")
MAX = 128 << 20


def omap_header(data):
    return bare(0x2216, 0, data)


def copy_from(name, version=0, flags=0, second=False, tail=b"", snap=HEAD):
    """The source's pool is filled in when the case runs."""
    args = u64(snap) + u64(version) + u8(flags) + u32(0)
    return lambda pool: (0x222D if second else 0x221A, 0, args, blob(name) + locator(pool) + tail)


# --- cases: name, messages to one object that does not exist at first ---


class Step:
    def __init__(self, *ops, **how):
        self.ops, self.how = ops, how


def plain(*ops):
    """A message without RETURNVEC."""
    return Step(*ops, flags=0)


def cases():
    data = bytes(range(100))
    seed32, seed64 = u32(2**32 - 1), u64(7)
    show = Step(STAT, read(), GETXATTRS, omap_vals())
    base = Step(write_full(data))
    attrs = Step(setxattr("a", "apple"), setxattr("n", "42"), setxattr("e", ""))
    omap = Step(omap_set(k1="v1", k2="v2", k3="", l1="w"), omap_header(b"head"))
    yield "read missing", [Step(read()), Step(STAT), Step(getxattr("a")), Step(read(), STAT), Step(failok(STAT))]
    yield "reads", [base] + [
        Step(read(*args))
        for args in [(0, 0), (10, 0), (0, 10), (95, 10), (100, 1), (200, 5), (200, 0), (2**64 - 1, 2)]
    ]
    yield "reads of one message", [base, Step(STAT, read(0, 3), read(98, 9), getxattr("a"), STAT)]
    yield "failok in a read", [base, Step(failok(getxattr("a")), read(0, 3)), Step(read(0, 3), failok(getxattr("a")))]
    yield "read truncation", [base] + [
        Step(read(*args, tsize=tsize, tseq=tseq))
        for args, tsize, tseq in [((0, 50), 10, 1), ((0, 5), 10, 1), ((20, 5), 10, 1), ((0, 0), 10, 1),
                                  ((5, 200), 300, 1), ((0, 0), 2**64 - 1, 1)]
    ]
    yield "sparse read", [base, Step(sparse_read(90, 20)), Step(sparse_read(100, 5)),
                          Step(sparse_read(0, 5, tseq=1)), Step(sparse_read(0, 0))]
    yield "sparse read of an empty object", [Step(CREATE), Step(sparse_read(0, 10))]
    yield "sparse read in a write", [Step(sparse_read(0, 10), CREATE), Step(CREATE, sparse_read(0, 10))]
    yield "write", [Step(write(5, b"abc")), show, Step(write(0, b"xy")), show, Step(write(20, b"")), show,
                    Step(write(3, b"")), show]
    yield "write without returnvec", [plain(write(0, b"abc")), plain(STAT, write(0, b"x")), show]
    yield "write lengths", [base, Step(write(0, b"abc", 2)), Step(write(0, b"abc", 4)), Step(write_full(b"abc", 2)),
                            Step(extent(0x2206, 0, 9, b"abc"))]
    yield "write limits", [Step(write(MAX, b"")), Step(write(MAX - 1, b"ab")), Step(write(2**64 - 1, b"ab")),
                           Step(truncate(MAX)), CREATE_STEP, Step(truncate(MAX)), Step(truncate(MAX - 1)), Step(STAT),
                           Step(append(b"ab")), Step(append(b"a")), Step(STAT), Step(truncate(2**64 - 1))]
    yield "write full", [base, Step(write_full(b"short")), show, Step(write_full(b"")), show]
    yield "write full keeps xattrs and omap", [base, attrs, omap, Step(write_full(b"short")), show]
    yield "append", [Step(append(b"one")), Step(append(b"two"), append(b"three")), show]
    yield "truncate", [Step(truncate(10)), Step(STAT), base, Step(truncate(10)), show, Step(truncate(12)), show,
                       Step(truncate(12)), Step(STAT), Step(truncate(0)), show]
    yield "trimtrunc", [base, Step(trimtrunc(50, 1)), Step(STAT), Step(trimtrunc(10, 1)), Step(STAT),
                        Step(trimtrunc(10, 2)), Step(STAT), Step(trimtrunc(60, 3)), show]
    yield "trimtrunc missing", [Step(trimtrunc(50, 1)), Step(STAT)]
    yield "writes around a truncation", [
        base, Step(write(10, b"new", tsize=20, tseq=5)), show, Step(write(18, b"older", tsize=0, tseq=4)), show,
        Step(write(100, b"older", tsize=0, tseq=4)), show, Step(write(20, b"same", tsize=20, tseq=5)), show,
        Step(append(b"tail")), show, Step(write_full(b"full")), show, Step(read(0, 10, tsize=1, tseq=6)),
        Step(cmpext(0, b"full", tsize=2, tseq=6)), Step(read(0, 10, tsize=1, tseq=5))]
    yield "truncation of a new object", [Step(write(0, b"abc", tsize=1, tseq=5)), show,
                                         Step(write(0, b"abcdef", tsize=0, tseq=4)), show]
    yield "zero", [Step(zero(0, 10)), Step(STAT), base, Step(zero(10, 20)), show, Step(zero(90, 10)), show,
                   Step(zero(80, 100)), show, Step(zero(80, 10)), show, Step(zero(500, 10)), show,
                   Step(zero(0, MAX + 1)), Step(zero(MAX, 1)), Step(zero(0, 80)), show]
    yield "zero beyond the end after cmpxattr", [base, attrs, Step(cmpxattr("n", EQ, 42), zero(500, 1))]
    yield "create", [Step(CREATE), show, Step(CREATE), Step(CREATE_EXCL), Step(failok(CREATE_EXCL), write(0, b"x")),
                     Step(bare(0x220D, 0, blob("category"))), Step(bare(0x220D, 0, b"\x09")), show]
    yield "create excl new", [Step(CREATE_EXCL), show]
    yield "delete", [Step(DELETE), base, Step(DELETE), Step(STAT), Step(DELETE)]
    yield "delete and create", [base, attrs, omap, Step(DELETE, CREATE), show]
    yield "create and delete", [Step(CREATE, DELETE), Step(STAT), Step(write(0, b"abc"), DELETE, STAT)]
    yield "delete, then stat", [base, Step(DELETE, failok(STAT)), Step(STAT)]
    yield "delete, then assert version", [base, Step(DELETE, assert_ver(2**60))]
    yield "alloc hint", [Step(HINT), show, Step(failok(HINT), write(0, b"abc")), show, plain(failok(HINT), write(0, b"ab"))]
    yield "writesame", [Step(writesame(2, 6, b"ab")), show, Step(writesame(0, 5, b"ab")), Step(writesame(0, 0, b"ab")),
                        Step(writesame(0, 4, b"")), Step(writesame(0, 4, b"ab", 4)), Step(writesame(0, MAX + 2, b"ab")), show]
    yield "checksum", [base] + [
        Step(checksum(kind, *extent_, chunk, seed))
        for kind, seed in [(0, seed32), (1, seed64), (2, seed32)]
        for extent_, chunk in [((0, 0), 0), ((0, 100), 25), ((10, 30), 10), ((0, 100), 30), ((0, 0), 10),
                               ((90, 20), 10), ((95, 20), 10), ((90, 20), 0), ((100, 10), 0), ((100, 0), 0), ((10, 0), 0)]
    ]
    yield "checksum input", [base, Step(checksum(3, 0, 0, 0, seed64)), Step(checksum(1, 0, 0, 0, seed32)),
                             Step(checksum(0, 0, 0, 0, b"")), Step(checksum(2, 0, 10, 2**32 - 1, seed32))]
    yield "checksum of an empty object", [Step(CREATE), Step(checksum(2, 0, 0, 0, seed32)),
                                          Step(checksum(2, 0, 10, 10, seed32))]
    yield "cmpext", [base, Step(cmpext(0, data)), Step(cmpext(3, b"\x03\x05")), Step(cmpext(98, b"\x62\x63\0\0")),
                     Step(cmpext(98, b"\x62\x63\0\1")), Step(cmpext(500, b"\0")), Step(cmpext(500, b"\1")),
                     Step(cmpext(0, b"\0\1\2", 2)), Step(cmpext(0, b"\0\0", 0)), Step(cmpext(0, b"", 5)),
                     Step(cmpext(0, b"\0\1"), write(0, b"new")), Step(cmpext(0, b"\0\1"), write(0, b"newer")), show,
                     Step(failok(cmpext(0, b"zz")), write(0, b"!")), show, Step(cmpext(0, b"\1"), failok(write(0, b"?")))]
    yield "cmpext missing", [Step(cmpext(0, b"\0\0"), write(0, b"a")), Step(DELETE), Step(cmpext(0, b"\0\1"), write(0, b"a")),
                             Step(cmpext(0, b"\0"))]
    yield "xattrs", [attrs, Step(getxattr("a"), getxattr("e"), getxattr("n")), Step(getxattr("x")), Step(GETXATTRS),
                     Step(rmxattr("a")), Step(rmxattr("a")), Step(GETXATTRS), Step(setxattr("n", "43")), Step(getxattr("n"))]
    yield "rmxattr missing", [Step(rmxattr("a")), Step(STAT)]
    yield "getxattr in a write", [Step(getxattr("a"), CREATE), Step(CREATE, getxattr("a")), Step(CREATE, failok(getxattr("a"))),
                                  Step(GETXATTRS), Step(failok(GETXATTRS), CREATE)]
    yield "getxattrs in a write of a missing object", [Step(failok(GETXATTRS), CREATE)]
    yield "xattr limits", [Step(setxattr("x" * 100, "v")), Step(setxattr("x" * 101, "v")), Step(setxattr("big", "v" * 7000)),
                           Step(STAT)]
    yield "xattr names", [Step(setxattr("_", "v"), setxattr("__", "w"), setxattr("\u00fc", "x"), setxattr("u", "y"),
                               setxattr("snapset", "z")), Step(GETXATTRS), Step(getxattr("_")), Step(getxattr("\u00fc"))]
    for value in ["apple", "banana", "aa", ""]:
        yield "cmpxattr string %r" % value, [attrs] + [Step(cmpxattr("a", op, value)) for op in range(0, 8)]
    for value in [41, 42, 43, 2**64 - 1]:
        yield "cmpxattr u64 %d" % value, [attrs] + [Step(cmpxattr("n", op, value)) for op in range(0, 8)]
    yield "cmpxattr others", [attrs, Step(cmpxattr("none", EQ, "")), Step(cmpxattr("none", EQ, 0)), Step(cmpxattr("a", EQ, 0)),
                              Step(setxattr("n", "-1")), Step(cmpxattr("n", EQ, 2**64 - 1)), Step(setxattr("n", " 7x")),
                              Step(cmpxattr("n", EQ, 7)), Step(xattr(0x1303, "n", "7", EQ, 0)), Step(xattr(0x1303, "n", "7", EQ, 3)),
                              Step(xattr(0x1303, "n", "short", EQ, 2))]
    yield "cmpxattr codes", [attrs, Step(cmpxattr("a", EQ, "apple"), STAT, read(0, 1)), Step(cmpxattr("a", EQ, "apple"), STAT),
                             Step(cmpxattr("a", EQ, "apple"), omap_keys()), Step(cmpxattr("a", EQ, "apple"), OMAP_HEADER),
                             Step(cmpxattr("a", EQ, "apple"), assert_ver(0)), Step(cmpxattr("a", EQ, "apple"), getxattr("n")),
                             Step(cmpxattr("a", EQ, "apple"), omap_cmp()), Step(cmpxattr("a", EQ, "apple"), GETXATTRS),
                             Step(cmpxattr("a", EQ, "apple"), setxattr("a", "pear")), plain(cmpxattr("a", EQ, "pear"), setxattr("a", "fig")),
                             Step(setxattr("n", "1"), cmpxattr("a", EQ, "fig")), plain(setxattr("n", "1"), cmpxattr("a", EQ, "fig")),
                             Step(setxattr("n", "2"), cmpxattr("a", EQ, "nut")), plain(setxattr("n", "2"), cmpxattr("a", EQ, "nut")),
                             Step(failok(cmpxattr("a", EQ, "nut")), STAT), Step(getxattr("n"))]
    yield "cmpxattr missing object", [Step(cmpxattr("a", EQ, "")), Step(cmpxattr("a", EQ, ""), CREATE), Step(CREATE, cmpxattr("a", EQ, ""))]
    yield "assert version", [base, Step(assert_ver(0)), Step(assert_ver(1)), Step(assert_ver(2**63)),
                             Step(assert_ver(2**63), write(0, b"x")), Step(STAT)]
    yield "assert version missing", [Step(assert_ver(5)), Step(assert_ver(5), CREATE)]
    yield "assert exists", [Step(STAT, write(0, b"x")), base, Step(STAT, write(0, b"x")), plain(STAT, write(0, b"y")), show]
    yield "omap", [omap, Step(omap_keys()), Step(omap_keys("k1")), Step(omap_keys("", 2)), Step(omap_keys("", 4)), Step(omap_keys("", 0)),
                   Step(omap_vals()), Step(omap_vals("k1", 1)), Step(omap_vals("", 9, "k")), Step(omap_vals("k2", 9, "k")),
                   Step(omap_vals("", 2, "k")), Step(omap_vals("", 3, "k")), Step(omap_vals("a", 9, "z")), Step(OMAP_HEADER),
                   Step(omap_by_keys("k1", "k3", "none")), Step(omap_rm("k1", "none")), Step(omap_keys()),
                   Step(omap_rm_range("k2", "l1")), Step(omap_keys()), Step(omap_rm_range("z", "a")), Step(omap_rm()),
                   Step(omap_set()), Step(OMAP_CLEAR), Step(omap_keys(), OMAP_HEADER), Step(OMAP_CLEAR)]
    yield "omap none", [Step(CREATE), Step(omap_keys(), omap_vals(), OMAP_HEADER, omap_by_keys("a")), Step(OMAP_CLEAR), Step(omap_rm("a")),
                        Step(omap_rm_range("a", "b")), show]
    yield "omap missing", [Step(OMAP_CLEAR), Step(omap_rm("a")), Step(omap_rm_range("a", "b")), Step(omap_cmp(a=(EQ, "")), CREATE),
                           Step(omap_keys()), Step(omap_keys(), CREATE), Step(DELETE), Step(OMAP_HEADER, CREATE), Step(DELETE),
                           Step(omap_header(b"h")), show]
    yield "omap input", [omap] + [Step(bare(code, 0, indata)) for code in (0x1211, 0x1212, 0x1214, 0x1219, 0x2215, 0x2218, 0x222C)
                                  for indata in (b"", b"\xff\xff\xff\xff", b"\x02\0\0\0ab")]
    yield "omap set bad input failok", [Step(failok(bare(0x2215, 0, b"\xff")), STAT), Step(STAT)]
    yield "omap cmp", [omap] + [Step(omap_cmp(k1=(op, value))) for op in range(0, 8) for value in ("v0", "v1", "v2")] + [
        Step(omap_cmp(none=(EQ, ""))), Step(omap_cmp(none=(LT, "a"))), Step(omap_cmp(k1=(EQ, "v1"), k2=(EQ, "x"))),
        Step(omap_cmp(k1=(EQ, "v1")), omap_set(k1="new")), Step(omap_cmp(k1=(EQ, "v1")), omap_set(k1="newer")), Step(omap_vals())]
    yield "xattr and omap reads after writes of one message", [
        base, Step(setxattr("a", "1"), failok(getxattr("a"))), Step(setxattr("a", "2"), getxattr("a")), Step(setxattr("a", "3"), cmpxattr("a", EQ, "3")),
        Step(omap_set(k="v"), omap_keys()), Step(omap_set(k="w"), omap_vals()), Step(rmxattr("a"), failok(getxattr("a")), STAT)]
    yield "a no-op write returns output", [base, Step(read(), zero(500, 1)), plain(read(), zero(500, 1)), Step(OMAP_CLEAR, STAT)]
    yield "failing writes change nothing", [base, Step(write_full(b"x"), setxattr("a", "b"), assert_ver(1)), show,
                                            Step(read(0, 3), write(0, b"y"), getxattr("none"), read(0, 3)), show,
                                            plain(read(0, 3), write(0, b"y"), getxattr("none"), read(0, 3)), Step(DELETE, CREATE_EXCL, getxattr("a")), show]
    yield "mtime zero", [base, Step(write(0, b"abc"), mtime=(0, 0)), Step(STAT), Step(write(0, b"abc"), mtime=(7, 8)), Step(STAT)]
    yield "list watchers", [base, Step(LIST_WATCHERS)]
    yield "list snaps", [base, Step(LIST_SNAPS), Step(LIST_SNAPS, snap=SNAPDIR), Step(STAT, snap=SNAPDIR), Step(LIST_SNAPS, STAT, snap=SNAPDIR)]
    yield "list snaps missing", [Step(LIST_SNAPS, snap=SNAPDIR)]
    yield "snapshots", [Step(write(0, b"a"), snap=5), Step(STAT, snap=5)]
    yield "map extents", [base, Step(MAPEXT)]
    yield "unknown", [Step(bare(0x12FE)), Step(bare(0x22FE)), Step(bare(0x2303)), base, Step(bare(0x12FE)), Step(read(0, 1), bare(0x12FE), read(0, 1)),
                      Step(failok(bare(0x12FE)), read(0, 1)), Step(bare(0x22FE)), Step(bare(0x2303))]
    call = (0x1401, 0, u8(6) + u8(4) + u8(0) + u32(0), b"noclasnone")
    yield "unknown class", [Step(call), base, Step(call), Step(read(0, 1), call), Step(write(0, b"x"), call), Step(failok(call), STAT)]
    yield "copy from", [Step(copy_from("source")), show, Step(write(0, b"more")), show, Step(copy_from("source", second=True)), Step(STAT)]
    yield "copy from others", [Step(copy_from("nothing")), Step(copy_from("source", version=1)), Step(copy_from("source", version=2**62)),
                               Step(copy_from("source", flags=0x40)), Step(copy_from("source", flags=0x40, second=True)),
                               Step(copy_from("source", flags=0x20, second=True)), Step(copy_from("source", flags=0x20, second=True, tail=u32(9) + u64(3))),
                               show, Step(write(0, b"x", tseq=8)), Step(write(200, b"x", tseq=8)), show, Step(copy_from("the object")), Step(lambda pool: (0x221A, 0, u64(HEAD), b"\xff")),
                               Step(copy_from("source"), setxattr("x", "y")), show, Step(setxattr("x", "y"), copy_from("source")), show]
    for length in (2047, 2048, 2049):
        yield "name of %d" % length, [Step(CREATE, name="n" * length), Step(STAT, name="n" * length), Step(DELETE, name="n" * length)]
    for length in (256, 257):
        yield "namespace of %d" % length, [Step(CREATE, nspace="n" * length), Step(DELETE, nspace="n" * length)]
    yield "key of 2049", [Step(CREATE, key="n" * 2049)]
    yield "empty name", [Step(CREATE, name=""), Step(STAT, name="")]
    # Last: a real OSD that refused a reply as too long reports too high a user version of the object from then on.
    yield "returnvec limits", [base, Step(read(0, 64), write(0, b"a")), Step(read(0, 65), write(0, b"b")),
                               Step(read(0, 65), read(0, 10), write(0, b"b")), plain(read(0, 65), write(0, b"c")), show]


def hostile_cases():
    """Real OSDs of 16.2.15 abort on some of these."""
    base = Step(write_full(bytes(range(100))))
    yield "hostile read", [base, Step(read(1, 2**64 - 1))]
    # Not hostile, but 16.2.15 takes the object for damaged and never answers.
    yield "hostile data reads after writes of one message", [
        base, Step(write(0, b"zz"), read(0, 4)), Step(append(b"0123456789"), read(98, 20)), Step(truncate(2), read()), Step(truncate(4), read(), STAT),
        Step(cmpext(0, b"zz"), write(0, b"ZZ"), cmpext(0, b"ZZ")), Step(write_full(b"tiny"), read(), STAT)]
    yield "hostile sparse read", [base, Step(sparse_read(1, 2**64 - 1))]
    yield "hostile no operations", [base, Step()]
    yield "hostile setxattrs", [base, Step(bare(0x2302))]
    yield "hostile zero", [base, Step(zero(5, 0)), Step(zero(2**64 - 1, 1)), Step(zero(0, 200, tsize=7, tseq=3))]
    yield "hostile cmpext", [base, Step(cmpext(1, b"a", 2**64 - 1))]
    yield "hostile truncate", [base, Step(truncate(10, tsize=20, tseq=9))]
    yield "hostile truncation", [base, Step(write(0, b"a", tsize=2**63, tseq=9))]
    yield "hostile xattr", [base, Step((0x1301, 0, u32(99), b"a")), Step((0x2301, 0, u32(1) + u32(99), b"a")),
                            Step((0x1303, 0, u32(1) + u32(99) + u8(1) + u8(1), b"a")), Step(setxattr("", "x")), Step(getxattr(""))]
    yield "hostile call", [base, Step((0x1401, 0, u8(200) + u8(200) + u8(0) + u32(2**32 - 1), b"lock"))]


CREATE_STEP = Step(CREATE)


def rollback(snap):
    return (0x220E, 0, u64(snap), b"")


ORDERSNAP, ENFORCE_SNAPC = 0x40, 0x100000
LISTED = Step(LIST_SNAPS, snap=SNAPDIR)


def at(snap, *ops):
    return Step(*ops, snap=snap)


def under(seq, snaps, *ops, **how):
    return Step(*ops, snapc=(seq, snaps), **how)


def snapshot_cases():
    """Each on an object of its own, because clones outlive their head."""
    data = bytes(range(100))
    base = Step(write_full(data), setxattr("a", "apple"), omap_set(k="v"), omap_header(b"h"))
    everything = (STAT, read(), GETXATTRS, omap_vals(), OMAP_HEADER)
    show = Step(*everything)
    shown = [at(snap, STAT, read()) for snap in range(1, 7)] + [show, LISTED]
    yield "clones", [base, under(1, [1], write(10, b"xxxxx")), LISTED, under(1, [1], write(12, b"yyyyy")), LISTED,
                     under(4, [4, 3, 1], setxattr("a", "pear"), omap_set(k="w")), LISTED, at(1, *everything), at(3, *everything),
                     at(4, *everything), *shown]
    yield "overlap of every change", [
        base, under(1, [1], zero(10, 10)), LISTED, Step(truncate(90)), LISTED, Step(truncate(95)), LISTED, Step(append(b"12345678")),
        LISTED, Step(writesame(0, 4, b"ab")), LISTED, Step(write(85, b"zz")), LISTED, Step(zero(94, 100)), LISTED, Step(write(50, b"")),
        LISTED, under(2, [2, 1], write_full(b"short")), LISTED, Step(write_full(b"longer than that")), LISTED, Step(write_full(b"")),
        LISTED, Step(write(5, b"a", tsize=3, tseq=1)), *shown]
    yield "clones in a row", [base] + [under(n, list(range(n, 0, -1)), write(10 * n, b"n" * 10), truncate(100 - n)) for n in range(1, 6)] + shown
    yield "nothing changes", [base, under(1, [1], STAT), LISTED, under(1, [1], omap_rm("none")), LISTED, under(2, [2, 1], zero(200, 5)), *shown]
    yield "failures make no clone", [base, under(1, [1], write(0, b"a"), getxattr("none")), LISTED, under(1, [1], CREATE_EXCL), *shown]
    yield "created after a snapshot", [under(3, [3, 2], write(0, b"new")), LISTED, under(3, [3, 2], write(0, b"old")), LISTED,
                                       under(5, [5, 3, 2], write(0, b"now")), *shown]
    yield "deleted head", [base, under(1, [1], DELETE), LISTED, show, Step(STAT), Step(read()), Step(read(0, 5)), Step(getxattr("a")), Step(GETXATTRS),
                           Step(omap_vals()), Step(OMAP_HEADER), Step(sparse_read(0, 5)), Step(LIST_WATCHERS), Step(assert_ver(1)), Step(cmpxattr("a", EQ, "b")),
                           at(1, *everything), at(2, STAT), Step(DELETE), under(2, [2, 1], DELETE), LISTED]
    yield "changes of a deleted head", [base, under(1, [1], DELETE), Step(truncate(5)), Step(zero(0, 5)), Step(OMAP_CLEAR), Step(omap_rm("k")), Step(rmxattr("a")),
                                        Step(STAT), LISTED, Step(CREATE_EXCL), show, LISTED, under(1, [1], write(3, b"abc")), LISTED, under(2, [2, 1], write(0, b"x")), *shown]
    yield "deleted and made again", [base, under(1, [1], DELETE, CREATE, write(50, b"again")), *shown, under(2, [2, 1], DELETE), under(3, [3, 2, 1], append(b"end")), *shown]
    yield "cmpxattr with a deleted head", [base, under(1, [1], DELETE), Step(cmpxattr("a", EQ, ""), write(0, b"x")), Step(read()), LISTED]
    yield "read and write of a deleted head", [base, under(1, [1], DELETE), Step(STAT, write(0, b"x")), Step(failok(STAT), read(), write(0, b"x")), LISTED]
    yield "rollback", [base, under(1, [1], write(10, b"x" * 10), setxattr("b", "new"), omap_set(k2="2")), Step(rollback(1)), *shown,
                       Step(write(40, b"yy")), LISTED, under(2, [2, 1], truncate(30)), under(2, [2, 1], rollback(1)), *shown]
    yield "rollback to the head", [base, Step(rollback(5)), show, LISTED, under(2, [2, 1], rollback(3)), *shown]
    yield "rollback of nothing", [Step(rollback(1)), Step(STAT), under(2, [2], rollback(1)), LISTED]
    yield "rollback to before the object", [under(3, [3], write(0, b"abc")), Step(rollback(2)), Step(STAT), LISTED]
    yield "rollback to before the object, with clones", [under(3, [3], write(0, b"abc")), under(4, [4, 3], write(0, b"d")), Step(rollback(2)), Step(STAT), *shown]
    yield "rollback of a deleted head", [base, under(1, [1], DELETE), under(1, [1], rollback(1)), *shown, under(2, [2, 1], DELETE), under(3, [3, 2, 1], rollback(1)), *shown]
    yield "rollback to a deletion", [base, under(1, [1], DELETE), under(2, [2, 1], CREATE, write(0, b"x")), under(3, [3, 2, 1], write(0, b"y")), Step(rollback(2)), *shown]
    yield "rollback to a deleted head", [base, under(1, [1], DELETE), Step(rollback(2)), Step(STAT), LISTED]
    yield "rollback with a new clone", [base, under(1, [1], write(0, b"one")), under(3, [3, 1], rollback(1)), *shown]
    yield "rollback and more", [base, under(1, [1], write(0, b"one"), omap_set(k="w")), Step(rollback(1), write(5, b"more"), rmxattr("a")), *shown,
                                Step(write(0, b"before"), rollback(1)), *shown]
    yield "old contexts", [base, under(5, [5], write(0, b"five")), under(3, [3], write(0, b"three")), LISTED, under(3, [3], write(0, b"x"), flags=RETURNVEC | ORDERSNAP),
                           under(5, [5], write(0, b"y"), flags=RETURNVEC | ORDERSNAP), under(6, [6, 5], write(0, b"z"), flags=RETURNVEC | ORDERSNAP), *shown]
    yield "wrong contexts", [base, under(1, [2], write(0, b"a")), under(3, [1, 2], write(0, b"a")), under(3, [2, 2], write(0, b"a")), under(2, [1, 0], write(0, b"a")),
                             under(7, [], write(0, b"a")), LISTED, under(9, [8], write(0, b"b")), LISTED, at(8, read()), at(9, read()), under(2, [2], STAT)]
    yield "wrong places", [base, under(1, [1], write(0, b"a")), Step(LIST_SNAPS), at(1, LIST_SNAPS), at(SNAPDIR, STAT), at(SNAPDIR, LIST_SNAPS, STAT),
                           at(1, write(0, b"x")), at(SNAPDIR, write(0, b"x")), at(1, STAT, read(2, 3)), at(0, STAT)]
    yield "snapdir of nothing", [LISTED, at(3, STAT)]
    yield "versions at snapshots", [base, under(1, [1], write(0, b"a")), at(1, read(90, 0)), at(1, read(200, 10)), at(1, checksum(2, 0, 8, 4, u32(0))),
                                    at(1, cmpext(0, data[:5])), at(1, sparse_read(0, 10)), at(1, omap_keys()), at(1, omap_by_keys("k")), at(1, getxattr("none"))]
    source = "%x.source" % time.time_ns()
    copied = lambda snap, **how: Step(copy_from(source, snap=snap, **how))
    written = [Step(*base.ops, name=source, mtime=(50, 1)),
               under(2, [2, 1], write(10, b"xxxxx"), setxattr("b", "x"), omap_set(k2="w"), name=source, mtime=(60, 1)),
               under(4, [4, 3, 2, 1], truncate(30), OMAP_CLEAR, name=source, mtime=(70, 1))]
    each = [step for snap in (0, 1, 2, 3, 4, 5, HEAD, SNAPDIR) for step in (copied(snap), show)]
    yield "copy of a snapshot", written + each + [
        copied(1, second=True), show, copied(1, second=True, flags=0x20, tail=u32(9) + u64(3)), show, copied(1, version=2**62), copied(1, version=1),
        Step(copy_from("nothing", snap=1)), Step(copy_from(source, snap=2), setxattr("c", "y")), show, Step(failok(STAT), copy_from(source, snap=3)), show,
        under(7, [7], copy_from(source, snap=2)), *shown, at(7, *everything), LISTED]
    yield "copy of a deleted object's snapshot", [under(5, [5, 4, 3, 2, 1], DELETE, name=source)] + each + [copied(6), Step(STAT)]



def named_apart(cases):
    run = "%x" % time.time_ns()
    for number, (name, steps) in enumerate(cases):
        yield "snapshots: " + name, [Step(*step.ops, **{"name": "%s.%d" % (run, number), **step.how}) for step in steps]


def run_case(cluster, target, steps, record=None):
    origin = cluster.send(target, "the object", [DELETE])
    # Cases start at a known version: that of this deletion, or of its failure.
    versions = [origin.version, origin.user_version]
    shown = []
    for step in steps:
        ops = [op(cluster.pool) if callable(op) else op for op in step.ops]
        how = dict(step.how)
        name = how.pop("name", "the object")
        place = target
        if how.get("nspace"):
            place = cluster.locate(name, how["nspace"])
        elif how.get("key"):
            place = cluster.locate(how["key"])
        elif name != "the object" and name:
            place = cluster.locate(name)
        reply = cluster.send(place, name, ops, **how)
        relative = lambda version: version and version - versions[0]
        foreign = place is not target
        entry = {"result": reply.result, "rvals": reply.rvals, "out": [out.hex() for out in reply.out]}
        if not foreign:
            entry["version"] = relative(reply.version)
            entry["user_version"] = relative(reply.user_version)
        shown.append(entry)
        if record:
            record_step(record, name, ops, how, entry)
    return shown


def record_step(record, name, ops, how, entry):
    """As the fixture of the Rust tests has it: a step, its operations, the answer, one line each."""
    mtime = how.get("mtime", (100, 5))
    fields = [how.get("flags", RETURNVEC), how.get("snap", HEAD), mtime[0], mtime[1]]
    fields += [blob.encode().hex() or "-" for blob in (name, how.get("nspace", ""), how.get("key", ""))]
    print("step", *fields, file=record)
    for code, flags, args, indata in ops:
        print("op", code, flags, args.rstrip(b"\0").hex() or "-", indata.hex() or "-", file=record)
    print("answer", entry["result"], entry.get("version", "-"), entry.get("user_version", "-"), file=record)
    for rval, out in zip(entry["rvals"], entry["out"]):
        print("out", rval, out or "-", file=record)


def parse_page(out):
    """The handle without its pool's number, and the entries."""
    if not out:
        return None
    at = 6 + 6
    strings, entries = [], []

    def string():
        nonlocal at
        (length,) = struct.unpack_from("<I", out, at)
        at += 4 + length
        return out[at - length:at].decode()

    strings += [string(), string()]
    handle = struct.unpack_from("<QIB", out, at)
    at += 13
    strings.append(string())
    at += 8
    (count,) = struct.unpack_from("<I", out, at)
    at += 4
    for _ in range(count):
        entries.append([string(), string(), string()])
    return {"key, name, nspace": strings, "snap, hash, max": handle, "entries": entries}


def listing(cluster, hostile):
    """Every page of every PG, in order, and cursors that belong to no PG."""
    for name, nspace in [("l%02d" % i, "" if i % 3 else "space") for i in range(30)]:
        cluster.send(cluster.locate(name, nspace), name, [CREATE], nspace=nspace)
    out = []
    # Which seed is where: by objects that fall into it.
    places = {}
    for i in itertools.count():
        place = cluster.locate("probe%d" % i)
        places.setdefault(place[1], place)
        if len(places) == 8:
            break
    filter_ = blob("pg") + blob("filter") + blob("plain") + blob("_a") + blob("b")
    cluster.send(cluster.locate("l01"), "l01", [setxattr("a", "b")])
    for seed in range(8):
        place = (seed,) + places[seed][1:]
        for nspace in ("", "space", "\1"):
            for count in (1000, 3):
                cursor, pages = hobject(cluster.pool, seed, snap=0), []
                for _ in range(20):
                    op = (0x1505, 0, u64(count) + u32(0), cursor)
                    reply = cluster.send(place, "", [op], nspace=nspace)
                    pages.append([reply.result, reply.rvals, parse_page(reply.out[0])])
                    if reply.result != 0:
                        break
                    # version, compat, length; then the handle, itself with a header of six bytes.
                    (size,) = struct.unpack_from("<I", reply.out[0], 8)
                    cursor = reply.out[0][6:6 + 6 + size]
                out.append({"seed": seed, "nspace": nspace, "count": count, "pages": pages})
        others = {}
        if hostile:
            others = {"default": hobject(-2**63, 0, snap=0), "max": hobject(-2**63, 0, snap=0, is_max=1),
                      "other pg": hobject(cluster.pool, seed ^ 1), "other pool": hobject(cluster.pool + 1000, seed), "cut": cursor[:7]}
        for what, cursor in others.items():
            reply = cluster.send(place, "", [(0x1505, 0, u64(2) + u32(0), cursor)])
            out.append({"seed": seed, "cursor": what, "result": reply.result, "out": parse_page(reply.out[0])})
        for what, indata in {"plain": filter_, "none such": blob("pg") + blob("filter") + blob("what"), "cut": blob("pg")}.items():
            reply = cluster.send(place, "", [(0x1506, 0, u64(100) + u32(0), indata + hobject(cluster.pool, seed, snap=0))])
            out.append({"seed": seed, "filter": what, "result": reply.result, "rvals": reply.rvals, "out": parse_page(reply.out[0])})
        if not hostile:
            continue
        reply = cluster.send(place, "", [STAT, (0x1505, 0, u64(2) + u32(0), hobject(cluster.pool, seed, snap=0))])
        out.append({"seed": seed, "mixed": reply.result, "rvals": reply.rvals})
    return out


def run(conf, only, hostile, record=None):
    cluster = Cluster(conf)
    target = cluster.locate("the object")
    source = cluster.locate("source")
    cluster.send(source, "source", [DELETE])
    cluster.send(source, "source", [write_full(b"source data"), setxattr("s", "t"), omap_set(k="v")], mtime=(50, 1))
    answers = {}
    # First, because listings name what has snapshots, and that is called otherwise in every run.
    if not only or only in "listing":
        answers["listing"] = listing(cluster, hostile)
    # The fixture's form has no snapshot contexts.
    snapshots = [] if record else named_apart(snapshot_cases())
    for name, steps in itertools.chain(cases(), snapshots, hostile_cases() if hostile else []):
        if only and only not in name:
            continue
        try:
            if record:
                print("case", name, file=record)
            answers[name] = run_case(cluster, target, steps, record)
        except (EOFError, OSError) as error:
            answers[name] = "connection lost: %s" % error
            print("%s: %s" % (name, answers[name]), file=sys.stderr)
            cluster.osds.clear()
            target = cluster.locate("the object")
    return answers


def differences(ours, theirs):
    for name in ours:
        if ours[name] == theirs.get(name):
            continue
        print(name)
        if isinstance(ours[name], str) or isinstance(theirs.get(name), (str, type(None))):
            print("    %s\n    %s" % (ours[name], theirs.get(name)))
            continue
        for i, (a, b) in enumerate(zip(ours[name], theirs[name])):
            if a != b:
                print("  step %d\n    %s\n    %s" % (i, json.dumps(a), json.dumps(b)))


def main(description, play, switch, meaning):
    """The command line of a script that compares: `play(conf, only, switch, record)` gives a cluster's answers."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", action="append", required=True, help="a cluster's ceph.conf; at most two")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--" + switch, action="store_true", help=meaning)
    parser.add_argument("--record", help="also write requests and answers to this file, as a fixture")
    options = parser.parse_args()
    record = open(options.record, "w") if options.record else None
    answers = [play(conf, options.only, getattr(options, switch), record) for conf in options.conf[:2]]
    if len(answers) == 1:
        json.dump(answers[0], sys.stdout, indent=1)
        print()
        return 0
    differences(*answers)
    return 0 if answers[0] == answers[1] else 1


if __name__ == "__main__":
    sys.exit(main(__doc__, run, "hostile", "also what real OSDs may abort on"))
