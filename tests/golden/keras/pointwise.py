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
