#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psd under load: its memory, many calls that wait, clients that do not read, SIGTERM in the middle. PS_LOAD_LONG=1:
# as long as the promises say, with their throughput; otherwise a few seconds each.
. "$top_srcdir/tests/it/lib.sh" || exit 1
load=$top_builddir/tests/it/load
long=${PS_LOAD_LONG:-}

of_status() { sed -n "s/^$1:[[:space:]]*\([0-9]*\).*/\1/p" /proc/"$psd_pid"/status; } # kB, or a number
# Wake-ups of a task of psd's: all of its threads', or those of one thread.
wakeups() { cat /proc/"$psd_pid"/task/${1:-*}/status 2>/dev/null | awk '/^voluntary/ { n += $2 } END { print n }'; }
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
is_at_most() { awk -v a="${1:-nan}" -v b="$2" 'BEGIN { print a, "<=", b; exit !(a + 0 <= b + 0) }'; }

# background OUTPUT ARGUMENT ...: load, until it says the first line. Its pid in $load_pid.
background() {
    local out=$1
    shift
    "$load" "$@" <"$scratch/go" >"$out" 2>"$out.err" &
    load_pid=$!
    until [ -s "$out" ]; do
        kill -0 "$load_pid" 2>/dev/null || return 1
        sleep 0.1
    done
}
mkfifo "$scratch/go"
exec 4<>"$scratch/go" # so that opening it does not wait

# ---- calls that wait -------------------------------------------------------------------------------------------

parked=10000
start_psd parked --memory 4G --dead-after-ms 3600000 || exit 1
ok "a sync job of two workers" "$load" "unix:$scratch/parked" declare sync
threads=$(of_status Threads) resident=$(of_status VmRSS)
ok "$parked pulls of a client wait for its round" background "$scratch/killed" "unix:$scratch/parked" park $parked
kill -KILL "$load_pid"
none_waits() { [ "$("$load" "unix:$scratch/parked" waiting)" = "waiting 0" ]; }
ok "it is killed, and none of them waits any more" eventually none_waits
ok "$parked pulls wait for its round" background "$scratch/park" "unix:$scratch/parked" park $parked
ok "all of them are counted" grep -x "waiting $parked" "$scratch/park"
ok "they take no threads" is_at_most "$(of_status Threads)" $((threads + 16)) # the gRPC core's, whatever the load
# The main thread wakes for psd's tick and nothing else: it is the clock. The others have some for keepalive pings.
has_ticked() { [ "$(wakeups "$psd_pid")" -ge $((main + 60)) ]; }
wakes_nobody() {
    local before main
    before=$(wakeups) main=$(wakeups "$psd_pid")
    eventually has_ticked
    is_at_most $(($(wakeups) - before)) $((10 * ($(wakeups "$psd_pid") - main)))
}
# Where the machine has stood still for seconds, connections have ended, and each call has come again.
ok "a call that waits wakes nobody" eval 'wakes_nobody || wakes_nobody'
[ "$SANITIZERS" = no ] && ok "and less than 64 MiB" is_at_most $(($(of_status VmRSS) - resident)) 65536
echo >&4
ok "the round closes" wait "$load_pid"
ok "and each is answered" grep -qx "answered $parked refused 0" "$scratch/park"
kill -KILL "$psd_pid"

# ---- memory ----------------------------------------------------------------------------------------------------

# Pushing clients alone, and beside clients that ask for everything and read nothing, one of them stopped, and one that
# pushes and never takes an answer.
memory_mib=512 clients=64 rounds=1 seconds=2 deaf_seconds=1
[ "$long" ] && rounds=5 seconds=10 deaf_seconds=20
[ "$SANITIZERS" = no ] || clients=16
start_psd memory --memory ${memory_mib}M --dead-after-ms 3600000 || exit 1
ok "an async job" "$load" "unix:$scratch/memory" declare
for kib in 1024 4096; do
    lost=0
    for _ in $(seq $rounds); do
        "$load" "unix:$scratch/memory" push $clients $kib $seconds >>"$scratch/alone.$kib"
        deaf=()
        for what in "40 0" "40 0" "0 4096"; do
            # shellcheck disable=SC2086
            background "$scratch/deaf" "unix:$scratch/memory" deaf $what
            deaf+=("$load_pid")
            : >"$scratch/deaf"
        done
        kill -STOP "${deaf[0]}"
        "$load" "unix:$scratch/memory" push $clients $kib $((seconds + deaf_seconds)) >>"$scratch/beside.$kib" || lost=1
        kill -KILL "${deaf[@]}"
        wait "${deaf[@]}" 2>/dev/null
    done
    a=$(median <"$scratch/alone.$kib") b=$(median <"$scratch/beside.$kib")
    echo "# $clients clients pushing $kib KiB: $a MB/s alone, $b MB/s beside deaf ones; resident $(of_status VmHWM) kB at most"
    ok "$kib KiB: pushes go on beside clients that do not read" grep -qE " [1-9][0-9]* taken" "$scratch/beside.$kib"
    # A client that is silent for a second, be it for want of a CPU, is not reckoned with: what it sends then may be refused.
    ok "$kib KiB: and each is taken, if not at once" [ $lost = 0 ]
    [ "$long" ] && ok "$kib KiB: none is refused" grep -c ", 0 refused" "$scratch/beside.$kib"
    [ "$long" ] && ok "$kib KiB: at 90 % of the rate" at_least "$b" $((a * 9 / 10))
done
[ "$SANITIZERS" = no ] &&
    ok "resident memory stays within its limit and 10 %" is_at_most "$(of_status VmHWM)" $((memory_mib * 1024 * 11 / 10))
kill -KILL "$psd_pid"

# ---- SIGTERM ---------------------------------------------------------------------------------------------------

start_psd term --memory 4G --dead-after-ms 3600000 || exit 1
echo "ps: [\"unix:$scratch/term\"]" >"$scratch/cluster.yaml"
ok "a sync job beside the one that is watched" "$load" "unix:$scratch/term" declare sync
ok "$parked calls wait" background "$scratch/park2" "unix:$scratch/term" park $parked
ok "a client that does not read" background "$scratch/deaf2" "unix:$scratch/term" deaf 400 0
background "$scratch/deaf3" "unix:$scratch/term" deaf 400 0 && kill -STOP "$load_pid"
ok "16 clients push" background "$scratch/count" "$scratch/cluster.yaml" count
count_pid=$load_pid
counted() { "$psctl" --timeout 60 --ps "unix:$scratch/term" --json jobs count | grep -qE '"requests": *[0-9]{4}'; }
eventually counted
sleep $((long ? 10 : 1))
before=$(date +%s%N)
term_pid=$psd_pid
kill -TERM "$term_pid"
has_ended() { ! grep -q "^State:[[:space:]]*[^Z]" "/proc/$term_pid/status" 2>/dev/null; }
ok "SIGTERM ends it, whoever does not read" eventually has_ended
took=$((($(date +%s%N) - before) / 1000000))
echo "# after $took ms"
[ "$long" ] && ok "within the 25 s that are promised" is_at_most $took 25000
has_ended || kill -KILL "$term_pid"
ok "SIGTERM: exit 0" wait "$term_pid"
ok "nothing acknowledged was missing, to the end" wait "$count_pid"
cat "$scratch/count.err"
sed -n 's/^looked/# looked/p' "$scratch/count"
acknowledged() { sed -n 's/^looked .* acknowledged //p' "$scratch/count"; }
ok "something was acknowledged" at_least "$(acknowledged)" 100
