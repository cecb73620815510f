#!/usr/bin/python3
"""Run the stock commands of commands.py and compare the replies; rbd_commands.py does the same with its own.

    compare.py --conf DIR/ceph.conf [--peer-conf DIR/ceph.conf | --golden FILE]
    compare.py --conf DIR/ceph.conf --record FILE      write what this cluster answers

With a peer, real Ceph answers the same commands in the same order.  With a
golden file, its recorded answers stand in.  Exit status 1 if a reply differs
that is not listed, with its reason, in expected_differences.txt.
"""
import json, os, re, subprocess, sys, tempfile, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import commands
from cluster import arguments

HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds after which a step is mentioned, and after which waiting ends.
SLOW = 10
WAIT_MAX = 60


def run(command, conf, cwd, more_env):
    env = dict(os.environ, CEPH_CONF=conf, LC_ALL="C", **more_env)
    try:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], env=env, cwd=cwd, capture_output=True, timeout=120)
    except subprocess.TimeoutExpired:
        return {"code": "timeout", "out": "", "err": ""}
    return {"code": done.returncode, "out": done.stdout.decode("utf-8", "replace"), "err": done.stderr.decode("utf-8", "replace")}


def play(conf, suite, names):
    """Every step's reply, in order."""
    replies = []
    with tempfile.TemporaryDirectory() as scratch:
        for command in suite.SETUP:
            reply = run(command, conf, scratch, suite.ENV)
            if reply["code"]:
                sys.exit(f"setup failed on {conf}: {command}\n{reply['out']}{reply['err']}")
        for name in names:
            for mode, command in commands.parse(suite.TABLES[name]):
                began = time.time()
                if mode == "wait":
                    while run(command, conf, scratch, suite.ENV)["code"] and time.time() - began < WAIT_MAX:
                        time.sleep(0.5)
                    continue
                replies.append({"mode": mode, "command": command, **run(command, conf, scratch, suite.ENV)})
                if time.time() - began > SLOW:
                    print(f"{time.time() - began:.0f} s: {command}", flush=True)
    return replies


def shape(value):
    """Keys and types at every depth; a list has the shapes of its items."""
    if isinstance(value, dict):
        return {commands.mask(k): shape(v) for k, v in value.items()}
    if isinstance(value, list):
        merged = {}
        for item in value:
            merged = merge(merged, shape(item))
        return [merged] if value else []
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "null" if value is None else "string"


def parsed_shape(text):
    """The shape of JSON text; None if it is none."""
    try:
        return shape(json.loads(text))
    except ValueError:
        return None


def recorded(reply):
    """What a golden file keeps of a reply: what will be compared."""
    kept = {"mode": reply["mode"], "command": reply["command"], "code": reply["code"]}
    if reply["mode"] == "json":
        kept["shape"] = parsed_shape(reply["out"])
    elif reply["mode"] != "code":
        kept.update({c: commands.mask(reply[c], reply["mode"] == "words") for c in ("out", "err")})
    return kept


def merge(a, b):
    if isinstance(a, dict) and isinstance(b, dict):
        return {k: merge(a[k], b[k]) if k in a and k in b else a.get(k, b.get(k)) for k in [*a, *[k for k in b if k not in a]]}
    return b if not a else a


# Keys that Ceph shows only while something moves, or only sometimes.
FLEETING = re.compile(r"(_sec|_per_sec|_rate|_ratio|_objects|_total)$|^(checks|progress_events|mutes)$|recovering|degraded|misplaced")


def shape_differences(ours, theirs, at=""):
    if at.endswith(".checks"):  # which health checks are raised is not the format's matter
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in theirs:
            if key not in ours and not FLEETING.search(key):
                yield f"{at}.{key} is missing"
            elif key in ours:
                yield from shape_differences(ours[key], theirs[key], f"{at}.{key}")
        yield from (f"{at}.{key} is extra" for key in ours if key not in theirs and not FLEETING.search(key))
    elif isinstance(ours, list) and isinstance(theirs, list):
        if ours and theirs:
            yield from shape_differences(ours[0], theirs[0], f"{at}[]")
    elif ours != theirs:
        yield f"{at} is {kind(ours)}, not {kind(theirs)}"


def kind(shape):
    return shape if isinstance(shape, str) else type(shape).__name__


def differences(ours, theirs):
    if ours["code"] != theirs["code"]:
        yield f"exit code {ours['code']}, not {theirs['code']}: {ours['err'].strip()[:200] or ours['out'].strip()[:200]}"
        return
    mode = ours["mode"]
    if mode == "code":
        return
    if mode == "json":
        if ours["code"]:
            return
        a, b = parsed_shape(ours["out"]), theirs["shape"] if "shape" in theirs else parsed_shape(theirs["out"])
        if (a is None) != (b is None):
            yield f"JSON or not: {ours['out'].strip()[:200]!r}"
        elif a is not None:
            yield from shape_differences(a, b)
        return
    for channel in ("out", "err"):
        a, b = (commands.mask(reply[channel], mode == "words") for reply in (ours, theirs))
        if mode == "lines":
            a, b = ("\n".join(sorted(t.splitlines())) for t in (a, b))
        if a.strip() != b.strip():
            yield f"std{channel} {a.strip()[:1500]!r}\n           theirs {b.strip()[:1500]!r}"


def numbered(replies):
    """(command, how often it came before) -> reply: some commands are repeated on purpose."""
    seen, keyed = {}, {}
    for reply in replies:
        n = seen[reply["command"]] = seen.get(reply["command"], -1) + 1
        keyed[reply["command"], n] = reply
    return keyed


def expected():
    """command -> reason, from lines `command  # reason`."""
    known = {}
    for line in open(os.path.join(HERE, "expected_differences.txt")):
        if line.strip() and not line.startswith("#"):
            command, _, reason = line.rpartition("  # ")
            known[command.strip()] = reason.strip()
    return known


def main(suite):
    """`suite`: a module with SETUP, TABLES (name -> steps), ENV and GOLDEN, the file of its recorded answers."""
    arg = arguments(__doc__)
    arg.add_argument("--peer-conf")
    arg.add_argument("--golden", default=os.path.join(HERE, suite.GOLDEN))
    arg.add_argument("--record")
    arg.add_argument("--only", choices=suite.TABLES, action="append")
    opt = arg.parse_args()
    names = opt.only or list(suite.TABLES)
    ours = play(opt.conf, suite, names)
    if opt.record:
        json.dump([recorded(reply) for reply in ours], open(opt.record, "w"), indent=1)
        return
    theirs = play(opt.peer_conf, suite, names) if opt.peer_conf else json.load(open(opt.golden))
    theirs = numbered(theirs)
    known, same, explained, wrong = expected(), 0, 0, 0
    for key, reply in numbered(ours).items():
        peer = theirs.get(key)
        found = ["no reply recorded from real Ceph"] if peer is None else list(differences(reply, peer))
        if not found:
            same += 1
        elif reply["command"] in known:
            explained += 1
        else:
            wrong += 1
            print(f"DIFFERS  {reply['mode']:6} {reply['command']}")
            for line in found[:12]:
                print(f"         {line}")
    print(f"{same} same, {explained} differ as explained, {wrong} wrong")
    print(f"{same + explained} passed, {wrong} failed")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main(commands)
