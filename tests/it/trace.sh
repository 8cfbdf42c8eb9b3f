#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# psctl trace: what the requests of a real job have waited for. Of two sync workers one is slow: the other waits for it,
# at both ps tasks, and that is what is said first.
. "$top_srcdir/tests/it/lib.sh" || exit 1
cd "$scratch" || exit 1
python=${PYTHON3:-python3}
[ "$python" != no ] || python=python3

peers=unix:$scratch/p0,unix:$scratch/p1
for i in 0 1; do start_psd "p$i" --task "$i" --peers "$peers" || exit 1; done
ctl() { timeout 600 "$psctl" --timeout 60 --ps "$peers" "$@"; }

workers=()
# work RANK DELAY_MS: a worker of the job slow, in the background.
work() {
    "$workerd" --job "$examples/softmax/async.yaml" --set name=slow --set strategy.name=parameter_server \
        --set strategy.update=sync --set strategy.partitioner=fixed:2 --set batch_size=32 --set data.test_examples=64 \
        --set data.train_examples=3200 --set epochs=1 --set delay_ms="$2" --set output=slow.safetensors --ps "$peers" \
        --rank "$1" --workers 2 --quiet 2>"slow.$1.log" &
    workers+=($!)
}

ok "nobody has waited yet" says "nobody has waited" ctl trace
ok "a job that is not there" fails_with 66 "has no job 'nothing'" ctl trace nothing
ok "a ps task that is not there" fails_with 69 "none" "$psctl" --timeout 2 --ps "unix:$scratch/none" trace

[ "${SANITIZERS:-no}" = no ] && delay=200 || delay=400 # far more than a step takes
work 0 1
work 1 $delay
ends() { local pid; for pid in "${workers[@]}"; do wait "$pid" || { cat slow.*.log; return 1; }; done; }
ok "a job trains, whose worker 1 takes up to $delay ms more for each step" ends

# ---- who makes others wait ----------------------------------------------------------------------------------------

ctl trace slow >sum.txt || cat sum.txt
said() { cat sum.txt && head -n 1 sum.txt | grep -qE '^job slow: worker 1 made others wait: worker 0 ([5-9][0-9]|100) % of '; }
ok "the first line says that worker 1 makes worker 0 wait, for most of the time" said
row() { # PS: worker 0's longest row at that ps task
    cat sum.txt && grep -E "^ *$1 +slow +worker 0 +(PUSH_)?PULL +round +[0-9]+ .* worker 1 +(9[0-9]|100)\.[0-9] %$" sum.txt
}
for i in 0 1; do ok "at ps:$i worker 0 waited for rounds, which worker 1 closed" row $i; done
summed() { ctl --json trace slow >sum.json && "$python" - <<'PY'
import json
rows = json.load(open("sum.json"))
total = lambda who: sum(r["total_us"] for r in rows if r["who"] == who and r["kind"] == "round")
for r in rows:
    assert r["median_us"] <= r["longest_us"] <= r["total_us"] and 0 <= r["time_share"] <= 1, r
    assert (r["whom"] is None) == (r["whom_share"] is None) and r["whom"] != r["who"], r
assert total("worker 0") > 1000000, rows
PY
}

# ---- each wait ----------------------------------------------------------------------------------------------------

events() { ctl --json trace --events slow >events.json && "$python" - <<'PY'
import collections, json
sums, events = json.load(open("sum.json")), json.load(open("events.json"))
assert len(events) == sum(r["waits"] for r in sums), (len(events), sums)
for task in 0, 1:
    ended = [e["ended_us"] for e in events if e["task"] == task]
    assert len(ended) > 1 and ended == sorted(ended), (task, ended)
of_rounds = [e for e in events if e["what"].startswith("round ") and not e["what"].startswith("round 1 ")]
# In round 1 both wait for who has been started later.
longest = max((e for e in of_rounds if e["who"] == "worker 0"), key=lambda e: e["waited_us"])
assert longest["whom"] == "worker 1" and longest["end"] == "went on", longest
assert longest["what"].split(" of ")[1] in ("'sequential/dense/kernel'", "'sequential/dense/bias'"), longest
# However long the machine stops one of them: in most rounds it is worker 0 that waits.
waited = collections.Counter()
for e in of_rounds: waited[e["who"], e["what"].split(" of ")[0]] += e["waited_us"]
longer = {"worker 0": 0, "worker 1": 0}
for r in {r for _, r in waited}: longer["worker 0" if waited["worker 0", r] > waited["worker 1", r] else "worker 1"] += 1
assert longer["worker 0"] > 3 * longer["worker 1"], longer
rounds = {e["what"].split(" of ")[0] for e in events if e["who"] == "worker 0"}
assert len(rounds & {f"round {k}" for k in range(2, 40)}) > 19, rounds  # not where the delay is next to nothing
PY
}
shown() { ctl trace --events slow >events.txt && cat events.txt && grep -qE "^ *[01] +slow +worker 0 +(PUSH_)?PULL +round [0-9]+ of '.*' +worker 1 +[0-9.]+ m?s +[0-9].* went on$" events.txt; }
ok "each wait, for people" shown

# ---- the timeline -------------------------------------------------------------------------------------------------

timeline() { ctl trace slow --timeline waits.json >/dev/null && "$python" - <<'PY'
import json
events, waits = json.load(open("events.json")), json.load(open("waits.json"))
spans = [e for e in waits if e["ph"] == "X"]
assert len(spans) == sum(e["who"].startswith("worker") for e in events), (len(spans), len(events))
names = {e["pid"]: e["args"]["name"] for e in waits if e["ph"] == "M" and e["name"] == "process_name"}
assert names == {1: "replica 0", 2: "replica 1"}, names
assert any(s["pid"] == 1 and s["name"].startswith("round ") and s["name"].endswith(" for worker 1") for s in spans)
assert {s["args"]["ps task"] for s in spans} == {0, 1}
assert all(s["cat"] == "wait" for s in spans)
PY
}
if "$python" -c 'import json' 2>/dev/null; then
    ok "as JSON: worker 0 has waited for rounds" summed
    ok "each wait is there, the latest first: in most rounds worker 0 waits for longer" events
    ok "the timeline has each wait of a worker" timeline
fi
ok "a timeline of all jobs" fails_with 64 "a timeline is of one job: expected JOB" ctl trace --timeline all.json
ok "a timeline that cannot be written" fails_with 73 "cannot create no/waits.json: No such file" ctl trace slow --timeline no/waits.json
ok "the job is forgotten" ctl stop slow
keeps() { # CODE TEXT COMMAND ...: so it ends, and a timeline that was written before stays
    cp waits.json kept.json && fails_with "$1" "$2" "${@:3}" --timeline kept.json && cmp waits.json kept.json
}
ok "its timeline stays where there is no such job" keeps 66 "has no job 'slow'" ctl trace slow
ok "and where no ps task answers" keeps 69 "none" "$psctl" --timeout 2 --ps "unix:$scratch/none" trace slow
ok "none is made" eval '! ctl trace slow --timeline new.json && [ ! -e new.json ]'
ok "and what it has waited for with it" says "nobody has waited" ctl trace
nothing() { [ "$(ctl --json trace)" = "[]" ]; }
ok "for programs, too" nothing
