# tests
include tests/unit/wire.mk
include tests/unit/rpc.mk
