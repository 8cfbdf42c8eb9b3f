#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deploy/kubernetes without a Kubernetes: what its files say of each other fits together, and the command lines of its
# pods, with the files that a node would mount, train with TLS on this host.
skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}
python=
for candidate in "${PYTHON3:-}" python3 /usr/bin/python3; do
    [ -z "$python" ] && [ -n "$candidate" ] && "$candidate" -c 'import yaml' 2>/dev/null && python=$candidate
done
[ -n "$python" ] || skip_all "no python3 with PyYAML"
. "$top_srcdir/tests/it/lib.sh"
. "$top_srcdir/tests/it/http.sh"
cd "$scratch" || exit 1
folder=$scratch/kubernetes
cp -r "$top_srcdir/deploy/kubernetes" "$folder" && chmod -R u+w "$folder" && rm -rf "$folder/base/tls"
manifests() { "$python" "$top_srcdir/tests/it/kubernetes_manifests.py" "$@"; }

# ---- what is written ------------------------------------------------------------------------------------------------

ok "psctl makes the certificates" "$psctl" tls init "$folder/base/tls"
fits() { # FOLDER WHAT
    ok "$2: every name that is used is there" manifests "$1" names
    ok "$2: the addresses are those of the pods" manifests "$1" addresses
    ok "$2: there are as many workers as the cluster file lists" manifests "$1" workers
    ok "$2: ports agree" manifests "$1" ports
    ok "$2: memory, CPUs and paths of the job fit" manifests "$1" limits
    ok "$2: pods have no more rights than they need" manifests "$1" confined
    ok "$2: what is not tried again is what systemd does not start again" manifests "$1" exit_codes \
        "$top_srcdir/deploy/systemd/workerd@.service.in"
}
fits "$folder" plain
fits "$folder/overlays/gpu" gpu
ok "a GPU is asked for, and used" manifests "$folder/overlays/gpu" gpu
ok "the model is that of the example" cmp "$folder/base/model.json" "$examples/mnist-cnn/model.json"

# Breaking them is noticed.
breaks() { # CHECK FILE SED WHAT-IS-SAID
    local copy=$scratch/broken
    rm -rf "$copy" && cp -r "$folder" "$copy" && sed -i -E "$3" "$copy/base/$2" || return 1
    ! cmp -s "$copy/base/$2" "$folder/base/$2" || { echo "$3 changes nothing in $2"; return 1; }
    # shellcheck disable=SC2086 # none or one
    fails_with 2 "$4" manifests "$copy" $1
}
ok "a replica that the cluster file lacks is seen" breaks addresses psd.yaml 's/replicas: 2/replicas: 3/' "the pods are"
ok "so is a port that differs" breaks ports psd.yaml 's/listen=0.0.0.0:7070/listen=0.0.0.0:7071/' "psd listens on"
ok "a Secret that is not there" breaks names worker.yaml 's/name: worker-tls/name: worker-cert/' "there are 0 of Secret worker-cert"
ok "a key that it does not have" breaks names kustomization.yaml 's/, tls.psd.pem//' "Secret psd-tls has no psd.pem"
ok "a port that the firewall closes" breaks ports psd.yaml 's/port: 7070\}\]/port: 7071}]/' "NetworkPolicy psd is of ports"
ok "a claim that is not there" breaks names shared.yaml 's/name: data/name: datum/' "there are 0 of PersistentVolumeClaim data"
ok "a label that differs" breaks names psd.yaml '0,/component: psd/s//component: ps/' "Service psd selects"
ok "a disruption budget of others" breaks names psd.yaml '/^kind: PodDisr/,$s/component: psd/component: worker/' "PodDisruptionBudget psd selects"
ok "a worker too many" breaks workers worker.yaml 's/completions: 2/completions: 3/' "of which 2 run"
ok "a key that every user could read" breaks confined psd.yaml 's/defaultMode: 0440/defaultMode: 0444/' "every user can read"
unit=$top_srcdir/deploy/systemd/workerd@.service.in
ok "an exit code that is tried again" breaks "exit_codes $unit" worker.yaml 's/, 79\]/]/' "other codes than systemd's"

validator=
for candidate in "$python" python3; do
    [ -z "$validator" ] && "$candidate" -c 'import kubernetes_validate, yaml' 2>/dev/null && validator=$candidate
done
if [ -n "$validator" ]; then
    validate() { python=$validator manifests "$@"; }
    for version in 1.29 1.32; do
        ok "Kubernetes $version takes it" validate "$folder" schema $version
        ok "Kubernetes $version takes the overlay" validate "$folder/overlays/gpu" schema $version
    done
else
    skip "Kubernetes takes it" "there is no kubernetes-validate for python3"
fi
export KUBECONFIG=/dev/null # kubectl asks no cluster for this
if command -v kustomize >/dev/null; then kustomize=(kustomize build); else kustomize=(kubectl kustomize); fi
if "${kustomize[@]}" "$folder" >built 2>/dev/null; then
    ok "kustomize makes the same of it" manifests "$folder" kustomize "${kustomize[@]}"
    ok "and of the overlay" manifests "$folder/overlays/gpu" kustomize "${kustomize[@]}"
else
    skip "kustomize makes the same of it" "there is neither kustomize nor kubectl"
fi

# ---- what is run ----------------------------------------------------------------------------------------------------

# Two pods share this host: each has ports of its own.
mapfile -t port < <(free_ports 4)
ps=127.0.0.1:${port[0]},127.0.0.1:${port[1]}
pod() { # NAME [FROM=TO]...: its command in $command, its folder in $at
    local name=$1
    shift
    manifests "$folder" pod "$name" "$scratch/$name" "$scratch/claims" \
        "psd-0.psd:7070=127.0.0.1:${port[0]}" "psd-1.psd:7070=127.0.0.1:${port[1]}" "$@" >"$name.command" || return 1
    mapfile -t command <"$name.command"
    at=${command[0]} command=("${command[@]:1}")
}
for i in 0 1; do
    pod psd-$i "0.0.0.0:7070=0.0.0.0:${port[i]}" "0.0.0.0:9170=0.0.0.0:${port[i + 2]}" || exit 1
    (cd "$at" && exec "$psd" "${command[@]:1}" --dead-after-ms $dead_after_ms) 2>psd-$i.log &
    pids[i]=$!
done
ready() { answers 200 ok "$1" /readyz; }
ready_or_gone() { ready "${port[$1 + 2]}" || ! kill -0 "${pids[$1]}" 2>/dev/null; }
becomes_ready() { eventually ready_or_gone "$1" && ready "${port[$1 + 2]}" || { cat "psd-$1.log"; return 1; }; }
alive() { answers 200 ok "$1" /healthz; }
for i in 0 1; do
    ok "psd-$i becomes ready" becomes_ready $i
    ok "and is alive" alive "${port[i + 2]}"
done
kill -0 "${pids[@]}" 2>/dev/null || exit

ok "who has no certificate learns nothing, --insecure or not" fails_with 69 unreachable "$psctl" --timeout 60 --ps "127.0.0.1:${port[0]}" status
two() { "$psctl" --timeout 60 --ps "$ps" --tls "$folder/base/tls" --json status | tee status.json && [ "$(grep -o '"task"' status.json | wc -l)" -ge 2 ]; }
ok "the administrator sees both tasks" two

pod worker-0 || exit 1
job=$(printf '%s\n' "${command[@]}" | sed -n 's/^--job=//p')
ok "the job is one" "$workerd" --job "$job" --show-model
ok "so it is with what the overlay sets" "$workerd" --job "$job" --show-model --set=device=gpu
train() {
    local i workers
    for i in 0 1; do
        rm -rf "$scratch/worker-$i"
        pod worker-$i || return 1
        (cd "$at" && exec "$workerd" "${command[@]:1}" "${quick[@]}" --set=timeout=60) >worker-$i.log 2>&1 &
        workers[i]=$!
    done
    for i in 0 1; do wait "${workers[i]}" || { cat worker-*.log; return 1; }; done
}
ok "the workers train" train
ok "the weights are on the volume" test -s claims/data/mnist-cnn.safetensors
again() { train && grep -q "Epoch 1/2" worker-0.log; }
ok "a Job that is made anew begins anew" again
ends() { kill "${pids[@]}" && wait "${pids[0]}" && wait "${pids[1]}"; }
ok "the ps tasks end well" ends
