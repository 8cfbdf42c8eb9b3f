// SPDX-License-Identifier: Apache-2.0
#include "common/tls/identity.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/base/utf8.h"

static const struct role {
    enum ps_role role;
    const char *name, *host;
} roles[] = {
    {PS_ROLE_PSD, "psd", "psd.paramserver"},
    {PS_ROLE_WORKER, "worker", "worker.paramserver"},
    {PS_ROLE_ADMIN, "admin", "admin.paramserver"},
};
enum { ROLES = sizeof roles / sizeof *roles };

static const struct role *role_of(enum ps_role role)
{
    size_t i = 0;
    while (i + 1 < ROLES && roles[i].role != role)
        i++;
    return &roles[i];
}

const char *ps_role_name(enum ps_role role)
{
    return role_of(role)->name;
}

const char *ps_role_host(enum ps_role role)
{
    return role_of(role)->host;
}

enum ps_role ps_role_find(const char *name)
{
    for (size_t i = 0; i < ROLES; i++)
        if (strcmp(roles[i].name, name) == 0)
            return roles[i].role;
    return 0;
}

void ps_roles_text(unsigned of, char text[PS_ROLES_TEXT])
{
    size_t used = 0;
    snprintf(text, PS_ROLES_TEXT, "none");
    for (size_t i = 0; i < ROLES; i++)
        if (of & roles[i].role)
            used += (size_t)snprintf(text + used, PS_ROLES_TEXT - used, "%s%s", used ? " or " : "", roles[i].name);
}

bool ps_user_is_plain(const char *text)
{
    return *text && strlen(text) <= PS_USER_MAX && ps_utf8_is_plain(text);
}
