#!/usr/bin/python3
"""fio's rbd engine writes an image while an OSD is killed (SIGKILL) and started
again, and then reads every block back against its checksum.

    fio_rbd.py --conf DIR/ceph.conf [--loligo PATH --dir DIR]

Without --loligo and --dir nothing is killed: so it runs on real Ceph.
"""
import json, os, shutil, subprocess, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DAEMONS_IF_OURS, arguments, kill, make_pool, sh, up, wait_clean


def fio(image, *extra):
    return ["fio", "--ioengine=rbd", "--clientname=admin", "--pool=fio-rbd", f"--rbdname={image}", "--busy_poll=0", "--name=t",
            "--verify=crc32c", "--verify_fatal=1", "--output-format=json", *extra]


def finish(job, what, within=180):
    out, err = job.communicate(timeout=within)
    if job.returncode:
        sys.exit(f"{what}: exit code {job.returncode}\n{out[-3000:]}{err[-3000:]}")
    done = json.loads(out[out.index("{"):])["jobs"][0]
    if done["error"]:
        sys.exit(f"{what}: error {done['error']}")
    return done


def start(conf, *argv):
    return subprocess.Popen(fio(*argv), env=dict(os.environ, CEPH_CONF=conf), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def main():
    opt = arguments(__doc__, DAEMONS_IF_OURS).parse_args()
    if not shutil.which("fio") or "rbd" not in sh(opt.conf, "fio", "--enghelp"):
        print("fio with the rbd engine is not installed: SKIPPED")
        return
    if opt.loligo:
        make_pool(opt.conf, "fio-rbd")
    else:
        sh(opt.conf, "ceph", "osd", "pool", "create", "fio-rbd", "8")
    sh(opt.conf, "rbd", "pool", "init", "fio-rbd")
    for image in ("calm", "stormy"):
        sh(opt.conf, "rbd", "create", f"fio-rbd/{image}", "--size", "64M")
    calm = finish(start(opt.conf, "calm", "--rw=randwrite", "--bsrange=4k-64k", "--iodepth=16", "--size=64M"), "fio")
    print(f"undisturbed: {calm['write']['total_ios']} writes, {calm['read']['total_ios']} blocks verified")
    # Every block once, at a pace that outlasts the OSD's absence; the same job verifies, then another one from both copies.
    job = start(opt.conf, "stormy", "--rw=randwrite", "--bs=16k", "--iodepth=16", "--size=64M", "--rate_iops=500,450")
    if opt.loligo:
        time.sleep(2)
        kill(opt.dir, "osd.1")
        time.sleep(2.5)
        up(opt.loligo, opt.dir)
    written = finish(job, "fio during the OSD's death")
    worst = written["write"]["clat_ns"]["max"] / 1e9
    clean = wait_clean(opt.conf, 60)
    for osd in "012" if opt.loligo else "":
        sh(opt.conf, "ceph", "osd", "primary-affinity", osd, "0" if osd == "1" else "1")
    wait_clean(opt.conf, 30)
    again = finish(start(opt.conf, "stormy", "--rw=read", "--bs=16k", "--iodepth=16", "--size=64M"), "fio reads back")
    print(f"{'through the death of osd.1' if opt.loligo else 'undisturbed'}: {written['write']['total_ios']} writes, "
          f"the longest {worst:.2f} s; clean {clean:.1f} s after the last; {again['read']['total_ios']} blocks verified")
    sh(opt.conf, "rbd", "object-map", "check", "--no-progress", "fio-rbd/stormy")


main()
