// SPDX-License-Identifier: Apache-2.0
#include "workerd/strategy/history.h"

#include <stdio.h>

#include "workerd/strategy/variables.h"

enum { ROWS = WK_HISTORY_ROWS, COLUMNS = WK_HISTORY_COLUMNS };

typedef double rows_t[ROWS][COLUMNS];
typedef void (*start_fn)(psc_client *, const psc_tensor *, size_t, psc_callback, void *, psc_op **);

enum ps_code wk_take_error(const psc_error *from, struct ps_error *e)
{
    e->code = (enum ps_code)from->code;
    snprintf(e->text, sizeof e->text, "%s", from->text);
    return e->code;
}

static enum ps_code move_rows(psc_client *client, start_fn start, rows_t rows, struct ps_error *e)
{
    psc_tensor tensor = {wk_history_variable.name, rows, ROWS * COLUMNS, PSC_FLOAT64};
    psc_error error;
    psc_op *op;
    start(client, &tensor, 1, NULL, NULL, &op);
    return psc_wait(op, NULL, &error) ? wk_take_error(&error, e) : PS_OK;
}

enum ps_code wk_history_clear(psc_client *client, struct ps_error *e)
{
    rows_t zeros = {{0}};
    return move_rows(client, psc_put, zeros, e);
}

// Adds this worker's rows to the others'. The chief takes the sums and leaves zeros behind, and nobody goes on before
// that.
static enum ps_code join_rows(psc_client *client, rows_t rows, struct ps_error *e)
{
    psc_error error;
    if (move_rows(client, psc_assign_add, rows, e))
        return e->code;
    if (psc_barrier(client, "history is added", &error))
        return wk_take_error(&error, e);
    if (psc_is_chief(client) && (move_rows(client, psc_get, rows, e) || wk_history_clear(client, e)))
        return e->code;
    return psc_barrier(client, "history is taken", &error) ? wk_take_error(&error, e) : PS_OK;
}

// Steps [first, first + ROWS) of them.
static enum ps_code join_steps(psc_client *client, struct wk_history *h, uint64_t first, struct ps_error *e)
{
    rows_t rows = {{0}};
    uint64_t n = h->steps - first < ROWS ? h->steps - first : ROWS;
    for (uint64_t k = 0; k < n; k++) {
        rows[k][0] = h->loss[first + k];
        rows[k][1] = h->examples[first + k];
    }
    if (join_rows(client, rows, e))
        return e->code;
    for (uint64_t k = 0; k < n && psc_is_chief(client); k++) {
        h->loss[first + k] = rows[k][0];
        h->total_examples += rows[k][1] - h->examples[first + k];
        h->examples[first + k] = rows[k][1];
    }
    return PS_OK;
}

static enum ps_code join_totals(psc_client *client, struct wk_history *h, struct ps_error *e)
{
    rows_t rows = {{0, h->total_examples}};
    if (join_rows(client, rows, e))
        return e->code;
    if (psc_is_chief(client))
        h->total_examples = rows[0][1];
    return PS_OK;
}

enum ps_code wk_history_join(psc_client *client, bool per_step, struct wk_history *h, struct ps_error *e)
{
    if (!per_step)
        return join_totals(client, h, e);
    for (uint64_t first = 0; first < h->steps; first += ROWS)
        if (join_steps(client, h, first, e))
            return e->code;
    return PS_OK;
}
