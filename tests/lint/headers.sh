#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Objects that automake does not make, of .cu files and those that the emulated GPUs watch: each is made again when a
# header changes that its source includes. Checks what is built; one that is not yet will be made in any case.
#
#   tests/lint/headers.sh [BUILD]      BUILD: $top_builddir; the sources lie in $top_srcdir
set -u -o pipefail
cd "${1:-${top_builddir:-.}}" || exit 1
root=${top_srcdir:-.}

# What is included on a condition, other than a header's guard, is left out.
declare -A includes
while read -r file header; do
    includes[$file]+=" $header"
done < <(cd "$root" && find common tests workerd -name '*.[ch]' -o -name '*.cu' 2>/dev/null | sort | xargs awk '
    FNR == 1 { depth = FILENAME ~ /h$/ ? -1 : 0 }
    /^#if/ { depth++ }
    /^#endif/ { depth-- }
    /^#include "/ && depth == 0 { split($0, part, "\""); print FILENAME, part[2] }')

# Adds to seen what FILE includes, and what that includes. Headers that the build makes are left out.
headers_of() { # FILE
    local header
    for header in ${includes[$1]:-}; do
        [[ -n ${seen[$header]:-} || ! -f $root/$header ]] && continue
        seen[$header]=1
        headers_of "$header"
    done
}

sources_of() { # OBJECT
    case $1 in
    *.watched.o) ls "$root/${1%.watched.o}".c "$root/${1%.watched.o}".cu ;;
    *.lo) ls "$root/${1%.lo}".cu ;;
    esac 2>/dev/null
}

checked=0 stale=
while read -r object known; do
    source=$(sources_of "$object")
    [[ -n $source && -f $object ]] || continue
    checked=$((checked + 1))
    declare -A seen=()
    headers_of "${source#"$root"/}"
    for header in "${!seen[@]}"; do
        [[ " $known " == *[\ /]"$header "* ]] || stale+="# $object is not made again when $header changes"$'\n'
    done
done < <(env -u MAKEFLAGS -u MFLAGS "${MAKE:-make}" -pn -o Makefile no-goal 2>/dev/null | sed -nE 's/^([^#=: ]+\.(lo|watched\.o)): ?/\1 /p' | sort -u)

echo 1..1
if ((!checked)); then
    echo "ok 1 - headers # SKIP neither CUDA nor emulated GPUs are built here"
elif [[ -z $stale ]]; then
    echo "ok 1 - headers: each of $checked objects is made again when a header of its changes"
else
    echo "not ok 1 - headers: an object outlives a change of a header"
    sort -u <<<"${stale%$'\n'}"
    exit 1
fi
