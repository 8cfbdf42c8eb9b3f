#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# psd --http and workerd --http: what they print of a training is what Prometheus takes, and sane; every strategy has it;
# health and readiness; a real Prometheus scrapes them, where there is one, and the dashboard's queries find data.
. "$top_srcdir/tests/it/lib.sh"
. "$top_srcdir/tests/it/http.sh"
cd "$scratch" || exit 1
deploy=$top_srcdir/deploy/prometheus

# ---- samples ----

metrics() { get "$1" /metrics | tr -d '\r' | sed '1,/^$/d'; } # PORT
# sample PORT NAME [LABEL ...]: the value of the sample that has these labels, e.g. 'state="live"'.
sample() {
    local label found
    found=$(metrics "$1" | grep -E "^$2(\{| )")
    for label in "${@:3}"; do found=$(grep -F "$label" <<<"$found"); done
    awk 'NR == 1 { print $NF }' <<<"$found"
}
is() { # VALUE PORT NAME [LABEL ...]
    local got
    got=$(sample "${@:2}")
    echo "$3 is '$got', expected $1"
    [ "$got" = "$1" ]
}
above() { # VALUE PORT NAME [LABEL ...]
    local got
    got=$(sample "${@:2}")
    awk -v a="${got:-nan}" -v b="$1" 'BEGIN { print a, ">", b; exit !(a + 0 > b + 0) }'
}

# ---- what starts ----

ok "other hosts reach nothing without --insecure" fails_with 78 "other hosts could connect" \
    "$psd" --listen "unix:$scratch/x" --http 0.0.0.0:0
ok "no worker either" fails_with 78 "other hosts could connect" \
    "$workerd" --job "$examples/softmax/one_device.yaml" --http 0.0.0.0:0
ok "a unix socket is refused" fails_with 65 "not served on unix sockets" "$psd" --listen "unix:$scratch/x" --http unix:h
ok "--http is of a training" fails_with 64 "--http is of a training" \
    "$workerd" --job "$examples/softmax/one_device.yaml" --http 127.0.0.1:0 --evaluate

peers=unix:$scratch/psd0,unix:$scratch/psd1
start_psd psd0 --peers "$peers" --task 0 --http 127.0.0.1:0 --queue queue || exit 1
pid0=$psd_pid
start_psd psd1 --peers "$peers" --task 1 --http 127.0.0.1:0 || exit 1
pid1=$psd_pid
p0=$(http_port psd0.log) p1=$(http_port psd1.log)
ok "an address that is taken is refused" fails_with 73 "another process listens there" \
    "$psd" --listen "unix:$scratch/x" --http "127.0.0.1:$p0"
ctl() { "$psctl" --timeout 60 --ps "$peers" "$@"; }

ok "psd is healthy" answers 200 ok "$p0" /healthz
ok "and ready" answers 200 ok "$p1" /readyz
ok "there is no other page" answers 404 "expected /metrics, /healthz, /readyz, /status.json" "$p0" /x
ok "nothing is posted" answers 405 "expected GET or HEAD" "$p0" /metrics POST x
ok "no body is taken" answers 413 "expected none" "$p0" /metrics GET x
ok "HEAD has no text" test "$(get "$p0" /metrics HEAD | tr -d '\r' | sed '1,/^$/d')" = ""
drained() { ctl drain ps:1 && answers 503 "is being drained" "$p1" /readyz && is 1 "$p1" paramserver_psd_draining; }
ok "a task that is drained is not ready" drained
undrained() { ctl drain ps:1 --undo && answers 200 ok "$p1" /readyz; }
ok "and is again" undrained

# ---- a training ----

work() { # JOB RANK NAME OPTION ...: a worker, its pid in $work_pid
    "$workerd" --job "$examples/softmax/$1" --ps "$peers" --rank "$2" --quiet --http 127.0.0.1:0 \
        --set name="$3" --set data.train_examples=6400 --set data.test_examples=64 --set epochs=100000 "${@:4}" 2>"$3.$2.log" &
    work_pid=$!
}
has_port() { [ -n "$(http_port "$1")" ]; }
work async.yaml 1 watched --workers 2
pid_w1=$work_pid
ok "a worker that waits for others serves HTTP" eventually has_port watched.1.log
w1=$(http_port watched.1.log)
ok "it is healthy" answers 200 ok "$w1" /healthz
ok "but not ready" answers 503 "the training has not begun" "$w1" /readyz
work async.yaml 0 watched --workers 2 --set output="$scratch/watched.safetensors" \
    --set "callbacks=[{name: backup, path: $scratch/kept, every_steps: 20}]"
pid_w0=$work_pid
ok "the other one" eventually has_port watched.0.log
w0=$(http_port watched.0.log)
ok "it is ready when they train" eventually answers 200 ok "$w1" /readyz
ok "the epoch has figures" eventually above -1 "$w0" paramserver_workerd_figure 'figure="val_loss"'

job='job="watched"'
ok "psd names itself" is 1 "$p1" paramserver_psd_info 'task="1"' "version=\"$("$psd" --version | cut -d' ' -f2)\""
ok "and the job" is 1 "$p0" paramserver_job_info "$job" 'update="async"'
ok "which runs" is 1 "$p0" paramserver_job_state "$job" 'state="running"'
ok "and has not failed" is 0 "$p0" paramserver_job_state "$job" 'state="failed"'
ok "with two workers" is 2 "$p0" paramserver_job_live_workers "$job"
ok "of which it needs one" is 1 "$p0" paramserver_job_min_workers "$job"
ok "who live" is 1 "$p0" paramserver_worker_state "$job" 'worker="1"' 'state="live"'
ok "it knows all examples" is 6400 "$p0" paramserver_job_examples "$job"
ok "nothing is left out of the memory" above 31000 "$p0" paramserver_psd_blocks_bytes
below_limit() { above "$(sample "$p0" paramserver_psd_blocks_bytes)" "$p0" paramserver_psd_limit_bytes; }
ok "which is below its bound" below_limit
ok "gradients are finite" is 0 "$p0" paramserver_job_nonfinite_total "$job"
for what in paramserver_job_updates_total paramserver_job_bytes_moved_total paramserver_job_steps paramserver_psd_uptime_seconds; do
    before=$(sample "$p0" $what)
    ok "psd: $what grows" eventually above "$before" "$p0" $what
done
before=$(sample "$p0" paramserver_worker_step "$job" 'worker="1"')
ok "psd: paramserver_worker_step grows" eventually above "$before" "$p0" paramserver_worker_step "$job" 'worker="1"'
for what in steps_total examples_total training_seconds_total epoch uptime_seconds; do
    before=$(sample "$w1" paramserver_workerd_$what)
    ok "workerd: $what grows" eventually above "$before" "$w1" paramserver_workerd_$what
done
before=$(sample "$w1" paramserver_workerd_waiting_seconds_total 'what="weights"')
ok "workerd: its wait for weights grows" eventually above "$before" "$w1" paramserver_workerd_waiting_seconds_total 'what="weights"'
sane_share() {
    local share
    share=$(sample "$w1" paramserver_workerd_waiting_ratio)
    awk -v x="${share:-nan}" 'BEGIN { print x; exit !(x > 0 && x < 1) }'
}
ok "its share of waits is one" sane_share
ok "its examples per second are some" above 0 "$w1" paramserver_workerd_examples_per_second
ok "its loss is one" above 0 "$w1" paramserver_workerd_loss
ok "it never began anew" is 0 "$w1" paramserver_workerd_restarts_total

known_to_be_kept() { # one of those that are there, or that was a moment ago
    local step oldest
    above 0 "$p0" paramserver_job_checkpoint_step "$job" && ! above 60 "$p0" paramserver_job_checkpoint_age_seconds "$job" || return 1
    oldest=$(find "$scratch/kept" -name 'watched-backup-*.safetensors' | sort | sed -n '1s/.*-0*\([0-9]*\)\..*/\1/p')
    step=$(sample "$p0" paramserver_job_checkpoint_step "$job")
    echo "$step, and the oldest is $oldest"
    [ $((step % 20)) = 0 ] && [ "$step" -ge "$oldest" ] && ctl status | grep "loses the last .* of its training, since its checkpoint of step [0-9]*0; "
}
ok "its newest checkpoint is known" eventually known_to_be_kept
metrics "$p0" >psd0.metrics && metrics "$p1" >psd1.metrics && metrics "$w1" >w1.metrics
# One of each that psd's and workerd's pages have, of the job, but of figures.
all_have_samples() {
    local name missing=0
    for name in $(cat psd0.metrics w1.metrics | sed -nE 's/^# TYPE ([a-z_]+) .*/\1/p'); do
        cat psd0.metrics w1.metrics | grep -qE "^$name(\{| )" || { echo "$name has no sample"; missing=1; }
    done
    return $missing
}
ok "every metric has a sample" all_have_samples
ok "nobody waits in its queue" is 0 "$p0" paramserver_queue_jobs 'state="queued"'
two_wait() {
    for i in 1 2; do ctl submit --workers 1 "$examples/softmax/async.yaml" || return 1; done
    eventually is 2 "$p0" paramserver_queue_jobs 'state="queued"' && above 0 "$p0" paramserver_queue_oldest_seconds &&
        is 0 "$p0" paramserver_queue_jobs 'state="running"' && get "$p0" /status.json | tr -d ' \n\r' | grep -E '"queue":\{"queued":2,"running":0,"oldest_ms":[1-9][0-9]*,"failed":0}' &&
        for i in 1 2; do ctl cancel $i || return 1; done
}
ok "then two jobs do" two_wait
no_worker_there() { ! grep "paramserver_worker_" psd1.metrics && grep "paramserver_job_updates_total{$job,task=\"1\"}" psd1.metrics; }
ok "workers are task 0's to know, jobs of all" no_worker_there
if command -v promtool >/dev/null; then
    checks() { promtool check metrics <"$1"; }
    for page in psd0 psd1 w1; do ok "promtool finds nothing wrong with $page's metrics" checks $page.metrics; done
    ok "nor with the rules" promtool check rules "$deploy/rules.yml"
    cp "$deploy/rules.yml" "$top_srcdir/tests/it/metrics_rules.yml" .
    ok "each of which is raised when it should be" promtool test rules metrics_rules.yml
    ok "nor with prometheus.yml" promtool check config "$deploy/prometheus.yml"
    # The dashboard's own queries where psd knows one job, another is of a worker alone, and of a third psd alone is scraped.
    shows_all_workers() {
        "$PYTHON3" - "$deploy/dashboard.json" >dashboard_test.yml <<'P' && promtool test rules dashboard_test.yml
import json, re, sys
board = json.load(open(sys.argv[1], encoding="utf-8"))
job = next(v for v in board["templating"]["list"] if v["name"] == "job")
jobs = re.fullmatch(r"label_values\((.*), job\)", job["query"]["query"]).group(1)
def queries(title):
    panel = next(p for p in board["panels"] if p["title"] == title)
    return [f'({t["expr"].replace("$job", ".*")})' for t in panel["targets"]]
losses, speeds, steps = queries("Loss"), queries("Throughput of workers"), queries("Staleness")[1]
series = {'paramserver_job_info{job="a", task="0"}': 1, 'paramserver_worker_loss{job="a", task="0", worker="0"}': 2,
          'paramserver_workerd_examples_total{job="a", worker="0"}': "0+150", 'paramserver_job_examples_per_second{job="a"}': 11,
          'paramserver_workerd_examples_total{job="alone", worker="0"}': "0+300", 'paramserver_job_examples_per_second{job="b"}': 70,
          'paramserver_workerd_job_info{job="a", worker="0"}': 1, 'paramserver_workerd_loss{job="a", worker="0"}': 2,
          'paramserver_workerd_job_info{job="alone", worker="0"}': 1, 'paramserver_workerd_loss{job="alone", worker="0"}': 3}
for rank, state, step, speed in (0, "live", 100, 30), (1, "left", 40, 20), (2, "live", 90, 40):
    worker = f'{{job="b", worker="{rank}", instance="n1"'
    series[f'paramserver_worker_state{worker}, state="{state}"}}'] = 1
    series[f"paramserver_worker_step{worker}}}"] = step
    series[f"paramserver_worker_examples_per_second{worker}}}"] = speed
for state in "left", "dead": series['paramserver_worker_state{job="b", worker="2", instance="n1", state="%s"}' % state] = 0
series['paramserver_worker_examples_per_second{job="a", worker="0", instance="n1"}'] = 12
series['paramserver_worker_state{job="a", worker="0", instance="n1", state="live"}'] = 1
expected = {f"count by (job) ({jobs})": [('{job="a"}', 2), ('{job="alone"}', 1)],
            f"count by (job) ({' or '.join(losses)})": [('{job="a"}', 1), ('{job="alone"}', 1)],
            f"sum by (job, worker) ({' or '.join(speeds)})": [
                ('{job="a"}', 10), ('{job="a", worker="0"}', 10), ('{job="alone"}', 20), ('{job="alone", worker="0"}', 20),
                ('{job="b"}', 70), ('{job="b", worker="0"}', 30), ('{job="b", worker="2"}', 40)],
            steps: [('{job="b"}', 10)]}
print(json.dumps({"tests": [{
    "interval": "15s",
    "input_series": [{"series": name, "values": f"{value}x8"} for name, value in series.items()],
    "promql_expr_test": [{"expr": expr, "eval_time": "2m", "exp_samples": [{"labels": l, "value": v} for l, v in samples]}
                         for expr, samples in expected.items()]}]}))
P
    }
    if [ "$PYTHON3" != no ]; then ok "the dashboard shows a job of a worker alone, and of psd alone, and each worker's figures once" shows_all_workers; fi
else
    skip "promtool finds nothing wrong" "there is no promtool"
fi
names_exist() { # FILE
    local name unknown=0
    for name in $(grep -oE 'paramserver_(psd|queue|job|worker|workerd)_[a-z_]+' "$1" | sort -u); do
        grep -qE "^# TYPE $name " psd0.metrics w1.metrics || { echo "$1: $name is no metric"; unknown=1; }
    done
    return $unknown
}
ok "the rules name metrics that there are" names_exist "$deploy/rules.yml"
ok "the dashboard, too" names_exist "$deploy/dashboard.json"
ok "so does the README" names_exist "$top_srcdir/README.md"
ok "and so do the man pages" names_exist "$top_srcdir/psd/psd.8"
ok "of both" names_exist "$top_srcdir/workerd/workerd.8"
are_described() {
    local name missing=0
    for name in $(sed -nE 's/^# TYPE ([a-z_]+) .*/\1/p' psd0.metrics w1.metrics); do
        cat "$top_srcdir/psd/psd.8" "$top_srcdir/workerd/workerd.8" | grep -qx ".B $name" || { echo "$name is in no man page"; missing=1; }
    done
    return $missing
}
ok "which say what every metric is" are_described

# ---- a real Prometheus ----

configure_prometheus() {
    local p=127.0.0.1
    cp "$deploy/rules.yml" . &&
        sed -E "s/((scrape|evaluation)_interval: ).*/\1500ms/; s/\[\"node1.*/[\"$p:$p0\", \"$p:$p1\"]/; s/\[\"node3.*/[\"$p:$w0\", \"$p:$w1\"]/" \
            "$deploy/prometheus.yml" >prometheus.yml && grep -q "$p:$p1" prometheus.yml && grep -q "$p:$w1" prometheus.yml
}
asks() { "$PYTHON3" "$top_srcdir/tests/it/metrics_asks.py" "http://127.0.0.1:$prometheus_port" "$@"; }
if command -v prometheus >/dev/null && command -v "${PYTHON3:-no}" >/dev/null; then
    ok "prometheus.yml has the targets" configure_prometheus
    prometheus_port=$(free_ports 1)
    prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address="127.0.0.1:$prometheus_port" 2>prometheus.log &
    prometheus_pid=$!
    ok "Prometheus has the updates of the job" eventually asks above 0 'sum(paramserver_job_updates_total{job="watched"})'
    ok "and what workers have trained" eventually asks above 0 'paramserver_workerd_examples_total{job="watched",worker="1"}'
    ok "all four are up" eventually asks above 3 'sum(up)'
    ok "every query of the dashboard finds data" eventually asks dashboard "$deploy/dashboard.json"
    ok "no alert is raised" eventually asks silent
else
    skip "Prometheus scrapes" "there is no prometheus"
fi

# ---- what goes wrong ----

kill -KILL "$pid_w1"
ok "a worker that dies is seen" eventually is 1 "$p0" paramserver_worker_state "$job" 'worker="1"' 'state="dead"'
if [ -n "${prometheus_pid:-}" ]; then
    ok "and alerts" eventually asks alerts WorkerSilent
    kill "$prometheus_pid" && wait "$prometheus_pid"
fi
ends() { # the last worker, by a signal; that the other one could be spared is no reason of this end
    kill -TERM "$pid_w0"
    wait "$pid_w0"
    [ $? = 143 ] && eventually is 1 "$p1" paramserver_job_state "$job" 'state="interrupted"'
}
ok "a job that people end after a worker had died was interrupted" ends
stops() { ctl stop watched && ! metrics "$p0" | grep "$job"; }
ok "a job that is stopped is shown no more" stops

interrupted() {
    local ended
    work async.yaml 0 alone --workers 1
    ended=$work_pid
    eventually above 0 "$p1" paramserver_job_updates_total 'job="alone"' || return 1
    kill -TERM "$ended"
    wait "$ended"
    [ $? = 143 ] && eventually is 1 "$p1" paramserver_job_state 'job="alone"' 'state="interrupted"' && is 0 "$p1" paramserver_job_state 'job="alone"' 'state="failed"' &&
        ctl stop alone
}
ok "one that signals end was interrupted, as the other ps task says, too" interrupted

# ---- every strategy ----

trains() { # JOB OPTION ...: alone, until all that it tells of its steps is there
    local port name=${1%.yaml}
    work "$1" 0 "$name" --workers 1 --set output="$scratch/$name.safetensors" "${@:2}"
    eventually has_port "$name.0.log" || { cat "$name.0.log"; return 1; }
    port=$(http_port "$name.0.log")
    eventually above 0 "$port" paramserver_workerd_examples_total "job=\"$name\"" &&
        is 1 "$port" paramserver_workerd_training && above 0 "$port" paramserver_workerd_loss &&
        eventually above 0 "$port" paramserver_workerd_figure 'figure="val_loss"' || { metrics "$port"; cat "$name.0.log"; return 1; }
    kill "$work_pid"
    wait "$work_pid"
    [ $? = 143 ]
}
for job in one_device mirrored central_storage sync ssp local_steps; do ok "$job has metrics" trains $job.yaml; done

# ---- a worker of the queue ----

ok "a worker that waits for jobs takes no address that other hosts reach either" fails_with 78 "other hosts could connect" timeout 60 "$workerd" --ps "$peers" --http 0.0.0.0:0
ok "nor one that is taken" fails_with 73 "another process listens there" timeout 60 "$workerd" --ps "$peers" --http "127.0.0.1:$p0"
idle_port=$(free_ports 1)
"$workerd" --ps "$peers" --rank 0 --http "127.0.0.1:$idle_port" 2>idle.log &
idle_pid=$!
ok "one that waits for a job is healthy" eventually answers 200 ok "$idle_port" /healthz
ok "but not ready" answers 503 "waits for a job" "$idle_port" /readyz
ok "it has metrics" above 0 "$idle_port" paramserver_workerd_uptime_seconds
ok "a job that it trains" ctl submit "${quick[@]}" --workers 1 --set name=queued --set epochs=100000 --set delay_ms=20 --set output=/dev/null "$examples/softmax/async.yaml"
ok "makes it ready" eventually answers 200 ok "$idle_port" /readyz
ok "and is in its metrics" above 0 "$idle_port" paramserver_workerd_training 'job="queued"'
ok "until it has ended" ctl cancel queued
ok "which leaves it healthy" eventually answers 503 "waits for a job" "$idle_port" /readyz
idle_ends() { kill "$idle_pid" && wait "$idle_pid"; [ $? = 143 ]; }
ok "until a signal ends it" idle_ends

ends() { kill "$pid0" "$pid1" && wait "$pid0" && wait "$pid1"; }
ok "both ps tasks end well" ends
