// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "workerd/data/data_internal.h"

size_t wk_text_mark(const void *text, size_t size)
{
    static const uint8_t mark[] = {0xef, 0xbb, 0xbf};
    return size >= sizeof mark && memcmp(text, mark, sizeof mark) == 0 ? sizeof mark : 0;
}

char *wk_text_copy(const char *text, size_t size)
{
    char *copy = ps_alloc(size + 1);
    if (size)
        memcpy(copy, text, size);
    return copy;
}

// Where the word is in the table, or where it would be.
static size_t vocabulary_slot(const struct wk_vocabulary *v, const char *word, size_t size)
{
    size_t at = (size_t)ps_hash(PS_HASH_SEED, word, size) & (v->slots - 1);
    while (v->slot[at]) {
        const char *other = v->word[v->slot[at] - 1];
        if (strncmp(other, word, size) == 0 && other[size] == '\0')
            break;
        at = (at + 1) & (v->slots - 1);
    }
    return at;
}

static void vocabulary_grow(struct wk_vocabulary *v)
{
    v->slots = v->slots ? 2 * v->slots : 64;
    free(v->slot);
    v->slot = ps_alloc(v->slots * sizeof *v->slot);
    v->word = ps_realloc(v->word, v->slots * sizeof *v->word);
    for (size_t i = 0; i < v->n; i++)
        v->slot[vocabulary_slot(v, v->word[i], strlen(v->word[i]))] = (uint32_t)i + 1;
}

int32_t wk_vocabulary_find(struct wk_vocabulary *v, const char *word, size_t size)
{
    if (2 * (v->n + 1) > v->slots)
        vocabulary_grow(v);
    size_t at = vocabulary_slot(v, word, size);
    if (v->slot[at])
        return (int32_t)v->slot[at] - 1;
    if (v->fixed || v->n == INT32_MAX / 4)
        return -1;
    v->word[v->n++] = wk_text_copy(word, size);
    v->slot[at] = (uint32_t)v->n;
    return (int32_t)v->n - 1;
}

static enum ps_code vocabulary_parse(struct wk_vocabulary *v, const char *text, size_t size, struct ps_error *e)
{
    const char *end = text + size;
    text += wk_text_mark(text, size);
    for (uint64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        if (stop > text && stop[-1] == '\r')
            stop--;
        if (memchr(text, '\0', (size_t)(stop - text)))
            return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 " has a zero byte, expected a word", line);
        if (wk_vocabulary_find(v, text, (size_t)(stop - text)) != (int32_t)line - 1)
            return ps_fail(e, PS_INVALID_ARGUMENT, "line %" PRIu64 " is \"%.*s\" a second time", line,
                           (int)(stop - text < 60 ? stop - text : 60), text);
        text = next;
    }
    return v->n ? PS_OK : ps_fail(e, PS_INVALID_ARGUMENT, "the file is empty, expected a word per line");
}

enum ps_code wk_vocabulary_load(struct wk_vocabulary *v, const char *path, struct ps_error *e)
{
    uint8_t *bytes;
    size_t size;
    if (wk_file_read(path, INT32_MAX, &bytes, &size, e))
        return e->code;
    enum ps_code code = vocabulary_parse(v, (const char *)bytes, size, e);
    free(bytes);
    v->fixed = true;
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

void wk_vocabulary_of(struct wk_vocabulary *v, const struct nn_words *words)
{
    for (int64_t i = 0; i < words->n; i++)
        wk_vocabulary_find(v, words->word[i], strlen(words->word[i]));
    v->fixed = true;
}

uint64_t wk_vocabulary_hash(uint64_t h, const struct wk_vocabulary *v)
{
    for (size_t i = 0; i < v->n; i++)
        h = ps_hash(h, v->word[i], strlen(v->word[i]) + 1);
    return ps_hash(h, "\xff", 1);  // which no word in UTF-8 has
}

void wk_vocabulary_fini(struct wk_vocabulary *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->word[i]);
    free(v->word);
    free(v->slot);
    *v = (struct wk_vocabulary){0};
}
