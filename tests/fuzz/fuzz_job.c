// SPDX-License-Identifier: Apache-2.0
//
// A job file, and after the first NUL, if there is one, an assignment laid over it. What is taken has to describe
// itself as a job file that is taken too.
#include <stdlib.h>
#include <string.h>

#include "common/job/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void describe(const struct ps_job *job)
{
    struct ps_job *again = NULL;
    struct ps_error e;
    json_t *json = ps_job_json(job);
    char *text = json_dumps(json, 0);
    if (!text || ps_job_parse(text, strlen(text), "job.yaml", NULL, 0, &again, &e) != PS_OK)
        abort();
    ps_job_free(again);
    free(text);
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = memchr(data, 0, size);
    size_t len = nul ? (size_t)(nul - data) : size;
    char *set = nul ? strndup((const char *)nul + 1, size - len - 1) : NULL;
    const char *const sets[] = {set};
    struct ps_job *job = NULL;
    struct ps_error e;
    if (ps_job_parse((const char *)data, len, "job.yaml", sets, set != NULL, &job, &e) == PS_OK)
        describe(job);
    ps_job_free(job);
    free(set);
    return 0;
}
