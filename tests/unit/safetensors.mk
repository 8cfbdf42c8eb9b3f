check_PROGRAMS += test_safetensors
TESTS += test_safetensors
test_safetensors_SOURCES = tests/unit/test_safetensors.c
test_safetensors_CPPFLAGS = $(AM_CPPFLAGS) $(CMOCKA_CFLAGS)
test_safetensors_LDADD = libcommon.la $(CMOCKA_LIBS)
