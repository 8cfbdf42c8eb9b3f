#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Eleven broken clusters. Of each psctl doctor says in one line what is wrong and what to do, within 5 s, and ends with the
# code of that, for people and for Nagios. What a daemon alone knows, it says as it ends.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
[ -n "${PYTHON3:-}" ] && [ "$PYTHON3" != no ] || PYTHON3=
export CUDA_VISIBLE_DEVICES=  # case 8: here is none

# An instrumented psctl takes its own time.
within_ms=5000 tries=2
[ "${SANITIZERS:-no}" = no ] || within_ms=60000 tries=4

asked() { # CODE CAUSE REMEDY COMMAND ...: one line has both, the exit code is CODE, and it took at most 5 s
    local code=$1 cause=$2 remedy=$3 got began took try
    shift 3
    for ((try = 0; try < tries; try++)); do # again, where other programs took the CPUs: psd, too, has 3 s to answer
        got=0 began=${EPOCHREALTIME/./}
        "$@" >said 2>&1 || got=$?
        took=$(((${EPOCHREALTIME/./} - began) / 1000))
        cat said
        echo "exit $got, expected $code; $took ms; expected a line with '$cause' and '$remedy'"
        [ "$got" = "$code" ] && [ "$took" -le "$within_ms" ] && grep -F -- "$cause" said | grep -qF -- "$remedy" && return
        [ "$took" -gt "$within_ms" ] || grep -qE "no answer|not answer" said || return 1
    done
    return 1
}
ask() { "$psctl" --timeout 60 "$@"; } # where it is not judged how long it takes
only=     # the job that is asked about
finds() { # CODE CAUSE REMEDY ARGUMENT ...: the doctor of the cluster, as people ask it and as Nagios does
    local code=$1 cause=$2 remedy=$3 nagios=2
    shift 3
    [ "$code" != 0 ] || nagios=1
    asked "$code" "$cause" "$remedy" "$psctl" "$@" doctor $only && asked "$nagios" "$cause" "$remedy" "$psctl" "$@" doctor --nagios $only
}
skip() { n=$((n + 1)) && echo "ok $n - $1 # SKIP $2"; }

start_psd well || exit 1
well=unix:$scratch/well
ok "0 a cluster that is well" asked 0 "PARAMSERVER OK - all is well" "" "$psctl" --ps "$well" doctor --nagios
ok "0 nothing can be asked: UNKNOWN" asked 3 "PARAMSERVER UNKNOWN - " "none.yaml" "$psctl" --cluster none.yaml doctor --nagios

wrong_for_nagios() { fails_with 3 "PARAMSERVER UNKNOWN - the command line of psctl doctor is wrong" "$psctl" --ps "$well" doctor --nagios "$@"; }
for words in "--timeout abc" "--bogus" "a b" "--json"; do
    # shellcheck disable=SC2086
    ok "0 a wrong command line: UNKNOWN: $words" wrong_for_nagios $words
done

worker() { # RANK OPTION ...: of a job of two workers that goes on for long
    local rank=$1
    shift
    exec "$workerd" --job "$examples/softmax/async.yaml" --ps "$well" --rank "$rank" --workers 2 --set epochs=100000 --set delay_ms=20 \
        --set data.train_examples=640 --set data.test_examples=64 --set strategy.min_workers=1 --quiet "$@"
}
ended() { # PID ...
    local pid
    kill -KILL "$@" 2>/dev/null
    for pid; do wait "$pid" 2>/dev/null; done
}

# ---- 1 the port is taken ------------------------------------------------------------------------------------------

if [ "$PYTHON3" ]; then
    "$PYTHON3" - >port <<'PY' 2>/dev/null &
import http.server
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
print(s.server_port, flush=True)
s.serve_forever()
PY
    web=$!
    eventually test -s port
    taken=127.0.0.1:$(cat port)
    ok "1 the port is taken: by whom, and what to do" finds 69 "is no gRPC server, it says" "end that program, or correct the address" \
        --ps "$well,$taken"
    ok "1 the psd that was to have it" fails_with 73 "$taken" "$psd" --listen "$taken"
    ended $web
else
    skip "1 the port is taken" "no python3"
fi

# ---- 2 a wrong address --------------------------------------------------------------------------------------------

ok "2 a wrong port: nobody listens" finds 69 "ps:1 (127.0.0.1:1)" "start psd there, or correct the address" --ps "$well,127.0.0.1:1"
ok "2 a wrong name" finds 69 "its name does not resolve" "correct the name" --ps "$well,no-such-host.invalid:7070"
ln -s well twin
ok "2 another cluster's address" finds 78 "it is listed as ps:1" "give every psd, and psctl, the same cluster" --ps "$well,unix:$scratch/twin"

# ---- 3 a clock that is off ----------------------------------------------------------------------------------------

cat >late.c <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *t)
{
    int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int n = real(id, t);
    if (id == CLOCK_REALTIME)
        t->tv_sec -= 100;
    return n;
}
C
if [ "${SANITIZERS:-no}" = no ] && ${CC:-cc} -shared -fPIC -o late.so late.c -ldl 2>late.err; then
    late() {
        LD_PRELOAD=$scratch/late.so start_psd late || return 1
        finds 78 " s behind this machine's" "have NTP set the clocks" --ps "unix:$scratch/late"
    }
    ok "3 a clock is off" late
    ended "$psd_pid"
else
    skip "3 a clock is off" "no compiler, or sanitizers"
fi

# ---- 4, 8, 10 what jobs of the queue meet -------------------------------------------------------------------------

echo "ps: [\"unix:$scratch/q\"]
worker: [a]" >queue.yaml
mkdir full queue
full=
if mount -t tmpfs -o size=3m tmpfs full 2>/dev/null; then
    full=yes
    trap 'umount -l "$scratch/full"; finish' EXIT
    mkdir full/queue full/backups
fi
start_psd q --cluster queue.yaml --queue "$scratch/${full:+full/}queue" || exit 1
queue_psd=$psd_pid
start_agent() { # VARIABLE=VALUE ...
    env "$@" "$workerd" --cluster queue.yaml --rank 0 2>>agent.log &
    agent=$!
}
start_agent
submit() { # NAME OPTION ...
    local name=$1
    shift
    ask --cluster queue.yaml submit --set name="$name" --set output="$name.safetensors" "${quick[@]}" "$@" "$examples/softmax/async.yaml"
}
state_is() { "$psctl" --cluster queue.yaml queue "$1" | tee said | grep -q "$2"; } # JOB STATE
of_the_queue() { # JOB CODE CAUSE REMEDY
    local only=$1
    shift
    finds "$@" --cluster "$scratch/queue.yaml"
}

no_gpu() { # JOB
    submit "$1" --set device=gpu && eventually state_is "$1" failed &&
        of_the_queue "$1" 75 "has failed with exit code 78: device gpu: there is no" "psctl check-build, on that host"
}
ok "8 no GPU: what the worker said, and what to do" no_gpu gpu
no_gpu_for_programs() {
    local found=0
    kill $agent && wait $agent
    start_agent PARAMSERVER_LOG=json
    no_gpu json || found=1
    kill $agent && wait $agent
    start_agent
    return $found
}
ok "8 no GPU, with PARAMSERVER_LOG=json" no_gpu_for_programs
alone_without_gpu() { # outside the queue: the worker says it, the doctor that it has not come
    worker 0 2>first.log & local first=$! found=0
    fails_with 78 "there is no" worker_ends 1 --set device=gpu && eventually finds 0 "worker 1" "its log says why" --ps "$well" || found=1
    ended $first
    return $found
}
worker_ends() { (worker "$@"); }
ok "8 no GPU, without a queue" alone_without_gpu
"$psctl" --ps "$well" stop softmax >/dev/null 2>&1

long=(--set epochs=100000 --set delay_ms=20)
joined() { "$psctl" --cluster "$scratch/queue.yaml" doctor | grep "job eaten .* 1 live worker"; }
killed_worker() { # once the job knows it: one that dies before is started again, and nothing was lost
    submit eaten "${long[@]}" && eventually state_is eaten running && eventually joined && eventually child || return 1
    kill -KILL "$(child)"
    eventually of_the_queue eaten 75 "ended by signal 9" "out of memory? the kernel's log (dmesg) says so"
}
child() { pgrep -P $agent; }
ok "10 a worker is killed, as the kernel does" killed_worker

if [ "$full" ]; then
    fills() { head -c 4m /dev/zero >full/other 2>/dev/null; true; }
    no_backups() {
        fills
        submit backed "${long[@]}" --set "callbacks=[{name: backup, path: $scratch/full/backups, every_steps: 1}]" && return 1
        fails_with 74 "No space left on device" submit backed || return 1
        rm full/other
        submit backed "${long[@]}" --set "callbacks=[{name: backup, path: $scratch/full/backups, every_steps: 1}]" &&
            eventually state_is backed running && eventually sh -c 'ls full/backups/*.safetensors' && fills &&
            eventually of_the_queue backed 0 "No space left on device" "make room on that disk"
    }
    ok "4 a disk is full: a job cannot be queued, another cannot keep its backups" no_backups
    rm -f full/other
    eventually "$psctl" --cluster queue.yaml cancel backed >/dev/null
    eventually state_is backed cancelled
    unwritten() { # an end that cannot be written is tried again
        submit short --set delay_ms=1000 && eventually state_is short running || return 1
        fills
        eventually of_the_queue short 78 "its state cannot be written" "make room on the disk of ps:0's --queue folder"
    }
    ok "4 a disk is full: the queue's" unwritten
else
    skip "4 a disk is full" "no tmpfs can be mounted"
fi
kill $agent $queue_psd && wait $agent $queue_psd

# ---- 5 a psd that is stopped --------------------------------------------------------------------------------------

start_psd stopped || exit 1
kill -STOP "$psd_pid"
ok "5 a psd is stopped" finds 69 "takes the connection, then does not answer" "stopped (kill -CONT)" --ps "$well,unix:$scratch/stopped"
kill -CONT "$psd_pid"
ended "$psd_pid"

# ---- 6 a wrong certificate ----------------------------------------------------------------------------------------

"$psctl" tls init tls >/dev/null && "$psctl" tls init other >/dev/null || exit 1
mkdir half && cat other/ca.pem tls/ca.pem >half/ca.pem && cp other/admin.pem half/
start_psd secret --tls tls || exit 1
secret=unix:$scratch/secret
ok "6 psd's certificate is another authority's" finds 69 "its certificate does not do: " "give it one of the authority in ca.pem (psctl tls issue)" --ps "$secret" --tls other
ok "6 psctl's is" finds 69 "does not take psctl's certificate" "have its authority issue one (psctl tls issue)" --ps "$secret" --tls half
ok "6 psctl has none" finds 69 "asks for a certificate, and psctl has none" "say --tls FOLDER" --ps "$secret"
ended "$psd_pid"

# ---- 7 two versions -----------------------------------------------------------------------------------------------

# A psd that says another version: ours, with one string changed, which may be the end of what --version says.
version=$("$psctl" --version)
version=${version#psctl }
LC_ALL=C sed -zE "s/^(psd )?${version//./\\.}\$/\\1${version%?}x/" "$psd" >psd-newer && chmod +x psd-newer
two_versions() {
    local pids=() peers=unix:$scratch/v0,unix:$scratch/v1 found=0
    start_psd v0 --task 0 --peers "$peers" && pids+=("$psd_pid") || return 1
    psd=$scratch/psd-newer start_psd v1 --task 1 --peers "$peers" && pids+=("$psd_pid") || return 1
    finds 78 "is version ${version%?}x, ps:0 is $version" "run one version on all ps tasks" --ps "$peers" &&
        finds 0 "this psctl is $version" "use the psctl of the same version" --ps "unix:$scratch/alone" || found=1
    ended "${pids[@]}"
    return $found
}
psd=$scratch/psd-newer start_psd alone || exit 1
ok "7 two versions" two_versions
ended "$psd_pid"

# ---- 9 a wrong rank -----------------------------------------------------------------------------------------------

worker 0 --set timeout=600 2>w0.log &
first=$!
joined() { "$psctl" --ps "$well" workers softmax 2>&1 | tee said | grep -q "0 *live"; }
eventually joined
second=
finds_second() { # who is told by the time of the look is followed by another one
    [ "$second" ] && jobs -pr | grep -qx "$second" || { worker 0 2>w1.log & second=$!; }
    asked 0 "a second worker of this rank waits for the first" "give each worker a --rank of its own" "$psctl" --ps "$well" doctor
}
ok "9 two workers of one rank" eventually finds_second
ok "9 and whose rank nobody has" finds 0 "has not joined yet" "with this --rank" --ps "$well"
second_ends() { wait $second; [ $? = 73 ] && grep "two workers cannot have one rank" w1.log; }
ok "9 the second is told" second_ends
# Of ten psctl at once each has 3 s for its answers, and all 13 s for their ends; under sanitizers that is too little.
patient=()
[ "${SANITIZERS:-no}" = no ] || patient=(--timeout 50)
reports() { # in one file, what each command says, also where a ps task is not there
    local got=0 began=${EPOCHREALTIME/./} said
    rm -f report.md
    NCCL_DEBUG=INFO "$psctl" "${patient[@]}" --ps "$well,unix:$scratch/nobody" doctor --report report.md >said || got=$?
    cat said report.md
    [ "$got" = 69 ] && [ $(((${EPOCHREALTIME/./} - began) / 1000)) -le $((within_ms * 2)) ] && grep "read it before you send it" said || return 1
    for said in "^## psctl trace" "^set *NCCL_DEBUG=INFO" "^machine .* cores, " "^unreachable .*nobody" "^## psctl status" "^## psctl check-build" \
        "^\[x\] psd " "^## psctl workers softmax" "^ *0 *live" "^(exit code 69)"; do
        grep -q "$said" report.md || { echo "lacks: $said"; return 1; }
    done
}
ok "a report: what who is to help would ask for" twice reports
no_colour() { # of standard output, and nothing in it that steers a terminal
    ask --ps "$well" doctor --report - >report.out && grep "^## psctl doctor" report.out && ! LC_ALL=C grep "$(printf '\033')" report.out
}
ok "a report to standard output" no_colour
names_both() { # FILE OPTION ...: of a job that is not there, where a ps task is not, either
    fails_with 69 "no job softmx here; did you mean softmax?" ask --ps "$well,unix:$scratch/nobody" doctor "${@:2}" softmx &&
        grep "^unreachable .*nobody" "$1"
}
ok "a job that is not there is named beside what is wrong" names_both "$scratch/said"
ok "a report of it is written" names_both unknown.md --report unknown.md
reports_alone() { fails_with 66 "no job softmx here" ask --ps "$well" doctor --report alone.md softmx && grep "^## psctl status" alone.md; }
ok "also where all else is well" reports_alone
ok "of nobody who answers it is not known" fails_with 69 "whether there is a job softmax is not known: ps:0 does not answer" \
    "$psctl" --ps "unix:$scratch/nobody" doctor softmax
behind() { echo before >log && ask --ps "$well" doctor --report - >>log && head -n 1 log | grep -x before && grep "^## psctl queue" log; }
ok "a report behind what a file has" behind
ok "a report into a folder" fails_with 73 "$scratch" "$psctl" --ps "$well" doctor --report "$scratch"
ok "a report for Nagios" fails_with 3 "expected neither --nagios nor --json" "$psctl" --ps "$well" doctor --nagios --report report.md
ok "9 a rank that is none" fails_with 65 "ranks go from 0 to 1" worker_ends 5
ended $first

# ---- 10 no memory -------------------------------------------------------------------------------------------------

conv() { # PSD OPTION ...
    local at=$1
    shift
    exec "$workerd" --job "$examples/conv/sync.yaml" --set strategy.name=parameter_server --set strategy.update=sync --set timeout=2 \
        --set data.train_examples=64 --set data.test_examples=64 --workers 1 --ps "unix:$scratch/$at" --quiet "$@"
}
no_memory() {
    local found=0
    start_psd tight --memory 4M || return 1
    (conv tight --set timeout=5) 2>conv.log
    finds 75 "would need " "start psd with more --memory, or more ps tasks; psctl plan says how much it takes" --ps "unix:$scratch/tight" || found=1
    ended "$psd_pid"
    return $found
}
ok "10 a job does not fit into a psd's memory" no_memory

stopped_psd() {
    local peers=unix:$scratch/s0,unix:$scratch/s1 pids=() found=0
    start_psd s0 --task 0 --peers "$peers" && pids+=("$psd_pid") && start_psd s1 --task 1 --peers "$peers" && pids+=("$psd_pid") || return 1
    (worker 0 --ps "$peers" --set timeout=600) 2>stopped.log & pids+=($!)
    trains() { "$psctl" --ps "$peers" jobs 2>&1 | grep -q "running"; }
    eventually trains || return 1
    kill -STOP "$psd_pid"
    finds 69 "is running, and needs ps:1, which does not answer" "its workers wait for some seconds" --ps "$peers" || found=1
    ended "${pids[@]}"
    return $found
}
ok "5 a running job that needs it" stopped_psd

stopped_control() { # of ps:0 one line says it, and of the job another
    local peers=unix:$scratch/c0,unix:$scratch/c1 pids=() control found=0
    start_psd c0 --task 0 --peers "$peers" && control=$psd_pid && start_psd c1 --task 1 --peers "$peers" || return 1
    pids=("$control" "$psd_pid")
    (worker 0 --ps "$peers" --set timeout=600) 2>stopped.log & pids+=($!)
    trains() { "$psctl" --ps "$peers" jobs 2>&1 | grep -q "running"; }
    eventually trains || return 1
    kill -STOP "$control"
    finds 69 "its control task ps:0 does not answer" "see ps:0" --ps "$peers" && ! grep "and needs ps:" said || found=1
    ended "${pids[@]}"
    return $found
}
ok "5 a running job whose control task it is" stopped_control

failed_and_stopped() { # what a ps task has that is stopped is not lost
    local peers=unix:$scratch/f0,unix:$scratch/f1 pids=() found=0
    start_psd f0 --task 0 --peers "$peers" && pids+=("$psd_pid") && start_psd f1 --task 1 --peers "$peers" && pids+=("$psd_pid") || return 1
    (worker 0 --ps "$peers" --set timeout=5) 2>stopped.log & pids+=($!)
    trains() { "$psctl" --ps "$peers" jobs 2>&1 | grep -q "running"; }
    eventually trains || return 1
    kill -STOP "$psd_pid"
    has_failed() { "$psctl" --timeout 2 --ps "$peers" jobs 2>&1 | grep -q "failed"; }
    eventually has_failed && finds 69 "has failed" "ps:1 does not answer: have ps:1 answer first" --ps "$peers" || found=1
    kill -CONT "$psd_pid"
    finds 75 "has failed" "start it again with --set on_existing=resume" --ps "$peers" || found=1
    ended "${pids[@]}"
    return $found
}
ok "5 a job that has failed and may go on" failed_and_stopped

done_without_control() { # what is done is done, also where the control task is away, or another knows nothing of it
    local peers=unix:$scratch/d0,unix:$scratch/d1 pids=() control found=0
    start_psd d0 --task 0 --peers "$peers" && control=$psd_pid && start_psd d1 --task 1 --peers "$peers" || return 1
    pids=("$psd_pid")
    (worker 0 --ps "$peers" --workers 1 --set epochs=1 --set delay_ms=0 --set output=) 2>done.log || return 1
    finds_done() { ask --ps "$peers" doctor >said; grep "job softmax .*done, 0 live workers" said; }
    tells_all() { "$psctl" --ps "unix:$scratch/d1" jobs | grep -q "softmax .*done"; }
    eventually finds_done && eventually tells_all || return 1
    ended "$control"
    finds 69 "ps:0 (unix:$scratch/d0)" "start psd there" --ps "$peers" && ! grep "needs ps:\|control task" said || found=1
    rm -f d0.ready
    start_psd d0 --task 0 --peers "$peers" && pids+=("$psd_pid") || return 1
    ask --ps "$peers" doctor --nagios >said && finds_done || { cat said; found=1; }
    ended "${pids[@]}"
    return $found
}
ok "10 a psd is killed that has a job which is done" done_without_control
one_of_two() { # its part is not shown as the whole
    start_psd o0 --task 0 --peers "unix:$scratch/o0,unix:$scratch/o1" || return 1
    says "says that it is ps:0 of 2, it is listed as ps:0 of 1: this is not all of its cluster" ask --ps "unix:$scratch/o0" status
    local got=$?
    ended "$psd_pid"
    return $got
}
ok "2 one ps task of two, in psctl status" one_of_two

killed_psd() {
    local peers=unix:$scratch/k0,unix:$scratch/k1 pids=() found=0
    start_psd k0 --task 0 --peers "$peers" --dead-after-ms 600000 && pids+=("$psd_pid") &&
        start_psd k1 --task 1 --peers "$peers" --dead-after-ms 600000 || return 1
    (worker 0 --ps "$peers" --workers 1 --set timeout=5) 2>killed.log & pids+=($!)
    steps() { "$psctl" --ps "$peers" workers softmax 2>&1 | have_stepped 1; }
    eventually steps || return 1
    kill -STOP "${pids[1]}" # it asks for nothing: that its training is lost is seen all the same
    ended "$psd_pid"
    finds 69 "ps:1 (unix:$scratch/k1)" "start psd there" --ps "$peers" || found=1
    rm -f k1.ready
    start_psd k1 --task 1 --peers "$peers" --dead-after-ms 600000 && pids+=("$psd_pid") || return 1
    finds 78 "is running, and ends with its workers' next step" "ps:1 has lost what it had of it" --ps "$peers" || found=1
    says "ends with its workers' next step: ps:1 has lost what it had of it" ask --ps "$peers" status || found=1
    has_failed() { "$psctl" --ps "$peers" jobs 2>&1 | grep -q "failed"; }
    kill -CONT "${pids[1]}"
    eventually has_failed &&
        finds 75 "has failed" "ps:1 has lost what it had of it: start it again: it goes on from its backup, or with --resume from its checkpoint" --ps "$peers" || found=1
    ended "${pids[@]}"
    return $found
}
ok "10 a psd is killed, and one comes in its place that has lost its memory" killed_psd

not_finite() {
    local peers=unix:$scratch/n0 pids=() found=0
    start_psd n0 && pids+=("$psd_pid") || return 1
    (worker 0 --ps "$peers" --workers 1 --set data.scale=1e38) 2>not_finite.log & pids+=($!)
    warns() { "$psctl" --ps "$peers" status 2>&1 | grep -q "are not finite"; }
    eventually warns && finds 0 "its gradients or its loss are not finite" "terminate_on_nan" --ps "$peers" || found=1
    ended "${pids[@]}"
    return $found
}
ok "11 a training whose loss is no number" not_finite
