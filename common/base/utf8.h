// SPDX-License-Identifier: Apache-2.0
// UTF-8, which every string of the contract is: many receivers drop a whole message for one that is not.
#ifndef PS_COMMON_UTF8_H
#define PS_COMMON_UTF8_H

#include <stdbool.h>
#include <stddef.h>

bool ps_utf8_valid(const char *text);
// Turns bytes that are not UTF-8 into '?', such as those of a character that a buffer's end or a %.128s has cut.
void ps_utf8_repair(char *text);
// Makes text safe to show on a terminal and in a log: what is not UTF-8 and each character that would steer either (C0,
// DEL, C1, line and paragraph separators, the bidirectional overrides and isolates) becomes '?', a tab becomes a space.
// The text gets no longer.
void ps_utf8_plain(char *text);
bool ps_utf8_is_plain(const char *text);  // would that leave it as it is? At most 255 bytes are
// Copies text and makes it plain. What to[size], size >= 8, does not hold is left out, from a word on, and "..." says
// so.
void ps_utf8_cut(const char *text, char *to, size_t size);

#endif
