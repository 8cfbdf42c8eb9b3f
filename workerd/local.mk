# workerd
include workerd/nn/local.mk
include workerd/nn/model.mk
