// SPDX-License-Identifier: Apache-2.0
#include "common/base/utf8.h"

#include <stdint.h>
#include <string.h>

// Bytes of the character that begins at s, as RFC 3629 has it: no overlong form, no surrogate. 0: none does.
static size_t utf8_character_length(const uint8_t *s)
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

// Of a character of n bytes: C1 (c2 80 to c2 9f); U+2028 to U+202E and U+2066 to U+2069 (e2 80 a8 to ae, e2 81 a6 to
// a9).
static bool utf8_steers(const uint8_t *s, size_t n)
{
    if (n == 1)
        return s[0] < ' ' || s[0] == 0x7f;
    if (n == 2)
        return s[0] == 0xc2 && s[1] < 0xa0;
    return n == 3 && s[0] == 0xe2 &&
           ((s[1] == 0x80 && s[2] >= 0xa8 && s[2] <= 0xae) || (s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9));
}

bool ps_utf8_valid(const char *text)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t n; *s; s += n)
        if ((n = utf8_character_length(s)) == 0)
            return false;
    return true;
}

void ps_utf8_repair(char *text)
{
    uint8_t *s = (uint8_t *)text;
    while (*s) {
        size_t n = utf8_character_length(s);
        if (n == 0)
            *s = '?';
        s += n ? n : 1;
    }
}

void ps_utf8_plain(char *text)
{
    const uint8_t *from = (const uint8_t *)text;
    char *to = text;
    while (*from) {
        size_t n = utf8_character_length(from);
        if (n == 0 || utf8_steers(from, n)) {
            *to++ = *from == '\t' ? ' ' : '?';
        } else {
            memmove(to, from, n);
            to += n;
        }
        from += n ? n : 1;
    }
    *to = '\0';
}

// Where to cut: before the last word that begins in the first n bytes; in a word that fills half of them, before a
// character.
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
    ps_utf8_plain(to);
}

bool ps_utf8_is_plain(const char *text)
{
    char plain[256];
    if (strlen(text) >= sizeof plain)
        return false;
    strcpy(plain, text);
    ps_utf8_plain(plain);
    return strcmp(plain, text) == 0;
}
