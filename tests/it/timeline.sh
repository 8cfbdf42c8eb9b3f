#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# workerd --timeline: what is in the trace of a run, under each strategy, and what is left of it where the run does not
# end well. PERFETTO_PYTHON (default: python3) has the package perfetto, whose own parser reads the traces then.
python=${PYTHON3:-python3}
[ "$python" != no ] || python=python3
if ! "$python" -c 'import json' 2>/dev/null; then
    echo "1..0 # SKIP no python3"
    exit 0
fi
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
cp "$examples/softmax/model.json" .
{
    sed 's|^strategy:.*|strategy: {name: one_device}|; s|^optimizer:.*|optimizer: {name: adam}|' "$examples/softmax/async.yaml"
    echo 'callbacks: [{name: csv_log, path: log.csv}, {name: terminate_on_nan}]'
} >job.yaml
trains() { timeout 600 "$workerd" --quiet --job job.yaml "${quick[@]}" --set output=w.safetensors "$@"; }
together() { timeout 600 "$psctl" run --workers 2 --set output=w.safetensors "${quick[@]}" "$@"; }
reads() { "$python" "$top_srcdir/tests/it/timeline_reads.py" "$@"; }

ok "one device" trains --timeline one.json
trains --profile --json --set epochs=20 --set steps=1 >p.json
operators=$(grep -c '"kernel": "..*"' p.json)
both=epoch,step,forward,backward,feed,wait,evaluation
ok "its steps, with each operator" reads --only $both,optimizer,callback --steps 40 --operators "$operators" --examples 512 one.json

# 784 x 10 weights and 10 biases; 20 batches in each of 2 epochs.
for update in sync async 'ssp --set strategy.staleness=1'; do
    # shellcheck disable=SC2086
    ok "${update%% *}: two workers" together "$examples/softmax/async.yaml" --set strategy.update=$update --timeline "${update%% *}.json"
done
size=(--operators "$operators" --bytes 31400 --examples 512)
ok "sync: every step of both, in two files that go together" \
    reads --only $both,pull,push_pull --steps 20 "${size[@]}" sync.json sync-1.json
ok "async: likewise" reads --only $both,pull,push_pull "${size[@]}" async.json async-1.json
ok "ssp: pushes and pulls on their own" reads --only $both,pull,push "${size[@]}" ssp.json ssp-1.json
ok "and the wait for the clock" grep -q '"cat":"wait","name":"clock"' ssp.json
batches() { [ "$(cat "$1.json" "$1-1.json" | grep -c '"cat":"step"')" = 40 ]; }
ok "async: each batch is trained once" batches async

# Gradients lie one after the other, each on a boundary of 64 bytes.
padded=(--operators "$operators" --bytes 31424 --examples 512)
for way in auto ring; do
    ok "mirrored, $way: two workers" together "$examples/softmax/async.yaml" --set strategy.name=multi_worker_mirrored \
        --set strategy.communication=$way --timeline $way.json
    ok "its steps and all-reduces" reads --only $both,optimizer,all_reduce --steps 20 "${padded[@]}" $way.json $way-1.json
done
ok "mirrored: two replicas in one file" trains --set strategy.name=mirrored --set strategy.devices=[cpu:0,cpu:1] \
    --set callbacks=[] --timeline two.json
ok "both have their tracks" test "$(grep -c '"name":"process_name"' two.json)" = 2

# The rank comes before the suffix of the file's name, not of its folder's.
mkdir folder.d
ok "a name without a suffix" together "$examples/softmax/async.yaml" --timeline folder.d/trace
ok "gets the rank behind it" reads folder.d/trace folder.d/trace-1

# Several buckets, which leave while the backward pass goes on.
ok "a convolutional network" timeout 600 "$psctl" run --workers 1 "$examples/mnist-cnn/async.yaml" --set batch_size=8 \
    --set data.train_examples=32 --set data.test_examples=8 --set epochs=1 --set output=w.safetensors --timeline cnn.json
parameters=$("$workerd" --job "$examples/mnist-cnn/async.yaml" --show-model | sed -nE 's/^Total parameters: ([0-9,]+) .*/\1/p' | tr -d ,)
ok "its buckets leave before the backward pass is over" reads --steps 4 --bytes $((4 * parameters)) cnn.json
ok "more than one" [ "$(grep -c '"cat":"push_pull"' cnn.json)" -gt 4 ]

if "${PERFETTO_PYTHON:-python3}" -c 'import perfetto.trace_processor' 2>/dev/null; then
    python=${PERFETTO_PYTHON:-python3}
    ok "Perfetto reads one device's" reads --perfetto --has $both,optimizer,callback one.json
    ok "and those of two workers" reads --perfetto --has $both,pull,push ssp.json ssp-1.json
    ok "and all-reduces" reads --perfetto --has $both,all_reduce,optimizer ring.json ring-1.json
    ok "and the buckets" reads --perfetto --has $both,push_pull cnn.json
else
    n=$((n + 1))
    echo "ok $n - Perfetto reads them # SKIP no perfetto: PERFETTO_PYTHON may name a python3 that has it"
fi

# A worker that is killed leaves what it has written; one that is stopped, all of it.
begins() {
    rm -f log.csv
    "$workerd" --quiet --job job.yaml "${quick[@]}" --set output=w.safetensors --set epochs=100000 --timeline "$1" >begun.log 2>&1 &
    pid=$!
}
begins killed.json
ok "spans go to the file meanwhile" eventually eval 'grep -qs "\"cat\":\"step\"" killed.json.*.tmp'
kill -KILL $pid
wait $pid
(cat killed.json.*.tmp && echo ']') >killed.json
ok "killed: what it has written lacks its end alone" reads killed.json
begins stopped.json
ok "in its second epoch" eventually grep -qs '^2,' log.csv
kill -INT $pid
wait $pid
ok "SIGINT: exit 130" test $? = 130
ok "the trace is whole" reads stopped.json
ok "nothing else is left" test "$(find . -name 'stopped*')" = ./stopped.json

# Where the ps task is lost for good, the worker begins anew, and trains nothing any more.
loses_its_server() {
    "$psd" --quiet --listen "unix:$scratch/lost.socket" &
    local server=$! worker
    timeout 600 "$workerd" --quiet --job "$examples/softmax/async.yaml" --ps "unix:$scratch/lost.socket" --timeline lost.json "${quick[@]}" \
        --set epochs=100000 --set delay_ms=5 --set timeout=3 --set 'callbacks=[{name: backup, path: lost.backups, every_steps: 5}]' \
        --set output=lost.safetensors 2>lost.log &
    worker=$!
    eventually eval 'ls lost.backups/*.safetensors' && kill -KILL $server && ! wait $worker && cat lost.log &&
        grep -q "begins anew from the newest backup" lost.log
}
ok "a server is lost" loses_its_server
has_steps() { "$python" -m json.tool lost.json >/dev/null && [ "$(grep -c '"cat":"step"' lost.json)" -ge 5 ]; }
ok "the trace has the steps before that" has_steps

ok "no such folder" fails_with 73 "cannot create no/trace.json: No such file" trains --timeline no/trace.json
ok "nor psctl run" fails_with 73 "cannot create no/trace.json: No such file" \
    together "$examples/softmax/async.yaml" --timeline no/trace.json
rm w.safetensors
ok "a device of two workers" together "$examples/softmax/async.yaml" --timeline /dev/null
ok "has no other beside it" test ! -e /dev/null-1
ok "a full disk" fails_with 74 "cannot write /dev/full: No space left on device" trains --timeline /dev/full
ok "does not take the weights" test -s w.safetensors
for look in --profile --evaluate --show-model; do
    ok "--timeline and $look" fails_with 64 "--timeline is of a training" trains --timeline none.json $look
done
