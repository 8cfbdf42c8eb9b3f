# The examples are installed as they lie here, folder by folder.
EXTRA_DIST += deploy/examples
examplesdir = $(pkgdatadir)/examples

install-data-local: install-examples
install-examples:
	@(cd $(top_srcdir)/deploy/examples && find . -type f) | while read -r file; do \
	    $(MKDIR_P) "$(DESTDIR)$(examplesdir)/$${file%/*}" && \
	    $(INSTALL_DATA) "$(top_srcdir)/deploy/examples/$$file" "$(DESTDIR)$(examplesdir)/$$file" || exit 1; \
	done

uninstall-local: uninstall-examples
uninstall-examples:
	rm -rf "$(DESTDIR)$(examplesdir)"
.PHONY: install-examples uninstall-examples
