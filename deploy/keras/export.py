#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A compiled model that Keras has saved, and data, become a job:

    export.py net.keras folder x.npy y.npy --batch-size 32 --epochs 5

writes folder/model.json, weights.safetensors, x.npy, y.npy and job.yaml, whose training gives trained.safetensors.
From Python, paramserver_keras.export does the same with a model in memory."""
import argparse
import os

import numpy as np

import paramserver_keras


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a compiled model's .keras file")
    parser.add_argument("folder")
    parser.add_argument("x")
    parser.add_argument("y")
    parser.add_argument("--test", nargs=2, metavar=("X", "Y"), help="what is evaluated after each epoch")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--no-shuffle", action="store_true")
    parser.add_argument("--tf-keras", action="store_true", help="the file is tf_keras's")
    o = parser.parse_args()
    if o.tf_keras:
        import tf_keras as keras
    else:
        import keras
    test = tuple(np.load(p) for p in o.test) if o.test else None
    path = paramserver_keras.export(keras.models.load_model(o.model), o.folder, np.load(o.x), np.load(o.y),
                                    batch_size=o.batch_size, epochs=o.epochs, validation_data=test,
                                    shuffle=not o.no_shuffle)
    print(f"train with: workerd --job {path} --set output={os.path.join(o.folder, 'trained.safetensors')}")


if __name__ == "__main__":
    main()
