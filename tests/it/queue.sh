#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The queue: workers without a job wait for those of psctl submit, in the order of their priorities, and train them to
# their end, whatever is killed meanwhile.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

echo "ps: [\"unix:$scratch/p0\"]
worker: [a, b]" >cluster.yaml
ctl() { timeout 300 "$psctl" --timeout 60 --cluster "$scratch/cluster.yaml" "$@"; }
job=$examples/softmax/async.yaml
submit() { ctl submit "${quick[@]}" "$@" "$job"; }
field() { ctl --json queue "$1" | sed -nE "s/^ *\"$2\": \"?([^\",]*)\"?,?\$/\1/p" | head -n 1; } # JOB KEY
is() { [ "$(field "$1" state)" = "$2" ] || { ctl queue; false; }; }                           # JOB STATE
# A job that goes on until it is cancelled, and leaves the CPUs to others.
endless=(--set epochs=100000 --set delay_ms=20)
# Both workers have to be there, and whatever is lost comes back.
healing=(--set strategy.min_workers=2 --set delay_ms=10 --set data.train_examples=12800 --set epochs=20)

psd_with_queue() { rm -f p0.ready && start_psd p0 --cluster cluster.yaml --queue "$scratch/queue"; }
declare -A agent
wait_for_jobs() { # RANK
    "$workerd" --cluster cluster.yaml --rank "$1" 2>>"w$1.log" &
    agent[$1]=$!
}
child() { pgrep -x -P "${agent[$1]}" workerd; } # RANK: the process that trains
kill_all_of() { # SIGNAL RANK ...
    local signal=$1 rank
    shift
    for rank; do kill -s "$signal" "${agent[$rank]}" && wait "${agent[$rank]}" 2>/dev/null; done
}

# ---- before there are workers -------------------------------------------------------------------------------------

start_psd p0 --cluster cluster.yaml || exit 1
ok "a psd without a folder has no queue, and says what is missing" fails_with 78 "expected it to be started with --queue FOLDER" submit
ok "psctl jobs can do without" ctl jobs
kill "$psd_pid" && wait "$psd_pid"
psd_with_queue || exit 1
ok "a second psd does not take its folder" fails_with 73 "is another psd's queue" "$psd" --listen "unix:$scratch/other" --queue queue
ok "the queue is empty" says "no job is queued" ctl queue
printf 'model: m.json\nloss: mse\nepochs: never\noptimizer: sgd\ndata: {kind: synthetic-digits}\n' >wrong.yaml
ok "a wrong job is refused where it is submitted" fails_with 65 "wrong.yaml:3: epochs must be" ctl submit wrong.yaml
ok "and one that is not there" fails_with 66 "none.yaml" ctl submit none.yaml
ok "and a model that cannot be" fails_with 65 "m.json" eval 'echo "{}" >m.json; sed "s/never/1/" wrong.yaml >right.yaml; ctl submit right.yaml'
ok "and one for more workers than there are" fails_with 78 "for 3 workers, and the cluster has 2" submit --workers 3
ok "and a priority out of range" fails_with 64 "--priority" submit --priority 1001
ok "and a name that is a number" fails_with 65 "the job's name '1' is a number: expected a letter in it" submit --set name=1
ok "and one that would be an option" fails_with 65 "the job's name '-x' begins as an option" submit --set name=-x
ok "a job waits" says "job 1 'low' is queued" submit --set name=low --set output=low.safetensors
ok "so does another one" says "job 2 'high' is queued" submit --set name=high --set output=high.safetensors --priority 5
ok "and one that is not wanted any more" says "job 3 'unwanted' is queued" submit --set name=unwanted
ok "not one that needs more workers than it is to have" fails_with 65 "the job needs 3 workers (strategy.min_workers), and is to have 2: give --workers" \
    submit --set strategy.min_workers=3
ok "nor one that trains in one worker, for two" fails_with 65 "expected --workers 1, not 2" submit --workers 2 --set strategy.name=mirrored
elsewhere() { fails_with 65 "$1" submit --set strategy.min_workers=3 --set weights=/no/where.safetensors --set output=/no/folder/out.safetensors; }
ok "what cannot be read here is said" elsewhere "/no/where.safetensors cannot be read here: the workers look for it"
ok "and what is not here" elsewhere "/no/folder, where the output goes, is not here: worker 0 needs it"
ok "which is cancelled" fails_with 0 "job 3 is cancelled" ctl cancel unwanted
ok "and is shown so" is 3 cancelled
ok "once" fails_with 78 "job 3 'unwanted' has ended" ctl cancel 3
ok "what is not there is not cancelled" fails_with 66 "has no job 'nothing'" ctl cancel nothing
order() { ctl --json queue | sed -nE 's/^ *"name": "(.*)",/\1/p' | tr '\n' ' '; }
ok "the order of turns" test "$(order)" = "high low unwanted "
ok "psctl jobs shows the queue, too" says "high" ctl jobs
ok "without what has ended" eval '! grep -q unwanted said'

# ---- workers ------------------------------------------------------------------------------------------------------

wait_for_jobs 1
ok "a worker says what it waits for" eventually grep -qF "waits for a job: job 2 'high' needs 2 workers: worker 0 is not there" w1.log
ok "nothing has begun" is high queued
wait_for_jobs 0
follows() { ctl logs -f high >high.log 2>high.err; }
ok "psctl logs -f ends with the job" follows
ok "it shows what the workers said" eval 'grep -q "Weights written to .*high.safetensors" high.log && grep -qF "workerd[1]" high.log'
ok "and how it ended" grep -q "job 2 is done" high.err
ok "the weights are where the job was submitted" test -s high.safetensors
ok "the next one ends, too" eventually is low done
ok "with exit code 0" test "$(field low exit_code)" = 0
began() { [ "$(grep -n "'high' begins on 2" p0.log | cut -d: -f1)" -lt "$(grep -n "'low' begins on 2" p0.log | cut -d: -f1)" ]; }
ok "it came after the one of higher priority" began
ok "psctl logs shows it afterwards" says "Weights written" ctl logs 1
ok "a job of one worker" says "Weights written" ctl submit "${quick[@]}" --set output=one.safetensors --wait "$examples/softmax/one_device.yaml"

# ---- a job that fails -----------------------------------------------------------------------------------------------

ok "psctl submit --wait ends as the job does" fails_with 66 "job 5 has failed with exit code 66" submit --wait --set name=fails --set timeout=5 --set weights=/nowhere.safetensors
ok "it is shown as failed" is fails failed
ok "with its exit code" test "$(field fails exit_code)" = 66
ok "its output says why" says "/nowhere.safetensors" ctl logs fails
ok "psctl status tells of it, where none runs" eventually says "No job runs; 1 job of the queue has failed: psctl queue says which." ctl status
forgotten() { # what has failed troubles nobody any more
    ctl doctor --nagios fails >/dev/null
    [ $? = 2 ] && fails_with 0 "1 job and what its workers said is gone" ctl cancel --forget fails && fails_with 66 "has no job 'fails'" ctl logs fails &&
        fails_with 66 "no job fails here" ctl doctor fails && fails_with 66 "has no job 'fails'" ctl cancel --forget fails
}
ok "psctl cancel --forget: it is kept no longer" forgotten
is_mended() { # by a later job of its name: for psctl doctor, status and metrics alike
    fails_with 66 "has failed" submit --wait --set name=mended --set timeout=5 --set weights=/nowhere.safetensors &&
        says "Weights written" submit --wait --set name=mended --set on_existing=replace --set output=mended.safetensors &&
        ctl doctor --nagios mended && eventually eval 'ctl status >said && ! grep "of the queue has failed" said'
}
ok "what has failed and is done the next time troubles nobody either" is_mended
# Worker 1 would wait a minute for what worker 0 cannot open.
ends_for_both() {
    fails_with 73 "has failed with exit code 73" submit --wait --set name=nowhere --set output=/nonexistent/x.safetensors || return 1
    ctl logs nowhere >said && cat said && grep "cannot create /nonexistent/x.safetensors" said && ! grep "waited" said
}
ok "what worker 0 cannot open ends for worker 1, too" ends_for_both

ok "what the ps tasks cannot write is said at once" fails_with 78 "ps task 0 has no folder for checkpoints: expected it to be started with --checkpoints FOLDER" \
    submit --wait --set name=no_shards --set epochs=100000 --set output=no_shards.safetensors --set "callbacks=[{name: backup, path: no_shards, sharded: true}]"

# ---- cancel ---------------------------------------------------------------------------------------------------------

ok "a long job" says "is queued" submit "${endless[@]}" --set name=long --set output=long.safetensors
trains() { ctl workers "$1" 2>/dev/null | have_stepped "${2:-2}"; } # JOB [WORKERS]: each can leave a backup
ok "trains" eventually trains long
leaves() { # who follows it and is stopped
    local pid
    "$psctl" --timeout 60 --cluster "$scratch/cluster.yaml" logs -f long >left.log 2>left.err &
    pid=$!
    eventually test -s left.log && kill -TERM "$pid"
    wait "$pid"
    [ $? = 143 ] && grep -E "job [0-9]+ goes on: psctl logs -f [0-9]+ follows it, psctl cancel [0-9]+ ends it" left.err && is long running
}
ok "who follows it may leave" leaves
full() { "$@" >/dev/full; }
leaves_full() { fails_with 74 "ends it" full ctl "$@" && grep -E "job [0-9]+ goes on: psctl logs -f " said && grep "cannot write standard output" said; }
ok "so does one whose output cannot be written" leaves_full logs -f long
ok "who only looks does not follow it" eval 'fails_with 74 "cannot write standard output" full ctl logs long && ! grep "goes on" said'
ok "who waits for a job, too" leaves_full submit --wait --set name=full --set output=full.safetensors "${quick[@]}" "$job"
ok "which waits for its turn" fails_with 0 "is cancelled" ctl cancel full
ok "and the one that was followed trains on" is long running
ok "it is cancelled" says "its workers are told to end" ctl cancel long
ok "and ends" eventually is long cancelled
ok "psctl logs -f says so" fails_with 79 "was cancelled" ctl logs -f long
ok "its weights are kept" test -s long.safetensors
interrupted() { # no operator is called
    ctl --json jobs >jobs.json && tr -d ' \n' <jobs.json | grep '"name":"long",[^}]*"state":"interrupted"' &&
        ctl doctor long >said && cat said && grep 'was interrupted: ' said && ctl doctor --nagios long
}
ok "it was interrupted, and has not failed" interrupted
ok "a job with backups that is cancelled, too" says "is queued" submit "${endless[@]}" --set name=stopped --set output=stopped.safetensors \
    --set "callbacks=[{name: backup, path: stopped, every_seconds: 600}]"
ok "trains" eventually trains stopped
ctl cancel stopped >said 2>&1
ok "and ends, too" eventually is stopped cancelled
kept_last() { # the backup of the signal is known
    local step
    step=$(find stopped -name '*.safetensors' | sort | sed -n '$s/.*-0*\([0-9]*\)\..*/\1/p')
    ctl doctor stopped >said && cat said && grep "started again, it goes on from its checkpoint of step ${step:-none}," said &&
        ctl logs stopped | grep "the weights are in .*stopped.safetensors; started again, it goes on from step ${step:-none}$"
}
ok "the backup that it has left is told" kept_last

# ---- deaths ---------------------------------------------------------------------------------------------------------

backups() { [ -n "$(find "$1" -name '*.safetensors' 2>/dev/null)" ]; }
writes() { printf 'callbacks=[{name: backup, path: %s, every_steps: 20}]' "$1"; }
ok "a job with backups" says "is queued" submit "${healing[@]}" --set name=heals --set output=heals.safetensors --set "$(writes healing)"
ok "makes backups" eventually backups healing
orphan=$(child 1)
kill_all_of KILL 1
gone() { [ -n "$orphan" ] && ! kill -0 "$orphan" 2>/dev/null; }
ok "with a worker that is killed ends what it started" eventually gone
ok "the job does not" is heals running
wait_for_jobs 1
takes_again() { [ "$(grep -c "trains job .* '$2'" "w$1.log")" = "$3" ]; } # RANK JOB TIMES
ok "the worker gets its job again" eventually takes_again 1 heals 2
ctl logs -f heals >/dev/null 2>&1
ok "the job ends after all" eventually eval 'is heals done >/dev/null'
ok "with its weights" test -s heals.safetensors
ok "its output tells what has happened" says "begins anew from the newest backup" ctl logs heals

ok "a job without an end" says "is queued" submit "${healing[@]}" --set name=endures --set epochs=100000 --set output=endures.safetensors \
    --set "$(writes enduring)"
ok "makes backups, too" eventually backups enduring
kill -KILL "$psd_pid" && wait "$psd_pid" 2>/dev/null
psd_with_queue || exit 1
ok "psd, killed and started again, knows that it runs" is endures running
ok "the workers go on" eventually trains endures
ok "the process that trains is killed" eval 'kill -KILL "$(child 0)"'
ok "and started again" eventually grep -q "was ended by signal 9: it is started again" w0.log
ok "they train again" eventually trains endures
kill_all_of TERM 0 1
ok "both workers are stopped: the job is not over" is endures running
wait_for_jobs 0
wait_for_jobs 1
ok "they get it again" eventually takes_again 0 endures 2
ok "and train" eventually trains endures
again() { [ "$(grep -c "was ended by signal 9: it is started again" w0.log)" -gt "$1" ]; } # TIMES
stops_after_crash() { # one that is told to train by then ends after a minute, killed
    local before start
    before=$(grep -c "it is started again" w0.log)
    kill -KILL "$(child 0)" && eventually again "$before" || return 1
    start=$SECONDS
    kill_all_of TERM 0
    echo "gone after $((SECONDS - start)) s" && [ $((SECONDS - start)) -lt 60 ] && is endures running
}
ok "a worker that is stopped just after its training has crashed ends, and the job does not" stops_after_crash
wait_for_jobs 0
ok "it gets the job again" eventually takes_again 0 endures 3
touch taken_again
goes_on() { [ -n "$(find enduring -newer taken_again -name '*.safetensors')" ]; } # with a chief who writes
ok "and trains" eventually goes_on
ok "until it is cancelled" says "its workers are told to end" ctl cancel endures
ok "which ends it" eventually is endures cancelled
ok "with its weights so far" test -s endures.safetensors

# ---- two of one rank --------------------------------------------------------------------------------------------------

# Its process trains on meanwhile, and the standby's is refused: worker 0 is alive.
standby() {
    local first
    "$workerd" --cluster cluster.yaml --rank 0 2>>standby.log &
    agent[standby]=$!
    first=$(child 0)
    kill -STOP "${agent[0]}"
    eventually grep "trains job .* 'held'" standby.log && eventually grep "job .* 'held' has ended here with exit code 73" standby.log
    kill -CONT "${agent[0]}"
    eventually eval '[ -z "$(child standby)" ]' && trains held && is held running && [ "$(child 0)" = "$first" ]
}
ok "a job for two" says "is queued" submit "${endless[@]}" --set name=held --set output=held.safetensors
ok "trains" eventually trains held
ok "a second process of worker 0, which falls silent, does not end its training" standby
kill_all_of TERM standby
ok "which is cancelled" says "its workers are told to end" ctl cancel held
ok "and ends then" eventually is held cancelled

# ---- without a backup -------------------------------------------------------------------------------------------------

ok "a job of one worker without a backup" says "is queued" submit --workers 1 "${endless[@]}" --set name=once --set output=once.safetensors
ok "trains" eventually trains once 1
ends_once() { # its run has failed, and it is not tried again and again
    kill_all_of TERM 0
    is once running && wait_for_jobs 0 && eventually is once failed && grep "'once'" w0.log && takes_again 0 once 2 && [ "$(field once exit_code)" = 73 ] &&
        ctl logs once | grep "job 'once' exists, interrupted: resume it or replace it"
}
ok "where its worker is started again, it ends at once, and says why" ends_once

# ---- an end that is refused -----------------------------------------------------------------------------------------

refused_end() { # a psd without the queue does not take it, however often it is told
    kill -KILL "$psd_pid" && wait "$psd_pid" 2>/dev/null
    rm -f p0.ready && start_psd p0 --cluster cluster.yaml || return 1
    kill -TERM "$(child 0)"
    eventually grep -F "the end of job 'refused' is refused, and not reported: ps:0: ps task 0 has no folder for a queue" w0.log
}
ok "a job of one worker without an end" says "is queued" ctl submit "${quick[@]}" --set name=refused --set epochs=100000 --set output=refused.safetensors "$examples/softmax/one_device.yaml"
has_begun() { ctl logs refused | grep "Epoch 1/"; } # its process has its name by then, and ends well by a signal
ok "is taken" eventually has_begun
ok "by worker 0, once" takes_again 0 refused 1
ok "its worker reports an end that is refused once" refused_end
kill "$psd_pid" && wait "$psd_pid"
psd_with_queue || exit 1
ok "it waits for jobs again, and gets this one" eventually takes_again 0 refused 2
ok "until it is cancelled, too" says "its workers are told to end" ctl cancel refused
ok "and has ended" eventually is refused cancelled

# ---- stop -----------------------------------------------------------------------------------------------------------

stops() { # RANK [SIGNAL CODE]
    local code=0
    kill -s "${2:-TERM}" "${agent[$1]}" && { wait "${agent[$1]}" || code=$?; }
    [ "$code" = "${3:-143}" ]
}
ok "a worker that waits ends with SIGTERM" stops 0
ok "and with SIGHUP" stops 1 HUP 129
ok "which it says" grep "signal 1: stops waiting for jobs" w1.log
in_queue() { ctl status >said && grep "^1 job waits in the queue, and none runs: psctl queue says" said && grep "^type next    psctl queue$" said; }
ok "a job that nobody trains" says "is queued" submit --set name=lonely
ok "psctl status tells of it" eventually in_queue
status_of_it() { # the words are of this job alone
    fails_with 66 "no job lonely here; number " ctl status lonely && grep " of the queue, job lonely, is queued: psctl queue shows it" said &&
        grep "^No job lonely runs here." said
}
ok "asked for it, psctl status says where it is" status_of_it
stands() { fails_with 0 "no job runs, and this one needs 2 workers, of which 0 are there; start workerd" ctl doctor lonely && ! ctl doctor --nagios; }
ok "psctl doctor warns that the queue stands" eventually stands
ok "it is cancelled" says "is cancelled" ctl cancel lonely
ok "psd ends in order" eval 'kill "$psd_pid" && wait "$psd_pid"'
printf 'garbage' >queue/1.job
psd_with_queue || exit 1
ok "a damaged file is set aside" test -s queue/1.job.damaged
ok "and the others are there" is high done

# ---- others, with and without certificates ---------------------------------------------------------------------------

if [ -n "${PYTHON3:-}" ] && [ "$PYTHON3" != no ]; then
    ok "clients that send what cannot be are refused" "$PYTHON3" "$top_srcdir/tests/it/queue_client.py" "unix:$scratch/p0"
    ok "what they write steers no terminal" eval 'ctl logs hostile | tee said | grep -qx "?\[31mred?" && ! grep -q "$(printf "\033")" said'
else
    n=$((n + 1)) && echo "ok $n - # SKIP no python3 with gRPC"
fi
kill "$psd_pid" && wait "$psd_pid"
"$psctl" tls init tls --user alice >/dev/null 2>&1
echo "tls: tls" >>cluster.yaml
psd_with_queue || exit 1
wait_for_jobs 0
wait_for_jobs 1
ok "with certificates a job is trained, too" says "Weights written" submit --wait --set name=secret --set output=secret.safetensors
ok "it is shown whose it is" test "$(field secret user)" = alice
mkdir of_worker && cp tls/ca.pem of_worker && cp tls/worker.pem of_worker/admin.pem
ok "a worker's certificate submits nothing" fails_with 78 "expected admin" "$psctl" --timeout 60 --tls of_worker --cluster cluster.yaml submit "$job"
for rank in 0 1; do ok "worker $rank ends" stops "$rank"; done
kill "$psd_pid" && wait "$psd_pid"

# ---- a ps task that drains, of two ----------------------------------------------------------------------------------

echo "ps: [\"unix:$scratch/p0\", \"unix:$scratch/p1\"]
worker: [a]" >cluster.yaml
second_psd() { rm -f p1.ready && start_psd p1 --cluster cluster.yaml --task 1; }
second_psd && p1=$psd_pid && psd_with_queue && p0=$psd_pid || exit 1
: >w0.log
wait_for_jobs 0
waits() { # TASK: a job that comes before ps:0 knows who drains is refused: then another one does
    local said="waits for a job: ps task $1 is being drained: it takes no new jobs"
    for _ in 1 2 3; do
        says "is queued" submit --set "name=held$1" --set output=held.safetensors || return 1
        eventually eval 'grep -qF "$said" w0.log || is "held$1" failed >/dev/null' || return 1
        is "held$1" failed >/dev/null || break
        ctl cancel --forget "held$1" || return 1
    done
    sleep 2
    is "held$1" queued && grep -F "$said" w0.log
}
trains_after() { eventually is "held$1" done && ! ctl logs "held$1" | grep drained; } # TASK
for task in 0 1; do
    ok "ps:$task drains" says "drained" ctl drain "ps:$task"
    sleep 3 # psd asks every second
    ok "a job is queued, waits, and says for what" waits "$task"
    [ "$task" = 1 ] && break
    ok "drain --undo" says "takes jobs" ctl drain "ps:$task" --undo
    ok "and it is trained" trains_after "$task"
done
kill "$p1" && wait "$p1"
sleep 3
ok "it waits also while this psd is not there" is held1 queued
second_psd && p1=$psd_pid
ok "and is trained when that is started again" trains_after 1
ok "the worker ends" stops 0
kill "$p0" "$p1" && wait "$p0" "$p1"

# ---- as a service ---------------------------------------------------------------------------------------------------

to_journal() { # as systemd says that stderr is the journal's
    : >journal
    JOURNAL_STREAM=$(stat -c %d:%i journal) "$workerd" --cluster cluster.yaml --rank 0 2>>journal &
    agent[0]=$!
}
told_the_journal() {
    fails_with 66 "has failed with exit code 66" submit --wait --set name=told --set timeout=5 --set weights=/nowhere.safetensors &&
        ctl logs told | grep "^workerd\[0\] E .*/nowhere.safetensors" && eventually grep "job .* 'told' has ended here" journal && cat journal &&
        grep "^<3>workerd\[0\] .*/nowhere.safetensors" journal
}
echo "ps: [\"unix:$scratch/p0\"]
worker: [a]" >cluster.yaml
psd_with_queue || exit 1
to_journal
ok "the journal is told the priority of what a job's process says" told_the_journal
stops 0 >/dev/null
kill "$psd_pid" && wait "$psd_pid"

# ---- room for the next one ------------------------------------------------------------------------------------------

# Two jobs of 719 KiB have room in a psd with so little memory.
small_psd() { rm -f p0.ready && start_psd p0 --cluster cluster.yaml --queue "$scratch/room" --memory 4M; }
large=$examples/autoencoder/async.yaml
submit_large() { ctl submit "${quick[@]}" --set timeout=20 --set "name=$1" --set "output=$1.safetensors" --wait "$large"; }
by_hand() { "$workerd" --cluster cluster.yaml --rank 0 --job "$large" "${quick[@]}" --set timeout=8 --set "name=$1" --set "output=$1.safetensors"; }
here() { ctl --json status >here.json && tr -d ' \n' <here.json | grep -qF "\"name\":\"$1\""; }
gone() { ! here "$1" && [ -s here.json ]; }
echo "ps: [\"unix:$scratch/p0\"]
worker: [a]" >cluster.yaml
small_psd || exit 1
wait_for_jobs 0
for name in first second third; do ok "the $name of three jobs has room" says "Weights written" submit_large "$name"; done
ok "what the last one has left is there" here third
ok "and what the one before has left is gone" gone second
stops 0 >/dev/null
ok "a job that a person runs has room beside it" says "Weights written" by_hand one
refused() { fails_with 71 "; jobs that have ended hold " by_hand two && grep "waiting for ps:0 .*: psctl stop third" said; }
ok "another one has not, and says which job to stop" refused
wait_for_jobs 0
ok "the queue's next job has" says "Weights written" submit_large fourth
ok "it took the place of the one before" gone third
ok "not of the one that a person ran" here one
cancelled_large() {
    ctl submit "${endless[@]}" --set timeout=20 --set "name=$1" --set output=/dev/null "$large" && eventually trains "$1" 1 && ctl cancel "$1" &&
        eventually is "$1" cancelled
}
ok "a job is cancelled" cancelled_large fifth
ok "the next one had room for what that had taken, too" cancelled_large sixth
ok "it leaves its weights" ctl save sixth sixth.safetensors
ok "until the next one, which has room as well" says "Weights written" submit_large seventh
ok "and took their place" gone sixth
stops 0 >/dev/null
kill "$psd_pid" && wait "$psd_pid"

echo "ps: [\"unix:$scratch/p0\", \"unix:$scratch/p1\"]
worker: [a]" >cluster.yaml
second_psd && p1=$psd_pid && small_psd || exit 1
wait_for_jobs 0
ok "a job of two ps tasks" says "Weights written" submit_large both
ok "is there" here both
ok "the next one" says "Weights written" submit_large next
ok "has it let go by both" eventually gone both
