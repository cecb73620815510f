#!/usr/bin/python3
"""`rados lock`: what the stock tool says of locks is what Ceph 16.2.15 says.

    locks.py --conf DIR/ceph.conf

Passes on a real cluster too.
"""
import json, os, re, subprocess, sys

from cluster import arguments

POOL = "locks"


def main():
    opt = arguments(__doc__).parse_args()
    env = dict(os.environ, CEPH_CONF=opt.conf)

    def sh(*argv):
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def lock(verb, *args):
        """What was printed, or the number of the error."""
        code, out, err = sh("rados", "-p", POOL, "lock", verb, *args)
        if code:
            return int(re.search(r"error (\d+)", err).group(1))
        return json.loads(out) if out.strip() else None

    def check(what, got, expected):
        if got != expected:
            raise SystemExit(f"{what}: {got!r} instead of {expected!r}")

    def names(object_):
        return [entry["name"] for entry in lock("list", object_)["locks"]]

    sh("ceph", "osd", "pool", "create", POOL, "8")
    sh("rados", "-p", POOL, "rm", "o")
    sh("rados", "-p", POOL, "rm", "new")
    check("list of no object", lock("list", "o"), 2)
    check("put", sh("rados", "-p", POOL, "put", "o", "/etc/hostname")[0], 0)
    check("no locks", names("o"), [])
    check("lock", lock("get", "o", "l1", "--lock-cookie", "c1", "--lock-description", "why"), None)
    # Each run of the tool is a client of its own.
    check("another's lock", lock("get", "o", "l1", "--lock-cookie", "c1"), 16)
    shared = ["--lock-type", "shared", "--lock-tag", "t"]
    check("shared", lock("get", "o", "l2", *shared, "--lock-duration", "1000"), None)
    check("shared again", lock("get", "o", "l2", *shared), None)
    check("another tag", lock("get", "o", "l2", "--lock-type", "shared", "--lock-tag", "u"), 16)
    check("names", names("o"), ["l1", "l2"])

    exclusive = lock("info", "o", "l1")
    (locker,) = exclusive["lockers"]
    check("kind", (exclusive["type"], exclusive["tag"]), ("exclusive", ""))
    check("locker", (locker["cookie"], locker["description"], locker["expiration"]), ("c1", "why", "0.000000"))
    # Whoever breaks the lock of a dead client adds this address to the blocklist first.
    if not re.fullmatch(r"127\.0\.0\.1:0/\d+", locker["addr"]):
        raise SystemExit(f"the locker's address is {locker['addr']}")
    lockers = lock("info", "o", "l2")["lockers"]
    check("lockers", len(lockers), 2)
    check("times", sorted(entry["expiration"] == "0.000000" for entry in lockers), [False, True])

    check("break another", lock("break", "o", "l1", "client.99", "--lock-cookie", "c1"), 2)
    check("break", lock("break", "o", "l1", locker["name"], "--lock-cookie", "c1"), None)
    check("broken", lock("info", "o", "l1")["lockers"], [])
    check("lock of nothing", lock("get", "new", "l"), None)
    check("made by it", sh("rados", "-p", POOL, "stat", "new")[0], 0)
    print("locks: ok")


if __name__ == "__main__":
    sys.exit(main())
