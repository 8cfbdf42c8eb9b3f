// SPDX-License-Identifier: Apache-2.0
#include <omp.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "workerd/nn/cpu/cpu.h"

void nn_cpu_use_threads(const struct nn_context *context)
{
    omp_set_num_threads(context->threads);
}

enum ps_code nn_cpu_fail(struct ps_error *e, dnnl_status_t status, const char *what)
{
    enum ps_code code = status == dnnl_out_of_memory ? PS_RESOURCE_EXHAUSTED : PS_INTERNAL;
    return ps_fail(e, code, "oneDNN: %s: %s", what, dnnl_status2str(status));
}

void nn_cpu_must(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    ps_error_log("oneDNN: %s: %s", what, dnnl_status2str(status));
    abort();
}
