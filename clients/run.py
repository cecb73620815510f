#!/usr/bin/python3
"""Start a Loligo cluster on loopback, run every stock-client test on it, stop it.

    run.py --loligo target/release/loligo [TEST ...]

Each test is a script of this folder that takes --conf DIR/ceph.conf (and, where
it kills daemons, --loligo and --dir); it exits with 0 when it passed.
"""
import argparse, os, shutil, signal, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
# Short ones first; those that kill daemons last.
TESTS = ["compare.py", "librados.py", "watch.py", "snapshots.py", "locks.py", "rbd_class_semantics.py", "rbd_commands.py",
         "librbd.py", "librbd_fencing.py", "fio_rados.py", "full.py", "ack_after_flush.py", "discard.py", "backoff.py",
         "scrub.py", "kill_one.py", "fio_rbd.py", "qemu_rbd.py", "kill_all.py", "rbd_kill_all.py", "bad_input.py"]
# Those that start or stop daemons, or look at their files.
WITH_DAEMONS = ("watch.py", "ack_after_flush.py", "discard.py", "backoff.py", "scrub.py", "kill_one.py", "fio_rbd.py", "qemu_rbd.py",
                "kill_all.py", "rbd_kill_all.py", "bad_input.py")
# Devices of another size than usual.
SMALL = {"full.py": "256M"}
# Seconds; the slowest takes a quarter of it on two idle cores.
LIMIT = 900


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_bounded(argv):
    """A test's exit code. One that hangs is ended, with the clients it started, and has failed."""
    process = subprocess.Popen(argv, start_new_session=True)
    try:
        return process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        print(f"not finished after {LIMIT} s", flush=True)
        return -1
    finally:
        # What it left running, too.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def show_state(directory):
    """What an operator would look at first."""
    env = dict(os.environ, CEPH_CONF=os.path.join(directory, "ceph.conf"))
    for command in ("ceph -s", "ceph osd tree", "ceph pg dump pgs_brief"):
        print(f"--- {command}", flush=True)
        subprocess.run(["timeout", "20", *command.split()], env=env)


def main():
    arg = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arg.add_argument("--loligo", required=True)
    arg.add_argument("tests", nargs="*")
    opt = arg.parse_args()
    loligo = os.path.abspath(opt.loligo)
    passed, failed = 0, []
    tests = opt.tests or [t for t in TESTS if os.path.exists(os.path.join(HERE, t))]
    for test in tests:
        top = tempfile.mkdtemp(prefix="loligo-clients.")
        directory = os.path.join(top, "cluster")
        try:
            size = SMALL.get(test, "6G")
            subprocess.run([loligo, "up", directory, "--port", str(free_port()), "--osd-size", size], check=True)
            began = time.time()
            argv = [sys.executable, os.path.join(HERE, test), "--conf", os.path.join(directory, "ceph.conf")]
            if test in WITH_DAEMONS:
                argv += ["--loligo", loligo, "--dir", directory]
            code = run_bounded(argv)
            print(f"{'ok' if code == 0 else 'FAILED'}: {test} ({time.time() - began:.0f} s)", flush=True)
            if code:
                failed.append(test)
                show_state(directory)
                for name in sorted(os.listdir(os.path.join(directory, "log"))):
                    print(f"--- the end of {name}")
                    subprocess.run(["tail", "-n", "15", os.path.join(directory, "log", name)])
            else:
                passed += 1
        finally:
            subprocess.run([loligo, "down", directory], stdout=subprocess.DEVNULL)
            shutil.rmtree(top, ignore_errors=True)
    print(f"clients: {passed} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


main()
