#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psbench: its command line, a short run of each command, what it leaves behind. Counts, never speed.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
psbench=$top_builddir/tools/psbench/psbench
export XDG_RUNTIME_DIR=$scratch
short=(--seconds 0.05 --repeat 1)

# ---- the command line ---------------------------------------------------------------------------------------------

fits() { # a screen of 80 x 24
    "$psbench" --help >help.out || return 1
    awk 'length($0) > 80 { print; bad = 1 } END { if (NR > 24) { print NR; bad = 1 } exit bad }' help.out
}
ok "help fits a screen" fits
ok "version" fails_with 0 "psbench " "$psbench" --version
ok "no command" fails_with 64 "psbench --help lists them" "$psbench"
ok "unknown command" fails_with 64 "did you mean pushpull?" "$psbench" pushpul
ok "unknown option" fails_with 64 "did you mean --window?" "$psbench" push --windw 8
ok "unknown rule" fails_with 64 "unknown rule lamb" "$psbench" push --rule lamb
ok "unknown transport" fails_with 64 "unknown transport rdma" "$psbench" push --transport tcp,rdma
for size in 0 3 6 1T 1Mi x -4 8G; do
    ok "size $size" fails_with 64 "--size is $size" "$psbench" push --size "$size"
done
ok "no size" fails_with 64 "--size is empty" "$psbench" push --size ""
ok "seconds" fails_with 64 "--seconds is 0" "$psbench" push --seconds 0
ok "workers" fails_with 64 "--workers is 0" "$psbench" push --workers 1,0
ok "one worker" fails_with 64 "--workers is 1, expected 2 to 64 for allreduce" "$psbench" allreduce --workers 2,1
for host in localhost 127.0.0.1:80 ::1 ''; do
    ok "host '$host'" fails_with 64 "--host is $host, expected an IPv4 address" "$psbench" push "${short[@]}" --size 4K --host "$host"
done
ok "window" fails_with 64 "--window is 0" "$psbench" push --window 0
ok "a limit without limits" fails_with 64 "does not go with limit" "$psbench" limit --no-limit
ok "no psd" fails_with 66 "which is no program" env PSD=/dev/null "$psbench" push "${short[@]}"

# ---- short runs ---------------------------------------------------------------------------------------------------

# measures SIZE KEY=VALUE,... OPTION ...: one object with everything that scripts are promised, and these values. In so
# short a time a process may have had no CPU: then it is measured again.
measures() {
    local got=3 end=$((SECONDS + 120))
    while [ $got = 3 ] && [ $SECONDS -lt $end ]; do
        measured "$@"
        got=$?
    done
    return $got
}
measured() {
    local size=$1 expected=$2
    shift 2
    "$psbench" "$@" --size "$size" "${short[@]}" --json >one.json || return 1
    cat one.json
    "$PYTHON3" - "$expected" <<'P'
import json, sys
o = json.load(open("one.json"))
for k in "calls_per_s p50_us p99_us p999_us client_rss_bytes server_rss_bytes".split():
    assert o[k] > 0, k
cpu = [o[k] for k in ("client_cpu_s_per_gb", "server_cpu_s_per_gb")]
assert min(cpu) >= 0, cpu
assert o["p50_us"] <= o["p99_us"] <= o["p999_us"]
g = o["gb_per_s"]
assert 0 < g["min"] <= g["median"] <= g["max"]
s = o["worker_share"]
assert 0 < s["min"] <= 1 <= s["max"] <= o["workers"]
assert abs(g["median"] * 1e9 - o["calls_per_s"] * o["size"]) < 1e-3 * g["median"] * 1e9
for pair in sys.argv[1].split(","):
    k, v = pair.split("=")
    assert str(o[k]) == v, (k, o[k])
sys.exit(0 if min(cpu) > 0 else 3)
P
}
# sums TRANSPORT WORKERS SIZE LIMIT: an all-reduce, and the ring of sockets beside it where there is one.
sums() {
    "$psbench" allreduce --transport "$1" --workers "$2" --size "$3" "${short[@]}" --json >sums.json || return 1
    cat sums.json
    "$PYTHON3" - "$@" <<'P'
import json, sys
transport, workers, size, limit = sys.argv[1:]
o = json.load(open("sums.json"))
assert (o["transport"], o["workers"], o["size"]) == (transport, int(workers), int(size)), o
assert o["calls_per_s"] > 0 and o["gb_per_s"]["median"] > 0
assert (o["limit_fraction"] or 0) > 0 if limit == "limit" else o["limit_fraction"] is None
P
}
fraction() {
    measures 64K repeat=1 push || return 1
    "$PYTHON3" -c 'import json; o = json.load(open("one.json")); assert 0 < o["limit_fraction"] and o["limit_gb_per_s"]["median"] > 0'
}
several() {
    "$psbench" push,pull limit --size 4,1M "${short[@]}" --json --plot plot.svg >all.json || return 1
    "$PYTHON3" - <<'P'
import json, xml.dom.minidom
all = json.load(open("all.json"))
got = sorted((o["target"], o["command"], o["size"], o["rule"]) for o in all)
sizes = [4, 1 << 20]
want = [("psd", c, s, "sgd") for c in ("push", "pull") for s in sizes]
want += [("socket", c, s, "noop" if c == "pull" else "sgd") for c in ("push", "pull", "pushpull") for s in sizes]
want += [("memory", "memcpy", s, "noop") for s in sizes]
want += [("memory", "apply", s, r) for r in ("noop", "sgd", "adam") for s in sizes]
assert got == sorted(want), got
assert all and len([o for o in all if o["limit_fraction"] is None]) == len(all) - 4
text = xml.dom.minidom.parse("plot.svg").toxml()
assert text.count("<polyline") == 2 + 3 + 4, text.count("<polyline")
P
}
table() {
    "$psbench" pushpull --size 4K "${short[@]}" >table.out || return 1
    cat table.out
    grep -q '^pushpull *4.0 KiB *64 *1  tcp   sgd ' table.out
}

if [ "$PYTHON3" != no ]; then
    ok "push" measures 1K command=push,target=psd,size=1024,window=64,workers=1,ps=1,transport=tcp,rule=sgd,limit_fraction=None push --no-limit
    ok "pull over unix sockets" measures 4 command=pull,size=4,transport=unix pull --transport unix --no-limit
    ok "pushpull with adam" measures 1M command=pushpull,window=3,rule=adam pushpull --rule adam --window 3 --no-limit
    ok "assign_add" measures 64K command=assign_add,rule=noop assign_add --no-limit
    ok "several workers and ps tasks" measures 2M workers=3,ps=2 push --workers 3 --ps 2 --rule noop --no-limit
    ok "more ps tasks than elements" measures 4 workers=2,ps=2 push --workers 2 --ps 2 --no-limit
    ok "a large variable" measures 64M window=2 push --no-limit
    ok "a fraction of the socket's" fraction
    ok "several cases, limits, a plot" several
fi
ok "a table" table
ok "a plot that cannot be written" fails_with 73 "no/plot.svg" "$psbench" push --size 4 --no-limit --plot "$scratch/no/plot.svg" "${short[@]}"
ok "a full disk" fails_with 74 "cannot write standard output" sh -c "'$psbench' push --size 4 --no-limit ${short[*]} >/dev/full"

# A peer that claims fixed figures, after a first attempt that fails.
peers() {
    printf '#!/bin/sh\n[ -e tried ] || { touch tried; exit 1; }\necho "{\\"gb_per_s\\": 1e-9, \\"asked\\": \\"$*\\"}"\n' >peer && chmod +x peer
    "$PYTHON3" "$top_srcdir/tests/bench/peers.py" --psbench "$psbench" --peer 'it=./peer {command} {size} {window} {seconds}' \
        --commands push,pull --sizes 4,64K --seconds 0.05 --repeat 2 --json peers.json || return 1
    "$PYTHON3" - <<'P'
import json
all = json.load(open("peers.json"))
assert [(r["command"], r["size"]) for r in all] == [(c, s) for c in ("push", "pull") for s in (4, 65536)]
for r in all:
    p = r["programs"]
    assert set(p) == {"psbench", "socket", "it"}
    assert p["it"]["gb_per_s"]["median"] == 1e-9 and p["it"]["cpu_s_per_gb"] is None
    ratio = p["it"]["ratio"]
    assert ratio["min"] <= ratio["median"] <= ratio["max"]
    assert abs(ratio["max"] * 1e-9 - p["psbench"]["gb_per_s"]["max"]) < 1e-12 and p["socket"]["ratio"]["min"] > 0
P
}
[ "$PYTHON3" = no ] || ok "beside a peer" peers

# ---- the end ------------------------------------------------------------------------------------------------------

# A psd that says its pid, so that others on this machine are not taken for ours.
printf '#!/bin/sh\necho $$ >>"%s/psd.pids"\nexec "%s" "$@"\n' "$scratch" "$psd" >noted_psd && chmod +x noted_psd
is_gone() { ! grep -q "^State:[[:space:]]*[^Z]" "/proc/$1/status" 2>/dev/null; } # PID; whom nobody waits for stays a zombie
two_noted() { [ "$(wc -l <psd.pids 2>/dev/null || echo 0)" -ge 2 ]; }
no_psd_left() {
    local pid
    [ -s psd.pids ] || return 1
    while read -r pid; do eventually is_gone "$pid" || return 1; done <psd.pids
}
signalled() { # SIGNAL: in the middle of a run
    local pid code=0
    rm -f psd.pids
    PSD=$scratch/noted_psd "$psbench" push --size 4 --ps 2 --seconds 60 --repeat 1 &
    pid=$!
    eventually two_noted || return 1
    kill -s "$1" "$pid"
    wait "$pid" || code=$?
    echo "exit code $code"
    [ "$code" -gt 128 ] && no_psd_left
}
ends_clean() {
    rm -f psd.pids
    PSD=$scratch/noted_psd "$psbench" push --size 4 --ps 2 --no-limit "${short[@]}" || return 1
    no_psd_left && ! ls -d psctl-* 2>/dev/null
}
ok "the end: no psd, no socket is left" ends_clean
ok "SIGTERM: neither" signalled TERM
ok "SIGKILL: no psd" signalled KILL
refuses() {
    printf '#!/bin/sh\nexit 3\n' >bad_psd && chmod +x bad_psd
    fails_with 69 "ended before it served" env PSD="$scratch/bad_psd" "$psbench" push --size 4 "${short[@]}"
}
ok "a psd that does not start" refuses
ok "an all-reduce of two" sums tcp 2 65536 limit
ok "of three, of a size that they do not divide" sums unix 3 4100 limit
ok "of fewer numbers than workers" sums unix 3 4 limit
ok "in shared memory" sums shm 2 65536 none
