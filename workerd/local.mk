# workerd
include workerd/nn/model.mk
