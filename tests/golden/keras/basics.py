# SPDX-License-Identifier: Apache-2.0
from golden import keras, tf_keras, train

k = keras.layers


def two_ends():
    a, b = keras.Input((4,), name="a"), keras.Input((3,), name="b")
    x = k.Dense(5, activation="relu", name="both")
    left, right = x(k.Dense(4, name="left")(a)), x(k.Dense(4, name="right")(b))
    sum = k.Add(name="sum")([left, right])
    return keras.Model([a, b], [k.Dense(2, name="far")(sum), k.Dense(3, activation="softmax", name="kind")(left)], name="two")


def tower(layers, model, shape):
    x = i = layers.Input(shape, name="in") if layers is tf_keras.layers else keras.Input(shape, name="in")
    x = layers.Conv2D(3, 3, padding="same", activation="relu", name="c1")(x)
    y = layers.Conv2D(3, 3, padding="same", name="c2")(x)
    x = layers.ReLU(name="r")(layers.Add(name="sum")([x, y]))
    x = layers.Flatten(name="f")(layers.MaxPooling2D(name="p")(x))
    return model(i, layers.Dense(4, name="o")(x), name="tower")


# A Sequential model that is called twice, and a Functional one with two outputs.
def nested():
    inner = keras.Sequential([keras.Input((4,)), k.Dense(3, name="a", activation="relu"), k.Dense(2, name="b")], name="inner")
    p, q = keras.Input((2,), name="p"), keras.Input((2,), name="q")
    pair = keras.Model([p, q], [k.Add(name="sum")([p, q]), k.Dense(2, name="x")(p)], name="pair")
    i, j = keras.Input((4,), name="i"), keras.Input((4,), name="j")
    a, b = pair([inner(i), inner(j)])
    return keras.Model([i, j], k.Add(name="all")([a, b, pair([b, a])[1]]), name="net")


def nested_sequential():
    inner = keras.Sequential([keras.Input((4,)), k.Dense(3, name="a"), k.ReLU(name="r")], name="inner")
    return keras.Sequential([keras.Input((4,)), inner, k.Dense(2, name="o")], name="outer")


def nested_keras2():
    layers = tf_keras.layers
    inner = tf_keras.Sequential([layers.Dense(3, name="a", input_shape=(4,)), layers.ReLU(name="r")], name="inner")
    i, j = tf_keras.Input((4,), name="i"), tf_keras.Input((4,), name="j")
    return tf_keras.Model([i, j], layers.Dense(1, name="o")(layers.Add(name="sum")([inner(i), inner(j)])), name="net")


# A Functional model is the output of another one, which is the output of the model.
def inside(K):
    k, j, m, i = K.layers, K.Input((4,), name="j"), K.Input((4,), name="m"), K.Input((4,), name="i")
    inner = K.Model(j, k.Dense(3, activation="tanh", name="a")(j), name="inner")
    middle = K.Model(m, inner(k.Dense(4, name="b")(m)), name="middle")
    return K.Model(i, middle(i), name="net")


# The first of two calls is an output.
def inside_first(K):
    k, j, i = K.layers, K.Input((4,), name="j"), K.Input((4,), name="i")
    inner = K.Model(j, k.Dense(4, activation="tanh", name="a")(j), name="inner")
    first = inner(i)
    return K.Model(i, [first, k.Dense(2, name="q")(inner(k.Dense(4, name="d")(first)))], name="net")


# What goes in and out by name counts in the order of the names, those of masks, too; called on a dict an inner model that
# was made of a list knows its inputs by their own names.
def named(K):
    k, j = K.layers, K.Input((4,), name="j")
    inner = K.Model(j, {"z": k.Dense(3, name="a")(j), "y": k.Dense(3, name="b")(j)}, name="inner")
    s, t = K.Input((3,), name="s"), K.Input((3,), name="t")
    taking = K.Model({"s": t, "q": s}, k.Dense(3, activation="tanh", name="c")(k.Subtract(name="less")([s, t])), name="taking")
    u, v = K.Input((3,), name="u"), K.Input((3,), name="l")
    listed = K.Model([u, v], k.Dense(3, activation="tanh", name="d")(k.Subtract(name="of")([u, v])), name="listed")
    i = K.Input((4,), name="i")
    of = inner(i)
    x = taking({"s": of["y"], "q": of["z"]})
    y = listed({"l": of["y"], "u": x} if K is keras else [x, of["y"]])
    return K.Model(i, {"p": k.Dense(2, name="first")(x), "e": k.Dense(1, name="second")(y)}, name="net")


# Convolutions that a device may do together with their pooling, and one that it may not.
def conv_pool():
    i = keras.Input((13, 14, 1), name="in")
    x = k.MaxPooling2D(name="p1")(k.Conv2D(17, 3, activation="relu", name="c1")(i))
    x = k.MaxPooling2D(name="p2")(k.Conv2D(4, (2, 3), padding="same", name="c2")(x))
    y = k.Conv2D(4, 1, activation="relu", name="c3")(x)
    z = k.MaxPooling2D(name="p3")(y)
    x = k.Add(name="sum")([k.Flatten(name="f")(z), k.Dense(4, name="d")(k.Flatten(name="g")(y))])
    return keras.Model(i, k.Dense(3, name="o")(x), name="net")


def sequential(layers, shape):
    return lambda: keras.Sequential([keras.Input(shape)] + layers())


logits = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train("two_ends", two_ends, ["mse", "sparse_categorical_crossentropy"], rows=12)
train("residual", lambda: tower(k, keras.Model, (6, 5, 2)), logits)
train("residual_keras2", lambda: tower(tf_keras.layers, tf_keras.Model, (6, 5, 2)),
      tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
train("nested", nested)
train("nested_sequential", nested_sequential)
train("nested_keras2", nested_keras2)
for end, K in (("", keras), ("_keras2", tf_keras)):
    train("inside" + end, lambda: inside(K))
    train("inside_first" + end, lambda: inside_first(K))
    train("named" + end, lambda: named(K))
train("conv_pool", conv_pool, logits, rows=7)

# Close to Keras in every number. wrong: some labels have a probability far below 1e-7, where Keras clips what it does
# not know to be a softmax; logits are up to 50, whose last bit 1e-5 is.
tiny = lambda: [k.Conv2D(3, 3, padding="same", strides=2), k.ReLU(), k.MaxPooling2D(2, strides=1, padding="same"),
                k.Conv2D(4, (2, 3), activation="relu"), k.Flatten(), k.Dense(6, activation="relu"), k.Dense(3)]
strided = lambda: [k.Conv2D(4, (4, 3), strides=(3, 2), padding="same", activation="relu"),
                   k.MaxPooling2D((3, 2), strides=(2, 3), padding="same"), k.Conv2D(3, 2, strides=2, padding="same"),
                   k.Flatten(), k.Dense(3)]
wrong = {"loss": "sparse_categorical_crossentropy", "rows": 12, "steps": 7, "each": 1e-5}
train("tiny_conv", sequential(tiny, (9, 8, 2)), logits, rows=5, seed=7, each=2e-6)
train("softmax", sequential(lambda: [k.Dense(5, activation="softmax")], (6,)), scale=12, **wrong)
train("softmax_layer", sequential(lambda: [k.Dense(8, activation="relu"), k.Dense(5), k.Softmax()], (6,)), scale=3, **wrong)
train("softmax_flatten", sequential(lambda: [k.Dense(5, activation="softmax"), k.Flatten()], (6,)), scale=12, **wrong)
train("softmax_mse", sequential(lambda: [k.Dense(6, activation="relu"), k.Dense(4, activation="softmax")], (7,)), steps=6, each=2e-6)
train("strided", sequential(strided, (11, 9, 2)), rows=7, steps=6, each=2e-6)
