#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Workers of multi_worker_mirrored on three hosts, which are network namespaces: one is killed, one is cut off, one stands
# still and goes on again. The others name it and train on; who is alone ends; who comes back is let in.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
job=$examples/softmax/one_device.yaml
net=ps$$

# host I COMMAND ...: the shell of that host is the command, whose process is the caller's.
host() {
    local i=$1
    shift
    exec ip netns exec "$net-$i" "$@"
}
unplug() { ip -n "$net-switch" link set "to$1" down; }
plug_in() { ip -n "$net-switch" link set "to$1" up; }

# Three hosts on a switch.
make_hosts() {
    local i
    ip netns add "$net-switch" && ip -n "$net-switch" link add switch type bridge && ip -n "$net-switch" link set switch up || return 1
    for i in 0 1 2; do
        ip netns add "$net-$i" && ip -n "$net-$i" link set lo up &&
            ip -n "$net-$i" link add eth0 type veth peer name "to$i" netns "$net-switch" &&
            ip -n "$net-$i" addr add "10.9.8.$((i + 1))/24" dev eth0 && ip -n "$net-$i" link set eth0 up &&
            ip -n "$net-switch" link set "to$i" master switch up || return 1
    done
}
remove_hosts() {
    local name
    for name in switch 0 1 2; do ip netns del "$net-$name" 2>/dev/null; done
}
leave() {
    for pid in $(jobs -pr); do kill -KILL "$pid" 2>/dev/null; done
    wait 2>/dev/null
    remove_hosts
    finish
}
if ! make_hosts 2>why; then
    remove_hosts 2>/dev/null
    echo "ok 1 - workers on three hosts # SKIP no network namespaces here: $(head -n 1 why)"
    n=1
    exit 0
fi
trap leave EXIT

printf 'worker: ["10.9.8.1:7071", "10.9.8.2:7071", "10.9.8.3:7071"]\n' >hosts.yaml
start() { # RANK: adds to logRANK
    local rank=$1
    (host "$rank" "$workerd" --insecure --job "$job" --set strategy.name=multi_worker_mirrored --cluster hosts.yaml --rank "$rank" \
        --set strategy.communication=ring --set strategy.compare_every=1 --set data.train_examples=1000 \
        --set data.test_examples=100 --set batch_size=24 --set epochs=100000 --set callbacks=[] \
        --set output="$scratch/of$rank.safetensors") >"log$rank" 2>&1 &
    pid[$rank]=$!
}
epochs_of() { grep -c 'Epoch' "log$1"; }
trains() { # RANK, which shows the progress
    local before
    before=$(epochs_of "$1")
    eventually eval "[ \$(epochs_of $1) -gt $((before + 2)) ]"
}
go_on() { # RANKS COUNT
    local rank
    for rank in $1; do
        eventually grep -q "goes on with $2 of 3 workers" "log$rank" || ! tail -n 3 "log$rank" || return 1
    done
}
named() { # RANK BY ...
    local rank=$1
    shift
    for by; do grep -q "worker $rank (10.9.8.$((rank + 1)):7071) is gone" "log$by" || ! tail -n 3 "log$by" || return 1; done
}
forget() { for rank; do : >"log$rank"; done; }

for rank in 0 1 2; do start $rank; done
ok "three hosts train" trains 0
kill -KILL "${pid[1]}"
ok "one is killed: the others go on" go_on "0 2" 2
ok "they name it" named 1 0 2
ok "they train" trains 0
forget 0 2
start 1
ok "it comes back" go_on "0 2" 3
ok "they train" trains 0

forget 0 1 2
unplug 2
ok "one is cut off: the others go on" go_on "0 1" 2
ok "they name it" named 2 0 1
ok "they train" trains 0
eventually eval '! kill -0 ${pid[2]} 2>/dev/null'
ok "who is alone ends" fails_with 0 "1 of 3 workers are left" cat log2
plug_in 2
forget 0 1 2
start 2
ok "its host is there again: it comes back" go_on "0 1" 3
ok "they train" trains 0

ok "who came back trains with them" eventually grep -q "joined job" log2
forget 0 1 2
kill -STOP "${pid[1]}"
ok "one stands still: the others go on" go_on "0 2" 2
ok "they name it" named 1 0 2
kill -CONT "${pid[1]}"
eventually eval '! kill -0 ${pid[1]} 2>/dev/null'
ok "it goes on: it is told that it is out" fails_with 0 "goes on without worker 1" cat log1
ok "the others train" trains 0

unplug 0
ok "the first is cut off: the other ends, which is half of the two" eventually eval '! kill -0 ${pid[2]} 2>/dev/null'
ok "and says so" fails_with 0 "1 of 2 workers are left, and the others may go on" cat log2
ok "the first goes on alone" go_on 0 1
kill -TERM "${pid[0]}"
wait "${pid[0]}"
ok "a signal ends it" test $? = 143
ok "its weights are kept" test -s of0.safetensors
