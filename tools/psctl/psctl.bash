# SPDX-License-Identifier: Apache-2.0
# bash completion of psctl. What there is to complete is what psctl itself says: the commands of `psctl help`, the
# options of `psctl help COMMAND`, the jobs and variables of the cluster that the line names.

# A line may list several: "  set-lr, set JOB VALUE".
_psctl_commands() {
    "$psctl" help 2>/dev/null | sed -nE 's/^  (([a-z][a-z-]*, )*[a-z][a-z-]*) .*/\1/p' | sed 's/, /\n/g'
    printf '%s\n' cheat help
}
# From the lines that begin with one, without what is said of it, which may name another program's.
_psctl_options() { "$psctl" help $command 2>/dev/null | sed -nE 's/^ +(-.*)/\1/p' | sed -E 's/  .*//' | grep -oE -- '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,' | sort -u; }
# " --ps " and so on: those that a value follows.
_psctl_valued() { "$psctl" help $command 2>/dev/null | grep -oE -- '--?[a-z-]+ [A-Z]' | sed -E 's/^(.*) .$/ \1 /'; }
_psctl_names() { "$psctl" --timeout 1 "${target[@]}" "$@" --json 2>/dev/null | sed -nE 's/^ +"name": "(.*)",?$/\1/p'; }

# Of the lines on standard input those that begin like the word. Names come from the cluster: nothing in them is to be
# executed.
_psctl_offer() {
    local name
    while IFS= read -r name; do
        [[ $name == "$word"* ]] && COMPREPLY+=("$(printf %q "$name")")
    done
}
_psctl_files() { compopt -o default; }  # bash's own, where COMPREPLY is empty

_psctl_operand() {
    case $command:${#operands[@]} in
    :0 | help:0) _psctl_offer < <(_psctl_commands) ;;
    run:0 | plan:0 | submit:0 | slurm:0 | verify:0 | get:2 | put:2 | save:1 | restore:1) _psctl_files ;;
    get:1 | put:1) _psctl_offer < <(_psctl_names vars "${operands[0]}") ;;
    drain:0) _psctl_offer < <(echo ps:; _psctl_names jobs) ;;
    set-mode:1) _psctl_offer < <(printf '%s\n' async ssp sync) ;;
    drain:1) [[ ${operands[0]} == ps:* ]] || _psctl_offer <<<worker: ;;
    tls:0) _psctl_offer < <(printf '%s\n' init issue show) ;;
    tls:1) _psctl_files ;;
    tls:2) _psctl_offer < <(printf '%s\n' psd worker admin) ;;
    queue:0 | cancel:0 | logs:0) _psctl_offer < <(_psctl_names queue | sort -u) ;;
    help:* | cheat:* | check-build:*) ;;
    *:0) _psctl_offer < <(_psctl_names jobs) ;;
    esac
}

_psctl() {
    local psctl=$1 line=${COMP_LINE:0:COMP_POINT} command='' valued before word i
    local -a words operands=() target=()
    read -a words <<<"$line"  # not COMP_WORDS, which addresses are in pieces in: a colon ends a word there
    [[ $line == *[[:space:]] ]] && words+=('')
    word=${words[-1]} before=${words[-2]} valued=$(_psctl_valued)
    COMPREPLY=()
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        case ${words[i]} in
        --cluster | --ps | --tls) target+=("${words[@]:i:2}") ;;&
        --cluster=* | --ps=* | --tls=* | --munge) target+=("${words[i]}") ;;
        -*) [[ $valued == *" ${words[i]} "* ]] && i=$((i + 1)) ;;
        *)
            if [ "$command" ]; then operands+=("${words[i]}"); else command=${words[i]} valued=$(_psctl_valued); fi
            ;;
        esac
    done
    case $before in
    --cluster | --tls | --summary | --timeline | --script | --report | --output | -o) _psctl_files; return ;;
    -*) [[ $valued == *" $before "* ]] && return ;;
    esac
    case $word in
    --cluster=* | --tls=* | --summary=* | --timeline=* | --script=* | --report=* | --output=*) _psctl_files ;;
    -*) _psctl_offer < <(_psctl_options; echo --help) ;;
    *) _psctl_operand ;;
    esac
    [[ ${#COMPREPLY[@]} = 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace
    # Readline replaces what follows the last colon.
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
}
complete -F _psctl psctl
