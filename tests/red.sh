#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shows that a test is red without the change that mended what it looks for.
#
#   tests/red.sh COMMIT TEST [TESTS-OF]          tests/red.sh c58e098 tests/unit/test_psd_data
#
# Builds the sources as they stood before COMMIT with the tests of COMMIT, or of TESTS-OF where a later commit brought
# them, in a folder of its own, and runs TEST. Exit code 0: points of it fail, or it does not build against what was
# missing; they are printed. 1: all of them pass.
set -eu -o pipefail
(($# == 2 || $# == 3)) || { sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 64; }
commit=$1 test=$2 tests_of=${3:-$1}
cd "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)"
tree=$(mktemp -d "${TMPDIR:-/tmp}/ps-red.XXXXXX")
trap 'git worktree remove --force "$tree/source" 2>/dev/null; rm -rf "$tree"' EXIT

git worktree add -q --detach "$tree/source" "$commit^"
cd "$tree/source"
git checkout -q "$tests_of" -- tests
{
    autoreconf -fi && mkdir build && cd build && ../configure && make -j"$(nproc)"
} >"$tree/log" 2>&1 || { tail -n 20 "$tree/log"; echo "$0: the sources before $commit do not build" >&2; exit 2; }

programs=()
[[ $test == *.* ]] || programs=(check_PROGRAMS="$test")  # a script may call any of them
make -k check TESTS="$test" "${programs[@]}" >"$tree/log" 2>&1 || true
red=$(grep -E '^(FAIL|ERROR)|error:' "$tree/log" || true)
if [[ -z $red ]]; then
    echo "$test is green without $commit"
    exit 1
fi
printf '%s\n' "$red" | head -n 20
