// SPDX-License-Identifier: Apache-2.0
//
// strategy.devices: those that have a replica each, as TensorFlow names them: [cpu:0, cpu:1].
#ifndef PS_JOB_DEVICES_H
#define PS_JOB_DEVICES_H

#include <jansson.h>
#include <stddef.h>

#include "common/file/yaml.h"

enum { PS_DEVICES_MAX = 64 };

struct ps_job_device {
    const char *kind;  // "cpu": one of the words that the list was read with
    int index;
};

struct ps_job_devices {
    struct ps_job_device *device;
    size_t n;  // 0: not said
};

// kinds ends with NULL. INVALID_ARGUMENT: not a list of "KIND:INDEX", or one that is there twice.
enum ps_code ps_job_devices_parse(const struct ps_yaml *v, const char *path, const char *const *kinds,
                                  struct ps_job_devices *to, struct ps_error *e);
void ps_job_devices_free(struct ps_job_devices *d);
json_t *ps_job_devices_json(const struct ps_job_devices *d);  // NULL: not said

#endif
