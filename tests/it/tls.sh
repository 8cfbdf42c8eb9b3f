#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Mutual TLS: what psctl tls makes lets psd, workerd and psctl reach each other and keeps everybody else out; each role
# does its own; users do not touch each other's jobs; certificates change while a training runs.
. "$top_srcdir/tests/it/lib.sh"
cd "$scratch" || exit 1

mapfile -t ports < <(free_ports 6)
psd0=127.0.0.1:${ports[0]} psd1=127.0.0.1:${ports[1]}
echo "ps: [\"$psd0\", \"$psd1\"]
worker: [\"127.0.0.1:${ports[2]}\", \"127.0.0.1:${ports[3]}\"]
tls: tls" >cluster.yaml
ctl() { "$psctl" --timeout 60 --cluster "$scratch/cluster.yaml" "$@"; }

# ---- certificates ----

makes_certificates() {
    "$psctl" tls init tls --user alice && "$psctl" tls init other --user alice >/dev/null || return 1
    "$psctl" tls issue tls worker --user bob --days 30 --output tls/bob.pem || return 1
    cp other/admin.pem tls/other-admin.pem
    "$psctl" tls show tls && [ "$(stat -c %a tls/psd.pem tls/ca.key | sort -u)" = 600 ]
}
ok "psctl tls makes an authority and certificates that only their owner can read" makes_certificates
ok "not twice" fails_with 73 "has an authority already" "$psctl" tls init tls
ok "what makes certificates writes no JSON" fails_with 64 "--json: expected show" "$psctl" tls issue tls worker --json
ok "nor does init, which makes nothing then" eval 'fails_with 64 "--json: expected show" "$psctl" tls init third --json && [ ! -e third ]'
ok "no other role" fails_with 64 "expected psd, worker or admin" "$psctl" tls issue tls root

# Not where a key is to appear: what is there is no regular file, or a link to one.
is_whole() { [ "$(grep -c -e '-----BEGIN' "$1")" = 2 ] && [ "$(head -c 10 "$1")" = "-----BEGIN" ]; }
issues_to() { timeout 60 "$psctl" tls issue tls psd -o "$1"; }
writes_through() {
    mkdir to && touch to/real && chmod 644 to/real && ln -s real to/link && mkfifo to/pipe || return 1
    issues_to to/link && [ -L to/link ] && is_whole to/real && [ "$(stat -c %a to/real)" = 600 ] || return 1
    timeout 60 cat to/pipe >to/piped & local reads=$!
    issues_to to/pipe && wait $reads && [ -p to/pipe ] && is_whole to/piped
}
ok "a link is written through and a pipe written to" writes_through
writes_to_stdout() {
    (cd to && "$psctl" tls issue ../tls psd -o - >printed && [ ! -e ./- ]) && is_whole to/printed &&
        [ "$(wc -l <to/printed)" = "$(wc -l <to/real)" ]
}
ok "- is standard output, where nothing else appears" writes_to_stdout
replaces_a_protected_one() { chmod 400 to/real && issues_to to/real && [ "$(stat -c %a to/real)" = 600 ]; }
ok "a certificate that is write-protected is replaced" replaces_a_protected_one
if [ "$(id -u)" = 0 ]; then
    stays_the_daemons() { # MODE THEN
        chown 65534:65533 to/real && chmod "$1" to/real && issues_to to/real && stat -c '%u %g %a' to/real | tee owner && [ "$(cat owner)" = "65534 65533 $2" ]
    }
    ok "one that root renews stays its user's" stays_the_daemons 600 600
    ok "and readable for its group" stays_the_daemons 640 640
    ok "but for nobody else" stays_the_daemons 644 600
    renews_anothers() { # who may write the folder, but is not root
        mkdir -p theirs && cp tls/ca.pem tls/ca.key tls/psd.pem theirs && chown -R 65534 theirs && chown 0 theirs/psd.pem && cp theirs/psd.pem before &&
            chmod 711 . && fails_with 77 "belongs to user 0 and group 0" setpriv --reuid 65534 --regid 65534 --clear-groups "$psctl" tls issue theirs psd &&
            cmp before theirs/psd.pem && [ -z "$(find theirs -name '*.tmp')" ]
    }
    if setpriv --reuid 65534 --regid 65534 --clear-groups "$psctl" --version >/dev/null 2>&1; then
        ok "who cannot leave it so changes nothing" renews_anothers
    else
        skip "who cannot leave it so changes nothing" "another user cannot start psctl"
    fi
else
    skip "a certificate that root renews stays its user's" "this is not root"
fi

shows_what_does_not_do() {
    mkdir bad && cp tls/ca.pem bad/ && cp other/psd.pem bad/psd.pem && cp tls/worker.pem bad/admin.pem || return 1
    "$psctl" tls issue tls worker --days 3 --output bad/worker.pem >/dev/null || return 1
    fails_with 78 "expires soon" "$psctl" tls show bad && grep -q "is not signed by an authority" said && grep -q "expected admin" said
}
ok "psctl tls show names what does not do" shows_what_does_not_do

# ---- an authority that ends, and the next one ----

authority_of() { # FOLDER DAYS
    mkdir -p "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1/ca.key" -out "$1/ca.pem" \
        -subj "/CN=$1" -days "$2" && chmod 600 "$1/ca.key"
}
issue_all() { local role; for role in psd worker admin; do "$psctl" tls issue "$1" $role >>issued 2>&1 || { cat issued; return 1; }; done; } # FOLDER
lasts_as_long() { # a certificate is not made for longer than its authority
    authority_of old 5 && authority_of next 3650 && rm -f issued && issue_all old && cat issued &&
        [ "$(grep -c "for 5 days" issued)" = 3 ] && [ "$(grep -c "ends with its authority, and not in 365 days" issued)" = 3 ] &&
        fails_with 78 "let ca.pem hold the next one, too" "$psctl" tls show old && [ "$(grep -c "expires soon with its authority" said)" = 3 ]
}
both_are_judged() { # ORDER ...: of the files, also by what has signed which
    cat "$@" >old/both && cp old/both old/ca.pem && fails_with 78 "expires soon with its authority" "$psctl" tls show old &&
        ! grep "let ca.pem hold" said && [ "$(grep -c "good" said)" = 1 ] && [ "$(grep -c "ca.pem  *authority" said)" = 2 ]
}
takes_over() { # ORDER ...
    cat "$@" >old/ca.pem && cp next/ca.key old/ca.key && rm -f issued && issue_all old && [ "$(grep -c "for 365 days" issued)" = 3 ] &&
        fails_with 0 "expires soon" "$psctl" tls show old && [ "$(grep -c good said)" = 4 ]
}
ends_up() { # nobody goes on with one that has expired
    authority_of dead 1 && openssl x509 -in dead/ca.pem -signkey dead/ca.key -days -1 -out dead/new 2>/dev/null && mv dead/new dead/ca.pem &&
        fails_with 78 "has expired" "$psctl" tls issue dead psd && [ ! -e dead/psd.pem ]
}
if command -v openssl >/dev/null; then
    ok "a certificate lasts as long as its authority at most" lasts_as_long
    cp old/ca.pem first.pem 2>/dev/null
    cp old/ca.key first.key 2>/dev/null
    ok "the next authority behind it: its certificates end all the same" both_are_judged first.pem next/ca.pem
    ok "and before it" both_are_judged next/ca.pem first.pem
    ok "certificates are made with whichever ca.key is of" issue_all old
    ok "the next one's are good" takes_over first.pem next/ca.pem
    ok "in either order" takes_over next/ca.pem first.pem
    ok "nothing is made of an authority that has expired" ends_up
else
    skip "an authority that ends" "no openssl"
fi

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
ok "psd refuses another's certificate" fails_with 78 "is not signed by an authority" "$psd" --tls bad --listen 127.0.0.1:0
cp tls/worker.pem bad/psd.pem
ok "psd refuses one of another role" fails_with 78 "is a certificate of role worker: expected psd" "$psd" --tls bad --listen 127.0.0.1:0
ok "other hosts reach nothing without TLS" fails_with 78 "other hosts could connect" "$psd" --listen 0.0.0.0:0
printf 'ps: ["%s"]\ntls: {ca: tls/ca.pem, certificate: tls/psd.pem, key: tls/worker.pem}\n' "$psd0" >mismatched.yaml
ok "psd refuses a key of another certificate" fails_with 78 "its key is not that of the certificate" "$psd" --cluster mismatched.yaml
chmod 644 tls/worker.pem
ok "a key that every user can read is refused" fails_with 77 "every user can read" \
    "$workerd" --job "$examples/softmax/async.yaml" --cluster cluster.yaml --rank 0 --workers 1
chmod 600 tls/worker.pem

serve psd0 --task 0 --listen "0.0.0.0:${ports[0]}" || echo "# psd0: $(cat psd0.log)"
pid0=$psd_pid
serve psd1 --task 1 || echo "# psd1: $(cat psd1.log)"
pid1=$psd_pid

both_are_up() { [ "$(ctl --json status | grep -c '"state": "up"')" = 2 ]; }
ok "psctl finds both, one of which listens for other hosts" both_are_up

# ---- who is kept out ----

if [ -n "${PYTHON3:-}" ]; then
    start_psd alone --tls tls
    client() { "$PYTHON3" "$top_srcdir/tests/it/tls_client.py" "$1" "unix:$scratch/alone" "$scratch/tls"; }
    ok "nobody is heard without a certificate of the authority" client nobody_without_a_certificate
    ok "a worker's certificate administrates nothing" client a_worker_administrates_nothing
    ok "who tried is in the log" grep "refused a call from unix:.*: 'alice' has a certificate of role worker: expected admin" alone.log
    ok "a job is its user's alone" client a_job_is_its_users
    kill "$psd_pid"
else
    n=$((n + 1)) && echo "ok $n - # SKIP no python3 with gRPC"
fi
if command -v openssl >/dev/null; then
    old_tls() { # VERSION: not spoken; the newest is
        local options=(-connect "$psd0" -CAfile tls/ca.pem -cert tls/admin.pem -key tls/admin.pem -alpn h2)
        openssl s_client "${options[@]}" </dev/null 2>&1 | grep "TLSv1.3, Cipher" || return 1
        ! openssl s_client "${options[@]}" "$1" -cipher 'ALL:@SECLEVEL=0' </dev/null 2>&1 | grep "Cipher is [A-Z]"
    }
    ok "TLS 1.1 is not spoken" old_tls -tls1_1
    expired() {
        openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout old.key -subj /CN=alice -out old.csr &&
            printf 'subjectAltName=DNS:admin.paramserver\n' >old.ext &&
            openssl x509 -req -in old.csr -CA tls/ca.pem -CAkey tls/ca.key -extfile old.ext -days -1 -out old.crt || return 1
        local options=(-connect "$psd0" -CAfile tls/ca.pem -alpn h2)
        # psd hangs up on one, which would wait for long, and speaks to the other for as long as it likes.
        mkfifo silent
        timeout 120 openssl s_client "${options[@]}" -cert old.crt -key old.key <>silent 2>&1 | grep "unexpected eof" &&
            ! { sleep 2 | openssl s_client "${options[@]}" -cert tls/admin.pem -key tls/admin.pem 2>&1 | grep "unexpected eof"; }
    }
    ok "a certificate that has expired is not taken" expired
fi

# ---- what the doctor says ----

doctor_of() { # CODE TEXT OPTION ...
    local code=$1 text=$2
    shift 2
    fails_with "$code" "$text" "$psctl" --timeout 5 "$@" doctor
}
ok "psctl status says that it may be" says "or wants TLS" "$psctl" --timeout 5 --ps "$psd0" status
ok "the doctor says that TLS is wanted" doctor_of 69 "asks for a certificate, and psctl has none" --ps "$psd0"
ok "the doctor says that psd is another authority's" doctor_of 69 "its certificate does not do" --ps "$psd0" --tls other
cat other/ca.pem tls/ca.pem >both.pem && mkdir half && cp both.pem half/ca.pem && cp other/admin.pem half/
ok "psctl status says that it may be, too" says "or does not take this process's certificate" "$psctl" --timeout 5 \
    --ps "$psd0" --tls half status
ok "the doctor says that psd does not take psctl's" doctor_of 69 "does not take psctl's certificate" --ps "$psd0" --tls half
of_handshakes() { # one line in ten seconds, which may be another reason's
    says "or does not take this process's certificate" "$psctl" --timeout 5 --ps "$psd0" --tls half status
    grep "a TLS handshake has failed: certificate verify failed" psd0.log
}
ok "and psd's log, why" eventually of_handshakes
start_psd plain
ok "the doctor says that psd speaks no TLS" doctor_of 69 "does not speak TLS" --ps "unix:$scratch/plain" --tls tls
kill "$psd_pid"

# ---- training, and certificates that change ----

work() { # JOB RANK OPTION ...
    local job=$1 rank=$2
    shift 2
    "$workerd" --job "$examples/softmax/$job" --cluster cluster.yaml --rank "$rank" --workers 2 --quiet \
        --set data.train_examples=6400 --set data.test_examples=64 "$@"
}
both() { # JOB OPTION ...
    local pids=() pid code=0
    work "$1" 0 "${@:2}" --set output=weights.safetensors & pids+=($!)
    work "$1" 1 "${@:2}" & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
    return $code
}
ring=(--set strategy.communication=ring --set epochs=1)
ring_is_the_same() {
    both multi_worker_mirrored.yaml "${ring[@]}" && mv weights.safetensors encrypted || return 1
    sed -i '/^tls/d' cluster.yaml && both multi_worker_mirrored.yaml "${ring[@]}" --insecure && mv weights.safetensors plain.safetensors || return 1
    echo "tls: tls" >>cluster.yaml
    cmp encrypted plain.safetensors
}
ok "a ring under TLS gives the bits of one without" ring_is_the_same

cp -r tls bobs && cp tls/bob.pem bobs/worker.pem
of_another_user() { # rank 1 shows bob's certificate: it hears why, and so does who reads its log
    local code=0 first
    work multi_worker_mirrored.yaml 0 "${ring[@]}" --set timeout=8 & first=$!
    work multi_worker_mirrored.yaml 1 "${ring[@]}" --set timeout=4 --tls bobs || code=$?
    kill "$first"
    wait "$first"
    [ $code != 0 ]
}
names_the_cause() { of_another_user >said 2>&1; cat said; grep -q "of another role, or of another user's" said; }
ok "a worker of another user does not join, and is told why" eventually names_the_cause # once worker 0 serves in time

# New certificates of all roles each second; a new connection each time.
rotate() {
    local role
    while [ ! -e trained ]; do
        for role in psd worker admin; do
            "$psctl" tls issue tls "$role" --user "$([ $role = psd ] && echo psd || echo alice)" >/dev/null || return 1
        done
        ctl status >/dev/null || return 1
        echo x >>rotations
        sleep 1
    done
}
train_for_long() {
    local code=0
    both async.yaml --set epochs=8 --set data.train_examples=64000 --set name=long || code=$?
    touch trained
    return $code
}
rotation() {
    local rotating
    rotate & rotating=$!
    train_for_long || return 1
    wait $rotating || { echo "a call of psctl failed"; return 1; }
    at_least "$(wc -l <rotations)" 2
}
ok "certificates change under a training and psctl, and no call fails" rotation

keeps_the_one_before() {
    cp tls/psd.pem good.pem && cp other/psd.pem tls/psd.pem.new && mv tls/psd.pem.new tls/psd.pem || return 1
    sleep 1.2
    both_are_up && both_are_up && grep -c "is not signed by an authority of .*; the certificate of before stays in use" psd0.log || return 1
    mv good.pem tls/psd.pem && sleep 1.2 && both_are_up
}
ok "a certificate that does not do is not taken up: the one before stays" keeps_the_one_before

ends_soon() {
    "$psctl" tls issue tls psd --days 3 && sleep 1.2 && both_are_up && fails_with 0 "its certificate ends on 20" ctl doctor && "$psctl" tls issue tls psd &&
        sleep 1.2 && both_are_up && ! ctl doctor | grep "its certificate"
}
ok "the doctor says that a certificate ends soon" ends_soon

new_authority() { # a bundle of both for a while, then the new one's certificates
    cat other/ca.pem tls/ca.pem >tls/ca.new && mv tls/ca.new tls/ca.pem && sleep 1.2 && both_are_up || return 1
    for role in psd worker admin; do cp other/$role.pem tls/new && mv tls/new tls/$role.pem; done
    sleep 1.2 && both_are_up && cp other/ca.pem tls/ca.new && mv tls/ca.new tls/ca.pem && sleep 1.2 && both_are_up
}
ok "another authority takes over" new_authority

audits() {
    ctl drain ps:0 && ctl drain ps:0 --undo && grep "audit: Drain by alice: done" psd0.log && grep "audit: Drain (undo) by alice: done" psd0.log
}
ok "what is changed by hand is logged, with the user" audits

ends() { kill "$pid0" "$pid1" && wait "$pid0" && wait "$pid1"; }
ok "both end well" ends
