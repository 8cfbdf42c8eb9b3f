// SPDX-License-Identifier: Apache-2.0
//
// What the functions of the emulated runtime share: the lock, what was configured, errors.
#ifndef EMU_RUNTIME_H
#define EMU_RUNTIME_H

#include "tests/cuda/emulator.h"
#include "tests/cuda/report.h"
#include <atomic>
#include <memory>

// Every call of the runtime holds the one lock of the emulator; calls within calls are fine.
struct emu_entry {
    emu_entry();
    ~emu_entry();
};

bool emu_entry_held();

// Lets others in until something has changed. false: nothing did for a minute.
bool emu_entry_wait();
void emu_changed();

// Lets others in while a function of the program runs.
void emu_entry_leave();
void emu_entry_return();

// A thread of the host, as far as others may hope that it calls.
struct emu_thread {
    std::atomic<bool> gone{false};
    std::shared_ptr<struct emu_operation> waits_for;  // in the emulator, for others to end it
};
std::shared_ptr<emu_thread> emu_thread_me();

const struct emu_config &emu_config_now();
struct emu_counts *emu_count();

int emu_device_now();  // of this thread
void emu_device_uuid(int device, cudaUUID_t *uuid);

// Remembers an error for cudaGetLastError, and hands it on.
cudaError_t emu_return(cudaError_t error);
// What every call on this device returns: cudaErrorUnknown after an error that the emulator has found, an error of a
// kernel that was planned to fail, else cudaSuccess.
cudaError_t emu_device_state(int device);
void emu_device_breaks(int device, cudaError_t error);

// The task whose host function this thread runs, 0: none.
uint32_t emu_callback_task();
void emu_callback_begin(uint32_t task);
void emu_callback_end();

#endif
