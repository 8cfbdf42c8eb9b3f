# SPDX-License-Identifier: Apache-2.0
# Makes model.json: the ResNet-20 of He et al. (2015) for 32 x 32 images, 16, 32 and 64 channels, three blocks each.
import keras
from keras import layers


def convolve(x, channels, size, strides):
    x = layers.Conv2D(channels, size, strides, padding="same", use_bias=False, kernel_initializer="he_normal")(x)
    return layers.BatchNormalization(momentum=0.9)(x)


inputs = keras.Input((32, 32, 3), name="image")
x = layers.ReLU()(convolve(inputs, 16, 3, 1))
for channels in 16, 32, 64:
    for block in range(3):
        strides = 2 if channels > 16 and block == 0 else 1
        y = layers.ReLU()(convolve(x, channels, 3, strides))
        y = convolve(y, channels, 3, 1)
        x = layers.ReLU()(layers.Add()([y, convolve(x, channels, 1, 2) if strides == 2 else x]))
x = layers.GlobalAveragePooling2D()(x)
model = keras.Model(inputs, layers.Dense(10, name="kind")(x), name="resnet20")

with open("model.json", "w") as f:
    f.write(model.to_json() + "\n")
