# The examples are installed as they lie here, folder by folder, but for what their data.py have made.
EXTRA_DIST += deploy/examples
examplesdir = $(pkgdatadir)/examples

# From Keras and back.
kerasdir = $(pkgdatadir)/keras
dist_keras_SCRIPTS = deploy/keras/export.py deploy/keras/import.py
dist_keras_DATA = deploy/keras/paramserver_keras.py

# For Slurm. The module file says where all is installed.
slurmdir = $(pkgdatadir)/slurm
dist_slurm_SCRIPTS = deploy/slurm/paramserver.sbatch
dist_slurm_DATA = deploy/slurm/README.md
EXTRA_DIST += deploy/slurm/paramserver.modulefile

# For Kubernetes: file by file, since certificates may lie among them.
kubernetesdir = $(pkgdatadir)/kubernetes
dist_kubernetes_DATA = deploy/kubernetes/README.md deploy/kubernetes/files.yaml deploy/kubernetes/kustomization.yaml
kubernetesbasedir = $(kubernetesdir)/base
dist_kubernetesbase_DATA = deploy/kubernetes/base/cluster.yaml deploy/kubernetes/base/job.yaml \
	deploy/kubernetes/base/kustomization.yaml deploy/kubernetes/base/model.json deploy/kubernetes/base/psd.yaml \
	deploy/kubernetes/base/shared.yaml deploy/kubernetes/base/worker.yaml
kubernetesgpudir = $(kubernetesdir)/overlays/gpu
dist_kubernetesgpu_DATA = deploy/kubernetes/overlays/gpu/kustomization.yaml

# For Prometheus, and a dashboard for Grafana.
prometheusdir = $(pkgdatadir)/prometheus
dist_prometheus_DATA = deploy/prometheus/prometheus.yml deploy/prometheus/rules.yml deploy/prometheus/dashboard.json

install-data-local: install-examples install-modulefile
# Without the lines of folders that the system looks through anyway: they would go before those of other modules.
install-modulefile:
	$(MKDIR_P) "$(DESTDIR)$(slurmdir)"
	sed -e 's|[@]bindir@|$(bindir)|; s|[@]mandir@|$(mandir)|; s|[@]libdir@|$(libdir)|; s|[@]VERSION@|$(VERSION)|' \
	    -e '\,^prepend-path [A-Z_]* /usr/\(bin\|share/man\)$$,d' \
	    -e '\,^prepend-path [A-Z_]* /usr/lib\(32\|64\)\{0\,1\}\(/[^/]*-linux-gnu[^/]*\)\{0\,1\}\(/pkgconfig\)\{0\,1\}$$,d' \
	    $(top_srcdir)/deploy/slurm/paramserver.modulefile >"$(DESTDIR)$(slurmdir)/paramserver.modulefile"

install-examples:
	@(cd $(top_srcdir)/deploy/examples && find . -type f ! -name '*.npz' ! -path './*/cifar/*') | while read -r file; do \
	    $(MKDIR_P) "$(DESTDIR)$(examplesdir)/$${file%/*}" && \
	    $(INSTALL_DATA) "$(top_srcdir)/deploy/examples/$$file" "$(DESTDIR)$(examplesdir)/$$file" || exit 1; \
	done

uninstall-local: uninstall-examples uninstall-modulefile
uninstall-modulefile:
	rm -f "$(DESTDIR)$(slurmdir)/paramserver.modulefile"
uninstall-examples:
	rm -rf "$(DESTDIR)$(examplesdir)"
.PHONY: install-examples install-modulefile uninstall-examples uninstall-modulefile

# Services: units for systemd, and what they read. A file in the system's folder that somebody has changed stays.
systemdsystemunitdir = @systemdsystemunitdir@
sysusersdir = $(prefix)/lib/sysusers.d
systemd_generated = deploy/systemd/psd@.service deploy/systemd/workerd@.service
dist_systemdsystemunit_DATA = deploy/systemd/paramserver.target deploy/systemd/paramserver-ps.target
nodist_systemdsystemunit_DATA = $(systemd_generated)
systemd_settings = deploy/systemd/cluster.yaml deploy/systemd/psd.conf deploy/systemd/workerd.conf
EXTRA_DIST += deploy/systemd/psd@.service.in deploy/systemd/workerd@.service.in \
	deploy/systemd/paramserver.sysusers $(systemd_settings)
CLEANFILES += $(systemd_generated)

$(systemd_generated): Makefile
	$(AM_V_GEN)$(MKDIR_P) deploy/systemd && $(SED) -e 's,[@]bindir[@],$(bindir),g' -e 's,[@]sysconfdir[@],$(sysconfdir),g' \
	    $(srcdir)/$@.in >$@
deploy/systemd/psd@.service: deploy/systemd/psd@.service.in
deploy/systemd/workerd@.service: deploy/systemd/workerd@.service.in

install-data-local: install-settings
install-settings:
	@$(MKDIR_P) "$(DESTDIR)$(sysconfdir)/paramserver" "$(DESTDIR)$(sysusersdir)"
	@$(INSTALL_DATA) $(srcdir)/deploy/systemd/paramserver.sysusers "$(DESTDIR)$(sysusersdir)/paramserver.conf"
	@for file in $(systemd_settings); do \
	    to="$(DESTDIR)$(sysconfdir)/paramserver/$${file##*/}"; \
	    [ -e "$$to" ] || $(INSTALL_DATA) "$(srcdir)/$$file" "$$to" || exit 1; \
	done
uninstall-local: uninstall-settings
uninstall-settings:
	rm -f "$(DESTDIR)$(sysusersdir)/paramserver.conf"
	@for file in $(systemd_settings); do \
	    to="$(DESTDIR)$(sysconfdir)/paramserver/$${file##*/}"; \
	    ! cmp -s "$(srcdir)/$$file" "$$to" || rm -f "$$to"; \
	done
	@at="$(DESTDIR)$(sysconfdir)/paramserver"; [ ! -d "$$at" ] || rmdir "$$at" 2>/dev/null || \
	    echo "$$at is left: settings that were changed, and what was put there, as tls with its keys"
.PHONY: install-settings uninstall-settings

include deploy/packages/local.mk
