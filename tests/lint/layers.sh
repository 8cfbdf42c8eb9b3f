#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who calls whom, from the built objects: between the rooms of psd, the files of its control and service, the folders of
# common, the files of libclient, the rooms of workerd, the files of its jobs and strategies, and those of psctl. Prints
# each graph and fails where an arrow points up. A pointer to a function is a call where it is taken.
#
#   tests/lint/layers.sh [BUILD]      BUILD: $top_builddir
set -u -o pipefail
cd "${1:-${top_builddir:-.}}" || exit 1
read -ra nm <<<"${NM:-nm}"  # configure says "nm -B"

# From the top down: each may call those to its right.
psd='main options http rpc service queue control sync job store call'
control='agreement rounds watch control mode propose agree hyper member collective lease waiting ssp view state'
service='core dispatch declare hyper join mode membership peer read shard sums update admin queue waits trace file_thread reply session request'
common='http rpc summary tls job cluster plan file math wire base'
libclient='rpc admin wait client collective control declare member op op_cut op_wire op_encode op_string queue call window layout
    cluster base'
workerd='main attempt options agent http job strategy weights data collective nn'

# The commands, what several of them show, a call and its cluster; then what asks no cluster.
psctl='main status top drain doctor words checkpoint get job mode restore run save set shards slurm stop vars workers
    build cheat plan tls verify jobs submit queue trace waits report group value trace_sum cluster call
    authority caller child findings guard npy operand probe screen'

# The step loop and who starts it; what it calls, callbacks among it; results and files.
job='look profile replicas cores timeline loop step objectives epoch evaluate metrics progress search resume callback
    callbacks summary folders checkpoint_writer checkpoints figures build place recovery supported'
# Of workerd's strategies: those, what parameter_server, local_steps and hybrid are made of, what mirrored is.
strategy='hybrid local_steps parameter_server psd_home psd_signal psd_checkpoint psd_job examples
    mirrored buckets device_sums bucket_order rounds one_device
    weights local_rule checkpoint history losses configuration variables'

# A room is a folder below DIR; where DIR has files itself each of them is one, too.
room_of() { # DIR OBJECT
    local inside=${2#"$1"/}
    inside=${inside/.libs\//}
    if [[ $inside == */* ]]; then
        echo "${inside%%/*}"
    else
        inside=${inside%.o}
        echo "${inside##*-}"  # automake puts the program's name and a dash before it
    fi
}

# One object of each source: those of shared libraries lie in .libs besides. Where the sources are known (top_srcdir),
# an object whose source is gone is none of the build's.
objects() { # DIR
    local object source
    [[ -d $1 ]] || return
    find "$1" -name '*.o' | sort | awk '
        { name = $0; sub(/\.libs\//, "", name); if (!(name in path) || $0 == name) path[name] = $0 }
        END { for (name in path) print path[name] }' | while read -r object; do
        source=${object/.libs\//}
        source=${source%/*}/${source##*[/-]}
        [[ -n ${top_srcdir:-} && ! -f $top_srcdir/${source%.o}.c ]] || echo "$object"
    done
}

# "ROOM T SYMBOL" for what a room defines, "ROOM U SYMBOL" for what it needs.
symbols() { # DIR
    local object room
    for object in $(objects "$1"); do
        room=$(room_of "$1" "$object")
        "${nm[@]}" -g "$object" | awk -v room="$room" 'NF >= 2 { print room, $(NF - 1) == "U" ? "U" : "T", $NF }'
    done
}

# "FROM TO SYMBOL" for every symbol that one room needs of another.
arrows() { # DIR
    symbols "$1" | sort -u | awk '
        $2 == "T" { home[$3] = $1; next }
        { from[++n] = $1; what[n] = $3 }
        END { for (i = 1; i <= n; i++) if (what[i] in home && home[what[i]] != from[i]) print from[i], home[what[i]], what[i] }' | sort
}

point=0 failed=0
graph() { # DIR ORDER
    local found
    found=$(arrows "$1" | awk -v order="$2" '
        BEGIN {
            n = split(order, rooms, " "); for (i = 1; i <= n; i++) level[rooms[i]] = i
        }
        {
            arrow = $1 ">" $2
            if (!(arrow in count)) seen[++arrows] = arrow
            count[arrow]++; first[arrow] = first[arrow] (count[arrow] <= 3 ? " " $3 : count[arrow] == 4 ? " ..." : "")
            from[arrow] = $1; to[arrow] = $2
        }
        END {
            for (i = 1; i <= arrows; i++) {
                a = seen[i]; what = "  "
                if (!(from[a] in level) || !(to[a] in level)) what = "?? "
                else if (level[from[a]] > level[to[a]]) what = "UP "
                printf "%s%s -> %s (%d):%s\n", what, from[a], to[a], count[a], first[a]
            }
        }')
    point=$((point + 1))
    if [[ -z $found ]]; then
        echo "not ok $point - $1: no object file below $PWD/$1"
        failed=1
    elif grep -qE '^(UP|\?\?)' <<<"$found"; then
        echo "not ok $point - $1: a call points up (UP), or a room has no place in the order (??)"
        failed=1
    else
        echo "ok $point - $1: calls point down only"
    fi
    printf '%s\n' "$found" | sed 's/^/# /'
}

echo 1..9
graph psd "$psd"
graph psd/control "$control"
graph psd/service "$service"
graph common "$common"
graph libclient "$libclient"
graph workerd "$workerd"
graph workerd/job "$job"
graph workerd/strategy "$strategy"
graph tools/psctl "$psctl"
exit $failed
