#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deploy/slurm/paramserver.sbatch on three nodes of a real Slurm, all on this host: each slurmd is a node with an address
# of its own, in namespaces where nothing else is, and which take everything with them when they end.
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}
if [ -z "${PS_SLURM_INSIDE:-}" ]; then
    for program in slurmctld slurmd sbatch; do
        command -v "$program" >/dev/null || skip_all "no $program: it is in the package slurm-wlm"
    done
    [ "$(id -u)" = 0 ] || skip_all "Slurm's daemons run as root"
    own=(unshare --mount --uts --net --pid --fork --kill-child --mount-proc)
    why=$("${own[@]}" ip link set lo up 2>&1) || skip_all "no namespaces here: $why"
    PS_SLURM_INSIDE=1 exec "${own[@]}" "$0"
fi
. "$top_srcdir/tests/it/lib.sh"
cd "$scratch" || exit 1

# ---- three nodes ----------------------------------------------------------------------------------------------------

hostname head
printf '127.0.0.1 localhost head\n' >hosts
ip link set lo up
for i in 1 2 3; do
    echo "10.9.8.$i n$i" >>hosts
    ip address add "10.9.8.$i/32" dev lo
done
mount --bind hosts /etc/hosts
cat >slurm.conf <<CONF
ClusterName=test
SlurmctldHost=head(127.0.0.1)
SlurmUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
KillOnBadExit=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/%n
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/%n.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/%n.log
GresTypes=gpu
NodeName=n[1-3] NodeHostname=head NodeAddr=127.0.0.1 Port=[17001-17003] CPUs=4 RealMemory=4000 Gres=gpu:2
PartitionName=main Nodes=n[1-3] Default=YES PriorityTier=1
PartitionName=graceful Nodes=n[1-3] PriorityTier=1 GraceTime=60
PartitionName=urgent Nodes=n[1-3] PriorityTier=2 PreemptMode=OFF
CONF
export SLURM_CONF=$scratch/slurm.conf
for i in 0 1; do mknod gpu$i c 1 3; done # null devices, which nodes take for two GPUs
echo "NodeName=n[1-3] Name=gpu File=$scratch/gpu[0-1]" >gres.conf
mkdir state bin
start_nodes() {
    slurmctld -i && for i in 1 2 3; do slurmd -N "n$i" || return 1; done
    eventually three_idle || { cat ./*.log; return 1; }
}
three_idle() { [ "$(sinfo --noheader --Node --partition main --states idle | grep -c idle)" = 3 ]; }
ok "Slurm has three nodes" start_nodes

ln -s "$PSD" bin/psd
# As that of coreutils before 8.31.
printf '#!/bin/sh\ncase "$*" in *--block-signal*) echo "env: unrecognized option" >&2; exit 125 ;; esac\nexec /usr/bin/env "$@"\n' >bin/env
chmod +x bin/env
export PATH=$scratch/bin:$top_builddir/workerd:$top_builddir/tools/psctl:$PATH
sbatch=$top_srcdir/deploy/slurm/paramserver.sbatch

# submit OPTION ... -- JOB SET ...: its number is in $id, its output in $id.out.
submit() {
    local options=()
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    local file=$2
    shift 2
    [[ $file == /* ]] || file=$examples/softmax/$file
    id=$(sbatch --parsable --output %j.out "${options[@]}" "$sbatch" ${ps_tasks:+--ps-tasks "$ps_tasks"} ${munge:+--munge} ${checkpoints:+--checkpoints "$checkpoints"} "$file" "${quick[@]}" "$@")
}
has() { [[ $(scontrol --oneliner show job "$1") == *" $2 "* ]] || { scontrol show job "$1"; cat "$1.out"; false; }; } # JOB KEY=VALUE
eventually_has() { eventually has "$@" >has.out || { cat has.out; return 1; }; }
ends_with() { eventually_has "$1" "ExitCode=$2:0" && { eventually is_gone "$1"; cat "$1.out"; [ "$2" != 0 ] || has "$1" JobState=COMPLETED; }; } # JOB CODE
is_gone() { [ -z "$(squeue --noheader --jobs "$1" 2>/dev/null)" ]; }

# ---- trainings to their end -----------------------------------------------------------------------------------------

no_certificates() { ! find "paramserver-$id" -name "*.pem" | grep .; } # of the last job
three_train() {
    submit --nodes 3 -- async.yaml --set output=three.safetensors && ends_with "$id" 0 || return 1
    cat "paramserver-$id"/*
    [ -s three.safetensors ] && grep -q "as worker 2 of 3" "$id.out" && grep -q "stopped" "paramserver-$id/psd-0.log" &&
        no_certificates
}
ok "a job trains on three nodes; its server ends, and its certificates" three_train

layout() { # the addresses of the last job, without the port's number
    local port=$((10000 + id % 1400 * 16))
    tr -d ' \n"-' <"paramserver-$id/cluster.yaml" | sed "s/:$port/:P /g; s/:$((port + 1))/:Q /g; s/:$((port + 2))/:R /g"
    echo
}
several() {
    ps_tasks=2 submit --nodes 2 --ntasks-per-node 2 -- sync.yaml --set output=several.safetensors && ends_with "$id" 0 || return 1
    layout
    [ -s several.safetensors ] && [ "$(layout)" = "ps:n1:P n2:P worker:n1:Q n1:R n2:Q n2:R tls:tls" ]
}
ok "with two servers, and two workers on each node" several

in_a_shell() { # of salloc, which does not say how many tasks a node has
    fails_with 0 "as worker 1 of 2" salloc --nodes 2 "$sbatch" "$examples/softmax/async.yaml" "${quick[@]}" --set output=salloc.safetensors &&
        [ -s salloc.safetensors ] &&
        fails_with 64 "expected as many on each, by --ntasks-per-node" salloc --nodes 2 --ntasks 3 "$sbatch" "$examples/softmax/async.yaml" "${quick[@]}" --set output=salloc.safetensors
}
ok "within salloc, a worker on each node" in_a_shell
of_components() {
    id=$(sbatch --parsable --output %j.out --nodes 1 : --nodes 1 "$sbatch" "$examples/softmax/async.yaml" "${quick[@]}" --set output=het.safetensors) &&
        ends_with "$id" 64 && grep "this job has 2 components, of which the first alone would train" "$id.out"
}
ok "a heterogeneous job is refused" of_components
ok "by psctl slurm, too" fails_with 64 "a ':' behind -- makes a job of several components" psctl slurm "$examples/softmax/async.yaml" -- --nodes=1 : --nodes=1

without_servers() {
    ps_tasks=0 submit --nodes 3 -- multi_worker_mirrored.yaml --set output=ring.safetensors && ends_with "$id" 0 || return 1
    [ -s ring.safetensors ] && [ "$(layout)" = "worker:n1:Q n2:Q n3:Q tls:tls" ]
}
ok "without servers" without_servers

# In these namespaces /run is ours, and munged where its clients look for it.
start_munged() {
    mount -t tmpfs none /run && mkdir -m 755 /run/munge && mungekey --create --keyfile /run/munge/key || return 1
    munged --foreground --key-file /run/munge/key --seed-file /run/munge/seed --log-file /run/munge/log --pid-file /run/munge/pid 2>munged.log &
    eventually test -S /run/munge/munge.socket.2
}
by_munge() {
    start_munged || { cat munged.log; return 1; }
    ps_tasks=2 munge=yes submit --nodes 2 -- sync.yaml --set output=known.safetensors && ends_with "$id" 0 || return 1
    cat "paramserver-$id"/psd-0.log
    [ -s known.safetensors ] && [ "$(layout)" = "ps:n1:P n2:P worker:n1:Q n2:Q munge:true" ] && [ ! -e "paramserver-$id/tls" ] &&
        grep -q "munge: uid 0 and root may do all" "paramserver-$id/psd-0.log"
}
if grep -q 'S\["HAVE_MUNGE_TRUE"\]=""' "$top_builddir/config.status" && PATH=$PATH:/usr/sbin command -v munged mungekey >/dev/null; then
    ok "by munge, without certificates" by_munge
fi

# Each worker sees a GPU of its own, which is none.
own_gpus() {
    printf '#!/bin/sh\necho "worker ${SLURM_PROCID} on ${SLURMD_NODENAME} has GPU ${CUDA_VISIBLE_DEVICES}"\nexec "%s" "$@"\n' "$workerd" >bin/workerd
    chmod +x bin/workerd
    submit --nodes 2 --ntasks-per-node 2 --gpus-per-task 1 -- async.yaml --set output=gpus.safetensors && ends_with "$id" 0
    rm bin/workerd
    [ "$(sed -nE 's/^worker [0-9] on (n.) has GPU ([0-9])$/\1 \2/p' "$id.out" | sort | tr '\n' ' ')" = "n1 0 n1 1 n2 0 n2 1 " ]
}
ok "a worker for each GPU of the nodes" own_gpus

heals() {
    checkpoints=heals submit --nodes 2 -- sync.yaml --set data.train_examples=12800 --set epochs=20 --set delay_ms=5 --set output=heals.safetensors \
        --set "callbacks=[{name: backup, path: heals, every_steps: 20, sharded: true}]" && eventually eval 'ls heals/*.safetensors 2>/dev/null' &&
        ls heals/softmax/*-ps-0-of-1.safetensors || { cat "$id.out"; return 1; }
    pkill -KILL -x psd || return 1
    ends_with "$id" 0 || return 1
    cat "paramserver-$id"/*.log
    grep -q "begins anew from the newest backup" "$id.out" && [ -s heals.safetensors ]
}
ok "a server that is killed is started again, and the training goes on from its backup" heals

# One that dies as it starts is started about once a second, not as often as its node can.
dying_psd() {
    local start=$SECONDS code=0
    rm bin/psd && printf '#!/bin/sh\necho >>"%s"\nkill -KILL $$\n' "$scratch/starts" >bin/psd && chmod +x bin/psd || return 1
    submit --nodes 1 -- sync.yaml --set timeout=5 --set output=dying.safetensors && ends_with "$id" 69 || code=1
    ln -sf "$PSD" bin/psd
    echo "$(wc -l <starts) starts in $((SECONDS - start)) s"
    [ $code = 0 ] && [ "$(wc -l <starts)" -ge 2 ] && [ "$(wc -l <starts)" -le $((2 * (SECONDS - start) + 2)) ]
}
ok "a server that dies as it starts is not started without end" dying_psd

# Though this cluster's KillOnBadExit would have all of them killed.
loses_one() {
    submit --nodes 2 -- async.yaml --set epochs=1000 --set delay_ms=20 --set steps=1000 --set output=loses.safetensors && eventually grep -q "as worker 1 of 2" "$id.out" || return 1
    pkill -KILL -f -- 'workerd --cluster .*--rank 1 ' || return 1
    ends_with "$id" 137 && grep -q "Weights written to loses.safetensors" "$id.out"
}
ok "a worker is killed, the other trains on" loses_one

# ---- psctl slurm ----------------------------------------------------------------------------------------------------

psctl_slurm() { psctl slurm --script "$sbatch" "$@"; }
trains_for_psctl() {
    psctl_slurm "$examples/softmax/async.yaml" -N 3 --ps-tasks 2 "${quick[@]}" --set threads=2 --set output=ours.safetensors -- --output %j.out >said || return 1
    cat said
    id=$(sed -nE 's/^  squeue --jobs ([0-9]+)$/\1/p' said)
    grep -q "^  psctl status --cluster paramserver-$id/cluster.yaml " said && has "$id" JobName=softmax && has "$id" CPUs/Task=2 &&
        ends_with "$id" 0 && layout && [ "$(layout)" = "ps:n1:P n2:P worker:n1:Q n2:Q n3:Q tls:tls" ] && [ -s ours.safetensors ]
}
ok "psctl slurm trains" trains_for_psctl
queued() { squeue --noheader --states all | wc -l; }
is_refused() { # CODE TEXT OPTION ...
    local before
    before=$(queued)
    fails_with "$1" "$2" psctl_slurm "${@:3}" && [ "$(queued)" = "$before" ]
}
sed 's/^epochs: .*/epochs: many/' "$examples/softmax/async.yaml" >wrong.yaml
ok "a wrong job is refused before it is queued" is_refused 65 "wrong.yaml:$(grep -n ^epochs wrong.yaml | cut -d: -f1): epochs must be" wrong.yaml
ok "nodes that are not there: Slurm's words" is_refused 78 "sbatch: error: Batch job submission failed: Invalid node name specified" \
    "$examples/softmax/async.yaml" -- --nodelist n9

# ---- what is written of it ------------------------------------------------------------------------------------------

# replays FILE HEADING: its transcript is typed, as where psctl is installed.
replays() {
    sed "s,^model: .*,model: $examples/softmax/model.json," "$examples/softmax/sync.yaml" >sync.yaml
    sed "s,^name: .*,name: mnist," sync.yaml >job.yaml
    cat >run <<RUN
#!/bin/bash
set -o pipefail
installed=/usr/share/paramserver/slurm/paramserver.sbatch
psctl() { if [ "\$1" = slurm ]; then command psctl slurm --script "$sbatch" "\${@:2}" | sed "s,$sbatch,\$installed,"; else command psctl "\$@"; fi; }
eval "\$2"
RUN
    chmod +x run
    timeout 300 "$PYTHON3" "$top_srcdir/tests/it/replay.py" "$1" "$2" "$scratch/run"
    local code=$?
    scancel --name mnist
    return $code
}
if [ "${PYTHON3:-no}" = no ]; then
    skip "the transcripts" "no python3"
else
    ok "what README.md shows" replays "$top_srcdir/README.md" Slurm
    ok "what its own README.md shows" replays "$top_srcdir/deploy/slurm/README.md" "On a Slurm cluster"
fi

# ---- two at once, on the same nodes ---------------------------------------------------------------------------------

# Long enough to be met by the commands that follow.
long=(--set data.train_examples=128000 --set epochs=1000 --set delay_ms=20)
two_run() { [ "$(squeue --noheader --states R | wc -l)" = 2 ]; }
both_train() { grep -q Epoch "$first.out" && grep -q Epoch "$id.out"; }
two_at_once() {
    submit --nodes 3 -- async.yaml "${long[@]}" --set steps=1000 --set output=first.safetensors && first=$id
    submit --nodes 3 -- async.yaml "${long[@]}" --set steps=1000 --set output=second.safetensors
    eventually two_run && eventually both_train && two_run && ends_with "$first" 0 && ends_with "$id" 0 && [ -s first.safetensors ] && [ -s second.safetensors ]
}
ok "two jobs of one name train at once on the same nodes" two_at_once

# Where jobs inherit nothing of who queues them, and get their PATH otherwise.
inherits_nothing() {
    id=$(SBATCH_EXPORT=NONE sbatch --parsable --output %j.out --nodes 2 --ntasks-per-node 1 \
        --wrap "PATH=$PATH exec bash $sbatch $examples/softmax/async.yaml ${quick[*]} --set output=own.safetensors")
    ends_with "$id" 0 && [ -s own.safetensors ]
}
ok "with SBATCH_EXPORT=NONE" inherits_nothing

# ---- what is wrong --------------------------------------------------------------------------------------------------

ends_wrong() { # CODE JOB SET ...
    local code=$1
    shift
    submit --nodes 2 -- "$@" && ends_with "$id" "$code" && has "$id" JobState=FAILED
}
ok "a wrong value ends the job with 65" ends_wrong 65 async.yaml --set epochs=many
# The training is over before its server has begun.
slow_psd() {
    rm bin/psd && printf '#!/bin/sh\nsleep 3\nexec "%s" "$@"\n' "$PSD" >bin/psd && chmod +x bin/psd || return 1
    ends_wrong 66 none.yaml
    local failed=$?
    ln -sf "$PSD" bin/psd
    return $failed
}
ok "a job file that is not there, with 66" slow_psd
ps_tasks=3 ok "more servers than nodes, with 64" ends_wrong 64 async.yaml
too_many() {
    SLURM_JOB_ID=1 SLURM_NTASKS_PER_NODE=16 fails_with 64 "--ntasks-per-node is 16, but a node has ports for 15 workers" bash "$sbatch" async.yaml
}
ok "more workers than ports, with 64" too_many

# ---- ended from outside ---------------------------------------------------------------------------------------------

backup() { echo "callbacks=[{name: backup, path: $1, every_seconds: 3600}]"; }
# Two steps are over: of the first one each worker can leave a backup.
has_stepped() { psctl --timeout 60 --cluster "paramserver-$1/cluster.yaml" --json jobs 2>/dev/null | grep -qE '"steps": ([2-9]|[0-9]{2,})'; }
trains() { eventually has_stepped "$1" || { cat "$1.out"; return 1; }; }

is_cancelled() {
    submit --nodes 3 -- sync.yaml "${long[@]}" --set "$(backup cancelled)" --set output=cancelled.safetensors && trains "$id" || return 1
    local start=$SECONDS
    scancel "$id"
    eventually is_gone "$id"
    echo "gone after $((SECONDS - start)) s"
    cat "$id.out" "paramserver-$id"/*.log
    [ $((SECONDS - start)) -le 25 ] && has "$id" JobState=CANCELLED && ls cancelled/*.safetensors && [ -s cancelled.safetensors ]
}
ok "scancel ends a job within 25 s; a backup and the weights are left" is_cancelled
stays_cancelled() { sleep 5 && has "$id" JobState=CANCELLED && has "$id" Restarts=0; }
ok "it is not queued again" stays_cancelled

# What Slurm does a minute before the time limit.
is_warned() {
    submit --nodes 3 -- sync.yaml "${long[@]}" --set steps=1000 --set "$(backup warned)" --set output=warned.safetensors && trains "$id" || return 1
    scancel --batch --signal=TERM "$id"
    eventually_has "$id" Restarts=1 && eventually eval 'ls warned/*.safetensors' && eventually_has "$id" JobState=PENDING || return 1
    eventually test ! -e "paramserver-$id/tls" && mkdir "paramserver-$id/tls" && echo left >"paramserver-$id/tls/worker.pem" || return 1 # by a script that was killed
    scontrol update job "$id" NumNodes=2-2 NumTasks=2 NumCPUs=2
}
ok "a job that is told of its time limit writes a backup and is queued again" is_warned
# goes_on NAME: the last job, from its backup, which was all that it had, to the end.
goes_on() {
    ends_with "$id" 0 || return 1
    has "$id" Restarts=1 && [ -s "$1.safetensors" ] && grep -q "goes on from $1/" "$id.out"
}
goes_on_with_two() { goes_on warned && layout && [ "$(layout)" = "ps:n1:P worker:n1:Q n2:Q tls:tls1" ]; }
ok "and goes on from it, on two nodes" goes_on_with_two
ok "no start of it has left certificates" no_certificates

# By bash of POSIX, with scancel for jobs that wait alone, and srun for seven minutes.
whatever_is_set() {
    POSIXLY_CORRECT=1 SCANCEL_STATE=PENDING SLURM_TIMELIMIT=7 submit --nodes 2 -- sync.yaml "${long[@]}" --set steps=1000 \
        --set "$(backup set)" --set output=set.safetensors && trains "$id" || return 1
    scontrol show step "$id" | tee steps
    grep -q StepId steps && ! grep -q TimeLimit=00:07:00 steps || return 1
    scancel --batch --signal=TERM "$id"
    eventually_has "$id" Restarts=1 && goes_on set
}
ok "so does one of a user whose environment says much" whatever_is_set

does_not_begin_anew() {
    sed "s|^model: .*|model: $examples/softmax/model.json # callbacks: [{name: backup}]|" "$examples/softmax/sync.yaml" >anew.yaml
    submit --nodes 2 -- "$PWD/anew.yaml" "${long[@]}" --set output=anew.safetensors && trains "$id" || return 1
    scancel --batch --signal=TERM "$id"
    ends_with "$id" 143 && has "$id" Restarts=0 && grep "it has no callback backup" "$id.out" && [ -s anew.safetensors ]
}
ok "one without a backup ends, for it would begin anew" does_not_begin_anew
is_not_queued() {
    submit --nodes 2 --no-requeue -- sync.yaml "${long[@]}" --set "$(backup refused)" --set output=refused.safetensors && trains "$id" || return 1
    scancel --batch --signal=TERM "$id"
    ends_with "$id" 143 && grep "the training was cut short; Slurm does not queue its job again" "$id.out" && ! grep "job is queued again" "$id.out" &&
        ls refused/*.safetensors
}
ok "one that may not be queued again says so" is_not_queued

# In a job slurmctld does not answer as many questions after the job as the file "deaf" says.
cat >bin/scontrol <<SH
#!/bin/bash
left=\$(cat "$scratch/deaf" 2>/dev/null)
if [ -n "\${SLURM_JOB_ID:-}" ] && [[ \$* == *"show job"* ]] && [ "\${left:-0}" -gt 0 ]; then
    echo \$((left - 1)) >"$scratch/deaf"
    echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
fi
exec "$(command -v scontrol)" "\$@"
SH
chmod +x bin/scontrol
is_warned_while_deaf() { # ANSWERS NAME: those that fail
    submit --nodes 2 -- sync.yaml "${long[@]}" --set "$(backup "$2")" --set output="$2.safetensors" && trains "$id" || return 1
    echo "$1" >deaf
    scancel --batch --signal=TERM "$id"
}
asks_again() {
    is_warned_while_deaf 2 hears && eventually_has "$id" Restarts=1 && ls hears/*.safetensors && [ "$(cat deaf)" = 0 ] && scancel "$id"
}
ok "where slurmctld does not answer at once, it is asked again" asks_again
is_never_heard() {
    is_warned_while_deaf 1000 never && ends_with "$id" 143 && rm deaf && has "$id" Restarts=0 && ls never/*.safetensors &&
        grep "the training was cut short, and Slurm cannot be asked: submit it anew" "$id.out"
}
ok "where it does not answer at all, the workers are told, and it is said" is_never_heard
rm -f deaf bin/scontrol

# Asked while it sends the signal, Slurm says that: here, when the job asks first.
is_signalled() {
    cat >bin/scontrol <<SH
#!/bin/bash
set -o pipefail
[ -n "\${SLURM_JOB_ID:-}" ] && [[ \$* == *"show job"* ]] && rm "$scratch/first" 2>/dev/null || exec "$real_scontrol" "\$@"
"$real_scontrol" "\$@" | sed 's/ JobState=RUNNING / JobState=SIGNALING /'
SH
    chmod +x bin/scontrol
    submit --nodes 2 -- sync.yaml "${long[@]}" --set "$(backup signalled)" --set output=signalled.safetensors && trains "$id" || return 1
    touch first
    scancel --batch --signal=TERM "$id"
    eventually_has "$id" Restarts=1 && ls signalled/*.safetensors && [ ! -e first ] && scancel "$id"
}
real_scontrol=$(command -v scontrol)
ok "where Slurm is still sending the signal, too" is_signalled
rm bin/scontrol

# One task of an array has the array's number: what it does is for itself alone.
array_task_alone() {
    local task other
    submit --nodes 1 --array 0-1 --output %A_%a.out -- sync.yaml "${long[@]}" --set steps=1500 --set "$(backup array-%a)" \
        --set output=array-%a.safetensors && trains "${id}_0" && trains "${id}_1" || return 1
    task=$(scontrol --oneliner show job "$id" | sed -nE "s/^JobId=$id .* ArrayTaskId=([01]) .*/\1/p")
    other=$((1 - task))
    scancel --batch --signal=TERM "${id}_$task"
    eventually_has "${id}_$task" Restarts=1 && ls "array-$task"/*.safetensors && scancel "${id}_$task" || return 1
    ends_with "${id}_$other" 0 && has "${id}_$other" Restarts=0 && [ -s "array-$other.safetensors" ]
}
ok "of an array the task that is told to end is queued again, and no other" array_task_alone
inherits_array() {
    SLURM_ARRAY_JOB_ID=$id SLURM_ARRAY_TASK_ID=1 submit --nodes 1 -- async.yaml --set output=inner-%a.safetensors &&
        ends_with "$id" 0 && [ -s inner-%a.safetensors ] && [ -s "paramserver-$id/cluster.yaml" ]
}
in_their_folders() { [ -s "paramserver-${id}_0/cluster.yaml" ] && [ -s "paramserver-${id}_1/cluster.yaml" ]; }
ok "each of its tasks has a folder with its number" in_their_folders
ok "a job that a task of an array queues is none of its tasks" inherits_array

is_preempted() { # PARTITION
    submit --nodes 3 --partition "$1" --exclusive -- sync.yaml "${long[@]}" --set steps=1000 --set "$(backup "$1")" --set output="$1.safetensors" && trains "$id" || return 1
    sbatch --nodes 3 --partition urgent --exclusive --output /dev/null --wrap 'sleep 1'
    # Slurm counts the restart before the workers have ended.
    eventually_has "$id" Restarts=1 && cat "$id.out" && eventually eval "ls $1/*.safetensors"
}
SLURM_TIME_FORMAT=%A ok "a job that is pre-empted with grace writes a backup" is_preempted graceful
ok "and goes on from it" goes_on graceful
ok "so does one that is pre-empted without grace" is_preempted main
ok "and goes on from it" goes_on main

# ---- a node dies ----------------------------------------------------------------------------------------------------

on_node() { grep -slz "^SLURMD_NODENAME=$1\$" /proc/[0-9]*/environ | cut -d/ -f3; }
node_dies() {
    echo SlurmdTimeout=10 >>slurm.conf # not before: elsewhere a node of a busy machine may be silent
    scontrol reconfigure || return 1
    submit --nodes 2 -- sync.yaml "${long[@]}" --set steps=1000 --set "callbacks=[{name: backup, path: dies, every_steps: 20}]" \
        --set strategy.min_workers=2 --set timeout=200 --set output=dies.safetensors && trains "$id" && eventually eval 'ls dies/*.safetensors' || { cat "$id.out"; return 1; }
    local victim
    victim=$(scontrol --oneliner show job "$id" | sed -nE 's/.* NodeList=(\S+) .*/\1/p')
    victim=$(scontrol show hostnames "$victim" | tail -n 1)
    kill -KILL "$(cat "$victim.pid")"
    pkill -KILL -P "$(cat "$victim.pid")"
    # shellcheck disable=SC2046
    kill -KILL $(on_node "$victim")
    eventually_has "$id" Restarts=1
}
ok "a node dies in the middle: its job is queued again" node_dies
ok "and goes on from its backup on the others" goes_on dies
