// SPDX-License-Identifier: Apache-2.0
//
// psctl's commands, each one function in a file of its own. main.c owns the table of them.
#ifndef PSCTL_PSCTL_H
#define PSCTL_PSCTL_H

#include "tools/psctl/call.h"

int command_run(struct call *call);
int command_plan(struct call *call);
int command_status(struct call *call);
int command_shards(struct call *call);
int command_vars(struct call *call);
int command_workers(struct call *call);
int command_get(struct call *call);
int command_put(struct call *call);
int command_stop(struct call *call);
int command_jobs(struct call *call);
int command_waits(struct call *call);
int command_trace(struct call *call);
int command_set(struct call *call);
int command_set_lr(struct call *call);
int command_set_mode(struct call *call);
int command_checkpoint(struct call *call);
int command_drain(struct call *call);
int command_doctor(struct call *call);
int command_check_build(struct call *call);
int command_top(struct call *call);
int command_verify(struct call *call);
int command_save(struct call *call);
int command_restore(struct call *call);
int command_tls(struct call *call);
int command_submit(struct call *call);
int command_slurm(struct call *call);
int command_queue(struct call *call);
int command_cancel(struct call *call);
int command_logs(struct call *call);
int command_cheat(struct call *call);
int command_help(struct call *call);

#endif
