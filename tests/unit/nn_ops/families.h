// SPDX-License-Identifier: Apache-2.0
//
// Cases of operators, a file for each family: each is run on the CPU against the reference (test_nn_ops), and its
// gradients against slopes in double precision (test_nn_gradients). Sizes are small and odd: two runs are made
// for each element, or for a few hundred of them.
#ifndef TEST_NN_FAMILIES_H
#define TEST_NN_FAMILIES_H

#include "tests/unit/nn_cases.h"
#include "tests/unit/nn_ops/basics.h"
#include "tests/unit/nn_ops/fused.h"
#include "tests/unit/nn_ops/norm.h"
#include "tests/unit/nn_ops/pointwise.h"
#include "tests/unit/nn_ops/sequence.h"
#include "tests/unit/nn_ops/shape.h"
#include "tests/unit/nn_ops/spatial.h"

static const struct {
    const struct op_case *cases;
    size_t n;
} families[] = {
    {fused_cases, COUNT(fused_cases)},       {basics_cases, COUNT(basics_cases)},
    {norm_cases, COUNT(norm_cases)},         {pointwise_cases, COUNT(pointwise_cases)},
    {shape_cases, COUNT(shape_cases)},       {spatial_cases, COUNT(spatial_cases)},
    {sequence_cases, COUNT(sequence_cases)},
};

#endif
