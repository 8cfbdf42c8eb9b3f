// SPDX-License-Identifier: Apache-2.0
// UTF-8, which every string of the contract is: many receivers drop a whole message for one that is not.
#ifndef PS_COMMON_UTF8_H
#define PS_COMMON_UTF8_H

#include <stdbool.h>

bool ps_utf8_valid(const char *text);
// Turns bytes that are not UTF-8 into '?', such as those of a character that a buffer's end or a %.128s has cut.
void ps_utf8_repair(char *text);

#endif
