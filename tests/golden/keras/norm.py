# SPDX-License-Identifier: Apache-2.0
from golden import keras, np, tf_keras, train

k = keras.layers
xent = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def stack(layers, model, shape, *between):
    x = i = layers.Input(shape, name="in") if layers is tf_keras.layers else keras.Input(shape, name="in")
    x = layers.Dense(6, name="d")(x)
    for layer in between:
        x = layer(x)
    x = layers.Dense(3, name="e")(x)
    return model(i, layers.Flatten(name="f")(x), name="net")


def ours(shape, *between):
    return lambda: stack(k, keras.Model, shape, *[make() for make in between])


def theirs(shape, *between):
    return lambda: stack(tf_keras.layers, tf_keras.Model, shape, *[make() for make in between])


def image(k, api, normalization=None):
    normalization = normalization or k.BatchNormalization
    i = api.Input((7, 6, 2), name="in")
    x = k.Conv2D(5, 3, use_bias=False, name="c")(i)
    x = k.ReLU(name="r")(normalization(name="bn", momentum=0.9)(x))
    y = normalization(name="bn2", scale=False)(k.Conv2D(5, 3, padding="same", name="c2")(x))
    x = k.Flatten(name="f")(k.MaxPooling2D(name="p")(k.Add(name="sum")([x, y])))
    return api.Model(i, k.Dense(4, name="o")(x), name="resnet")


def frozen():
    model = stack(k, keras.Model, (5,), k.BatchNormalization(name="bn", trainable=False))
    layer = model.get_layer("bn")
    weights = [[0.5, 2, 1, 1, -1, 3], [0.1] * 6, [0.2, -0.3, 0, 1, 0.5, 2], [0.5, 1, 2, 0.1, 3, 1]]
    layer.set_weights([np.array(w) for w in weights])
    return model


keep = ("moving",)
bn = lambda **a: lambda: k.BatchNormalization(name="bn", **a)
bn2 = lambda **a: lambda: tf_keras.layers.BatchNormalization(name="bn", **a)
ln = lambda **a: lambda: k.LayerNormalization(name="ln", **a)
ln2 = lambda **a: lambda: tf_keras.layers.LayerNormalization(name="ln", **a)
gn = lambda **a: lambda: k.GroupNormalization(name="gn", **a)
train("bn", ours((5,), bn()), rows=13, steps=20)
train("bn_keras2", theirs((5,), bn2()), rows=13, steps=20)
# As in one replica.
train("bn_synchronized", ours((5,), bn(synchronized=True)), rows=13, steps=20)
train("bn_axis", ours((4, 3), bn(axis=1, center=False, momentum=0.5, epsilon=0.01)))
train("bn_frozen", frozen, keep=("bn",))
train("bn_image", lambda: image(k, keras), xent, rows=12, steps=6)
# Whose moving variance follows n / (n - 1) of a batch's.
train("bn_image_keras2", lambda: image(tf_keras.layers, tf_keras),
      tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), rows=12, steps=6)
# Which one that is synchronized does not; of BatchNormalization Keras 2 saves no `synchronized`.
train("bn_sync_keras2", lambda: image(tf_keras.layers, tf_keras, tf_keras.layers.experimental.SyncBatchNormalization),
      tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True), rows=12, steps=6)
train("ln", ours((4, 3), ln()), steps=6)
train("ln_keras2", theirs((4, 3), ln2()), steps=6)
train("ln_axes", ours((4, 3), ln(axis=[1, 2], scale=False)))
train("gn", ours((4, 3), gn(groups=2)))
train("gn_instance", ours((4, 3), gn(groups=-1, center=False)))
un = lambda **a: lambda: k.UnitNormalization(name="un", **a)
un2 = lambda **a: lambda: tf_keras.layers.UnitNormalization(name="un", **a)
train("unit_norm", ours((4, 3), un()))
train("unit_norm_keras2", theirs((4, 3), un2(axis=1)))
