// SPDX-License-Identifier: Apache-2.0
//
// IntegerLookup and StringLookup: the number of a term in a vocabulary. First the mask token has a place, where numbers
// are given as they are, then what is not in the vocabulary, then the terms in their order.
//
// Strings are no tensors: an input of strings is one of whole numbers, which the reader of the data makes of words by
// the vocabulary (nn_port.words). From there StringLookup is IntegerLookup.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "workerd/nn/layers/categories.h"
#include "workerd/nn/ops/binary.h"
#include "workerd/nn/ops/lookup.h"
#include "workerd/nn/ops/noise.h"

struct lookup {
    int mode;
    bool pads;      // to max_tokens
    int64_t depth;  // of vectors; of numbers, what they are below
    int32_t other, others;
    int64_t n;           // keys
    int32_t *key;        // n keys, then n values; in the same memory as this
    float *idf;          // (depth)
    int32_t first;       // number of the first term
    bool masks, closed;  // closed: what is not in the vocabulary has no number
};

static const char *const modes[] = {"int", "one_hot", "multi_hot", "count", "tf_idf", NULL};

#define KEYS                                                                                                        \
    {"vocabulary", NN_KEY_BY_BUILD}, {"num_oov_indices", NN_KEY_BY_BUILD}, {"max_tokens", NN_KEY_BY_BUILD},         \
        {"mask_token", NN_KEY_BY_BUILD}, {"oov_token", NN_KEY_BY_BUILD}, {"idf_weights", NN_KEY_BY_BUILD},          \
        {"output_mode", NN_KEY_CHOICE, NN_AT(struct lookup, mode), .words = modes},                                 \
        {"pad_to_max_tokens", NN_KEY_BOOL, NN_AT(struct lookup, pads)}, {"vocabulary_dtype", NN_KEY_NONE},          \
        {"vocabulary_size", NN_KEY_NONE}, {"has_input_vocabulary", NN_KEY_NONE}, {"invert", NN_KEY_REFUSED},        \
        {"sparse", NN_KEY_REFUSED}, {"salt", NN_KEY_REFUSED}, {"oov_method", NN_KEY_ONLY_WORD, .word = "floormod"}, \
    {                                                                                                               \
        NULL                                                                                                        \
    }
static const struct nn_key integer_keys[] = {KEYS};
static const struct nn_key string_keys[] = {{"encoding", NN_KEY_ONLY_WORD, .word = "utf-8"}, KEYS};

// ---- build --------------------------------------------------------------------------------------------------------

// The terms, without the tokens that Keras may have put before them.
struct lookup_terms {
    struct nn_json at;
    size_t first, n;
};

static bool lookup_is_string(const struct nn_building *b)
{
    return b->layer->class == &nn_layer_string_lookup;
}

// The token of the config; absent: Keras's own.
static json_t *lookup_token(const struct nn_building *b, const char *key)
{
    json_t *token = json_object_get(b->config->value, key);
    if (token || strcmp(key, "oov_token") != 0)
        return json_is_null(token) ? NULL : json_incref(token);
    return lookup_is_string(b) ? json_string("[UNK]") : json_integer(-1);
}

static bool lookup_has_specials(const struct nn_building *b, const json_t *list, bool masks, int64_t others)
{
    json_t *mask = lookup_token(b, "mask_token"), *oov = lookup_token(b, "oov_token");
    bool all = json_array_size(list) > (size_t)(masks + others);
    for (int64_t i = 0; i < masks + others && all; i++)
        all = json_equal(json_array_get(list, (size_t)i), masks && i == 0 ? mask : oov);
    json_decref(mask);
    json_decref(oov);
    return all;
}

static enum ps_code lookup_read_terms(struct nn_building *b, struct lookup *c, struct lookup_terms *t,
                                      struct ps_error *e)
{
    struct nn_json mask = nn_json_member(b->config, "mask_token"), oov = nn_json_member(b->config, "num_oov_indices");
    struct nn_json most = nn_json_member(b->config, "max_tokens");
    int64_t others = 1, depth = 0;
    size_t n;
    t->at = nn_json_member(b->config, "vocabulary");
    if (!nn_json_given(&t->at))
        return nn_json_expected(&t->at, e,
                                "a list of terms: a vocabulary that adapt() has found is in a .keras file, not in "
                                "model.to_json()");
    if (nn_json_array(&t->at, &n, e) || (oov.value && nn_json_int(&oov, 0, NN_MAX_ELEMENTS / 2, &others, e)) ||
        (nn_json_given(&most) && nn_json_int(&most, 1, NN_MAX_ELEMENTS, &depth, e)))
        return e->code;
    if (others > 1 && lookup_is_string(b))
        return nn_json_expected(&oov, e, "0 or 1: StringLookup has no hash of other strings");
    c->masks = nn_json_given(&mask);
    const bool place = c->masks && c->mode == NN_AS_INT;
    t->first = lookup_has_specials(b, t->at.value, place, others) ? (size_t)(place + others) : 0;
    t->n = n - t->first;
    c->closed = others == 0;
    c->other = c->closed ? -1 : place;
    c->others = c->closed ? 1 : (int32_t)others;
    c->first = (int32_t)(place + others);
    if (t->n < 1 || t->n > NN_MAX_ELEMENTS / 2)
        return nn_json_expected(&t->at, e, "1 to %d terms", NN_MAX_ELEMENTS / 2);
    c->depth = c->first + (int64_t)t->n;
    if (c->pads && depth < c->depth)
        return nn_json_expected(&most, e, "%lld or more: so many places the vocabulary takes", (long long)c->depth);
    c->depth = c->pads ? depth : c->depth;
    return PS_OK;
}

struct lookup_pair {
    int32_t key, value;
};

static int lookup_compare(const void *a, const void *b)
{
    const int32_t x = ((const struct lookup_pair *)a)->key, y = ((const struct lookup_pair *)b)->key;
    return (x > y) - (x < y);
}

static enum ps_code lookup_read_number(const struct nn_json *at, int32_t *key, struct ps_error *e)
{
    int64_t v;
    if (nn_json_int(at, INT32_MIN, INT32_MAX, &v, e))
        return e->code;
    *key = (int32_t)v;
    return PS_OK;
}

static enum ps_code lookup_fill(struct nn_building *b, struct lookup *c, const struct lookup_terms *t,
                                struct lookup_pair *pair, struct ps_error *e)
{
    const bool strings = lookup_is_string(b);
    struct nn_json mask = nn_json_member(b->config, "mask_token");
    for (size_t i = 0; i < t->n; i++) {
        struct nn_json one = nn_json_element(&t->at, t->first + i);
        pair[i] = (struct lookup_pair){(int32_t)i, c->first + (int32_t)i};
        if (!strings && lookup_read_number(&one, &pair[i].key, e))
            return e->code;
    }
    c->n = (int64_t)t->n + c->masks;
    if (c->masks) {
        pair[t->n] = (struct lookup_pair){(int32_t)t->n, c->mode == NN_AS_INT ? 0 : -1};
        if (!strings && lookup_read_number(&mask, &pair[t->n].key, e))
            return e->code;
    }
    qsort(pair, (size_t)c->n, sizeof *pair, lookup_compare);
    for (int64_t i = 1; i < c->n; i++)
        if (pair[i].key == pair[i - 1].key)
            return nn_json_fail(&t->at, e, "expected terms that are not equal: %d stands there twice, or is the mask",
                                (int)pair[i].key);
    for (int64_t i = 0; i < c->n; i++) {
        c->key[i] = pair[i].key;
        c->key[c->n + i] = pair[i].value;
    }
    return PS_OK;
}

// Keras's weights are those of the terms; what is not in the vocabulary has their mean.
static enum ps_code lookup_read_idf(struct nn_building *b, struct lookup *c, const struct lookup_terms *t,
                                    struct ps_error *e)
{
    struct nn_json at = nn_json_member(b->config, "idf_weights");
    double sum = 0, v;
    if (c->mode != NN_AS_TF_IDF)
        return PS_OK;
    if (json_array_size(at.value) != t->first + t->n)
        return nn_json_expected(&at, e, "%zu weights, one of each term: those of adapt() are not read",
                                t->first + t->n);
    for (size_t i = 0; i < t->first + t->n; i++) {
        struct nn_json one = nn_json_element(&at, i);
        if (nn_json_real(&one, -1e30, 1e30, &v, e))
            return e->code;
        c->idf[(t->first ? 0 : (size_t)c->first) + i] = (float)v;
        sum += v;
    }
    for (int32_t i = 0; t->first == 0 && i < c->first; i++)
        c->idf[i] = (float)(sum / (double)t->n);
    return PS_OK;
}

static enum ps_code lookup_read(struct nn_building *b, struct lookup_terms *t, struct ps_error *e)
{
    struct lookup read = *NN_CONFIG(struct lookup, b->layer), *c;
    if (lookup_read_terms(b, &read, t, e))
        return e->code;
    const size_t keys = t->n + read.masks, idf = read.mode == NN_AS_TF_IDF ? (size_t)read.depth : 0;
    c = ps_try_alloc(sizeof *c + 2 * keys * sizeof *c->key + idf * sizeof *c->idf);
    struct lookup_pair *pair = ps_try_alloc_array(keys, sizeof *pair);
    enum ps_code code = c && pair ? PS_OK : ps_no_memory(e, "a vocabulary");
    if (code == PS_OK) {
        *c = read;
        c->key = (int32_t *)(c + 1);
        c->idf = (float *)(c->key + 2 * keys);
        code = lookup_fill(b, c, t, pair, e);
    }
    if (code == PS_OK)
        code = lookup_read_idf(b, c, t, e);
    free(pair);
    if (code != PS_OK) {
        free(c);
        return code;
    }
    free(b->layer->config);
    b->layer->config = c;
    return PS_OK;
}

static enum ps_code lookup_give(struct nn_building *b, struct ps_error *e)
{
    const struct lookup *c = NN_CONFIG(struct lookup, b->layer);
    return nn_categories_build(b, (enum nn_encoding)c->mode, c->depth, e);
}

// Without a place for others, a batch may have no others.
static enum ps_code integer_lookup_build(struct nn_building *b, struct ps_error *e)
{
    struct lookup_terms terms;
    if (nn_build_inputs(b, 1, e) || (b->first && lookup_read(b, &terms, e)))
        return e->code;
    const struct lookup *c = NN_CONFIG(struct lookup, b->layer);
    struct nn_value *in = &b->model->value[b->value[0]];
    if (c->closed && b->model->layer[b->model->call[in->call].layer].class != &nn_layer_input)
        return nn_json_fail(b->at, e, "IntegerLookup with num_oov_indices 0 expects an InputLayer before it");
    if (c->closed) {
        in->only = c->key;
        in->n_only = c->n;
    }
    return lookup_give(b, e);
}

// All words of the layer, the mask token last, in one piece of memory.
static enum ps_code string_lookup_make_words(struct nn_building *b, const struct lookup_terms *t,
                                             struct nn_words **words, struct ps_error *e)
{
    const struct lookup *c = NN_CONFIG(struct lookup, b->layer);
    struct nn_json mask = nn_json_member(b->config, "mask_token");
    const char *word;
    size_t bytes = 0;
    for (int64_t i = 0; i < c->n; i++) {
        struct nn_json one = (size_t)i < t->n ? nn_json_element(&t->at, t->first + (size_t)i) : mask;
        if (nn_json_string(&one, &word, e))
            return e->code;
        bytes += strlen(word) + 1;
    }
    struct nn_words *w = ps_try_alloc(sizeof *w + (size_t)c->n * sizeof *w->word + bytes);
    if (!w)
        return ps_no_memory(e, "a vocabulary");
    w->n = c->n;
    w->closed = c->closed;
    char *at = (char *)(w->word + c->n);
    for (int64_t i = 0; i < c->n; i++) {
        struct nn_json one = (size_t)i < t->n ? nn_json_element(&t->at, t->first + (size_t)i) : mask;
        w->word[i] = strcpy(at, json_string_value(one.value));
        at += strlen(at) + 1;
    }
    *words = w;
    return PS_OK;
}

static bool string_lookup_same(const struct nn_words *a, const struct nn_words *b)
{
    bool same = a->n == b->n && a->closed == b->closed;
    for (int64_t i = 0; same && i < a->n; i++)
        same = strcmp(a->word[i], b->word[i]) == 0;
    return same;
}

static enum ps_code string_lookup_build(struct nn_building *b, struct ps_error *e)
{
    struct lookup_terms terms;
    struct nn_words *words = NULL;
    if (nn_build_inputs(b, 1, e))
        return e->code;
    if (!b->in[0]->text)
        return nn_json_fail(b->at, e, "StringLookup expects an InputLayer of dtype string before it");
    if ((b->first ? lookup_read(b, &terms, e) : lookup_read_terms(b, b->layer->config, &terms, e)) ||
        string_lookup_make_words(b, &terms, &words, e))
        return e->code;
    struct nn_value *in = &b->model->value[b->value[0]];
    const bool same = !in->words || string_lookup_same(in->words, words);
    if (in->words)
        free(words);
    else
        in->words = words;
    return same ? lookup_give(b, e)
                : nn_json_fail(b->at, e, "expected the vocabulary of the other StringLookup of the same input");
}

// ---- emit ---------------------------------------------------------------------------------------------------------

static int lookup_times_idf(struct nn_emitter *m, const struct lookup *c, int y)
{
    const struct nn_constant constant = {c->idf, c->depth};
    const struct nn_binary times = {NN_B_MULTIPLY};
    int idf;
    nn_tape_put(m->tape, &nn_op_constant, &constant, sizeof constant, NULL, 0, &idf, 1);
    idf = nn_tape_view(m->tape, idf, &(struct nn_type){NN_FLOAT, 2, {1, c->depth}});
    nn_tape_put(m->tape, &nn_op_binary, &times, sizeof times, (int[]){y, idf}, 2, &y, 1);
    return y;
}

static int lookup_emit(struct nn_emitter *m, const struct nn_call *call)
{
    const struct lookup *c = NN_CONFIG(struct lookup, nn_emit_layer(m, call));
    const struct nn_lookup attr = {c->key, c->key + c->n, c->n, c->other, c->others};
    int x = nn_categories_input(m, call);
    nn_tape_put(m->tape, &nn_op_lookup, &attr, sizeof attr, &x, 1, &x, 1);
    x = nn_categories_emit(m, call, (enum nn_encoding)c->mode, c->depth, x, -1);
    return c->mode == NN_AS_TF_IDF ? lookup_times_idf(m, c, x) : x;
}

static const float *lookup_saves(const void *config, const char **name, uint64_t *count)
{
    const struct lookup *c = config;
    *name = "idf_weights";
    *count = (uint64_t)c->depth;
    return c->mode == NN_AS_TF_IDF ? c->idf : NULL;
}

#define CLASS(word, which, ...)                                                                                   \
    {                                                                                                             \
        .name = word, .config_bytes = sizeof(struct lookup), .keys = which##_keys, .build = which##_lookup_build, \
        .emit = lookup_emit, .integers = true, .any_dtype = true, .vocabulary = true, .saves = lookup_saves,      \
        __VA_ARGS__                                                                                               \
    }
const struct nn_layer_class nn_layer_integer_lookup = CLASS("IntegerLookup", integer);
const struct nn_layer_class nn_layer_string_lookup = CLASS("StringLookup", string, .strings = true);
