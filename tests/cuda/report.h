// SPDX-License-Identifier: Apache-2.0
//
// Errors that the emulator finds: one sentence each, the first one counts.
#ifndef EMU_REPORT_H
#define EMU_REPORT_H

#include "tests/cuda/include/cuda_runtime.h"
#include <string>

// A place in the program's code, small enough to be kept for each byte of memory.
typedef uint32_t emu_pc;
emu_pc emu_pc_of(const void *return_address);

std::string emu_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string emu_place_text(emu_place at);  // "file.cu:12"
// "file.cu:12", by addr2line; "" if that is not here or knows nothing.
std::string emu_pc_text(emu_pc pc);
// " at file.cu:12" or "".
std::string emu_pc_suffix(emu_pc pc);

// Keeps the first sentence and tells the test's handler; aborts where there is none.
void emu_fail(const std::string &sentence);
bool emu_failed();
void emu_report_reset();

#endif
