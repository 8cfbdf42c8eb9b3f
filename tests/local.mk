# tests
include tests/unit/placement.mk
include tests/unit/rule.mk
include tests/unit/job.mk
