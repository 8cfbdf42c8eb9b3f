# The examples are installed as they lie here, folder by folder, but for what their data.py have made.
EXTRA_DIST += deploy/examples
examplesdir = $(pkgdatadir)/examples

# From Keras and back.
kerasdir = $(pkgdatadir)/keras
dist_keras_SCRIPTS = deploy/keras/export.py deploy/keras/import.py
dist_keras_DATA = deploy/keras/paramserver_keras.py

install-data-local: install-examples
install-examples:
	@(cd $(top_srcdir)/deploy/examples && find . -type f ! -name '*.npz' ! -path './*/cifar/*') | while read -r file; do \
	    $(MKDIR_P) "$(DESTDIR)$(examplesdir)/$${file%/*}" && \
	    $(INSTALL_DATA) "$(top_srcdir)/deploy/examples/$$file" "$(DESTDIR)$(examplesdir)/$$file" || exit 1; \
	done

uninstall-local: uninstall-examples
uninstall-examples:
	rm -rf "$(DESTDIR)$(examplesdir)"
.PHONY: install-examples uninstall-examples
