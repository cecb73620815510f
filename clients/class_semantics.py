#!/usr/bin/python3
"""What a cluster's OSDs answer when methods of object classes are called.

    class_semantics.py --conf A/ceph.conf                          print the answers as JSON
    class_semantics.py --conf A/ceph.conf --conf B/ceph.conf       print where the two clusters differ
    ... --cuts                                                     also every input cut short, at every byte

As op_semantics.py does for other operations, and by its connection. Two clients call; wherever their numbers
stand in a request or an answer, the answers shown and recorded have 4100 and 4200. An output that nobody can
foretell is shown as "*".
"""
import re
import sys
import time

import op_semantics
from op_semantics import (CREATE, DELETE, GETXATTRS, STAT, Step, blob, failok, omap_header, omap_rm, omap_set, omap_vals, plain,
                          read, s32, s64, setxattr, u32, u64, u8, versioned, write_full)

STAND_INS = (4100, 4200)
NAME = "the object"


def call(class_, method, input_=b""):
    class_, method = class_.encode(), method.encode()
    return (0x1401, 0, u8(len(class_)) + u8(len(method)) + u8(0) + u32(len(input_)), class_ + method + input_)


def v1(*fields):
    return versioned(1, 1, b"".join(fields))


def v2(*fields):
    return versioned(2, 1, b"".join(fields))


def utime(sec, usec=0):
    return u32(sec) + u32(usec * 1000)


def listed(items):
    return u32(len(items)) + b"".join(items)


def client(number):
    """An entity of a client that has a stand-in."""
    return u8(8) + s64(number)


# --- lock ---

EXCLUSIVE, SHARED, EPHEMERAL = 1, 2, 3
MAY_RENEW, MUST_RENEW = 1, 2


def lock(kind=EXCLUSIVE, cookie="c", tag="", what="why", seconds=0, flags=0, name="l"):
    return call("lock", "lock", v1(blob(name), u8(kind), blob(cookie), blob(tag), blob(what), utime(seconds), u8(flags)))


def unlock(cookie="c", name="l"):
    return call("lock", "unlock", v1(blob(name), blob(cookie)))


def break_lock(who, cookie="c", name="l"):
    return call("lock", "break_lock", v1(blob(name), client(who), blob(cookie)))


def lock_info(name="l"):
    return call("lock", "get_info", v1(blob(name)))


def assert_locked(kind=EXCLUSIVE, cookie="c", tag="", name="l"):
    return call("lock", "assert_locked", v1(blob(name), u8(kind), blob(cookie), blob(tag)))


def set_cookie(new, kind=EXCLUSIVE, cookie="c", tag="", name="l"):
    return call("lock", "set_cookie", v1(blob(name), u8(kind), blob(cookie), blob(tag), blob(new)))


LOCKS = call("lock", "list_locks")


def by_other(*ops, **how):
    return Step(*ops, caller=1, **how)


def lock_cases():
    yield "lock exclusive", [
        Step(lock_info()), Step(lock()), Step(lock_info()), Step(lock()), Step(lock(flags=MAY_RENEW, what="again")), Step(lock_info()),
        Step(lock(cookie="d")), by_other(lock()), by_other(lock(SHARED)), by_other(unlock()), Step(unlock("d")), Step(unlock()), Step(lock_info()),
        Step(unlock()), by_other(lock(tag="t")), Step(lock_info()), Step(LOCKS), Step(GETXATTRS),
    ]
    yield "lock shared", [
        Step(lock(SHARED, tag="t")), by_other(lock(SHARED, tag="t")), Step(lock(SHARED, cookie="d", tag="t")), Step(lock_info()),
        Step(lock(SHARED, cookie="e", tag="u")), Step(lock(EXCLUSIVE, cookie="e", tag="t")), Step(unlock("d")), by_other(unlock()),
        Step(lock(EXCLUSIVE, tag="t", flags=MUST_RENEW)), Step(lock_info()), Step(LOCKS),
    ]
    yield "lock renewal", [
        Step(lock(flags=MUST_RENEW)), Step(CREATE), Step(lock(flags=MUST_RENEW)), Step(lock(flags=MAY_RENEW | MUST_RENEW)), Step(lock(flags=MAY_RENEW)),
        Step(lock(flags=MUST_RENEW)), Step(lock(flags=MUST_RENEW, tag="t")), Step(lock(flags=0xf8)), Step(lock_info()),
    ]
    yield "lock ephemeral", [
        Step(lock(EPHEMERAL)), Step(STAT), by_other(lock(EPHEMERAL)), Step(lock_info()), Step(assert_locked(EPHEMERAL)), Step(unlock()), Step(STAT),
        Step(write_full(b"data")), Step(lock(EPHEMERAL)), by_other(break_lock(4100)), Step(STAT),
    ]
    yield "lock times", [
        Step(lock(seconds=1)), Step(lock(EXCLUSIVE, name="m", seconds=1)), Step(lock(EPHEMERAL, name="e", seconds=1)), Step(lock(seconds=100, flags=MAY_RENEW)),
        Step(lock_info(), hidden=True), by_other(lock(name="m")), by_other(lock(name="m"), wait=2), by_other(lock_info("m")), Step(assert_locked(name="m")),
        by_other(lock()), Step(lock_info("e")), Step(assert_locked(EPHEMERAL, name="e")), Step(unlock(name="e")), Step(read()),
        by_other(lock(EPHEMERAL, name="e")), Step(LOCKS), by_other(lock_info("e")), Step(lock(name="m")), Step(STAT),
    ]
    yield "lock expired and broken", [
        Step(lock(seconds=1)), by_other(break_lock(4100), wait=2), Step(lock_info()), Step(lock(flags=MUST_RENEW)), Step(LOCKS),
    ]
    yield "lock assertions", [
        Step(assert_locked()), Step(set_cookie("d")), Step(CREATE), Step(assert_locked()), Step(set_cookie("d")), Step(lock(tag="t")), Step(assert_locked()),
        Step(assert_locked(tag="t")), Step(assert_locked(SHARED, tag="t")), Step(assert_locked(0, tag="t")), Step(assert_locked(4, tag="t")),
        Step(assert_locked(tag="t", name="")), Step(assert_locked(tag="t", name="other")), Step(assert_locked(tag="t", cookie="d")),
        by_other(assert_locked(tag="t")), Step(set_cookie("c", tag="t")), by_other(set_cookie("d", tag="t")), Step(set_cookie("d", kind=0, tag="t")),
        Step(set_cookie("d", tag="t", name="")), Step(set_cookie("d", tag="t")), Step(set_cookie("d", tag="t")), Step(lock_info()),
        Step(assert_locked(tag="t", cookie="d"), write_full(b"guarded")), by_other(assert_locked(tag="t", cookie="d"), write_full(b"not")), Step(read()),
        Step(failok(assert_locked()), STAT), Step(lock(SHARED, name="s")), Step(lock(SHARED, name="s", cookie="b")), Step(set_cookie("b", SHARED, name="s")),
    ]
    yield "lock breaking", [
        Step(break_lock(4100)), Step(CREATE), Step(break_lock(4100)), Step(lock()), by_other(break_lock(4200)), by_other(break_lock(4100, "d")), Step(break_lock(4100)),
        Step(lock_info()), Step(call("lock", "break_lock", v1(blob("l"), u8(99) + s64(-5), blob("c")))), Step(call("lock", "break_lock", v1(blob("l"), u8(0) + s64(0), blob("c")))),
    ]
    yield "lock names", [
        Step(lock(name="")), Step(lock(0)), Step(lock(4)), Step(lock(255)), Step(lock(name=b"\xff\xfe", cookie=b"\x80", tag=b"\xc0", what=b"\xff")),
        Step(lock_info(b"\xff\xfe")), Step(lock(name="n" * 95)), Step(lock(name="n" * 96)), Step(lock_info("n" * 300)), Step(lock_info("")), Step(lock(name=b"z\0a")),
        Step(lock_info("z")), Step(LOCKS), Step(unlock(name="none")), Step(assert_locked(name=b"z\0b")), Step(call("lock", "list_locks", b"anything")),
    ]
    yield "lock in compounds", [
        Step(CREATE, lock()), Step(write_full(b"x"), lock(name="m"), setxattr("a", "b")), Step(lock_info(), lock_info("m"), STAT, read()), Step(unlock(), DELETE),
        Step(STAT), plain(lock()), plain(lock_info()), Step(lock(name="n"), lock()), Step(lock_info("n")),
    ]
    yield "lock on what is no lock", [
        Step(setxattr("lock.l", "garbage")), Step(lock()), Step(lock_info()), Step(unlock()), Step(assert_locked()), Step(set_cookie("d")), Step(LOCKS),
        Step(setxattr("lock.l", v1(u32(0), u8(9), blob("t")))), Step(lock_info()), Step(lock()), Step(setxattr("lock.l", b"")), Step(lock_info()),
        Step(setxattr("lock.l", u8(0) + u32(0) + u8(1) + blob("t"))), Step(lock_info()), Step(setxattr("lock.l", versioned(9, 1, u32(0) + u8(1) + blob("t") + b"more"))),
        Step(lock_info()), Step(setxattr("lock.l", versioned(9, 2, u32(0) + u8(1) + blob("t")))), Step(lock_info()),
    ]
    yield "lock without envelopes", [
        Step(call("lock", "lock", u8(0) + blob("l") + u8(1) + blob("c") + blob("t") + blob("w") + utime(0) + u8(0))), Step(call("lock", "get_info", u8(0) + blob("l"))),
        Step(call("lock", "get_info", versioned(1, 2, blob("l")))), Step(call("lock", "get_info", versioned(7, 1, blob("l") + b"more"))), Step(call("lock", "get_info", v1(blob("l")) + b"more")),
    ]


# --- version ---


def version(number, tag="t"):
    return v1(u64(number), blob(tag))


def conditions(method, *wanted):
    return call("version", method, v1(version(0, ""), listed([v1(version(number, tag), u32(kind)) for number, tag, kind in wanted])))


VERSION = call("version", "read", v1())


def version_cases():
    set_5 = call("version", "set", v1(version(5)))
    yield "version", [Step(VERSION), Step(CREATE), Step(VERSION), Step(set_5), Step(VERSION), Step(conditions("inc")), Step(VERSION), Step(GETXATTRS)]
    checks = []
    for kind in list(range(9)) + [2**32 - 1]:
        for number, tag in [(4, "t"), (5, "t"), (6, "t"), (5, "u")]:
            checks.append(Step(conditions("check_conds", (number, tag, kind))))
    yield "version conditions", [Step(conditions("check_conds")), Step(CREATE), Step(conditions("check_conds", (0, "", 1))), Step(set_5)] + checks + [
        Step(conditions("check_conds", (5, "t", 1), (9, "t", 4))), Step(conditions("check_conds", (5, "t", 1), (1, "t", 4))),
        Step(conditions("inc_conds", (9, "t", 1))), Step(conditions("inc_conds", (5, "t", 1), (5, "t", 3))), Step(VERSION), Step(conditions("inc", (5, "t", 1))), Step(VERSION),
    ]
    yield "version from nothing", [
        Step(conditions("inc", (1, "", 7))), Step(VERSION, hidden=True), Step(conditions("check_conds", (2, "", 3))), Step(conditions("inc", (2, "", 3))),
        Step(conditions("check_conds", (3, "", 3))), Step(conditions("check_conds", (4, "", 3))), Step(DELETE), Step(conditions("inc", (2, "", 3))), Step(STAT),
    ]
    yield "version on what is none", [
        Step(setxattr("ceph.objclass.version", "garbage")), Step(VERSION), Step(conditions("inc")), Step(conditions("check_conds")), Step(set_5), Step(VERSION),
        Step(call("version", "set", v1(version(2**64 - 1)))), Step(conditions("inc")), Step(VERSION), Step(call("version", "read", b"anything")),
    ]
    yield "version guards", [
        Step(set_5), Step(conditions("check_conds", (5, "t", 1)), write_full(b"x")), Step(conditions("check_conds", (4, "t", 1)), write_full(b"y")),
        Step(conditions("inc_conds", (5, "t", 1)), write_full(b"z")), Step(read(), VERSION), plain(VERSION), plain(conditions("inc")),
    ]


# --- refcount ---


def reference(method, tag="a", implicit=False):
    return call("refcount", method, v1(blob(tag), u8(implicit)))


def set_references(*tags):
    return call("refcount", "set", v1(listed([blob(tag) for tag in tags])))


def references(implicit=False):
    return call("refcount", "read", v1(u8(implicit)))


def refcount_cases():
    show = Step(references(), references(True))
    yield "refcount", [
        Step(reference("get")), Step(references()), Step(CREATE), show, Step(reference("put")), Step(reference("get")), show, Step(reference("get", "b")), Step(reference("get", "b")), show,
        Step(reference("put", "c")), Step(reference("put")), Step(reference("put")), show, Step(reference("get")), show, Step(reference("put")), show, Step(GETXATTRS), Step(reference("put", "b")), show,
        Step(reference("put", "a")), Step(STAT),
    ]
    yield "refcount implicit", [
        Step(reference("get", implicit=True)), Step(CREATE), Step(reference("get", implicit=True)), show, Step(reference("put", "x", True)), show, Step(reference("put", "x", True)), show,
        Step(reference("put", "y", True)), Step(reference("put", "a", True)), Step(STAT), Step(write_full(b"x")), Step(reference("put", "z", True)), Step(STAT),
    ]
    yield "refcount set", [
        Step(set_references()), Step(set_references("y", "x", "y")), show, Step(set_references("z")), show, Step(reference("put", "z")), Step(STAT), Step(CREATE), Step(set_references("")),
        show, Step(reference("put", "q", True)), Step(STAT),
    ]
    yield "refcount on what is none", [
        Step(setxattr("refcount", "garbage")), Step(references()), Step(reference("get")), Step(reference("put")), Step(set_references("a")), show,
        Step(setxattr("refcount", v1(u32(1), blob("old"), u8(0)))), show, Step(reference("get")), Step(GETXATTRS),
        Step(setxattr("refcount", v2(u32(0), u32(0)))), show, Step(reference("put")), Step(reference("put", implicit=True)),
    ]


# --- log ---


def entry(sec, usec=0, name="n", id_="", section="s", data=b"d"):
    return v2(blob(section), blob(name), utime(sec, usec), blob(data), blob(id_))


def log_add(*entries, monotonic=False):
    return call("log", "add", v2(listed(entries), u8(monotonic)))


def log_list(from_=0, to=0, marker="", count=0, usec=0):
    return call("log", "list", v1(utime(from_, usec), blob(marker), utime(to, usec), s32(count)))


def log_trim(from_=0, to=0, from_marker="", to_marker="", usec=0):
    return call("log", "trim", v2(utime(from_), utime(to, usec), blob(from_marker), blob(to_marker)))


LOG_INFO = call("log", "info", v1())


def log_cases():
    three = Step(log_add(entry(30, id_="1_30"), entry(10, 5, id_="1_10"), entry(20, id_="1_20", name="m", data=b"")))
    everything = Step(log_list(), LOG_INFO, omap_vals(count=100))
    yield "log", [Step(log_list()), Step(LOG_INFO), Step(CREATE), everything, three, everything, Step(log_list(count=2)), Step(log_list(marker="1_20")), Step(log_list(count=-1)), Step(log_list(count=2**30))]
    named = [entry(t, u, id_="1_%010d.%06d_x" % (t, u)) for t, u in [(10, 0), (10, 999999), (11, 0), (20, 5), (30, 0)]]
    yield "log times", [
        Step(log_add(*named)), Step(log_list()), Step(log_list(10, 20)), Step(log_list(10, 10)), Step(log_list(11, 10)), Step(log_list(0, 20)), Step(log_list(1, 21)), Step(log_list(10, 20, count=1)),
        Step(log_list(10, 20, count=3)), Step(log_list(10, 20, usec=5)), Step(log_list(10, 20, marker="1_0000000011")), Step(log_list(2**32 - 1, 2**32 - 1)), Step(log_list(marker="0")), Step(log_list(marker="2")),
    ]
    yield "log trimming", [
        Step(log_trim(0, 9)), Step(log_add(*named)), Step(log_trim(0, 9)), Step(log_trim(0, 10)), everything, Step(log_trim(0, 10)), Step(log_trim(12, 19)), Step(log_trim(12, 20)), everything,
        Step(log_trim(12, 20, usec=5)), everything, Step(log_trim(from_marker="1_0000000010.999999_x", to_marker="1_0000000011.000000_x")), everything, Step(log_trim(to_marker="1_0000000010.999999_x")),
        everything, Step(log_trim(to_marker="0")), Step(log_trim(0, 2**32 - 1)), everything, Step(log_trim(0, 2**32 - 1)), Step(omap_set(other="x")), Step(log_trim(0, 100)), Step(log_trim(to_marker="p")), everything,
    ]
    yield "log keys of its own", [
        Step(log_add(entry(100, 5), entry(100, 5), entry(99)), hidden=True), Step(log_list(), hidden=True), Step(log_list(100, 101), hidden=True), Step(log_trim(0, 99)), Step(log_trim(0, 99)), Step(log_trim(0, 100)),
        Step(log_list(), hidden=True), Step(log_trim(0, 100, usec=5)), Step(log_list()), Step(log_add()), Step(log_list()), Step(log_add(entry(5), monotonic=True)), Step(log_list(50, 60), hidden=True), Step(log_list(100, 101), hidden=True),
    ]
    yield "log keeps to its time", [
        Step(log_add(entry(20, id_="1_a"), entry(10, id_="1_b"), monotonic=True)), everything, Step(log_add(entry(25, id_="0"), monotonic=True)), Step(LOG_INFO),
        Step(call("log", "add", v1(listed([entry(5, id_="1_c")])))), everything, Step(call("log", "add", v2(listed([v1(blob("s"), blob("n"), utime(1), blob("d"))]), u8(0))), hidden=True),
    ]
    yield "log with what is no log", [
        Step(omap_header(b"garbage"), omap_set(**{"1_x": "garbage"})), Step(log_list()), Step(LOG_INFO), Step(log_add(entry(1, id_="1_y"))), everything, Step(call("log", "info", b"")), Step(call("log", "info", v1() + b"more")),
        Step(call("log", "info", u8(1) + u8(2) + u32(0))), Step(log_add(v2(blob("s"), blob("n"), u32(1) + u32(2**32 - 1), blob("d"), blob("")), monotonic=False), hidden=True), Step(log_list(), hidden=True),
    ]


# --- timeindex ---


def index_add(*entries):
    return call("timeindex", "add", v1(listed([v1(utime(sec, usec), blob(name), blob(value)) for sec, usec, name, value in entries])))


def index_list(from_=0, to=2**32 - 1, marker="", count=100, usec=0):
    return call("timeindex", "list", v1(utime(from_), blob(marker), utime(to, usec), s32(count)))


def index_trim(from_=0, to=0, from_marker="", to_marker="", usec=0):
    return call("timeindex", "trim", v1(utime(from_), utime(to, usec), blob(from_marker), blob(to_marker)))


def timeindex_cases():
    filled = Step(index_add((10, 7, "b", "vb"), (10, 7, "a", "va"), (20, 0, "c", ""), (30, 999999, "d e", "vd"), (2**32 - 1, 0, "z", "vz")))
    everything = Step(index_list(), omap_vals(count=100))
    yield "timeindex", [
        Step(index_list()), Step(index_add()), Step(STAT), filled, everything, Step(index_list(0, 20)), Step(index_list(0, 21)), Step(index_list(10, 10)), Step(index_list(11, 10)), Step(index_list(count=2)),
        Step(index_list(marker="1_0000000010.000007_b", count=1)), Step(index_list(count=0)), Step(index_list(count=-1)), Step(index_list(count=2**31 - 1)), Step(index_list(0, 30, usec=999999)), Step(index_add((10, 7, "a", "new"))), everything,
        Step(index_list(marker="0", to=0)), Step(index_list(marker="2")), Step(index_list(5, 4, count=3)),
    ]
    yield "timeindex trimming", [
        Step(index_trim(0, 9)), filled, Step(index_trim(0, 9)), Step(index_trim(0, 10)), Step(index_trim(0, 10, usec=7)), everything, Step(index_trim(0, 10, usec=7)), Step(index_trim(from_marker="1_0000000020.000000_c", to_marker="1_0000000030")),
        everything, Step(index_trim(to_marker="1_0000000020.000000_")), everything, Step(index_trim(0, 2**32 - 1)), everything, Step(index_trim(0, 2**32 - 1)), Step(STAT),
    ]
    yield "timeindex names", [
        Step(index_add((1, 0, "n" * 300, "v"))), Step(index_list()), Step(index_add((2, 0, " lead", "v"), (3, 0, b"\xff\xfe", "v"), (4, 0, "a\tb", "v"), (5, 0, "x_y.z", "v"))), everything,
    ]


# --- numops ---


def number(method, by, key="k"):
    return call("numops", method, blob(key) + blob(by))


def numops_cases():
    show = Step(omap_vals())
    yield "numops", [Step(number("mul", "2")), show] + [
        step for method, by in [
            ("add", "1"), ("add", "0.5"), ("add", ".25"), ("mul", "3"), ("add", "-100"), ("add", "+1e3"), ("mul", "1e300"), ("mul", "1e300"), ("mul", "-1"), ("mul", "0"), ("add", " 7"), ("add", "7 "),
            ("add", "x"), ("add", "1x"), ("add", ""), ("add", " "), ("add", "1e"), ("add", "INF"), ("mul", "0"), ("add", "infinity"), ("add", "1\0x"), ("add", b"\xff"), ("add", "--1"), ("add", "1."), ("add", "."),
        ] for step in (Step(number(method, by)), show)
    ]
    digits = [("a", "0.1"), ("b", "1234567890123"), ("c", "0.00001234567890123"), ("d", "0.0001"), ("e", "99999999999"), ("f", "9999999999.4"), ("g", "1e10"), ("h", "1e9"), ("i", "0.30000000000000004"), ("j", "-0"), ("k", "1e-400"), ("l", "4.9e-324"), ("m", "123456.789e-2")]
    yield "numops digits", [Step(*[number("add", by, key) for key, by in digits]), Step(omap_vals(count=100))]
    yield "numops on what is no number", [
        Step(omap_set(k="text", e="", s=" 5", t="5 ", z="7\0z")), Step(number("add", "1")), Step(number("mul", "1")), Step(number("add", "1", "e")), Step(number("add", "1", "s")), Step(number("add", "1", "t")), Step(number("add", "1", "z")), show,
        Step(omap_rm("k")), Step(number("add", "1", "")), Step(number("add", "1", b"\xff")), show, plain(number("add", "1")),
    ]


# --- hello, and calls as such ---


def hello(method, input_=b""):
    return call("hello", method, input_)


def hello_cases():
    yield "hello", [
        Step(hello("say_hello")), Step(hello("record_hello", b"x" * 101)), Step(hello("record_hello", b"you")), Step(hello("record_hello")), Step(hello("replay")), Step(hello("say_hello", b"all")), Step(hello("say_hello", b"x" * 101)),
        Step(GETXATTRS), by_other(hello("turn_it_to_11")), Step(hello("turn_it_to_11", b"x")), Step(hello("replay", b"x")), Step(GETXATTRS), plain(hello("replay")),
    ]
    yield "hello beyond its flags", [
        Step(hello("bad_reader")), Step(hello("bad_writer", b"x")), Step(CREATE), Step(hello("bad_reader")), Step(hello("bad_writer", b"x")), plain(hello("bad_reader")), Step(read()),
        Step(hello("turn_it_to_11")), Step(write_full(b"abc" * 1000)), Step(hello("turn_it_to_11")), Step(read(0, 5), STAT),
    ]
    short = hello("say_hello", b"you")
    yield "calls", [
        Step(call("none", "such")), Step(hello("none")), Step(CREATE), Step(call("none", "such")), Step(hello("none")), Step(failok(hello("none")), write_full(b"x")), Step(failok(call("none", "such")), STAT), Step(STAT, hello("none")),
        Step(hello("say_hello"), call("none", "such")), Step(hello("none"), call("none", "such")), Step(call("none", "such"), hello("none")), Step(call("", "")), Step(call("hello", "")), Step(call("hello\0", "say_hello")), Step(call("hello", "say_hello\0")),
        Step((short[0], 0, short[2][:3] + u32(2), short[3])), Step((short[0], 0, short[2][:3] + u32(0), short[3])), Step(STAT, (short[0], 0, short[2][:3] + u32(4), short[3])), Step((short[0], 0, u8(5) + u8(9) + u8(7) + u32(3), short[3])),
        Step(hello("say_hello"), STAT, hello("replay"), read()), Step(hello("say_hello"), setxattr("a", "b"), hello("replay")), Step(STAT),
    ]


def last_cases():
    # Real OSDs count user versions wrongly, of the PG's other objects too, after they refused an answer for its length.
    yield "hello answers of writes", [
        plain(hello("write_return_data")), Step(hello("write_return_data")), plain(hello("write_return_data", b"!")), Step(hello("write_return_data", b"!")), Step(hello("write_too_much_return_data")),
        Step(hello("write_too_much_return_data", b"!")), Step(hello("writes_dont_return_data")), plain(hello("writes_dont_return_data")), Step(STAT, GETXATTRS), Step(failok(hello("write_return_data", b"!")), write_full(b"x")),
    ]


def cases():
    for part in (hello_cases, lock_cases, version_cases, refcount_cases, log_cases, timeindex_cases, numops_cases, last_cases):
        yield from part()


def cut_cases():
    """One good input of each method, after each of its bytes."""
    setup = Step(CREATE, lock(), call("version", "set", v1(version(5))), set_references("a", "b"), log_add(entry(10, id_="1_a")), index_add((10, 7, "b", "v")))
    good = [
        lock(cookie="d", flags=MAY_RENEW), unlock("x"), break_lock(4200), lock_info(), assert_locked(), set_cookie("c"), call("version", "set", v1(version(5))), conditions("inc_conds", (4, "t", 1)),
        conditions("check_conds", (5, "t", 1)), reference("get"), reference("put", "q"), references(), set_references("a", "b"), log_add(entry(10, id_="1_a"), monotonic=True), log_list(), log_trim(0, 5), LOG_INFO,
        index_add((10, 7, "b", "v")), index_list(), index_trim(0, 5), number("add", "1"),
    ]
    for op in good:
        class_len, method_len = op[2][0], op[2][1]
        names, input_ = op[3][:class_len + method_len], op[3][class_len + method_len:]
        steps = [Step((op[0], 0, op[2][:3] + u32(n), names + input_[:n])) for n in range(len(input_))]
        for i in range(min(len(input_), 14)):
            for value in (0, 255):
                steps.append(Step((op[0], 0, op[2], names + input_[:i] + u8(value) + input_[i + 1:])))
        yield "cut: %s.%s" % (names[:class_len].decode(), names[class_len:].decode()), [setup] + steps


# --- running ---


class Caller:
    """One client of the cluster."""

    def __init__(self, conf, stand_in):
        self.cluster = op_semantics.Cluster(conf, own_nonce=stand_in)
        self.number, self.stand_in = self.cluster.rados.get_instance_id(), stand_in


def translate(data, pairs):
    for from_, to in pairs:
        data = data.replace(s64(from_), s64(to))
        data = re.sub(rb"client\.%d\b" % from_, b"client.%d" % to, data)
    return data


def run_case(callers, target, steps, record):
    real = [(caller.stand_in, caller.number) for caller in callers]
    shown_as = [(number, stand_in) for stand_in, number in real]
    origin = callers[0].cluster.send(target, NAME, [DELETE])
    shown = []
    for step in steps:
        how = dict(step.how)
        caller, hidden, wait = how.pop("caller", 0), how.pop("hidden", False), how.pop("wait", 0)
        time.sleep(wait)
        ops = [op[:3] + (translate(op[3], real),) for op in step.ops]
        reply = callers[caller].cluster.send(target, NAME, ops, **how)
        out = ["*" if hidden and data else translate(data, shown_as).hex() for data in reply.out]
        answer = {"result": reply.result, "rvals": reply.rvals, "out": out,
                  "version": reply.version and reply.version - origin.version,
                  "user_version": reply.user_version and reply.user_version - origin.version}
        shown.append(answer)
        if record:
            print("caller", STAND_INS[caller], wait, file=record)
            op_semantics.record_step(record, NAME, step.ops, how, answer)
    return shown


def run(conf, only, cuts, record=None):
    callers = [Caller(conf, stand_in) for stand_in in STAND_INS]
    target = callers[0].cluster.locate(NAME)
    # Failures move the PG's version alone: until it has caught up with the user version of an earlier run.
    for _ in range(8):
        callers[0].cluster.send(target, NAME, [DELETE])
    answers = {}
    for name, steps in list(cases()) + (list(cut_cases()) if cuts else []):
        if only and only not in name:
            continue
        if record:
            print("case", name, file=record)
        answers[name] = run_case(callers, target, steps, record)
    return answers


if __name__ == "__main__":
    sys.exit(op_semantics.main(__doc__, run, "cuts", "also inputs cut short or damaged"))
