// SPDX-License-Identifier: Apache-2.0
//
// What commands take as words: each is parsed whole or refused with a sentence that says what was expected.
#ifndef PSCTL_OPERAND_H
#define PSCTL_OPERAND_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

enum { OPERAND_NAME_MAX = 64 };

// Does the operand name standard output, as "-" or as a file that it goes to? What is shown beside would be in it.
bool operand_is_stdout(const char *path);
// A finite number.
enum ps_code operand_number(const char *text, double *value, struct ps_error *e);
// "NAME=NUMBER".
enum ps_code operand_assignment(const char *text, char name[OPERAND_NAME_MAX], double *value, struct ps_error *e);
// "ps:3", "worker:3": the index after kind and a colon.
enum ps_code operand_task(const char *text, const char *kind, uint32_t *index, struct ps_error *e);
// "512M", "8G": a number of bytes from 1, with K, M, G, T as psd's --memory takes it.
enum ps_code operand_bytes(const char *text, uint64_t *bytes, struct ps_error *e);
// "A:B", either may be missing: rows A to B - 1 of `rows`. OUT_OF_RANGE: not at least one of them.
enum ps_code operand_rows(const char *text, uint64_t rows, uint64_t *first, uint64_t *end, struct ps_error *e);

#endif
