#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the callback tensorboard writes, as the real TensorBoard reads it: $TENSORBOARD_PYTHON (default: python3) has it.
python=${TENSORBOARD_PYTHON:-python3}
if ! "$python" -c 'import tensorboard' 2>/dev/null; then
    echo "1..0 # SKIP no TensorBoard: TENSORBOARD_PYTHON may name a python3 that has it"
    exit 0
fi
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
cp "$examples/softmax/model.json" .
{
    sed 's|^strategy:.*|strategy: {name: one_device}|; s|^optimizer:.*|optimizer: {name: adam}|' "$examples/softmax/async.yaml"
    echo 'callbacks: [{name: tensorboard, path: tb, histogram_freq: 1, write_images: true, update_steps: 5}]'
} >job.yaml
ok "a training" "$workerd" --job job.yaml "${quick[@]}" --set output=w.safetensors
ok "TensorBoard lists what it wrote" "$python" "$top_srcdir/tests/it/tensorboard_reads.py" tb
