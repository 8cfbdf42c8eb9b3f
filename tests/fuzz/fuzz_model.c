// SPDX-License-Identifier: Apache-2.0
//
// A model's JSON. What is taken can be asked everything that is asked of a model, and its own document gives the same
// one again.
#include <stdlib.h>
#include <string.h>

#include "workerd/nn/graph.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const struct nn_model *m)
{
    struct nn_model *again = NULL;
    struct ps_error e;
    struct nn_saved *saved = nn_model_saved(m);
    for (size_t i = 0; i < nn_model_params(m); i++)
        if (!saved[i].path || nn_model_param(m, i)->count == 0)
            abort();
    nn_model_free_saved(saved);
    free(nn_model_summary(m));
    const char *document = nn_model_document(m);
    if (nn_model_parse(document, "again", &again, &e) != PS_OK || nn_model_params(again) != nn_model_params(m) ||
        strcmp(nn_model_document(again), document) != 0)
        abort();
    nn_model_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nn_model *m = NULL;
    struct ps_error e;
    if (nn_model_read((const char *)data, size, "model.json", NULL, &m, &e) != PS_OK)
        return 0;
    ask(m);
    nn_model_free(m);
    return 0;
}
