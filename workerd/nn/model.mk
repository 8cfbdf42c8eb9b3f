# The model: Keras JSON, shapes, initial values, and its operators on a tape; and the replica that runs it, which needs
# libnn besides.
noinst_LTLIBRARIES += libnnmodel.la libnnreplica.la
libnnmodel_la_SOURCES = \
	workerd/nn/build.c \
	workerd/nn/emit.c workerd/nn/emit.h \
	workerd/nn/emit_calls.c \
	workerd/nn/emit_loss.c \
	workerd/nn/emit_penalty.c \
	workerd/nn/emit_step.c \
	workerd/nn/function.c \
	workerd/nn/graph.h \
	workerd/nn/init.c workerd/nn/init.h \
	workerd/nn/json.c workerd/nn/json.h \
	workerd/nn/keras.c workerd/nn/keras.h \
	workerd/nn/keras_layer.c \
	workerd/nn/keras_model.c \
	workerd/nn/keys.c \
	workerd/nn/layer.h \
	workerd/nn/layers/activations.c \
	workerd/nn/layers/categories.h workerd/nn/layers/category_encoding.c \
	workerd/nn/layers/concatenate.c \
	workerd/nn/layers/conv2d.c \
	workerd/nn/layers/conv2d_transpose.c \
	workerd/nn/layers/dense.c \
	workerd/nn/layers/depthwise_conv2d.c \
	workerd/nn/layers/discretization.c \
	workerd/nn/layers/dot.c \
	workerd/nn/layers/dropout.c \
	workerd/nn/layers/activity_regularization.c \
	workerd/nn/layers/embedding.c \
	workerd/nn/layers/lookup.c \
	workerd/nn/layers/masking.c \
	workerd/nn/layers/multi_head_attention.c \
	workerd/nn/layers/wrappers.c \
	workerd/nn/layers/rnn.c workerd/nn/layers/rnn.h \
	workerd/nn/layers/batch_normalization.c \
	workerd/nn/layers/flatten.c \
	workerd/nn/layers/group_normalization.c \
	workerd/nn/layers/layer_normalization.c \
	workerd/nn/layers/normalization.c workerd/nn/layers/normalization.h \
	workerd/nn/layers/images.c workerd/nn/layers/images.h \
	workerd/nn/layers/input_layer.c \
	workerd/nn/layers/margins.c \
	workerd/nn/layers/pooling2d.c \
	workerd/nn/layers/merge.c \
	workerd/nn/layers/prelu.c \
	workerd/nn/layers/random_crop.c \
	workerd/nn/layers/random_flip.c \
	workerd/nn/layers/rescaling.c \
	workerd/nn/layers/reshape.c \
	workerd/nn/layers/separable_conv2d.c \
	workerd/nn/layers/table.c \
	workerd/nn/layers/unit_normalization.c \
	workerd/nn/layers/upsampling2d.c \
	workerd/nn/load.c \
	workerd/nn/metric.c workerd/nn/metric.h \
	workerd/nn/model.c workerd/nn/model.h \
	workerd/nn/saved.c \
	workerd/nn/regularizer.c workerd/nn/regularizer.h \
	workerd/nn/setting.c workerd/nn/setting.h
libnnmodel_la_LIBADD = libnnops.la libloss.la libpszip.la libcommon.la $(JANSSON_LIBS) -lm

libnnreplica_la_SOURCES = \
	workerd/nn/measure.c workerd/nn/measure.h \
	workerd/nn/replica.c
libnnreplica_la_LIBADD = libnnmodel.la libnn.la
