# SPDX-License-Identifier: Apache-2.0
#
# Makes the TFRecord file and the images beside it, with TensorFlow:
#
#   python3 tests/golden/data/make_records.py
#
# three.tfrecord   three records: "image" a PNG of 2 by 3, "numbers" two floats, "label" an integer, "raw" four bytes
# rgb.png, gray.png, palette.png, alpha16.png, rgb.jpg, gray.jpg    4 by 6; red is 10 i, green 20 j, blue 100
# images.h         what TensorFlow decodes of them, and its bilinear resizing of rgb.png to 3 by 5
import os
import struct
import zlib

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))


def path(name):
    return os.path.join(HERE, name)


def pixels(h, w, first=0):
    i, j = np.mgrid[0:h, 0:w]
    return np.stack([10 * i + first, 20 * j, 0 * i + 100], axis=-1).astype(np.uint8)


def png(array):
    return tf.io.encode_png(array).numpy()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


# TensorFlow writes none with a palette.
def palette_png(array):
    h, w, _ = array.shape
    colors, index = np.unique(array.reshape(-1, 3), axis=0, return_inverse=True)
    rows = b"".join(b"\0" + bytes(row.tolist()) for row in index.reshape(h, w).astype(np.uint8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 3, 0, 0, 0)) +
            chunk(b"PLTE", colors.astype(np.uint8).tobytes()) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write(name, data):
    with open(path(name), "wb") as f:
        f.write(data)
    if name.endswith(".jpg"):
        return tf.io.decode_jpeg(data, channels=3, dct_method="INTEGER_ACCURATE").numpy()
    return tf.io.decode_image(data, channels=3).numpy()


def feature(kind, values):
    lists = {"bytes": tf.train.BytesList, "float": tf.train.FloatList, "int64": tf.train.Int64List}
    return tf.train.Feature(**{kind + "_list": lists[kind](value=values)})


with tf.io.TFRecordWriter(path("three.tfrecord")) as writer:
    for n in range(3):
        writer.write(tf.train.Example(features=tf.train.Features(feature={
            "image": feature("bytes", [png(pixels(2, 3, n))]),
            "numbers": feature("float", [n + 0.5, -n]),
            "label": feature("int64", [n % 2]),
            "raw": feature("bytes", [bytes([n, 1, 2, 255])]),
        })).SerializeToString())

rgb = pixels(4, 6)
gray = rgb[:, :, :1] + rgb[:, :, 1:2]
write("rgb.png", png(rgb))
write("gray.png", png(gray))
assert (write("palette.png", palette_png(rgb)) == rgb).all()
alpha = np.concatenate([rgb.astype(np.uint16) * 257, rgb[:, :, :1].astype(np.uint16) * 99], axis=-1)
assert (write("alpha16.png", tf.io.encode_png(alpha).numpy()) == rgb).all()
jpeg = write("rgb.jpg", tf.io.encode_jpeg(rgb, quality=95, chroma_downsampling=False).numpy())
jpeg_gray = write("gray.jpg", tf.io.encode_jpeg(gray, quality=95).numpy())[:, :, 0]


def c_array(name, values):
    text = ", ".join(str(int(v)) for v in np.asarray(values).flatten())
    return f"static const unsigned char {name}[] = {{{text}}};\n"


with open(path("images.h"), "w") as f:
    f.write("// SPDX-License-Identifier: Apache-2.0\n// Made by make_records.py.\n// clang-format off\n")
    f.write(c_array("golden_rgb", rgb))
    f.write(c_array("golden_gray", gray))
    f.write(c_array("golden_jpeg", jpeg))
    f.write(c_array("golden_jpeg_gray", jpeg_gray))
    resized = tf.image.resize(rgb, (3, 5), "bilinear").numpy()
    f.write(c_array("golden_resized", np.floor(resized + 0.5)))
