"""The stock commands that must work, and how their replies are compared.

Each step is one shell command line, run in a scratch directory with CEPH_CONF
set.  How its output is compared between two clusters:

  exact   the same text, after the masks below
  json    the same keys and types, at every depth; values may differ
  lines   the same lines in any order, after the masks
  words   the same text with every number masked: tables of usage and rates
  code    the exit code only (output is free text, or depends on time)
  wait    not at all: it is repeated until it succeeds, for what takes a while

The exit code is always compared.  A step may be named in EXPECTED with the
reason why Loligo differs; `docs/compatibility.md` carries the same rows.
"""
import re

GOLDEN = "golden-16.2.15.json"
ENV = {}

# (pattern, replacement), applied to every text that is compared.
MASKS = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:?\d\d|Z)?", "TIME"),
    (r"\b[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}", "TIME"),
    (r"\[?v[12]:127\.0\.0\.1:\d+/\d+(,v1:127\.0\.0\.1:\d+/\d+\])?", "ADDR"),
    (r"127\.0\.0\.1:\d+/\d+", "ADDR"),
    (r"\bepoch \d+", "epoch N"),
    (r"\be\d+\b", "eN"),
    (r"(client|mgr)\.\d+", r"\1.N"),
    (r"\b(hdd|ssd)\b", "CLASS"),
    (r",creating\b", ""),
    # Ids of images, of groups and of their snapshots: two numbers of the client that made them.
    (r"\b(rbd_data|journal_data)\.\d+\.(?=[0-9a-f]{10,})", r"\1.POOL."),
    (r"\b((?:rbd_(?:data|header|object_map)|journal|journal_data)\.(?:POOL\.)?|id[\": =]+|journal[\": ']+)[0-9a-f]{10,}", r"\1ID"),
    (r"^[0-9a-f]{10,16}(?= +\S)|(?<= \()[0-9a-f]{10,16}(?=\))", "ID"),
    (r"\(since [^)]*\)", "(since N)"),
    (r"\b(ceph|loligo) version [^)]*\)( pacific \(stable\))?", "VERSION"),
]

SETUP = [
    # Real Ceph's manager makes this pool on its own; ids must agree.
    "ceph osd pool create device_health_metrics 1 && ceph osd pool application enable device_health_metrics mgr_devicehealth --yes-i-really-mean-it",
    "ceph osd pool set device_health_metrics pg_num_min 1 && ceph osd pool set device_health_metrics pg_num_max 32",
    "ceph osd pool create p 8 8",
    "ceph osd pool set p size 2",
    "ceph osd pool application enable p rados",
    "head -c 10000 /dev/urandom > ten; head -c 4096 /dev/zero > zero; printf hello > hello; printf '' > empty",
]

RADOS = """
exact  rados lspools
exact  rados -p p put hello hello
exact  rados -p p put empty empty
exact  rados -p p put ten ten
exact  rados -p p get hello out && cat out
exact  rados -p p get hello - ; echo
exact  rados -p p get ten out && cmp ten out
exact  rados -p p get absent out
exact  rados -p p stat hello | sed 's/mtime [^,]*,/mtime,/'
exact  rados -p p stat absent
exact  rados -p p append hello hello && rados -p p get hello - ; echo
exact  rados -p p truncate hello 7 && rados -p p get hello - ; echo
exact  rados -p p truncate hello 20 && rados -p p get hello - | od -c
exact  rados -p p create made && rados -p p stat made | sed 's/mtime [^,]*,/mtime,/'
exact  rados -p p create made
exact  rados -p p touch touched && rados -p p stat touched | sed 's/mtime [^,]*,/mtime,/'
lines  rados -p p ls
exact  rados -p p rm touched
exact  rados -p p rm touched
exact  rados -p p cp ten copy && rados -p p get copy out && cmp ten out
exact  rados -p p setxattr ten colour blue
exact  rados -p p setxattr ten taste sweet
exact  rados -p p getxattr ten colour ; echo
lines  rados -p p listxattr ten
exact  rados -p p rmxattr ten taste
lines  rados -p p listxattr ten
exact  rados -p p getxattr ten taste
exact  rados -p p setomapval ten k1 v1 && rados -p p setomapval ten k2 v2
exact  rados -p p getomapval ten k1
exact  rados -p p getomapval ten absent
exact  rados -p p listomapkeys ten
exact  rados -p p listomapvals ten
exact  rados -p p setomapheader ten header
exact  rados -p p getomapheader ten
exact  rados -p p rmomapkey ten k1 && rados -p p listomapkeys ten
exact  rados -p p clearomap ten && rados -p p listomapkeys ten
exact  rados -p p -N space put spaced hello && rados -p p -N space ls
lines  rados -p p --all ls | sort
exact  rados -p p --object-locator anchor put placed hello && rados -p p --object-locator anchor get placed - ; echo
lines  rados -p p ls | sort
exact  rados -p p get placed out
exact  rados -p p put big ten --offset 100000 && rados -p p stat big | sed 's/mtime [^,]*,/mtime,/'
exact  rados -p p listwatchers hello
words  rados df
json   rados df -f json
json   rados -p p ls -f json
code   rados bench -p p 2 write -b 4096 -t 16 --no-cleanup --run-name small
code   rados bench -p p 1 seq -t 16 --run-name small
code   rados bench -p p 1 rand -t 16 --run-name small
code   rados -p p cleanup --run-name small
code   rados bench -p p 2 write -b 4194304 -t 8 --no-cleanup --run-name large
code   rados bench -p p 1 seq -t 8 --run-name large
code   rados bench -p p 1 rand -t 8 --run-name large
code   rados -p p cleanup --run-name large
code   rados -p p export dump
exact  ceph osd pool create q 8 && rados -p q import dump | sort && rados -p q get ten out && cmp ten out
lines  rados -p q --all ls | sort
exact  rados -p nosuchpool ls
exact  rados -p p put $(printf 'n%.0s' $(seq 2049)) hello 2>&1 | tail -c 60
"""

CEPH = """
code   ceph -s
json   ceph -s -f json
code   ceph status
json   ceph status -f json-pretty
code   ceph health detail
json   ceph health detail -f json
words  ceph df
json   ceph df -f json
words  ceph df detail
json   ceph df detail -f json
words  ceph osd tree
json   ceph osd tree -f json
exact  ceph osd ls
json   ceph osd ls -f json
words  ceph osd stat
json   ceph osd stat -f json
words  ceph osd dump | grep -v -e require_min -e crush_version -e stretch
json   ceph osd dump -f json
words  ceph osd df | sed 's/  */ /g'
json   ceph osd df -f json
json   ceph osd df tree -f json
code   ceph osd getmap -o om && osdmaptool om --print > /dev/null
code   ceph osd getcrushmap -o cm && crushtool -d cm -o cm.txt
words  ceph osd map p hello
json   ceph osd map p hello -f json
exact  ceph osd pool create r 16
exact  ceph osd pool create r 16
exact  ceph osd pool create 2>&1 | sed -n 1p
words  ceph osd pool ls detail
json   ceph osd pool ls detail -f json
exact  ceph osd pool ls
exact  ceph osd pool get r size
exact  ceph osd pool get r pg_num
json   ceph osd pool get r all -f json
exact  ceph osd pool set r min_size 1
exact  ceph osd pool set r size 2
exact  ceph osd pool set r nosuchvar 2 2>&1 | sed -n 1p
exact  ceph osd pool get r nosuchvar 2>&1 | sed -n 1p
exact  ceph osd pool rename r renamed && ceph osd pool ls
exact  ceph osd pool set-quota renamed max_objects 100
exact  ceph osd pool set-quota renamed max_bytes 1G
exact  ceph osd pool get-quota renamed
json   ceph osd pool get-quota renamed -f json
exact  ceph osd pool application enable renamed rbd
json   ceph osd pool application get renamed -f json
exact  ceph osd pool rm renamed
exact  ceph osd pool rm renamed renamed --yes-i-really-really-mean-it
exact  ceph osd pool rm absent absent --yes-i-really-really-mean-it
exact  ceph osd lspools
json   ceph osd lspools -f json
words  ceph osd out 2 && ceph osd stat
exact  ceph osd out 2
exact  ceph osd in 2
exact  ceph osd in 2
exact  ceph osd set noout && ceph osd unset noout
exact  ceph osd set nosuchflag 2>&1 | sed -n 1p
exact  ceph osd reweight 1 0.5 && ceph osd reweight 1 1
exact  ceph osd crush rule ls
json   ceph osd crush rule ls -f json
json   ceph osd crush rule dump -f json
exact  ceph osd crush rule create-replicated mine default osd && ceph osd crush rule ls
exact  ceph osd crush rule rm mine
code   ceph pg stat
json   ceph pg stat -f json
json   ceph pg dump -f json
code   ceph pg dump
json   ceph pg ls -f json
code   ceph pg ls
json   ceph pg ls-by-pool p -f json
json   ceph pg dump_stuck -f json
words  ceph pg map 2.0
words  ceph mon dump
json   ceph mon dump -f json
words  ceph mon stat
json   ceph mon stat -f json
json   ceph quorum_status -f json
json   ceph versions -f json
exact  ceph fsid
json   ceph fsid -f json
exact  ceph config set osd osd_max_backfills 2 && ceph config get osd osd_max_backfills
json   ceph config dump -f json
exact  ceph config rm osd osd_max_backfills
exact  ceph config set global nosuchoption 1
exact  ceph config-key set a/b value && ceph config-key get a/b && ceph config-key rm a/b
code   ceph log last 5
json   ceph log last 5 -f json
code   ceph tell osd.0 version
json   ceph tell osd.0 version -f json
json   ceph tell osd.0 dump_mempools -f json | python3 -c "import json,sys; m=json.load(sys.stdin)['mempool']; m['by_pool']={p: m['by_pool'][p] for p in ('bluestore_cache_data','bluestore_cache_onode','bluestore_cache_meta','bluestore_writing','buffer_anon','osd_pglog')}; print(json.dumps(m))"
json   ceph osd metadata 0 -f json
json   ceph osd find 0 -f json
json   ceph osd perf -f json
wait   ceph osd pool stats -f json | (! grep recovered)
json   ceph osd pool stats -f json
json   ceph osd blocklist ls -f json
json   ceph node ls -f json
json   ceph features -f json
json   ceph mgr dump -f json
json   ceph mgr stat -f json
json   ceph mgr services -f json
json   ceph time-sync-status -f json
json   ceph osd crush dump -f json
json   ceph osd crush tree -f json
json   ceph osd crush class ls -f json
json   ceph osd erasure-code-profile ls -f json
code   ceph nosuchcommand
words  ceph osd down 0 && sleep 3 && ceph osd stat
"""


TABLES = {"rados": RADOS, "ceph": CEPH}


def parse(table):
    for line in table.strip().splitlines():
        mode, command = line.split(None, 1)
        yield mode, command.strip()


def mask(text, words=False):
    for pattern, replacement in MASKS:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    if words:
        text = re.sub(r"\d+(\.\d+)?", "N", text)
        text = re.sub(r"\b([KMGT]i?B|B)\b", "B", text)
        text = re.sub(r"[ \t]+", " ", text)
        text = re.sub(r"-{2,}", "--", text)
    return text
