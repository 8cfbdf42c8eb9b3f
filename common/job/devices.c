// SPDX-License-Identifier: Apache-2.0
#include "common/job/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

static enum ps_code devices_expected(const struct ps_yaml *v, const char *path, const char *const *kinds,
                                     struct ps_error *e)
{
    char text[64] = "";
    for (size_t i = 0; kinds[i] && strlen(text) + strlen(kinds[i]) + 5 < sizeof text; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i ? " or " : "", kinds[i]);
    return ps_yaml_expected(v, path, e, "a device, as in %s:0, of kind %s", kinds[0], text);
}

// cuda is another name of gpu.
static const char *devices_kind(const char *const *kinds, const char *name, size_t size)
{
    if (size == 4 && strncmp(name, "cuda", 4) == 0)
        return devices_kind(kinds, "gpu", 3);
    for (size_t i = 0; kinds[i]; i++)
        if (strlen(kinds[i]) == size && strncmp(kinds[i], name, size) == 0)
            return kinds[i];
    return NULL;
}

static enum ps_code devices_take(const struct ps_yaml *v, const char *path, const char *const *kinds,
                                 struct ps_job_devices *to, struct ps_error *e)
{
    const char *text, *colon;
    struct ps_job_device d = {NULL, 0};
    if (ps_yaml_string(v, path, &text, e))
        return e->code;
    colon = strchr(text, ':');
    const size_t size = colon ? (size_t)(colon - text) : strlen(text);
    d.kind = devices_kind(kinds, text, size);
    const bool numbered =
        colon && colon[1] && strlen(colon + 1) < 4 && strspn(colon + 1, "0123456789") == strlen(colon + 1);
    if (!d.kind || (colon && !numbered))
        return devices_expected(v, path, kinds, e);
    d.index = numbered ? atoi(colon + 1) : 0;
    for (size_t i = 0; i < to->n; i++)
        if (to->device[i].kind == d.kind && to->device[i].index == d.index)
            return ps_yaml_fail(v, e, "%s: %s is there twice: each replica needs a device of its own", path, text);
    to->device[to->n++] = d;
    return PS_OK;
}

enum ps_code ps_job_devices_parse(const struct ps_yaml *v, const char *path, const char *const *kinds,
                                  struct ps_job_devices *to, struct ps_error *e)
{
    ps_job_devices_free(to);
    if (v->kind == PS_YAML_LIST && !v->first)
        return ps_yaml_fail(v, e, "%s: the list is empty: expected a device for each replica, as in [%s:0, %s:1]", path,
                            kinds[0], kinds[0]);
    if (v->kind != PS_YAML_LIST)
        return ps_yaml_expected(v, path, e, "a list of devices, as in [%s:0, %s:1]", kinds[0], kinds[0]);
    to->device = ps_alloc(PS_DEVICES_MAX * sizeof *to->device);
    for (const struct ps_yaml *item = v->first; item; item = item->next) {
        if (to->n == PS_DEVICES_MAX)
            return ps_yaml_fail(v, e, "%s: there are more than %d devices", path, PS_DEVICES_MAX);
        if (devices_take(item, path, kinds, to, e))
            return e->code;
    }
    return PS_OK;
}

void ps_job_devices_free(struct ps_job_devices *d)
{
    free(d->device);
    *d = (struct ps_job_devices){0};
}

json_t *ps_job_devices_json(const struct ps_job_devices *d)
{
    json_t *list = d->n ? json_array() : NULL;
    for (size_t i = 0; i < d->n; i++)
        json_array_append_new(list, json_sprintf("%s:%d", d->device[i].kind, d->device[i].index));
    return list;
}
