#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From Keras and back, with each Keras that is installed: $KERAS_PYTHON (default: python3) with keras, or tf_keras.
set -u -o pipefail
python=${KERAS_PYTHON:-python3}
said=$(mktemp) || exit 1
trap 'rm -f "$said"' EXIT
export PYTHONDONTWRITEBYTECODE=1 CUDA_VISIBLE_DEVICES='' TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
n=0 failed=0
for keras in keras tf_keras; do
    "$python" -c "import $keras" 2>/dev/null || continue
    "$python" "$top_srcdir/tests/it/keras_round_trip.py" "$keras" "$n" | tee "$said" || failed=1
    n=$((n + $(grep -cE '^(not )?ok ' "$said")))
done
if ((n)); then echo "1..$n"; else echo "1..0 # SKIP no Keras: KERAS_PYTHON may name a python3 that has it"; fi
exit "$failed"
