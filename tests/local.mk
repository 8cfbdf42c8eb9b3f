# tests
include tests/unit/data.mk
