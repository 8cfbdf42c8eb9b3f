// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/features.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/math/philox.h"

enum { TEXT_MAX = 512, CHILD_SECONDS = 60 };

static const struct {
    const char *name;
    uint32_t weight;
} features[] = {
#define X(NAME, text, weight) {text, weight},
    SIM_FEATURES(X)
#undef X
};

static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    return false;
}

uint32_t sim_features_draw(uint64_t seed)
{
    uint32_t drawn = 0, w[4];
    for (uint32_t i = 0; i < SIM_N_FEATURES; i++) {
        ps_philox(seed, PS_RANDOM_DELAY, UINT64_MAX - 1, i, w);
        if (w[0] % 8 < features[i].weight && !is_listed(getenv("SIM_OFF"), features[i].name))
            drawn |= UINT32_C(1) << i;
    }
    return drawn;
}

const char *sim_features_text(uint32_t on, char *text, size_t size)
{
    size_t n = 0;
    snprintf(text, size, "none");
    for (uint32_t i = 0; i < SIM_N_FEATURES && n < size; i++)
        if (sim_feature_on(on, i))
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? "," : "", features[i].name);
    return text;
}

// ---- shrinking ----------------------------------------------------------------------------------------------------

// Does the seed fail with these features off? A child that does not end counts as failing.
static bool still_fails(uint64_t seed, const char *off)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        char number[32];
        int null = open("/dev/null", O_WRONLY);
        snprintf(number, sizeof number, "%" PRIu64, seed);
        setenv("SIM_SEED", number, 1);
        setenv("SIM_SEEDS", "1", 1);
        setenv("SIM_OFF", off, 1);
        setenv("SIM_CHILD", "1", 1);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        alarm(CHILD_SECONDS);
        execl("/proc/self/exe", "sim", (char *)NULL);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status != 0;
}

void sim_shrink(uint64_t seed)
{
    const char *before = getenv("SIM_OFF");
    uint32_t left = sim_features_draw(seed);
    char off[TEXT_MAX], text[TEXT_MAX];
    if (getenv("SIM_CHILD"))
        return;
    snprintf(off, sizeof off, "%s", before ? before : "");
    for (uint32_t i = 0; i < SIM_N_FEATURES; i++) {
        size_t n = strlen(off);
        if (!sim_feature_on(left, i))
            continue;
        snprintf(off + n, sizeof off - n, "%s%s", n ? "," : "", features[i].name);
        if (still_fails(seed, off))
            left &= ~(UINT32_C(1) << i);
        else
            off[n] = '\0';
    }
    printf("# seed %" PRIu64 " fails with no more than: %s\n", seed, sim_features_text(left, text, sizeof text));
    printf("# to see it: SIM_SEED=%" PRIu64 " SIM_SEEDS=1 SIM_OFF=%s\n", seed, off);
}
