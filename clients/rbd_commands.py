#!/usr/bin/python3
"""What the stock `rbd` command must do, compared with what real Ceph answered.

    rbd_commands.py --conf DIR/ceph.conf [--peer-conf DIR/ceph.conf | --golden FILE]
    rbd_commands.py --conf DIR/ceph.conf --record FILE

Lines are as in commands.py. An image's data is compared by writing known bytes
(`at IMAGE OFFSET FILE`) and hashing what `rbd export` gives back (`sum IMAGE`).
"""
import os, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

GOLDEN = "golden-rbd-16.2.15.json"
# librbd's own log lines come from other threads, in between: what counts is what `rbd` says.
ENV = {"CEPH_ARGS": "--err-to-stderr=false --log-to-stderr=false"}

SETUP = [
    "for p in rbd data; do ceph osd pool rm $p $p --yes-i-really-really-mean-it; ceph osd pool create $p 8; done",
    "rbd pool init data",
    # Bytes that are the same in every run.
    """python3 -c 'import random; r = random.Random(1); w = lambda n, b: open(n, "wb").write(b)
w("raw", r.randbytes(9_000_000)); w("4k", r.randbytes(4096)); w("100k", r.randbytes(102400)); w("zeros", bytes(1 << 22))
w("holes", bytes(1 << 22) + r.randbytes(5000) + bytes(5 << 20) + r.randbytes(300))'""",
    # A diff of one extent is the stock command's way to write into an image.
    """cat > at <<'END'
#!/bin/sh
python3 -c 'import struct, sys
data = open(sys.argv[2], "rb").read()
out = b"rbd diff v1\\n" + b"w" + struct.pack("<QQ", int(sys.argv[1]), len(data)) + data + b"e"
sys.stdout.buffer.write(out)' $2 $3 | rbd import-diff --no-progress - $1
END
cat > sum <<'END'
#!/bin/sh
rbd export --no-progress $1 - | md5sum
END
cat > id <<'END'
#!/bin/sh
rbd trash ls --all $2 | sed -n "s/ $1$//p"
END
chmod +x at sum id""",
]

POOL = """
exact  rbd ls
exact  rbd pool init rbd && ceph osd pool application get rbd
exact  rbd pool init rbd
exact  rbd pool stats
exact  rbd pool stats --format json
exact  rbd info absent
exact  rbd ls absent
"""

CREATE = """
exact  rbd create a --size 100M
exact  rbd create a --size 100M
exact  rbd create b --size 10G --object-size 1M
exact  rbd create c --size 64M --stripe-unit 65536 --stripe-count 4
exact  rbd create d --size 33M --data-pool data
exact  rbd create e --size 5M --image-feature layering
exact  rbd create f --size 5M --image-feature layering,exclusive-lock,object-map,fast-diff,deep-flatten
exact  rbd create g --size 0
exact  rbd create h --size 5M --image-shared
exact  rbd create i --size 12M --thick-provision --no-progress && rbd du i
exact  rbd create j --size 5M --object-size 100
exact  rbd create k --size 5M --image-feature nosuchfeature
exact  rbd create l --size 5M --image-feature fast-diff
exact  rbd create m --size 5M --data-pool absent
exact  rbd create n --size 5M --image-format 1
exact  rbd create o
exact  rbd ls
exact  rbd ls -l
exact  rbd ls --format json
exact  rbd ls -l --format json
exact  rbd info a
exact  rbd info b
exact  rbd info c
exact  rbd info d
exact  rbd info e
exact  rbd info f
exact  rbd info g
exact  rbd info h
exact  rbd info a --format json
exact  rbd info c --format json
exact  rbd info d --format json
exact  rbd info --image-id $(rbd info a --format json | python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
exact  rbd rm g --no-progress && rbd du
exact  rbd du a --format json
exact  rbd status a
exact  rbd status a --format json
exact  for i in b e f h i l; do rbd rm $i --no-progress; done; rbd ls
exact  rbd rm absent
"""

DATA = """
exact  ./at a 0 4k && ./sum a
exact  ./at a 4190208 100k && ./sum a
exact  ./at c 30000 100k && ./sum c
exact  ./at d 8388608 4k && ./sum d && rados -p rbd ls | grep -c rbd_data ; rados -p data ls | wc -l
exact  rbd du a
exact  rbd du c
exact  rbd du d --format json
exact  rbd diff a
exact  rbd diff a --whole-object
exact  rbd diff a --format json
exact  rbd resize a --size 200M --no-progress && ./sum a && rbd info a | head -2
exact  rbd resize a --size 5M --no-progress
exact  rbd resize a --size 5M --allow-shrink --no-progress && ./sum a && rbd du a
exact  rbd resize a --size 100M --no-progress && ./sum a && rbd du a
exact  rbd resize a --size 100M --no-progress
exact  rbd resize c --size 1M --allow-shrink --no-progress && ./sum c
exact  rbd resize absent --size 1M
exact  rbd mv a aa && rbd ls && ./sum aa
exact  rbd mv aa c
exact  rbd mv aa a
exact  rbd mv absent x
exact  rbd import --no-progress raw raw && ./sum raw && md5sum < raw && rbd du raw
exact  rbd import --no-progress holes holes --object-size 64K && ./sum holes && md5sum < holes && rbd du holes
exact  rbd import --no-progress holes coarse --sparse-size 1M --stripe-unit 4096 --stripe-count 3 && ./sum coarse
exact  rbd import --no-progress - fed < raw && ./sum fed
exact  rbd import --no-progress raw raw
exact  rbd export --no-progress raw - | cmp - raw
exact  rbd export --no-progress raw out && cmp out raw && rbd export --no-progress raw out
exact  rbd export --no-progress --export-format 2 holes two && rbd import --no-progress --export-format 2 two again && ./sum again && rbd info again | grep order
exact  rbd cp raw copied --no-progress && ./sum copied
exact  rbd cp raw data/copied --no-progress --object-size 1M --stripe-unit 1M --stripe-count 1 && ./sum data/copied
exact  rbd cp raw copied --no-progress
exact  rbd cp absent copied2 --no-progress
exact  ./at raw 0 zeros && rbd du raw && rbd sparsify raw --no-progress && rbd du raw && ./sum raw
code   rbd bench --io-type write --io-size 4K --io-total 4M --io-pattern rand a
code   rbd bench --io-type write --io-size 1M --io-total 16M --io-threads 4 a
code   rbd bench --io-type readwrite --io-size 16K --io-total 8M --io-pattern rand c
code   rbd bench --io-type read --io-size 64K --io-total 32M c
exact  rbd du a
exact  for i in coarse fed copied data/copied again raw holes c d; do rbd rm --no-progress $i; done; rbd ls; rbd ls data
exact  rbd rm a 2>&1 | tr '\r' '\n' | tail -n 1
exact  rbd ls; rados -p data ls | wc -l; rados -p rbd ls | sort
"""

SNAPS = """
exact  rbd create s --size 20M && ./at s 0 100k && rbd snap create s@one --no-progress
exact  rbd snap create s@one --no-progress
exact  rbd snap ls s
exact  rbd snap ls s --format json
exact  rbd snap ls s --all
exact  rbd info s@one
exact  rbd info s | grep snapshot_count
exact  rbd info s@absent
exact  ./at s 50000 4k && ./at s 9000000 4k && ./sum s && ./sum s@one
exact  rbd snap create s@two --no-progress && ./at s 50000 100k && ./at s 16777216 4k && ./sum s && ./sum s@one && ./sum s@two
exact  rbd du s
exact  rbd du s@two --format json
exact  rbd ls -l
exact  rbd diff s
exact  rbd diff s@one
exact  rbd diff s --from-snap one
exact  rbd diff s@two --from-snap one --format json
exact  rbd diff s --from-snap one --whole-object
exact  rbd export-diff --no-progress s@one d1 && md5sum d1
exact  rbd export-diff --no-progress s@two --from-snap one d2 && md5sum d2
exact  rbd export-diff --no-progress s --from-snap two d3 && md5sum d3
exact  rbd export-diff --no-progress s --from-snap one --whole-object - | wc -c
exact  rbd merge-diff --no-progress d1 d2 d12 && md5sum d12
exact  rbd create t --size 20M && rbd import-diff --no-progress d3 t
exact  rbd import-diff --no-progress d1 t && rbd import-diff --no-progress d2 t && rbd import-diff --no-progress d3 t && ./sum t && ./sum t@two && rbd snap ls t
exact  rbd import-diff --no-progress d2 t
exact  rbd create u --size 1M && rbd import-diff --no-progress d12 u && ./sum u && rbd snap ls u
exact  rbd export --no-progress --export-format 2 s whole && rbd import --no-progress --export-format 2 whole v && rbd snap ls v && ./sum v && ./sum v@one
exact  rbd deep cp s w --no-progress && rbd snap ls w && ./sum w && ./sum w@one && ./sum w@two
exact  rbd deep cp s@one x --no-progress --object-size 64K --stripe-unit 64K --stripe-count 1 && rbd snap ls x && ./sum x && ./sum x@one
exact  rbd rm s --no-progress
exact  rbd snap rollback s@one --no-progress && ./sum s && ./sum s@two
exact  rbd snap rollback s@two --no-progress && ./sum s && ./sum s@one
exact  rbd resize s --size 2M --allow-shrink --no-progress && ./sum s && ./sum s@two && rbd info s@two | head -2
exact  rbd snap rollback s@one --no-progress && ./sum s && rbd info s | head -2
exact  rbd snap rename s@two s@three && rbd snap ls s
exact  rbd snap rename s@absent s@four
exact  rbd snap rename s@three s@one
exact  rbd snap protect s@one && rbd snap ls s
exact  rbd snap protect s@one
exact  rbd snap rm s@one --no-progress
exact  rbd snap purge s --no-progress
exact  rbd snap ls s
exact  rbd snap unprotect s@one
exact  rbd snap unprotect s@one
exact  rbd snap rm s@absent
exact  rbd snap limit set s --limit 2 && rbd snap create s@x --no-progress && rbd snap create s@y --no-progress
exact  rbd snap limit clear s && rbd snap create s@y --no-progress
exact  rbd snap rm s@one
exact  rbd snap rm s@x --no-progress
exact  rbd snap purge s && rbd snap ls s
exact  ./sum s && for i in s t u v w x; do rbd snap purge --no-progress $i; rbd rm --no-progress $i; done; rbd ls
"""

CLONES = """
exact  rbd create p --size 20M && ./at p 0 100k && ./at p 12000000 4k && rbd snap create p@base --no-progress
exact  rbd clone p@base early --rbd-default-clone-format 1
exact  rbd snap protect p@base && rbd clone p@base old --rbd-default-clone-format 1
exact  rbd clone p@base new --rbd-default-clone-format 2
exact  rbd clone p@base data/other --rbd-default-clone-format 2 --object-size 1M --stripe-unit 1M --stripe-count 1
exact  rbd clone p@base new
exact  rbd clone p p2
exact  rbd clone p@absent p2
exact  rbd info old
exact  rbd info new
exact  rbd info data/other
exact  rbd info new --format json
exact  rbd info p
exact  rbd children p@base
exact  rbd children p
exact  rbd children p --format json
exact  rbd ls -l
exact  rbd du new
exact  ./sum old && ./sum new && ./sum data/other
exact  ./at old 50000 4k && ./at new 4194300 4k && ./at data/other 12000100 4k && ./sum old && ./sum new && ./sum data/other && ./sum p@base
exact  rbd du old && rbd du new && rbd du data/other
exact  rbd diff new
exact  rbd diff old --from-snap absent
exact  rbd snap unprotect p@base
exact  rbd rm p --no-progress
exact  rbd snap create new@s1 --no-progress && ./at new 0 4k && rbd clone new@s1 grand --rbd-default-clone-format 2 && ./sum grand && rbd info grand | grep -A1 parent
exact  rbd children --descendants p
exact  rbd snap rm new@s1 --no-progress && rbd snap ls new && rbd snap ls new --all && rbd children new
exact  rbd resize grand --size 1M --allow-shrink --no-progress && rbd resize grand --size 20M --no-progress && ./sum grand && rbd info grand | grep overlap
exact  rbd flatten grand --no-progress && ./sum grand && rbd info grand | grep -c parent
exact  rbd snap ls new --all
exact  rbd flatten grand
exact  rbd snap create new@s2 --no-progress && rbd flatten new && ./sum new && ./sum new@s2 && rbd info new
exact  rbd deep cp old deep --no-progress && rbd info deep | grep parent && ./sum deep
exact  rbd deep cp old flat --flatten --no-progress && ./sum flat ; rbd info flat | grep parent
exact  rbd cp old shallow --no-progress && ./sum shallow ; rbd info shallow | grep parent
exact  for i in deep flat shallow grand old data/other; do rbd rm --no-progress $i; done; rbd children p@base
exact  rbd snap unprotect p@base && rbd snap rm p@base --no-progress && rbd rm p --no-progress
exact  rbd snap purge new --no-progress && rbd rm new --no-progress && rbd ls
exact  rbd create p --size 4M && rbd snap create p@s --no-progress && rbd clone p@s c1 --rbd-default-clone-format 2 && rbd snap rm p@s --no-progress && rbd trash mv p
exact  rbd rm c1 --no-progress && rbd trash ls --all
"""

TRASH = """
exact  rbd create t1 --size 4M && ./at t1 0 4k && rbd trash mv t1 && rbd ls
exact  rbd trash ls
exact  rbd trash ls -l | sed 's/  */ /g'
exact  rbd trash ls --format json
exact  rbd create t1 --size 5M && rbd trash restore $(./id t1)
exact  rbd trash restore $(./id t1) --image t2 && ./sum t2 && rbd trash ls
exact  rbd trash mv t1 --expires-at '3000-01-01' && rbd trash rm $(./id t1) --no-progress
exact  rbd trash purge --no-progress && rbd trash ls
exact  rbd trash rm $(./id t1) --force --no-progress && rbd trash ls
exact  rbd trash mv t2 && rbd trash purge && rbd trash ls
exact  rbd trash mv absent
exact  rbd trash rm 123456789abc
exact  rbd trash restore 123456789abc
exact  rbd create t3 --size 4M && rbd snap create t3@s --no-progress && rbd trash mv t3 && rbd trash purge --no-progress
exact  rbd trash restore $(./id t3) && rbd snap purge t3 --no-progress && rbd rm t3 --no-progress
"""

METADATA = """
exact  rbd create m --size 8M && rbd image-meta ls m
exact  rbd image-meta set m colour blue && rbd image-meta set m conf_rbd_cache false && rbd image-meta get m colour
exact  rbd image-meta ls m
exact  rbd image-meta ls m --format json
exact  rbd image-meta rm m colour && rbd image-meta get m colour
exact  rbd image-meta rm m absent
exact  rbd config image ls m | grep -e '^rbd_cache ' -e rbd_qos_bps_limit
exact  rbd config image set m rbd_qos_bps_limit 1000000 && rbd config image get m rbd_qos_bps_limit && rbd config image rm m rbd_qos_bps_limit
exact  rbd config image set m nosuchoption 1
exact  rbd config pool set rbd rbd_cache_size 1000000 && rbd config pool get rbd rbd_cache_size && rbd config pool ls rbd | grep rbd_cache_size && rbd config pool rm rbd rbd_cache_size
exact  rbd config global set client rbd_cache_size 2000000 && rbd config global get client rbd_cache_size && rbd config global rm client rbd_cache_size
exact  rbd lock add m mine && rbd lock ls m | sed 's/  */ /g'
exact  rbd lock add m other
exact  rbd lock ls m --format json
exact  rbd lock rm m mine client.1
exact  rbd lock rm m mine $(rbd lock ls m --format json | grep -o 'client\\.[0-9]*') && rbd lock ls m
exact  rbd lock add m l1 --shared tag && rbd lock add m l2 --shared tag && rbd lock add m l3 --shared other
exact  rbd lock ls m --format json | grep -o '"id":"[^"]*"' | sort; rbd lock ls m | head -2
exact  for l in $(rbd lock ls m --format json | grep -o 'client\\.[0-9]*'); do rbd lock rm m l1 $l || rbd lock rm m l2 $l; done; rbd lock ls m
exact  rbd feature disable m fast-diff && rbd info m | grep -e features -e flags
exact  rbd feature disable m exclusive-lock
exact  rbd feature disable m object-map exclusive-lock && rbd info m | grep features
exact  rbd feature enable m object-map
exact  ./at m 0 4k && rbd feature enable m exclusive-lock object-map fast-diff && rbd info m | grep -e features -e flags
exact  rbd object-map check m --no-progress
exact  rbd object-map rebuild m --no-progress && rbd object-map check m --no-progress && rbd info m | grep flags && rbd du m
exact  rbd feature disable m deep-flatten && rbd feature enable m deep-flatten
exact  rbd feature disable m layering
exact  ./at m 4096 4k && ./sum m
exact  rbd snap create m@s --no-progress && rbd object-map rebuild m@s --no-progress && rbd object-map check m@s --no-progress
exact  rbd snap purge m --no-progress; sleep 8 | rbd watch m > /dev/null & until rbd status m | grep -q watcher; do sleep 0.1; done; rbd status m | sed 's/client.[0-9]* cookie=.*/client/'; rbd rm m --no-progress; wait
exact  rbd rm m --no-progress
"""

NAMESPACES = """
exact  rbd namespace create rbd/n1 && rbd namespace create rbd/n2 && rbd namespace ls rbd
exact  rbd namespace create rbd/n1
exact  rbd namespace ls rbd --format json
exact  rbd create rbd/n1/a --size 8M && ./at rbd/n1/a 0 4k && rbd ls rbd/n1 && rbd ls rbd/n2 && rbd ls rbd
exact  rbd info rbd/n1/a
exact  rbd snap create rbd/n1/a@s --no-progress && rbd clone rbd/n1/a@s rbd/n2/b --rbd-default-clone-format 2 && rbd info rbd/n2/b | grep parent && ./sum rbd/n2/b && rbd children rbd/n1/a
exact  rbd ls absent/n
exact  rbd create rbd/absent/a --size 1M
exact  rbd namespace rm rbd/n1
exact  rbd rm rbd/n2/b --no-progress && rbd namespace rm rbd/n2 && rbd snap purge rbd/n1/a --no-progress && rbd trash mv rbd/n1/a && rbd trash ls rbd/n1
exact  rbd trash purge rbd/n1 --no-progress && rbd namespace rm rbd/n1 && rbd namespace ls rbd
exact  rbd namespace rm rbd/n1
"""

# A group's snapshot takes its images' snapshots at once, each with its own request: which of them gets the lower number is
# the client's chance, on real Ceph, too. Compared are what each shows, and the numbers together.
GROUPS = """
exact  for i in g1 g2; do rbd create $i --size 8M; ./at $i 0 4k; done; rbd group create rbd/g && rbd group ls
exact  rbd group create rbd/g
exact  rbd group image add rbd/g rbd/g1 && rbd group image add rbd/g rbd/g2 && rbd group image ls rbd/g
exact  rbd group image ls rbd/g --format json
exact  rbd group image add rbd/g rbd/g1
exact  rbd info g1
exact  rbd rm g1 --no-progress
exact  rbd group snap create rbd/g@s && rbd group snap ls rbd/g
exact  rbd group snap create rbd/g@s
exact  rbd snap ls g1 && rbd snap ls g1 --all | sed 's/\\.group\\.[0-9a-f_]*/group/; s/  */ /g; s/ [0-9]* group/ ID group/'
exact  rbd snap ls g2 --all | sed 's/\\.group\\.[0-9a-f_]*/group/; s/  */ /g; s/ [0-9]* group/ ID group/'
exact  for i in g1 g2; do rbd snap ls $i --all --format json | grep -o '"id":[0-9]*'; done | sort
exact  ./at g1 0 100k && ./at g2 0 100k && rbd group snap rollback rbd/g@s --no-progress && ./sum g1 && ./sum g2
exact  rbd group snap rename rbd/g@s t && rbd group snap ls rbd/g --format json
exact  rbd group snap rm rbd/g@t && rbd group snap ls rbd/g && rbd snap ls g1 --all
exact  rbd group rename rbd/g rbd/h && rbd group ls --format json
exact  rbd group image rm rbd/h rbd/g1 && rbd group image ls rbd/h && rbd info g1 | grep group
exact  rbd group rm rbd/h && rbd group ls && rbd info g2 | grep group
exact  rbd group rm rbd/h
exact  rbd rm g1 --no-progress && rbd rm g2 --no-progress
"""

MIGRATION = """
exact  rbd create m1 --size 20M && ./at m1 0 100k && rbd snap create m1@s --no-progress && ./at m1 9000000 4k
exact  rbd migration prepare m1 data/m2 --object-size 1M --stripe-unit 1M --stripe-count 1 && rbd ls && rbd ls data
exact  rbd status data/m2
exact  rbd info m1
exact  ./sum data/m2 && ./sum data/m2@s && ./at data/m2 9000000 100k && ./sum data/m2
exact  rbd migration execute data/m2 --no-progress && rbd status data/m2
exact  rbd migration commit data/m2 --no-progress && ./sum data/m2 && ./sum data/m2@s && rbd trash ls --all && rbd info data/m2
exact  rbd migration prepare data/m2 m3 && rbd migration abort data/m2 --no-progress && ./sum data/m2 && rbd ls
exact  rbd migration prepare absent m3
exact  rbd snap purge data/m2 --no-progress && rbd rm data/m2 --no-progress
"""

MIRROR = """
exact  rbd mirror pool info rbd
exact  rbd mirror pool enable rbd image && rbd mirror pool info rbd
exact  rbd create i --size 8M && rbd mirror image enable i snapshot && rbd info i
exact  rbd mirror image snapshot i
exact  rbd mirror pool status rbd
exact  rbd mirror image disable i && rbd mirror pool disable rbd && rbd mirror pool info rbd
"""

JOURNALING = """
code   rbd create j --size 5M --image-feature exclusive-lock,journaling
code   rbd journal info --image j
code   rbd create k --size 8M && ./at k 0 4k && ./sum k
code   rbd feature enable k journaling
exact  ./at k 4096 4k && ./sum k
code   rbd feature disable k journaling
code   rbd rm --no-progress j
exact  rbd rm --no-progress k; rbd ls
"""

# What needs a manager: without one the client waits for it.
MANAGER = """
code   timeout 3 rbd trash purge schedule ls
"""

LEFT = """
exact  for i in $(rbd ls); do rbd snap purge --no-progress $i; rbd rm --no-progress $i; done; rbd ls
exact  rados -p rbd ls | sort
exact  rados -p data ls | sort
exact  rbd pool stats
"""

TABLES = {"pool": POOL, "create": CREATE, "data": DATA, "snaps": SNAPS, "clones": CLONES, "trash": TRASH, "metadata": METADATA,
          "namespaces": NAMESPACES, "groups": GROUPS, "migration": MIGRATION, "mirror": MIRROR, "journaling": JOURNALING,
          "manager": MANAGER, "left": LEFT}

if __name__ == "__main__":
    import compare

    compare.main(sys.modules[__name__])
