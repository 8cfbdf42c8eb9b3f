# tests
include tests/unit/wire.mk
