# The house's own rules, and the proof that each of them rejects what it should.
LINT_TESTS = tests/lint/lint.sh tests/lint/symbols.sh tests/lint/layers.sh tests/lint/link.sh tests/lint/headers.sh
PLAIN_TESTS += $(LINT_TESTS) tests/lint/self-test.sh
EXTRA_DIST += $(LINT_TESTS) tests/lint/self-test.sh

lint: all
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) rc=0; \
	for t in $(LINT_TESTS); do $(top_srcdir)/$$t || rc=1; done; exit $$rc
.PHONY: lint
