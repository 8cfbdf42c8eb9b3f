#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Jobs from the outside: psctl run, what it leaves, what it says when something is wrong.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1

trains() { # SUMMARY ACCURACY ARGUMENT ...
    local summary=$1 accuracy=$2
    shift 2
    timeout 600 "$psctl" run --summary "$summary" "$@" && at_least "$(value "$summary" test_accuracy)" "$accuracy"
}

ok "one_device trains" trains one.json 0.5 "$examples/softmax/async.yaml" "${quick[@]}" \
    --set strategy.name=one_device --set epochs=6 --set output=one.safetensors
ok "async with 2 ps and 2 workers trains" trains async.json 0.5 --ps 2 --workers 2 "$examples/softmax/async.yaml" \
    "${quick[@]}" --set strategy.name=parameter_server --set strategy.update=async --set epochs=6 --set output=async.safetensors
ok "sync with 3 ps and 2 workers trains" trains sync.json 0.5 --ps 3 --workers 2 "$examples/softmax/async.yaml" \
    "${quick[@]}" --set strategy.name=parameter_server --set strategy.update=sync --set epochs=12 --set output=sync.safetensors
ok "linear regression from CSV trains" trains linear.json 0 "$examples/linear/sync.yaml" --set output=linear.safetensors
ok "its loss falls below 0.01" awk -v x="$(value linear.json test_loss)" 'BEGIN { print x; exit !(x < 0.01) }'

# Sync with 4 delayed workers on 3 psd: the same bytes on every run and for every number of psd.
sync_run() { # OUTPUT PS
    timeout 600 "$psctl" run --ps "$2" --workers 4 "$examples/conv/sync.yaml" --set strategy.name=parameter_server \
        --set strategy.update=sync --set data.train_examples=1280 --set data.test_examples=64 --set epochs=1 \
        --set batch_size=32 --set delay_ms=50 --set strategy.partitioner=fixed:3 --set output="$1"
}
ok "sync on 3 psd, delayed at random" sync_run a.safetensors 3
ok "and again" sync_run b.safetensors 3
ok "and on 1 psd" sync_run c.safetensors 1
ok "two runs: identical bytes" cmp a.safetensors b.safetensors
ok "3 psd and 1: identical bytes" cmp a.safetensors c.safetensors

# Sync with 2 workers of 32 is one_device with 64.
plain=(--set data.train_examples=6400 --set data.test_examples=64 --set epochs=1 --set steps=100
    --set optimizer.name=sgd --set optimizer.learning_rate=0.01 --set optimizer.momentum=0)
same_as_one_device() {
    timeout 600 "$psctl" run --ps 2 --workers 2 "$examples/conv/sync.yaml" "${plain[@]}" --set batch_size=32 \
        --set strategy.name=parameter_server --set strategy.update=sync --set output=two.safetensors &&
        timeout 600 "$psctl" run "$examples/conv/sync.yaml" "${plain[@]}" --set batch_size=64 \
            --set strategy.name=one_device --set output=one64.safetensors &&
        "$top_builddir/tests/it/max_diff" two.safetensors one64.safetensors 1e-5
}
ok "2 workers of 32 equal one device with 64 within 1e-5 after 100 steps" same_as_one_device

# So it is with a schedule and clipping by the norm of the whole gradient, whose parts lie on two psd; after fewer steps,
# because sooner or later rounding flips a relu.
plain+=(--set 'optimizer.learning_rate={schedule: cosine, initial: 0.02, decay_steps: 100, warmup_steps: 10}'
    --set optimizer.global_clipnorm=0.5 --set steps=20)
ok "also with a schedule and clipping by the global norm" same_as_one_device

# The other ways to keep in step.
also() { # ACCURACY KEY=VALUE ...
    local accuracy=$1 key sets=()
    shift
    for key; do sets+=(--set "$key"); done
    trains also.json "$accuracy" --ps 2 --workers 3 "$examples/softmax/async.yaml" --set strategy.name=parameter_server \
        --set data.train_examples=6400 --set data.test_examples=1024 --set epochs=3 --set output=also.safetensors "${sets[@]}"
}
ok "async, pulling and pushing every 4 steps" also 0.6 strategy.update=async strategy.n_fetch=4 strategy.n_push=4
ok "ssp" also 0.6 strategy.update=ssp strategy.staleness=2
ok "sync in which one gradient closes a round" also 0.55 strategy.update=sync strategy.replicas_to_aggregate=1
ok "sync with a backup worker" also 0.55 strategy.update=sync strategy.replicas_to_aggregate=2 delay_ms=10
ok "async with clipping by norm in the workers" also 0.6 strategy.update=async optimizer.clipnorm=1

ok "the summary says how long the first step took" at_least "$(value async.json seconds_to_first_step)" 0.000001

# A training that writes no shards takes the place of one that did, checkpoint by checkpoint.
is_replaced() {
    local sharded
    for sharded in true false; do
        "$psctl" run --ps 2 --workers 1 "$examples/softmax/sync.yaml" "${quick[@]}" --set name=replaced --set data.train_examples=640 --set epochs=1 \
            --set "callbacks=[{name: checkpoint, path: replaced, sharded: $sharded, every_steps: 5, keep: 2}]" || return 1
        find replaced -type f | sort
        [ "$(find replaced -name '*-ps-*' | wc -l)" = "$([ "$sharded" = true ] && echo 4 || echo 0)" ] || return 1
    done
}
ok "shards go with the checkpoint whose place another one takes" is_replaced

# What is wrong is said in one sentence, with the right exit code.
bad() { # CODE TEXT ARGUMENT ...
    local code=$1 text=$2
    shift 2
    fails_with "$code" "$text" timeout 600 "$psctl" run --ps 1 --workers 1 "$@"
}
sed 's/^optimizer:/optimiser:/' "$examples/softmax/async.yaml" >typo.yaml
cp "$examples/softmax/model.json" .
ok "an unknown key" bad 65 'did you mean "optimizer"?' typo.yaml
ok "an unknown key of --set" bad 65 'did you mean' "$examples/softmax/async.yaml" --set optimizer.learning_rat=1
ok "a job file that is not there" bad 66 "nothing.yaml" nothing.yaml
ok "a model file that is not there" bad 66 "nothing.json" "$examples/softmax/async.yaml" --set model=nothing.json
echo '{"class_name": "Sequential", "config": {"layers": [{"class_name": "Dens"}]}}' >bad.json
ok "a model with an unknown layer" bad 65 'bad.json' "$examples/softmax/async.yaml" --set model=bad.json
ok "weights that are not there" bad 66 "nothing.safetensors" "$examples/softmax/async.yaml" --set weights=nothing.safetensors
ok "an output whose folder is missing" bad 73 "nowhere/o.safetensors: No such file" "$examples/softmax/async.yaml" --set output=nowhere/o.safetensors
ok "a summary whose folder is missing" bad 73 "nowhere/s.json: No such file" "$examples/softmax/async.yaml" --summary nowhere/s.json
ok "a folder that nobody can make" bad 73 "callback backup: cannot create files in /dev/null/b: Not a directory" "$examples/softmax/sync.yaml" --set "callbacks=[{name: backup, path: /dev/null/b, sharded: true}]"
warned() { # TIMES TEXT ARGUMENT ...: 1280 examples, one epoch
    local times=$1 text=$2
    shift 2
    "$workerd" --quiet --job "$examples/softmax/async.yaml" --set strategy.name=one_device "${quick[@]}" --set epochs=1 \
        --set output=warned.safetensors "$@" 2>warned.log || return 1
    cat warned.log
    [ "$(grep -c "W $text" warned.log)" = "$times" ]
}
large="batch_size is 128[01], but there are 1280 examples to train: an epoch is one step"
ok "a batch of more than there is to train: a warning" warned 1 "$large" --set batch_size=1281
ok "of all: none" warned 0 "$large" --set batch_size=1280
idle="1280 examples fill 2 of 3 replicas' batches of 6[34].: the others train nothing"
three=(--set strategy.name=mirrored --set strategy.devices="[cpu:0,cpu:1,cpu:2]")
ok "a replica that gets no example: a warning" warned 1 "$idle" "${three[@]}" --set batch_size=640
ok "that gets some: none" warned 0 "$idle" "${three[@]}" --set batch_size=639
few="gradient_accumulation_steps is 2[01], but the training has at most 20 steps: the optimizer takes none"
accumulates() { warned "$1" "$few" --set batch_size=64 --set optimizer="{name: sgd, gradient_accumulation_steps: $2}" "${@:3}"; }
ok "fewer steps than gradients are added up: a warning" accumulates 1 21
ok "as many: none" accumulates 0 20
ok "by the limit of steps" accumulates 1 21 --set epochs=2 --set steps=20
ok "of replicas together" accumulates 1 21 --set epochs=2 "${three[@]:0:2}" --set strategy.devices="[cpu:0,cpu:1]"
ok "an output that is a folder" bad 73 "/tmp: it is a folder" "$examples/softmax/async.yaml" --set output=/tmp

# Outputs. As on a full disk: a limit on the size of files.
alone=("$examples/softmax/async.yaml" --set strategy.name=one_device "${quick[@]}" --set epochs=1)
full_disk() { (ulimit -f 4 && exec "$workerd" --quiet --job "$@"); }
echo good >kept.safetensors
keeps() { fails_with 74 "cannot write kept.safetensors: File too large" full_disk "${alone[@]}" --set output=kept.safetensors &&
    [ "$(cat kept.safetensors)" = good ] && ! ls kept.safetensors.*; }
ok "weights on a full disk: the earlier ones stay" keeps
ln -s weights.safetensors link
mkfifo pipe
beside() { "$workerd" --quiet --job "${alone[@]}" --set output=link && [ -L link ] && [ -s weights.safetensors ] &&
    { cat pipe >piped & } && "$workerd" --quiet --job "${alone[@]}" --set output=pipe && wait $! && [ -p pipe ] &&
    cmp piped weights.safetensors; }
ok "an output that is a link or a pipe is written through and stays what it is" beside
summary_full() { "$workerd" --quiet --job "${alone[@]}" --set output=o.safetensors --summary /dev/full; }
ok "a summary that cannot be written says why" fails_with 74 "cannot write /dev/full: No space left on device" summary_full
unseen() { fails_with 74 "cannot write standard output" sh -c '"$0" run --ps 1 --workers 2 "$@" 2>&1 >/dev/full' "$psctl" \
    "$examples/softmax/async.yaml" "${quick[@]}" --set output=o.safetensors; }
ok "progress that cannot be written is an error" unseen
ok "data that is not there" bad 66 "nowhere" "$examples/softmax/async.yaml" --set data.kind=idx --set data.path=nowhere
ok "a strategy that is not there" bad 65 "tpu is not supported" "$examples/softmax/async.yaml" --set strategy.name=tpu

mkdir folder
: >empty.json
printf '"{}"' >string.json
for m in "folder is a folder" "empty.json is empty" "string.json is a JSON string: write model.to_json() itself"; do
    ok "a model that is none: ${m%% *}" bad 65 "$m" "$examples/softmax/async.yaml" --set model="${m%% *}"
    unstarted() { # psctl run looks first
        fails_with 65 "$m" "$psctl" run --ps 1 --workers 2 "$examples/softmax/async.yaml" --set model="${m%% *}" &&
            [ "$(wc -l <"$scratch/said")" = 1 ]
    }
    ok "and psctl run starts nothing for it" unstarted
done
ok "an optimizer's setting that is not there" bad 65 'has no "rho_2"; it has learning_rate, ' "$examples/conv/sync.yaml" \
    --set optimizer.rho_2=1
for p in "$psd" "$workerd" "$top_builddir/tools/psbench/psbench" "$psctl"; do
    ok "${p##*/} --help that nobody can read" fails_with 74 "cannot write standard output: No space left" sh -c '"$0" --help >/dev/full' "$p"
done
ok "psctl: an address that is none" fails_with 64 "localhost:70700" "$psctl" --ps localhost:70700 status

printf 'model: m.json\n\tloss: {name: mse}\n' >tab.yaml
ok "a tab in YAML is named" bad 65 "tab.yaml:2: " tab.yaml
ok "as what it is" bad 65 "found a tab, where YAML takes spaces only" tab.yaml

# The progress on a terminal of 80 columns: Keras's bar; plain lines where TERM is dumb.
on_terminal() { # NAME=VALUE ...: of a short job, as a terminal gets it
    "$PYTHON3" - "$@" "$workerd" --job "${alone[@]}" --set data.train_examples=12800 --set output=shown.safetensors <<'PY'
import fcntl, os, pty, struct, sys, termios
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.execvp("env", ["env", "-u", "NO_COLOR", *sys.argv[1:]])
seen = b""
try:
    while got := os.read(fd, 65536):
        seen += got
except OSError:
    pass
os.waitpid(pid, 0)
sys.stdout.buffer.write(seen)
PY
}
shows() { # PATTERN ABSENT NAME=VALUE ...
    local pattern=$1 absent=$2
    shift 2
    on_terminal "$@" >shown
    cat -v shown
    LC_ALL=C grep -aqP -- "$pattern" shown && ! LC_ALL=C grep -aqP -- "$absent" shown && grep -aq "Weights written to shown.safetensors" shown
}
if [ "$PYTHON3" != no ]; then
    ok "a bar in colour, its number padded" shows '\r\x1b\[K  1/200 \x1b\[32m.*\xe2\x94\x81' '\r\x1b\[K1/' TERM=xterm LC_ALL=C.UTF-8
    ok "NO_COLOR, and a locale without UTF-8" shows '\r\x1b\[K200/200 .*val_loss' '\x1b\[[0-9]*m|\xe2' TERM=xterm LC_ALL=C NO_COLOR=1
    ok "a dumb terminal" shows '^200/200 [0-9]' '\x1b' TERM=dumb LC_ALL=C.UTF-8
else
    n=$((n + 1))
    echo "ok $n - the progress on a terminal # SKIP no python3"
fi
ok "./quickstart --help" fails_with 0 "./quickstart check" "$top_srcdir/quickstart" --help
mkdir -p aside/tree
ln -s "$top_srcdir" tree
ok "from another folder" fails_with 64 "./quickstart check" tree/quickstart chekc
# A first try has left configure, and was cut short before Makefile.in.
begins_again() {
    mkdir -p half/bin && cp "$top_srcdir/quickstart" half || return 1
    printf '#!/bin/sh\nprintf installed\n' | tee half/bin/dpkg-query half/bin/apt-get half/configure >/dev/null
    printf '#!/bin/sh\ntouch called\nexit 1\n' >half/bin/autoreconf
    chmod +x half/bin/* half/configure
    fails_with 1 "the build failed" env PATH="$PWD/half/bin:$PATH" half/quickstart && [ -e half/called ]
}
ok "it begins again where autoreconf was cut short" begins_again
ok "with CDPATH" fails_with 64 "./quickstart check" env CDPATH="$PWD/aside" tree/quickstart chekc

# The chief fails before there is a job; the others would wait for it for as long as the job file says.
ok "a chief that opened no job ends the run" fails_with 65 "did not open the job" timeout 600 "$psctl" run --ps 1 --workers 2 \
    "$examples/conv/sync.yaml" --set strategy.name=parameter_server --set weights=weights.safetensors --set timeout=3600 \
    --set data.train_examples=640 --set data.test_examples=64
# What the others say waits for the chief to open the job, but not for long.
are_heard() {
    printf '#!/bin/sh\ncase "$*" in *"--rank 1"*) echo reason >&2; exit 66 ;; *) exec sleep 600 ;; esac\n' >opens-late
    chmod +x opens-late
    WORKERD=$scratch/opens-late "$psctl" run --ps 1 --workers 2 "$examples/softmax/async.yaml" --set strategy.min_workers=1 >heard 2>&1 &
    local pid=$! code=0
    eventually grep -q "the job goes on with 1 of 2 workers" heard
    kill -TERM $pid
    wait $pid || code=$?
    cat heard
    [ $code = 143 ] && grep -q "worker 1: reason" heard
}
ok "a chief that takes long to open the job keeps nobody's words" are_heard

# A ps task that stands still once the workers have ended well: the training is done all the same.
hangs_at_the_end() {
    rm -f hangs.safetensors
    printf '#!/bin/sh\ncase "$*" in *"--task 1"*) echo $$ >"%s/ps1.pid" ;; esac\nexec "%s" "$@"\n' "$scratch" "$PSD" >noted-psd
    printf '#!/bin/sh\n"%s" "$@" && kill -STOP "$(cat "%s/ps1.pid")"\n' "$workerd" "$scratch" >stops-ps
    chmod +x noted-psd stops-ps
    PSD=$scratch/noted-psd WORKERD=$scratch/stops-ps fails_with 0 " when it was told to end; the job is done all the same" \
        timeout 600 "$psctl" run --ps 2 --workers 1 "$examples/softmax/async.yaml" "${quick[@]}" --set strategy.name=parameter_server \
        --set output=hangs.safetensors && grep -E "psctl: ps 1 \(pid [0-9]+\) was killed by signal 9" said && ! grep "ps 0 .* was killed" said &&
        grep -E "pushed and pulled: [0-9.]+ [KM]iB, as 1 of 2 ps tasks say$" said && [ -s hangs.safetensors ]
}
ok "a ps task that has to be killed at the end is named, no other one is killed, and the run is well" twice hangs_at_the_end

# What killed runs have left: only what is surely theirs goes.
leftovers() {
    local d holder
    mkdir -m 700 rt
    for d in gone00 held00 nolock strange; do mkdir -m 700 "rt/psctl-$d" && touch "rt/psctl-$d/ps0" "rt/psctl-$d/cluster.yaml"; done
    mkdir -m 755 rt/psctl-public && mkdir -m 700 elsewhere && ln -s "$PWD/elsewhere" rt/psctl-linked && mkdir -m 700 rt/psctl-longer-name
    mv rt/psctl-strange rt/psctl-odd000
    for d in psctl-gone00 psctl-held00 psctl-odd000 psctl-public psctl-longer-name; do touch "rt/$d/lock"; done
    touch elsewhere/lock elsewhere/ps0 rt/psctl-odd000/precious rt/psctl-gone00/worker12{,.ring} rt/psctl-odd000/ps1.ring
    exec 8>rt/psctl-held00/lock && flock -n 8 || return 1
    XDG_RUNTIME_DIR=$PWD/rt timeout 600 "$psctl" run --ps 1 --workers 1 "$examples/softmax/async.yaml" "${quick[@]}" \
        --set strategy.name=parameter_server --set output=o.safetensors 8>&- || return 1
    exec 8>&-
    find rt elsewhere | LC_ALL=C sort
    [ ! -e rt/psctl-gone00 ] && [ -e rt/psctl-held00/ps0 ] && [ -e rt/psctl-nolock/ps0 ] && [ -e rt/psctl-odd000/precious ] &&
        [ -e rt/psctl-odd000/ps1.ring ] && [ -e rt/psctl-odd000/lock ] && [ ! -e rt/psctl-odd000/ps0 ] &&
        [ -e rt/psctl-public/lock ] && [ -e elsewhere/ps0 ] && [ -e rt/psctl-longer-name/lock ] &&
        [ "$(find rt -mindepth 1 -maxdepth 1 | wc -l)" = 6 ]
}
leaves_ring() { # of a worker that was killed, the socket for its neighbor
    mkdir -m 700 ring
    printf '#!/bin/sh\nfor a; do case $a in */cluster.yaml) echo >"${a%%/*}/worker1.ring" && : >made ;; esac; done\n' >ring-worker
    chmod +x ring-worker
    WORKERD=$scratch/ring-worker XDG_RUNTIME_DIR=$PWD/ring timeout 600 "$psctl" run --workers 2 "$examples/softmax/one_device.yaml" \
        --set 'strategy={name: multi_worker_mirrored}'
    find ring made
    [ -e made ] && [ "$(find ring | wc -l)" = 1 ]
}
ok "a run removes what a killed worker has left in its folder" leaves_ring
if command -v flock >/dev/null; then
    ok "what killed runs have left is removed, and nothing else" leftovers
else
    n=$((n + 1))
    echo "ok $n - what killed runs have left # SKIP no flock"
fi

# psd by itself.
ok "a port that is none" fails_with 64 "127.0.0.1:99999: expected a port from 0 to 65535" "$psd" --listen 127.0.0.1:99999
ok "a socket in a folder that is not there" fails_with 64 "/nonexistent/dir: No such file or directory" "$psd" \
    --listen unix:/nonexistent/dir/x.sock
ok "too little memory" fails_with 64 "at least 4M" "$psd" --listen unix:x.sock --memory 4K
ok "far too little" fails_with 64 "at least 4M" "$psd" --listen unix:x.sock --memory 1
small_space() { # the default under RLIMIT_AS
    mkfifo space.ready
    (ulimit -v 2097152 && exec "$psd" --listen "unix:$scratch/space" --ready-fd 3 3>space.ready 2>space.log) &
    local pid=$! ready
    read -r ready <space.ready
    kill -TERM "$pid"
    wait "$pid"
    cat space.log
    grep -qF "memory: 0.8 GiB, 3/4 of half of RLIMIT_AS" space.log
}
no_log() { # whose log may not grow
    mkfifo log.ready
    (ulimit -f 0 && exec "$psd" --listen "unix:$scratch/log" --ready-fd 3 3>log.ready 2>full.log) &
    local pid=$! ready=
    read -r ready <log.ready
    "$psctl" --timeout 60 --ps "unix:$scratch/log" status
    local status=$?
    kill -TERM "$pid"
    wait "$pid" && [ $status = 0 ]
}
ok "psd serves on where its log may not grow" no_log
if [ "${SANITIZERS:-no}" = no ]; then
    ok "psd's default memory honours RLIMIT_AS" small_space
else
    n=$((n + 1))
    echo "ok $n - psd's default memory honours RLIMIT_AS # SKIP sanitizers need address space"
fi
ok "a public address needs --insecure" fails_with 78 "--insecure" "$psd" --listen 0.0.0.0:0
start_psd taken || exit 1
ok "an address in use" fails_with 73 "taken" "$psd" --listen "unix:$scratch/taken"
ok "a ps task that cannot be reached" eventually fails_with 69 "unix:$scratch/nobody" "$workerd" --job "$examples/softmax/async.yaml" \
    --set strategy.name=parameter_server --set timeout=1 --ps "unix:$scratch/nobody"
ok "psctl status" "$psctl" --timeout 60 --ps "unix:$scratch/taken" status
ok "psctl status --json" "$psctl" --timeout 60 --ps "unix:$scratch/taken" --json status
drains() { kill -TERM "$psd_pid" && wait "$psd_pid"; }
ok "SIGTERM: exit 0" drains
spared() { # as the servers of a Slurm job are
    local ready pid
    mkfifo spared.ready
    (trap '' TERM && exec "$psd" --listen "unix:$scratch/spared" --ready-fd 3 3>spared.ready 2>spared.log) &
    pid=$!
    read -r ready <spared.ready
    kill -TERM "$pid" && sleep 1 && "$psctl" --timeout 60 --ps "unix:$scratch/spared" status && kill -INT "$pid" && wait "$pid" &&
        ! grep "signal 15" spared.log
}
ok "SIGTERM that it was started to ignore: it goes on, and SIGINT ends it" spared
hangs_up() { start_psd hung && kill -HUP "$psd_pid" && wait "$psd_pid" && grep "stopped" hung.log; } # a terminal that is closed
ok "SIGHUP: exit 0" hangs_up
serves_on() ( # COMMAND ...: what runs it makes SIGHUP mean nothing
    rm -f "kept.ready"
    "$@"
    start_psd kept || return 1
    kill -HUP "$psd_pid" && sleep 1 && "$psctl" --timeout 60 --ps "unix:$scratch/kept" status && kill -TERM "$psd_pid" && wait "$psd_pid" &&
        ! grep "signal 1:" kept.log
)
ok "SIGHUP that it was started to ignore, as nohup does: it goes on" serves_on trap '' HUP
ok "SIGHUP to a service: it goes on" serves_on export NOTIFY_SOCKET=/dev/null

# A job on two standing psds: its name is free when it is done.
peers=unix:$scratch/standing0,unix:$scratch/standing1
start_psd standing0 --task 0 --peers "$peers" || exit 1
start_psd standing1 --task 1 --peers "$peers" || exit 1
on_standing() {
    timeout 600 "$workerd" --job "$examples/softmax/async.yaml" "${quick[@]}" --set strategy.name=parameter_server \
        --set strategy.update=sync --set name=job --set output=standing.safetensors --ps "$peers" --quiet "$@"
}
psctl_standing() { "$psctl" --timeout 60 --ps "$peers" "$@"; }
ok "a job on a standing psd" on_standing
ok "its name is free again" on_standing
ok "resumed, with other epochs" on_standing --set on_existing=resume --set epochs=3
ok "replaced" on_standing --set on_existing=replace
ok "psctl vars names the variables" says kernel psctl_standing vars job
ok "psctl status sums the job over the tasks" says done psctl_standing status job
ok "psctl shards" says job psctl_standing shards
ok "psctl workers" says left psctl_standing workers job
ok "psctl get writes npy" psctl_standing get job sequential/dense/kernel -o kernel.npy
ok "the file is npy" says NUMPY head -c 6 kernel.npy
ok "psctl stop" psctl_standing stop job
ok "the name is free again" on_standing
says_all() { # FILE TEXT ...
    local file=$1 text
    shift
    cat "$file"
    for text; do grep -qF -- "$text" "$file" || return 1; done
}
ok "psd's log says when a job begins and ends, and who comes and goes" says_all standing0.log "job 'job' begins: 1 worker" \
    "job 'job': worker 0 joined, pid " "job 'job': worker 0 left" "job 'job' is done"
ok "with the time" grep -qE "^20[0-9-]{8}T[0-9:]{8}\.[0-9]{3}Z psd\[0\] I job" standing0.log

# Deaths. A long job is started, and a part of it killed once it trains.
long_job() { # UPDATE ARGUMENT ...
    local update=$1
    shift
    exec "$psctl" run --ps 2 --workers 2 "$examples/softmax/async.yaml" --set strategy.name=parameter_server \
        --set strategy.update="$update" --set data.train_examples=640 --set data.test_examples=64 --set epochs="${epochs:-400}" \
        --set delay_ms=20 --set output=long.safetensors "$@"
}
begins_long() { # UPDATE ARGUMENT ...: its pid in $pid
    rm -f long.log # else what is looked for may still be there, of the one before
    (long_job "$@") >long.log 2>&1 &
    pid=$!
}
processes_with() { # TEXT: those whose command line has it
    local c
    for c in /proc/[0-9]*; do
        { tr '\0' ' ' <"$c/cmdline" | grep -qF -- "$1"; } 2>/dev/null && echo "${c#/proc/}"
    done
    return 0
}
child_of() { # PID TEXT
    local c
    for c in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
        tr '\0' ' ' <"/proc/$c/cmdline" 2>/dev/null | grep -qF -- "$2" && echo "$c"
    done
    return 0
}
kill_part() { # PATTERN CODE TEXT UPDATE ARGUMENT ...
    local pattern=$1 code=$2 text=$3 got=0 pid part epochs=$epochs
    shift 3
    for try in 1 2 3; do # of more epochs where all were trained before the part was killed
        begins_long "$@"
        eventually grep -qs "^Epoch 2" long.log || { cat long.log; return 1; }
        part=$(child_of "$pid" "$pattern")
        [ "$part" ] && kill -KILL "$part" && break
        wait "$pid"
        epochs=$((epochs * 10))
    done
    wait "$pid" || got=$?
    tail -n 12 long.log
    echo "exit $got, expected $code"
    [ "$got" = "$code" ] && grep -qF -- "$text" long.log
}
epochs=60
ok "async: a worker is killed, the others finish" kill_part '--rank 1' 0 "worker 1" async
ok "sync: a worker is killed, the others finish" kill_part '--rank 1' 0 "worker 1" sync
epochs=400
ok "with fewer than --min-workers the job ends" kill_part '--rank 1' 75 "worker 1" sync --min-workers 2
ok "a psd is killed: the job ends, and says so" kill_part '--task 1' 69 "ps 1" async
# One that is killed is started again, and stands still until the others have trained to the end.
cat >late-workerd <<SH
#!/bin/bash
[[ "\$*" == *"--rank 1 "* ]] && { [ ! -e came ] || kill -STOP \$\$; touch came; }
exec "$workerd" "\$@"
SH
chmod +x late-workerd
too_late() {
    local got=0 pid late part epochs
    for epochs in 60 600 6000; do # more where all were trained before worker 1 was killed
        rm -rf long.log came late.backups
        WORKERD=$PWD/late-workerd "$psctl" run --workers 3 "$examples/softmax/one_device.yaml" --set "strategy={name: multi_worker_mirrored, communication: ring}" \
            --set "callbacks=[{name: backup, path: late.backups, every_steps: 1000}]" --set data.train_examples=3840 --set data.test_examples=64 \
            --set epochs=$epochs --set output=late.safetensors >long.log 2>&1 &
        pid=$!
        eventually grep -qs "^Epoch 2" long.log || { cat long.log; return 1; }
        part=$(child_of "$pid" "--rank 1")
        [ "$part" ] && kill -KILL "$part" && break
        wait "$pid"
    done
    eventually grep -q "the job is done without worker 1" long.log || kill "$pid"
    late=$(sed -nE 's/.*is done without worker 1 \(pid ([0-9]+)\).*/\1/p' long.log)
    [ -z "$late" ] || kill -CONT "$late"
    wait "$pid" || got=$?
    tail -n 12 long.log
    echo "exit $got"
    [ "$got" = 0 ] && [ -s late.safetensors ]
}
ok "a worker that comes back when the job is done is not waited for" too_late
# Their backups would remove each other.
of_one_name() {
    local pid got=0
    "$workerd" --job "$examples/softmax/one_device.yaml" --quiet --set epochs=100000 --set "callbacks=[{name: backup, path: shared, every_steps: 10}]" \
        --set output=one.safetensors 2>one.log &
    pid=$!
    has_backup() { [ -n "$(find shared -name '*.safetensors' 2>/dev/null)" ]; }
    eventually has_backup || { cat one.log; return 1; }
    fails_with 73 "another training of job 'softmax' writes to that folder; expected another folder or name: shared/softmax-backup.lock is locked by worker 0 at $(uname -n) (pid $pid)" \
        "$psctl" run --workers 2 "$examples/softmax/async.yaml" --set output=two.safetensors --set "callbacks=[{name: backup, path: shared}]" || return 1
    ! grep -E "Epoch|joined|goes on with" said || return 1
    kill -TERM $pid
    wait $pid || got=$?
    ls shared
    [ "$got" = 143 ] && has_backup && [ ! -e shared/softmax-backup.lock ]
}
ok "two trainings of one name do not share a folder of backups" of_one_name
# A chief that hangs has the lock, and is followed.
follows() {
    local pid chief good=0
    begins_long async --set "callbacks=[{name: backup, path: followed, every_steps: 10}]" --set epochs=100000
    has_one() { [ -n "$(find followed -name '*.safetensors' "$@" 2>/dev/null)" ]; }
    eventually has_one || { cat long.log; return 1; }
    chief=$(child_of "$pid" "--rank 0")
    kill -STOP "$chief"
    grep "worker 0 at .*pid $chief" followed/softmax-backup.lock && sleep 1 && touch stopped && eventually has_one -newer stopped && good=1
    kill -KILL "$chief"
    eventually grep -q "worker 0 .*was killed" long.log # its lock is free when it is gone
    kill -TERM "$pid"
    wait "$pid"
    tail -n 5 long.log
    ls followed
    [ $good = 1 ] && ! grep "another training" long.log && [ ! -e followed/softmax-backup.lock ]
}
ok "whoever follows a chief that hangs writes backups, too" follows
no_place() { # found before the first step
    mkdir -p locked/softmax-checkpoint.lock && bad 73 "cannot lock locked/softmax-checkpoint.lock: Is a directory" "$examples/softmax/async.yaml" --set epochs=100000 --set "callbacks=[{name: checkpoint, path: locked}]"
}
ok "a folder of checkpoints that cannot be written to" no_place
interrupted() {
    local got=0
    local pid
    begins_long async
    eventually grep -qs "^Epoch 2" long.log || { cat long.log; return 1; }
    kill -TERM "$pid"
    wait "$pid" || got=$?
    tail -n 5 long.log
    echo "exit $got"
    grep -q 'stopped by .*; the weights are in ' long.log || return 1
    [ "$got" = 143 ] && [ -z "$(processes_with "$(sed -n 's/.*--cluster \(.*\)\/cluster.yaml.*/\1/p' long.log)")" ]
}
ok "SIGTERM ends psctl run and all it started" interrupted
hung_up() { # as with nohup
    local got=0 pid
    rm -f long.log long.safetensors
    (trap '' HUP && epochs=60 long_job async) >long.log 2>&1 &
    pid=$!
    eventually grep -qs "^Epoch 2" long.log || { cat long.log; return 1; }
    kill -HUP "$pid"
    wait "$pid" || got=$?
    tail -n 5 long.log
    echo "exit $got"
    [ "$got" = 0 ] && [ -s long.safetensors ]
}
ok "psctl run goes on after a hangup that it was started to ignore" hung_up
# Worker 0 does not move: psctl says whom it waits for, and how the weights are had meanwhile; and then it moves after all.
named_while_it_hangs() {
    local got=0 pid chief said
    printf '#!/bin/sh\nexec "%s" --dead-after-ms 600000 "$@"\n' "$psd" >more-patient-psd # than it stands still
    chmod +x more-patient-psd
    PSD=$PWD/more-patient-psd begins_long async
    eventually grep -qs "^Epoch 2" long.log || { cat long.log; return 1; }
    chief=$(child_of "$pid" "--rank 0")
    kill -STOP "$chief" && kill -INT "$pid"
    if eventually grep -q "can save the weights" long.log; then
        said=$(sed -n 's/.*can save the weights: psctl \(.*\) FILE$/\1/p' long.log)
        # shellcheck disable=SC2086
        "$psctl" $said rescued.safetensors
    fi
    kill -CONT "$chief"
    wait "$pid" || got=$?
    tail -n 8 long.log
    echo "exit $got"
    [ "$got" = 130 ] && [ -s rescued.safetensors ] && grep "waits for worker 0 (pid $chief), which has not ended yet; it is killed in" long.log &&
        grep "stopped by .*; the weights are in " long.log
}
ok "a worker that hangs when it is to end is named, and the weights are not lost" named_while_it_hangs
