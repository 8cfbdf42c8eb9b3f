// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/caller.h"

#include <stdio.h>
#include <string.h>

#include "proto/paramserver.pb-c.h"

json_t *caller_worker(uint32_t worker)
{
    return worker ? json_sprintf("worker %u", worker - 1) : NULL;
}

json_t *caller_name(uint32_t worker, const ProtobufCBinaryData *client)
{
    char text[32] = "client ";
    static const uint8_t none[16];
    size_t len = strlen(text);
    if (worker)
        return caller_worker(worker);
    if (client->len == sizeof none && memcmp(client->data, none, sizeof none) == 0)
        return NULL;
    for (size_t i = 0; i < client->len && i < 4; i++)
        len += (size_t)snprintf(text + len, sizeof text - len, "%02x", client->data[i]);
    return json_string(text);
}

const char *caller_method(int method)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&paramserver__v1__method__descriptor, method);
    return v ? v->name : NULL;
}
