// SPDX-License-Identifier: Apache-2.0
//
// In the place of hdf5.c, where configure has found no HDF5.
#include "workerd/weights/hdf5_file.h"

enum ps_code wk_hdf5_check(struct ps_error *e)
{
    return ps_fail(e, PS_FAILED_PRECONDITION,
                   "Keras keeps weights as HDF5, which this workerd was built without (Debian: libhdf5-dev, then "
                   "configure again); safetensors it has");
}

enum ps_code wk_hdf5_read(const uint8_t *bytes, size_t size, struct ps_safetensors **file, struct ps_error *e)
{
    (void)bytes, (void)size, (void)file;
    return wk_hdf5_check(e);
}

enum ps_code wk_hdf5_write(const struct ps_safetensor *tensor, size_t n, uint8_t **bytes, size_t *size,
                           struct ps_error *e)
{
    (void)tensor, (void)n, (void)bytes, (void)size;
    return wk_hdf5_check(e);
}
