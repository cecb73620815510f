"""What the tests share: their arguments, commands, and daemons that are killed and started."""
import argparse, fcntl, json, os, signal, subprocess, time

# What a test does to daemons: nothing; it cannot do without; it leaves that out where it is not told how, as on a Ceph cluster.
NO_DAEMONS, DAEMONS, DAEMONS_IF_OURS = range(3)


def arguments(description, daemons=NO_DAEMONS):
    """A parser of what `run.py` hands to a test, which may have arguments of its own."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conf", required=True, help="the cluster's ceph.conf")
    if daemons != NO_DAEMONS:
        parser.add_argument("--loligo", required=daemons == DAEMONS, help="the binary to start daemons with")
        parser.add_argument("--dir", required=daemons == DAEMONS, help="the cluster's folder, as `loligo up` makes it")
    return parser


def sh(conf, *argv, check=True, timeout=120):
    done = subprocess.run(argv, env=dict(os.environ, CEPH_CONF=conf), capture_output=True, text=True, timeout=timeout)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def ceph_json(conf, *argv):
    return json.loads(sh(conf, "ceph", *argv, "-f", "json"))


def pid_of(directory, daemon):
    return int(open(os.path.join(directory, "run", f"{daemon}.pid")).read())


def kill(directory, *daemons):
    """SIGKILL to all of them at once; returns when the last has ended, which is some time after the signal was sent:
    until then `loligo up` takes it for running."""
    for pid in [pid_of(directory, d) for d in daemons]:
        os.kill(pid, signal.SIGKILL)
    for daemon in daemons:
        # A daemon of ours holds a lock on it for life; Ceph's do not.
        with open(os.path.join(directory, "run", f"{daemon}.pid")) as file:
            fcntl.flock(file, fcntl.LOCK_SH)


def freeze(pid):
    """Stops a process; returns when its last thread stands still, which is some time after the signal was sent."""
    os.kill(pid, signal.SIGSTOP)
    began = time.time()
    while any(state(pid, thread) != "T" for thread in os.listdir(f"/proc/{pid}/task")):
        assert time.time() - began < 10, f"process {pid} does not stop"
        time.sleep(0.001)


def state(pid, thread):
    """A thread's state as one letter; "T" for one that has ended meanwhile."""
    try:
        return open(f"/proc/{pid}/task/{thread}/stat").read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "T"


def up(loligo, directory):
    done = subprocess.run([loligo, "up", directory], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"loligo up: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def wait_clean(conf, within):
    """Seconds until every PG is active+clean; fails after `within`."""
    began = time.time()
    while True:
        states = {s["state_name"]: s["count"] for s in ceph_json(conf, "status")["pgmap"].get("pgs_by_state", [])}
        if set(states) == {"active+clean"}:
            return time.time() - began
        if time.time() - began > within:
            raise SystemExit(f"not clean within {within} s: {states}\n" + sh(conf, "ceph", "health", "detail", check=False))
        time.sleep(0.3)


def make_pool(conf, name, pgs=32, size=2):
    sh(conf, "ceph", "osd", "pool", "create", name, str(pgs))
    sh(conf, "ceph", "osd", "pool", "set", name, "size", str(size))
    sh(conf, "ceph", "osd", "pool", "set", name, "min_size", "1")
    wait_clean(conf, 30)
