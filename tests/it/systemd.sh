#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed units: what systemd says of them; and in a container that boots a real systemd (where this is root and
# systemd-nspawn is there) the installed package: what it listens on, and trainings whose daemons are killed, and healed
# by systemd and by the training itself. MNIST is in $PS_MNIST, or in shared/data/mnist beside the sources; else digits
# are drawn.
. "$top_srcdir/tests/it/lib.sh"
command -v systemd-analyze >/dev/null || { echo "1..0 # SKIP there is no systemd-analyze"; trap - EXIT; rm -rf "$scratch"; exit 0; }
root=$scratch/root
install_into() { env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$top_builddir" install DESTDIR="$1"; }
ok "make install" install_into "$root"
units=$(dirname "$(find "$root" -name 'psd@.service' | head -n 1)")
for unit in psd@.service workerd@.service paramserver.target paramserver-ps.target; do ok "$unit is installed" test -s "$units/$unit"; done
ok "the group and user are described" test -n "$(find "$root" -path '*/sysusers.d/paramserver.conf')"
settings=$(dirname "$(find "$root" -path '*/paramserver/cluster.yaml' | grep etc)")

# systemd looks whether the programs are there: in the root.
staged() { sed -E "s,^ExecStart=,ExecStart=$root," "$units/$1" >"$scratch/$1"; }
verifies() { systemd-analyze --man=no --recursive-errors=no verify "$@" 2>&1 | grep -v "^$" | tee "$scratch/verified"; [ ! -s "$scratch/verified" ]; }
staged psd@.service && staged workerd@.service
ok "systemd finds nothing wrong with the units" verifies "$scratch/psd@.service" "$scratch/workerd@.service" "$units/paramserver.target" "$units/paramserver-ps.target"
after_munge() { [ "$(grep -l '^After=.* munge.service' "$units/psd@.service" "$units/workerd@.service" | wc -l)" = 2 ]; }
ok "both start after munged, where there is one" after_munge
after_mounts() { [ "$(grep -l '^After=.* remote-fs.target' "$units/psd@.service" "$units/workerd@.service" | wc -l)" = 2 ]; }
ok "and after what is mounted from other hosts, where checkpoints go" after_mounts
finds_gpus() {
    grep -x 'LimitMEMLOCK=infinity' "$units/workerd@.service" && grep -x 'ExecStartPre=-+/usr/bin/nvidia-modprobe -c0 -u' "$units/workerd@.service" &&
        grep -x 'ExecStartPre=-+/usr/bin/nvidia-smi -L' "$units/workerd@.service" &&
        grep '^After=.* nvidia-persistenced.service nvidia-fabricmanager.service' "$units/workerd@.service"
}
ok "a worker's GPUs are ready when it starts, and NCCL may register memory" finds_gpus
ok "a job of the queue that takes all memory does not end the worker that waits" grep -qx OOMPolicy=continue "$units/workerd@.service"
mkdir "$scratch/path" && printf '#!/bin/sh\necho "sleeps $1"\n' >"$scratch/path/sleep" && chmod +x "$scratch/path/sleep"
after() { # STATUS: what psd's unit does once psd has ended with it
    local command
    command=$(sed -n "s,^ExecStopPost=/bin/sh -c '\(.*\)'\$,\1,p" "$units/psd@.service" | sed 's/\$\$/$/g')
    [ -n "$command" ] && EXIT_STATUS=$1 PATH=$scratch/path /bin/sh -c "$command"
}
waits_where_it_cannot_listen() { [ "$(after 69)" = "sleeps 2" ] && killed=$(after KILL) && [ -z "$killed" ] && stopped=$(after 0) && [ -z "$stopped" ]; }
ok "a psd that cannot listen is started again every two seconds, one that was killed at once" waits_where_it_cannot_listen
seconds() { sed -nE "s/^ *$1 ?= ?([0-9]+).*/\1/p" "$2"; } # KEY FILE
outlives() { echo "$(seconds TimeoutStopSec "$units/workerd@.service") > $(seconds KILL_AFTER_S "$top_srcdir/workerd/agent/agent.c")" | tee "$scratch/outlives" && (($(cat "$scratch/outlives"))); }
ok "a job of the queue has all of its time to keep its weights when systemd stops the worker that waits" outlives
exposure() { systemd-analyze --no-pager security --offline=true --threshold="$1" "$units/$2"; } # TENTHS UNIT
ok "psd is exposed below 2.0" exposure 20 psd@.service
ok "workerd below 4.0" exposure 40 workerd@.service

echo "ps: []" >"$settings/cluster.yaml"
ok "make install again" install_into "$root"
ok "leaves settings as somebody has made them" grep -qx "ps: \[\]" "$settings/cluster.yaml"

# ---- a real boot ----------------------------------------------------------------------------------------------------

if [ "$(id -u)" != 0 ] || ! command -v systemd-nspawn >/dev/null; then
    echo "# no boot: it needs root and systemd-nspawn"
    exit
fi
mkdir "$scratch/upper" "$scratch/work" "$scratch/host"
if ! mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/host" 2>/dev/null; then
    # The scratch folder is on an overlay itself: in memory.
    mount -t tmpfs tmpfs "$scratch/work" && mkdir "$scratch/work/upper" "$scratch/work/work" &&
        mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/work/upper,workdir=$scratch/work/work" "$scratch/host" || {
        umount "$scratch/work" 2>/dev/null
        echo "# no boot: there is no overlay of /"
        exit
    }
fi
host=$scratch/host
power_off() {
    [ -z "${leader:-}" ] || kill -s RTMIN+4 "$leader" 2>/dev/null # poweroff.target
    [ -z "${nspawn:-}" ] || timeout 30 tail --pid "$nspawn" -f /dev/null
    [ -z "${nspawn:-}" ] || kill -KILL "$nspawn" 2>/dev/null
    umount "$host" "$scratch/work" 2>/dev/null
    finish
}
trap power_off EXIT
# The Debian packages, but of what this build has compiled, which debian/rules would compile again. packages.sh builds
# them in full.
packs() {
    local to=$scratch/packages/paramserver
    mkdir -p "$to" && cp -r "$top_srcdir/deploy/packages/debian" "$top_srcdir/README.md" "$to" || return 1
    sed -e "s,@DEBIAN_VERSION@,$(sed -n 's/^VERSION = //p' "$top_builddir/Makefile")-1," -e "s|@DATE@|$(date -R)|" "$to/debian/changelog.in" >"$to/debian/changelog"
    rm "$to/debian/changelog.in"
    cat >>"$to/debian/rules" <<'MAKE'

override_dh_auto_configure override_dh_auto_build override_dh_auto_test:
	@:
override_dh_auto_install:
	$(MAKE) -C "$(top_builddir)" install DESTDIR="$(CURDIR)/debian/tmp" prefix=/usr sysconfdir=/etc mandir=/usr/share/man \
	    libdir=/usr/lib/$(shell dpkg-architecture -qDEB_HOST_MULTIARCH) systemdsystemunitdir=/lib/systemd/system
	rm -rf debian/tmp/usr/lib/*/paramserver
	for unit in psd@.service workerd@.service; do \
	    sed -e 's,@bindir@,/usr/bin,g' -e 's,@sysconfdir@,/etc,g' "$(top_srcdir)/deploy/systemd/$$unit.in" \
	        >debian/tmp/lib/systemd/system/$$unit || exit 1; done
override_dh_builddeb:
	dh_builddeb -- -Znone
MAKE
    chmod +x "$to/debian/rules"
    (cd "$to" && env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL DEB_BUILD_OPTIONS="nostrip noautodbgsym" debian/rules binary)
}
installs() {
    cp "$scratch"/packages/*.deb "$host/srv" && chroot "$host" sh -c 'dpkg --purge paramserver libpsclient-dev libpsclient0; dpkg -i /srv/*.deb'
}
mkdir -p "$host/srv"
rm -f "$host/var/lib/man-db/auto-update" # else all manual pages are indexed
if command -v dh >/dev/null && command -v dpkg >/dev/null; then
    ok "the packages are made" packs
    ok "and installed in the container" installs
    ok "with a user of their own" chroot "$host" getent passwd paramserver
    bin=/usr/bin at=/etc/paramserver share=/usr/share/paramserver
else
    echo "# no packages: there is no debhelper"
    ok "make install into the container" install_into "$host"
    ok "it makes the user" chroot "$host" sh -c 'ldconfig && systemd-sysusers'
    at=${settings#"$root"} # where the settings are
    bin=$(find "$root" -path '*/bin/psctl') && bin=${bin#"$root"} && bin=${bin%/psctl} share=${bin%/bin}/share/paramserver
fi
rm -f "$host/etc/machine-id"
ln -sf /dev/null "$host/etc/systemd/system/systemd-networkd-wait-online.service" # there is no network to wait for
# Not this machine's own services.
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn -q -b -D "$host" --register=no --keep-unit --link-journal=no --console=pipe \
    --private-network --machine="psit$$" systemd.mask=getty.target systemd.unit=basic.target </dev/null >"$scratch/boot.log" 2>&1 &
nspawn=$!
inside() { nsenter -t "$leader" -a "$@"; }
booted() { leader=$(pgrep -P "$nspawn" | head -n 1) && [ -n "$leader" ] && inside systemctl is-active -q basic.target 2>/dev/null; }
ok "systemd boots" eventually booted
ok "and finds nothing wrong with the installed units" inside systemd-analyze --man=no --recursive-errors=no verify psd@0.service workerd@0.service paramserver.target
exposed() { inside systemd-analyze --no-pager security --threshold="$1" "$2"; } # TENTHS UNIT
ok "psd@0 is exposed below 2.0" exposed 20 psd@0
ok "workerd@0 below 4.0" exposed 40 workerd@0
ctl() { inside "$bin/psctl" --cluster "$at/cluster.yaml" "$@"; }
since= # what the journal tells
journal() { inside journalctl --no-pager -q -u "$1" ${since:+--since "$since"}; } # UNIT
says() { journal "$1" | tee "$scratch/journal" | grep -q "$2" || { tail -n 20 "$scratch/journal"; false; }; }

# ---- what README.md shows -----------------------------------------------------------------------------------------------

# Where psctl of this build looks for the settings, which the packages have in /etc.
built_for=$(sed -n 's/^sysconfdir = //p' "$top_builddir/Makefile" | sed "s,\${prefix},$(sed -n 's/^prefix = //p' "$top_builddir/Makefile"),")
[ -e "$host$built_for/paramserver" ] || { mkdir -p "$host$built_for" && ln -s "$at" "$host$built_for/paramserver"; }

cat >"$scratch/run" <<RUN
#!/bin/bash
cp "$scratch"/*.yaml "$host/root" 2>/dev/null
exec nsenter -t "$leader" -a bash -c "PATH=$bin:\$PATH; cd /root; \$(sed 's,/usr/share/paramserver,$share,g; s,/etc/paramserver,$at,g' <<<"\$2")"
RUN
chmod +x "$scratch/run"
inside ip link set lo up 2>/dev/null
inside hostname node1
inside ip address add 192.0.2.1/24 dev lo
echo "192.0.2.1 node1 node2" >>"$host/etc/hosts" # the host is both
cp "$host$at/cluster.yaml" "$scratch/installed"
replays() (cd "$scratch" && timeout 300 "$PYTHON3" "$top_srcdir/tests/it/replay.py" "$top_srcdir/README.md" "As services" "$scratch/run")
if [ "$PYTHON3" = no ]; then
    skip "what README.md shows" "there is no Python"
else
    ok "what README.md shows" replays
fi
inside systemctl disable --quiet --now psd@0 workerd@0 workerd@1 2>/dev/null
cp "$scratch/installed" "$host$at/cluster.yaml"
rm -rf "$host$at/tls" "$scratch/cluster.yaml"

# ---- as it is installed: who can reach it -------------------------------------------------------------------------------

inside ip link set lo up 2>/dev/null
outward=(192.0.2.1) # addresses of this host that are no loopback's
inside ip address add 2001:db8::1/64 dev lo nodad 2>/dev/null && outward+=(2001:db8::1)
# scan ADDRESS FIRST LAST: the ports that take connections, twice: one that the kernel happens to give to this end, too,
# takes its own.
scan() {
    nsenter -t "$leader" -n "$PYTHON3" - "$@" <<'PY'
import socket, sys
def takes(port):
    with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as s:
        return s.connect_ex((sys.argv[1], port)) == 0
for port in range(int(sys.argv[2]), int(sys.argv[3]) + 1):
    if takes(port) and takes(port):
        print(port)
PY
}
ours() { pgrep --ns "$leader" --nslist pid -f "^$bin/(psd|workerd) "; }
for port in $(awk '$4 == "0A" { sub(/.*:/, "", $2); print $2 }' "/proc/$leader/net"/tcp*); do echo $((16#$port)); done >"$scratch/others"
ok "a ps task and a worker are started as they are installed" inside systemctl start psd@0 workerd@0
ok "a job is submitted" ctl submit --set epochs=100000 --set delay_ms=10 --set output=/var/lib/paramserver/first.safetensors "$share/examples/softmax/async.yaml"
joined() { ctl workers "$1" 2>/dev/null | grep -c " live " | grep -qx "$2"; } # JOB WORKERS
ok "and trained" eventually joined softmax 1
listen_on_loopback_alone() {
    local pid
    [ "$(ours | wc -l)" -ge 3 ] || return 1 # psd, and the worker that waits and the one that trains
    for pid in $(ours); do loopback_alone "$pid" || { tr '\0' ' ' <"/proc/$pid/cmdline"; return 1; }; done | tee "$scratch/listening"
    [ "${PIPESTATUS[0]}" = 0 ] && grep -q ":$(printf %04X 7070)$" "$scratch/listening"
}
ok "they listen on loopback addresses alone" listen_on_loopback_alone
finds_psd() { scan 127.0.0.1 7000 7100 | grep -x 7070; }
finds_nothing() { scan "$1" 1 65535 >"$scratch/open" && ! grep -vxF -f "$scratch/others" "$scratch/open"; }
if [ "$PYTHON3" = no ]; then
    echo "# no scan of the ports: there is no Python"
else
    ok "a scan of the ports finds psd there" finds_psd
    for address in "${outward[@]}"; do ok "and nothing on $address" finds_nothing "$address"; done
fi
ok "the job is cancelled" ctl cancel softmax
ok "and ends" eventually eval '! joined softmax 1'
ok "the two are stopped" inside systemctl stop psd@0 workerd@0

# ---- a job in the settings ----------------------------------------------------------------------------------------------

cat >"$host$at/cluster.yaml" <<Y
ps: ["localhost:7070", "localhost:7071"]
worker: [localhost, localhost]
Y
cp -r "$examples/softmax" "$host/srv/softmax"
cat >"$host$at/workerd.conf" <<Y
JOB=/srv/softmax/sync.yaml
WORKERD_OPTIONS=--quiet --set data.train_examples=12800 --set data.test_examples=64 --set epochs=100 --set delay_ms=1 --set strategy.min_workers=2 --set "callbacks=[{name: backup, path: backups, every_steps: 20}]" --set output=weights.safetensors
Y
ok "a host's ps tasks and workers are enabled" inside systemctl enable paramserver.target psd@0 psd@1 workerd@0 workerd@1
ok "and started" inside systemctl start paramserver.target
weights=/var/lib/paramserver/weights.safetensors
backups() { [ -n "$(find "$host/var/lib/paramserver/backups" -name '*.safetensors' 2>/dev/null)" ]; }
ok "they train" eventually backups
for unit in psd@1 psd@0 workerd@1 workerd@0; do
    killed=$(inside systemctl show -P MainPID "$unit")
    ok "$unit is killed" inside kill -KILL "$killed"
    again() { [ "$(inside systemctl show -P ActiveState "$unit")" = active ] && [ "$(inside systemctl show -P MainPID "$unit")" != "$killed" ]; }
    ok "systemd starts it again" eventually again
    [ "$unit" != psd@1 ] || ok "the journal tells who began anew" eventually says workerd@0 "begins anew from the newest backup"
done
ok "the training ends" eventually test -s "$host$weights"
ended() { ! inside systemctl is-active -q workerd@0 && [ "$(inside systemctl show -P Result workerd@0)" = success ]; }
ok "well" eventually ended
ok "the journal tells who came back" says psd@0 "worker 1 joined"
warnings() { inside journalctl --no-pager -q -p warning -u 'workerd@*' -u 'psd@*' | tee "$scratch/journal" | grep -Eq '(psd|workerd)\['; }
ok "it knows a warning, and by what it knows it is not shown" eval 'warnings && ! grep -q "<[0-9]>" "$scratch/journal" && ! grep -q "joined as" "$scratch/journal"'
ok "psd is watched" test "$(inside systemctl show -P WatchdogUSec psd@0)" = 30s
hung=$(inside systemctl show -P MainPID psd@1)
ok "a psd that stands still" inside kill -STOP "$hung"
restarted() { [ "$(inside systemctl show -P NRestarts psd@1)" -ge 2 ]; }
ok "is started again" eventually restarted

# ---- ends that somebody asks for --------------------------------------------------------------------------------------

sed -i 's/epochs=100/epochs=10000/' "$host$at/workerd.conf"
ok "the next training" inside systemctl start workerd@0 workerd@1
ok "makes backups" eventually backups
ok "all of it is stopped" inside systemctl stop paramserver.target
down() { [ "$(inside systemctl show -P ActiveState "$1")" = inactive ]; }
for unit in workerd@0 workerd@1 psd@0 psd@1; do ok "$unit is down" eventually down "$unit"; done
ok "the workers before what they need: the weights are kept" says workerd@0 "the weights are in"
ok "and there is a backup" backups
ok "all of it is started" inside systemctl start paramserver.target
ok "it goes on from there" eventually says workerd@0 "goes on from backups/"
ok "with both workers" eventually joined softmax 2
ok "psctl stop ends the job" ctl stop softmax
failed() { [ "$(inside systemctl show -P ActiveState "$1")" = failed ] && [ "$(inside systemctl show -P ExecMainStatus "$1")" = 79 ]; }
ok "and nobody begins it anew" eventually failed workerd@0
ok "on any host" eventually failed workerd@1

# ---- jobs that are submitted ------------------------------------------------------------------------------------------

: >"$host$at/workerd.conf"
inside systemctl reset-failed workerd@0 workerd@1
ok "workers without a job are started" inside systemctl start workerd@0 workerd@1
ok "and wait for one" eventually says workerd@1 "waits for a job: no job is queued"
short=(--set data.train_examples=1280 --set data.test_examples=64 --set epochs=2)
ok "psctl submit trains a job" ctl submit --wait "${short[@]}" --set name=short --set output=/var/lib/paramserver/short.safetensors /srv/softmax/async.yaml
ok "its weights are there" test -s "$host/var/lib/paramserver/short.safetensors"
rm -rf "$host/var/lib/paramserver/backups"
ok "a longer one" ctl submit --set name=longer --set data.train_examples=12800 --set data.test_examples=64 --set epochs=30 --set delay_ms=1 \
    --set strategy.min_workers=2 --set "callbacks=[{name: backup, path: /var/lib/paramserver/backups, every_steps: 20}]" \
    --set output=/var/lib/paramserver/longer.safetensors /srv/softmax/sync.yaml
ok "makes backups" eventually backups
killed=$(inside systemctl show -P MainPID workerd@1)
ok "a worker is killed" inside kill -KILL "$killed"
again() { [ "$(inside systemctl show -P MainPID workerd@1)" != "$killed" ] && [ "$(journal workerd@1 | grep -c "trains job .* 'longer'")" = 2 ]; }
ok "and takes the job up again" eventually again
ok "all of it is stopped" inside systemctl stop paramserver.target
for unit in workerd@0 workerd@1 psd@0 psd@1; do ok "$unit is down" eventually down "$unit"; done
ok "and started" inside systemctl start paramserver.target
runs() { ctl queue longer | grep -q running; }
ok "the job runs still" eventually runs
ok "it ends" ctl logs -f longer
ok "well" eval 'ctl --json queue longer | tee "$scratch/queued" | grep -q "\"state\": \"done\"" && grep -q "\"exit_code\": 0" "$scratch/queued"'
ok "with its weights" test -s "$host/var/lib/paramserver/longer.safetensors"

# ---- MNIST's network, and each daemon killed ----------------------------------------------------------------------------

lib=/var/lib/paramserver
mnist=${PS_MNIST:-$top_srcdir/../shared/data/mnist}
if [ -n "$(find "$mnist" -name 'train-images*' 2>/dev/null)" ]; then
    mkdir "$host/srv/mnist" && cp "$mnist"/*ubyte* "$host/srv/mnist" && chmod -R a+rX "$host/srv/mnist"
    data=(--set data.kind=idx --set data.path=/srv/mnist)
else
    echo "# the digits are drawn: \$PS_MNIST names no folder with MNIST's files"
    data=(--set data.train_examples=60000)
fi
network() { # NAME
    ctl submit --set name="$1" "${data[@]}" --set epochs=2 --set strategy.min_workers=2 --set output=$lib/"$1".safetensors \
        --set "callbacks=[{name: csv_log, path: $lib/$1.csv}, {name: backup, path: $lib/$1.backups, every_steps: 50, sharded: true}]" \
        "$share/examples/mnist-cnn/sync.yaml"
}
ok "MNIST's network is submitted" network calm
ok "and trained undisturbed" ctl logs -f calm
since=@$(date +%s)
ok "it is submitted again" network healed
newest() { find "$host$lib/healed.backups" -name '*.safetensors' 2>/dev/null | sed -E 's/.*-0*([0-9]+)\.safetensors/\1/' | sort -n | tail -n 1 | grep . || echo 0; }
has_got_to() { [ "$(newest)" -ge "$1" ]; } # STEP, of 938
written_by_each() { for task in 0 1; do [ -n "$(find "$host$lib/checkpoints/healed" -name "*-ps-$task-of-2.safetensors" 2>/dev/null)" ] || return 1; done; }
ok "each ps task writes its part of a backup" eventually written_by_each
# None of them so late in the first epoch, of 469 steps, that its end may have been shown without a backup of it.
for kill in psd@1:50 workerd@1:200 psd@0:350 workerd@0:550; do
    unit=${kill%:*} step=${kill#*:}
    ok "it gets to step $step" eventually has_got_to "$step"
    killed=$(inside systemctl show -P MainPID "$unit")
    ok "$unit is killed" inside kill -KILL "$killed"
    again() { [ "$(inside systemctl show -P ActiveState "$unit")" = active ] && [ "$(inside systemctl show -P MainPID "$unit")" != "$killed" ]; }
    ok "systemd starts it again" eventually again
    ok "the journal tells how it ended" eventually says "$unit" "Main process exited, code=killed, status=9/KILL"
    ok "and that it is back" eventually says "$unit" "Started $unit.service"
done
ok "the training ends well" ctl logs -f healed
# In the epoch of a death what a backup does not have of the training's figures is missing. Those of the test split are whole.
curve_is_joined() {
    cat "$host$lib/healed.csv"
    awk -F, 'NR > 1 { bad = bad || $1 != NR - 2 || NR > 2 && $3 >= loss; loss = $3 } END { exit bad || NR != 3 }' "$host$lib/healed.csv"
}
ok "each epoch is once in its log, and the loss falls" curve_is_joined
curve_is_the_same() { diff <(cut -d, -f1,4,5 "$host$lib/calm.csv") <(cut -d, -f1,4,5 "$host$lib/healed.csv"); }
ok "as it did when nobody disturbed it" curve_is_the_same
ok "to the same weights" cmp "$host$lib/calm.safetensors" "$host$lib/healed.safetensors"
ok "which have learned" at_least "$(tail -n 1 "$host$lib/healed.csv" | cut -d, -f4)" 0.98
shown_once() { ctl logs healed | grep -o "val_loss: .*" | tee "$scratch/shown"; [ "$(wc -l <"$scratch/shown")" = 2 ]; }
ok "psctl logs shows each epoch once" shown_once
ok "no part of a backup is left" test -z "$(find "$host$lib/checkpoints" -name '*.safetensors*')"
ok "the journal tells that a ps task loaded its part" says psd@1 "job 'healed': goes on from healed-backup-"
ok "the journal tells what psd's death was to the workers" says "workerd@*" "ps task 1 has restarted and lost what it had of job 'healed'.*; begins anew from the newest backup"
ok "where they went on" says "workerd@*" "goes on from .*/healed-backup-"
for rank in 0 1; do
    ok "that worker $rank was dead" says psd@0 "job 'healed': worker $rank .*is dead"
    ok "and came back" says psd@0 "job 'healed': worker $rank joined"
done
