// SPDX-License-Identifier: Apache-2.0
#include "common/wire/members.h"

#include <stdlib.h>

#include "common/base/alloc.h"
#include "common/wire/decode.h"
#include "common/wire/wire.h"

enum { MEMBERS_BYTES_MAX = 1 << 30 };

// One message after the other is a message with the members of both.
static enum ps_code members_append(Paramserver__V1__WorkersReply **all, const Paramserver__V1__WorkersReply *more,
                                   struct ps_error *e)
{
    const size_t first = paramserver__v1__workers_reply__get_packed_size(*all);
    const size_t bytes = first + paramserver__v1__workers_reply__get_packed_size(more);
    uint8_t *packed = ps_try_alloc(bytes);
    ProtobufCMessage *both = NULL;
    if (packed) {
        paramserver__v1__workers_reply__pack(*all, packed);
        paramserver__v1__workers_reply__pack(more, packed + first);
        ps_decode(&paramserver__v1__workers_reply__descriptor, packed, bytes, MEMBERS_BYTES_MAX, &both);
    }
    free(packed);
    if (!both)
        return ps_no_memory(e, "a list of workers");
    ps_msg_free(&(*all)->base);
    *all = (Paramserver__V1__WorkersReply *)both;
    return PS_OK;
}

enum ps_code ps_members_ask(const char *job, ps_members_page_fn *page, void *arg, Paramserver__V1__WorkersReply **all,
                            struct ps_error *e)
{
    Paramserver__V1__WorkersRequest request = PARAMSERVER__V1__WORKERS_REQUEST__INIT;
    Paramserver__V1__WorkersReply *list, *more;
    request.job = (char *)job;
    enum ps_code code = page(arg, &request, &list, e);
    if (code)
        return code;
    for (bool any = true; any && code == PS_OK && list->n_members < list->total;) {
        request.skip = (uint32_t)list->n_members;
        code = page(arg, &request, &more, e);
        if (code)
            break;
        any = more->n_members > 0;
        code = members_append(&list, more, e);
        ps_msg_free(&more->base);
    }
    if (code)
        ps_msg_free(&list->base);
    else
        *all = list;
    return code;
}
