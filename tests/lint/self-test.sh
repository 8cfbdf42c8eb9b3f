#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The gates can close: each accepts a good tree, and rejects one in which a single thing is wrong, by the rule it breaks and
# by no other.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lint-self-test.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

point=0 failed=0
result() { # RC NAME
    point=$((point + 1))
    if (($1 == 0)); then
        echo "ok $point - $2"
    else
        echo "not ok $point - $2"
        sed 's/^/# /' "$tmp/out"
        failed=1
    fi
}

# accepts NAME COMMAND...: it exits 0 and has no "not ok".
accepts() {
    local name=$1
    shift
    "$@" >"$tmp/out" 2>&1 && ! grep -q '^not ok' "$tmp/out"
    result $? "$name"
}

# rejects NAME POINT COMMAND...: it fails, and POINT (an extended regexp) is its only "not ok".
rejects() {
    local name=$1 which=$2
    shift 2
    ! "$@" >"$tmp/out" 2>&1 && [[ $(grep -c '^not ok' "$tmp/out") == 1 ]] && grep -qE "^not ok [0-9]+ - $which" "$tmp/out"
    result $? "$name"
}

bails_out() { # NAME COMMAND...
    local name=$1
    shift
    ! "$@" >"$tmp/out" 2>&1 && grep -q '^Bail out!' "$tmp/out"
    result $? "$name"
}

# ---- lint.sh ------------------------------------------------------------------------------------------------------

spdx='// SPDX-License-Identifier: Apache-2.0'
tree=$tmp/tree
good_tree() {
    rm -rf "$tree"
    mkdir -p "$tree"/{proto,common/{base,cluster,job,rpc},psd/{rpc,service,control,sync,job,store,call},libclient/rpc,workerd/{nn,data,weights,strategy},tools/psctl,tests/{sim,mutants}}
    cp "$here/../../.clang-format" "$tree"
    printf '%s\nint common_good(void)\n{\n    return 0;\n}\n' "$spdx" >"$tree/common/good.c"
    printf '%s\n#include <grpc/grpc.h>\n' "$spdx" >"$tree/psd/rpc/server.c"
    printf '%s\n#include "common/rpc/rpc.h"\n' "$spdx" >"$tree/psd/main.c"
    printf '%s\nstatic int good_one(void)\n{\n    return 0;\n}\n' "$spdx" >"$tree/libclient/good.c"
    printf '%s\nstatic __global__ void good_one(void)\n{\n}\n' "$spdx" >"$tree/workerd/nn/good.cu"
    printf '%s\n// {"left_ms", "left", TABLE_MS}, {"what", "waits for", TABLE_TEXT}\n' "$spdx" >"$tree/tools/psctl/good.c"
    printf '.ta 26n\nwhat\twaits for\n.fi\n' >"$tree/tools/psctl.1"
    printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n' >"$tree/tests/good.sh"
}
lint() { "$here/lint.sh" "$tree"; }

# with NAME RULE FILE LINE...: a good tree and this file.
with() {
    local name=$1 rule=$2 file=$3
    shift 3
    good_tree
    printf '%s\n' "$@" >"$tree/$file"
    rejects "$name" "$rule:" lint
}
including() { # FILE HEADER
    with "lint: $1 includes $2" includes "$1" "$spdx" "#include $2"
}
lines() { yes '    x++;' | head -n "$1"; }

good_tree
accepts "lint: a good tree" lint
printf '%s\n' "$spdx" 'void longest(int x)' '{' "$(lines 60)" '}' >"$tree/common/longest.c"
accepts "lint: a function of 60 lines" lint
printf '%s\n' "$spdx" 'static void *x = ps_try_alloc(9);' >"$tree/psd/careful.c"
for file in psd/rpc/server.c psd/main.c psd/options.c common/base/alloc.c common/job/job.c workerd/job.c; do
    printf '%s\n' "$spdx" 'static void *x = ps_alloc(9);' >"$tree/$file"
done
accepts "lint: an allocation that may abort, where it may" lint
printf '%s\n' "$spdx" '// The rope has a turn.' 'static const char *turned = "\"a turn";' >"$tree/psd/careful.c"
accepts "lint: private words in prose" lint
rm -rf "$tree" && mkdir "$tree"
bails_out "lint: no source directory" lint
mkdir "$tree/common"
bails_out "lint: no source" lint

if [[ -n ${CLANG_FORMAT:-$(command -v clang-format-14 || command -v clang-format)} ]]; then
    with "lint: wrong indent" format common/bad.c "$spdx" 'int bad(void)' '{' '  return 0;' '}'
    good_tree
    rm "$tree/.clang-format"
    rejects "lint: no .clang-format" format: lint
fi
with "lint: C without a license" spdx common/bad.c 'int bad;'
with "lint: header without a license" spdx common/bad.h 'extern int bad;'
with "lint: script without a license" spdx tests/bad.sh '#!/bin/sh' 'true'
with "lint: a license that is another" spdx common/bad.c "$spdx-or-later" 'int bad;'
with "lint: a comment of 121 columns" width common/bad.c "$spdx" "// $(printf 'x%.0s' $(seq 118))"
with "lint: one behind code" width common/bad.c "$spdx" "int bad;  // $(printf 'x%.0s' $(seq 108))"
with "lint: one in the contract" width proto/bad.proto "$spdx" "// $(printf 'x%.0s' $(seq 118))"
with "lint: a function of 61 lines" length common/bad.c "$spdx" 'void bad(int x)' '{' "$(lines 61)" '}'
for file in psd/bad.c libclient/bad.c common/bad.c; do
    for call in 'ps_alloc(9)' 'ps_alloc_aligned(9)' 'ps_realloc(0, 9)' 'ps_strdup("")' 'ps_printf("")'; do
        with "lint: $call in $file" memory "$file" "$spdx" "static void *x = $call;"
    done
done
with "lint: a kernel of 61 lines" length workerd/nn/bad.cu "$spdx" 'void bad(int x)' '{' "$(lines 61)" '}'
with "lint: C++ without a license" spdx tests/bad.cc 'int bad;'
with "lint: two static kernels of one name" names workerd/bad.cu "$spdx" \
    'static __global__ void __launch_bounds__(64) good_one(void)' '{' '}'
with "lint: a static function of one word" names common/bad.c "$spdx" 'static int bad(void)' '{' '    return 0;' '}'
with "lint: two static functions of one name" names workerd/bad.c "$spdx" 'static int good_one(void)' '{' '    return 1;' '}'
with "lint: a private word" terms common/bad.c "$spdx" 'static int take_turn;'
with "lint: a private word, in the plural" terms tests/sim/bad.h "$spdx" '#define BAD_ROPES 1'
with "lint: a private word of psd" terms psd/bad.c "$spdx" 'static int piece;'
with "lint: a key of JSON that psctl(1) does not list" keys tools/psctl/bad.c "$spdx" '// {"what", "waited for", TABLE_TEXT}'
with "lint: a mutation that does not apply" mutations tests/mutants/list 'bad :: common/good.c :: s/return 1/return 2/ :: good :: nothing'
with "lint: a mutation of a file that is not there" mutations tests/mutants/list 'bad :: common/gone.c :: s/a/b/ :: good :: nothing'
with "lint: a mutation that is no expression" mutations tests/mutants/list 'bad :: common/good.c :: s/a/b :: good :: nothing'
with "lint: a CRC-32C of its own" crc workerd/bad.c "$spdx" 'enum { BAD = 0x82f63b78 };'
with "lint: unfinished in C" words common/bad.c "$spdx" '// T''ODO' 'int bad;'
with "lint: unfinished in a makefile" words common/local.mk '# FIX''ME: later'
with "lint: unfinished in a script" words tests/bad.sh '#!/bin/sh' "# ${spdx#// }" '# XX''X'

including common/bad.c '"psd/service/core.h"'
including common/bad.c '"workerd/nn/op.h"'
including common/bad.c '<grpc/grpc.h>'
including common/cluster/bad.c '"libclient/psclient.h"'
including psd/options.c '"libclient/psclient.h"'
including common/bad.c '"common/rpc/rpc.h"'
including libclient/bad.c '"workerd/job.h"'
including libclient/bad.c '<grpc/slice.h>'
including libclient/bad.h '"libclient/rpc/channel.h"'
including psd/store/block.c '"psd/job/job.h"'
including psd/job/bad.c '"psd/service/service.h"'
including psd/sync/bad.h '"psd/service/core.h"'
including psd/sync/bad.c '"psd/control/state.h"'
including psd/control/bad.c '"psd/service/service.h"'
including psd/service.c '"psd/rpc/server.h"'
including psd/service.c '"common/rpc/rpc.h"'
including psd/bad.c '"libclient/psclient.h"'
including workerd/bad.c '"psd/service/core.h"'
including workerd/bad.c '<grpc/grpc.h>'
including workerd/nn/bad.c '"workerd/data/data.h"'
including workerd/data/bad.c '"workerd/job/loop.h"'
including workerd/data/bad.c '"workerd/weights/weights.h"'
including workerd/weights/bad.c '"workerd/data/data.h"'
including workerd/weights/bad.c '"workerd/strategy/strategy.h"'
including workerd/strategy/bad.c '"workerd/job/loop.h"'
including workerd/strategy/bad.h '"workerd/data/data.h"'
including tests/sim/bad.c '<grpc/grpc.h>'

# ---- symbols.sh ---------------------------------------------------------------------------------------------------

build=$tmp/build
# A build that many cases begin with is compiled once. begin NAME: $build is as make_NAME leaves it.
begin() { # NAME
    rm -rf "$build"
    if [ -d "$tmp/made-$1" ]; then
        cp -a "$tmp/made-$1" "$build"
    else
        "make_$1" && cp -a "$build" "$tmp/made-$1"
    fi
}
compile() { # OBJECT SOURCE
    mkdir -p "$(dirname "$build/$1")" && echo "$2" | $cc -xc -fPIC -c -o "$build/$1" -
}
share() { # SOURCE
    mkdir -p "$build/.libs" && echo "$1" | $cc -xc -fPIC -shared -o "$build/.libs/libpsclient.so" -
}
calls_grpc='void grpc_init(void); void f(void); void f(void) { grpc_init(); }'
make_good() {
    local dir
    for dir in common psd libclient workerd tests/sim; do
        compile "$dir/good.o" 'int good(void); int good(void) { return 0; }'
    done
    compile psd/rpc/server.o "$calls_grpc"
    compile psd/psd-main.o "$calls_grpc"
    share 'int psc_connect(void); int psc_connect(void) { return 0; }'
}
symbols() { "$here/symbols.sh" "$build"; }

begin good
accepts "symbols: a good build" symbols
for dir in common psd libclient workerd tests/sim; do
    begin good
    compile "$dir/.libs/bad.o" "$calls_grpc"
    rejects "symbols: $dir needs gRPC" "$dir:" symbols
    begin good
    rm "$build/$dir/good.o"
    rejects "symbols: $dir has no object" "$dir:" symbols
done
begin good
share 'int psc_connect(void); int psc_connect(void) { return 0; } int ps_leak; '
rejects "symbols: libpsclient.so exports another name" 'libpsclient\.so:' symbols
begin good
share 'int psc_connect(void); int psc_connect(void) { return 0; } int psc_world(void); int psc_world(void) { return 0; }'
rejects "symbols: libpsclient.so exports a name that its header lacks" 'libpsclient\.so:' symbols
begin good
rm "$build/.libs/libpsclient.so"
rejects "symbols: no libpsclient.so" 'libpsclient\.so:' symbols

# ---- layers.sh ----------------------------------------------------------------------------------------------------

# function NAME [CALLEE]
function_() { echo "void $1(void); ${2:+void $2(void);} void $1(void) { ${2:+$2();} }"; }
make_layered() {
    compile psd/rpc/rpc.o "$(function_ serve update)"
    compile psd/service/update.o "$(function_ update locate)"
    compile psd/service/read.o "$(function_ read_values reply)"
    compile psd/service/reply.o "$(function_ reply)"
    compile psd/control/ssp.o "$(function_ step recount)"
    compile psd/control/state.o "$(function_ recount locate)"
    compile psd/job/locate.o "$(function_ locate block)"
    compile psd/store/.libs/block.o "$(function_ block)"
    compile common/rpc/rpc.o "$(function_ dial fail)"
    compile common/wire/wire.o "$(function_ wire fail)"
    compile common/base/error.o "$(function_ fail)"
    compile libclient/op.o "$(function_ op add)"
    compile libclient/queue.o "$(function_ add lock)"
    compile libclient/libx_la-base.o "$(function_ lock)"
    compile workerd/workerd-main.o "$(function_ begin train)"
    compile workerd/job/loop.o "$(function_ train product)"
    compile workerd/job/callback.o "$(function_ tell write)"
    compile workerd/job/callbacks/csv.o "$(function_ write)"
    compile workerd/nn/cpu/dense.o "$(function_ product)"
    compile workerd/strategy/psd_home.o "$(function_ pull barrier)"
    compile workerd/strategy/psd_job.o "$(function_ barrier)"
    compile tools/psctl/status.o "$(function_ show parse)"
    compile tools/psctl/call.o "$(function_ parse)"
}
layers() { env -u top_srcdir "$here/layers.sh" "$build"; }
layers_with() { # NAME POINT OBJECT SOURCE
    begin layered
    compile "$3" "$4"
    rejects "layers: $1" "$2:" layers
}

begin layered
accepts "layers: calls that point down" layers
layers_with "store calls rpc" psd psd/store/bad.o "$(function_ bad serve)"
layers_with "the members' state calls the clock" psd/control psd/control/state.o "$(function_ recount step)"
layers_with "what all methods call calls one" psd/service psd/service/request.o "$(function_ park read_values)"
layers_with "wire calls rpc" common common/wire/bad.o "$(function_ bad dial)"
layers_with "base calls the queue" libclient libclient/base.o "$(function_ base add)"
layers_with "a file without a place" libclient libclient/new.o "$(function_ new add)"
layers_with "nn calls the loop" workerd workerd/nn/bad.o "$(function_ bad train)"
layers_with "a callback calls what calls callbacks" workerd/job workerd/job/callbacks/csv.o "$(function_ write tell)"
layers_with "a job calls its home" workerd/strategy workerd/strategy/psd_job.o "$(function_ barrier pull)"
layers_with "what commands share calls one" tools/psctl tools/psctl/call.o "$(function_ parse show)"
for dir in psd/control psd/service common libclient workerd/strategy tools/psctl; do
    begin layered
    rm -r "${build:?}/$dir"
    rejects "layers: no object of $dir" "$dir:" layers
done

# ---- link.sh ------------------------------------------------------------------------------------------------------

archive() { # ROOM SOURCE
    compile "psd/$1.o" "$2"
    mkdir -p "$build/.libs" && ${AR:-ar} rcs "$build/.libs/libpsd$1.a" "$build/psd/$1.o"
}
make_linked() {
    archive call "$(function_ call)"
    archive store "$(function_ store)"
    archive numbers "$(function_ numbers)"
    archive job "$(function_ job store)"
    archive sync "$(function_ sync job)"
    archive control "$(function_ control sync)"
    archive queue "$(function_ queue)"
    archive service "$(function_ service control)"
    compile common/error.o "$(function_ fail)"
    ${AR:-ar} rcs "$build/.libs/libcommon.a" "$build/common/error.o"
}
link_rooms() { "$here/link.sh" "$build"; }

begin linked
accepts "link: rooms that link from the bottom up" link_rooms
begin linked
compile psd/bad.o "$(function_ bad control)"
${AR:-ar} rcs "$build/.libs/libpsdjob.a" "$build/psd/bad.o"
rejects "link: job calls control" job: link_rooms
begin linked
rm "$build/.libs/libpsdservice.a"
rejects "link: a room without a library" service: link_rooms

# ---- headers.sh ---------------------------------------------------------------------------------------------------

built_with() { # HEADER ...: what make knows of an object whose source includes one.h, which includes two.h
    rm -rf "$build"
    mkdir -p "$build/workerd"
    echo '#include "workerd/one.h"' >"$build/workerd/kernel.cu"
    printf '#ifndef ONE_H\n#include "workerd/two.h"\n#endif\n' >"$build/workerd/one.h"
    touch "$build/workerd/two.h" "$build/workerd/kernel.watched.o"
    echo "workerd/kernel.watched.o: $*" >"$build/Makefile"
}
headers() { top_srcdir=$build "$here/headers.sh" "$build"; }

built_with workerd/one.h ../workerd/two.h
accepts "headers: an object that is made again when either changes" headers
built_with workerd/one.h
rejects "headers: one that the header of a header leaves as it is" headers: headers

echo "1..$point"
exit $failed
