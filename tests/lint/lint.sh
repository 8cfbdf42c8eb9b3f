#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The house's rules that a machine can see, one TAP point each; what breaks one is listed under it as file:line.
#
#   tests/lint/lint.sh [ROOT]      ROOT: $top_srcdir, or else the tree that this script lies in
set -u -o pipefail
cd "${1:-${top_srcdir:-$(dirname "$0")/../..}}" || exit 1

# ---- what is looked at --------------------------------------------------------------------------------------------

dirs=()
for d in common deploy libclient proto psd tests tools workerd; do
    [[ -d $d ]] && dirs+=("$d")
done
((${#dirs[@]})) || { echo "Bail out! no source directory in $PWD"; exit 1; }

# Ours, not what a build in the tree has made nor what tests take as data.
files() { # NAME-PATTERN ...
    local pattern
    for pattern; do
        find "${dirs[@]}" -type f -name "$pattern" ! -name '*.pb-c.[ch]' ! -path '*/corpus/*' ! -path '*/golden/*'
    done | sort
}
c_files() { files '*.[ch]' '*.cc' '*.cu'; }
scripts() {
    files '*.sh' '*.py'
    find quickstart .ci/run -type f 2>/dev/null
}

[[ -n $(c_files) ]] || { echo "Bail out! no C source in $PWD"; exit 1; }

# ---- the rules: each prints what breaks it ------------------------------------------------------------------------

formatter=${CLANG_FORMAT:-$(command -v clang-format-14 || command -v clang-format)}

rule_format() {
    [[ -f .clang-format ]] || { echo ".clang-format: is missing"; return; }
    local said
    said=$(c_files | xargs "$formatter" --style=file --dry-run --Werror 2>&1) && return
    grep 'Wclang-format-violations' <<<"$said" | cut -d: -f1 | sort -u | sed 's/$/: not as clang-format writes it (make format)/' |
        grep . || echo "$said"
}

rule_spdx() {
    { c_files; scripts; files '*.proto'; } | while read -r f; do
        head -n 2 "$f" | grep -q 'SPDX-License-Identifier: Apache-2\.0$' ||
            echo "$f:1: no SPDX-License-Identifier in the first two lines"
    done
}

# A function's braces stand in the first column, and no other's do.
rule_length() {
    c_files | xargs awk '
        FNR == 1 { start = 0 }
        /^\{/    { start = FNR }
        /^\}/    { if (start && FNR - start - 1 > 60)
                       printf "%s:%d: a function of %d lines, at most 60\n", FILENAME, start, FNR - start - 1
                   start = 0 }'
}

# clang-format leaves comments as they are. Tables in them, and what is not ASCII, may be wider.
rule_width() {
    { c_files; files '*.proto'; } | xargs awk 'length($0) > 120 && /\/\/ [^ ]/ && !/[\200-\377]/ {
        printf "%s:%d: a comment of %d columns, at most 120\n", FILENAME, FNR, length($0) }'
}

# includes_none WHO BUT WHAT: files whose path matches WHO and not BUT include nothing that matches WHAT.
includes_none() {
    c_files | grep -E "^($1)" | grep -vE "^($2)" |
        xargs -r grep -HnE "^[[:space:]]*#[[:space:]]*include[[:space:]]*[<\"]($3)"
}

# Includes point only down. The programs stand side by side on libclient and common; gRPC is known to the rpc
# directories and to what starts them.
rule_includes() {
    includes_none 'common/' '-' 'psd/|workerd/|libclient/|tools/|tests/'
    includes_none 'libclient/' '-' 'psd/|workerd/|tools/|tests/'
    includes_none 'psd/' '-' 'workerd/|libclient/|tools/|tests/'
    includes_none 'workerd/' '-' 'psd/|tools/|tests/'
    includes_none 'workerd/nn/' '-' 'workerd/([^n]|n[^n])|libclient/'
    includes_none 'workerd/(data|weights)/' '-' 'workerd/(job|strategy)/|libclient/'
    includes_none 'workerd/data/' '-' 'workerd/weights/'
    includes_none 'workerd/weights/' '-' 'workerd/data/'
    includes_none 'workerd/strategy/' '-' 'workerd/(job|data)/'
    includes_none 'workerd/collective/' '-' 'workerd/[^c]|libclient/'
    includes_none 'tools/' '-' 'psd/|tests/'
    includes_none 'psd/control/' '-' 'psd/(service|rpc)/'
    includes_none 'psd/queue/' '-' 'psd/(call|store|job|sync|control|service|rpc)/'
    includes_none 'psd/sync/' '-' 'psd/(control|service|rpc)/'
    includes_none 'psd/job/' '-' 'psd/(sync|control|service|rpc)/'
    includes_none 'psd/(store|call)/' '-' 'psd/(job|sync|control|service|rpc)/'
    includes_none 'psd/' 'psd/(rpc|main)' 'psd/rpc'
    includes_none 'libclient/' 'libclient/rpc' 'libclient/rpc'
    includes_none 'common/|psd/|libclient/|workerd/|tests/(sim|fuzz)/' '[a-z]+(/collective|/agent)?/rpc|psd/main|common/http' 'grpc/|grpc\.|common/rpc'
    includes_none 'common/http/' '-' 'grpc/|grpc\.|common/rpc/([^a]|address[^.])'
}

# A request that finds no memory is refused; nothing ends the process. Start-up may; so does the gRPC core, and what lies
# on it; and what workerd and psctl alone use of common.
rule_memory() {
    c_files | grep -E '^(common|libclient|psd)/' |
        grep -vE '/rpc/|^psd/(main|options)\.|^common/(base/(alloc|self)|job/[a-z]+|file/timeline)\.' |
        xargs -r grep -HnE '\<ps_(alloc|alloc_aligned|realloc|strdup|printf)[[:space:]]*\('
}

# Spelled so that this file does not break it.
rule_words() {
    { files '*'; scripts; echo README.md; } | sort -u |
        xargs grep -HnIwE 'T[O]DO|FIXM[E]|XX[X]' 2>/dev/null
}

# Words of a private language, which the field's own have replaced: request, slices, reply, view, collective, hyper
# change, ticket, request id, dedup window. Parts of identifiers; prose may turn, cut and tell.
private='draft|meeting|orphan|resting|roster|rope|seat|stamp|told|tuning|turn|untold|visit|visitor'
private_psd='piece'

# banned PREFIX WORDS: identifiers in the C files under PREFIX of which one of WORDS is a part.
banned() {
    c_files | grep -E "^($1)" | xargs -r awk -v words="$2" '
        BEGIN { is = "^(" words ")s?$" }
        {
            code = $0
            gsub(/"([^"\\]|\\.)*"/, "", code)
            sub(/\/\/.*/, "", code)
            while (match(code, /[A-Za-z_][A-Za-z_0-9]*/)) {
                name = substr(code, RSTART, RLENGTH)
                code = substr(code, RSTART + RLENGTH)
                n = split(tolower(name), part, "_")
                for (i = 1; i <= n; i++)
                    if (part[i] ~ is)
                        printf "%s:%d: %s says \047%s\047\n", FILENAME, FNR, name, part[i]
            }
        }'
}

rule_terms() {
    banned '' "$private"
    banned 'psd/' "$private_psd"
}

# A static function's name is found once in the product, and has two words at least: the module or the object, and the
# verb. A GPU's function may have the name of the reference's that computes the same. Tests are programs of their own.
rule_names() {
    c_files | grep -E '^(common|libclient|psd|tools|workerd)/' | xargs -r awk '
        /^static [^=;]*\(/ && !/;$/ {
            head = $0
            sub(/__attribute__\(\([^)]*(\([^)]*\))?[^)]*\)\) */, "", head)
            sub(/__launch_bounds__\([^)]*\) */, "", head)
            if (!match(head, /[A-Za-z_][A-Za-z_0-9]*\(/))
                next
            name = substr(head, RSTART, RLENGTH - 1)
            if (index(name, "_") == 0)
                printf "%s:%d: %s has one word\n", FILENAME, FNR, name
            key = name (FILENAME ~ /\.cu$|\/cuda\// ? " on a GPU" : "")
            if ((key in file) && file[key] != FILENAME)
                printf "%s:%d: %s is also in %s\n", FILENAME, FNR, name, file[key]
            file[key] = FILENAME
        }'
}

# tests/mutants/list: NAME :: FILE :: EXPRESSION :: ..., of sed. A change of FILE can take away what that matches.
rule_mutations() {
    local line name file expression mutant
    [[ -f tests/mutants/list ]] && mutant=$(mktemp) || return
    while read -r line; do
        [[ -z $line || $line == '#'* ]] && continue
        line=${line#quick }
        name=${line%% :: *} line=${line#* :: }
        file=${line%% :: *} line=${line#* :: }
        expression=${line% :: * :: *}
        if ! sed -e "$expression" "$file" >"$mutant" 2>&1; then
            echo "tests/mutants/list: $name: $(head -n 1 "$mutant")"
        elif cmp -s "$mutant" "$file"; then
            echo "tests/mutants/list: $name changes nothing in $file"
        fi
    done <tests/mutants/list
    rm "$mutant"
}

# psctl(1), --json: a key is its column's title with its unit at the end; the page lists the others, with their titles.
rule_keys() {
    [[ -f tools/psctl.1 ]] || return
    grep -HnoE '\{"[a-z_]+", *"[^"]+", *TABLE_' tools/psctl/*.c | awk -F'\t' '
        NR == FNR { if (/^\.fi/) listed = 0
                    if (listed) { gsub(/ *\([^)]*\)/, ""); other[++n] = ", " $1 "," FS $2 }
                    if (/^\.ta /) listed = 1
                    next }
        { split($0, part, "\""); key = part[2]; title = part[4]; unit = title
          sub(/\/s$/, " per second", unit)
          gsub(/,? /, "_", unit)
          if (key == unit || key ~ "^" unit "_(bytes|ms|us|per_second)$") next
          if (sub(/s$/, "", unit) && key == unit "_bytes") next
          for (i = 1; i <= n; i++)
              if (index(other[i], " " key ",") && index(substr(other[i], index(other[i], FS)), title)) next
          sub(/:\{.*/, ""); printf "%s: key %s has title \047%s\047, which tools/psctl.1 does not list\n", $0, key, title
        }' tools/psctl.1 -
}

# Castagnoli's polynomial: ps_crc32c has the processor's instruction for it.
rule_crc() {
    c_files | grep -vx common/base/crc32c.c | xargs -r grep -HniE '0x(82f63b78|1edc6f41)'
}

# ---- TAP ----------------------------------------------------------------------------------------------------------

point=0 failed=0
check() { # RULE WHAT-IT-SAYS
    local broken
    point=$((point + 1))
    broken=$("rule_$1")
    if [[ -z $broken ]]; then
        echo "ok $point - $1: $2"
    else
        echo "not ok $point - $1: $2"
        printf '%s\n' "$broken" | sed 's/^/# /'
        failed=1
    fi
}

echo 1..12
if [[ -n $formatter ]]; then
    check format "clang-format changes nothing"
else
    point=1
    echo "ok 1 - format # SKIP no clang-format here"
fi
check spdx "every source names its license"
check length "no function is longer than 60 lines"
check width "no comment is wider than 120 columns"
check includes "includes point only down, gRPC stays in rpc"
check memory "psd and libclient call nothing that aborts where there is no memory"
check names "static functions have names of their own"
check terms "no identifier says a private word"
check words "no unfinished business"
check keys "psctl(1) lists each key that is not its column's title"
check crc "CRC-32C is ps_crc32c alone"
check mutations "every mutation of the list changes its file"
exit $failed
