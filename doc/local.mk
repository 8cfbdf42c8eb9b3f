# The pictures of README.md. They lie in the tree, since to make them takes more than a build does: make pictures writes
# them anew, with the programs of this build. It needs graphviz, python3 and Chromium.
PICTURES = doc/system.svg doc/top.svg doc/page-desktop.png doc/page-phone.png
EXTRA_DIST += doc/system.dot doc/system.css doc/page.py doc/terminal.py doc/training.py $(PICTURES)

NEATO = neato
# doc/system.css goes into the picture, before what it colours.
pictures: psd/psd workerd/workerd tools/psctl/psctl
	$(NEATO) -Tsvg $(srcdir)/doc/system.dot | $(AWK) -v css=$(srcdir)/doc/system.css '/<g id="graph0"/ { \
		print "<style>"; while ((getline line < css) > 0) print line; print "</style>" } { print }' >system.svg.tmp
	mv system.svg.tmp $(srcdir)/doc/system.svg
	$(PYTHON3) $(srcdir)/doc/terminal.py . $(srcdir)/doc/top.svg
	$(PYTHON3) $(srcdir)/doc/page.py . $(srcdir)/doc
.PHONY: pictures
