#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# central_storage: replicas of one worker whose variables one of them updates, which alone has the optimizer's slots.
# What they train is what one device trains with all their examples (tests/it/mirrored.sh: to the bit what mirrored
# replicas do), with less memory.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
job=$examples/mnist-cnn/one_device.yaml
small=(--set data.train_examples=800 --set data.test_examples=64 --set epochs=100 --set steps="${PS_EXAMPLES_STEPS:-10}")
sgd=(--set optimizer='{name: sgd, learning_rate: 0.001}')
adam=(--set optimizer='{name: adam, learning_rate: 0.00001}')
# trains OUTPUT STRATEGY ARGUMENT ...: one device with batches of 64, or two of 32
trains() {
    local output=$1 strategy=$2 batch=32 devices=(--set strategy.devices=[cpu:0,cpu:1] --set strategy.compare_every=1)
    shift 2
    [ "$strategy" = one_device ] && batch=64 devices=()
    timeout 600 "$psctl" run "$job" --set strategy.name="$strategy" "${devices[@]}" --set batch_size=$batch "${small[@]}" \
        --set output="$output.safetensors" "$@"
}
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
goes_far() { ! same -a "$@"; }

ok "nothing trained" trains drawn one_device --set steps=1 --set optimizer='{name: sgd, learning_rate: 0}'
for rule in sgd adam; do
    declare -n optimizer=$rule
    ok "$rule: one device" trains one one_device "${optimizer[@]}"
    ok "$rule: it has gone far" goes_far drawn.safetensors one.safetensors 3e-5
    ok "$rule: two replicas, equal after each step" trains two central_storage "${optimizer[@]}"
    ok "$rule: together with one device" same -a one.safetensors two.safetensors 1e-5
    ok "$rule: again" trains again central_storage "${optimizer[@]}"
    ok "$rule: to the bit" cmp two.safetensors again.safetensors
done

tr -s ' \n' ' ' <"$examples/mnist-cnn/model.json" | sed 's/\("name": "conv2d_1", "trainable": \)true/\1false/' >frozen.json
ok "a frozen layer: two replicas" trains two central_storage "${adam[@]}" --set model=frozen.json
ok "it stays as it was" same drawn.safetensors two.safetensors 0 sequential/conv2d_1/
ok "the others do not" goes_far drawn.safetensors two.safetensors 0 sequential/conv2d/

ok "one worker" fails_with 65 "has one worker, of rank 0" \
    "$workerd" --job "$job" --set strategy.name=central_storage --rank 1 --workers 2
ok "a gradient that is none ends all" fails_with 65 "is not finite" trains x central_storage \
    --set strategy.refuse_nonfinite=true --set data.scale=1e30

# Slots are there once: with Adam's two of 64 MiB of weights, replicas that have their own take 128 MiB more.
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s]}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
    '{"class_name": "Dense", "config": {"name": "wide", "units": 21400}}' >wide.json
peak() { # STRATEGY: MiB
    /usr/bin/time -f %M -o peak "$workerd" --quiet --job "$job" --set strategy.name="$1" --set strategy.devices=[cpu:0,cpu:1] \
        --set model=wide.json --set batch_size=1 --set data.train_examples=8 --set data.test_examples=1 --set epochs=1 \
        --set steps=2 --set optimizer=adam --set callbacks=[] --set output=wide.safetensors >&2 && echo $(($(tail -n 1 peak) / 1024))
}
takes_less() {
    local mirrored central
    mirrored=$(peak mirrored) && central=$(peak central_storage) || return
    echo "mirrored $mirrored MiB, central_storage $central MiB"
    [ $((mirrored - central)) -gt 100 ] && [ $((mirrored - central)) -lt 160 ]
}
if [ -x /usr/bin/time ]; then
    ok "slots are there once" takes_less
fi
