#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts trained weights back into the model that Keras has saved:

    import.py net.keras folder/trained.safetensors trained.keras

From Python, paramserver_keras.load does the same with a model in memory."""
import argparse

import paramserver_keras


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the model's .keras file")
    parser.add_argument("weights", help="what workerd wrote: .safetensors, .weights.h5 or .keras")
    parser.add_argument("output", help="the .keras file to write")
    parser.add_argument("--tf-keras", action="store_true", help="the files are tf_keras's")
    o = parser.parse_args()
    if o.tf_keras:
        import tf_keras as keras
    else:
        import keras
    model = keras.models.load_model(o.model)
    paramserver_keras.load(model, o.weights)
    model.save(o.output)


if __name__ == "__main__":
    main()
