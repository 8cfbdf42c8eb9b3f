// SPDX-License-Identifier: Apache-2.0
//
// A .keras file, whose HDF5 weights a child reads, or these alone: whatever the bytes, an error or a model that can be
// asked, and arrays as large as their shapes say.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/file/safetensors.h"
#include "workerd/nn/model.h"
#include "workerd/weights/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile float sum;  // of all that was read

static void add_up(const struct ps_safetensors *file)
{
    for (size_t i = 0; i < file->n; i++)
        for (uint64_t j = 0; j < file->tensor[i].count; j++)
            sum += file->tensor[i].data[j];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct nn_model *model = NULL;
    struct ps_safetensors *file = NULL;
    struct ps_error e;
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (nn_model_load(path, &model, &e) == PS_OK)
        free(nn_model_summary(model));
    nn_model_free(model);
    if (wk_weights_read(path, &file, &e) == PS_OK)
        add_up(file);
    ps_safetensors_free(file);
    close(fd);
    return 0;
}
