# SPDX-License-Identifier: Apache-2.0
from golden import keras, tf_keras, train

CE = "sparse_categorical_crossentropy"


# A Sequential model that ends in a few numbers, so that its gradients differ from place to place.
def chain(K, shape, *stack):
    first = [keras.Input(shape, name="in")] if K is keras else [K.layers.InputLayer(input_shape=shape, name="in")]
    return K.Sequential(first + list(stack) + [K.layers.Flatten(name="f"), K.layers.Dense(2, name="o")], name="s")


def one(name, shape, stack, **more):
    train(name, lambda: chain(keras, shape, *stack(keras.layers)), **more)


# In both dialects.
def both(name, shape, stack, **more):
    one(name, shape, stack, **more)
    train(name + "_keras2", lambda: chain(tf_keras, shape, *stack(tf_keras.layers)), **more)


one("dilated", (8, 7, 2), lambda k: [k.Conv2D(3, (3, 2), dilation_rate=(2, 3), activation="relu", name="c"),
                                      k.Conv2D(2, 2, dilation_rate=2, padding="same", name="d")])
one("grouped", (6, 5, 4), lambda k: [k.Conv2D(6, 3, groups=2, padding="same", activation="relu", name="c"),
                                      k.Conv2D(3, (3, 2), groups=3, strides=2, use_bias=False, name="d")])
both("conv1d", (11, 3), lambda k: [k.Conv1D(4, 3, padding="causal", dilation_rate=2, activation="relu", name="a"),
                                   k.Conv1D(4, 4, strides=3, padding="same", groups=2, name="b"),
                                   k.Conv1D(2, 2, name="c")])
one("causal_strides", (10, 2), lambda k: [k.Conv1D(3, 4, padding="causal", strides=2, activation="relu", name="a"),
                                           k.Conv1D(2, 3, padding="same", dilation_rate=2, name="b")])
both("depthwise", (6, 7, 3), lambda k: [
    k.DepthwiseConv2D(3, depth_multiplier=2, padding="same", activation="relu", name="a"),
    k.DepthwiseConv2D((2, 2), strides=2, use_bias=False, name="b"),
    k.DepthwiseConv2D(2, dilation_rate=2, padding="same", name="c")])
one("depthwise1d", (9, 3), lambda k: [
    k.DepthwiseConv1D(3, depth_multiplier=2, activation="relu", name="a"),
    k.DepthwiseConv1D(2, strides=2, padding="same", name="b")])
both("separable", (7, 6, 2), lambda k: [
    k.SeparableConv2D(3, 3, depth_multiplier=2, activation="relu", name="a"),
    k.SeparableConv2D(2, 2, strides=2, padding="same", use_bias=False, name="b")])
one("separable1d", (9, 2), lambda k: [
    k.SeparableConv1D(3, 3, depth_multiplier=2, padding="same", activation="relu", name="a"),
    k.SeparableConv1D(2, 3, strides=2, name="b")])
both("transpose", (2, 3, 2), lambda k: [
    k.Conv2DTranspose(3, 3, strides=2, padding="same", activation="relu", name="a"),
    k.Conv2DTranspose(2, (2, 4), strides=(1, 2), name="b"),
    k.Conv2DTranspose(1, (1, 2), strides=2, use_bias=False, name="c")], scale=0.3)
one("transpose_output_padding", (3, 2, 2), lambda k: [
    k.Conv2DTranspose(2, 3, strides=2, padding="same", output_padding=0, activation="relu", name="a"),
    k.Conv2DTranspose(2, (2, 3), strides=(2, 3), output_padding=1, name="b"),
    k.Conv2DTranspose(1, (4, 3), strides=2, padding="same", output_padding=1, name="c")], scale=0.15)
one("transpose1d", (4, 2), lambda k: [
    k.Conv1DTranspose(3, 3, strides=2, activation="relu", name="a"),
    k.Conv1DTranspose(2, 4, strides=3, padding="same", name="b"),
    k.Conv1DTranspose(2, 3, strides=2, padding="same", output_padding=1, name="c")], scale=0.3)
both("pool1d", (13, 2), lambda k: [
    k.Conv1D(3, 2, name="c"), k.MaxPooling1D(3, strides=2, padding="same", name="a"),
    k.AveragePooling1D(2, padding="same", strides=1, name="b"), k.AveragePooling1D(2, name="e")])
one("average", (7, 6, 2), lambda k: [
    k.Conv2D(3, 2, name="c"), k.AveragePooling2D((3, 2), strides=2, padding="same", name="a"),
    k.AveragePooling2D(2, strides=1, name="b")])
both("margins", (4, 5, 2), lambda k: [
    k.ZeroPadding2D(((1, 0), (2, 3)), name="a"), k.Conv2D(3, 2, name="c"), k.Cropping2D(((0, 1), (2, 1)), name="b"),
    k.ZeroPadding2D(name="e"), k.Cropping2D((1, 0), name="g")], scale=0.2)
one("margins1d", (6, 2), lambda k: [
    k.ZeroPadding1D((2, 1), name="a"), k.Conv1D(3, 3, name="c"), k.Cropping1D((1, 2), name="b"),
    k.ZeroPadding1D(1, name="e")])
both("upsampling", (3, 2, 2), lambda k: [
    k.UpSampling2D((2, 3), name="a"), k.Conv2D(2, 2, name="c"),
    k.UpSampling2D((3, 2), interpolation="bilinear", name="b"), k.Conv2D(1, (3, 4), strides=3, name="d")])
one("upsampling1d", (4, 2), lambda k: [
    k.UpSampling1D(3, name="a"), k.Conv1D(2, 3, strides=2, name="c"), k.UpSampling1D(name="b")])


# ---- Functional ----------------------------------------------------------------------------------------------------

def functional(K, shape, body):
    k = K.layers
    i = (keras.Input if K is keras else k.Input)(shape, name="in")
    return K.Model(i, body(k, i), name="net")


def one_functional(name, shape, body, loss="mse", **more):
    train(name, lambda: functional(keras, shape, body), loss, **more)


def both_functional(name, shape, body, loss="mse", **more):
    one_functional(name, shape, body, loss, **more)
    train(name + "_keras2", lambda: functional(tf_keras, shape, body), loss, **more)


def global_heads(k, i):
    x = k.Conv2D(3, 2, padding="same", name="c")(i)
    a = k.Add(name="both")([k.GlobalAveragePooling2D(name="m")(x), k.GlobalMaxPooling2D(name="g")(x)])
    return k.Dense(3, activation="softmax", name="o")(a)


def squeeze(k, i):
    x = k.Conv2D(2, 3, padding="same", name="c")(i)
    y = k.Add(name="sum")([k.GlobalAveragePooling2D(keepdims=True, name="m")(x),
                           k.GlobalMaxPooling2D(keepdims=True, name="g")(x)])
    return k.Conv2D(2, 1, name="o")(y)


def words(k, i):
    x = k.Conv1D(3, 2, padding="causal", activation="relu", name="c")(i)
    y = k.Add(name="sum")([k.GlobalMaxPooling1D(name="g")(x), k.GlobalAveragePooling1D(name="m")(x)])
    return k.Dense(2, name="o")(y)


def autoencoder(k, i):
    x = k.Conv2D(3, 3, strides=2, padding="same", activation="relu", name="e")(i)
    return k.Conv2DTranspose(1, 3, strides=2, padding="same", name="d")(x)


def unet(k, i):
    skip = k.Conv2D(2, 3, padding="same", activation="relu", name="c")(i)
    x = k.SeparableConv2D(3, 3, padding="same", activation="relu", name="s")(k.MaxPooling2D(name="p")(skip))
    x = k.Conv2D(2, 1, name="q")(k.UpSampling2D(interpolation="bilinear", name="u")(x))
    return k.Conv2D(1, 2, padding="same", name="o")(k.Add(name="sum")([skip, x]))


# Images that are smaller than the window: nothing is drawn.
def crop(k, i):
    x = k.RandomCrop(7, 9, name="larger")(k.Conv2D(2, 2, name="c")(i))
    return k.Conv2D(1, 3, name="o")(k.RandomCrop(8, 5, name="higher")(x))


# The same kernels on two ways through the network.
def shared(k, i):
    c, p = k.DepthwiseConv2D(2, padding="same", name="c"), k.AveragePooling2D(2, padding="same", name="p")
    x = k.Add(name="sum")([c(i), c(k.Cropping2D(1, name="x")(k.ZeroPadding2D(1, name="z")(c(i))))])
    return k.Dense(2, name="o")(k.Flatten(name="f")(p(x)))


both_functional("global", (5, 4, 2), global_heads, CE)
one_functional("squeeze", (4, 5, 2), squeeze)
one_functional("words", (7, 2), words)
one_functional("autoencoder", (6, 4, 1), autoencoder)
both_functional("unet", (6, 4, 1), unet)
both_functional("shared_depthwise", (5, 3, 2), shared)
# Keras 3.15's does not do what it documents: it takes the whole image, or a window from its corner.
train("crop_keras2", lambda: functional(tf_keras, (6, 7, 2), crop), "mse")
# More cells than a byte counts.
train("global_large", lambda: functional(keras, (18, 15, 1), global_heads), CE, rows=5, steps=2)
