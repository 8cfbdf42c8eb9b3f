// SPDX-License-Identifier: Apache-2.0
//
// Numbers that people write, on command lines and in job files.
#ifndef PS_COMMON_PARSE_H
#define PS_COMMON_PARSE_H

#include <stdbool.h>
#include <stdint.h>

// Decimal digits, at least one, up to *end. False: there is none, or they are more than 64 bits.
bool ps_parse_digits(const char *text, const char **end, uint64_t *to);
// A whole number from min to max, of a sign and decimal digits alone.
bool ps_parse_number(const char *text, long min, long max, long *to);
// A number of bytes: "65536", "512M", "8G", "8GiB", "64k"; units are powers of 1024, up to T. False: it is none, or 0,
// or more than 64 bits.
bool ps_parse_bytes(const char *text, uint64_t *to);

#endif
