# The model: Keras JSON, shapes, initial values; and the replica that runs it, which needs libnn besides.
noinst_LTLIBRARIES += libnnmodel.la libnnreplica.la
nn_model_sources = \
	workerd/nn/init.c \
	workerd/nn/json.c workerd/nn/json.h \
	workerd/nn/keras.c \
	workerd/nn/layer.h \
	workerd/nn/model.c workerd/nn/model.h \
	workerd/nn/op.h \
	workerd/nn/setting.c workerd/nn/setting.h
libnnmodel_la_SOURCES = $(nn_model_sources)
libnnmodel_la_LIBADD = libcommon.la $(JANSSON_LIBS) -lm

libnnreplica_la_SOURCES = \
	workerd/nn/emit.c workerd/nn/emit.h \
	workerd/nn/replica.c
libnnreplica_la_LIBADD = libnnmodel.la libnn.la
