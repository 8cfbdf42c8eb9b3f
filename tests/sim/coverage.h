// SPDX-License-Identifier: Apache-2.0
//
// Which calls, with which of their options, have been made while something went wrong: counted over all trials of a
// run, printed as a table, and compared with the list of those that have to be among them.
#ifndef SIM_COVERAGE_H
#define SIM_COVERAGE_H

#include "tests/sim/sim.h"

// Notes a request as a psd takes it up. mode: the job's update, for people: "async", "sync with backup".
void sim_coverage_note(const struct sim_seen *seen, const char *mode);
// One line per call, option and mode with its count. Returns how many of the required pairs have never been seen, each
// of which it names.
unsigned sim_coverage_print(void);

#endif
