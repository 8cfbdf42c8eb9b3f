# workerd
include workerd/nn/model.mk
include workerd/data/local.mk
