// SPDX-License-Identifier: Apache-2.0
//
// Files of the source tree, for the tests of models. After cmocka.h.
#ifndef TEST_NN_FILES_H
#define TEST_NN_FILES_H

#include <stdio.h>
#include <stdlib.h>

#include "workerd/nn/model.h"

// The name is good until the next call.
static inline const char *source(const char *path)
{
    static char full[512];
    const char *top = getenv("top_srcdir");
    snprintf(full, sizeof full, "%s/%s", top ? top : ".", path);
    return full;
}

static inline struct nn_model *load(const char *path)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    if (nn_model_load(source(path), &m, &e) != PS_OK)
        fail_msg("%s", e.text);
    return m;
}

// Of one example.
static inline size_t elements(struct nn_port port)
{
    return nn_type_count(port.type);
}

#endif
