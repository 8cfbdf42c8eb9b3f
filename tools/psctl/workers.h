// SPDX-License-Identifier: Apache-2.0
//
// A job's members, as the control task knows them.
#ifndef PSCTL_WORKERS_H
#define PSCTL_WORKERS_H

#include "proto/paramserver.pb-c.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"

// ps_msg_free() frees *reply.
enum ps_code workers_ask(struct cluster *c, const char *job, Paramserver__V1__WorkersReply **reply, struct ps_error *e);
// Initializes a table for workers; adds those of a job. job: its name; NULL: the column is left out.
void workers_table(struct table *t);
void workers_rows(struct table *t, const char *job, const Paramserver__V1__WorkersReply *reply);

#endif
