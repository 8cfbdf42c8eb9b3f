#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The packages: each installed file is in one of them; the bundle runs wherever it lies; and at full length, where
# PS_PACKAGES_LONG=1 asks for it, the Debian packages are built, installed, upgraded and purged in an overlay of this
# machine, and the source RPM is built. PS_PACKAGES_ROOTS names roots of other distributions, in which the bundle is
# tried as well.
. "$top_srcdir/tests/it/lib.sh" || exit 1
unset PSD
root=$scratch/root
packages=$top_srcdir/deploy/packages

has() { command -v "$1" >/dev/null; }
make_here() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -C "$top_builddir" "$@"; }
of_make() { sed -n "s/^$1 = //p" "$top_builddir/Makefile" | head -n 1; } # VARIABLE, as it stands

# ---- the lists of files -----------------------------------------------------------------------------------------------

ok "make install" make_here install DESTDIR="$root"
prefix=$(of_make prefix)

# What is installed, as with --prefix=/usr. The packages are built without CUDA, and libtool's descriptions stay out.
installed_files() {
    (cd "$root" && find . ! -type d) | sed -e "s,^\.$prefix/,usr/," -e 's,^\./,,' -e 's,^usr/etc/,etc/,' \
        -e 's,^usr/lib/systemd/,lib/systemd/,' -e 's,^usr/lib/\(libpsclient\|pkgconfig\),usr/lib/multiarch/\1,' |
        grep -v -e '\.la$' -e '/paramserver/cuda.so$' | sort
}
debian_patterns() {
    cat "$packages"/debian/*.install "$packages"/debian/*.manpages | sed 's,^debian/tmp/,,'
}
spec_patterns() {
    sed -n '/^%files/,/^%changelog/p' "$packages/paramserver.spec.in" | sed -E -e 's/^%config\(noreplace\) //' \
        -e 's,^%\{_bindir\},usr/bin,; s,^%\{_mandir\},usr/share/man,; s,^%\{_datadir\},usr/share,; s,^%\{_unitdir\},lib/systemd/system,' \
        -e 's,^%\{_sysusersdir\},usr/lib/sysusers.d,; s,^%\{_sysconfdir\},etc,; s,^%\{_includedir\},usr/include,' \
        -e 's,^%\{_libdir\},usr/lib/*,' | grep -E '^(usr|lib|etc)/'
}
# covers PATTERNS: each installed file matches one of them, and each of them an installed file.
covers() {
    local file pattern hit missing=0 patterns=()
    local -A used=()
    mapfile -t patterns < <("$1")
    while read -r file; do
        hit=0
        for pattern in "${patterns[@]}"; do
            # shellcheck disable=SC2053
            [[ $file == $pattern || $file == $pattern/* ]] && hit=$((hit + 1)) used[$pattern]=1
        done
        [ $hit = 1 ] || { echo "$file is in $hit packages: expected 1"; missing=1; }
    done < <(installed_files)
    for pattern in "${patterns[@]}"; do
        [ -n "${used[$pattern]-}" ] || { echo "$pattern matches no installed file"; missing=1; }
    done
    [ $missing = 0 ]
}
ok "each installed file is in one Debian package" covers debian_patterns
ok "each installed file is in one RPM" covers spec_patterns
no_placeholder() { ! grep -rnE '@[A-Za-z_]+@' "$root" --include='*.service' --include='*.pc' --include='*.modulefile'; }
ok "no placeholder is left in what is installed" no_placeholder

# modulefile_of DIRECTORY=VALUE ...: the lines that change the environment, for these directories.
modulefile_of() { make_here install-modulefile DESTDIR="$scratch/module" slurmdir=/slurm "$@" && grep -v '^#' "$scratch/module/slurm/paramserver.modulefile"; }
keeps_out() { # of what the system looks through anyway
    local multiarch
    for multiarch in /lib /lib64 /lib/x86_64-linux-gnu; do
        ! modulefile_of bindir=/usr/bin mandir=/usr/share/man libdir=/usr$multiarch | grep prepend-path || return 1
    done
    modulefile_of bindir=/opt/ps/bin mandir=/opt/ps/share/man libdir=/opt/ps/lib | tee "$scratch/module/lines"
    [ "$(grep -c '^prepend-path [A-Z_]* /opt/ps/' "$scratch/module/lines")" = 4 ]
}
ok "the modulefile of a build for /usr puts no folder of the system first" keeps_out

# ---- the bundle -------------------------------------------------------------------------------------------------------

bundle_name=$(of_make PACKAGE)-$(of_make VERSION)-linux-$(of_make host_cpu)
builds_bundle() { XZ_OPT=-0 make_here bundle bundle_tarball="$scratch/$bundle_name.tar.xz"; }
unpack_into() { mkdir -p "$1" && tar -C "$1" -xf "$scratch/$bundle_name.tar.xz"; }
alone() { env -i PATH=/usr/bin:/bin HOME="$scratch" TMPDIR="$scratch" LD_LIBRARY_PATH= "$@"; }
has_files() { # FILE ...: below the bundle
    local file
    for file; do [ -e "$bundle/$file" ] || { echo "$file is missing"; return 1; }; done
}
versions() { # BIN
    local program
    for program in psd workerd psctl psbench; do alone "$1/$program" --version | grep -q "^$program " || return 1; done
}
own_libraries() {
    local program
    for program in psd workerd psctl psbench; do
        alone "$bundle/lib/loader/$program" --library-path "$bundle/lib/glibc:$bundle/lib" --list "$bundle/libexec/$program" >"$scratch/list" || return 1
        sed -n 's,.* => \(/.*\) (0x[0-9a-f]*)$,\1,p' "$scratch/list" | grep -v "^$bundle/" && { echo "are the host's, for $program"; return 1; }
    done
    grep -q "=> $bundle/lib/libgrpc" "$scratch/list"
}
trains_in() { # FOLDER: with its own psd and workerd, which psctl has to find
    alone timeout 600 "$1/bin/psctl" run --ps 1 --workers 1 "$1/share/paramserver/examples/softmax/async.yaml" "${quick[@]}" \
        --set output="$scratch/bundle.safetensors" && [ -s "$scratch/bundle.safetensors" ]
}
queues_in() { # FOLDER
    alone "$1/bin/psctl" slurm --dry-run "$1/share/paramserver/examples/softmax/async.yaml" | grep -F " $1/share/paramserver/slurm/paramserver.sbatch "
}
# The cluster of the host's services is where the bundle's units have it: in a namespace of its own /etc is ours.
finds_settings() { # PSCTL
    mkdir -p "$scratch/etc/paramserver" && echo 'ps: ["127.0.0.1:1", "127.0.0.1:2"]' >"$scratch/etc/paramserver/cluster.yaml" || return 1
    # shellcheck disable=SC2016
    unshare --mount sh -c 'mount --bind "$1" /etc && exec env -i "$2" --timeout 1 status' - "$scratch/etc" "$1" >"$scratch/settings"
    cat "$scratch/settings"
    grep "0 of 2 ps tasks" "$scratch/settings"
}
same_name() { # what ps shows of a process
    mkfifo "$scratch/named.ready"
    (exec env -i "$bundle/bin/psd" --listen "unix:$scratch/named" --ready-fd 3 3>"$scratch/named.ready") &
    local pid=$! ready
    read -r ready <"$scratch/named.ready"
    [ "$(cat "/proc/$pid/comm")" = psd ]
    local rc=$?
    kill "$pid" && wait "$pid"
    return $rc
}
# Its programs start themselves once more: a worker for a job of the queue, psctl for the parts of a report.
trains_queued() {
    local pids=() at="unix:$scratch/waits" rc
    mkfifo "$scratch/waits.ready"
    (exec env -i "$bundle/bin/psd" --listen "$at" --queue "$scratch/waits.queue" --ready-fd 3 3>"$scratch/waits.ready") &
    pids+=($!)
    read -r _ <"$scratch/waits.ready"
    (exec env -i "$bundle/bin/workerd" --ps "$at") &
    pids+=($!)
    alone timeout 600 "$bundle/bin/psctl" --ps "$at" submit --workers 1 --wait "$bundle/share/paramserver/examples/softmax/async.yaml" \
        "${quick[@]}" --set output="$scratch/queued.safetensors" && [ -s "$scratch/queued.safetensors" ] &&
        alone "$bundle/bin/psctl" --ps "$at" doctor --report "$scratch/report.md" && grep -A4 '^## psctl jobs' "$scratch/report.md" | grep async
    rc=$?
    kill "${pids[@]}" && wait "${pids[@]}"
    return $rc
}
builds_with_bundle() {
    local flags
    flags=$(PKG_CONFIG_PATH=$bundle/lib/pkgconfig pkg-config --cflags --libs psclient) || return 1
    # shellcheck disable=SC2086
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -o "$scratch/custom-loop" "$examples/custom-loop/main.c" $flags \
        "-Wl,-rpath,$bundle/lib" -lm && ldd "$scratch/custom-loop" | grep "libgrpc.*$bundle/lib/"
}
# In a namespace of its own, so that nothing stays mounted.
trains_in_root() { # ROOT
    # shellcheck disable=SC2016
    unshare --mount bash -eu -c 'mount --bind /proc "$1/proc" && mount --bind "$2" "$1/mnt" && mount -t tmpfs tmpfs "$1/tmp" &&
        exec chroot "$1" env -i PATH=/usr/bin:/bin /mnt/bin/psctl run --ps 1 --workers 1 \
            /mnt/share/paramserver/examples/softmax/async.yaml "${@:3}" --set output=/tmp/w.safetensors' - "$1" "$bundle" "${quick[@]}"
}
check_bundle() {
    ok "the bundle is built" builds_bundle
    ok "and unpacked" unpack_into "$scratch/one folder"
    bundle="$scratch/one folder/$bundle_name"
    ok "it has its files" has_files README.md bin/psd bin/workerd bin/psctl bin/psbench include/psclient.h lib/libpsclient.so.0 \
        share/man/man1/psctl.1 share/man/man8/psd.8 share/man/man3/psclient.3 share/paramserver/proto/paramserver.proto \
        share/paramserver/examples/mnist-cnn/async.yaml share/paramserver/systemd/psd@.service share/paramserver/systemd/cluster.yaml \
        share/paramserver/slurm/paramserver.sbatch share/doc/paramserver/libraries.txt share/doc/paramserver/licenses/paramserver \
        share/doc/paramserver/README.md share/doc/paramserver/doc/system.svg
    ok "it says whose its libraries are" grep '^libc\.so\.6 ' "$bundle/share/doc/paramserver/libraries.txt"
    ok "its units expect it in /opt" grep -q '^ExecStart=/opt/paramserver/bin/psd --cluster /etc/paramserver/cluster.yaml' \
        "$bundle/share/paramserver/systemd/psd@.service"
    ok "its programs run" versions "$bundle/bin"
    ok "with its libraries alone" own_libraries
    ok "under their own names" same_name
    ok "psctl finds psd and workerd in it, and trains" trains_in "$bundle"
    ok "a worker that waits in it trains a job of the queue" trains_queued
    mv "$bundle" "$scratch/moved"
    bundle=$scratch/moved
    ok "moved elsewhere it trains as well" trains_in "$bundle"
    ok "and finds its script for Slurm" queues_in "$bundle"
    if unshare --mount true; then
        ok "psctl finds the settings where its units have them" finds_settings "$bundle/bin/psctl"
    else
        skip "psctl finds the settings where its units have them" "only root may mount"
    fi
    mkdir "$scratch/links"
    ln -s "$bundle"/bin/* "$scratch/links"
    ok "its programs run through links" versions "$scratch/links"
    ok "a program builds with its library" builds_with_bundle
    local other
    for other in ${PS_PACKAGES_ROOTS-}; do ok "it trains in $other" trains_in_root "$other"; done
}
if ! has patchelf; then
    skip "the bundle" "there is no patchelf"
else
    check_bundle
fi

# ---- the spec ---------------------------------------------------------------------------------------------------------

rpmlint_is_clean() { # FILE
    rpmlint -c "$packages/rpmlint.toml" "$1" | tee "$scratch/rpmlint"
    grep -q ' 0 errors, 0 warnings' "$scratch/rpmlint"
}
ok "the spec is made" make_here deploy/packages/paramserver.spec
if has rpmlint; then
    ok "rpmlint finds nothing wrong with it" rpmlint_is_clean "$top_builddir/deploy/packages/paramserver.spec"
else
    skip "rpmlint" "it is not installed"
fi
parses() { rpmspec --parse "$top_builddir/deploy/packages/paramserver.spec" >"$scratch/parsed" && ! grep -n '^%[a-z]*_' "$scratch/parsed"; }
if has rpmspec && rpm --eval '%{?_unitdir}' | grep -q .; then ok "rpmspec parses it" parses; else skip "rpmspec" "it, or its macros for systemd, are not installed"; fi

# ---- at full length: what is built from the tarball -------------------------------------------------------------------

if [ -z "${PS_PACKAGES_LONG-}" ]; then
    skip "the Debian packages and the source RPM" "PS_PACKAGES_LONG=1 builds them, which takes minutes"
    exit
fi

builds_srpm() { make_here srpm && [ -s "$top_builddir/$(of_make PACKAGE)-$(of_make VERSION)-1.src.rpm" ]; }
if has rpmbuild; then ok "the source RPM is built" builds_srpm; else skip "the source RPM" "there is no rpmbuild"; fi

if ! has dpkg-buildpackage || ! has dh; then
    skip "the Debian packages" "there is no debhelper"
    exit
fi
version=$(of_make VERSION)-1
debs() { # NAME ...: their files
    local name
    for name; do echo "$top_builddir/${name}_${version}_$(dpkg --print-architecture).deb"; done
}
ok "the Debian packages are built" make_here deb
for name in paramserver libpsclient0 libpsclient-dev; do ok "$name is there" test -s "$(debs $name)"; done
lintian_is_clean() { lintian --allow-root --fail-on error,warning --tag-display-limit 0 --suppress-tags "$lintian_suppressed" "$top_builddir"/deb/*.changes; }
# There is no ITP bug, no debian.org archive; no address of people either.
lintian_suppressed=initial-upload-closes-no-bugs,bogus-mail-host,bogus-mail-host-in-debian-changelog,mail-address-loops-or-bounces
if has lintian; then ok "lintian finds nothing wrong with them" lintian_is_clean; else skip "lintian" "it is not installed"; fi

# ---- installed, upgraded, purged: in an overlay of this machine, which keeps what it has -------------------------------

if [ "$(id -u)" != 0 ]; then
    skip "the installation" "only root may mount an overlay"
    exit
fi
mkdir "$scratch/memory" "$scratch/host"
if ! { mount -t tmpfs tmpfs "$scratch/memory" && mkdir "$scratch/memory/upper" "$scratch/memory/work" &&
    mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/memory/upper,workdir=$scratch/memory/work" "$scratch/host"; }; then
    umount "$scratch/memory" 2>/dev/null
    skip "the installation" "there is no overlay of /"
    exit
fi
host=$scratch/host
pids_inside() { # the daemons that run in the overlay
    local pid
    for pid in $(pgrep -x 'psd|workerd'); do [ "$(readlink "/proc/$pid/root")" != "$host" ] || echo "$pid"; done
}
unmount() {
    local pid
    for pid in $(pids_inside); do kill -KILL "$pid" && tail --pid "$pid" -f /dev/null; done
    umount "$host/proc" "$host" "$scratch/memory" 2>/dev/null
    finish
}
trap unmount EXIT
mount --bind /proc "$host/proc"
rm -f "$host/var/lib/man-db/auto-update" # else each step indexes all manual pages
mkdir -p "$host/packages"
inside() { chroot "$host" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive HOME=/root "$@"; }
installs() { cp "$@" "$host/packages" && inside sh -c 'cd /packages && dpkg --force-confold -i "$@"' - "${@##*/}"; }
# All files but dpkg's, and those of other folders that any installation touches.
snapshot() {
    inside find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /run -o -path /work -o -path /packages \
        -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \) -prune -o -print | sort
}

inside dpkg --purge paramserver libpsclient-dev libpsclient0 >/dev/null 2>&1
snapshot >"$scratch/before"
mapfile -t all < <(debs libpsclient0 libpsclient-dev paramserver)
ok "they are installed" installs "${all[@]}"
listed() { inside dpkg -L paramserver libpsclient0 libpsclient-dev | grep -qx "$1"; }
for file in /usr/bin/psd /usr/bin/workerd /usr/bin/psctl /usr/bin/psbench /lib/systemd/system/psd@.service /lib/systemd/system/workerd@.service \
    /usr/lib/sysusers.d/paramserver.conf /etc/paramserver/cluster.yaml /usr/share/paramserver/proto/paramserver.proto \
    /usr/share/paramserver/examples/mnist-cnn/async.yaml /usr/share/man/man8/psd.8.gz /usr/include/psclient.h; do
    ok "$file is in one" listed "$file"
done
ok "the system user is made" inside getent passwd paramserver
not_enabled() { ! find "$host/etc/systemd" -name '*paramserver*' -o -name 'psd@*' -o -name 'workerd@*' | grep .; }
ok "no unit is enabled" not_enabled
nothing_started() { ! pids_inside | grep .; }
ok "nothing is started" nothing_started
ok "the units are without fault" inside systemd-analyze --man=no --recursive-errors=no verify /lib/systemd/system/psd@.service
installed_trains() {
    inside psctl run --ps 1 --workers 1 /usr/share/paramserver/examples/softmax/async.yaml "${quick[@]}" --set output=/root/w.safetensors &&
        rm "$host/root/w.safetensors"
}
ok "the installed psctl trains" installed_trains
builds_installed() { inside sh -c 'cc -o /root/loop /usr/share/paramserver/examples/custom-loop/main.c $(pkg-config --cflags --libs psclient) -lm && rm /root/loop'; }
ok "a program builds with the installed library" builds_installed

# The same with a higher version.
next_version() {
    dpkg-deb -R "$(debs "$1")" "$scratch/next" && sed -i -e "s/$version/$version+next/" "$scratch/next/DEBIAN/control" &&
        dpkg-deb -b "$scratch/next" "$scratch/$1-next.deb" && rm -rf "$scratch/next"
}
upgrades() {
    local name
    for name in libpsclient0 libpsclient-dev paramserver; do next_version $name || return 1; done
    installs "$scratch"/{libpsclient0,libpsclient-dev,paramserver}-next.deb && inside dpkg-query -W paramserver | grep -q "$version+next"
}
echo "ps: [\"localhost:7070\"]" >"$host/etc/paramserver/cluster.yaml"
ok "they are upgraded" upgrades
ok "and keep the settings of this host" grep -qx 'ps: \["localhost:7070"\]' "$host/etc/paramserver/cluster.yaml"
ok "no unit is enabled by that" not_enabled

ok "they are removed" inside dpkg --remove paramserver libpsclient-dev libpsclient0
ok "the settings stay" test -s "$host/etc/paramserver/cluster.yaml"
ok "they are purged" inside dpkg --purge paramserver libpsclient-dev libpsclient0
leaves_nothing() { snapshot | diff "$scratch/before" - | grep -vE '^[0-9,]+[acd][0-9,]+$' | grep -v '^. /etc/\(passwd\|group\|shadow\|gshadow\)-\?$'; [ "${PIPESTATUS[3]}" = 1 ]; }
ok "and leave nothing behind" leaves_nothing
ok "but the system user" inside getent passwd paramserver
