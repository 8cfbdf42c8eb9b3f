#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Breaks psd, libclient and the trainer on purpose, one way of tests/mutants/list after the other, and looks whether a test notices.
#     run.sh [quick | all | NAME ...]
# The mutated file is compiled as the build did, and linked before the archives that hold the healthy one. That every
# mutation of the list applies, tests/lint/lint.sh looks at.
set -u
cd "$(mktemp -d "${TMPDIR:-/tmp}/ps-mutants.XXXXXX")" || exit 1
scratch=$PWD
trap 'rm -rf "$scratch"' EXIT
. "$top_builddir/tests/mutants/flags"
list=$top_srcdir/tests/mutants/list
b=$top_builddir
declare -A objects=(
    [chaos]="sim/test_chaos sim/sim sim/trainer sim/coverage sim/features sim/long_read"
    [sim]="sim/test_sim sim/sim sim/worker"
    [psd]=unit/test_psd [control]=unit/test_psd_control
    [sync]=unit/test_psd_sync
    [members]=unit/test_psd_members
    [return]=unit/test_psd_return [round]=unit/test_psd_round
    [runs]=unit/test_psd_runs
    [session]=unit/test_psd_session
    [trace]=unit/test_psd_trace
    [client]="unit/test_client unit/fake_ps unit/fake_data" [client_ops]="unit/test_client_ops unit/fake_ps unit/fake_data"
    [data]=unit/test_psd_data [queue]=unit/test_queue
    [ops]=unit/test_nn_ops [ring]=unit/test_ring [rounds]=unit/test_rounds [order]=unit/test_bucket_order [buckets]="unit/test_buckets ../workerd/strategy/bucket_order ../workerd/strategy/buckets ../workerd/strategy/rounds" [hosts]=unit/test_hosts [recovery]=unit/test_recovery [tls]=unit/test_tls [collective]=unit/test_collective
    [mirrored]="unit/test_mirrored ../workerd/strategy/checkpoint ../workerd/strategy/bucket_order ../workerd/strategy/buckets ../workerd/strategy/device_sums ../workerd/strategy/local_rule ../workerd/strategy/mirrored ../workerd/strategy/rounds ../workerd/strategy/weights"
    [parameter_server]="unit/test_parameter_server ../workerd/strategy/checkpoint ../workerd/strategy/examples ../workerd/strategy/history ../workerd/strategy/local_rule ../workerd/strategy/local_steps ../workerd/strategy/parameter_server ../workerd/strategy/psd_checkpoint ../workerd/strategy/psd_home ../workerd/strategy/psd_job ../workerd/strategy/psd_signal ../workerd/strategy/weights"
    [replica]=unit/test_nn_replica [synchronized]=unit/test_synchronized
    [keras]=unit/test_keras [metrics]=unit/test_metrics
    [encoding]=unit/test_encoding [rule]=unit/test_rule [schedule]=unit/test_schedule [job]=unit/test_job
)
declare -A archives=([ops]="nn common" [ring]="wkring common" [rounds]=common [order]=common [buckets]=common [hosts]="wkring common" [recovery]=common [tls]="psctl pscluster psrpc common"
    [collective]="wkcollective common" [mirrored]="wkweights wkcollective nnreplica job common"
    [parameter_server]="wkweights wkvariables nnreplica job common"
    [replica]="nnreplica nnmodel nn common" [synchronized]="nnreplica nnmodel nn common"
    [keras]="nnreplica nnmodel nn common" [metrics]="wkvariables nnreplica nnmodel nn job common"
    [encoding]=common [rule]=common [schedule]=common [job]="job common")
# As tests/unit/local.mk links it.
declare -A options=(
    [parameter_server]=-Wl,--wrap=ps_try_alloc_array
    [data]="-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=pthread_rwlock_rdlock,--wrap=pthread_rwlock_wrlock"
)

# compile FILE: what is at FILE here, as the build compiles it.
compile() {
    local more=
    case $1 in common/math/*) more=-ffp-contract=off ;; esac  # without which a healthy rule is red, too
    # shellcheck disable=SC2086
    $CC $CPPFLAGS $CFLAGS $more -w -c -o mutant.o "$1"
}

# red TEST FILE [SECONDS]: builds it with mutant.o, which is FILE's; does it fail, or not end within that time (timed_out=yes)?
red() {
    local o code parts=()
    for o in ${objects[$1]}; do [ "$o.c" = "../$2" ] || parts+=("$b/tests/$o.o"); done
    parts+=(mutant.o)
    for o in ${archives[$1]:-psdcore pscore common}; do parts+=("$b/.libs/lib$o.a"); done
    # shellcheck disable=SC2086
    $CC ${options[$1]:-} -o "test-$1" "${parts[@]}" $LIBS || exit 1
    SIM_SEEDS=${SIM_SEEDS:-150} timeout "${3:-60}" "./test-$1" >out 2>&1
    code=$? timed_out=no
    [ $code != 124 ] || timed_out=yes
    [ $code != 0 ]
}

n=0
point() { # ok|"not ok" DESCRIPTION
    n=$((n + 1))
    echo "$1 $n - $2"
}

healthy() {
    local t
    mkdir -p psd/sync && cp "$top_srcdir/psd/sync/round.c" psd/sync/round.c && compile psd/sync/round.c || return 1
    for t in "$@"; do
        if red "$t" psd/sync/round.c 900; then  # however busy the machine is
            sed 's/^/# /' out | head -n 5
            return 1
        fi
    done
}

mutate() { # FILE EXPRESSION TEST ...: 0 where a test goes red
    local file=$1 expression=$2 t
    shift 2
    mkdir -p "$(dirname "$file")"
    sed -e "$expression" "$top_srcdir/$file" >"$file"
    if cmp -s "$file" "$top_srcdir/$file"; then
        echo "# the mutation does not apply to $file: $expression"
        return 1
    fi
    if ! compile "$file" 2>errors; then
        sed 's/^/# /' errors | head -n 5
        return 1
    fi
    for t in "$@"; do
        if red "$t" "$file"; then
            if [ $timed_out = yes ]; then echo "# $t, which does not end"; else echo "# $t"; fi
            return 0
        fi
    done
    return 1
}

wanted=${*:-quick} endless='' timed_out=no
if [ "$SANITIZERS" != no ]; then
    echo "1..0 # SKIP healthy objects are built with $SANITIZERS"
    exit 0
fi
if healthy chaos psd control members; then point ok "the healthy build is green"; else point "not ok" "the healthy build is green"; fi
while read -r line; do
    case $line in '#'* | '') continue ;; esac
    quick=no
    case $line in "quick "*) quick=yes line=${line#quick } ;; esac
    name=${line%% :: *} rest=${line#* :: }
    file=${rest%% :: *} rest=${rest#* :: }
    what=${rest##* :: } rest=${rest% :: *}
    tests=${rest##* :: } expression=${rest% :: *}
    case " $wanted " in
    *" all "* | *" $name "*) ;;
    *" quick "*) [ $quick = yes ] || continue ;;
    *) continue ;;
    esac
    # shellcheck disable=SC2086
    if mutate "$file" "$expression" $tests; then
        point ok "$name: $what"
        [ $timed_out = no ] || endless+=" $name"
    else
        point "not ok" "$name: $what"
    fi
done <"$list"
[ -z "$endless" ] || echo "# noticed by the clock alone, as the test does not end:$endless"
echo "1..$n"
