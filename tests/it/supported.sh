#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# README's table says what workerd --layers says.
. "$top_srcdir/tests/it/lib.sh" || exit 1

"$workerd" --layers | awk '
    /^$/ {exit}
    /^[a-z]/ {if (row) print row " |"; title = $1; sub(/^[a-z]+ +/, ""); row = "| " title " | " $0; next}
    {sub(/^ +/, ""); row = row " " $0}
    END {print row " |"}' >"$scratch/rows"
ok "there are layers, losses and so on" grep -q "^| layers | InputLayer, Dense, " "$scratch/rows"
while read -r row; do
    ok "README.md has: ${row%% | *} |" grep -qxF -- "$row" "$top_srcdir/README.md"
done <"$scratch/rows"
