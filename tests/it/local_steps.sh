#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The strategy local_steps with real daemons: it computes what a plain simulation of it does, and with one worker and an
# outer rule that takes its weights as they are what one_device does; it moves fewer bytes.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
differs() { ! same "$@"; }

# ---- what it computes ---------------------------------------------------------------------------------------------

if [ -n "${PYTHON3:-}" ]; then
    "$PYTHON3" "$top_srcdir/tests/it/local_steps_reference.py" . || exit 1
    cat >small.yaml <<'YAML'
model: model.json
weights: begin.safetensors
data: {kind: csv, path: data.csv, header: false, label: [4, 5], shuffle: false}
loss: mse
optimizer: {name: adam, learning_rate: 0.01}
strategy: {name: local_steps, local_steps: 5}
batch_size: 8
epochs: 2
YAML
    small() { timeout 600 "$psctl" run --workers 2 small.yaml "$@"; }
    ok "two workers, five steps at a time" small --ps 3 --set strategy.partitioner=fixed:2 --set output=two.safetensors
    ok "do what the simulation does" same two.safetensors expected.safetensors 1e-5
    ok "which is not what it began with" differs two.safetensors begin.safetensors 0.05
    ok "at random late" small --ps 1 --set delay_ms=40 --set output=late.safetensors
    ok "they do the same, to the bit" cmp two.safetensors late.safetensors
fi

alone=("$examples/conv/sync.yaml" --set data.train_examples=1000 --set data.test_examples=64 --set epochs=2
    --set optimizer="{name: adam, learning_rate: 0.001}")
takes_all=(--set strategy.name=local_steps --set strategy.local_steps=1
    --set strategy.outer_optimizer="{name: sgd, learning_rate: 1, momentum: 0}")
ok "one_device" timeout 600 "$psctl" run "${alone[@]}" --set strategy.name=one_device --set output=one.safetensors
for update in sync async; do
    ok "one worker, $update, that exchanges its weights at each step" timeout 600 "$psctl" run --workers 1 "${alone[@]}" \
        "${takes_all[@]}" --set strategy.update=$update --set output=$update.safetensors
    ok "does as one_device" same one.safetensors $update.safetensors 1e-6
done
ok "one worker that exchanges them every four" timeout 600 "$psctl" run --workers 1 "${alone[@]}" "${takes_all[@]}" \
    --set strategy.local_steps=4 --set output=four.safetensors
ok "does as one_device" same one.safetensors four.safetensors 1e-6
