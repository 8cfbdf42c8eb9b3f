#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is not trainable stays as it was, bit for bit, under every strategy: with a frozen layer between layers that are
# trained, or above them; the others are trained as one_device trains them.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

dense() { # NAME UNITS ACTIVATION TRAINABLE
    printf '{"class_name": "Dense", "config": {"name": "%s", "units": %s, "activation": "%s", "trainable": %s}}' "$@"
}
model() { # LOW MIDDLE TOP: are these trained?
    printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s, %s, %s]}}' \
        '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
        '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
        "$(dense low 16 relu "$1")" "$(dense middle 16 relu "$2")" "$(dense top 10 linear "$3")"
}
model true false true >middle.json
model true true false >top.json
model false false false >all.json
sed 's|^strategy:.*||' "$examples/softmax/async.yaml" >job.yaml

# trains OUTPUT MODEL BATCH ARGUMENT ...: 10 steps of two workers, or of one with batches of 64
trains() {
    local output=$1 model=$2 batch=$3
    shift 3
    timeout 600 "$psctl" run --ps 2 --workers 2 job.yaml --set model="$model.json" --set output="$output.safetensors" \
        --set batch_size="$batch" --set data.train_examples=640 --set data.test_examples=64 --set epochs=1 "$@"
}
on_psd() { # OUTPUT MODEL ARGUMENT ...
    local output=$1 model=$2
    shift 2
    trains "$output" "$model" 32 --set strategy.name=parameter_server "$@"
}
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
differs() { ! same "$@"; }

for model in middle top; do
    ok "$model: one_device" trains one "$model" 64 --set strategy.name=one_device
    ok "$model: async" on_psd async "$model" --set strategy.update=async
    ok "$model: async in groups" on_psd groups "$model" --set strategy.update=async --set strategy.n_push=2 --set strategy.n_fetch=2
    ok "$model: ssp" on_psd ssp "$model" --set strategy.update=ssp --set strategy.staleness=2
    ok "$model: sync" on_psd sync "$model" --set strategy.update=sync --set strategy.partitioner=fixed:2
    for update in async sync; do
        ok "$model: local steps, $update" on_psd local_$update "$model" --set strategy.name=local_steps \
            --set strategy.update=$update --set strategy.local_steps=3
    done
    for update in async groups ssp sync local_async local_sync; do
        ok "$model: $update leaves what is frozen as one_device does" same one.safetensors $update.safetensors 0 "net/$model/"
    done
    ok "$model: sync trains the others as one_device does" same one.safetensors sync.safetensors 1e-5
done

# Nothing to train is no error.
ok "all frozen: one_device" trains one all 64 --set strategy.name=one_device
for update in async sync; do
    ok "all frozen: $update" on_psd $update all --set strategy.update=$update
    ok "all frozen: $update changes nothing" same one.safetensors $update.safetensors 0
    ok "all frozen: local steps, $update" on_psd local all --set strategy.name=local_steps --set strategy.update=$update
    ok "all frozen: local steps, $update change nothing" same one.safetensors local.safetensors 0
done

# States follow what batches have: with one worker as in one_device, whoever keeps them; those of a frozen layer stay.
normalization() { # TRAINABLE
    printf '{"class_name": "BatchNormalization", "config": {"name": "middle", "momentum": 0.9, "trainable": %s}}' "$1"
}
for trainable in true false; do
    printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s, %s, %s]}}' \
        '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28, 1]}}' \
        '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
        "$(dense low 16 relu true)" "$(normalization $trainable)" "$(dense top 10 linear true)" >$trainable.json
done
alone() { # OUTPUT MODEL ARGUMENT ...: as on_psd, of one worker with batches of 64
    on_psd "$1" "$2" --workers 1 --set batch_size=64 "${@:3}"
}
ok "states: one_device" trains one true 64 --set strategy.name=one_device
for update in async sync; do
    ok "states: $update" alone $update true --set strategy.update=$update
    ok "states: $update does as one_device" same one.safetensors $update.safetensors 1e-5
done
ok "states: local steps" alone local true --set strategy.name=local_steps --set strategy.local_steps=3 \
    --set strategy.outer_optimizer="{name: sgd, learning_rate: 1, momentum: 0}"
ok "states: local steps do as one_device" same one.safetensors local.safetensors 1e-5
ok "states: sync of two workers" on_psd two true --set strategy.update=sync
ok "frozen states: one_device" trains one false 64 --set strategy.name=one_device
ok "frozen states: async" on_psd async false --set strategy.update=async
ok "frozen states: they stay" same one.safetensors async.safetensors 0 net/middle/

# A training ends with the averages of what is trained (use_ema), wherever they are kept.
averaged() { # ARGUMENT ...
    "$@" --set optimizer="{name: sgd, learning_rate: 0.05, use_ema: true, ema_momentum: 0.9}"
}
ok "averages: one_device" averaged trains one top 64 --set strategy.name=one_device
ok "averages: and the last weights" trains last top 64 --set strategy.name=one_device --set optimizer="{name: sgd, learning_rate: 0.05}"
ok "averages: are others" differs one.safetensors last.safetensors 1e-3
for update in async sync; do
    ok "averages: $update" averaged alone $update top --set strategy.update=$update
    ok "averages: $update ends with those of one_device" same one.safetensors $update.safetensors 1e-5
done

# What a callback does to the rate holds from the first step of the next epoch on.
warm=""
plateau() { # ARGUMENT ...
    "$@" --set optimizer="{name: sgd, learning_rate: 0.05$warm}" \
        --set 'callbacks=[{name: reduce_lr_on_plateau, monitor: loss, factor: 0.5, patience: 0, min_delta: 100}]' --set epochs=3
}
ok "plateau: one_device" plateau trains one top 64 --set strategy.name=one_device
ok "plateau: is reached" differs one.safetensors last.safetensors 1e-3
for update in async sync; do
    ok "plateau: $update" plateau alone $update top --set strategy.update=$update
    ok "plateau: $update does as one_device" same one.safetensors $update.safetensors 1e-5
done
# Also where the rate warms up before that: here to what it is from the start.
warm=", scale_learning_rate: linear, warmup_epochs: 1"
ok "plateau after a warm-up: one_device" plateau trains warm top 64 --set strategy.name=one_device
ok "plateau after a warm-up: one_device reduces as without it" same one.safetensors warm.safetensors 0
for update in async sync; do
    ok "plateau after a warm-up: $update" plateau alone $update top --set strategy.update=$update
    ok "plateau after a warm-up: $update does as one_device" same one.safetensors $update.safetensors 1e-5
done
