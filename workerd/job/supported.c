// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/supported.h"

#include <stdio.h>
#include <string.h>

#include "common/job/callbacks.h"
#include "common/job/loss.h"
#include "common/job/metric.h"
#include "common/job/optimizer.h"
#include "common/math/schedule.h"
#include "workerd/data/data.h"
#include "workerd/nn/model.h"

enum { LEFT = 13, WIDTH = 79 };

static const char *supported_loss(size_t i)
{
    return i < (size_t)ps_losses.n ? ps_losses.named[i].name : NULL;
}

static const char *supported_metric(size_t i)
{
    return i < (size_t)ps_metrics.n ? ps_metrics.named[i].name : NULL;
}

static const char *supported_optimizer(size_t i)
{
    return ps_job_optimizers[i];
}

static const char *supported_data(size_t i)
{
    return wk_data_kinds[i].name;
}

static const char *supported_schedule(size_t i)
{
    return i < PS_INVERSE_TIME ? ps_schedule_name((enum ps_schedule_kind)(PS_CONSTANT + i)) : NULL;
}

static const struct {
    const char *what;
    const char *(*name)(size_t i);  // NULL: there are no more
} supported[] = {
    {"layers", nn_layer_name},         {"activations", nn_function_name}, {"initializers", nn_initializer_name},
    {"losses", supported_loss},        {"metrics", supported_metric},     {"optimizers", supported_optimizer},
    {"schedules", supported_schedule}, {"callbacks", ps_callback_known},  {"data", supported_data},
};

// "layers       InputLayer, Dense, ...", in lines of at most WIDTH columns.
static void supported_print(const char *what, const char *(*name)(size_t i))
{
    int column = printf("%-*s", LEFT, what);
    for (size_t i = 0; name(i); i++) {
        const char *comma = name(i + 1) ? "," : "";
        const int length = (int)(strlen(name(i)) + strlen(comma));
        if (column + 1 + length > WIDTH)
            column = printf("\n%-*s", LEFT - 1, "") - 1;
        column += printf("%s%s%s", i == 0 ? "" : " ", name(i), comma);
    }
    putchar('\n');
}

void wk_print_supported(void)
{
    for (size_t i = 0; i < sizeof supported / sizeof *supported; i++)
        supported_print(supported[i].what, supported[i].name);
    puts("\nLosses and their settings:");
    ps_named_list(&ps_losses, stdout);
    puts("\nMetrics and their settings:");
    ps_named_list(&ps_metrics, stdout);
    puts("\nKinds of data:");
    for (const struct wk_data_kind *k = wk_data_kinds; k->name; k++)
        printf("%s: %s\n", k->name, k->text);
}
