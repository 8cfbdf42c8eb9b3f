#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The status page of psd --http: what it is made of, who may have it, what /status.json says of a training that goes on,
# of a worker that dies and of names that are HTML; and a real browser that shows it, where there is one.
. "$top_srcdir/tests/it/lib.sh"
. "$top_srcdir/tests/it/http.sh"
cd "$scratch" || exit 1
python=$(command -v "${PYTHON3:-no}" || command -v python3) || { skip "the status page" "there is no python3"; exit; }

# shows EXPRESSION: holds of /status.json, d, and its jobs by name, jobs.
shows() {
    text_of "$p0" /status.json >status.json
    "$python" - "$1" <<'PY'
import json, sys
d = json.load(open("status.json"))
jobs = {job["name"]: job for job in d["jobs"]}
words = d["summary"]
good = eval(sys.argv[1])
if not good:
    print(f"not so: {sys.argv[1]}", words, *([job["name"], job["state"], job.get("workers")] for job in d["jobs"]), sep="\n  ")
sys.exit(not good)
PY
}
has_header() { get "$1" "$2" | tr -d '\r' | sed '/^$/q' | grep -ixF -- "$3" || { get "$1" "$2" | head -n 20; return 1; }; } # PORT PATH HEADER

peers=unix:$scratch/psd0,unix:$scratch/psd1
start_psd psd0 --peers "$peers" --task 0 --http 127.0.0.1:0 || exit 1
pid0=$psd_pid
start_psd psd1 --peers "$peers" --task 1 --http localhost:0 || exit 1
pid1=$psd_pid
p0=$(http_port psd0.log) p1=$(http_port psd1.log)

# ---- what is served ----

ok "there is a page" answers 200 "<title>paramserver</title>" "$p0" /
policy="Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
for path in / /page.js /status.json /metrics /no-such-page; do
    ok "$path: nothing from elsewhere is run or loaded" has_header "$p0" $path "$policy"
    ok "$path is not kept" has_header "$p0" $path "Cache-Control: no-store"
    ok "$path is what it says it is" has_header "$p0" $path "X-Content-Type-Options: nosniff"
    ok "$path is shown in no frame" has_header "$p0" $path "X-Frame-Options: DENY"
done
ok "the page is HTML" has_header "$p0" / "Content-Type: text/html; charset=utf-8"
ok "its script is one" has_header "$p0" /page.js "Content-Type: text/javascript; charset=utf-8"
ok "its style is one" has_header "$p0" /page.css "Content-Type: text/css; charset=utf-8"
ok "its icon is one" has_header "$p0" /icon.svg "Content-Type: image/svg+xml"
ok "the status is JSON" has_header "$p0" /status.json "Content-Type: application/json"
is_built_in() { text_of "$p0" "/$1" >"built.$1" && tr -d '\r' <"$top_srcdir/psd/http/page/$1" | cmp - "built.$1"; }
for file in page.js page.css icon.svg; do ok "$file is the one in the tree" is_built_in $file; done
names_no_other_host() { ! cat "$top_srcdir"/psd/http/page/page.* | grep -nE '(src|href|url\(|import|fetch).{0,3}(https?:)?//'; }
ok "they ask no other host for anything" names_no_other_host
no_html_from_text() { ! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser' "$top_srcdir/psd/http/page/page.js"; }
ok "no text becomes HTML" no_html_from_text
follows_the_mode() { # what is of one mode alone goes with it
    node "$top_srcdir/tests/it/page_facts.js" "$top_srcdir/psd/http/page/page.js" | diff - <(
        cat <<'FACTS'
Mode async, Workers known to ps task 0, Step 70, Epoch 1, Of this epoch – of 10
Mode sync, Workers known to ps task 0, Step 70, Round 8, Epoch 1 of 12
Mode async, Workers known to ps task 0, Step 71, Epoch 1, Of this epoch – of 10
1023 B, 1.00 MiB, 1000 MiB, 1010 MiB, 2000 TiB
a client, worker 2, worker 10 wait up to 5.0 s for x
worker 10, worker 11, worker 12, worker 13, 167 more calls: psctl waits lists them all.
FACTS
    )
}
if command -v node >/dev/null; then
    ok "a job's facts are those of its mode, amounts are plain, and who waits is in order" follows_the_mode
else
    skip "a job's facts are those of its mode, amounts are plain, and who waits is in order" "there is no node"
fi
ok "nothing is posted to it" answers 405 "expected GET or HEAD" "$p0" /status.json POST x

ok "another name than this host's is refused" answers 421 "another name" "$p0" /status.json GET "" rebound.example.com
ok "of any page" answers 421 "another name" "$p0" /metrics GET "" rebound.example.com:80
ok "a name that only begins like an address, too" answers 421 "another name" "$p0" / GET "" 127.0.0.1.example.com
ok "an address is none" answers 200 '"task":0' "$p0" /status.json GET "" 127.0.0.1:1234
ok "nor is one of IPv6" answers 200 '"task":0' "$p0" /status.json GET "" "[::1]:1234"
ok "nor the name that is listened on" answers 200 '"task":1' "$p1" /status.json GET "" LOCALHOST

# ---- without a job ----

ok "no job: all is well" shows 'words["level"] == "ok" and "waits for a job" in words["state"] and d["jobs"] == []'
ok "and nothing can be lost" shows 'words["risk"].startswith("Nothing") and words["command"] == "psctl status"'
ok "memory is some" shows '0 < d["memory"]["resident_bytes"] < d["memory"]["limit_bytes"] and d["tasks"] == 2'

# ---- a slow training ----

work() { # JOB NAME RANK: a worker of three, its pid in $work_pid
    "$workerd" --job "$examples/softmax/$1.yaml" --ps "$peers" --rank "$3" --workers 3 --quiet --set name="$2" --set delay_ms=100 \
        --set data.train_examples=6400 --set data.test_examples=64 --set epochs=100000 --set output="$2.safetensors" 2>"$2.$3.log" &
    work_pid=$!
}
work ssp slow 0 && w0=$work_pid
ok "a job whose workers are missing is a warning" eventually shows \
    'words["level"] == "warning" and "waits for 2 workers" in words["state"] and words["command"] == "psctl doctor"'
work ssp slow 1 && w1=$work_pid
work ssp slow 2 && w2=$work_pid
ok "they train" eventually shows 'jobs["slow"]["state"] == "running" and jobs["slow"]["workers_in_state"]["live"] == 3'
ok "the job says how" shows 'jobs["slow"]["mode"] == "ssp" and jobs["slow"]["examples"] == 6400'
ok "how fast" eventually shows 'jobs["slow"].get("examples_per_second", 0) > 0'
ok "how well" eventually shows '0 < jobs["slow"].get("loss", 0) < 10'
ok "how far" eventually shows 'jobs["slow"]["examples_done"] > 0 and jobs["slow"]["steps"] > 0'
ok "of how many epochs, for how long" eventually shows 'jobs["slow"]["epochs"] == 100000 and jobs["slow"]["time_left_ms"] > 0 and jobs["slow"]["age_ms"] > 0'
ok "who waits for whom" eventually shows 'any("worker" in w and w["what"] and "worker" in w["whom"] for w in jobs["slow"]["waits"])'
ok "all is well" eventually shows 'words["level"] == "ok" and "1 job trains with 3 live workers, none dead. It is in epoch" in words["state"]'
ok "somebody is slowest" eventually shows '"worker" in words["worst"]'
ok "and watched by psctl top" eventually shows 'words["command"] == "psctl top"'
fields() { shows 'all(set(w) >= {"rank", "state", "process", "step", "clock", "silent_ms", "examples_per_second", "loss",
    "excluded", "draining", "reason"} for w in jobs["slow"]["workers"]) and [w["rank"] for w in jobs["slow"]["workers"]] == [0, 1, 2]'; }
ok "of each worker all is said" fields
other_task() {
    text_of "$p1" /status.json >other.json && "$python" -c 'import json
d = json.load(open("other.json"))
assert d["task"] == 1 and "workers" not in d["jobs"][0] and "ps task 0 knows" in d["summary"]["worst"], d'
}
ok "at ps task 1 the job is known, its workers are not" other_task
has_history() { # POINTS
    text_of "$p0" /history.json >history.json && "$python" - "$1" <<'PY'
import json, sys
h = json.load(open("history.json"))
points = next(job["points"] for job in h["jobs"] if job["name"] == "slow")
assert len(points) >= int(sys.argv[1]) and len(h["memory"]) > len(points), h
assert all(len(p) == 4 for p in points) and points == sorted(points) and points[-1][1] > 0 < points[-1][2], points
PY
}
ok "psd keeps what was before the page is opened" eventually has_history 2

# ---- names that are HTML ----

html='<script>document.title = "taken"</script>'
ok "a worker joins by names that are HTML" "$top_builddir/tests/it/join" "unix:$scratch/psd0" "$html" "<img src=x onerror=alert(1)> \"'&"
ok "its job is shown" eventually shows "'$html' in jobs"
ok "no tag stands in the JSON" eval '! grep -q "<" status.json'
cannot_be_typed() { shows "jobs['$html']['workers'][0]['process'].startswith('<img') and '<' not in words['command']"; }
ok "what is to be typed has no such name" cannot_be_typed

# ---- a browser ----

browser=
for program in chromium chromium-browser google-chrome; do command -v $program >/dev/null && browser=$program && break; done
looks() { "$python" "$top_srcdir/tests/it/page_looks.py" "http://127.0.0.1:$p0/" slow "$@"; }
is_text="[...document.querySelectorAll('.name')].some((e) => e.textContent === '$html')"
if [ -n "$browser" ]; then
    ok "a browser shows the page, wide and narrow, light and dark, and has no complaint" looks \
        'document.title.includes("paramserver")' "$is_text" 'document.querySelectorAll("script").length === 1' \
        '!document.querySelector("img")' 'document.body.innerText.includes("<img src=x")' \
        'document.querySelectorAll("section.job").length === 2' '/worker \d(, worker \d)* waits? /.test(document.body.innerText)'
else
    skip "a browser shows the page" "there is no Chromium"
fi

# ---- what goes wrong ----

ok "a job that fails is bad news" eventually shows \
    'words["level"] == "bad" and " has failed: worker 0 sent no message" in words["state"] and words["command"] == "psctl doctor"'
ok "its name is taken by psctl stop" "$psctl" --timeout 60 --ps "$peers" stop "$html"
ok "then all is well again" eventually shows 'words["level"] == "ok" and list(jobs) == ["slow"]'

kill -KILL "$w1"
ok "a worker that dies is bad news" eventually shows \
    'words["level"] == "bad" and "dead" in words["state"] and words["command"] == "psctl doctor"'
ok "the dead come first" eventually shows '[w["state"] for w in jobs["slow"]["workers"]] == ["dead", "live", "live"]'
ok "with the reason" shows '"sent no message" in jobs["slow"]["workers"][0]["reason"]'
if [ -n "$browser" ]; then
    ok "a browser says so in words" looks '/^Worker \d of job .* is dead/.test(document.getElementById("state").textContent)' \
        '[...document.querySelectorAll("tr.dead")].some((r) => r.innerText.includes("✕ dead: sent no message"))'
    silent() {
        "$python" - "$top_srcdir/tests/it" "http://127.0.0.1:$p0/" "$pid0" <<'PY'
import os, signal, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from browser import Browser
with Browser() as browser:
    page = browser.open(sys.argv[2], width=390)
    assert page.wait("document.querySelectorAll('section.job').length > 0")
    os.kill(int(sys.argv[3]), signal.SIGSTOP)
    silence = "document.getElementById('silence')"
    assert page.wait(f"!{silence}.hidden && /No answer for/.test({silence}.textContent)"), page.evaluate(f"{silence}.outerHTML")
    os.kill(int(sys.argv[3]), signal.SIGCONT)
    assert page.wait(f"{silence}.hidden")
PY
    }
    ok "a psd that falls silent is said to be" silent
    kill -CONT "$pid0"
fi
# ---- psctl run ----

runs() { # the page of a run is there while it is
    local pid
    rm -f run.log
    "$psctl" run --http "127.0.0.1:0" --ps 2 --workers 2 --set epochs=100000 --set delay_ms=50 --set output=run.safetensors \
        "$examples/softmax/async.yaml" >run.log 2>&1 &
    pid=$!
    says_page() { sed -nE 's,.*psctl.* status page: http://127\.0\.0\.1:([0-9]+)/$,\1,p' run.log | grep .; }
    eventually says_page || { cat run.log; kill "$pid"; return 1; }
    eventually says_running "$(says_page)" || { cat run.log; return 1; }
    kill "$pid"
    wait "$pid"
    [ $? = 143 ]
}
says_running() { text_of "$1" /status.json 2>/dev/null | grep -F "1 job trains with 2 live workers"; }
ok "psctl run --http has it, and says where" runs
ok "not where there is no ps task" fails_with 65 "has none: see workerd --http" \
    "$psctl" run --http 127.0.0.1:0 "$examples/softmax/one_device.yaml"

ends() { kill "$w0" "$w2" && kill "$pid0" "$pid1" && wait "$pid0" && wait "$pid1"; }
ok "all end well" ends
