// SPDX-License-Identifier: Apache-2.0
//
// workerd/strategy/hybrid.c with two strategies of the test in place of those that it is made of: what is left after a
// signal.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/hearing.h"
#include "workerd/strategy/parameter_server.h"

static const char model_text[] =
    "{\"class_name\": \"Sequential\", \"config\": {\"name\": \"net\", \"layers\": ["
    "{\"class_name\": \"InputLayer\", \"config\": {\"name\": \"in\", \"batch_shape\": [null, 4]}},"
    "{\"class_name\": \"Embedding\", \"config\": {\"name\": \"table\", \"input_dim\": 5, \"output_dim\": 2}}]}}";

// What the two say of the weights that there are.
struct half {
    enum ps_code code;
    uint64_t round;
};

static struct half rest, on_ps;
static struct wk_parameter_server_state server;
static volatile sig_atomic_t stop;

static enum ps_code fake_open_rest(const struct wk_env *env, void **state, struct ps_error *e)
{
    (void)env, (void)e;
    *state = &rest;
    return PS_OK;
}

static enum ps_code fake_open_tables(const struct wk_env *env, void **state, struct ps_error *e)
{
    (void)env, (void)e;
    *state = &server;
    return PS_OK;
}

static void fake_close(void *state, const struct ps_error *why)
{
    (void)state, (void)why;
}

static enum ps_code fake_end_step(void *state, const struct wk_work *work, struct ps_error *e)
{
    (void)state, (void)work, (void)e;
    return PS_OK;
}

static enum ps_code salvage_half(const struct half *h, struct ps_error *e)
{
    return h->code ? ps_fail(e, h->code, "this half is not there") : PS_OK;
}

static enum ps_code fake_salvage_rest(void *state, bool *undone, struct ps_error *e)
{
    (void)state, (void)undone;
    return salvage_half(&rest, e);
}

static enum ps_code fake_salvage_tables(void *state, bool *undone, struct ps_error *e)
{
    (void)state, (void)undone;
    server.salvaged = on_ps.round;
    return salvage_half(&on_ps, e);
}

static const struct wk_home home_of_rest = {.end = fake_end_step, .salvage = fake_salvage_rest};
static const struct wk_home home_of_tables = {.end = fake_end_step, .salvage = fake_salvage_tables};
const struct wk_strategy wk_mirrored = {.home = &home_of_rest, .open = fake_open_rest, .close = fake_close};
const struct wk_strategy wk_parameter_server = {.home = &home_of_tables, .open = fake_open_tables, .close = fake_close};

static void must(enum ps_code code, const struct ps_error *e)
{
    if (code != PS_OK)
        fail_msg("%s", e->text);
}

// Two steps, and a signal. What is said on standard error goes to said.
static enum ps_code salvage(const struct half *dense, const struct half *tables, char *said, size_t size)
{
    struct nn_model *model;
    struct wk_env env = {.stop = &stop};
    struct ps_error e = {.code = PS_OK};
    bool undone = false;
    void *state;
    must(nn_model_parse(model_text, "test", &model, &e), &e);
    env.model = model;
    must(wk_hybrid.open(&env, &state, &e), &e);
    for (uint64_t step = 0; step < 2; step++)
        must(wk_hybrid.home->end(state, &(struct wk_work){.step = step}, &e), &e);
    rest = *dense;
    on_ps = *tables;
    stop = SIGTERM;
    struct hearing heard = hearing_begin();
    const enum ps_code code = wk_hybrid.home->salvage(state, &undone, &e);
    hearing_end(&heard, said, size);
    wk_hybrid.close(state, NULL);
    nn_model_free(model);
    return code;
}

// Where the tables are of another step than the rest, who would have written all says that nobody does; where another
// worker leads, that one does.
static void who_has_nothing_to_write_says_so(void **state)
{
    static const struct {
        struct half dense, tables;
        enum ps_code code;
        bool says;
    } of[] = {
        {{PS_OK, 0}, {PS_OK, 2}, PS_OK, false},
        {{PS_OK, 0}, {PS_OK, 3}, PS_NOT_FOUND, true},
        {{PS_OK, 0}, {PS_OK, UINT64_MAX}, PS_NOT_FOUND, true},
        {{PS_OK, 0}, {PS_NOT_FOUND, 0}, PS_NOT_FOUND, true},
        {{PS_OK, 0}, {PS_UNAVAILABLE, 0}, PS_UNAVAILABLE, false},
        {{PS_NOT_FOUND, 0}, {PS_OK, 3}, PS_NOT_FOUND, false},
    };
    (void)state;
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        char said[1024];
        assert_int_equal(salvage(&of[k].dense, &of[k].tables, said, sizeof said), of[k].code);
        assert_int_equal(strstr(said, "nobody has all weights of one step: none are written") != NULL, of[k].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_has_nothing_to_write_says_so),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
