#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where psd listens, and for how many: without --insecure nowhere that another host could reach, whatever the address looks like.
. "$top_srcdir/tests/it/lib.sh" || exit 1

# refuses CODE TEXT ADDRESS: soon, with one sentence that names the address.
refuses() {
    local code=$1 text=$2 address=$3
    fails_with "$code" "$text" timeout 600 "$psd" --listen "$address" 2>&1 || return 1
    grep -qF -- "$address" "$scratch/said" && [ "$(wc -l <"$scratch/said")" = 1 ]
}

# listens ADDRESS: is ready, and every socket that it listens on is loopback's or a path's. Its pid is $psd_pid.
listens() {
    local ready
    rm -f "$scratch/ready"
    mkfifo "$scratch/ready"
    "$psd" --listen "$1" --quiet --ready-fd 3 3>"$scratch/ready" &
    psd_pid=$!
    read -r ready <"$scratch/ready"
    echo "$ready"
    case $ready in READY*) ;; *) return 1 ;; esac
    loopback_alone "$psd_pid" || return 1
    kill -TERM "$psd_pid" && wait "$psd_pid"
}

for address in 127.0.0.1:0 127.1.2.3:0 127.1:0 localhost:0 "unix:$scratch/socket"; do
    ok "$address is listened on" listens "$address"
done
# A kernel may know IPv6 and no interface have it.
grep -qs '^00000000000000000000000000000001 ' /proc/net/if_inet6 && ok "[::1]:0 is listened on" listens "[::1]:0"

ok "psd: an option that it does not know" fails_with 64 "psd: unknown option --lisen, did you mean --listen?" "$psd" --lisen localhost:0
ok "one with a value that it does not take" fails_with 64 "psd: --verbose takes no value" "$psd" --verbose=1
ok "one without a value" fails_with 64 "psd: -l needs a value" "$psd" -l
ok "one without a value, among others" fails_with 64 "workerd: -r needs a value" "$workerd" -qr
ok "a name that is cut short" fails_with 64 "psd: unknown option --queu, did you mean --queue?" "$psd" --queu /dev/null/q
ok "psctl: likewise" fails_with 64 "psctl run: unknown option --worker, did you mean --workers?" "$psctl" run --worker 2
ok "psctl: a value that looks like an option" fails_with 64 "psctl set-lr: -1: no negative number is taken here" "$psctl" set-lr job -1
ok "psctl: what was not quoted" fails_with 64 "psctl run: too many arguments: job.yaml b}; usage: psctl run" "$psctl" run job.yaml --set x={a: b}
ok "a letter among others" fails_with 64 "psd: unknown option -z; psd --help lists the known ones" "$psd" -qz
ok "workerd: an option that it does not know" fails_with 64 "workerd: unknown option --jbo, did you mean --job?" "$workerd" --jbo x

# The pipe is full: psd is held up where it says that it is ready, and a signal that comes then ends it in order.
ends_in_order() {
    mkfifo "$scratch/full"
    exec 4<>"$scratch/full"
    head -c 65536 /dev/zero >&4
    "$psd" --listen "unix:$scratch/held" --ready-fd 4 2>"$scratch/held.log" &
    psd_pid=$!
    eventually grep -q "memory: " "$scratch/held.log" && kill -TERM "$psd_pid" || return 1
    head -c 65536 <&4 >"$scratch/zeros"
    wait "$psd_pid"
    local code=$?
    exec 4<&-
    cat "$scratch/held.log"
    echo "exit $code"
    [ $code = 0 ]
}
ok "SIGTERM as soon as it is ready ends it in order" ends_in_order

# Signals go on coming until it has ended.
ends_once() {
    local state code=0
    start_psd twice || return 1
    while kill -TERM "$psd_pid" && kill -INT "$psd_pid" && read -r _ _ state _ <"/proc/$psd_pid/stat" && [ "$state" != Z ]; do :; done
    wait "$psd_pid" || code=$?
    cat "$scratch/twice.log"
    echo "exit $code"
    [ $code = 0 ] && [ ! -e "$scratch/twice" ]
}
ok "further signals do not keep it from ending in order" ends_once

own=$(hostname -I 2>/dev/null | tr ' ' '\n' | grep -m 1 -E '^[0-9.]+$')
for address in 0.0.0.0:0 0:0 "[::]:0" "[0::0]:7070" 192.0.2.1:7070 "[2001:db8::1]:7070" "[::ffff:127.0.0.1]:0" \
    "[::ffff:0.0.0.0]:0" 128.0.0.1:0 126.255.255.255:0 ${own:+"$own:0"}; do
    ok "$address needs --insecure" refuses 78 "--insecure" "$address"
done
for address in :7070 7070 127.0.0.1 127.0.0.1: 127.0.0.1:-1 "127.0.0.1:1 " "[]:0" "[::1:0" ::1:0 \
    unix: unix-abstract:socket ipv4:0.0.0.0:0 ipv6:[::]:0 dns:///0.0.0.0:0 vsock:2:7070; do
    ok "'$address' is no address" refuses 65 "expected" "$address"
done
ok "a port that is none" refuses 64 "from 0 to 65535" 127.0.0.1:65536
long=$(printf '%0200d' 0)
ok "a path that is too long for a socket" refuses 65 "1 to 107 bytes" "unix:/$long"
ok "a name that is not known" refuses 69 "cannot listen" no-such-host.invalid:0
ok "one bad address of two is enough" fails_with 78 "--insecure" timeout 600 "$psd" -l "unix:$scratch/one" -l 0.0.0.0:0

# ---- more connections than descriptors ---------------------------------------------------------------------------

printf '#!/bin/sh\nulimit -n 64\nexec "%s" "$@"\n' "$(realpath "$psd")" >"$scratch/limited"
chmod +x "$scratch/limited"
unlimited=$psd psd=$scratch/limited
start_psd few || exit 1
psd=$unlimited
ok "the limit is said at the start" grep -q "the limit of open files, .* is 64" "$scratch/few.log"
# Each is greeted by the server or closed by it, and some are closed.
connects() {
    timeout 600 "$top_builddir/tests/it/load" "unix:$scratch/few" connect 200 | tee "$scratch/connected"
    grep -qE "^greeted [1-9][0-9]* closed [1-9][0-9]* neither 0$" "$scratch/connected"
}
for i in 1 2; do
    ok "200 connections, time $i: each is served or closed" connects
    ok "and a new one is served" eventually timeout 600 "$psctl" --timeout 60 --ps "unix:$scratch/few" status
done
ok "the log names the limit" grep -q "new connections are closed, .* raise the limit" "$scratch/few.log"
kill -TERM "$psd_pid"
ok "psd ends well" wait "$psd_pid"
