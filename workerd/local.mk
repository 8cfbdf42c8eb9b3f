# workerd
include workerd/data/local.mk
