#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Munge in place of certificates, by a munged of our own: psd, workerd and psctl reach each other, a ring too, and a queue;
# who shows no credential, or is another user, is kept out.
. "$top_srcdir/tests/it/lib.sh"
cd "$scratch" || exit 1
PATH=$PATH:/usr/sbin:/sbin

if ! grep -q 'S\["HAVE_MUNGE_TRUE"\]=""' "$top_builddir/config.status"; then
    echo "munge: true" >none.yaml && echo 'ps: ["127.0.0.1:7070"]' >>none.yaml
    ok "a build without libmunge says so" fails_with 78 "this build has none" "$psd" --cluster none.yaml --task 0
    exit
fi
if ! command -v munged >/dev/null || ! command -v mungekey >/dev/null; then
    n=$((n + 1)) && echo "ok $n - # SKIP no munged is installed"
    exit
fi

mapfile -t ports < <(free_ports 4)
psd0=127.0.0.1:${ports[0]} psd1=127.0.0.1:${ports[1]}
echo "ps: [\"$psd0\", \"$psd1\"]
worker: [\"127.0.0.1:${ports[2]}\", \"127.0.0.1:${ports[3]}\"]
munge: munged/socket" >cluster.yaml
ctl() { "$psctl" --timeout 60 --cluster "$scratch/cluster.yaml" "$@"; }

# munged wants a folder in which every user finds its socket.
chmod 711 "$scratch" && mkdir -m 755 munged && mungekey --create --keyfile munged/key
munged --foreground --socket "$scratch/munged/socket" --key-file "$scratch/munged/key" --pid-file "$scratch/munged/pid" \
    --log-file "$scratch/munged/log" --seed-file "$scratch/munged/seed" 2>munged/error &
munged_pid=$!
ok "munged is there" eventually test -S munged/socket

# ---- what starts ----

serve() { # NAME OPTION ...: a psd of the cluster, its pid in $psd_pid
    local name=$1 ready
    shift
    rm -f "$name.ready" && mkfifo "$name.ready"
    "$psd" --cluster cluster.yaml --ready-fd 3 --dead-after-ms $dead_after_ms "$@" 3>"$name.ready" 2>>"$name.log" &
    psd_pid=$!
    read -r ready <"$name.ready"
    case $ready in READY*) ;; *) return 1 ;; esac
}
{ cat cluster.yaml && echo "tls: tls"; } >both.yaml
ok "certificates and munge do not go together" fails_with 65 "expected one of them" "$psd" --cluster both.yaml --task 0
ok "not on the command line, either" fails_with 64 "expected one of them" "$psd" --cluster cluster.yaml --task 0 --tls tls
ok "psctl refuses both" fails_with 65 "expected one of them" ctl --tls tls status
ok "other users are munge's alone" fails_with 64 "--munge-users are those whom munge names" "$psd" --munge-users

serve psd0 --task 0 --listen "0.0.0.0:${ports[0]}" --queue queue || echo "# psd0: $(cat psd0.log)"
pid0=$psd_pid
serve psd1 --task 1 || echo "# psd1: $(cat psd1.log)"
pid1=$psd_pid

both_are_up() { [ "$(ctl --json status | grep -c '"state": "up"')" = 2 ]; }
ok "psctl finds both, one of which listens for other hosts" both_are_up
ok "nobody is heard without a credential" fails_with 77 "brings no munge credential" "$psctl" --ps "$psd0" status
ok "the doctor says what is missing" says "does munged run on both hosts, with one key?" "$psctl" --ps "$psd0" doctor
mkdir none && sed 's,munged/socket,none/socket,' cluster.yaml >none/cluster.yaml
ok "psctl says that its host has no munged" fails_with 69 "munged of the host that calls makes no credential" \
    "$psctl" --cluster none/cluster.yaml status
ok "so does the doctor, and what to do" fails_with 78 "does munged run on both hosts, with one key?" "$psctl" --cluster none/cluster.yaml doctor

# ---- training ----

work() { # JOB RANK OPTION ...
    local job=$1 rank=$2
    shift 2
    "$workerd" --job "$examples/softmax/$job" --cluster cluster.yaml --rank "$rank" --workers 2 --quiet "${quick[@]}" "$@"
}
both() { # JOB OPTION ...
    local pids=() pid code=0
    work "$1" 0 "${@:2}" --set output=weights.safetensors & pids+=($!)
    work "$1" 1 "${@:2}" --set output=weights.safetensors & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    return $code
}
ok "two workers train by both" both sync.yaml --set name=sync
# Of a host that has just been started.
waits_for_munged() {
    local training code=0
    mkdir late && sed 's,munged/socket,late/socket,' cluster.yaml >late.yaml || return 1
    "$workerd" --job "$examples/softmax/async.yaml" --cluster late.yaml --rank 0 --workers 1 "${quick[@]}" --set name=late \
        --set timeout=600 --set output=late.safetensors >late.log 2>&1 & training=$!
    eventually grep "waiting for .*munged of the host that calls makes no credential" late.log && ln -s "$scratch/munged/socket" late/socket || code=1
    wait $training || code=$?
    cat late.log
    return $code
}
ok "a worker that starts before munged waits for it" waits_for_munged
trains() { ctl --json jobs "$1" | grep -E '"step": [1-9]|"steps": [1-9]|"round": [1-9]'; } # JOB
without_munged() { # both have joined, and are known, when munged is stopped
    local training code=0 rows=6400
    [ "$SANITIZERS" = no ] || rows=19200  # psctl takes its time, too
    both sync.yaml --set name=goes-on --set data.train_examples=$rows --set delay_ms=100 2>goes-on.log & training=$!
    eventually trains goes-on && kill -STOP $munged_pid
    says "no answer to Status" ctl --timeout 2 status || code=1
    kill -0 $training || { echo "it had ended"; code=1; }
    wait $training || code=$?
    kill -CONT $munged_pid
    cat goes-on.log
    [ $code = 0 ] && eventually both_are_up
}
ok "a training goes on while munged stands still, and psctl waits no longer than it may" without_munged
ring=(--set strategy.communication=ring)
ring_is_the_same() {
    both multi_worker_mirrored.yaml "${ring[@]}" && mv weights.safetensors known || return 1
    sed -i '/^munge/d' cluster.yaml && both multi_worker_mirrored.yaml "${ring[@]}" || return 1
    echo "munge: munged/socket" >>cluster.yaml
    cmp known weights.safetensors
}
ok "a ring gives the bits of one without munge" ring_is_the_same
takes_from_queue() {
    local agent
    "$workerd" --cluster cluster.yaml --rank 0 2>agent.log & agent=$!
    ctl submit --workers 1 --set name=queued --set output=weights.safetensors $(printf -- '%s ' "${quick[@]}") "$examples/softmax/async.yaml" &&
        timeout 120 "$psctl" --cluster cluster.yaml logs -f queued || { cat agent.log; return 1; }
    kill $agent
}
ok "a worker takes a job from the queue" takes_from_queue
audits() { ctl drain ps:0 && ctl drain ps:0 --undo && grep "audit: Drain by $(id -un): done" psd0.log; }
ok "what is changed by hand is logged, with the user" audits

# ---- other users ----

chmod 755 . && chmod 644 cluster.yaml
as_nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
if [ "$(id -u)" = 0 ] && as_nobody "$psctl" --version >/dev/null 2>&1 && as_nobody test -r "$examples/softmax/async.yaml"; then
    ok "another user is refused" fails_with 77 "uid 65534 may not call this process of uid 0" \
        as_nobody "$psctl" --timeout 60 --cluster cluster.yaml status
    kill "$pid1" && wait "$pid1"
    serve psd1 --task 1 --munge-users --user-jobs 1 || echo "# psd1: $(cat psd1.log)"
    pid1=$psd_pid
    kill "$pid0" && wait "$pid0"
    serve psd0 --task 0 --munge-users --user-jobs 1 || echo "# psd0: $(cat psd0.log)"
    pid0=$psd_pid
    mkdir -m 777 theirs
    nobody_trains() { # OPTION ...
        as_nobody "$workerd" --job "$examples/softmax/async.yaml" --cluster cluster.yaml --rank 0 --workers 1 --quiet "${quick[@]}" \
            --set output=theirs/weights.safetensors "$@"
    }
    ok "with --munge-users it trains" nobody_trains --set name=theirs
    ok "as many jobs as a user may have" fails_with 71 "nobody" nobody_trains --set name=second
    ok "it administrates nothing" fails_with 77 "'nobody' has the role worker: expected admin" \
        as_nobody "$psctl" --timeout 60 --cluster cluster.yaml stop theirs
    root_trains() { both async.yaml --set name=ours; }
    ok "root trains beside it" root_trains
    ok "another user's job is not taken" fails_with 77 "choose another name" nobody_trains --set name=ours --set on_existing=replace
else
    n=$((n + 1)) && echo "ok $n - # SKIP only root starts programs as another user, in folders that this user can read"
fi

ends() { kill "$pid0" "$pid1" && wait "$pid0" && wait "$pid1"; }
ok "both end well" ends
