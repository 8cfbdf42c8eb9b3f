#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed units: what systemd says of them; and in a container that boots a real systemd (where this is root and
# systemd-nspawn is there) a training whose daemons are killed, and healed by systemd and by the training itself.
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
ok "make install into the container" install_into "$host"
chroot "$host" ldconfig
at=${settings#"$root"} # where the settings are
cat >"$host$at/cluster.yaml" <<Y
ps: ["localhost:7070", "localhost:7071"]
worker: [localhost, localhost]
Y
mkdir -p "$host/srv"
cp -r "$examples/softmax" "$host/srv/softmax"
cat >"$host$at/workerd.conf" <<Y
JOB=/srv/softmax/sync.yaml
WORKERD_OPTIONS=--quiet --set data.train_examples=12800 --set data.test_examples=64 --set epochs=100 --set delay_ms=1 --set strategy.min_workers=2 --set "callbacks=[{name: backup, path: backups, every_steps: 20}]" --set output=weights.safetensors
Y
rm -f "$host/etc/machine-id"
ln -sf /dev/null "$host/etc/systemd/system/systemd-networkd-wait-online.service" # there is no network to wait for
SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn -q -b -D "$host" --register=no --keep-unit --link-journal=no --console=pipe \
    --private-network --machine="psit$$" systemd.mask=getty.target </dev/null >"$scratch/boot.log" 2>&1 &
nspawn=$!
inside() { nsenter -t "$leader" -a "$@"; }
booted() { leader=$(pgrep -P "$nspawn" | head -n 1) && [ -n "$leader" ] && inside systemctl is-active -q basic.target 2>/dev/null; }
ok "systemd boots" eventually booted
ok "it makes the user" inside systemd-sysusers
inside ip link set lo up 2>/dev/null
ok "a host's ps tasks and workers are enabled" inside systemctl enable paramserver.target psd@0 psd@1 workerd@0 workerd@1
ok "and started" inside systemctl start paramserver.target
weights=/var/lib/paramserver/weights.safetensors
backups() { [ -n "$(find "$host/var/lib/paramserver/backups" -name '*.safetensors' 2>/dev/null)" ]; }
ok "they train" eventually backups
journal() { inside journalctl --no-pager -q -u "$1"; }
says() { journal "$1" | tee "$scratch/journal" | grep -q "$2" || { tail -n 20 "$scratch/journal"; false; }; }
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
joined() { inside "$(chroot "$host" sh -c 'command -v psctl || echo /usr/local/bin/psctl')" --cluster "$at/cluster.yaml" workers softmax 2>/dev/null | grep -c " live " | grep -qx 2; }
ok "with both workers" eventually joined
ctl() { inside /usr/local/bin/psctl --cluster "$at/cluster.yaml" "$@"; }
ok "psctl stop ends the job" ctl stop softmax
failed() { [ "$(inside systemctl show -P ActiveState "$1")" = failed ] && [ "$(inside systemctl show -P ExecMainStatus "$1")" = 79 ]; }
ok "and nobody begins it anew" eventually failed workerd@0
ok "on any host" eventually failed workerd@1

# ---- jobs that are submitted ------------------------------------------------------------------------------------------

echo "WORKERD_OPTIONS=--quiet" >"$host$at/workerd.conf"
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
again() { [ "$(inside systemctl show -P MainPID workerd@1)" != "$killed" ] && [ "$(journal workerd@1 | grep -c "trains job 2")" = 2 ]; }
ok "and takes the job up again" eventually again
ok "all of it is stopped" inside systemctl stop paramserver.target
for unit in workerd@0 workerd@1 psd@0 psd@1; do ok "$unit is down" eventually down "$unit"; done
ok "and started" inside systemctl start paramserver.target
runs() { ctl queue longer | grep -q running; }
ok "the job runs still" eventually runs
ok "it ends" ctl logs -f longer
ok "well" eval 'ctl --json queue longer | tee "$scratch/queued" | grep -q "\"state\": \"done\"" && grep -q "\"exit_code\": 0" "$scratch/queued"'
ok "with its weights" test -s "$host/var/lib/paramserver/longer.safetensors"
