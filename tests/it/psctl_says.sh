# SPDX-License-Identifier: Apache-2.0
# What psctl says, in the tests of it; read after lib.sh.
says() { # TEXT COMMAND ...: exits with 0 and says TEXT
    local text=$1
    shift
    fails_with 0 "$text" "$@"
}
lacks() { # TEXT COMMAND ...
    local text=$1
    shift
    "$@" >said 2>&1
    cat said
    ! grep -qF -- "$text" said
}
is_json() { # COMMAND ...
    "$@" >json.out || return 1
    head -c 300 json.out
    if [ "$PYTHON3" != no ]; then "$PYTHON3" -m json.tool json.out >/dev/null; else grep -q '^[[{]' json.out; fi
}
