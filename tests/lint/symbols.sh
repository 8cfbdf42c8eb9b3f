#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the built objects need and offer: no gRPC below the rpc directories, and libpsclient.so offers what
# psclient.h declares, and nothing else.
#
#   tests/lint/symbols.sh [BUILD]      BUILD: $top_builddir
set -u -o pipefail
cd "${1:-${top_builddir:-.}}" || exit 1
read -ra nm <<<"${NM:-nm}"  # configure says "nm -B"

# Objects of a directory but those that are there to know gRPC: in rpc/, and the main that starts it.
objects() { # DIR
    [[ -d $1 ]] && find "$1" -name '*.o' ! -path '*/rpc/*' ! -name main.o ! -name '*-main.o'
}

point=0 failed=0
result() { # NAME BROKEN...
    point=$((point + 1))
    if [[ -z $2 ]]; then
        echo "ok $point - $1"
    else
        echo "not ok $point - $1"
        printf '%s\n' "$2" | sed 's/^/# /'
        failed=1
    fi
}

no_grpc() { # DIR
    local found symbols broken
    found=$(objects "$1")
    if [[ -z $found ]]; then
        broken="no object file below $PWD/$1"
    elif ! symbols=$(xargs "${nm[@]}" -A -u <<<"$found"); then
        broken="${nm[*]} failed"
    else
        broken=$(grep -E '[[:space:]]grpc_' <<<"$symbols")
    fi
    result "$1: nothing outside rpc needs gRPC" "$broken"
}

public_only() {
    local library symbols broken header=${top_srcdir:-.}/libclient/psclient.h
    library=$(find . -path '*/.libs/libpsclient.so' | head -n 1)
    if [[ -z $library ]]; then
        broken="no libpsclient.so below $PWD"
    elif ! symbols=$("${nm[@]}" -D --defined-only --format=posix "$library"); then
        broken="${nm[*]} failed"
    elif [[ -z $symbols ]]; then
        broken="$library: exports nothing"
    else
        broken=$(awk 'NR == FNR { while (match($0, /psc_[a-z0-9_]+\(/)) {
                                      declared[substr($0, RSTART, RLENGTH - 1)]; $0 = substr($0, RSTART + RLENGTH) }
                                  next }
                      !($1 in declared) { print $1 }' "$header" - <<<"$symbols")
    fi
    result "libpsclient.so: exports what psclient.h declares" "$broken"
}

echo 1..6
for dir in common psd libclient workerd tests/sim; do
    no_grpc "$dir"
done
public_only
exit $failed
