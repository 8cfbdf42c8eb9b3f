// SPDX-License-Identifier: Apache-2.0
//
// The peak that a profile holds operators against: fused multiplications and additions of the widest vectors that the
// processor has, in registers alone, as many at a time as hide how long each takes.
#include "common/base/clock.h"
#include "workerd/nn/cpu/cpu.h"

enum { CHAINS = 12, ROUNDS = 20000, RUNS = 20 };

// From any start, each sum goes to 1: nothing becomes too small or too large.
#define PEAK_LOOP(NAME, LANES, TARGET)                                                           \
    TARGET __attribute__((noinline)) static float NAME(float start)                              \
    {                                                                                            \
        typedef float vector __attribute__((vector_size(LANES * sizeof(float))));                \
        const vector zero = {0}, half = zero + 0.5f;                                             \
        vector s[CHAINS];                                                                        \
        for (int k = 0; k < CHAINS; k++)                                                         \
            s[k] = zero + (start + (float)k);                                                    \
        for (int i = 0; i < ROUNDS; i++) {                                                       \
            _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++) s[k] = s[k] * half + half; \
            __asm__ volatile("");                                                                \
        }                                                                                        \
        for (int k = 1; k < CHAINS; k++)                                                         \
            s[0] += s[k];                                                                        \
        return s[0][0];                                                                          \
    }

PEAK_LOOP(peak_4, 4, )
#ifdef __x86_64__
PEAK_LOOP(peak_8, 8, __attribute__((target("avx2,fma"))))
PEAK_LOOP(peak_16, 16, __attribute__((target("avx512f"))))
#endif

struct peak {
    float (*loop)(float);
    int lanes;
    float sum[64];  // by thread: what is computed is used
};

static struct peak peak_pick(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        return (struct peak){.loop = peak_16, .lanes = 16};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct peak){.loop = peak_8, .lanes = 8};
#endif
    return (struct peak){.loop = peak_4, .lanes = 4};
}

static void peak_part(void *arg, size_t first, size_t last)
{
    struct peak *p = arg;
    for (size_t i = first; i < last; i++)
        p->sum[i % 64] = p->loop((float)i);
}

// The fastest of some: what interrupts one of them takes nothing from the peak.
double nn_cpu_peak(struct nn_context *context)
{
    struct peak p = peak_pick();
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < RUNS; i++) {
        uint64_t began = ps_now();
        nn_cpu_share(context, (size_t)context->threads, 1, peak_part, &p);
        uint64_t ns = ps_now() - began;
        least = ns < least ? ns : least;
    }
    const double flop = p.sum[0] > 0 ? 2.0 * CHAINS * ROUNDS * p.lanes * context->threads : 0;
    return flop / ((double)(least ? least : 1) / (double)PS_SECOND);
}
