// SPDX-License-Identifier: Apache-2.0
//
// The emulator's state is never destroyed: until the process is gone, threads of libraries begin and take locks, all of
// which it watches.
#ifndef EMU_FOREVER_H
#define EMU_FOREVER_H

template <typename T> T &emu_forever()
{
    return *new T;
}

#endif
