#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The quick starts of README.md, typed as they stand there, on hosts that are network namespaces.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
net=readme$$
hosts="you node1 node2 node3 node4 node5"

# Hosts on a switch, which know each other by name.
make_hosts() {
    local host i=0
    ip netns add "$net-switch" && ip -n "$net-switch" link add switch type bridge && ip -n "$net-switch" link set switch up || return 1
    echo "127.0.0.1 localhost" >hosts
    for host in $hosts; do
        i=$((i + 1))
        echo "10.9.7.$i $host" >>hosts
        ip netns add "$net-$host" && ip -n "$net-$host" link set lo up &&
            ip -n "$net-$host" link add eth0 type veth peer name "to$i" netns "$net-switch" &&
            ip -n "$net-$host" addr add "10.9.7.$i/24" dev eth0 && ip -n "$net-$host" link set eth0 up &&
            ip -n "$net-switch" link set "to$i" master switch up || return 1
    done
}
remove_hosts() {
    local name
    for name in switch $hosts; do ip netns del "$net-$name" 2>/dev/null; done
}
leave() {
    remove_hosts
    finish
}
if [ "${PYTHON3:-no}" = no ] || ! make_hosts 2>why; then
    remove_hosts 2>/dev/null
    n=1
    echo "ok 1 - the README's transcripts # SKIP no python3, or no network namespaces here: $(head -n 1 why)"
    exit 0
fi
trap leave EXIT

# run HOST COMMAND: on that host, in this folder, which all hosts see.
mkdir bin
for program in "$psctl" "$psd" "$workerd"; do ln -s "$program" bin/; done
cat >run <<RUN
#!/bin/bash
exec ip netns exec "$net-\$1" bash -c 'mount --bind "$scratch/hosts" /etc/hosts &&
    PATH=$scratch/bin:\$PATH && eval "exec \$0"' "\$2"
RUN
chmod +x run

# The job that the README speaks of, so long that one can look at it: some minutes, or, in the queue, seconds.
job() { # NAME EXAMPLES LINE
    printf '%s\n' "name: $1" "model: $examples/softmax/model.json" "data: {kind: synthetic-digits, scale: 1/255, train_examples: $2, test_examples: 64}" \
        "loss: {name: sparse_categorical_crossentropy, from_logits: true}" "metrics: [accuracy]" "optimizer: {name: sgd, learning_rate: 0.1}" \
        "strategy: {name: parameter_server, update: sync}" "batch_size: 16" "output: $1.safetensors" "$3"
}
job urgent 640 "delay_ms: 30" >urgent.yaml
replays() { timeout 300 "$PYTHON3" "$top_srcdir/tests/it/replay.py" "$top_srcdir/README.md" "$1" "$scratch/run"; }
job mnist 64000 $'delay_ms: 100\nepochs: 20' >job.yaml
ok "a cluster" replays "A cluster"
job mnist 640 "delay_ms: 60" >job.yaml
ok "a queue" replays "A queue"
