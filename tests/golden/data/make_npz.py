# SPDX-License-Identifier: Apache-2.0
#
# Makes the .npz files beside it, with NumPy: python3 tests/golden/data/make_npz.py
import os

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ARRAYS = {
    "numbers_train": np.arange(12, dtype=np.float32).reshape(2, 2, 3),
    "words_train": np.array([[0, -1], [2, 3]], dtype=np.int64),
    "y_train": np.array([3, 0], dtype=np.uint8),
    "numbers_test": np.zeros((1, 2, 3), dtype=np.float64),
    "words_test": np.array([[5, 6]], dtype=np.int32),
    "y_test": np.array([1], dtype=np.int16),
}
np.savez(os.path.join(HERE, "stored.npz"), **ARRAYS)
np.savez_compressed(os.path.join(HERE, "deflated.npz"), **ARRAYS)
