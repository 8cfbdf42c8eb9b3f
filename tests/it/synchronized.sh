#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Synchronized batch normalization: ResNet-20 trained by replicas that share a batch is what one device trains with the
# whole of it. (tests/it/examples.sh: at this rate what differs by a rounding stays together.)
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
if ! command -v python3 >/dev/null; then
    n=1
    echo "ok 1 - ResNet-20 # SKIP no python3"
    exit
fi
cp "$examples/resnet20"/*.* .
sed 's/"synchronized": false/"synchronized": true/g' model.json >marked.json
steps=${PS_EXAMPLES_STEPS:-10}
same() { "$top_builddir/tests/it/max_diff" "$@"; } # A B LIMIT [PREFIX]
goes_far() { ! same -a "$@"; }
# trains OUTPUT STRATEGY ARGUMENT ...: no picture is augmented
trains() {
    local output=$1 cluster=() strategy=(--set strategy.name="$2" --set strategy.compare_every=1 --set batch_size=32)
    case $2 in
    one_device) strategy=() ;;
    mirrored | central_storage) strategy+=(--set strategy.devices=[cpu:0,cpu:1]) ;;
    multi_worker_mirrored) cluster=(--workers 2) ;;
    esac
    shift 2
    timeout 600 "$psctl" run "${cluster[@]}" one_device.yaml "${strategy[@]}" --set data='{kind: cifar, path: cifar, scale: 1/255}' \
        --set optimizer='{name: sgd, learning_rate: 0.0001}' --set epochs=100 --set steps="$steps" --set model=marked.json \
        --set output="$output.safetensors" "$@"
}
together() { # OUTPUT STRATEGY ARGUMENT ...
    ok "$*" trains "$@"
    ok "$*: together with one device" same -a one.safetensors "$1.safetensors" 1e-5
}
again() { # OUTPUT STRATEGY ARGUMENT ...
    ok "$2, again" trains again "${@:2}"
    ok "$2, again: to the bit" cmp again.safetensors "$1.safetensors"
}

# 400 pictures are 6.25 batches of 64: the seventh step has 16 rows for one replica, and none for the other.
ok "makes its data" python3 data.py 400
ok "nothing trained" trains drawn one_device --set steps=1 --set optimizer='{name: sgd, learning_rate: 0}'
ok "one device, batches of 64" trains one one_device
ok "it has gone far" goes_far drawn.safetensors one.safetensors 2e-4 resnet20/kind
ok "one device, not synchronized" trains plain one_device --set model=model.json
ok "to the bit" cmp one.safetensors plain.safetensors
together mirrored mirrored
again mirrored mirrored
together central central_storage
together shared multi_worker_mirrored
together ring multi_worker_mirrored --set strategy.communication=ring
again ring multi_worker_mirrored --set strategy.communication=ring
ok "two workers of two replicas" trains four multi_worker_mirrored --set strategy.devices=[cpu:0,cpu:1] --set batch_size=16
ok "together with one device" same -a one.safetensors four.safetensors 1e-5
ok "layers that say nothing, as the job says" trains all mirrored --set model=model.json --set strategy.sync_batchnorm=true
ok "to the bit" cmp mirrored.safetensors all.safetensors
ok "each by its own batch" trains plain mirrored --set model=model.json
ok "is another training" goes_far one.safetensors plain.safetensors 1e-3

warns() { # TEXT COMMAND ...: that, once
    local text=$1
    shift
    "$@" >said 2>&1 && [ "$(grep -cF -- "$text" said)" = 1 ] || { cat said && false; }
}
servers() { # UPDATE
    timeout 600 "$psctl" run --ps 1 --workers 2 async.yaml --set strategy.update="$1" --set epochs=1 --set steps=2 \
        --set model=marked.json --set callbacks=[] --set output=x.safetensors
}
ok "workers with ps tasks do not wait for each other" \
    warns 'layer "batch_normalization" is synchronized: strategy parameter_server takes no steps together' servers async
ok "a job cannot ask for it" fails_with 65 "sync_batchnorm" "$workerd" --job async.yaml --set strategy.sync_batchnorm=true
