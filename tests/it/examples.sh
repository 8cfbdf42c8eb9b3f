#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every job file of every example trains a little, with a frozen layer, which stays bit for bit as it was drawn; and where
# nothing depends on the batch (no dropout, no batch normalisation), two workers or replicas in step do what one device does
# with batches of twice the size, and replicas are equal after every step. PS_EXAMPLES_STEPS: for how many steps, 10 without it.
#
# In step, sums of gradients are rounded in another order: 1e-7. What training makes of that depends on the rate. At 0.05
# one device alone whose first weights are others by 1e-7 is 7e-5 (conv), 0.01 (mnist-cnn) and 0.02 (char-gpt) away after
# 100 steps. The rates here are those at which training keeps two together that are close.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
steps=${PS_EXAMPLES_STEPS:-10}
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
flat() { tr -s ' \n' ' ' <"$examples/$example/model.json"; }

# trains OUTPUT MODE STEPS ARGUMENT ...: the example's job file of this mode
trains() {
    local output=$1 mode=$2 steps=$3 cluster=(--ps 2 --workers 2) strategy=()
    shift 3
    case $mode in
    one_device) cluster=() ;;
    mirrored | central_storage) cluster=() strategy=(--set strategy.compare_every=1) ;;
    multi_worker_mirrored) cluster=(--workers 2) strategy=(--set strategy.compare_every=1) ;;
    hybrid) strategy=(--set strategy.compare_every=1) ;;
    esac
    timeout 600 "$psctl" run "${cluster[@]}" "$example/$mode.yaml" "${strategy[@]}" --set steps="$steps" --set output="$output.safetensors" \
        --set epochs=1000 "${sizes[@]}" "$@"
}
# The modes that train with a frozen layer.
frozen_in="one_device async ssp sync local_steps mirrored central_storage multi_worker_mirrored"
# Is there a table that is trained, with the layer frozen that is?
tables() { # LAYER
    flat | grep -o '"class_name": "Embedding", "config": {"name": "[a-z_0-9]*"' | grep -qv "\"$1\"" && echo hybrid
}
keeps_frozen() { # MODEL LAYER
    flat | sed "s/\(\"name\": \"$2\", \"trainable\": \)true/\1false/" >"$example/frozen.json"
    flat | sed 's/"trainable": true/"trainable": false/g' >"$example/none.json"
    ok "$example: nothing trained" trains drawn one_device 1 --set model="$example/none.json"
    for mode in $frozen_in $(tables "$2"); do
        ok "$example: $mode trains" trains $mode $mode 4 --set model="$example/frozen.json" --set batch_size=8
        ok "$example: $mode leaves $2 as it was" same drawn.safetensors $mode.safetensors 0 "$1/$2/"
    done
}
goes_far() { ! same -a "$@" 1e-4; }
greatest() { same -a "$1.safetensors" "$2.safetensors" inf | awk '$2 > most { most = $2 } END { print most + 0 }'; }
in_step() { # LEARNING_RATE
    local sgd=(--set optimizer="{name: sgd, learning_rate: $1}")
    ok "$example: one device, batches of 64" trains one one_device "$steps" "${sgd[@]}" --set batch_size=64
    ok "$example: it has gone far" goes_far drawn.safetensors one.safetensors
    for mode in sync mirrored central_storage multi_worker_mirrored $(tables none); do
        ok "$example: $mode of two, batches of 32" trains $mode $mode "$steps" "${sgd[@]}" --set batch_size=32
        ok "$example: $mode together with one device" same -a one.safetensors $mode.safetensors 1e-5
    done
    ok "$example: replicas are workers, to the bit" cmp mirrored.safetensors multi_worker_mirrored.safetensors
    ok "$example: whoever has the slots, to the bit" cmp mirrored.safetensors central_storage.safetensors
    echo "# $example: of weights that moved by $(greatest drawn one) the greatest difference after $steps steps is" \
        "$(greatest sync one), $(greatest mirrored one)"
}

# example NAME MODEL FROZEN_LAYER LEARNING_RATE SIZE ...: 0: it has batch normalisation; SIZE: arguments
example() {
    example=$1 sizes=("${@:5}")
    mkdir "$example" && cp "$examples/$example"/*.* "$example"
    if [ -e "$example/data.py" ]; then
        ok "$example: makes its data" makes_data
    fi
    keeps_frozen "$2" "$3"
    if [ "$4" != 0 ]; then
        in_step "$4"
    fi
}
makes_data() {
    if [ "$example" = cars ]; then
        (cd cars && python3 data.py | cmp - cars.csv) # is in the repository
    else
        (cd "$example" && python3 data.py 400)
    fi
}

digits=(--set data.train_examples=640 --set data.test_examples=64)
example linear sequential dense 0.05
example softmax sequential dense 0.05 "${digits[@]}"
example conv sequential conv2d 0.001 "${digits[@]}"
example mnist-cnn sequential conv2d_1 0.001 "${digits[@]}"
example autoencoder autoencoder code 0.01 "${digits[@]}"
example char-gpt char_gpt multi_head_attention_1 0.01 --set data.path="$top_srcdir/LICENSE"
if command -v python3 >/dev/null; then
    example cars cars brands 0.005
    example tickets tickets words 0.05
    example resnet20 resnet20 conv2d_3 0
    ok "resnet20: its larger sister trains" trains resnet56 one_device 2 --set model=resnet20/resnet56.json --set batch_size=8
fi

# What is there is what is tested; its pictures are drawn from a real log.
all() { (cd "$examples" && ls -d -- */ | grep -v custom-loop) | tr -d / | diff - <(ls -d -- */ | tr -d /); }
curve() {
    example=linear trains logged one_device 4 --set epochs=2 --set 'callbacks=[{name: csv_log, path: log.csv}]' &&
        python3 "$examples/plot.py" log.csv curve.svg && python3 -c \
        'import xml.dom.minidom; assert xml.dom.minidom.parse("curve.svg").getElementsByTagName("polyline")'
}
if command -v python3 >/dev/null; then
    ok "all examples are tested" all
    ok "plot.py draws" curve
fi
