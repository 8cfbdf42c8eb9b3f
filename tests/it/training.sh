#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Around a training, from the outside: killed and resumed, stopped by a signal, looked at without training.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

cp "$examples/softmax/model.json" .
{
    sed 's|^strategy:.*|strategy: {name: one_device}|; s|^optimizer:.*|optimizer: {name: adam}|' "$examples/softmax/async.yaml"
    echo 'callbacks: [{name: csv_log, path: log.csv}, {name: checkpoint, path: ck/deep, every_steps: 1, keep: 2}]'
} >job.yaml
quick+=(--set epochs=10)
trains() { timeout 600 "$workerd" --job job.yaml "${quick[@]}" "$@"; }
# In the background, as a process that signals reach.
begins() {
    rm -f begun.log # of the one before
    "$workerd" --job job.yaml "${quick[@]}" "$@" >begun.log 2>&1 &
    pid=$!
}
newest() { find ck/deep -name '*.safetensors' | sort | tail -n 1; }
reached() { [ "$(find ck/deep -name "softmax-*.safetensors" 2>/dev/null | sort | tail -n 1)" \> "ck/deep/softmax-$1" ]; }

ok "a training nobody interrupts" trains --set output=whole.safetensors
mv log.csv whole.csv
rm -r ck

begins --set output=part.safetensors
ok "reaches its 13th step" eventually reached 0000000013
kill -KILL $pid
wait $pid
touch ck/deep/softmax-0000000001.safetensors.0123456789abcdef.tmp ck/deep/softmax-1.tmp
touch -d '2 days ago' {part.safetensors,part.json,others.json}.0123456789abcdef.tmp
touch part.safetensors.abcdef0123456789.tmp
ok "is killed, and goes on" trains --set output=part.safetensors --summary part.json --resume
ok "to the same bytes" cmp whole.safetensors part.safetensors
ok "and the same log" cmp whole.csv log.csv
ok "nothing of it is left half written" eval 'test "$(find ck -name "*.tmp")" = ck/deep/softmax-1.tmp'
ok "nor what trainings that were killed in their last moment have left, where nobody writes it any more" eval \
    'test "$(ls *.tmp)" = "$(printf "%s\n" others.json.0123456789abcdef.tmp part.safetensors.abcdef0123456789.tmp)"'
rm ./*.tmp
rm -r ck

begins --set epochs=100000 --set output=part.safetensors
ok "reaches its 5th step" eventually reached 0000000005
kill -INT $pid
wait $pid
ok "SIGINT: exit 130" test $? = 130
ok "says where the weights are" grep -q 'stopped by SIGINT after step [0-9]*; the weights are in part.safetensors' begun.log
ok "and they are" trains --evaluate --set weights=part.safetensors

hung_up() { # as when its terminal is closed
    local code=0
    begins --set epochs=100000 --set 'callbacks=[{name: backup, path: hung, every_seconds: 3600}]' --set output=hung.safetensors
    eventually grep -qs "^Epoch 2" begun.log && kill -HUP $pid
    wait $pid || code=$?
    cat begun.log
    [ $code = 129 ] && grep 'stopped by SIGHUP after step [0-9]*; the weights are in hung.safetensors; started again, it goes on from step' begun.log && [ -s hung.safetensors ] &&
        find hung -name '*.safetensors' | grep .
}
ok "SIGHUP: exit 129, and weights and a backup are kept" hung_up
spared() { # as nohup starts it
    local code=0
    rm -f begun.log # else it may hear the signal before it ignores it
    (trap '' HUP && exec "$workerd" --job job.yaml "${quick[@]}" --set 'callbacks=[]' --set output=spared.safetensors) >begun.log 2>&1 &
    pid=$!
    eventually grep -qs "^Epoch 2" begun.log && kill -HUP $pid
    wait $pid || code=$?
    cat begun.log
    [ $code = 0 ] && [ -s spared.safetensors ]
}
ok "SIGHUP that it was started to ignore: it goes on" spared

# A thread that computes has no room for a signal's frame: HUP, INT, USR1 and TERM are blocked, SIGPROF and SIGSEGV not,
# but in one thread, which is not the main one.
deaf() {
    local task blocked n=0 bad=0 takers=0
    begins --set epochs=100000 --set 'callbacks=[]' --set 'strategy={name: mirrored, devices: [cpu:0, cpu:1]}' \
        --set output=deaf.safetensors
    eventually grep -qs "^Epoch 2" begun.log
    for task in /proc/$pid/task/*; do
        blocked=$(sed -n 's/^SigBlk:[[:space:]]*//p' "$task/status")
        [ -n "$blocked" ] || continue # it has ended
        blocked=$((16#$blocked))
        n=$((n + 1))
        if [ $blocked = 0 ] && [ "${task##*/}" != $pid ]; then
            takers=$((takers + 1))
            continue
        fi
        (((blocked & 0x4203) == 0x4203 && (blocked & 0x4000400) == 0)) || bad=$((bad + 1))
    done
    kill -TERM $pid
    wait $pid
    echo "# $bad of $n threads that compute take signals, and $takers others"
    [ $n -ge 3 ] && [ $bad = 0 ] && [ $takers = 1 ]
}
ok "one thread takes signals, which does not compute" deaf

# What the training waits for in the kernel a signal ends: a pipe that nobody reads, and a sleep.
ends_on_term() { # CODE COMMAND ...: pid is a worker's, which COMMAND finds waiting
    local code=0 killer want=$1
    shift
    eventually "$@" && sleep 1 && kill -TERM $pid
    (sleep 40 && kill -KILL $pid) &
    killer=$!
    wait $pid || code=$?
    kill $killer
    wait $killer
    cat begun.log
    [ $code = "$want" ]
}
unread() {
    mkfifo unread
    begins --set 'callbacks=[{name: csv_log, path: opened.csv}, {name: json_lines, path: unread}]' --set output=unread.safetensors
    ends_on_term 73 test -e opened.csv
}
ok "SIGTERM while a pipe is opened that nobody reads" unread
asleep() {
    start_psd asleep || return 1
    begins --set strategy.name=parameter_server --ps "unix:$scratch/asleep" --set delay_ms=60000 --set 'callbacks=[]' --set output=asleep.safetensors
    lives() { timeout 20 "$psctl" --ps "unix:$scratch/asleep" workers softmax | grep -q " live "; }
    ends_on_term 143 lives && ! grep "is dead" "$scratch/asleep.log"
}
ok "SIGTERM while a worker sleeps" asleep
kill $psd_pid

# What is opened does not take the number of a standard descriptor that is closed, and get what is written there.
closed() {
    local fd code=0
    rm -rf closed-ck
    "$workerd" --job job.yaml "${quick[@]}" --set epochs=100000 --set output=closed.safetensors \
        --set 'callbacks=[{name: checkpoint, path: closed-ck, every_steps: 1, keep: 2}]' <&- >&- 2>&- &
    pid=$!
    eventually eval "ls closed-ck/softmax-*.safetensors"
    for fd in 1 2; do [ "$(readlink /proc/$pid/fd/$fd)" = /dev/null ] || code=1; done
    ls -l /proc/$pid/fd
    kill -TERM $pid
    wait $pid
    return $code
}
ok "started with its standard descriptors closed, it writes to no other file" closed

# What data are read from may be slow: a signal ends that at once. Who opens a pipe for writing waits for its reader.
mkfifo pipe.csv
"$workerd" --job job.yaml --set 'data={kind: csv, path: pipe.csv}' --set 'callbacks=[]' >read.log 2>&1 &
pid=$!
exec 4>pipe.csv
kill -TERM $pid
wait $pid
code=$?
ok "SIGTERM while data are read: exit 143, and nothing said" eval 'test $code = 143 && test ! -s read.log'
exec 4>&-

# So may what a single example is read from, when others have been trained: after a signal it is not waited for.
image=iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg==
mkdir -p hangs/a hangs/b
for name in a/1 a/2 a/3 b/1 b/2; do base64 -d <<<$image >hangs/$name.png; done
mkfifo hangs/b/3.png
cat >hangs.json <<'JSON'
{"class_name": "Sequential", "config": {"name": "hangs", "layers": [
 {"class_name": "InputLayer", "config": {"name": "x", "batch_shape": [null, 1, 1, 1]}},
 {"class_name": "Flatten", "config": {"name": "flat"}},
 {"class_name": "Dense", "config": {"name": "dense", "units": 2}}]}}
JSON
printf '%s\n' 'model: hangs.json' 'data: {kind: images, path: hangs, image_size: [1, 1], color: grayscale, shuffle: false}' 'batch_size: 1' 'epochs: 1' \
    'loss: {name: sparse_categorical_crossentropy, from_logits: true}' 'optimizer: {name: sgd}' \
    'strategy: {name: one_device}' 'callbacks: [{name: checkpoint, path: hangs-ck, every_steps: 1}]' 'output: hangs.safetensors' >hangs.yaml
hangs() { # by what a worker is started
    local code=0
    rm -rf hangs.safetensors hangs-ck
    timeout -s KILL 300 "$@" >hangs.log 2>&1 &
    pid=$!
    eventually [ -e hangs-ck/hangs-0000000005.safetensors ] && kill -TERM $pid
    wait $pid || code=$?
    cat hangs.log
    [ $code = 143 ] && grep "stopped by SIGTERM while it waited for a batch; the weights are in hangs.safetensors" hangs.log && [ -s hangs.safetensors ]
}
ok "SIGTERM while an example is read: exit 143, and the weights are kept" hangs "$workerd" --job hangs.yaml
evaluates() { trains --evaluate --json --set output=whole.safetensors >e.json && at_least "$(value e.json accuracy)" 0.3; }
ok "--evaluate --json" evaluates
touch -d '1 hour ago' part.safetensors
ok "weights that are older than the output: says so" eval \
    'trains --evaluate --set weights=part.safetensors --set output=whole.safetensors 2>&1 | grep -q "set weights=whole.safetensors"'
ok "has all examples" grep -q '"examples": 256' e.json
predicts() { trains --predict p.npy --set output=whole.safetensors && [ "$(wc -c <p.npy)" = $((128 + 256 * 10 * 4)) ]; }
ok "--predict" predicts
two_outputs() {
    dense() { printf ',{"class_name":"Dense","name":"%s","config":{"name":"%s","units":1},"inbound_nodes":[[["i",0,0,{}]]]}' "$1" "$1"; }
    {
        echo '{"class_name":"Functional","config":{"name":"n","layers":['
        echo '{"class_name":"InputLayer","name":"i","config":{"name":"i","batch_shape":[null,1]},"inbound_nodes":[]}'
        dense up && dense down
        echo '],"input_layers":[["i",0,0]],"output_layers":[["up",0,0],["down",0,0]]}}'
    } >two.json
    printf '%s\n' i,up,down 1,2,-2 2,4,-4 3,6,-6 >two.csv
    printf '%s\n' 'model: two.json' 'data: {kind: csv, path: two.csv, test_path: two.csv}' 'loss: {up: mse, down: mse}' \
        'strategy: {name: one_device}' 'optimizer: {name: sgd}' 'batch_size: 1' 'epochs: 1' \
        'output: two.safetensors' >two.yaml
    "$workerd" --quiet --job two.yaml && "$workerd" --quiet --job two.yaml --predict two.npy | tee two.log &&
        grep -q ' written to two-up.npy, two-down.npy$' two.log && ls two-up.npy two-down.npy && [ ! -e two.npy ]
}
ok "says where the predictions of several outputs are" two_outputs
ok "--show-model" eval 'trains --show-model | grep -q "dense (Dense) .* 7,850"'

# Each operator has its line, and the lines add up.
cp log.csv before.csv
profiles() { trains --profile "$@" --set output=profile.safetensors --set steps=20 --set epochs=40; }
ok "--profile --json" eval 'profiles --json >p.json'
adds_up() {
    awk -F': ' '/"us":/ { us += $2 } /"share":/ { share += $2 } /"flop":/ { flop[NR] = $2 }
        /"sum_us":/ { sum = $2 } /^ "flop":/ { all = $2 + 0; delete flop[NR] }
        END { for (i in flop) f += flop[i]
              exit !(us > 0 && (us - sum) ^ 2 < 1e-6 * sum ^ 2 && (share - 1) ^ 2 < 1e-6 && f == all && f > 0) }' "$1"
}
ok "its lines add up" adds_up p.json
ok "twenty steps" test "$(value p.json steps)" = 20
names() {
    for name in dense dense_backward_weights softmax_xent "next examples" begin "request, wait" "need: values come" \
        "ready: gradients" "losses, metrics" end report; do
        grep -q "\"operator\": \"$name\"" p.json || return 1
    done
}
ok "each operator and what lies around them" names
# Forward, and back to the kernel: 2 products of 784 x 10 for each row.
counts() { [ "$(value p.json flop | cut -d. -f1)" = $((2 * 2 * 784 * 10 * $(value p.json batch_size))) ]; }
ok "FLOP of a softmax regression" counts
ok "--profile" eval 'profiles >p.txt'
ok "as a table of the same lines" test "$(grep -cE ' +20 +[0-9.]+ +[0-9.]+%' p.txt)" = $((1 + $(grep -c '"operator"' p.json)))
ok "nothing is written" eval '[ ! -e profile.safetensors ] && cmp -s before.csv log.csv'
kept=(--set "callbacks=[{name: backup, path: kept, delete_checkpoint: false}]" --set output=kept.safetensors)
ok "a training that leaves its backup" trains "${kept[@]}"
begins_anew() { ls kept/*.safetensors && profiles "${kept[@]}" >kept.log 2>&1 && ! grep "goes on from" kept.log; }
ok "--profile begins anew beside it" begins_anew
ok "too few steps" fails_with 78 "expected more steps" trains --profile --set epochs=1 --set batch_size=512
ok "--profile and --evaluate" fails_with 64 "--profile does not go with" trains --profile --evaluate
ok "--list-devices" eval '"$workerd" --list-devices | grep -q "^ref "'

fits() { "$workerd" --help | awk 'length($0) > 80 { print; bad = 1 } END { if (NR > 24) { print NR; bad = 1 } exit bad }'; }
ok "help fits a screen" fits
same_codes() { # PROGRAM MAN-PAGE
    diff <("$1" --help | sed -n '/^Exit: /,$p' | tr '\n' ' ' | sed 's/^Exit: //; s/; */\n/g' | grep -oE '^[0-9]+') \
        <(sed -n '/^\.SH EXIT STATUS/,/^\.TE/p' "$top_srcdir/$2" | grep -oE '^[0-9]+')
}
ok "help has all exit codes" same_codes "$workerd" workerd/workerd.8
ok "and so has psd's" same_codes "$psd" psd/psd.8
# A model in a .keras file is one for checkpoints and for psd, too.
if grep -q 'S\["HAVE_HDF5_TRUE"\]=""' "$top_builddir/config.status"; then
    cp -r ck keep
    ok "writes a .keras file" trains --set epochs=1 --set output=net.keras --set 'callbacks=[]'
    ok "looks at it as it is" eval 'trains --set model=net.keras --set output=none.keras --evaluate | grep -q "^net.keras: "'
    ok "trains it, with checkpoints" trains --set model=net.keras --set output=again.keras
    ok "goes on with it" trains --set model=net.keras --set output=again.keras --set epochs=11 --resume
    ok "so do a psd and two workers" timeout 600 "$psctl" run --workers 2 --set strategy.name=parameter_server --set epochs=1 \
        --set 'callbacks=[]' --set model=net.keras --set output=again.keras "${quick[@]:0:4}" job.yaml
    rm -r ck
    mv keep ck
fi

# What --resume goes by is said before it surprises.
of_another() {
    local two='callbacks=[{name: checkpoint, path: twice, every_steps: 5, keep: 0}]'
    trains --set epochs=2 --set output=twice.safetensors --set "$two" >said 2>&1 && ! grep "training before this one" said || return 1
    trains --set epochs=1 --set output=twice.safetensors --set "$two" >said 2>&1
    grep "twice/softmax-[0-9]*.safetensors is of a training before this one, which begins anew: while it is there, --resume goes on from it" said || return 1
    trains --set epochs=3 --set output=twice.safetensors --set "$two" --resume >said 2>&1
    grep "was written later than twice/softmax-[0-9]*.safetensors, so it may be of another training" said
}
ok "checkpoints of two trainings in one folder are told of" of_another
has_some() { ls gone/*.safetensors >said 2>&1; }
folder_again() {
    begins --set epochs=100000 --set output=gone.safetensors --set 'callbacks=[{name: checkpoint, path: gone, every_steps: 20, keep: 2}]'
    eventually has_some && mv gone gone.away && eventually has_some
    local rc=$?
    kill -TERM $pid
    wait $pid
    [ $? = 143 ] && [ $rc = 0 ] || { cat begun.log; return 1; }
}
ok "the folder of checkpoints is made again where somebody removes it" folder_again

ok "--resume and --evaluate" fails_with 64 "--resume is of a training" trains --resume --evaluate
ok "--json alone" fails_with 64 "--json goes with --evaluate or --profile alone" trains --json
ok "--evaluate without weights" fails_with 66 "none.safetensors" trains --evaluate --set output=none.safetensors
ok "--resume without checkpoints" fails_with 78 "the job writes no checkpoints" trains --resume --set 'callbacks=[]'
nothing_started() { fails_with 78 "the job writes no checkpoints" "$psctl" run --resume "$examples/softmax/async.yaml" && ! grep "ps tasks:" said; }
ok "psctl run --resume without them starts nothing" nothing_started
complete() { # its checkpoint is that of the end of its only epoch
    local all=(--set epochs=1 --set output=all.safetensors --set 'callbacks=[{name: checkpoint, path: all}]')
    trains "${all[@]}" && says "has all steps of the job: none is left to train" trains --resume "${all[@]}"
}
ok "--resume of all that there is to train says so" complete
cut_short() { # by early stopping, in its second epoch
    local all=(--set epochs=9 --set output=short.safetensors
        --set 'callbacks=[{name: early_stopping, monitor: loss, min_delta: 1000, patience: 1}, {name: checkpoint, path: short}]')
    trains "${all[@]}" && says "is of a training that was stopped early: none is left to train" trains --resume "${all[@]}"
}
ok "--resume of one that was stopped early says so" cut_short
monitors() { trains --set epochs=3 --set output=watched.safetensors --set "callbacks=[{name: early_stopping, monitor: $1, mode: max}]"; }
ok "a monitor that the job has not" fails_with 65 "callback early_stopping: monitor 'val_acuracy': the job has no such figure; did you mean 'val_accuracy'?" \
    monitors val_acuracy
ok "nothing like it" fails_with 65 "the job has no such figure; expected one of accuracy, loss, val_accuracy, val_loss" monitors speed
ok "and nothing has been trained for it" [ ! -e watched.safetensors ]
ok "--resume of another job" fails_with 78 "but this one has seed=32; with that file as weights it begins anew" trains --resume --set seed=32
ok "a log where there is no folder" fails_with 73 "callback csv_log: cannot create no/log.csv: No such file" trains \
    --set 'callbacks=[{name: csv_log, path: no/log.csv}]'
ok "weights that are not finite are told of" fails_with 0 "written hold a NaN or an infinity, first in" \
    trains --set epochs=1 --set 'callbacks=[]' --set data.scale=1e35 --set 'optimizer={name: sgd, learning_rate: 1e6}' \
    --set output=nan.safetensors
ok "checkpoints at the name of a file are told of" fails_with 0 "callback checkpoint: best.keras is a folder" \
    trains --set epochs=1 --set output=best.safetensors --set 'callbacks=[{name: checkpoint, path: best.keras}]'
ok "an output where there is a file" fails_with 73 "cannot create job.yaml/x.safetensors: Not a directory" trains --set output=job.yaml/x.safetensors
nowhere() { fails_with 73 "callback backup: cannot create files in $PWD/job.yaml: Not a directory" "$psctl" run "$examples/softmax/async.yaml" --set "callbacks=[{name: backup, path: $PWD/job.yaml}]" && ! grep "ps tasks:" said; }
ok "a backup where there is a file starts nothing" nowhere
fewer() { # its backup stays
    local more=(--set output=fewer.safetensors --set 'callbacks=[{name: backup, path: fewer, delete_checkpoint: false}]')
    trains "${more[@]}" --set epochs=2 && fails_with 78 "it is in epoch 2 of its training, and the job has 1" trains "${more[@]}" --set epochs=1 && ls fewer/*.safetensors
}
ok "a backup of more epochs than the job has is left alone" fewer
ok "checkpoints where there is a file" fails_with 73 "callback checkpoint: cannot create files in job.yaml/ck: Not a directory" trains \
    --set 'callbacks=[{name: checkpoint, path: job.yaml/ck}]'
half=$(newest)
printf 'half' >"$half"
ok "half a checkpoint is passed over" eval 'trains --resume >said 2>&1 && grep -q "$half: expected 8 bytes of header length.*it is passed over" said'
find ck -name '*.safetensors' -exec sh -c 'printf half >"$1"' sh {} \;
ok "where there are only halves, none is" fails_with 65 "expected 8 bytes of header length" trains --resume

# Examples of a weight and of a class that has one: the product counts, as a column of its own would.
cat >classes.json <<'JSON'
{"class_name": "Sequential", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 2]}},
  {"class_name": "Dense", "config": {"name": "d", "units": 3, "activation": "softmax"}}]}}
JSON
awk 'BEGIN { print "a,b,y,w,product"; for (i = 0; i < 64; i++) { c = i % 3; w = 1 + i % 4
    printf "%.2f,%.2f,%d,%d,%d\n", i % 7 / 7, i % 5 / 5 - c, c, w, w * (c == 1 ? 3 : c == 2 ? 0.5 : 1) * 2 } }' >classes.csv
cat >classes.yaml <<'YAML'
model: classes.json
data: {kind: csv, path: classes.csv, inputs: {in: [a, b]}, label: y}
loss: sparse_categorical_crossentropy
optimizer: {name: sgd, lr: 0.5}
strategy: {name: one_device}
batch_size: 16
epochs: 3
YAML
weighs() { "$workerd" --job classes.yaml --quiet --set output="$1" --set data.weight="$2" "${@:3}"; }
ok "a weight of the class and one of the example" weighs both.safetensors w --set 'class_weight={0: 2, 1: 6, 2: 1}'
ok "their product" weighs product.safetensors product
ok "are the same" cmp both.safetensors product.safetensors

# An example that cannot be looked up is named by its place in the data, and as one of the test data where it is.
cat >looks_up.json <<'JSON'
{"class_name": "Sequential", "config": {"name": "m", "layers": [
  {"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 1]}},
  {"class_name": "Embedding", "config": {"name": "e", "input_dim": 40, "output_dim": 2}},
  {"class_name": "Flatten", "config": {"name": "f"}},
  {"class_name": "Dense", "config": {"name": "d", "units": 1}}]}}
JSON
printf '%s\n' 1,0 5,0 6,0 77,0 >looks_up.csv
looks_up() {
    "$workerd" --job classes.yaml --quiet --set model=looks_up.json --set loss=mse --set output=looks_up.safetensors \
        --set "data={kind: csv, path: looks_up.csv, header: false${1:-}}"
}
ok "a number beyond an Embedding" fails_with 65 ': input "in" of example 3 has 77' looks_up
ok "and one in the test data" fails_with 65 'test data: input "in" of example 3 has 77' looks_up ', validation_split: 0.5'
