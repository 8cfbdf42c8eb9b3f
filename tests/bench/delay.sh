#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psbench behind a network with a delay: clients in one network namespace, psd in another, between them a wire that holds
# every packet for so long. The plain socket goes the same way, so limit_fraction is what counts. Needs root.
#
#   tests/bench/delay.sh BUILD [MICROSECONDS each way] [PSBENCH OPTION ...]
#   tests/bench/delay.sh build 200 push pull --size 1K,1M --json
set -eu
build=$(cd "$1" && pwd)
micros=${2:-200}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- push pull pushpull --size 4K,64K,1M,16M
make -s -C "$build" tests/bench/delay

clients=psbench-c-$$ servers=psbench-s-$$ wire=
ready=$(mktemp -u)
end() {
    [ -z "$wire" ] || kill "$wire"
    for ns in "$clients" "$servers"; do ip netns del "$ns" 2>/dev/null || true; done
    rm -f "$ready"
}
trap end EXIT

ip netns add "$clients"
ip netns add "$servers"
mkfifo "$ready"
"$build/tests/bench/delay" "$micros" "psbc$$" "psbs$$" >"$ready" &
wire=$!
read -r _ <"$ready"
place() { # DEVICE NAMESPACE ADDRESS
    ip link set "$1" netns "$2"
    ip -n "$2" link set lo up
    ip -n "$2" addr add "$3" dev "$1"
    ip -n "$2" link set "$1" mtu 65520 txqueuelen 1000 up
}
place "psbc$$" "$clients" 10.213.77.1/30
place "psbs$$" "$servers" 10.213.77.2/30

ip netns exec "$clients" "$build/tools/psbench/psbench" --host 10.213.77.2 --netns "$servers" "$@"
