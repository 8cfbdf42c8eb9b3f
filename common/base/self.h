// SPDX-License-Identifier: Apache-2.0
//
// How this program was started, and starting it once more.
// Where a loader runs it that was told its name, as the launchers of a bundle do, the
// kernel knows the loader alone, and its words come before the program's own.
#ifndef PS_COMMON_SELF_H
#define PS_COMMON_SELF_H

// What each main calls first, with its argc. A standard descriptor that is closed would be the number of the next file
// or socket that is opened: so it is opened as something that refuses.
void ps_self_begin(int argc);
// The words with which execv("/proc/self/exe") runs this program with those arguments (as many as there are before
// NULL, without the program's name); freed by the caller, with what they point to, at once.
char **ps_self_words(const char *const *args);

#endif
