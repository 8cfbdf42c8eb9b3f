// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <stdint.h>
#include <string.h>

// Bytes of the character that begins at s, as RFC 3629 has it: no overlong form, no surrogate. 0: none does.
static size_t character(const uint8_t *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;
    uint32_t point = n > 1 ? s[0] & (0x7f >> n) : s[0];
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)  // the end of the text, too
            return 0;
        point = point << 6 | (s[i] & 0x3f);
    }
    return point < least[n] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000) ? 0 : n;
}

bool ps_utf8_valid(const char *text)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t n; *s; s += n)
        if ((n = character(s)) == 0)
            return false;
    return true;
}

void ps_utf8_repair(char *text)
{
    uint8_t *s = (uint8_t *)text;
    while (*s) {
        size_t n = character(s);
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
}

// Where to cut: before the last word that begins in the first n bytes; in a word that fills half of them, before a character.
static size_t cut_at(const char *text, size_t n)
{
    size_t at = n;
    while (at > n / 2 && text[at] != ' ')
        at--;
    if (text[at] == ' ')
        return at;
    for (at = n; at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80;)
        at--;
    return at;
}

void ps_utf8_cut(const char *text, char *to, size_t size)
{
    static const char left_out[] = "...";
    size_t n = strlen(text);
    bool fits = n < size;
    n = fits ? n : cut_at(text, size - sizeof left_out);
    memcpy(to, text, n);
    strcpy(to + n, fits ? "" : left_out);
    ps_utf8_repair(to);
}
