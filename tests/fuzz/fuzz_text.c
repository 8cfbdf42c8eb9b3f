// SPDX-License-Identifier: Apache-2.0
//
// Text as characters, and as words of a vocabulary: whatever the bytes, an error or tokens that the vocabulary has.
#include <stdlib.h>

#include "workerd/data/data_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    for (int words = 0; words <= 1; words++) {
        struct ps_error e;
        struct wk_text t = {0};
        if (words)
            wk_vocabulary_find(&t.vocabulary, "[UNK]", 5);
        if (words)
            wk_vocabulary_find(&t.vocabulary, "the", 3);
        t.vocabulary.fixed = true;
        if (wk_text_parse(bytes, size, &t, &e) == PS_OK)
            for (uint64_t i = 0; i < t.tokens; i++)
                if (t.token[i] < 0 || t.token[i] >= t.classes)
                    abort();
        wk_text_fini(&t);
    }
    return 0;
}
