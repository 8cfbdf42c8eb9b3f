// SPDX-License-Identifier: Apache-2.0
// The list of a job's workers, which comes in pages.
//
// Receives from: psctl, psd/http. Hands to: decode. No state; any thread.
#ifndef PS_COMMON_MEMBERS_H
#define PS_COMMON_MEMBERS_H

#include "common/base/error.h"
#include "proto/paramserver.pb-c.h"

// Asks task 0 for a page; on success *reply is the caller's, by ps_msg_free.
typedef enum ps_code ps_members_page_fn(void *arg, const Paramserver__V1__WorkersRequest *request,
                                        Paramserver__V1__WorkersReply **reply, struct ps_error *e);

// All pages in one message, which is the caller's, by ps_msg_free. Errors: as of a page; RESOURCE_EXHAUSTED: no memory.
enum ps_code ps_members_ask(const char *job, ps_members_page_fn *page, void *arg, Paramserver__V1__WorkersReply **all,
                            struct ps_error *e);

#endif
