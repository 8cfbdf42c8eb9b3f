#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The CUDA module is loaded when a job asks for a GPU, and workerd runs without it.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

cp "$examples/softmax/model.json" .
sed 's|^strategy:.*|strategy: {name: one_device}|' "$examples/softmax/async.yaml" >job.yaml
trains() { timeout 600 "$workerd" --job job.yaml "${quick[@]}" --set epochs=1 --set device=gpu; }
says() { "$workerd" --list-devices | grep -q "^gpu   $1"; }

export PARAMSERVER_CUDA_MODULE=$scratch/none.so
ok "no module" fails_with 78 "there is no CUDA module $scratch/none.so: expected workerd built with CUDA" trains
ok "no module, in the list" says "there is no CUDA module"
: >none.so
ok "a module that is none" fails_with 78 "the CUDA module cannot be loaded: $scratch/none.so: file too short" trains
PARAMSERVER_CUDA_MODULE=$top_builddir/.libs/cuda.so
if [ -e "$PARAMSERVER_CUDA_MODULE" ]; then
    # Nothing is missing in it, even where there is no GPU.
    ok "the module" says '\(CUDA [0-9]*\.[0-9]*, [0-9]* of\|the NVIDIA driver\|there is no GPU\)'
fi
