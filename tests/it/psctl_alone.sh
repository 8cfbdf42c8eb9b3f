#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psctl without a cluster: its help and completion, what it checks and plans, and how it calls sbatch.
. "$top_srcdir/tests/it/lib.sh" || exit 1
. "$top_srcdir/tests/it/psctl_says.sh" || exit 1
cd "$scratch" || exit 1

# ---- help and completion ------------------------------------------------------------------------------------------

commands=$("$psctl" help | sed -nE 's/^  (([a-z][a-z-]*, )*[a-z][a-z-]*) .*/\1/p' | sed 's/, / /g')
fits() { # a screen of 80 x 24
    local c
    [ "$(wc -w <<<"$commands")" -ge 25 ] || return 1
    for c in '' $commands; do
        "$psctl" help $c >help.out || return 1
        awk -v c="$c" 'length($0) > 80 { print c ": " $0; bad = 1 } END { if (NR > 24) { print c, NR; bad = 1 } exit bad }' help.out ||
            return 1
    done
}
ok "every command's help fits a screen" fits
stands_apart() { # what a command is for, from what it takes
    "$psctl" help >help.out && ! grep '^  [a-z]' help.out | grep -vE '^  [a-z].{8,}  [^ ]'
}
ok "summaries stand apart from operands" stands_apart
is_written() { # which take no cluster: in psctl(1) those that take --json stand before it, the others behind it
    local c said wrote text before
    text=$(sed -n '/^The commands that ask a cluster take all/,/^\.TP/p' "$top_srcdir/tools/psctl.1" | tr -d '\\')
    before=${text%%--json*}
    for c in $commands cheat; do
        said=$("$psctl" help "$c")
        case $said in
            *--cluster*) said= ;;
            *--json*) said=json ;;
            *) said=none ;;
        esac
        grep -qE "^\.BR? $c( ,)?$" <<<"$before" && wrote=json || { grep -qE "^\.BR? $c( ,)?$" <<<"$text" && wrote=none || wrote=; }
        [ "$said" = "$wrote" ] || { echo "$c: '$said' says psctl help, '$wrote' psctl(1)"; return 1; }
    done
}
ok "which commands take --json is as psctl(1) says" is_written
ok "help of a command that is not there" fails_with 64 "did you mean drain?" "$psctl" help drian
cheats() { # one screen, of commands that there are
    "$psctl" cheat >cheat.out && [ "$(wc -l <cheat.out)" -ge 20 ] && [ "$(wc -l <cheat.out)" -le 24 ] &&
        awk 'length($0) > 80 { print; exit 1 }' cheat.out || return 1
    local c
    for c in $(sed -nE 's/.*psctl ([a-z-]+).*/\1/p' cheat.out); do "$psctl" help "$c" || return 1; done
}
ok "the cheat sheet fits a screen and names commands that there are" cheats
ok "what is near nothing" lacks "did you mean" "$psctl" foo
for c in status jobs run "get still"; do ok "$c: an empty name" fails_with 64 "an argument is empty; usage: psctl ${c% *} " "$psctl" $c ''; done
ok "no command: the help" fails_with 64 "usage: psctl [OPTIONS] COMMAND" "$psctl"
ok "help has no options, and does not say so" says "usage: psctl help [COMMAND]" "$psctl" help help

complete_line() { # WORD ...: what the last of them may become
    (
        . "$top_srcdir/tools/psctl/psctl.bash"
        compopt() { :; }
        COMP_LINE="psctl $*"
        COMP_POINT=${#COMP_LINE}
        _psctl "$psctl"
        printf '%s\n' "${COMPREPLY[@]}"
    )
}
completes() { # EXPECTED WORD ...
    local expected=$1
    shift
    complete_line "$@" | tee said
    [ "$(sort said | tr '\n' ' ')" = "$expected" ]
}
ok "completion of a command" completes "workers " wo
ok "completion of commands" completes "save set set-lr set-mode shards slurm status stop submit " s
ok "completion of a command after options" completes "doctor " --ps a:1 do
ok "completion of options" completes "--timeout " drain --ti
ok "completion of a command's own options" completes "--undo " drain --un
ok "completion of options of no other program" completes "--cluster --help --json --munge --ps --timeout --tls " save --

# ---- check-build --------------------------------------------------------------------------------------------------

ok "check-build: what there is" says "[x] strategies" "$psctl" check-build
ok "check-build: fits 80 columns" eval '! grep -E "^.{81}" said'
ok "check-build: the devices are those of workerd" \
    grep -qF "[x] cpu            $("$workerd" --list-devices | sed -n 's/^cpu  *//p')" said
ok "check-build: the version" grep -qF "version $("$workerd" --version | cut -d' ' -f2)" said
ok "check-build: no GPU, and why" env PARAMSERVER_CUDA_MODULE=/nowhere/cuda.so \
    bash -c '"$0" check-build | tr -s " \n" " " | grep -F "[ ] gpu there is no CUDA module /nowhere/cuda.so: expected workerd built with"' "$psctl"
ok "check-build --json" is_json "$psctl" check-build --json
ok "check-build --json: the same facts" test "$(grep -c '"has"' json.out)" = "$(grep -c '^\[' said)"
few_files() { (ulimit -n 1000 && "$psctl" check-build >few && grep -F "[ ] open files     1000, and as many as 1000" few); }
ok "check-build: too few open files are no error" few_files
ok "check-build: what to do about them" grep -qF "LimitNOFILE=" few
ok "check-build: no workerd" fails_with 66 '$WORKERD is /nowhere, which is no program' env WORKERD=/nowhere "$psctl" check-build
ok "check-build: another program" fails_with 78 "expected the workerd of this psctl's version" \
    env WORKERD=/bin/true "$psctl" check-build
ok "check-build asks no cluster" fails_with 64 "it asks no cluster" "$psctl" --ps a:1 check-build
ok "completion of check-build" completes "check-build " check-

# ---- verify -------------------------------------------------------------------------------------------------------

mkdir empty
ok "verify --json of a folder without checkpoints" fails_with 66 "has no checkpoints" "$psctl" verify empty --json
ok "verify --json: an empty list" grep -qxF "[]" said
mkdir kept
cp "$top_srcdir/tests/golden/keras/tiny_conv.safetensors" kept
ok "verify of a folder of weights alone" fails_with 66 "kept: has no checkpoints" "$psctl" verify kept
keeps() {
    "$workerd" --job "$examples/softmax/one_device.yaml" --quiet --set data.train_examples=64 --set data.test_examples=64 --set epochs=1 \
        --set "callbacks=[{name: checkpoint, path: kept}]" --set output=kept/out.safetensors
}
ok "weights beside a checkpoint are no fault" eval 'keeps && says "out.safetensors" "$psctl" verify kept'
ok "which their verdict says" grep -q "tiny_conv.* has no checksums: it is no checkpoint" said
ok "verify of weights by their name" fails_with 65 "has no checksums: expected a checkpoint" "$psctl" verify kept/out.safetensors
sed -i 's|paramserver/checksums|paramserver/checksumz|' kept/*-0*.safetensors
ok "a checkpoint without checksums is no weights" fails_with 65 "has no checksums: expected a checkpoint" "$psctl" verify kept

# ---- plan ---------------------------------------------------------------------------------------------------------

needs() { "$psctl" plan --json "$@" | sed -nE 's/.*"needed_bytes": ([0-9]+).*/\1/p'; }
plan_args=(--ps 1 --workers 3 "$examples/conv/sync.yaml" --set strategy.name=parameter_server --set strategy.update=sync)
ok "plan" says "rounds" "$psctl" plan "${plan_args[@]}"
ok "plan without --vars does not name them" lacks "kernel" "$psctl" plan "${plan_args[@]}"
ok "plan --vars" says "conv2d/kernel" "$psctl" plan --vars "${plan_args[@]}"
ok "plan --json" is_json "$psctl" plan --json "${plan_args[@]}"
needed=$(needs "${plan_args[@]}")
# Of so little memory psd keeps half for blocks.
ok "plan: the memory that it needs is enough" says "left" "$psctl" plan --memory $((needed * 2 + 16)) "${plan_args[@]}"
ok "plan: but not for sharded checkpoints beside the training" says "a sharded checkpoint needs" "$psctl" plan --memory $((needed * 2 + 16)) "${plan_args[@]}" \
    --set "callbacks=[{name: checkpoint, path: ck, sharded: true}]"
ok "plan: less is not" fails_with 71 "are missing" "$psctl" plan --memory "$((needed * 2 - 16))" "${plan_args[@]}"
ok "plan: an imbalance is said" says " times the mean" "$psctl" plan "${plan_args[@]}" --ps 2
ok "plan: not one that no partitioner changes" lacks " times the mean" "$psctl" plan --ps 8 --workers 1024 "$examples/softmax/async.yaml"
one_device=("$examples/mnist-cnn/one_device.yaml")
ok "plan of a one_device job" says "needs no ps task" "$psctl" plan "${one_device[@]}"
no_ps() { "$psctl" plan --vars "${one_device[@]}" >said 2>&1 && cat said && ! grep -qw "psd\|ps:0\|rounds" said; }
ok "which speaks of none" no_ps
# Keras's MNIST convnet: 121,930 parameters; adam keeps two slots of each.
ok "its memory" says '"total_bytes": 1950880' "$psctl" plan --json "${one_device[@]}"
ok "its memory is no psd's" fails_with 64 "this job has none" "$psctl" plan --memory 1G "${one_device[@]}"
ok "plan: --memory that is none" fails_with 64 "such as 512M" "$psctl" plan --memory much "${plan_args[@]}"
ok "plan: --memory that psd does not take" fails_with 64 "--memory 1M: expected at least 4M" "$psctl" plan --memory 1M "${plan_args[@]}"
ok "plan of a folder" fails_with 66 "cannot read $scratch" "$psctl" plan "$scratch"

# What plan says is no less than what psd asks for, and hardly more. A psd refuses a job whose memory it does not have,
# and names the number.
as_psd_says() {
    local asked planned
    start_psd tight --memory 4M || return 1
    # It asks for a second, again and again; whose last attempt is not answered by then does not know the number.
    asks() {
        "$workerd" --job "$examples/conv/sync.yaml" --set strategy.name=parameter_server --set strategy.update=sync \
            --set timeout=1 --set data.train_examples=64 --set data.test_examples=64 --workers 1 --ps "unix:$scratch/tight" --quiet 2>&1 | tee said
        asked=$(sed -nE 's/.* need ([0-9]+) bytes.*/\1/p' said)
        [ "$asked" ]
    }
    eventually asks
    kill -TERM "$psd_pid"
    grep "W job 'conv' is refused: declare: ps task 0 would need $asked bytes" tight.log || { cat tight.log; return 1; }
    planned=$(needs "${plan_args[@]}" --workers 1)
    echo "psd asks for $asked, psctl plan says $planned"
    [ "$planned" -ge "$asked" ] && [ "$planned" -le $((asked + asked / 50 + 16384)) ]
}
ok "plan's number is psd's" as_psd_says

ok "plan asks no cluster" fails_with 64 "--cluster before plan does not go with it" "$psctl" --cluster x plan "${plan_args[@]}"
ok "run asks no cluster" fails_with 64 "--cluster before run does not go with it" "$psctl" --cluster x run x.yaml
ok "run shows no tables" fails_with 64 "--json before run does not go with it" "$psctl" --json run x.yaml
ok "plan does" is_json "$psctl" --json plan "${plan_args[@]}"
ok "PSCTL_CLUSTER is no option" says "rounds" env PSCTL_CLUSTER=x "$psctl" plan "${plan_args[@]}"

# ---- slurm ----------------------------------------------------------------------------------------------------------

# An sbatch that says how it was called, a word in a line, and gives the job the number 17 of another cluster.
mkdir bin
cat >bin/sbatch <<'SH'
#!/bin/sh
printf '%s\n' "$@" >called
env | grep "^SLURM_" >inherited
echo "17;far"
exit "${SBATCH_EXIT:-0}"
SH
chmod +x bin/sbatch
script=$top_srcdir/deploy/slurm/paramserver.sbatch
slurm() { env PATH="$PWD/bin:$PATH" "$psctl" slurm --script "$script" "$@"; }
# calls EXPECTED OPTION ...: psctl slurm calls sbatch with these words, of which those of the end are "script" and so on.
calls() {
    local expected=$1
    shift
    slurm "$@" && tr '\n' ' ' <called | sed "s,$top_srcdir,TOP,g; s, TOP/deploy/slurm/paramserver.sbatch, SCRIPT," | tee said
    [ "$(cat said)" = "$expected " ]
}
job=TOP/deploy/examples
async=$examples/softmax/async.yaml
ok "slurm: a node and a server" calls "--parsable --nodes=1 --job-name softmax SCRIPT --ps-tasks 1 $job/softmax/async.yaml" "$async"
ok "slurm: what is said" says "job 17; what" slurm "$async"
ok "slurm: what to type next" eval 'grep -qx "  squeue --jobs 17 --clusters far" said && grep -q "^  psctl status --cluster paramserver-17/cluster.yaml " said'
ok "slurm: an array" says "paramserver-17_TASK/cluster.yaml    # once the array's task TASK runs" slurm "$async" -- --array=0-1
ok "slurm: an array by its letter" says "paramserver-17_TASK/cluster.yaml " slurm "$async" -- -a 0-1
ok "slurm: an array by the environment" says "paramserver-17_TASK/cluster.yaml " env SBATCH_ARRAY_INX=0-1 PATH="$PWD/bin:$PATH" \
    "$psctl" slurm --script "$script" "$async"
inherits() { SLURM_CONF=c SLURM_JOB_ID=1 SLURM_MEM_PER_NODE=5 SLURM_NTASKS=2 slurm "$async" && cat inherited && [ "$(cat inherited)" = SLURM_CONF=c ]; }
ok "slurm: a job that is queued inside another one inherits nothing of it" inherits
# What each task has in place of %a is what is checked; sbatch has it as it was said.
of_task="--set output=%a.safetensors --set seed=%a --set name=x-%a --set optimizer.learning_rate=0.%a"
for array in "--array=3-4" "--array 3-4" "-a 3-4" "-a3-4"; do
    # shellcheck disable=SC2086
    ok "slurm: the number of a task, with $array" calls \
        "--parsable --nodes=1 --job-name x-3 $array SCRIPT --ps-tasks 1 $job/softmax/async.yaml $of_task" "$async" $of_task -- $array
done
ok "slurm: a wrong job of a task" fails_with 65 "epochs must be" slurm "$async" --set epochs=x%a -- --array=0-1
of_each="callbacks=[{name: backup, path: b-%a, sharded: true}]"
ok "slurm: servers that write each task's checkpoints" calls \
    "--parsable --nodes=1 --job-name softmax --array=0-1 SCRIPT --ps-tasks 1 --checkpoints b-%a $job/softmax/async.yaml --set $of_each" \
    "$async" --set "$of_each" -- --array=0-1
ok "slurm: nodes, servers, cores" calls \
    "--parsable --nodes=3 --job-name mine --cpus-per-task=4 SCRIPT --ps-tasks 2 $job/softmax/async.yaml --set threads=4 --set name=mine" \
    "$async" -N 3 --ps-tasks 2 --set threads=4 --set name=mine
ok "slurm: munge" calls "--parsable --nodes=1 --job-name softmax SCRIPT --ps-tasks 1 --munge $job/softmax/async.yaml" --munge "$async"
sharded="callbacks=[{name: backup, path: b, sharded: true}]"
ok "slurm: servers that write their part of checkpoints" calls \
    "--parsable --nodes=1 --job-name softmax SCRIPT --ps-tasks 1 --checkpoints b $job/softmax/async.yaml --set $sharded" "$async" --set "$sharded"
ok "slurm: nodes for the servers" calls "--parsable --nodes=2 --job-name softmax SCRIPT --ps-tasks 2 $job/softmax/async.yaml" --ps-tasks 2 "$async"
ok "slurm: options of sbatch" calls "--parsable --nodes=1 --job-name softmax --time 5 --comment it's \$HOME  SCRIPT --ps-tasks 1 $job/softmax/async.yaml" \
    "$async" -- --time 5 --comment "it's \$HOME" ""
ok "slurm: a GPU" calls "--parsable --nodes=1 --job-name softmax --gpus-per-task=1 SCRIPT --ps-tasks 1 $job/softmax/async.yaml --set device=gpu" \
    "$async" --set device=gpu
ok "slurm: a GPU by its other name" calls "--parsable --nodes=1 --job-name softmax --gpus-per-task=1 SCRIPT --ps-tasks 1 $job/softmax/async.yaml --set device=cuda" \
    "$async" --set device=cuda
ok "slurm: two GPUs" calls \
    "--parsable --nodes=1 --job-name softmax --cpus-per-task=2 --gpus-per-task=2 SCRIPT --ps-tasks 0 $job/softmax/mirrored.yaml --set strategy.devices=[gpu:0,gpu:1]" \
    "$examples/softmax/mirrored.yaml" --set "strategy.devices=[gpu:0,gpu:1]"
ok "slurm: workers without servers" calls "--parsable --nodes=3 --job-name softmax SCRIPT --ps-tasks 0 $job/softmax/multi_worker_mirrored.yaml" \
    "$examples/softmax/multi_worker_mirrored.yaml" --nodes 3
ok "slurm: without servers there is no status" lacks status slurm "$examples/softmax/multi_worker_mirrored.yaml"
ok "slurm: one process" says "has one worker: --nodes 3 is not used" slurm --dry-run -N 3 "$examples/softmax/one_device.yaml"
ok "slurm: without servers" says "has no ps tasks: --ps-tasks 2 is not used" slurm --dry-run --ps-tasks 2 "$examples/softmax/one_device.yaml"
shown() { rm called && slurm --dry-run "$async" -N 2 --set threads=2 -- --comment "it's" >shown && cat shown && [ ! -e called ]; }
ok "slurm --dry-run calls nobody" shown
is_run() { PATH=$PWD/bin:$PATH sh shown && mv called of_shown && slurm "$async" -N 2 --set threads=2 -- --comment "it's" && cmp called of_shown; }
ok "slurm --dry-run: what it shows is what is run" is_run
refuses() { rm -f called && fails_with "$@" && [ ! -e called ]; } # CODE TEXT COMMAND ...
printf 'model: m.json\nloss: mse\nepochs: never\noptimizer: sgd\ndata: {kind: synthetic-digits}\n' >wrong.yaml
ok "slurm: a wrong job is not queued" refuses 65 "wrong.yaml:3: epochs must be" slurm wrong.yaml
ok "slurm: a job that is not there" refuses 66 none.yaml slurm none.yaml
ok "slurm: more servers than nodes" refuses 64 "each server needs a node" slurm -N 2 --ps-tasks 3 "$async"
ok "slurm: options of sbatch without --" refuses 64 "unknown option --time" slurm "$async" --time 5
three="$examples/softmax/sync.yaml --set strategy.min_workers=3"
few="the job needs 3 workers (strategy.min_workers), and is to have 2: give --nodes"
# shellcheck disable=SC2086
for more in "" "-- --time 5" "-- --ntasks-per-node=1" "-- --no-requeue"; do
    ok "slurm: fewer workers than the job needs, and ${more:-no more}" refuses 65 "$few" slurm $three -N 2 $more
    ok "slurm: nor are they shown" refuses 65 "$few" slurm --dry-run $three -N 2 $more
done
# shellcheck disable=SC2086
for more in "-N 3" "-N 2 -- --ntasks-per-node=2" "-N 2 -- --ntasks 4" "-N 2 -- -n4" "-- --nodes 3-4" "-- -N4"; do
    ok "slurm: as many as it needs, by $more" says --ps-tasks slurm --dry-run $three $more
done
printf '#!/bin/sh\n#SBATCH --ntasks-per-node=2\n' >two_each.sbatch
# shellcheck disable=SC2086
ok "slurm: or by the script itself" says --ps-tasks "$psctl" slurm --dry-run --script two_each.sbatch $three -N 2
printf '#!/bin/sh\n#SBATCH --nodes=3\n' >three.sbatch
# shellcheck disable=SC2086
ok "slurm: not by its nodes, for psctl's own count" refuses 65 "$few" slurm --dry-run --script three.sbatch $three -N 2
looks() { says "psctl: $PWD/none.safetensors cannot be read here: the workers look for it" "$@" && grep -qF "psctl: $PWD/none, where the output goes, is not here: worker 0 needs it" said; }
ok "slurm: what is not here is said" looks slurm --dry-run "$async" --set weights=none.safetensors --set output=none/%a.safetensors
ok "slurm: and nothing of the rest" lacks psctl: slurm --dry-run "$async"
ok "slurm: a script that is not there" refuses 66 "cannot read none.sbatch" slurm --script none.sbatch "$async"
ok "slurm: no sbatch" fails_with 69 "there is no sbatch on PATH" env PATH=/nowhere "$psctl" slurm --script "$script" "$async"
ok "slurm: a job that sbatch waits for, and fails" fails_with 3 "job 17" env SBATCH_EXIT=3 PATH="$PWD/bin:$PATH" "$psctl" slurm --script "$script" "$async"
printf '#!/bin/sh\necho "sbatch: error: no such partition" >&2\nexit 1\n' >bin/sbatch
ok "slurm: sbatch refuses" fails_with 78 "has not queued $async, and ended with exit code 1" slurm "$async"
ok "slurm: and says why" grep -qx "sbatch: error: no such partition" said
ok "slurm asks no cluster" fails_with 64 "--cluster before slurm does not go with it" "$psctl" --cluster x slurm "$async"
