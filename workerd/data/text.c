// SPDX-License-Identifier: Apache-2.0
//
// Text for language models: tokens, and windows of so many of them as x, with the token that follows each as y. Tokens
// are the text's characters (Unicode code points), numbered in their order among those of the training text; or its
// words, what stands between blanks, with the numbers that a vocabulary file gives them.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "workerd/data/data_internal.h"

enum { CODE_POINTS = 0x110000 };

// ---- characters ---------------------------------------------------------------------------------------------------

// The code point that begins at text, which has size bytes, and how many it takes; 0: it is not UTF-8.
static size_t text_decode(const uint8_t *text, size_t size, uint32_t *point)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *text < 0x80 ? 1 : *text >> 5 == 6 ? 2 : *text >> 4 == 14 ? 3 : *text >> 3 == 30 ? 4 : 0;
    if (n == 0 || n > size)
        return 0;
    *point = n == 1 ? *text : *text & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if (text[i] >> 6 != 2)
            return 0;
        *point = *point << 6 | (text[i] & 0x3f);
    }
    return *point >= least[n] && *point < CODE_POINTS && *point >> 11 != 27 ? n : 0;  // 27: surrogates
}

static enum ps_code text_take_characters(const uint8_t *text, size_t size, struct wk_text *t, struct ps_error *e)
{
    for (size_t at = wk_text_mark(text, size), n; at < size; at += n) {
        uint32_t point;
        n = text_decode(text + at, size - at, &point);
        if (n == 0)
            return ps_fail(e, PS_INVALID_ARGUMENT, "byte %zu is 0x%02x, expected UTF-8", at, text[at]);
        if (!t->known && !t->code[point])
            t->code[point] = 1;
        if (t->known && !t->code[point])
            return ps_fail(e, PS_INVALID_ARGUMENT, "byte %zu: the character U+%04X is not in the training text", at,
                           point);
        t->token[t->tokens++] = (int32_t)point;
    }
    return PS_OK;
}

// The first text says which characters there are; then they get their numbers.
static enum ps_code text_number_characters(const uint8_t *text, size_t size, struct wk_text *t, struct ps_error *e)
{
    if (!t->code)
        t->code = ps_alloc(CODE_POINTS * sizeof *t->code);
    if (text_take_characters(text, size, t, e))
        return e->code;
    for (uint32_t point = 0; !t->known && point < CODE_POINTS; point++)
        if (t->code[point])
            t->code[point] = ++t->classes;
    t->known = true;
    for (uint64_t i = 0; i < t->tokens; i++)
        t->token[i] = t->code[t->token[i]] - 1;
    return PS_OK;
}

// ---- words --------------------------------------------------------------------------------------------------------

static bool text_is_blank(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static enum ps_code text_take_word(const uint8_t *word, size_t n, uint64_t line, struct wk_text *t, struct ps_error *e)
{
    bool zero = memchr(word, '\0', n) != NULL;
    int32_t number = zero ? -1 : wk_vocabulary_find(&t->vocabulary, (const char *)word, n);
    if (number < 0)
        number = wk_vocabulary_find(&t->vocabulary, "[UNK]", 5);
    if (number < 0)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "line %" PRIu64 ": \"%.*s\" is not in the vocabulary, nor is \"[UNK]\" for such words", line,
                       (int)(n < 60 ? n : 60), (const char *)word);
    t->token[t->tokens++] = number;
    return PS_OK;
}

static enum ps_code text_take_words(const uint8_t *text, size_t size, struct wk_text *t, struct ps_error *e)
{
    uint64_t line = 1;
    for (size_t at = wk_text_mark(text, size), start; at < size;) {
        for (; at < size && text_is_blank(text[at]); at++)
            line += text[at] == '\n';
        for (start = at; at < size && !text_is_blank(text[at]);)
            at++;
        if (at > start && text_take_word(text + start, at - start, line, t, e))
            return e->code;
    }
    return PS_OK;
}

enum ps_code wk_text_parse(const uint8_t *text, size_t size, struct wk_text *t, struct ps_error *e)
{
    t->tokens = 0;
    t->token = wk_array(size, 1, sizeof *t->token, e);
    if (!t->token)
        return PS_RESOURCE_EXHAUSTED;
    if (!t->vocabulary.n)
        return text_number_characters(text, size, t, e);
    t->classes = (int32_t)t->vocabulary.n;
    return text_take_words(text, size, t, e);
}

void wk_text_fini(struct wk_text *t)
{
    wk_vocabulary_fini(&t->vocabulary);
    free(t->code);
    free(t->token);
}

// ---- the source ---------------------------------------------------------------------------------------------------

static enum ps_code text_make_source(const struct ps_job_data *spec, const char *path, struct wk_text *t,
                                     struct wk_part *part, struct ps_error *e)
{
    uint64_t window = (uint64_t)spec->window, stride = (uint64_t)(spec->stride ? spec->stride : spec->window);
    if (t->tokens <= window)
        return ps_fail(e, PS_INVALID_ARGUMENT,
                       "%" PRIu64 " tokens, expected more than data.window, %" PRIu64 ": the last has a successor",
                       t->tokens, window);
    struct wk_block *block = wk_block_of(path, t->token, t->tokens * sizeof *t->token);
    struct wk_field field = {
        .block = block, .stride = stride * sizeof *t->token, .kind = 'i', .width = sizeof *t->token};
    t->token = NULL;
    part->source = wk_records_create((t->tokens - 1 - window) / stride + 1);
    wk_records_own(part->source, block);
    wk_records_add(part->source, "x", field, &window, 1)->classes = t->classes;
    field.offset = sizeof *t->token;
    struct wk_column *y = wk_records_add(part->source, "y", field, &window, 1);
    y->y = true;
    y->classes = t->classes;
    return PS_OK;
}

static enum ps_code text_open_part(const struct ps_job_data *spec, const char *path, struct wk_text *t,
                                   struct wk_part *part, struct ps_error *e)
{
    uint8_t *bytes;
    size_t size;
    if (wk_file_read(path, SIZE_MAX, &bytes, &size, e))
        return e->code;
    enum ps_code code = wk_text_parse(bytes, size, t, e);
    free(bytes);
    if (code == PS_OK)
        code = text_make_source(spec, path, t, part, e);
    free(t->token);
    t->token = NULL;
    return code == PS_OK ? PS_OK : ps_error_prefix(e, "%s", path);
}

// Of characters or words, in the order of their numbers.
static uint64_t text_hash_tokens(const struct wk_text *t)
{
    uint64_t hash = PS_HASH_SEED;
    if (t->vocabulary.n)
        return wk_vocabulary_hash(hash, &t->vocabulary);
    for (uint32_t point = 0; point < CODE_POINTS; point++)
        if (t->code[point])
            hash = ps_hash(hash, &point, sizeof point);
    return hash;
}

enum ps_code wk_text_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e)
{
    struct wk_text t = {0};
    (void)seed;
    enum ps_code code = spec->vocabulary ? wk_vocabulary_load(&t.vocabulary, spec->vocabulary, e) : PS_OK;
    if (code == PS_OK)
        code = text_open_part(spec, spec->path, &t, &data->train, e);
    if (code == PS_OK)
        data->numbering = text_hash_tokens(&t);
    if (code == PS_OK && spec->test_path)
        code = text_open_part(spec, spec->test_path, &t, &data->test, e);
    wk_text_fini(&t);
    return code;
}
