# SPDX-License-Identifier: Apache-2.0
#
# Activations, merges, noise that is off, regularizers: what works on each element alone, and what goes with it.
from golden import keras, np, tf_keras, train

k, k2 = keras.layers, tf_keras.layers


# ---- activations: an output for each, of a dense layer of its own ------------------------------------------------------


def activations(layers, model, names):
    x = i = layers.Input((3,), name="in") if layers is k2 else keras.Input((3,), name="in")
    return model(i, [layers.Dense(3, activation=n, name=n)(x) for n in names], name="net")


def both(name, build, dialects="23", **settings):
    if "3" in dialects:
        train(name, lambda: build(k, keras), **settings)
    if "2" in dialects:
        train(name + "_keras2", lambda: build(k2, tf_keras), **settings)


smooth = "sigmoid tanh softplus softsign elu selu exponential gelu silu mish".split()
bent = "relu relu6 leaky_relu hard_sigmoid hard_silu hard_tanh hard_shrink soft_shrink sparse_sigmoid".split()
rest = "celu log_sigmoid log_softmax softmax sparse_plus squareplus tanh_shrink linear".split()
wide = dict(scale=1.2, steps=3, rows=7)
train("activations_smooth", lambda: activations(k, keras.Model, smooth), **{**wide, "scale": 0.6})
train("activations_bent", lambda: activations(k, keras.Model, bent), **wide)
train("activations_rest", lambda: activations(k, keras.Model, rest), **wide)
train("activations_other_names", lambda: activations(k, keras.Model, ["hard_silu", "silu"]),
      says=[("hard_silu", "hard_swish"), ("silu", "swish")], **wide)
in2 = "sigmoid tanh softplus softsign elu selu gelu swish mish relu leaky_relu hard_sigmoid softmax".split()
train("activations_keras2", lambda: activations(k2, tf_keras.Model, in2), **wide)


# Layers that are activations, and such layers as settings.
def activation_layers(l, api):
    slope = {"alpha": 0.15} if l is k2 else {"negative_slope": 0.15}
    return api.Sequential([
        l.Input((3, 4), name="in") if l is k2 else keras.Input((3, 4), name="in"),
        l.Dense(5, activation=l.LeakyReLU(**slope), name="a"), l.ReLU(1.5, 0.1, 0.2, name="r"),
        l.Dense(4, name="b"), l.ELU(0.7, name="e"), l.Softmax(axis=1, name="s"),
        l.Dense(4, name="c"), l.LeakyReLU(name="l"), l.Activation("tanh", name="t"), l.ReLU(name="z"),
    ], name="net")


both("activation_layers", activation_layers, scale=1)


# ---- merges ------------------------------------------------------------------------------------------------------------


def inputs(l, **shapes):
    return [l.Input(s, name=n) if l is k2 else keras.Input(s, name=n) for n, s in shapes.items()]


def merges(l, api):
    a, b = inputs(l, a=(5,), b=(5,))
    x, y, z = l.Dense(4, name="x")(a), l.Dense(4, name="y")(b), l.Dense(4, name="z")(a)
    v = [getattr(l, n)(name=n.lower())([x, y, z]) for n in ("Add", "Multiply", "Average", "Maximum", "Minimum")]
    v.append(l.Subtract(name="subtract")([x, y]))
    return api.Model([a, b], [l.Dense(2, name="d%d" % i)(w) for i, w in enumerate(v)], name="net")


# Dimensions of 1, and fewer dimensions.
def broadcasts(l, api):
    a, b = inputs(l, a=(3, 4), b=(4,))
    x, one, y = l.Dense(4, name="x")(a), l.Dense(1, name="one")(a), l.Dense(4, name="y")(b)
    v = [getattr(l, n)(name=n.lower())([x, one, y]) for n in ("Add", "Multiply", "Average", "Maximum", "Minimum")]
    v.append(l.Subtract(name="subtract")([y, x]))
    return api.Model([a, b], v, name="net")


def concatenates(l, api):
    a, b = inputs(l, a=(3, 4), b=(2, 4))
    x, y = l.Dense(5, name="x")(a), l.Dense(5, name="y", activation="relu")(b)
    many = l.Concatenate(name="many")([x] + [l.Dense(1, name="n%d" % i)(x) for i in range(10)])
    return api.Model([a, b], [l.Concatenate(axis=1, name="rows")([x, y, x]), many], name="net")


def dots(l, api):
    a, b = inputs(l, a=(3, 4), b=(2, 4))
    x, y = l.Dense(5, name="x")(a), l.Dense(5, name="y")(b)
    v, w = l.Flatten(name="v")(y), l.Dense(10, name="w")(l.Flatten(name="f")(x))
    return api.Model([a, b], [
        l.Dot(axes=-1, name="table")([x, y]), l.Dot(axes=(2, 2), normalize=True, name="cosines")([x, y]),
        l.Dot(axes=1, name="one")([v, w]), l.Dot(axes=1, normalize=True, name="cosine")([v, w]),
        l.Dot(axes=(1, 2), name="cross")([l.Dense(3, name="u")(b), l.Permute((2, 1), name="p")(y)]),
    ], name="net")


for name, build in (("merges", merges), ("broadcasts", broadcasts), ("concatenates", concatenates)):
    both(name, build, scale=0.7, steps=3)
both("dots", dots, scale=0.3)


# ---- features, slopes to learn, noise of none --------------------------------------------------------------------------


def features(l, api):
    (a,) = inputs(l, a=(3, 4))
    x = l.Rescaling(0.5, offset=-0.25, name="rescale")(a)
    x = l.Normalization(mean=[0.1, 0.2, -0.3, 0.4], variance=[0.5, 1.0, 2.0, 0.25], name="n")(x)
    x = l.Identity(name="same")(l.Dense(5, name="d")(x)) if api is keras else l.Dense(5, name="d")(x)
    x = l.Normalization(axis=None, mean=0.2, variance=1.5, name="m")(x)
    return api.Model(a, l.Dense(2, name="o")(x), name="net")


def prelu(l, api):
    (a,) = inputs(l, a=(4, 3, 2))
    x = l.PReLU(name="each")(l.Dense(3, name="d")(a))
    return api.Model(a, l.PReLU(shared_axes=[1, 2], name="channels")(l.Dense(4, name="e")(x)), name="net")


def noise(l, api):
    (a,) = inputs(l, a=(4, 3, 2))
    x = l.GaussianNoise(0.0, name="gn")(l.Dense(3, name="d")(a))
    x = l.SpatialDropout2D(0.0, name="s2")(l.GaussianDropout(0.0, name="gd")(x))
    x = l.SpatialDropout1D(0.0, name="s1")(l.Reshape((4, 9), name="r")(x))
    return api.Model(a, l.Dropout(0.0, noise_shape=(None, 1, 9), name="dr")(x), name="net")


both("features", features)
both("prelu", prelu)
both("noise_of_none", noise)


# ---- regularizers and constraints --------------------------------------------------------------------------------------


def regularizers(l, api):
    r = api.regularizers
    (a,) = inputs(l, a=(5, 4, 2))
    x = l.Conv2D(3, 2, activation="relu", kernel_regularizer=r.L2(0.1), bias_regularizer=r.L1(0.2), name="c")(a)
    x = l.ActivityRegularization(l1=0.02, l2=0.01, name="ar")(x)
    d = l.Dense(4, activation="tanh", kernel_regularizer=r.L1L2(0.05, 0.03), activity_regularizer=r.L2(0.1), name="d")
    e = l.Dense(4, activity_regularizer=r.L1(0.01), name="e")
    y = l.ReLU(name="r")(e(d(l.Flatten(name="f")(x))))
    p = l.PReLU(alpha_regularizer=r.L2(0.2), name="p")(l.Dense(2, name="o")(y))
    s = l.Dense(3, activation="softmax", activity_regularizer=r.L2(0.3), name="s")(y)
    return api.Model(a, [p, s], name="net")


def constraints(l, api):
    c = api.constraints
    (a,) = inputs(l, a=(5, 4, 2))
    x = l.Conv2D(3, 2, kernel_constraint=c.MaxNorm(0.5, axis=[0, 1, 2]), bias_constraint=c.NonNeg(), name="c")(a)
    x = l.Dense(4, kernel_constraint=c.UnitNorm(), bias_constraint=c.MaxNorm(0.4), name="d")(l.Flatten(name="f")(x))
    x = l.Dense(3, kernel_constraint=c.MinMaxNorm(0.2, 0.5, rate=0.7, axis=1), name="e")(x)
    return api.Model(a, x, name="net")


sparse = ["mse", "sparse_categorical_crossentropy"]
both("regularizers", regularizers, loss=sparse)
both("constraints", constraints)
