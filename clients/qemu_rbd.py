#!/usr/bin/python3
"""QEMU's rbd driver, rbd-fuse, and file systems in images: whole, also when an OSD
is killed (SIGKILL) while they are written.

    qemu_rbd.py --conf DIR/ceph.conf [--loligo PATH --dir DIR] [CHECK ...]

Without --loligo and --dir nothing is killed: so it runs on real Ceph. Tools that
are missing, and what a container forbids, are skipped and named.
"""
import contextlib, json, os, random, shutil, subprocess, sys, tempfile, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checks import check, run
from cluster import DAEMONS_IF_OURS, arguments, kill, make_pool, sh, up, wait_clean

POOL = "qemu"
FILES = 120


class Run:
    def __init__(self, opt, top):
        self.opt, self.conf, self.top = opt, opt.conf, top

    def sh(self, *argv, **more):
        return sh(self.conf, *argv, **more)

    def path(self, *names):
        return os.path.join(self.top, *names)

    def qemu(self, image):
        return f"rbd:{POOL}/{image}:conf={self.conf}"

    def io(self, image, *commands):
        """qemu-io; a read whose pattern does not hold is an error."""
        out = self.sh("qemu-io", "-f", "raw", *[word for c in commands for word in ("-c", c)], self.qemu(image))
        assert "verification failed" not in out and "error" not in out, out

    @contextlib.contextmanager
    def storm(self):
        """osd.1 dies shortly after the beginning and comes back 2 s later; clean at the end."""
        if not self.opt.loligo:
            yield
            return

        def strike():
            time.sleep(1)
            kill(self.opt.dir, "osd.1")
            time.sleep(2)
            up(self.opt.loligo, self.opt.dir)

        thread = threading.Thread(target=strike)
        thread.start()
        try:
            yield
            assert not thread.is_alive(), "it was over before the OSD came back"
        finally:
            thread.join()
        wait_clean(self.conf, 60)

    def tree(self):
        """Files of many sizes that are the same in every run; made once."""
        tree = self.path("tree")
        if not os.path.exists(tree):
            os.mkdir(tree)
            rng = random.Random(7)
            for number in range(FILES):
                with open(os.path.join(tree, f"f{number:03}"), "wb") as file:
                    file.write(rng.randbytes(rng.choice([0, 100, 4096, 50_000, rng.randrange(400_000)])))
        return tree

    def check_file_system(self, path):
        """e2fsck finds nothing, and every file is what was put in."""
        self.sh("e2fsck", "-fn", path)
        out = self.path("dumped")
        shutil.rmtree(out, ignore_errors=True)
        os.mkdir(out)
        self.sh("debugfs", "-R", f"rdump / {out}", path)
        shutil.rmtree(os.path.join(out, "lost+found"), ignore_errors=True)
        self.sh("diff", "-r", self.tree(), out)


@check
def images(t):
    t.sh("qemu-img", "create", "-f", "raw", t.qemu("i"), "64M")
    facts = json.loads(t.sh("qemu-img", "info", "--output=json", "-f", "raw", t.qemu("i")))
    assert facts["virtual-size"] == 64 << 20 and facts["cluster-size"] == 4 << 20, facts
    t.sh("qemu-img", "resize", "-f", "raw", t.qemu("i"), "80M")
    assert json.loads(t.sh("rbd", "info", f"{POOL}/i", "--format", "json"))["size"] == 80 << 20
    t.io("i", "write -P 0xab 1000448 65536", "read -P 0xab 1000448 65536", "write -z 1000448 4096", "read -P 0 1000448 4096",
         "read -P 0xab 1004544 61440", "discard 4M 4M", "read -P 0 4M 4M", "aio_write -P 7 8M 1M", "aio_write -P 8 12M 1M", "aio_flush",
         "flush", "read -P 7 8M 1M", "read -P 8 12M 1M")


@check
def snapshots(t):
    t.sh("qemu-img", "create", "-f", "raw", t.qemu("s"), "16M")
    t.io("s", "write -P 1 0 6M")
    t.sh("qemu-img", "snapshot", "-c", "first", t.qemu("s"))
    t.io("s", "write -P 2 3M 6M", "read -P 2 3M 6M")
    assert "first" in t.sh("qemu-img", "snapshot", "-l", t.qemu("s"))
    t.sh("qemu-io", "-r", "-f", "raw", "-c", "read -P 1 0 6M", "-c", "read -P 0 6M 10M", f"rbd:{POOL}/s@first:conf={t.conf}")
    t.sh("qemu-img", "snapshot", "-a", "first", t.qemu("s"))
    t.io("s", "read -P 1 0 6M", "read -P 0 6M 10M")
    t.sh("qemu-img", "snapshot", "-d", "first", t.qemu("s"))
    assert "first" not in t.sh("qemu-img", "snapshot", "-l", t.qemu("s"))


@check
def converted(t):
    """A file system made on this machine goes in while an OSD dies, and comes out whole."""
    disk = t.path("disk")
    t.sh("mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", "-d", t.tree(), disk, "48M")
    t.check_file_system(disk)
    t.sh("qemu-img", "create", "-f", "raw", t.qemu("disk"), "48M")
    with t.storm():
        # Slow enough to be under way when the OSD dies and when it comes back.
        t.sh("qemu-img", "convert", "-n", "-S", "0", "-r", "10M", "-f", "raw", "-O", "raw", disk, t.qemu("disk"))
    assert "identical" in t.sh("qemu-img", "compare", "-f", "raw", "-F", "raw", disk, t.qemu("disk"))
    t.sh("qemu-img", "convert", "-f", "raw", "-O", "qcow2", t.qemu("disk"), t.path("out.qcow2"))
    t.sh("qemu-img", "convert", "-f", "qcow2", "-O", "raw", t.path("out.qcow2"), t.path("out"))
    t.check_file_system(t.path("out"))


@check
def mounted(t):
    """A file system is made and filled through rbd-fuse while an OSD dies."""
    point = t.path("mount")
    os.mkdir(point)
    t.sh("rbd", "create", f"{POOL}/fs", "--size", "64M")
    done = subprocess.run(["rbd-fuse", "-c", t.conf, "-p", POOL, point], capture_output=True, text=True)
    if done.returncode or not os.path.ismount(point):
        print(f"  SKIPPED: rbd-fuse cannot mount here: {done.stderr.strip()[-200:]}")
        return
    try:
        disk = os.path.join(point, "fs")
        with t.storm():
            t.sh("mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", disk)
            names = sorted(os.listdir(t.tree()))
            for first in range(0, len(names), 10):
                script = "".join(f"write {os.path.join(t.tree(), name)} {name}\n" for name in names[first:first + 10])
                open(t.path("script"), "w").write(script)
                t.sh("debugfs", "-w", "-f", t.path("script"), disk)
                time.sleep(0.35)
        t.check_file_system(disk)
    finally:
        sh(t.conf, "umount", point)
    t.sh("rbd", "export", "--no-progress", f"{POOL}/fs", t.path("exported"))
    t.check_file_system(t.path("exported"))
    t.sh("rbd", "object-map", "check", "--no-progress", f"{POOL}/fs")


def main():
    arg = arguments(__doc__, DAEMONS_IF_OURS)
    arg.add_argument("checks", nargs="*")
    opt = arg.parse_args()
    needed = {images: ["qemu-img", "qemu-io"], snapshots: ["qemu-img", "qemu-io"],
              converted: ["qemu-img", "mkfs.ext4", "debugfs"], mounted: ["rbd-fuse", "mkfs.ext4", "debugfs"]}
    here = []
    for function, tools in needed.items():
        missing = [tool for tool in tools if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
        if missing:
            print(f"{function.__name__}: SKIPPED: {', '.join(missing)} is not installed")
        elif not opt.checks or function.__name__ in opt.checks:
            here.append(function.__name__)
    if not here:
        return
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if opt.loligo:
        make_pool(opt.conf, POOL)
    else:
        sh(opt.conf, "ceph", "osd", "pool", "create", POOL, "8")
    sh(opt.conf, "rbd", "pool", "init", POOL)
    with tempfile.TemporaryDirectory(prefix="loligo-qemu.") as top:
        code = run("qemu_rbd", Run(opt, top), only=here)
    sys.exit(code)


main()
