check_PROGRAMS += tests/unit/test_http
TESTS += tests/unit/test_http
tests_unit_test_http_SOURCES = tests/unit/test_http.c \
	psd/http/history.c psd/http/history.h \
	psd/http/status.c psd/http/status.h psd/http/view.c psd/http/view.h
tests_unit_test_http_LDADD = libpssummary.la libpshttp.la libpsrpc.la libcommon.la libproto.la $(CMOCKA_LIBS) -lm
