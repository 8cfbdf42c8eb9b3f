// SPDX-License-Identifier: Apache-2.0
//
// Programs for the emulated GPUs: right ones, and ones with an error planted in each.
#ifndef EMU_EXAMPLES_H
#define EMU_EXAMPLES_H

#include "tests/cuda/emulator.h"

struct right_example {
    const char *name;
    int devices;
    bool (*run)();  // is the result right?
};
extern const struct right_example right_examples[];  // until a NULL name

// Of libraries.cu.
bool run_products();
bool run_convolutions();
bool run_collectives();

struct planted_error {
    const char *name;
    int devices;
    void (*run)();
    const char *says;  // part of the sentence
};
extern const struct planted_error planted_errors[];

// The lines of planted.cu that the sentence names, set by the program that ran last; 0: none.
extern int planted_lines[2];

// Programs that meet a fault which was asked for.
struct planned_fault {
    const char *name;
    struct emu_config config;
    const char *(*run)();  // what is wrong, NULL: nothing
    const char *says;      // part of the sentence that the emulator says, NULL: none
};
extern const struct planned_fault planned_faults[];

// In which order some threads of a block, some streams ran: a number for each order.
unsigned order_of_threads();
unsigned order_of_streams();

#endif
