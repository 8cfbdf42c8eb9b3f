# workerd
include workerd/nn/local.mk
