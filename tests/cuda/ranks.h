// SPDX-License-Identifier: Apache-2.0
//
// What the ranks of a communicator say to those of other processes: which collective each calls next, and its data, in
// memory that they share. The communicator's id names it, by a process and one of its open files: nothing of it is left
// when the processes have ended, however they did.
//
// A rank's n-th call and its data stay until all ranks have taken them: it may call two more meanwhile.
//
// Receives from: nccl.cc. Threads: all functions are called with the emulator's lock.
#ifndef EMU_RANKS_H
#define EMU_RANKS_H

#include "tests/cuda/include/cuda_runtime.h"
#include <stddef.h>
#include <stdint.h>
#include <string>
#include <vector>

enum { EMU_RANKS_MAX = 32 };

struct emu_rank_call {
    int kind, type, op, root;
    uint64_t count, bytes;  // bytes: of its data
    char at[96];            // where the program calls it
};

struct emu_ranks;

// An id that no other has; false: there is no memory.
bool emu_ranks_name(char *id, size_t size);
// NULL: no process has made it, or it has ended.
emu_ranks *emu_ranks_open(const std::string &id);
// false: somebody is this rank, or says another number of ranks.
bool emu_ranks_join(emu_ranks *r, int rank, int ranks, const cudaUUID_t &device);
bool emu_ranks_complete(const emu_ranks *r);
bool emu_ranks_share_device(const emu_ranks *r);  // two that have joined
bool emu_ranks_one_is_gone(const emu_ranks *r);   // its process has ended
// It has called its first collective; have all?
void emu_ranks_begin(emu_ranks *r, int rank);
bool emu_ranks_have_begun(const emu_ranks *r);
// What it has done last, for people; of which process it is.
void emu_ranks_note(emu_ranks *r, int rank, const std::string &what);
std::string emu_ranks_text(const emu_ranks *r, int rank);

// number: from 1. false: not yet, as others still need what was there before.
bool emu_ranks_call(emu_ranks *r, int rank, uint64_t number, const emu_rank_call &call, const void *data);
bool emu_ranks_has_called(const emu_ranks *r, int rank, uint64_t number);
emu_rank_call emu_ranks_call_of(const emu_ranks *r, int rank, uint64_t number);
// false: its process has ended.
bool emu_ranks_data(emu_ranks *r, int rank, uint64_t number, std::vector<char> *data);
void emu_ranks_take(emu_ranks *r, int rank, uint64_t number);

void emu_ranks_reset();

#endif
