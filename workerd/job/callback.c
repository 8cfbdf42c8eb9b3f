// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/callback.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/file/output.h"

static const struct wk_callback_class *const callback_table[] = {
    &wk_csv_log,          &wk_json_lines,          &wk_tensorboard, &wk_early_stopping, &wk_reduce_lr_on_plateau,
    &wk_terminate_on_nan, &wk_checkpoint_callback, &wk_backup,
};

enum { CALLBACK_TABLE = sizeof callback_table / sizeof *callback_table };

struct callback {
    const struct wk_callback_class *class;
    char key[48];              // its name, from the second of a kind on with a number: "csv_log-2"
    const char *subject, *by;  // the settings': ps_callback_subject
    void *state;
};

struct wk_callbacks {
    struct callback *v;
    size_t n;
    bool begun;
};

// ---- open and close -----------------------------------------------------------------------------------------------

static const struct wk_callback_class *callback_find(const char *name)
{
    for (size_t i = 0; i < CALLBACK_TABLE; i++)
        if (strcmp(callback_table[i]->name, name) == 0)
            return callback_table[i];
    abort();  // both tables have the same names
}

static void callback_set_key(const struct wk_callbacks *c, struct callback *one)
{
    int same = 1;
    for (const struct callback *other = c->v; other < c->v + c->n; other++)
        same += other->class == one->class;
    if (same == 1)
        snprintf(one->key, sizeof one->key, "%s", one->class->name);
    else
        snprintf(one->key, sizeof one->key, "%s-%d", one->class->name, same);
}

static bool callback_tell(const struct callback *one, double *numbers)
{
    memset(numbers, 0, WK_NUMBERS * sizeof *numbers);
    return one->class->tell && one->class->tell(one->state, numbers);
}

// Behind those that are there. What keeps the best comes before the other last ones, in whose checkpoints it says what
// it has.
static void callbacks_add(struct wk_callbacks *c, const struct callback *one)
{
    double numbers[WK_NUMBERS];
    size_t at = c->n++;
    if (one->class->last && callback_tell(one, numbers))
        for (; at && c->v[at - 1].class->last && !callback_tell(&c->v[at - 1], numbers); at--)
            c->v[at] = c->v[at - 1];
    c->v[at] = *one;
}

// Those of the job that come last, or the others.
static enum ps_code callbacks_open(const struct wk_run *run, bool last, struct wk_callbacks *c, struct ps_error *e)
{
    const struct ps_callbacks *all = &run->env.job->callbacks;
    for (size_t i = 0; i < all->n; i++) {
        struct callback one = {.class = callback_find(ps_callback_name(&all->v[i]))};
        if (one.class->last != last)
            continue;
        callback_set_key(c, &one);
        one.subject = ps_callback_subject(&all->v[i], &one.by);
        if (one.class->open && one.class->open(&all->v[i], run, &one.state, e))
            return ps_error_prefix(e, "callback %s", one.key);
        callbacks_add(c, &one);
    }
    return PS_OK;
}

enum ps_code wk_callbacks_open(const struct wk_run *run, struct wk_callbacks **callbacks, struct ps_error *e)
{
    struct wk_callbacks *c = ps_alloc(sizeof *c);
    c->v = ps_alloc((run->env.job->callbacks.n + 1) * sizeof *c->v);
    if (callbacks_open(run, false, c, e) || callbacks_open(run, true, c, e)) {
        wk_callbacks_close(c);
        return e->code;
    }
    *callbacks = c;
    return PS_OK;
}

void wk_callbacks_close(struct wk_callbacks *c)
{
    for (size_t i = 0; c && i < c->n; i++)
        if (c->v[i].class->close)
            c->v[i].class->close(c->v[i].state);
    if (c)
        free(c->v);
    free(c);
}

// ---- events -------------------------------------------------------------------------------------------------------

enum ps_code wk_callbacks_begin(struct wk_callbacks *c, struct wk_run *run, bool takes_over, struct ps_error *e)
{
    for (size_t i = 0; !c->begun && i < c->n; i++)
        if (c->v[i].class->begin && c->v[i].class->begin(c->v[i].state, run, takes_over, e))
            return ps_error_prefix(e, "callback %s", c->v[i].key);
    c->begun = true;
    return PS_OK;
}

static enum ps_code callback_call(const struct callback *one, enum wk_event event, struct wk_moment *m,
                                  struct ps_error *e)
{
    const struct wk_callback_class *class = one->class;
    enum ps_code (*const function[])(void *, struct wk_moment *, struct ps_error *) = {
        [WK_STEP] = class->step, [WK_LOOK] = class->look,       [WK_EPOCH_ENDS] = class->epoch_end,
        [WK_END] = class->end,   [WK_WRITTEN] = class->written, [WK_STOPPED] = class->stopped};
    if (!function[event])
        return PS_OK;
    const uint64_t start = ps_track_now(m->run->env.compute);
    const enum ps_code code = function[event](one->state, m, e);
    ps_track_end(m->run->env.compute, &(struct ps_span){PS_SPAN_CALLBACK, one->key, start});
    return code ? ps_error_prefix(e, "callback %s", one->key) : PS_OK;
}

static bool callback_hears(const struct wk_callback_class *class, enum wk_event event, const struct wk_moment *m)
{
    return m->leads || class->steers || (class->hears_epochs && (event == WK_LOOK || event == WK_EPOCH_ENDS));
}

// Those that come last, or the others. The first error ends it; but where a signal ends the training, each keeps what
// it can.
static enum ps_code callbacks_call(const struct wk_callbacks *c, bool last, enum wk_event event, struct wk_moment *m,
                                   struct ps_error *e)
{
    enum ps_code first = PS_OK;
    for (size_t i = 0; i < c->n && (first == PS_OK || event == WK_STOPPED); i++) {
        struct ps_error why;
        if (c->v[i].class->last != last || !callback_hears(c->v[i].class, event, m) ||
            callback_call(&c->v[i], event, m, &why) == PS_OK)
            continue;
        if (first)
            ps_error_log("%s", why.text);
        else
            *e = why;
        first = e->code;
    }
    return first;
}

static enum ps_code callbacks_call_last(const struct wk_callbacks *c, enum wk_event event, struct wk_moment *m,
                                        struct ps_error *e)
{
    if (event == WK_EPOCH_ENDS && callbacks_call(c, true, WK_LOOK, m, e))
        return e->code;
    return callbacks_call(c, true, event, m, e);
}

enum ps_code wk_callbacks_call(struct wk_callbacks *c, enum wk_event event, struct wk_moment *m, struct ps_error *e)
{
    if (m->leads && wk_callbacks_begin(c, m->run, true, e))
        return e->code;
    if (m->cut)
        return callbacks_call_last(c, event, m, e) || callbacks_call(c, false, event, m, e) ? e->code : PS_OK;
    return callbacks_call(c, false, event, m, e) || callbacks_call_last(c, event, m, e) ? e->code : PS_OK;
}

bool wk_callbacks_steer(const struct wk_callbacks *c)
{
    double numbers[WK_NUMBERS];
    bool steers = false;
    for (size_t i = 0; i < c->n; i++)
        steers |= c->v[i].class->steers || callback_tell(&c->v[i], numbers);
    return steers;
}

bool wk_callbacks_keep(const struct wk_callbacks *c)
{
    bool keeps = false;
    for (size_t i = 0; i < c->n; i++)
        keeps |= c->v[i].class->keeps && c->v[i].class->keeps(c->v[i].state);
    return keeps;
}

bool wk_callbacks_are_over(const struct wk_callbacks *c)
{
    bool over = false;
    for (size_t i = 0; i < c->n; i++)
        over |= c->v[i].class->is_over && c->v[i].class->is_over(c->v[i].state);
    return over;
}

// ---- what is told of states -----------------------------------------------------------------------------------------

static uint64_t callback_hash(const struct callback *one, uint64_t hash)
{
    hash = ps_hash(hash, one->key, strlen(one->key) + 1);
    return one->subject ? ps_hash(hash, one->subject, strlen(one->subject) + 1) : hash;
}

// First a hash of whose they are, which a double has exactly; not 0.
bool wk_callbacks_tell(const struct wk_callbacks *c, double *found)
{
    uint64_t hash = PS_HASH_SEED;
    size_t n = 1;
    memset(found, 0, WK_FOUND * sizeof *found);
    for (const struct callback *one = c->v; one < c->v + c->n; one++) {
        double numbers[WK_NUMBERS];
        if (!callback_tell(one, numbers))
            continue;
        if (n + WK_NUMBERS > WK_FOUND)
            return false;
        memcpy(found + n, numbers, sizeof numbers);
        n += WK_NUMBERS;
        hash = callback_hash(one, hash);
    }
    *found = n > 1 ? (double)(hash >> 32 | 1) : 0;
    return n > 1;
}

void wk_callbacks_take(const struct wk_callbacks *c, const double *found)
{
    double own[WK_FOUND], numbers[WK_NUMBERS];
    if (!wk_callbacks_tell(c, own) || *found != *own)
        return;
    const double *from = found + 1;
    for (const struct callback *one = c->v; one < c->v + c->n; one++)
        if (callback_tell(one, numbers)) {
            one->class->take(one->state, from);
            from += WK_NUMBERS;
        }
}

// ---- checkpoints --------------------------------------------------------------------------------------------------

void wk_callbacks_save(const struct wk_callbacks *c, struct wk_checkpoint *to)
{
    json_t *all = json_object();
    for (size_t i = 0; i < c->n; i++) {
        char prefix[64];
        json_t *one = json_object();
        snprintf(prefix, sizeof prefix, "callbacks/%s", c->v[i].key);
        if (c->v[i].class->save)
            c->v[i].class->save(c->v[i].state, one, to, prefix);
        if (c->v[i].subject)
            json_object_set_new(one, c->v[i].by, json_string(c->v[i].subject));
        json_object_set_new(all, c->v[i].key, one);
    }
    json_object_set_new(to->json, "callbacks", all);
}

// Is the state of this key the callback's? Not exactly: or that of one whose file has the same name in another folder.
// Before there were subjects, a state was known by its key alone.
static bool callback_had(const struct callback *one, const char *key, const json_t *state, bool exactly)
{
    const char *subject = one->subject ? json_string_value(json_object_get(state, one->by)) : NULL;
    const size_t n = strlen(one->class->name);
    if (strncmp(key, one->class->name, n) != 0 || (key[n] && key[n] != '-'))
        return false;
    if (!subject)
        return strcmp(key, one->key) == 0;
    if (exactly)
        return strcmp(subject, one->subject) == 0;
    const char *name = ps_file_name(subject);
    return *name && strcmp(name, ps_file_name(one->subject)) == 0;
}

// Is it the state of another one of the job?
static bool callbacks_others_had(const struct wk_callbacks *c, const struct callback *one, const char *key,
                                 const json_t *state)
{
    bool had = false;
    for (const struct callback *other = c->v; other < c->v + c->n; other++)
        had |= other != one && callback_had(other, key, state, true);
    return had;
}

// The key of the callback's state, its own first; NULL: there is none. all may be NULL.
static const char *callbacks_find_state(const struct wk_callbacks *c, const struct callback *one, json_t *all,
                                        bool exactly)
{
    const char *key;
    json_t *state = json_object_get(all, one->key);
    if (state && exactly && callback_had(one, one->key, state, true))
        return one->key;
    json_object_foreach(all, key, state)
    {
        if (callback_had(one, key, state, exactly) && !callbacks_others_had(c, one, key, state))
            return key;
    }
    return NULL;
}

static enum ps_code callback_load(const struct callback *one, const char *key, const struct wk_checkpoint *from,
                                  struct ps_error *e)
{
    const json_t *state = json_object_get(json_object_get(from->json, "callbacks"), key);
    char prefix[64];
    snprintf(prefix, sizeof prefix, "callbacks/%.48s", key);
    if (one->class->load && one->class->load(one->state, state, from, prefix, e))
        return ps_error_prefix(e, "%s: $.callbacks.%s", from->path, key);
    return PS_OK;
}

enum ps_code wk_callbacks_load(const struct wk_callbacks *c, const struct wk_checkpoint *from, struct ps_error *e)
{
    json_t *all = json_object_get(from->json, "callbacks");
    for (const struct callback *one = c->v; one < c->v + c->n; one++) {
        const char *key = callbacks_find_state(c, one, all, true);
        if (!key)
            key = callbacks_find_state(c, one, all, false);
        if (!key)
            ps_warn("%s: knows nothing of callback %s%s%s, which begins anew", from->path, one->key,
                    one->subject ? " of " : "", one->subject ? one->subject : "");
        else if (callback_load(one, key, from, e))
            return e->code;
    }
    return PS_OK;
}
