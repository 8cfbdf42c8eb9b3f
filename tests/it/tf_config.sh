#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A cluster that nothing but TF_CONFIG describes: two psd, a chief and a worker; and who is refused.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
job=(--job "$examples/softmax/async.yaml" "${quick[@]}" --set strategy.name=parameter_server --set strategy.update=sync)

# with TF_CONFIG COMMAND ...
with() { TF_CONFIG=$1 "${@:2}"; }
# task TYPE INDEX: that task's TF_CONFIG.
task() {
    echo '{"cluster": {"ps": ["unix:'"$scratch"'/ps0", "unix:'"$scratch"'/ps1"], "chief": ["a:1"], "worker": ["b:1"]},' \
        '"task": {"type": "'"$1"'", "index": '"$2"'}, "rpc_layer": "grpc"}'
}
nobody='{"cluster": {"ps": ["a:1"]}}'
public='{"cluster": {"ps": ["0.0.0.0:1"]}, "task": {"type": "ps", "index": 0}}'

ok "psd is no chief" with "$(task chief 0)" fails_with 78 "task.type must be ps for psd" "$psd"
ok "an index that is not listed" with "$(task ps 2)" fails_with 65 "cluster.ps has 2 addresses" "$psd"
ok "a --task that is not listed" with "$(task ps 0)" fails_with 64 "there are 2 ps tasks" "$psd" --task 2
ok "workerd is no ps" with "$(task ps 0)" fails_with 78 "task.type must be worker" "$workerd" "${job[@]}"
ok "an evaluator has nothing to do" with "$(task evaluator 0)" fails_with 0 "takes no part" "$workerd" "${job[@]}"
ok "psd without a task" with "$nobody" fails_with 78 "task is missing" "$psd"
ok "workerd without a task" with "$nobody" fails_with 78 "task is missing" "$workerd" "${job[@]}"
ok "workerd without anything" with "" fails_with 78 "--cluster FILE, --ps A,B,C or TF_CONFIG" "$workerd" "${job[@]}"
echo 'ps: ["unix:nobody"]' >cluster.yaml
ok "two clusters" with "" fails_with 64 "--ps and --cluster both say" "$workerd" "${job[@]}" --ps unix:nobody --cluster cluster.yaml
alone=("${job[@]}" --set strategy.name=one_device)
ok "one_device has no second worker" with "" fails_with 65 "one worker, of rank 0" "$workerd" "${alone[@]}" --rank 1
ok "nor so many workers" with "" fails_with 65 "one worker, of rank 0" "$workerd" "${alone[@]}" --workers 2
ok "other hosts could connect" with "$public" fails_with 78 "--insecure" "$psd"
ok "not JSON" with "{" fails_with 65 "line 1, column 1" "$psd"

# ready_psd INDEX: a psd that listens where TF_CONFIG says.
ready_psd() {
    local ready
    mkfifo "ready$1"
    TF_CONFIG=$(task ps "$1") "$psd" --dead-after-ms 60000 --ready-fd 3 3>"ready$1" 2>"psd$1.log" &
    read -r ready <"ready$1"
    case $ready in READY*) ;; *) echo "# psd: $(cat "psd$1.log")"; return 1 ;; esac
}
ready_psd 0 && ready_psd 1 || exit 1
TF_CONFIG=$(task worker 0) timeout 600 "$workerd" "${job[@]}" >worker.log 2>&1 &
worker=$!
ok "the chief trains" with "$(task chief 0)" timeout 600 "$workerd" "${job[@]}" --summary summary.json --quiet
ok "the worker trains" wait "$worker"
left() { "$psctl" --timeout 60 --ps "unix:$scratch/ps0,unix:$scratch/ps1" workers softmax | tee workers | grep -c left | grep -qx 2; }
ok "both were in the job" left
ok "the command line comes before TF_CONFIG" eventually with "$(task ps 0)" fails_with 69 "unix:$scratch/nobody" "$workerd" \
    "${job[@]}" --set timeout=1 --ps "unix:$scratch/nobody" --rank 0
