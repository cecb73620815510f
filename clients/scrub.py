#!/usr/bin/python3
"""Bits are flipped in the files of OSDs that are down: a deep scrub finds what they spoil, repairs what another copy
has right, and says so where none has; light scrubs and the schedule's flags; what the stock tools show of it."""
import json, os, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS, arguments, ceph_json, kill, make_pool, sh, up, wait_clean

POOL = "scrubbed"


def place(loligo, directory, osd, pg, name):
    """Where in an OSD's file an object's data begins."""
    argv = [loligo, "store", "dump", f"{directory}/osd.{osd}/block", "--coll", pg, "--object", name, "--json"]
    found = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return next(o for o in found if o["snap"] == "head")["extents"][0]["device_offset"]


def flip(loligo, directory, osd, pg, name):
    at = place(loligo, directory, osd, pg, name)
    with open(f"{directory}/osd.{osd}/block", "r+b") as file:
        file.seek(at + 100)
        byte = file.read(1)[0]
        file.seek(at + 100)
        file.write(bytes([byte ^ 4]))


def spoil(opt, osds, pg, name):
    kill(opt.dir, *[f"osd.{osd}" for osd in osds])
    for osd in osds:
        flip(opt.loligo, opt.dir, osd, pg, name)
    up(opt.loligo, opt.dir)
    until(lambda: all(o["up"] for o in ceph_json(opt.conf, "osd", "dump")["osds"]), "OSDs are up")
    until(lambda: "peering" not in stat(opt.conf, pg)["state"] and "active" in stat(opt.conf, pg)["state"], "active")


def stat(conf, pg):
    return next(p for p in ceph_json(conf, "pg", "ls")["pg_stats"] if p["pgid"] == pg)


def until(claim, what, within=40):
    began = time.time()
    while not claim():
        if time.time() - began > within:
            sys.exit(f"not within {within} s: {what}")
        time.sleep(0.1)


def scrub(conf, pg, how="deep-scrub"):
    stamp = "last_scrub_stamp" if how == "scrub" else "last_deep_scrub_stamp"
    before = stat(conf, pg)[stamp]
    done = subprocess.run(["ceph", "pg", how, pg], env=dict(os.environ, CEPH_CONF=conf), capture_output=True, text=True)
    primary = stat(conf, pg)["acting_primary"]
    expect(done.stderr.strip(), f"instructing pg {pg} on osd.{primary} to {how}")
    until(lambda: stat(conf, pg)[stamp] > before, f"{how} of {pg}")
    return stat(conf, pg)


def expect(found, wanted):
    if found != wanted:
        sys.exit(f"{found!r}, expected {wanted!r}")


def checks(conf):
    return {code: check["summary"]["message"] for code, check in ceph_json(conf, "health")["checks"].items()}


def log(conf):
    return sh(conf, "ceph", "log", "last", "30")


def figure(conf, osd, name):
    return json.loads(sh(conf, "ceph", "tell", f"osd.{osd}", "perf", "dump"))["osd"][name]


def main():
    opt = arguments(__doc__, DAEMONS).parse_args()
    conf = opt.conf
    make_pool(conf, POOL, pgs=4, size=3)
    sh(conf, "ceph", "osd", "pool", "application", "enable", POOL, "rados")
    with tempfile.NamedTemporaryFile() as file:
        file.write(os.urandom(50_000))
        file.flush()
        for name in ("hello", "lost", "other"):
            sh(conf, "rados", "-p", POOL, "put", name, file.name)
        where = {name: ceph_json(conf, "osd", "map", POOL, name) for name in ("hello", "lost")}

        # One copy, at the primary and at another OSD: repaired.
        pg, acting = where["hello"]["pgid"], where["hello"]["acting"]
        for osd in (acting[1], acting[0]):
            spoil(opt, [osd], pg, "hello")
            wait_clean(conf, 40)
            errors = len(log(conf).split("1 errors, 1 fixed"))
            after = scrub(conf, pg)
            expect(after["stat_sum"]["num_scrub_errors"], 0)
            expect(figure(conf, osd, "objects_repaired"), 1)
            until(lambda: len(log(conf).split("1 errors, 1 fixed")) > errors, "the log tells")
            if f"{pg} shard {osd} soid " not in log(conf) or "candidate had a read error" not in log(conf):
                sys.exit(f"the log does not name the copy:\n{log(conf)}")
            wait_clean(conf, 40)
            expect(checks(conf), {})
            expect(sh(conf, "rados", "-p", POOL, "get", "hello", "/dev/null"), "")
        print("one copy: found and repaired")

        # All copies: reported, and nothing else.
        pg, acting = where["lost"]["pgid"], where["lost"]["acting"]
        spoil(opt, acting, pg, "lost")
        after = scrub(conf, pg)
        expect(after["stat_sum"]["num_deep_scrub_errors"], 3)
        until(lambda: "inconsistent" in stat(conf, pg)["state"], "inconsistent")
        expect(checks(conf), {"OSD_SCRUB_ERRORS": "3 scrub errors", "PG_DAMAGED": "Possible data damage: 1 pg inconsistent"})
        expect([p["pgid"] for p in ceph_json(conf, "pg", "ls", "inconsistent")["pg_stats"]], [pg])
        found = json.loads(sh(conf, "rados", "list-inconsistent-obj", pg))["inconsistents"]
        expect([(f["object"]["name"], f["union_shard_errors"]) for f in found], [("lost", ["read_error"])])
        expect([(s["osd"], s["errors"]) for s in found[0]["shards"]], [(osd, ["read_error"]) for osd in sorted(acting)])
        expect(json.loads(sh(conf, "rados", "list-inconsistent-snapset", pg))["inconsistents"], [])
        got = subprocess.run(["rados", "-p", POOL, "get", "lost", "/dev/null"], env=dict(os.environ, CEPH_CONF=conf))
        if not got.returncode:
            sys.exit("spoilt data was read")
        sh(conf, "rados", "-p", POOL, "put", "lost", file.name)
        scrub(conf, pg, "repair")
        until(lambda: not checks(conf), "health after the object was written again")
        wait_clean(conf, 40)
        print("all copies: reported until the object was written again")

        # A clone for what follows.
        sh(conf, "rados", "-p", POOL, "mksnap", "before")
        sh(conf, "rados", "-p", POOL, "put", "other", "/etc/hostname")

    # The others, and flags that an operator's wish goes before.
    sh(conf, "ceph", "osd", "set", "noscrub")
    for pg in [p["pgid"] for p in ceph_json(conf, "pg", "ls-by-pool", POOL)["pg_stats"]]:
        expect(scrub(conf, pg, "scrub")["stat_sum"]["num_scrub_errors"], 0)
    sh(conf, "ceph", "osd", "unset", "noscrub")
    def stamps():
        return [p["last_deep_scrub_stamp"] for p in ceph_json(conf, "pg", "ls")["pg_stats"]]

    before = stamps()
    sh(conf, "ceph", "osd", "deep-scrub", "all")
    until(lambda: all(new > old for new, old in zip(stamps(), before)), "a deep scrub of everything")
    expect(checks(conf), {})
    print("light scrubs, and a deep one of everything: nothing wrong")


main()
