#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each room of psd links with the rooms below it alone, from the bottom up: a call that points up finds no symbol.
#
#   tests/lint/link.sh [BUILD]      BUILD: $top_builddir
set -u -o pipefail
cd "${1:-${top_builddir:-.}}" || exit 1
read -ra cc <<<"${CC:-cc} ${LINK_FLAGS:-}"
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lint-link.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

# From the bottom up, with the archives of each.
rooms=('call' 'store numbers' 'job' 'sync' 'control' 'queue' 'service')

archives() { # NAME ...
    local name
    for name; do
        echo ".libs/libpsd$name.a"
    done
}

libraries() { # what libcommon needs, as libtool says
    local dependency_libs=
    # shellcheck source=/dev/null
    [[ -f libcommon.la ]] && . ./libcommon.la
    echo "$dependency_libs"
}

point=0 failed=0 lower=()
read -ra needed <<<"$(libraries)"
echo 'int main(void) { return 0; }' >"$tmp/main.c"
echo "1..${#rooms[@]}"
for room in "${rooms[@]}"; do
    read -ra names <<<"$room"
    mapfile -t own < <(archives "${names[@]}")
    point=$((point + 1))
    if "${cc[@]}" -o "$tmp/linked" "$tmp/main.c" -Wl,--whole-archive "${own[@]}" -Wl,--no-whole-archive \
        -Wl,--start-group "${lower[@]}" .libs/libcommon.a -Wl,--end-group "${needed[@]}" >"$tmp/out" 2>&1; then
        echo "ok $point - ${names[0]}: links with what lies below it"
    else
        echo "not ok $point - ${names[0]}: does not link with what lies below it"
        grep -oE 'undefined reference to .*|cannot find .*' "$tmp/out" | sort -u | head -20 | sed 's/^/# /'
        failed=1
    fi
    lower+=("${own[@]}")
done
exit $failed
