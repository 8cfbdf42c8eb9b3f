#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psctl against live daemons: what it shows, what it changes, what the doctor finds, and what is said where something is
# wrong.
. "$top_srcdir/tests/it/lib.sh" || exit 1
. "$top_srcdir/tests/it/psctl_says.sh" || exit 1
cd "$scratch" || exit 1

# start_tcp NAME OPTION ...: a psd on a port of its own, in $port; started as start_psd does.
start_tcp() {
    local name=$1 ready
    shift
    mkfifo "$name.ready"
    "$psd" --listen 127.0.0.1:0 --ready-fd 3 "$@" 3>"$name.ready" 2>"$name.log" &
    psd_pid=$!
    read -r ready port <"$name.ready"
    [ "$ready" = READY ]
}
# ---- a cluster of two, and a job on it ----------------------------------------------------------------------------

peers=unix:$scratch/a0,unix:$scratch/a1
start_psd a0 --task 0 --peers "$peers" || exit 1
pid0=$psd_pid
start_psd a1 --task 1 --peers "$peers" || exit 1
pid1=$psd_pid
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }
worker() { # NAME UPDATE ARGUMENT ...: a worker of a long job, its pid in $worker_pid
    local name=$1 update=$2
    shift 2
    "$workerd" --job "$examples/softmax/async.yaml" --set name="$name" --set strategy.name=parameter_server \
        --set strategy.update="$update" --set data.train_examples=6400 --set data.test_examples=64 --set epochs=1000 \
        --set delay_ms=20 --set timeout=3600 --set output="$name.safetensors" --ps "$peers" --quiet "$@" 2>"$name.log" &
    worker_pid=$!
}
ok "no jobs" says "no jobs" ctl jobs
ok "nobody waits" says "nobody waits" ctl waits
no_words() { ctl --json "$1" | tee said && [ "$(cat said)" = "[]" ]; }
ok "no jobs --json" no_words jobs
ok "nobody waits --json" no_words waits
worker long async --rank 0 --workers 2 --min-workers 1
worker long async --rank 1 --workers 2 --min-workers 1
worker1=$worker_pid
trains() { ctl workers "$1" 2>/dev/null | have_stepped 2; }
ok "a job trains" eventually trains long

ok "status" says "long" ctl status
in_words() { # first of all, of all ps tasks; for programs, too
    ctl status >said && head -n 1 said | grep -E "^All is well: 1 job trains with 2 live workers, none dead\. It is in epoch [0-9]+ of [0-9]+; about [0-9]+ (s|min|h) left\.$" &&
        sed -n 2p said | grep "^can be lost  If a ps task ends, " && sed -n 3p said | grep "^worst " &&
        sed -n 4p said | grep -E "^type next    psctl (top|waits long)$" && ctl --json status >json.out && grep '"level": "ok"' json.out
}
ok "status in words" eventually in_words
ok "of what is lost where the job writes no checkpoints" says "all that job long has trained is lost: it writes no checkpoints" ctl status
how_far() { # for programs, and for people
    ctl status --json | "$PYTHON3" -c 'import json, sys
d = json.load(sys.stdin)
job, = [j for j in d["jobs"] if j["name"] == "long"]
assert job["epochs"] > job["epoch"] and job["time_left_ms"] > 0 and job["age_ms"] > 0 and job["examples_per_second"] > 0, job
last, = [e for e in d["epochs"] if e["job"] == "long"]
assert last["epoch"] >= 0 and 0 < last["metrics"]["val_loss"] < 10, last' && ctl status | grep "val_loss [0-9]" && ctl jobs long | grep "time left"
}
[ "${PYTHON3:-no}" = no ] || ok "how far it is" eventually how_far
not_there() { # what is seen of the others stays
    fails_with 69 "no: No such file or directory" "$psctl" --timeout 60 --ps "$peers,unix:$scratch/no" status >shown
    grep "^ps:2 (unix:$scratch/no) does not answer.$" shown && grep "^type next    psctl doctor$" shown && grep long shown
}
ok "status in words where a ps task is not there" not_there
in_colour() {
    local asked="'$psctl' --timeout 60 --ps '$peers' status" green=$'\033[32m'
    env -u NO_COLOR script -qc "$asked" /dev/null | grep -F "$green" && ! NO_COLOR=1 script -qc "$asked" /dev/null | grep -F "$green" &&
        ! ctl status | grep -F "$green"
}
ok "status has colour on a terminal, not with NO_COLOR" in_colour
ok "jobs" says "async" ctl jobs
ok "jobs: how many workers it needs" eval 'ctl --json jobs long | tee json.out && grep -q "\"min_workers\": 1" json.out && grep -q "\"all_workers\": 2" json.out'
ok "status: what the death of one does" says "; if a worker dies, the others train its examples." ctl status
ok "jobs JOB: its rule" says "learning_rate" ctl jobs long
ok "shards" says "long" ctl shards
ok "vars" says "(784, 10)" ctl vars long
ok "vars --json: trainable is a boolean" says '"trainable": true' ctl vars long --json
ok "workers" says "live" ctl workers long
ok "waits" ctl waits
ok "top --once" says "examples/s" ctl top --once
ok "top of one job" says "examples/s" ctl top long --once
for c in status jobs "jobs long" shards "vars long" "workers long" waits doctor "top --once" "get long sequential/dense/kernel"; do
    ok "$c --json" is_json ctl --json $c
done
ok "a job that is not there" fails_with 66 "there are: long" ctl status nothing
ok "a job that is not there, in top" fails_with 66 "there are: long" ctl top --once nothing
ok "a job that is nearly there" fails_with 66 "did you mean long?" ctl status logn
ok "its variables" fails_with 66 "nothing" ctl vars nothing
ok "without the name of the call" lacks "DESCRIBE" ctl vars nothing
cannot_write() { # CODE COMMAND ...: with nowhere to write to
    local code=$1 got=0
    shift
    for to in /dev/full -; do
        if [ $to = - ]; then "$@" 2>said >&-; else "$@" 2>said >$to; fi || got=$?
        cat said
        [ "$got" = "$code" ] && [ "$(grep -c 'psctl: cannot write standard output' said)" = 1 ] || return 1
    done
}
for c in status jobs "jobs long" doctor "top --once" top "status --json" "get long sequential/dense/kernel" \
    "get long sequential/dense/kernel -"; do
    ok "$c: output that cannot be written" cannot_write 74 ctl $c
done
ok "help: output that cannot be written" cannot_write 74 "$psctl" help
ok "plan: output that cannot be written" cannot_write 74 "$psctl" plan "$examples/softmax/async.yaml"
ok "a command's own exit code goes before" cannot_write 66 ctl status nothing
to_head() { # who has read enough
    local i
    for i in $(seq 20); do ctl --json "$1" 2>said | head -n 1 >head.out; done
    cat said
    [ ! -s said ]
}
ok "who does not read to the end is no error" to_head status
two_looks() {
    "$psctl" --timeout 60 --ps "$peers" top >looks &
    local pid=$!
    twice() { [ "$(grep -c '^psctl top' looks)" -ge 2 ]; }
    eventually twice
    kill "$pid"
    wait "$pid"
    head -n 20 looks
    twice && ! grep -q "$(printf '\033')" looks
}
ok "top where there is no terminal: one text after the other" two_looks
ok "doctor: all well" says "2 live workers" ctl doctor
ok "doctor: as a plugin of Nagios" says "PARAMSERVER OK - all is well | checked=" ctl doctor --nagios
ok "doctor: Nagios reads no JSON" fails_with 3 "expected no --json" ctl doctor --nagios --json
ok "doctor: which knows nothing of a job that is nowhere" fails_with 3 "PARAMSERVER UNKNOWN - " ctl doctor --nagios nowhere
of_a_pipe() { env -u TF_CONFIG "$psctl" --timeout 60 --cluster <(printf 'ps: ["unix:%s/a0", "unix:%s/a1"]\n' "$scratch" "$scratch") status; }
ok "the cluster of a file" says "long" of_a_pipe
printf 'ps: ["unix:%s/a0", "unix:%s/a1"]\n' "$scratch" "$scratch" >cluster.yaml
ok "an empty PSCTL_CLUSTER is none, an empty PSCTL_TLS, too" says "long" env PSCTL_CLUSTER= PSCTL_TLS= \
    TF_CONFIG="{\"cluster\": {\"ps\": [\"unix:$scratch/a0\", \"unix:$scratch/a1\"]}}" "$psctl" --timeout 60 status
ok "a wrong PSCTL_CLUSTER is named" fails_with 66 "psctl: \$PSCTL_CLUSTER: cannot read none.yaml" env PSCTL_CLUSTER=none.yaml "$psctl" status
ok "where --cluster goes before it, it is not" fails_with 66 "psctl: cannot read none.yaml" env PSCTL_CLUSTER=other.yaml "$psctl" --cluster none.yaml status
ok "a wrong PSCTL_TLS is named" fails_with 66 "psctl: \$PSCTL_TLS: " env PSCTL_TLS=none "$psctl" --ps "$peers" status
ok "the cluster of PSCTL_CLUSTER" says "long" env PSCTL_CLUSTER=cluster.yaml "$psctl" --timeout 60 status

tf_config="{\"cluster\": {\"ps\": [\"unix:$scratch/a0\", \"unix:$scratch/a1\"], \"worker\": [\"x:1\"]}}"
ok "the cluster of TF_CONFIG" says "long" env TF_CONFIG="$tf_config" "$psctl" --timeout 60 status
ok "a TF_CONFIG that is wrong" fails_with 65 "TF_CONFIG" env TF_CONFIG='{"cluster": 3}' "$psctl" status
ok "--cluster goes before TF_CONFIG" says "long" env TF_CONFIG='{"cluster": 3}' "$psctl" --timeout 60 --cluster cluster.yaml status

# On a terminal: a screen, q ends it, and the terminal is as it was.
on_terminal() { # TEXT [JOB]: which it shows
    "$PYTHON3" - "$1" "$psctl" --timeout 60 --ps "$peers" top "${@:2}" <<'PY'
import os, pty, select, signal, sys, termios, time
known, tell = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.read(known, 1)  # until it is known how the terminal was
    os.environ["TERM"] = "vt100"
    os.execv(sys.argv[2], sys.argv[2:])
before = termios.tcgetattr(fd)
os.write(tell, b".")
seen, end, sent = b"", time.time() + 300, False
while time.time() < end:
    if select.select([fd], [], [], 0.2)[0]:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        seen += got
    if seen.count(b"psctl top") >= 2 and not sent:
        sent = True
        raw = termios.tcgetattr(fd)
        assert raw[3] & termios.ICANON == 0, "keys are not read one by one"
        os.write(fd, b"q")
        while (after := termios.tcgetattr(fd)) != before and time.time() < end:
            time.sleep(0.02)
if not sent or time.time() >= end:
    os.kill(pid, signal.SIGKILL)
status = os.waitpid(pid, 0)[1]
print(seen[-300:])
assert sent and status == 0, status
assert after == before, "the terminal is not as it was"
assert seen.startswith(b"\033[?1049h") and seen.rstrip().endswith(b"\033[?1049l")
assert sys.argv[1].encode() in seen
PY
}
if [ "$PYTHON3" != no ]; then
    ok "top on a terminal: q ends it, all is as it was" on_terminal examples/s
    ok "top on a terminal: a job that is not there" on_terminal "q quits  no job nothing here" nothing
else
    n=$((n + 1))
    echo "ok $n - top on a terminal # SKIP no python3"
fi

# ---- get and put --------------------------------------------------------------------------------------------------

kernel=sequential/dense/kernel
ok "a job of its own for get and put" timeout 600 "$workerd" --job "$examples/softmax/async.yaml" "${quick[@]}" \
    --set name=still --set strategy.name=parameter_server --set output=still.safetensors --ps "$peers" --quiet
epoch_of_still() { # what people are shown; what programs are
    local log
    log=$(ctl jobs still | awk '$1 == "epoch" { print $2 }')
    ctl --json jobs still | tee json.out | grep -m 1 '"epoch": 1,' && echo "people: $log" && [ "$log" = 2 ]
}
ok "epochs are counted from 1, as in the log; in JSON from 0" epoch_of_still
ok "get writes .npy" ctl get still $kernel one.npy
no_object() { fails_with 66 "no job nothing here" ctl --json jobs nothing && [ -z "$(ctl --json jobs nothing 2>/dev/null)" ]; }
ok "a job that is not there is no empty list" no_object
saves() { # all weights, as the trainer has written them; what it is of
    ctl save still saved.safetensors && cmp saved.safetensors still.safetensors &&
        ctl --json save still saved.safetensors | grep '"variables": 2'
}
ok "save writes the bytes that the trainer has written" saves
saves_to_stdout() { # and nothing beside, however standard output is named
    local to
    for to in - /dev/stdout /dev/fd/1; do
        ctl save still $to >piped && cmp piped still.safetensors && ctl --json save still $to | cmp - still.safetensors &&
            ctl get still $kernel $to >piped.npy && cmp piped.npy one.npy || return 1
    done
    [ ! -e ./- ] && ctl restore still piped
}
ok "save and get to standard output" saves_to_stdout
ok "save of a job that is not there" fails_with 66 "no job" ctl save nothing saved.safetensors
ok "save into a folder" fails_with 73 "$scratch" ctl save still "$scratch"
put_back() {
    ctl get still $kernel --rows 10:20 -o rows.npy && ctl put still $kernel rows.npy --rows 30:40 &&
        ctl get still $kernel --rows 30:40 again.npy && cmp rows.npy again.npy && ctl get still $kernel two.npy &&
        ! cmp one.npy two.npy && ctl put still $kernel one.npy && ctl get still $kernel two.npy && cmp one.npy two.npy
}
ok "rows and wholes, there and back" put_back
# What is not finite is no zero: the first values nan, inf, -inf and 0.5; then nothing that is finite.
not_finite() {
    { head -c 128 rows.npy && printf '\0\0\300\177\0\0\200\177\0\0\200\377\0\0\0\77' && tail -c +145 rows.npy; } >odd.npy
    { head -c 128 rows.npy && for i in {1..100}; do printf '\0\0\300\177'; done; } >none.npy
    says "nan,inf,-inf,0.5," ctl put still $kernel odd.npy --rows 30:40 && ctl get still $kernel --rows 30:40 --json >j || return 1
    cat j && tr -d ' \n' <j | grep -F '"not_finite":3,"first":[null,null,null,0.5,' || return 1
    says "nan,nan,nan,nan,nan,nan" ctl put still $kernel none.npy --rows 30:40 && ! grep norm said || return 1
    ctl put still $kernel one.npy
}
ok "what is not finite is shown as that" not_finite
ok "put of another shape" fails_with 65 "its shape is (10, 10), expected (784, 10)" ctl put still $kernel rows.npy
LC_ALL=C sed 's/<f4/<i4/' one.npy >integers.npy
ok "put of another dtype" fails_with 65 "type i4, the variable is float32: expected f4" ctl put still $kernel integers.npy
ok "put of something else" fails_with 65 "x93NUMPY" ctl put still $kernel "$examples/softmax/async.yaml"
ok "put of no file" fails_with 66 "nothing.npy" ctl put still $kernel nothing.npy
unchanged() { ctl get still $kernel two.npy && cmp one.npy two.npy; }
ok "put of a folder" fails_with 66 "cannot read /tmp: Is a directory" ctl put still $kernel /tmp
ok "none of which changed anything" unchanged
no_file() { fails_with "$1" "$2" ctl get still $kernel "$3" && lacks "784" ctl get still $kernel "$3"; }
ok "get into a folder that is not there" no_file 73 "cannot create /nonexist/k.npy: No such file" /nonexist/k.npy
ok "get into a folder" no_file 73 "cannot create /tmp: it is a folder" /tmp
ok "get onto what is full" no_file 74 "cannot write /dev/full: No space left" /dev/full
full_disk() { (ulimit -f 4 && exec "$psctl" --timeout 60 --ps "$peers" get still $kernel "$1"); }
earlier() {
    cp one.npy earlier.npy && fails_with 74 "cannot write earlier.npy: File too large" full_disk earlier.npy &&
        cmp one.npy earlier.npy && ! ls earlier.npy.*
}
ok "get over an earlier file on a full disk: it stays" earlier
ok "rows that are not there" fails_with 65 "expected A below B, and B at most 784" ctl get still $kernel --rows 700:800
ok "a variable that is not there" fails_with 66 "did you mean $kernel?" ctl get still sequential/dense/kernal
ok "get to standard output" says NUMPY ctl get still $kernel -o -

# ---- restore ------------------------------------------------------------------------------------------------------

# epoch_of_adam OUTPUT OPTION ...: one epoch more of a job that is the same whenever it begins with the same state.
epoch_of_adam() {
    local output=$1
    shift
    timeout 600 "$workerd" --job "$examples/softmax/sync.yaml" "${quick[@]}" --set epochs=1 --set name=adam \
        --set 'optimizer={name: adam}' --set data.shuffle=false --set output="$output" --ps "$peers" --workers 1 --quiet "$@"
}
goes_back() { # weights, slots and steps: else Adam's next step is another
    epoch_of_adam first.safetensors --set 'callbacks=[{name: checkpoint, path: kept}]' && cp kept/adam-*.safetensors back &&
        epoch_of_adam undisturbed.safetensors --set on_existing=resume && says "momentum,velocity" ctl restore adam back &&
        ctl save adam saved.safetensors && cmp saved.safetensors first.safetensors &&
        epoch_of_adam restored.safetensors --set on_existing=resume && cmp undisturbed.safetensors restored.safetensors
}
ok "restore: a job goes back to its checkpoint, and on from there as before" goes_back
# A rule without slots, whose rate goes down with its steps.
epoch_of_sgd() {
    local output=$1
    shift
    timeout 600 "$workerd" --job "$examples/softmax/sync.yaml" "${quick[@]}" --set epochs=1 --set name=decays --set data.shuffle=false \
        --set 'optimizer={name: sgd, learning_rate: {schedule: exponential, initial: 0.1, decay_steps: 10, decay_rate: 0.5}}' \
        --set output="$output" --ps "$peers" --workers 1 --quiet "$@"
}
steps_go_back() {
    epoch_of_sgd first-sgd.safetensors --set 'callbacks=[{name: checkpoint, path: kept}]' && cp kept/decays-*.safetensors back-sgd &&
        epoch_of_sgd undisturbed.safetensors --set on_existing=resume && ctl restore decays back-sgd &&
        epoch_of_sgd restored.safetensors --set on_existing=resume && cmp undisturbed.safetensors restored.safetensors
}
ok "restore: the steps of a rule without slots, too" steps_go_back
weights_alone() {
    ctl restore adam first.safetensors >said && grep "what the optimizer keeps is as it was" said &&
        ctl save adam saved.safetensors && cmp saved.safetensors first.safetensors &&
        ctl --json restore adam first.safetensors | grep '"slots": null'
}
ok "restore of what save wrote: the weights alone" weights_alone
damaged() {
    ctl save adam before.safetensors && LC_ALL=C sed 's/"iterations_ahead/"iterations_behind/' back >damaged &&
        fails_with 65 "damaged" ctl restore adam damaged && ctl save adam after.safetensors &&
        cmp before.safetensors after.safetensors
}
ok "restore of a damaged checkpoint changes nothing" damaged
LC_ALL=C sed 's/kernel/kernal/' first.safetensors >renamed.safetensors
LC_ALL=C sed 's/\[784,10\]/[10,784]/' first.safetensors >turned.safetensors
ok "restore of other variables" fails_with 78 "expected floats of shape (784, 10) under the name $kernel, but has none" \
    ctl restore adam renamed.safetensors
ok "restore of other shapes" fails_with 78 "has shape (10, 784), expected the variable's, (784, 10)" \
    ctl restore adam turned.safetensors
ok "restore of no file" fails_with 66 "nothing.safetensors" ctl restore adam nothing.safetensors
no_more() { # nothing changes, and to try again does not help
    worker gone async --rank 0 --workers 1 && eventually says "running" ctl jobs gone && kill -TERM "$worker_pid" || return 1
    wait "$worker_pid"
    eventually says "interrupted" ctl jobs gone && fails_with 78 "job gone is interrupted: a file is restored into a job that runs, or is done" \
        ctl restore gone gone.safetensors && ctl stop gone
}
ok "restore into a job that has ended early" no_more
ok "restore into a job that is not there" fails_with 66 "no job" ctl restore nothing first.safetensors
doubles_stay() { # as they are, in a job that has had others
    # shellcheck disable=SC2086
    "$top_builddir/tests/it/doubles" wide 0.1 1e300 ${peers//,/ } &&
        "$top_builddir/tests/it/doubles" wide2 0 0 ${peers//,/ } &&
        ctl save wide wide.safetensors && grep -a '"F64"' wide.safetensors && ctl restore wide2 wide.safetensors &&
        ctl get wide d wide.npy && ctl get wide2 d wide2.npy && cmp wide.npy wide2.npy
}
ok "save and restore of float64" doubles_stay

# ---- completion, as it is typed -----------------------------------------------------------------------------------

# typed WORDS KEYS: what an interactive bash makes of `psctl KEYS`, where \t asks for completion: <WORDS>, each in <>.
typed() {
    "$PYTHON3" - "$1" "$2" <<'PY'
import os, pty, sys, time
want, keys = sys.argv[1], sys.argv[2].encode().decode("unicode_escape")
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", PATH=os.path.dirname(os.environ["psctl"]) + ":" + os.environ["PATH"])
    os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
# Behind what was completed, a "." shows whether a space was put there.
os.write(fd, (". $top_srcdir/tools/psctl/psctl.bash; unset HISTFILE\n" "psctl " + keys + ".\x01printf '<%s>' \n" "exit\n").encode())
seen = b""
try:
    while got := os.read(fd, 65536):
        seen += got
except OSError:
    pass
os.waitpid(pid, 0)
print(seen.decode())
sys.exit(want not in seen.decode())
PY
}
# The completion waits a second for psd, and offers nothing where that does not answer.
if [ "$PYTHON3" != no ]; then
    export psctl PSCTL_CLUSTER=$scratch/cluster.yaml
    ok "typed: worker: ends in a colon" eventually typed "<drain><still><worker:.>" 'drain still w\t'
    ok "typed: ps: too" eventually typed "<drain><ps:.>" 'drain p\t'
    ok "typed: what follows the colon stays" eventually typed "<drain><still><worker:1.>" 'drain still worker:1\t'
    ok "typed: a job" eventually typed "<stop><still><.>" 'stop st\t'
    ok "typed: a job, not a file" eventually typed "<get><still><.>" 'get sti\t'
    ok "typed: a variable" eventually typed "<get><still><$kernel><.>" 'get still seq\tk\t'
    ok "typed: a file" eventually typed "<get><still><$kernel><one.npy><.>" "get still $kernel on\\t"
    ok "typed: no file where none is meant" eventually typed "<vars><on.>" 'vars on\t'
    ok "typed: a file after an option" eventually typed "<--cluster><cluster.yaml><jobs><.>" '--cluster clus\tjo\t'
    ok "typed: a job of the cluster that the line names" eventually typed "<stop><still><.>" "--ps unix:$scratch/a0 stop st\\t"
    unset PSCTL_CLUSTER
fi

# ---- hyperparameters ----------------------------------------------------------------------------------------------

ok "set-lr of no number" fails_with 64 "expected a number" ctl set-lr long fast
ok "set of no assignment" fails_with 64 "NAME=VALUE" ctl set long momentum
ok "set-lr, on every task" says "from now on" ctl set-lr long 0.0125
ok "jobs shows it" says "0.0125" ctl jobs long
ok "set of what the rule does not have" fails_with 65 "beta_1" ctl set long beta_1=0.5
ok "set of what it has" says "from now on" ctl set long learning_rate=0.02
for c in "set-lr nothing 0.1" "set nothing learning_rate=0.1" "vars nothing" "workers nothing" "get nothing $kernel" "stop nothing" \
    "drain nothing worker:0"; do
    ok "$c: a job that is not there" fails_with 66 "no job nothing here; there are: " ctl $c
done

# ---- waits --------------------------------------------------------------------------------------------------------

worker synced sync --rank 0 --workers 2
worker synced sync --rank 1 --workers 2
worker1s=$worker_pid
ok "a sync job trains" eventually trains synced
one_waits() { # it stands still only for the look: else it may be dead by then, and nobody waits for it
    kill -STOP "$worker1s"
    sleep 0.2
    ctl waits synced | tee said
    kill -CONT "$worker1s"
    grep -q "worker 0 .*worker 1" said
}
ok "waits: who waits for a worker that was stopped" eventually one_waits
kill -KILL "$worker1s"
dead() { ctl workers synced | grep -q "1 *dead"; }
ok "its death is known" eventually dead
ok "workers: what it was, and where" says "pid $worker1s on $(uname -n)" ctl workers synced
silent_for() { ctl --json workers synced | tr -d ' \n' | grep -oE '\{[^{}]*"worker":1,[^{}]*\}' | tee said && grep -q '"silent_ms":[1-9]' said; }
ok "and for how long it has been silent" silent_for
ok "doctor: a dead worker" fails_with 69 "job synced, worker 1, pid $worker1s on" ctl doctor synced
ok "stop" says stopped ctl stop synced

# ---- worker 0 has not started ------------------------------------------------------------------------------------------

worker early sync --rank 1 --workers 2
names_worker_0() { says "job early" ctl doctor && says "worker 1 waits for worker 0, which has not started; start it" ctl doctor early; }
ok "doctor: worker 1 waits for worker 0" eventually names_worker_0
ok "waits: for which job" says "early" ctl waits
ok "waits: of that job" says "the job to be opened" ctl waits early
ok "waits: of no other one" fails_with 66 "has no job 'later'" ctl waits later
warns() { says "Job early waits for worker 0, which has not started." ctl status && grep "^type next    psctl doctor$" said; }
ok "status tells of it" eventually warns
kill -KILL "$worker_pid"

# ---- a job that is resumed otherwise than it was declared --------------------------------------------------------

resume_still() {
    timeout 600 "$workerd" --job "$examples/softmax/async.yaml" "${quick[@]}" --set name=still --set on_existing=resume \
        --set strategy.name=parameter_server --set output=still.safetensors --ps "$peers" --quiet "$@"
}
ok "a job cannot be resumed with another rule" fails_with 78 "still" resume_still --set optimizer.name=adagrad
not_lost() { fails_with 75 "start it again with --set on_existing=resume (or replace)" ctl doctor still && lacks "then start it again" ctl doctor still; }
ok "doctor: that has failed, and nothing is lost" not_lost
ok "its name is taken" fails_with 73 "replace it (on_existing: resume, replace)" resume_still --set on_existing=refuse
ok "which is so" resume_still
ok "set-lr of a job that is done" says "job still is done: learning_rate is 0.5 if it is resumed" ctl set-lr still 0.5

# ---- drain --------------------------------------------------------------------------------------------------------

ok "drain of what is not there" fails_with 66 "no ps:7 among 2" ctl drain ps:7
ok "drain of what is no task" fails_with 64 "is not ps:N" ctl drain seven
ok "drain of what is no worker" fails_with 64 "is not worker:N" ctl drain long 1
ok "drain names what still runs" says "long" ctl drain ps:1
ok "status shows it" says "draining" ctl status
ok "doctor: a warning, and what to do" says "it takes no new jobs; psctl drain ps:1 --undo takes that back" ctl doctor
refused() {
    ! timeout 600 "$workerd" --job "$examples/softmax/async.yaml" "${quick[@]}" --set name=late --set timeout=5 \
        --set strategy.name=parameter_server --ps "$peers" --quiet >said 2>&1
    cat said
    grep -q drain said
}
# Whose last attempt has no time left for an answer says so instead: the next one's end falls elsewhere.
ok "a new job is refused" eventually refused
ok "drain --undo" says "takes jobs" ctl drain ps:1 --undo
ok "and it is not any more" lacks "draining" ctl status
ok "drain --wait says for whom it waits" fails_with 75 "still draining after 1 s" ctl drain ps:1 --wait --wait-max 1
ctl drain ps:1 --undo >/dev/null
drains_nobody() { # a dead one is not asked, and would come back
    local got=0
    worker mute async --rank 0 --workers 2 && eventually says "running" ctl jobs mute &&
        fails_with 78 "worker 1 of job mute is expected, and cannot be asked to leave: it trains if it is started while the job runs" ctl drain mute worker:1 || got=1
    kill -STOP "$worker_pid" && eventually says " dead " ctl workers mute &&
        fails_with 78 "worker 0 of job mute is dead, and cannot be asked to leave" ctl drain mute worker:0 --wait &&
        says "state  dead" ctl drain mute worker:0 --undo || got=1
    kill -KILL "$worker_pid"
    wait "$worker_pid"
    ctl stop mute
    return $got
}
ok "a worker that is not there, or is dead, cannot be asked to leave" drains_nobody
ok "a worker is asked to leave" says "draining" ctl drain long worker:1
ok "and has left" eventually says "left" ctl workers long
ok "drain --wait of it returns" says "left" ctl drain long worker:1 --wait

# ---- a cluster that is described differently -------------------------------------------------------------------------

# Nothing is changed where the tasks are not those that are listed.
swapped=unix:$scratch/a1,unix:$scratch/a0
for c in "drain ps:0" "drain long worker:0" "set-lr long 0.5" "set long learning_rate=0.5" "put still $kernel one.npy" "stop long"; do
    ok "$c: tasks in another order" fails_with 78 \
        "ps:0 (unix:$scratch/a1) says that it is ps:1 of 2, it is listed as ps:0 of 2: the cluster is described differently" \
        "$psctl" --timeout 60 --ps "$swapped" $c
    ok "$c: one task of two" fails_with 78 "says that it is ps:0 of 2, it is listed as ps:0 of 1" "$psctl" --timeout 60 --ps "unix:$scratch/a0" $c
done
unchanged_all() {
    lacks draining ctl status && ! ctl workers long | grep "^ *0 .*yes" && ! ctl jobs long | grep "learning_rate *0.5" &&
        ctl status long
}
ok "and nothing was changed" unchanged_all

# ---- doctor -------------------------------------------------------------------------------------------------------

ok "doctor: tasks in another order" fails_with 78 "says that it is ps:1 of 2, it is listed as ps:0 of 2" \
    "$psctl" --timeout 60 --ps "unix:$scratch/a1,unix:$scratch/a0" doctor
ok "doctor: fewer tasks than they were told of" fails_with 78 "says that it is ps:0 of 2, it is listed as ps:0 of 1" \
    "$psctl" --timeout 60 --ps "unix:$scratch/a0" doctor
no_socket() {
    fails_with 69 "No such file" "$psctl" --ps "unix:$scratch/a0,unix:$scratch/none" doctor && grep -q "ok *ps:0" "$scratch/said"
}
ok "doctor: a socket that is not there, and the other is not hidden by it" eventually no_socket
ok "doctor: a name that does not resolve" fails_with 69 "does not resolve" \
    "$psctl" --timeout 5 --ps "unix:$scratch/a0,no-such-host.invalid:7070" doctor
start_tcp tcp --task 1 --peers "unix:$scratch/a0,unix:$scratch/elsewhere" || exit 1
ok "doctor: one that was told of another cluster" fails_with 78 "was told of other ps addresses than ps:0" \
    "$psctl" --timeout 60 --ps "unix:$scratch/a0,127.0.0.1:$port" doctor
kill -TERM "$psd_pid"
wait "$psd_pid"
# No port that was free a moment ago: another process may have got it.
ok "doctor: nobody listens, for Nagios" fails_with 2 "PARAMSERVER CRITICAL - ps:1 (127.0.0.1:1): connection refused" \
    "$psctl" --timeout 60 --ps "unix:$scratch/a0,127.0.0.1:1" doctor --nagios
ok "doctor: nobody listens" fails_with 69 "connection refused" "$psctl" --timeout 60 --ps "unix:$scratch/a0,127.0.0.1:1" doctor
kill -STOP "$pid1"
ok "doctor: one that was stopped" eventually fails_with 69 "takes the connection, then does not answer" ctl --timeout 5 doctor
ok "status: names it, with its address" eventually fails_with 75 "ps:1 (unix:$scratch/a1)" ctl --timeout 5 status
ok "top --once: as status" eventually fails_with 75 "ps:1 (unix:$scratch/a1)" ctl --timeout 5 top --once
takes_its_time() { # as long as --timeout says, and one sentence
    local before=$SECONDS
    fails_with 75 "no answer to Status within 3.0 s" ctl --timeout 3 status || return 1
    [ $((SECONDS - before)) -ge 2 ] && lacks "waited" cat "$scratch/said"
}
ok "status: waits as long as it was told" eventually takes_its_time
says_who() { fails_with 69 "becomes 0.125, and ps task 1 has not heard of it" ctl --timeout 20 set-lr long 0.125; }
ok "set-lr: a task that does not answer is named" eventually says_who
kill -CONT "$pid1"
ok "doctor: and it is well again" eventually says "ok" ctl doctor long

# Something else listens: a web server.
not_grpc() {
    "$PYTHON3" - >http.port <<'PY' &
import http.server, sys
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
print(s.server_port, flush=True)
sys.stderr = open("/dev/null", "w")
s.serve_forever()
PY
    eventually test -s http.port
    fails_with 69 "is no gRPC server" "$psctl" --timeout 60 --ps "unix:$scratch/a0,127.0.0.1:$(cat http.port)" doctor &&
        fails_with 69 "what listens there is no gRPC server" "$psctl" --timeout 60 --ps "127.0.0.1:$(cat http.port)" status
}
[ "$PYTHON3" = no ] || ok "doctor: a web server" not_grpc

# What no healthy task says of itself.
fake() { # NAME JSON
    "$PYTHON3" "$top_srcdir/tests/it/fake_psd.py" "unix:$scratch/$1" "$2" >"$1.ready" 2>"$1.log" &
    eventually test -s "$1.ready" || cat "$1.log"
}
beside() { # NAME COMMAND ...: of a cluster of two fakes, the one of this name being the second
    local name=$1
    shift
    "$psctl" --timeout 60 --ps "unix:$scratch/first,unix:$scratch/$name" "$@"
}
if [ "$PYTHON3" != no ]; then
    version=$("$psctl" --version)
    version=${version#psctl }
    job='{"name": "j", "run": 1, "state": "running", "update": "SYNC"}'
    plan='{"tasks": 2, "update": "SYNC", "rule": "sgd", "variables": [{"name": "v", "dtype": "FLOAT32"}]'
    fake first "{\"status\": {\"version\": \"$version\", \"tasks\": 2, \"jobs\": [$job]}, \"describe\": $plan},
        \"waits\": 5, \"trace\": 5, \"workers\": {\"members\": [{\"state\": \"LIVE\", \"clock\": 7}, {\"rank\": 1, \"state\": \"LIVE\",
        \"clock\": 4}, {\"rank\": 2, \"state\": \"EXPECTED\"}, {\"rank\": 3, \"state\": \"LIVE\", \"clock\": 2, \"excluded\": true}]}}"
    second() { # NAME STATUS DESCRIBE [CLOCK_OFF]: status and description beside what the first one says as well
        fake "$1" "{\"status\": {\"task\": 1, \"tasks\": 2, $2}, \"describe\": $3, \"clock_off_ms\": ${4:-0}}"
    }
    good="\"version\": \"$version\", \"jobs\": [$job]"
    second alike "$good" "$plan, \"task\": 1, \"generation\": 9}"
    second newer "\"version\": \"99.1\", \"jobs\": [$job]" "$plan}"
    second late "$good" "$plan}" -4000
    second early "$good" "$plan}" 90000
    second full "$good, \"block_bytes\": 950, \"limit_bytes\": 1000" "$plan}"
    second other "$good" "${plan/sgd/adam}}"
    second changed "$good" "$plan, \"changes\": [{\"name\": \"learning_rate\", \"value\": 0.5}]}"
    second rerun "${good/: 1,/: 2,}" "$plan}"
    ok "doctor: two that agree, and a worker that has not joined" says "has not joined yet" beside alike doctor
    ok "doctor: another version" fails_with 78 "is version 99.1, ps:0 is $version" beside newer doctor
    # By less than the answer took is not seen.
    ok "doctor: a clock that is behind" eventually fails_with 78 "s behind this machine's" beside late doctor
    ok "doctor: a clock that is ahead" eventually fails_with 78 "s ahead of this machine's" beside early doctor
    ok "doctor: memory that is nearly full" says "is 95 % full" beside full doctor
    ok "doctor: another declaration" fails_with 78 "is declared otherwise on ps:1 than on ps:0" beside other doctor
    ok "doctor: another change" fails_with 78 "has other changed hyperparameters on ps:1" beside changed doctor
    ok "doctor: another run" fails_with 78 "is run 1 on ps:0 and run 2 on ps:1" beside rerun doctor
    fake split "{\"status\": {\"jobs\": [${job%\}}, \"splits\": 2, \"split_worker\": 3, \"split_round\": 17, \"steps\": 41, \"updates\": 80}]}}"
    splits() {
        "$psctl" --timeout 60 --ps "unix:$scratch/split" --json jobs | tee said
        for text in '"splits": 2' '"split_worker": 3' '"split_round": 17' '"steps": 41' '"requests": 80'; do grep -q "$text" said || return 1; done
    }
    ok "jobs: gradients that count in part; steps, and requests" splits
    all_waits() { "$psctl" --timeout 60 --ps "unix:$scratch/first" waits >said && cat said && [ "$(grep -c 'worker [0-4] .*a round' said)" = 5 ]; }
    fake never '{"workers": {"members": [{"state": "DEAD", "reason": "did not join within 2.0 s"}]}}'
    ok "workers: one that never came has no silence" lacks silent "$psctl" --timeout 60 --ps "unix:$scratch/never" workers j
    # One that is started again as soon as it has left, as a service is: it is never seen to be away.
    fake again '{"status": {"tasks": 1}, "workers": {"members": [{"state": "LIVE", "incarnation": 5}]},
        "workers_drained": {"members": [{"state": "LIVE", "incarnation": 6}]}}'
    ok "drain --wait of a worker in whose place another is" says "left" "$psctl" --timeout 60 --ps "unix:$scratch/again" \
        drain j worker:0 --wait --wait-max 60
    fake asked '{"status": {"tasks": 1}, "workers": {"members": [{"state": "LIVE", "incarnation": 5}]},
        "workers_drained": {"members": [{"state": "LIVE", "incarnation": 5, "draining": true}]}}'
    ok "drain --wait of one that has not left" fails_with 75 "still draining after 1 s" "$psctl" --timeout 60 --ps "unix:$scratch/asked" \
        drain j worker:0 --wait --wait-max 1
    learns() { # CHANGES EXPECTED [MORE]: the learning rate of a sync job that has closed round 10
        fake "tuned$n" "{\"status\": {\"jobs\": [${job%\}}, \"round\": 10}]},
            \"describe\": $plan, \"hypers\": [{\"name\": \"learning_rate\", \"value\": 0.1}], \"changes\": [$1] ${3-}}}" || return 1
        "$psctl" --timeout 60 --ps "unix:$scratch/tuned$n" jobs j | tee said
        [ "$(awk '$1 == "learning_rate" { $1 = $1; print }' said)" = "learning_rate $2" ]
    }
    change() { echo "{\"name\": \"learning_rate\", \"value\": $1, \"round\": $2}"; }
    ok "jobs: the value in force, and the next" learns "$(change 0.04 5), $(change 0.3 1000000)" "0.04 5 0.1 0.3 1000000"
    ok "jobs: what is declared, and the next" learns "$(change 0.3 1000000), $(change 0.04 12)" "0.1 0.04 12"
    ok "jobs: the last word counts" learns "$(change 0.3 1000000), $(change 0.04 12), $(change 0.02 11)" "0.02 11 0.1"
    ok "jobs: what the schedule makes is not said" learns "$(change 0.04 12)" "0.04 12" \
        ', "schedule": {"kind": "constant", "initial": 0.5}'
    ok "waits: all, where an answer has room for two" all_waits
    all_past() {
        "$psctl" --timeout 60 --ps "unix:$scratch/first" trace >said && cat said && [ "$(grep -c 'worker [0-4] .* worker 8 ' said)" = 5 ] &&
            grep -q "^job j: worker 8 made others wait: worker 4 100 %, worker 3 80 %, worker 2 60 % of 8 min 20 s" said
    }
    ok "trace: likewise, and who made most of them wait" all_past
    # The second screen of psctl top in a terminal of 80 x 24: 20 tasks, of which 19 are not there, and long names.
    on_small_terminal() { # LOCALE
        LC_ALL=$1 "$PYTHON3" - "$psctl" --timeout 5 --ps "unix:$scratch/crowd$(printf ",unix:$scratch/none%s" {1..19})" top <<'PY'
import fcntl, os, pty, struct, sys, termios
sized, tell = os.pipe()
pid, fd = pty.fork()
if pid == 0:
    os.read(sized, 1)  # until the window has its size
    os.environ["TERM"] = "vt100"
    os.execv(sys.argv[1], sys.argv[1:])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
os.write(tell, b".")
seen = b""
try:
    while got := os.read(fd, 65536):
        seen += got
        if seen.count(b"psctl top") >= 2:
            os.write(fd, b"q")
except OSError:
    pass
assert os.waitpid(pid, 0)[1] == 0
frame = seen.decode().split("\033[H")[-1].split("\033[J")[0].replace("\033[K", "").replace("\r", "")
print(frame)
lines = frame.splitlines()
assert len(lines) <= 23 and max(map(len, lines)) <= 80, lines
PY
    }
    shows() { # LOCALE PATTERN ...
        on_small_terminal "$1" >said 2>&1
        local got=$?
        cat said
        shift
        for pattern; do grep -qE -- "$pattern" said || got=1; done
        return $got
    }
    long=$(printf 'a%.0s' {1..65})
    fake crowd "{\"status\": {\"jobs\": [{\"name\": \"$long\", \"state\": \"failed\", \"waiting\": 3, \"update\": \"SYNC\",
        \"reason\": \"worker 1 sent no heartbeat for 5.0 s\"}]}, \"workers\": {\"members\": [{\"state\": \"DEAD\",
        \"address\": \"pid 4242 on node7\", \"reason\": \"sent no heartbeat for 5.0 s\"}, {\"rank\": 1}]}}"
    ok "top in 80 x 24: what matters" eventually shows C.UTF-8 '^ 0 .* up +3$|^ 0 .* up +3 ' 'unreachable' '^job +state +waiting .*reason$' \
        '^a{23}… +failed +3 +.*worker 1 sent no' '^job +worker +state .*reason$' '^a{23}… +0 +dead .*sent no heartbeat' \
        '^[0-9]+ rows and [0-9]+ columns are not shown$'
    ok "top: an ellipsis that every locale has" eventually shows C '^a{21}\.\.\. +failed'
    ok "workers: who leads the slowest, which is none that rests" says "7     3" "$psctl" --timeout 60 --ps "unix:$scratch/first" workers j
fi

# ---- names that would steer a terminal, and tasks that do not answer ---------------------------------------------------

if [ "$PYTHON3" != no ]; then
    fake evil '{"status": {"jobs": [{"name": "a\u001b[31m\u009bm\u202e\n", "state": "failed", "reason": "\u2066x\u0007"}]},
        "workers": {"members": [{"state": "DEAD", "reason": "\u009b\u001b]0;x"}]}}'
    plain() { # ARGUMENT ...: neither the tables nor the errors have a control character
        "$psctl" --timeout 60 --ps "unix:$scratch/evil" "$@" >said 2>&1
        cat -v said
        [ -s said ] && ! LC_ALL=C grep -aqP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]' said
    }
    for c in status "status nothing" jobs "workers j" doctor "top --once" "--json status" "get nothing x"; do
        ok "$c: what is shown steers no terminal" plain $c
    done

    # Forwards to a1 what came as soon as there are two connections: psctl's call, and the look with plain sockets.
    relay() {
        exec "$PYTHON3" - "$scratch/relay" "$scratch/a1" <<'PY'
import socket, sys, threading
def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
waiting = [listener.accept()[0], listener.accept()[0]]
while True:
    for client in waiting:
        server = socket.socket(socket.AF_UNIX)
        server.connect(sys.argv[2])
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        threading.Thread(target=pump, args=(server, client), daemon=True).start()
    waiting = [listener.accept()[0]]
PY
    }
    relay &
    eventually test -S "$scratch/relay"
    ok "doctor asks a task and tries its address at once" says "job still" timeout 600 "$psctl" \
        --ps "unix:$scratch/a0,unix:$scratch/relay" --timeout 3600 doctor still

    silent() { # takes connections, counts them, says nothing
        exec "$PYTHON3" - "$scratch/silent" <<'PY'
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
held = []
while True:
    held.append(listener.accept()[0])
    open(sys.argv[1] + ".count", "w").write(str(len(held)))
PY
    }
    silent &
    eventually test -S "$scratch/silent"
    asked_once() {
        fails_with 69 "does not answer" "$psctl" --ps "unix:$scratch/a0,unix:$scratch/silent" --timeout 5 doctor || return 1
        both_came() { grep -qx 2 silent.count; }
        eventually both_came
        echo "connections: $(cat silent.count)"
        both_came
    }
    ok "doctor asks who does not answer once" asked_once
fi

# ---- a control task that is dead -------------------------------------------------------------------------------------

kill -KILL "$pid0"
wait "$pid0" 2>/dev/null
ok "doctor: a dead control task" eventually fails_with 69 "its control task ps:0 does not answer; its workers are not known" \
    ctl --timeout 5 doctor long
for c in "status long" "jobs long" "top --once long"; do
    ok "$c: its workers are not known" eventually fails_with 69 '"workers": null' ctl --timeout 5 --json $c
done
ok "jobs: for people, too" eventually fails_with 69 "workers     -" ctl --timeout 5 jobs long
# One that is started again knows nothing of what has failed with the other.
rm a0.ready
start_psd a0 --task 0 --peers "$peers" || exit 1
told() { ctl --timeout 5 status >said; head -n 4 said; head -n 1 said | grep "^Job .* has failed: ps task 0, the control task, does not know it any more"; }
ok "status: what has failed is told, though another task alone knows of it" eventually told

# ---- the end of psctl run -----------------------------------------------------------------------------------------

processes_with() { # TEXT: those whose command line has it
    local c
    for c in /proc/[0-9]*; do
        { tr '\0' ' ' <"$c/cmdline" | grep -qF -- "$1"; } 2>/dev/null && echo "${c#/proc/}"
    done
    return 0
}
killed() {
    "$psctl" run --ps 2 --workers 2 "$examples/softmax/async.yaml" --set strategy.name=parameter_server --set epochs=1000 \
        --set data.train_examples=640 --set data.test_examples=64 --set delay_ms=20 --set output=k.safetensors \
        >run.log 2>&1 &
    local pid=$! dir
    eventually grep -q "^Epoch 1" run.log || return 1
    dir=$(sed -n 's/.*--cluster \(.*\)\/cluster.yaml.*/\1/p' run.log)
    [ "$(processes_with "$dir" | wc -l)" -ge 4 ] || return 1
    kill -KILL "$pid"
    wait "$pid"
    nobody() { [ -z "$(processes_with "$dir/")" ]; }
    eventually nobody
    local got=$?
    rm -rf "${dir:?}"
    return $got
}
ok "psctl run that is killed leaves nobody behind" killed

# ---- the cluster file of the host -----------------------------------------------------------------------------------

host_file=$(grep -aom1 '/[[:print:]]*/paramserver/cluster\.yaml' "$psctl")
# with_host_file HOW COMMAND ...: HOW makes the file or not, in a mount namespace.
with_host_file() {
    local below=${host_file%/paramserver/*}
    while [ ! -d "$below" ]; do below=${below%/*}; done
    unshare --map-root-user --mount bash -c 'mount -t tmpfs tmpfs "$1" && mkdir -p "${2%/*}" && eval "$3" && shift 3 && cd / && "$@"' \
        - "$below" "$host_file" "$@"
}
if [[ $host_file != /etc/* ]] && with_host_file true true 2>why; then
    ok "one that cannot be read is not passed over" fails_with 66 "cannot read $host_file: Is a directory" with_host_file 'mkdir "$2"' "$psctl" status
    ok "where there is none, it is the psd of this host" fails_with 69 "127.0.0.1:7070" with_host_file true "$psctl" status
else
    skip "the cluster file of the host" "no mount namespace here, or the programs' settings are /etc's"
fi
