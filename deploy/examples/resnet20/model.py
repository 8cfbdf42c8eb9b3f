# SPDX-License-Identifier: Apache-2.0
# Makes the networks of He et al. (2015) for 32 x 32 images, with 16, 32 and 64 channels: model.json, ResNet-20 with
# three blocks of each, and resnet56.json, with nine.
import keras
from keras import layers


def convolve(x, channels, size, strides):
    x = layers.Conv2D(channels, size, strides, padding="same", use_bias=False, kernel_initializer="he_normal")(x)
    return layers.BatchNormalization(momentum=0.9)(x)


def network(name, blocks):
    inputs = keras.Input((32, 32, 3), name="image")
    x = layers.ReLU()(convolve(inputs, 16, 3, 1))
    for channels in 16, 32, 64:
        for block in range(blocks):
            strides = 2 if channels > 16 and block == 0 else 1
            y = layers.ReLU()(convolve(x, channels, 3, strides))
            y = convolve(y, channels, 3, 1)
            x = layers.ReLU()(layers.Add()([y, convolve(x, channels, 1, 2) if strides == 2 else x]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, name="kind")(x), name=name)


for path, name, blocks in ("model.json", "resnet20", 3), ("resnet56.json", "resnet56", 9):
    keras.backend.clear_session()
    with open(path, "w") as f:
        f.write(network(name, blocks).to_json() + "\n")
