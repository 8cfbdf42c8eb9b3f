// SPDX-License-Identifier: Apache-2.0
//
// max_diff [-a] A B LIMIT [PREFIX]: the greatest max|a - b| / max|a| over the variables of two safetensors files, of
// those whose names begin with PREFIX; with -a, max|a - b|. Fails above LIMIT, and where there is none. LIMIT 0: the
// same values.
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file/safetensors.h"

int main(int argc, char **argv)
{
    struct ps_safetensors *a = NULL, *b = NULL;
    struct ps_error e;
    double worst = 0;
    bool absolute = argc > 1 && strcmp(argv[1], "-a") == 0;
    argc -= absolute;
    argv += absolute;
    const char *prefix = argc == 5 ? argv[4] : "";
    size_t compared = 0;
    if (argc < 4 || argc > 5 || ps_safetensors_read(argv[1], &a, &e) || ps_safetensors_read(argv[2], &b, &e)) {
        fprintf(stderr, "max_diff: %s\n", argc == 4 || argc == 5 ? e.text : "usage: max_diff [-a] A B LIMIT [PREFIX]");
        return 2;
    }
    for (size_t i = 0; i < a->n; i++) {
        const struct ps_safetensor *x = &a->tensor[i], *y = ps_safetensors_find(b, x->name);
        double diff = 0, scale = 0;
        if (strncmp(x->name, prefix, strlen(prefix)) != 0)
            continue;
        compared++;
        if (!y || y->count != x->count) {
            fprintf(stderr, "max_diff: '%s' is not in both\n", x->name);
            return 1;
        }
        for (uint64_t k = 0; k < x->count; k++) {
            diff = fmax(diff, fabs((double)x->data[k] - (double)y->data[k]));
            scale = fmax(scale, fabs((double)x->data[k]));
        }
        diff /= scale > 0 && !absolute ? scale : 1;
        printf("%s %.3g\n", x->name, diff);
        worst = fmax(worst, diff);
    }
    ps_safetensors_free(a);
    ps_safetensors_free(b);
    return !compared || !(worst <= atof(argv[3]));
}
