# SPDX-License-Identifier: Apache-2.0
# What the tests of real daemons share. TAP on stdout, everything else on stderr; a scratch folder that goes away.
set -u
# nohup make check &: what a shell has ignored from the start it cannot let its children hear.
[ -z "$(trap -p HUP)" ] || exec env --default-signal=HUP "$BASH" "$0" "$@"
psctl=$top_builddir/tools/psctl/psctl
psd=$top_builddir/psd/psd
workerd=$top_builddir/workerd/workerd
examples=$top_srcdir/deploy/examples
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ps-it.XXXXXX")
n=0

# What counts as death: longer than a busy machine may stop a process that is well.
dead_after_ms=10000
# So it is for the psd that psctl run and psbench start.
printf '#!/bin/sh\nexec "%s" --dead-after-ms %s "$@"\n' "$psd" $dead_after_ms >"$scratch/patient-psd"
chmod +x "$scratch/patient-psd"
export PSD=$scratch/patient-psd

# What still runs is asked of the shell: the number of one that has ended may be another process's by now. A child that
# a signal ends before it has begun its command would run the trap too.
finish() {
    local pid
    [ "$BASHPID" = $$ ] || return
    for pid in $(jobs -pr); do kill -KILL "$pid" 2>/dev/null; done
    rm -rf "$scratch"
    echo "1..$n"
}
trap finish EXIT

# ok DESCRIPTION COMMAND ...: a test point. What COMMAND says is shown where it fails.
ok() {
    local what=$1
    shift
    n=$((n + 1))
    if "$@" >"$scratch/out" 2>&1; then
        echo "ok $n - $what"
    else
        echo "not ok $n - $what"
        echo "# failed: $*"
        sed 's/^/# /' "$scratch/out" | tail -n 30
    fi
}

# skip DESCRIPTION WHY: a test point that cannot be looked at here.
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

# fails_with CODE TEXT COMMAND ...: exits with CODE and says TEXT.
fails_with() {
    local code=$1 text=$2 got=0
    shift 2
    "$@" >"$scratch/said" 2>&1 || got=$?
    cat "$scratch/said"
    echo "exit $got, expected $code"
    [ "$got" = "$code" ] && grep -qF -- "$text" "$scratch/said"
}

# says TEXT COMMAND ...: however it ends.
says() {
    local text=$1
    shift
    "$@" >said 2>&1
    cat said
    grep -qF -- "$text" said
}

# eventually COMMAND ...: succeeds within two minutes, which is long enough for any machine.
eventually() {
    local end=$((SECONDS + 120))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# twice COMMAND ...: succeeds, the second time where other programs took the CPUs meanwhile.
twice() { "$@" || "$@"; }

# have_stepped N: so many workers live and have ended a step, as psctl workers says on standard input.
have_stepped() { awk -v all="$1" '$2 == "live" && $3 > 0 { n++ } END { exit n < all }'; }

# pause PID SECONDS: the process stands still. A busy machine may stop it for longer: for how long is in $paused_ms.
pause() {
    local from=${EPOCHREALTIME/[.,]/}
    kill -STOP "$1"
    sleep "$2"
    kill -CONT "$1"
    paused_ms=$(((${EPOCHREALTIME/[.,]/} - from) / 1000))
}

# free_ports N: ports that nobody listens on, of those that the kernel gives to nobody by itself: what else runs on this
# machine does not come upon them until they are taken.
free_ports() {
    local python=${PYTHON3:-no}
    [ "$python" != no ] || python=python3
    "$python" - "$1" <<'PY'
import random, socket, sys
taken = []
while len(taken) < int(sys.argv[1]):
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", random.randrange(20000, 32000)))
    except OSError:
        continue
    taken.append(s)
    print(s.getsockname()[1])
PY
}

# value SUMMARY KEY: a number of a summary.
value() { sed -nE "s/.*\"$2\": *([-0-9.e]+).*/\1/p" "$1" | head -n 1; }

# at_least A B
at_least() { awk -v a="${1:-nan}" -v b="$2" 'BEGIN { print a, ">=", b; exit !(a + 0 >= b + 0) }'; }

# start_psd NAME OPTION ...: a psd on unix:$scratch/NAME, its pid in $psd_pid, serving when this returns.
start_psd() {
    local name=$1 ready
    shift
    mkfifo "$scratch/$name.ready"
    "$psd" --listen "unix:$scratch/$name" --ready-fd 3 --dead-after-ms $dead_after_ms "$@" 3>"$scratch/$name.ready" 2>"$scratch/$name.log" &
    psd_pid=$!
    read -r ready <"$scratch/$name.ready"
    case $ready in READY*) ;; *) echo "# psd $name: $(cat "$scratch/$name.log")"; return 1 ;; esac
}

# loopback_alone PID: every TCP socket that it listens on is loopback's. Its host and port in hexadecimal are shown.
loopback_alone() {
    local inode tables=("/proc/$1/net/tcp")
    [ ! -e "/proc/$1/net/tcp6" ] || tables+=("/proc/$1/net/tcp6")
    for inode in $(readlink "/proc/$1"/fd/* 2>/dev/null | sed -n 's/^socket:\[\(.*\)\]$/\1/p'); do
        # State 0A: listening. 7F: 127.0.0.0/8, the address being little-endian; as IPv6 in a dual-stack socket.
        awk -v i="$inode" '$4 == "0A" && $10 == i { print $2; split($2, a, ":")
            if (a[1] !~ /^(0000000000000000FFFF0000)?......7F$/ && a[1] != "00000000000000000000000001000000") exit 1 }' \
            "${tables[@]}" || return 1
    done
}

# A quick job: few synthetic digits, the softmax model.
quick=(--set data.train_examples=1280 --set data.test_examples=256 --set epochs=2)

# What psctl tells programs of a job, and whether it was as expected at the last look: an expression over w, its workers
# by rank, get, for what is said of the job, and clocks. ctl is the script's: psctl, with the cluster.
look() { ctl --json jobs "$1" >j.json 2>&1 && ctl --json workers "$1" >w.json 2>&1; } # JOB
was() { # EXPRESSION
    "$PYTHON3" - "$1" <<'PY'
import json, sys
def find(x, key):
    if isinstance(x, dict):
        if key in x: return x[key]
        x = list(x.values())
    for y in x if isinstance(x, list) else []:
        got = find(y, key)
        if got is not None: return got
j, w = json.load(open("j.json")), {m["worker"]: m for m in json.load(open("w.json"))}
get = lambda key: find(j, key)
clocks = [m["clock"] for m in w.values() if m["clock"] is not None]
sys.exit(0 if eval(sys.argv[1]) else 1)
PY
}
holds() { look "$1" && was "$2"; } # JOB EXPRESSION
becomes() { # JOB EXPRESSION: soon
    eventually holds "$@" || { cat j.json w.json; return 1; }
}
