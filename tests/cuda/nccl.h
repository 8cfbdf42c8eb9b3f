// SPDX-License-Identifier: Apache-2.0
//
// Collectives: the n-th call of each rank of a communicator meet, and must be the same. Their data moves once every
// rank's is at the head of its stream; sums are taken in the order of the ranks. Where some ranks are other processes'
// (ranks.h), each tells the others its call and its data then, and takes theirs.
#ifndef EMU_NCCL_H
#define EMU_NCCL_H

#include <string>

// Nothing can run: is it a collective that a rank can never come to? The sentence says of which, also if one still
// may.
bool emu_collectives_stuck(std::string *sentence);
// Has one waited for a rank while more operations ended than emu_config allows?
bool emu_collectives_late(std::string *sentence);
// Does one that another rank of this process has begun wait for a rank on this device? The sentence says for which.
bool emu_collectives_await(int device, std::string *sentence);
// Does one wait for ranks of other processes, which may come at any time?
bool emu_collectives_abroad();
void emu_collectives_reset();

#endif
