#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
. "$top_srcdir/tests/it/lib.sh" || exit 1
trap 'kill -KILL "$psd_pid" 2>/dev/null; rm -rf "$scratch"' EXIT
# Its worker sends its heartbeats by itself, now and then.
start_psd psd --memory 600M --dead-after-ms 60000 || exit 1
"$top_builddir/tests/it/exactly_once" "$scratch/psd"
