# Packages: `make bundle`, `make deb`, `make srpm`. What they make lies in the top of the build tree.

# ---- a tar.xz that runs where nothing can be installed ----------------------------------------------------------------

EXTRA_DIST += deploy/packages/bundle/build.sh deploy/packages/bundle/README.md
EXTRA_PROGRAMS += deploy/packages/bundle/launcher
deploy_packages_bundle_launcher_SOURCES = deploy/packages/bundle/launcher.c
deploy_packages_bundle_launcher_CFLAGS = $(PS_CFLAGS)
deploy_packages_bundle_launcher_LDFLAGS = -all-static
bundle_tarball = $(PACKAGE)-$(VERSION)-linux-$(host_cpu).tar.xz
CLEANFILES += deploy/packages/bundle/launcher $(PACKAGE)-*-linux-*.tar.xz

bundle: all deploy/packages/bundle/launcher
	@MAKE='$(MAKE)' top_srcdir='$(top_srcdir)' prefix='$(prefix)' sysconfdir='$(sysconfdir)' unitdir='$(systemdsystemunitdir)' \
	    $(top_srcdir)/deploy/packages/bundle/build.sh $(bundle_tarball)
.PHONY: bundle

# ---- Debian packages --------------------------------------------------------------------------------------------------

# Built from the dist tarball, as anybody would: nothing of this build tree gets into them. The tests run apart.
debian_version = $(VERSION)-1
debian_files = \
	deploy/packages/debian/changelog.in deploy/packages/debian/control deploy/packages/debian/copyright \
	deploy/packages/debian/libpsclient-dev.install deploy/packages/debian/libpsclient0.install \
	deploy/packages/debian/paramserver.docs \
	deploy/packages/debian/paramserver.install deploy/packages/debian/paramserver.lintian-overrides \
	deploy/packages/debian/libpsclient-dev.manpages \
	deploy/packages/debian/paramserver.manpages deploy/packages/debian/paramserver.postrm \
	deploy/packages/debian/paramserver.prerm deploy/packages/debian/rules deploy/packages/debian/source/format
EXTRA_DIST += $(debian_files)
CLEANFILES += *.deb

deb: dist
	rm -rf deb && $(MKDIR_P) deb
	cp $(distdir).tar.xz deb/$(PACKAGE)_$(VERSION).orig.tar.xz
	tar -C deb -xf $(distdir).tar.xz
	cp -R deb/$(distdir)/deploy/packages/debian deb/$(distdir)/debian
	$(SED) -e 's,[@]DEBIAN_VERSION@,$(debian_version),' -e "s|[@]DATE@|$$(date -R -u -d "@$${SOURCE_DATE_EPOCH:-$$(date +%s)}")|" \
	    deb/$(distdir)/debian/changelog.in >deb/$(distdir)/debian/changelog
	rm deb/$(distdir)/debian/changelog.in && chmod +x deb/$(distdir)/debian/rules
	cd deb/$(distdir) && unset MAKEFLAGS MFLAGS MAKELEVEL && \
	    DEB_BUILD_OPTIONS="$${DEB_BUILD_OPTIONS-nocheck parallel=$$(nproc)}" dpkg-buildpackage -us -uc
	cp $$(ls deb/*.deb | grep -v dbgsym) .
.PHONY: deb
clean-local: clean-packages
clean-packages:
	rm -rf deb rpm
.PHONY: clean-packages

# ---- RPM packages -----------------------------------------------------------------------------------------------------

EXTRA_DIST += deploy/packages/paramserver.spec.in deploy/packages/rpmlint.toml
CLEANFILES += deploy/packages/paramserver.spec *.src.rpm
deploy/packages/paramserver.spec: deploy/packages/paramserver.spec.in Makefile
	$(AM_V_GEN)$(MKDIR_P) deploy/packages && $(SED) -e 's,[@]VERSION@,$(VERSION),' $(top_srcdir)/deploy/packages/paramserver.spec.in >$@
srpm: dist deploy/packages/paramserver.spec
	rpmbuild -bs --define "_topdir $(abs_builddir)/rpm" --define "_sourcedir $(abs_builddir)" \
	    --define "_srcrpmdir $(abs_builddir)" deploy/packages/paramserver.spec
.PHONY: srpm

# ---- a container ------------------------------------------------------------------------------------------------------

EXTRA_DIST += deploy/packages/Containerfile
