# The model: Keras JSON, shapes, initial values, the replica. Operators come from libnn.
noinst_LTLIBRARIES += libnnmodel.la
nn_model_sources = \
	workerd/nn/init.c \
	workerd/nn/json.c workerd/nn/json.h \
	workerd/nn/keras.c \
	workerd/nn/layer.h \
	workerd/nn/model.c workerd/nn/model.h \
	workerd/nn/op.h \
	workerd/nn/replica.c \
	workerd/nn/setting.c workerd/nn/setting.h
libnnmodel_la_SOURCES = $(nn_model_sources)
libnnmodel_la_LIBADD = libcommon.la $(JANSSON_LIBS) -lm
