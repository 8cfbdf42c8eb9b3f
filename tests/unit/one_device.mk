check_PROGRAMS += tests/unit/test_one_device
TESTS += tests/unit/test_one_device
tests_unit_test_one_device_SOURCES = tests/unit/test_one_device.c workerd/strategy/checkpoint.c $(workerd_one_device)
tests_unit_test_one_device_LDADD = libwkweights.la libnnreplica.la libjob.la libcommon.la $(JANSSON_LIBS) $(CMOCKA_LIBS)
tests_unit_test_one_device_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=ps_try_alloc_array
