#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What is larger than it may be anywhere: data, a variable.
#
# Data that are three times as large as the memory that workerd may have (its address space, which is more than what is
# resident) are trained on. The files have holes: they take no disk, and read as zeros.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

limit=$((1 << 30))
bytes=$((3 * limit))

model() { # SHAPE
    printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s]}}' \
        "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, $1]}}" \
        '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
        '{"class_name": "Dense", "config": {"name": "dense", "units": 10, "activation": "linear"}}'
}
model 28,28 >digits.json
model 32,32,3 >cifar.json
cat >job.yaml <<'JOB'
model: digits.json
data: {kind: npy, x: x.npy, y: y.npy}
loss: {name: sparse_categorical_crossentropy, from_logits: true}
optimizer: {name: sgd}
strategy: {name: one_device}
steps: 40
JOB

npy() { # FILE ELEMENTS-BYTES SHAPE
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($3), }"
    # \134: a backslash; the length in 16 bits.
    printf '\223NUMPY\001\000%b%s' "\\0$(printf %03o ${#header})\\0000" "$header" >"$1"
    truncate -s "+$2" "$1"
}
word() { printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) $(($1 >> 8 & 255)) $(($1 & 255)))"; }
idx() { # FILE DIMENSION ...
    local file=$1 n=1
    shift
    { word $((0x0800 + $#)); for d; do word "$d"; n=$((n * d)); done; } >"$file"
    truncate -s "+$n" "$file"
}

# 40 steps with the examples in a random order, within the limit.
trains() { # ARGUMENT ...
    rm -f s.json
    (ulimit -v $((limit / 1024)) && exec timeout 600 "$workerd" --job job.yaml --summary s.json --quiet "$@")
}
steps_are() { [ "$(value s.json steps)" = "$1" ]; }

images=$((bytes / 784 + 1))
npy x.npy $((images * 784)) "$images, 28, 28"
npy y.npy "$images" "$images,"
ok "npy" trains
ok "npy: all steps" steps_are 40
ok "npy: several threads" trains --set data.threads=3

idx train-images-idx3-ubyte "$images" 28 28
idx train-labels-idx1-ubyte "$images"
idx t10k-images-idx3-ubyte 10 28 28
idx t10k-labels-idx1-ubyte 10
ok "idx" trains --set "data={kind: idx, path: .}"
ok "idx: all steps" steps_are 40

for i in 1 2 3 4 5; do truncate -s $(((bytes / 5 / 3073 + 1) * 3073)) data_batch_$i.bin; done
truncate -s 30730 test_batch.bin
ok "cifar" trains --set model=cifar.json --set "data={kind: cifar, path: .}"
ok "cifar: all steps" steps_are 40

# ---- a variable -----------------------------------------------------------------------------------------------------

# Larger than what a connection may have unanswered: none of its parts is answered before its round is over.
printf '{"class_name": "Sequential", "config": {"name": "net", "layers": [%s, %s, %s, %s, %s]}}' \
    '{"class_name": "InputLayer", "config": {"name": "in", "batch_shape": [null, 28, 28]}}' \
    '{"class_name": "Flatten", "config": {"name": "flatten"}}' \
    '{"class_name": "Dense", "config": {"name": "a", "units": 4300, "activation": "relu"}}' \
    '{"class_name": "Dense", "config": {"name": "b", "units": 4300, "activation": "relu"}}' \
    '{"class_name": "Dense", "config": {"name": "c", "units": 10, "activation": "linear"}}' >large.json
rounds() { # SET ...
    rm -f s.json
    timeout 300 "$psctl" run --ps 1 --workers 2 "$examples/softmax/sync.yaml" --set model="$PWD/large.json" "${quick[@]}" --set batch_size=8 \
        --set epochs=1 --set steps=3 --set output=large.safetensors --summary s.json "$@" && steps_are 3
}
ok "a variable of 74 MB in rounds" rounds
ok "by the norm of all gradients" rounds --set "optimizer={name: sgd, global_clipnorm: 1}"
