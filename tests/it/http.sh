# SPDX-License-Identifier: Apache-2.0
# HTTP by hand, for the tests of what daemons serve. Sourced after lib.sh.

get() { # PORT PATH [METHOD [BODY [HOST]]]: the whole answer
    local body=${4:-} length=
    [ -z "$body" ] || length="Content-Length: ${#body}"$'\r\n'
    exec 9<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf '%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n%s' "${3:-GET}" "$2" "${5:-localhost}" "$length" "$body" >&9
    cat <&9
    exec 9>&-
}
text_of() { get "$@" | tr -d '\r' | sed '1,/^$/d'; } # PORT PATH ...: without its headers
answers() { # CODE TEXT PORT PATH [METHOD [BODY [HOST]]]
    get "${@:3}" | tr -d '\r' >answer
    cat answer
    head -n 1 answer | grep -q "^HTTP/1.1 $1 " && grep -qF -- "$2" answer
}
http_port() { sed -nE 's/.*metrics: port ([0-9]+) of .*/\1/p' "$1" | head -n 1; } # LOG
