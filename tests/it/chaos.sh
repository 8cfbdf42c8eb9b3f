#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three psd behind proxies, six workers, and faults at random (chaos.c). PS_CHAOS_LONG=1: as many as are promised.
. "$top_srcdir/tests/it/lib.sh" || exit 1
dead_after=3000
faults=(--kills 8 --stops 3 --cuts 8 --seconds 8)
[ "${PS_CHAOS_LONG:-}" ] && faults=(--kills 200 --stops 50 --cuts 200 --seconds 240)

peers=unix:$scratch/p0.proxy,unix:$scratch/p1.proxy,unix:$scratch/p2.proxy
tasks=()
for i in 0 1 2; do
    start_psd "p$i" --task "$i" --peers "$peers" --heartbeat-ms 200 --dead-after-ms "$dead_after" || exit 1
    tasks+=("$psd_pid:$scratch/p$i")
done

chaos() {
    "$top_builddir/tests/it/chaos" run "${faults[@]}" --seed "${PS_CHAOS_SEED:-1}" --dead-after-ms "$dead_after" \
        "${tasks[@]}" >"$scratch/figures" 2>"$scratch/chaos.err"
    local rc=$?
    tail -n 25 "$scratch/chaos.err"
    return $rc
}
ok "${faults[*]}: nothing acknowledged is lost, nothing applied twice" chaos
sed 's/^/# /' "$scratch/figures"

# One was killed at the very end, the others left. What took long to leave ("late" in the figures) may count as dead, too:
# the control task may not have heard that it leaves.
as_they_should() {
    timeout 600 "$psctl" --timeout 60 --ps "unix:$scratch/p0" workers chaos | tee "$scratch/workers"
    awk '$1 == "late:" { late[$2] = 1 }
         FILENAME == ARGV[2] && $1 ~ /^[0-9]+$/ {
             n++
             bad += $2 != ($1 == 5 ? "dead" : "left") && !($2 == "dead" && $1 in late)
         }
         END { exit n != 6 || bad }' "$scratch/figures" "$scratch/workers"
}
# The silence of the one that was killed takes a while to count.
ok "who was killed last is dead, all others have left" eventually as_they_should
