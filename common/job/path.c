// SPDX-License-Identifier: Apache-2.0
#include "common/job/path.h"

#include "common/base/alloc.h"
#include "common/file/yaml.h"

char *ps_job_resolve_path(const struct ps_yaml *v, const char *path)
{
    return ps_printf("%.*s%s", (int)ps_yaml_folder(v, path), v->source, path);
}
