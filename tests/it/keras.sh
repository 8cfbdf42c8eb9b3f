#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From Keras and back, with each Keras that is installed, on each of its back ends: $KERAS_PYTHON, one or more (default:
# python3), with keras and tensorflow, torch or jax, or with tf_keras.
set -u -o pipefail
said=$(mktemp) || exit 1
trap 'rm -f "$said" "$said.log"' EXIT
export PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES='' TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
n=0 failed=0 models=0
points() # SCRIPT ARGUMENT...
{
    "$python" -W ignore "$top_srcdir/tests/it/$1" "${@:2}" "$n" 2>"$said.log" | tee "$said" || {
        failed=1
        tail -5 "$said.log" >&2
    }
    n=$((n + $(grep -cE '^(not )?ok ' "$said")))
}

for python in ${KERAS_PYTHON:-python3}; do
    for backend in tensorflow torch jax; do
        KERAS_BACKEND=$backend "$python" -c "import $backend, keras" 2>/dev/null || continue
        export KERAS_BACKEND=$backend
        points keras_round_trip.py keras
        ((models++)) || points keras_models.py keras
    done
    "$python" -c 'import tf_keras' 2>/dev/null || continue
    points keras_round_trip.py tf_keras
    points keras_models.py tf_keras
done
if ((n)); then echo "1..$n"; else echo "1..0 # SKIP no Keras: KERAS_PYTHON may name a python3 that has it"; fi
exit "$failed"
