// SPDX-License-Identifier: Apache-2.0
//
// Changing one block: by a rule, by addition, by overwriting. All: the block's lock and the job's cut
// (shared) are held, between psd_block_begin and psd_block_commit.
//
// Receives from: service, round. Hands to: storage, the rules of common/. Threads: any.
#ifndef PSD_UPDATE_H
#define PSD_UPDATE_H

#include "psd/shard.h"

// The whole block from payload bytes at offset; counts a step of the rule.
void psd_update_push(const struct psd_job *job, const struct psd_variable *v, struct psd_block *b, struct psd_page *out,
                     const struct ps_rope *payload, size_t offset);
void psd_update_add(int dtype, const struct psd_block *b, struct psd_page *out, const struct ps_rope *payload,
                    size_t offset);
void psd_update_put(const struct psd_block *b, struct psd_page *out, const struct ps_rope *payload, size_t offset);

// Ends the job: sets its failure text unless it has one (false). What waits in it is collected at the next tick at the
// latest.
bool psd_job_fail(struct psd_job *job, const char *reason);

#endif
