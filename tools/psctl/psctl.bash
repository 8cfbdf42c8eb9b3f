# SPDX-License-Identifier: Apache-2.0
# bash completion of psctl. What there is to complete is what psctl itself says: the commands of `psctl help`, the
# options of `psctl help COMMAND`.

_psctl_commands() { "$1" help 2>/dev/null | sed -nE 's/^  ([a-z][a-z-]*) .*/\1/p'; }
_psctl_options() { "$1" help $2 2>/dev/null | grep -oE -- '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,' | sort -u; }

_psctl() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command='' i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --cluster | --ps | --timeout) i=$((i + 1)) ;;  # and its value
        -*) ;;
        *) command=${COMP_WORDS[i]}; break ;;
        esac
    done
    case $before in
    --cluster | --summary | --output | -o) COMPREPLY=($(compgen -f -- "$word")); return ;;
    esac
    case $word in
    -*) COMPREPLY=($(compgen -W "$(_psctl_options "${COMP_WORDS[0]}" $command) --help" -- "$word")); return ;;
    esac
    case $command in
    '' | help) COMPREPLY=($(compgen -W "$(_psctl_commands "${COMP_WORDS[0]}")" -- "$word")) ;;
    run | plan | get | put) COMPREPLY=($(compgen -f -- "$word")) ;;
    drain) COMPREPLY=($(compgen -W 'ps: worker:' -- "$word")) ;;
    esac
}
complete -o filenames -F _psctl psctl
