// SPDX-License-Identifier: Apache-2.0
//
// Capture of streams into graphs. A graph has one branch per captured stream; at each launch the branches run beside
// each other, as streams that no program has, held together by what the captured events said.
#ifndef EMU_GRAPH_H
#define EMU_GRAPH_H

#include "tests/cuda/stream.h"

// Instead of running it.
void emu_capture_add(emu_stream *stream, emu_work work);
// The stream waits for an event, and one of the two is captured.
cudaError_t emu_capture_wait(emu_stream *stream, const emu_event *event, emu_place at);

// Is this call an error now, since streams are captured? stream: the one that it is about, NULL: none, as cudaMalloc.
bool emu_capture_forbids(emu_place at, const char *call, const emu_stream *stream);
bool emu_capture_forbids_event(emu_place at, const char *call, const emu_event *event);
bool emu_capture_forbids_default(const emu_stream *stream, emu_place at, const char *call);

void emu_graphs_reset();

#endif
