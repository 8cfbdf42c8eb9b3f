// SPDX-License-Identifier: Apache-2.0
//
// A cluster in a few sentences, before the tables: is it well, what can be lost, which worker is worst, what to type
// next. As psd's status page says it, but of all ps tasks.
#ifndef PSCTL_WORDS_H
#define PSCTL_WORDS_H

#include "common/summary/summary.h"
#include "tools/common/table.h"
#include "tools/psctl/cluster.h"

// Of what the ps tasks have answered to Status; asks the control task for the workers and waits of the jobs. only: of
// one job; NULL: of all.
void words_find(struct cluster *c, const struct answer *answers, const char *only, struct ps_summary *words);
// The first line in the colour of its level, where standard output is a terminal and NO_COLOR is not set.
void words_print(const struct ps_summary *words);
// For programs: a row. columns must outlive the table, and do.
void words_table(const struct ps_summary *words, struct table *t);

#endif
