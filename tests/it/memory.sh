#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Memory: a step frees what it takes, so that fifty epochs take as much as ten, of workerd and of psd; and --show-model
# says what a step takes.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

# What a sanitizer keeps of what was freed grows.
case $(grep -o 'sanitizers[^ ]*' "$top_builddir/config.log" 2>/dev/null | head -n 1) in
*address* | *thread*) echo "1..0 # SKIP a sanitizer keeps what was freed"; trap - EXIT; rm -rf "$scratch"; exit 0 ;;
esac

sed 's|^strategy:.*||' "$examples/softmax/async.yaml" >job.yaml
cp "$examples/softmax/model.json" .
# The last batch of an epoch is shorter. 40 epochs more are 8,040 steps more: 130 bytes of each that stay are seen.
slack=$((1 << 20))

# trains EPOCHS OUTPUT ARGUMENT ...
trains() {
    timeout 600 "$workerd" --job job.yaml --quiet --summary "$2.json" --set output="$2.safetensors" --set batch_size=16 \
        --set data.train_examples=3205 --set data.test_examples=70 --set epochs="$1" \
        --set 'callbacks=[{name: csv_log, path: log.csv}]' "${@:3}"
}
peak() { value "$1.json" peak_memory_bytes; }
flat() { # BYTES-OF-TEN-EPOCHS BYTES-OF-FIFTY
    echo "ten epochs $1 bytes, fifty epochs $2 bytes"
    [ "$1" -gt 0 ] && [ "$2" -le $(($1 + slack)) ]
}
alone=(--set "strategy={name: one_device}")
ok "one_device: ten epochs" trains 10 a10 "${alone[@]}"
ok "one_device: fifty epochs" trains 50 a50 "${alone[@]}"
ok "one_device: fifty take what ten take" flat "$(peak a10)" "$(peak a50)"

# on_psd EPOCHS OUTPUT: and what the psd has had at most, in $served
on_psd() {
    start_psd "$2" || return 1
    trains "$1" "$2" --ps "unix:$scratch/$2" --rank 0 --set "strategy={name: parameter_server, update: $3}" || return 1
    served=$(($(sed -nE 's/^VmHWM:\s*([0-9]+) kB/\1/p' "/proc/$psd_pid/status") * 1024))
    kill -TERM "$psd_pid"
}
for update in async sync; do
    ok "$update: ten epochs" on_psd 10 ${update}10 $update
    served10=$served
    ok "$update: fifty epochs" on_psd 50 ${update}50 $update
    ok "$update: workerd: fifty take what ten take" flat "$(peak ${update}10)" "$(peak ${update}50)"
    ok "$update: psd: fifty take what ten take" flat "$served10" "$served"
done

# Between layers: the logits, the losses and the gradient by the logits, of 16 rows: each on a boundary of 64 bytes.
ok "--show-model says what a step takes" \
    eval 'trains 1 m "${alone[@]}" --show-model | grep -q "^Memory of a step of 16 rows: 0\.00 MiB between layers$"'
ok "and of more rows" \
    eval 'trains 1 m "${alone[@]}" --set batch_size=16384 --show-model | grep -q "of 16384 rows: 1\.[0-9]* MiB"'
