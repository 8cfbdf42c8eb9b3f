#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs what `make install` leaves, with the libraries that it needs, into a tar.xz that runs anywhere: README.md beside
# this file says what is where. `make bundle` runs it in the build tree:
#
#   build.sh TARBALL      TARBALL: paramserver-VERSION-linux-ARCHITECTURE.tar.xz
#
# In the environment: MAKE; top_srcdir; prefix, sysconfdir, unitdir, as configured.
set -eu -o pipefail

tarball=$1
name=${tarball##*/}
name=${name%.tar.xz}
work=$(mktemp -d "${TMPDIR:-/tmp}/ps-bundle.XXXXXX")
trap 'rm -rf "$work"' EXIT
stage=$work/stage root=$work/$name
programs="psd workerd psctl psbench"
here=deploy/packages/bundle

fail() {
    echo "bundle: $*" >&2
    exit 1
}

check_tools() {
    local tool
    for tool in patchelf ldd tar xz; do
        command -v "$tool" >/dev/null || fail "expected $tool, which is not installed"
    done
}

# ---- what is installed ------------------------------------------------------------------------------------------------

install_stage() {
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "$MAKE" -s install-strip DESTDIR="$stage" >"$work/install.log" 2>&1 || {
        tail -n 20 "$work/install.log" >&2
        fail "make install failed"
    }
    mkdir -p "$root"
    cp -a "$stage$prefix/." "$root"
    [[ -x $root/bin/psd && -d $root/lib ]] || fail "expected bin and lib below $prefix: configure without --bindir, --libdir"
    find "$root" -name '*.la' -delete
}

lay_programs() {
    local program
    mkdir "$root/libexec"
    for program in $programs; do
        mv "$root/bin/$program" "$root/libexec/$program"
        install -m 755 -s "$here/launcher" "$root/bin/$program"
    done
}

# What names the prefix names the bundle instead: pkg-config knows the place of its file, the others expect /opt.
lay_settings() {
    local to=$root/share/paramserver/systemd
    mkdir -p "$to"
    cp "$stage$unitdir"/* "$stage$sysconfdir"/paramserver/* "$to"
    cp "$root/lib/sysusers.d/paramserver.conf" "$to/paramserver.sysusers"
    rm -rf "$root/lib/systemd" "$root/lib/sysusers.d" "${root:?}/etc"
    sed -i -e "s,$sysconfdir/paramserver,/etc/paramserver,g" -e "s,=$prefix/bin,=/opt/paramserver/bin," "$to"/*.service
    sed -i -e '/LD_LIBRARY_PATH/d' -e "s,$prefix/,/opt/paramserver/," "$root/share/paramserver/slurm/paramserver.modulefile"
    # shellcheck disable=SC2016
    sed -i -e 's,^prefix=.*,prefix=${pcfiledir}/../..,' -e 's,^libdir=.*,libdir=${prefix}/lib,' \
        -e 's,^includedir=.*,includedir=${prefix}/include,' "$root/lib/pkgconfig/psclient.pc"
}

# ---- the libraries ----------------------------------------------------------------------------------------------------

# glibc's own are apart from the others: a program that is run by the host's loader must not find them.
is_glibc() {
    [[ $1 =~ ^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|nss_[a-z]+))\.so\.[0-9]+$ ]]
}

# The paths of all that is needed, the loader included. CUDA's libraries come with the host's CUDA.
needed_libraries() {
    local found
    found=$(LD_LIBRARY_PATH=$root/lib ldd "$root"/libexec/* "$root"/lib/libpsclient.so)
    ! grep 'not found' <<<"$found" >&2 || fail "a library is missing"
    sed -nE 's,^\s+(\S+ => )?(/\S+) \(0x[0-9a-f]+\)$,\2,p' <<<"$found" | grep -v "^$root/" | sort -u
}

carry_libraries() {
    local path
    mkdir -p "$root/lib/glibc"
    needed_libraries >"$work/needed"
    while read -r path; do
        if is_glibc "${path##*/}"; then
            install -m 755 "$path" "$root/lib/glibc/${path##*/}"
        else
            install -m 644 "$path" "$root/lib/${path##*/}"
        fi
    done <"$work/needed"
}

# A link for each program, by whose name its processes are known.
link_loader() {
    local program loader
    loader=$(patchelf --print-interpreter "$root/libexec/psd")
    loader=${loader##*/}
    [[ -x $root/lib/glibc/$loader ]] || fail "expected the loader $loader among $(tr '\n' ' ' <"$work/needed")"
    mkdir "$root/lib/loader"
    for program in $programs; do ln -s "../glibc/$loader" "$root/lib/loader/$program"; done
}

# For those who run a program without its launcher, or link one of their own with libpsclient.
set_rpaths() {
    local file
    for file in "$root"/libexec/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done
    find "$root/lib" -maxdepth 1 -type f -name '*.so*' | while read -r file; do patchelf --set-rpath '$ORIGIN' "$file"; done
}

# Lines of PATH PACKAGE, as dpkg knows them; it is asked once, for it reads all its lists each time.
library_owners() {
    command -v dpkg-query >/dev/null || return 0
    { cat "$work/needed"; xargs realpath <"$work/needed"; } | sort -u | { xargs dpkg-query -S 2>/dev/null || true; } |
        sed -nE 's,^([a-z0-9.+-]+)(:[a-z0-9]+)?: (/.*)$,\3 \1,p'
}

# Which package each library is of, and that package's licence, where dpkg knows.
describe_libraries() {
    local to=$root/share/doc/paramserver path package real
    local -A owner
    mkdir -p "$to/licenses"
    cp "$top_srcdir/LICENSE" "$to/licenses/paramserver"
    cp "$top_srcdir/$here/README.md" "$root/README.md"
    mkdir -p "$to/doc"
    cp "$top_srcdir/README.md" "$to/README.md"
    cp "$top_srcdir"/doc/*.svg "$top_srcdir"/doc/*.png "$to/doc"
    while read -r path package; do owner[$path]=$package; done < <(library_owners)
    while read -r path; do
        real=$(realpath "$path")
        package=${owner[$real]:-${owner[$path]:-}}
        echo "${path##*/} $package"
        [[ -z $package ]] || cp "/usr/share/doc/$package/copyright" "$to/licenses/$package"
    done <"$work/needed" >"$to/libraries.txt"
    ((${#owner[@]} == 0)) || printf '%s\n' "${owner[@]}" | sort -u |
        xargs dpkg-query -W -f '${Package} ${Version}, source ${source:Package} ${source:Version}\n' | sort -u >"$to/packages.txt"
}

# ---- the archive ------------------------------------------------------------------------------------------------------

# The same files make the same archive.
pack() {
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" \
        --mode=go=rX,u+rw -cf - "$name" | xz -T0 >"$tarball.part"
    mv "$tarball.part" "$tarball"
}

check_tools
install_stage
lay_programs
lay_settings
carry_libraries
link_loader
set_rpaths
describe_libraries
pack
echo "$tarball"
