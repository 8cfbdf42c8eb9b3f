#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# In place of the tests on emulated GPUs.
echo "1..0 # SKIP no C++ compiler that can watch memory (Debian: g++)"
