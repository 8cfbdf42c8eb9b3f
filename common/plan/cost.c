// SPDX-License-Identifier: Apache-2.0
#include "common/plan/cost.h"

#include "common/wire/dtype.h"
#include "common/wire/wire.h"

// a * b is added to *sum; false: it does not fit 63 bits.
static bool add_product(uint64_t *sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    return !__builtin_mul_overflow(a, b, &product) && !__builtin_add_overflow(*sum, product, sum) && *sum <= INT64_MAX;
}

static uint64_t cost_aligned(uint64_t bytes)
{
    return (bytes + PS_MEMORY_ALIGN - 1) / PS_MEMORY_ALIGN * PS_MEMORY_ALIGN;
}

uint64_t ps_memory_job(const struct ps_memory_job *j)
{
    uint64_t bytes = PS_MEMORY_JOB + j->variables * PS_MEMORY_VARIABLE + j->partitions * PS_MEMORY_PARTITION +
                     j->workers * PS_MEMORY_WORKER;
    if (j->control)
        bytes += j->workers * PS_MEMORY_MEMBER + j->tasks * PS_MEMORY_TASK;
    if (j->control && j->sync)
        bytes += (j->variables + j->partitions) * PS_MEMORY_NORM;
    return bytes;
}

bool ps_memory_add(struct ps_memory *m, const struct ps_memory_part *part)
{
    bool string = part->dtype == PS_STRING;
    uint64_t size = string ? PS_STRING_LENGTH : ps_dtype_size(part->dtype);
    uint64_t per_block = string ? PS_STRING_BLOCK : size ? PS_BLOCK_BYTES / size : 1;
    uint64_t whole = part->count / per_block, tail = part->count % per_block, blocks = whole + (tail != 0);
    uint64_t workers = part->round_workers, values = 0, total = 0;
    struct ps_memory sum = *m;
    bool fits =
        size && add_product(&values, part->count, size) && add_product(&sum.blocks, blocks, 1) &&
        add_product(&sum.values, values, 1) &&
        add_product(&sum.slots, whole * cost_aligned(per_block * size) + cost_aligned(tail * size), part->slots) &&
        add_product(&sum.rounds, values, workers) && add_product(&sum.kept, blocks, PS_MEMORY_BLOCK + PS_MEMORY_PAGE) &&
        add_product(&sum.kept, blocks, workers * (PS_MEMORY_GRADIENT + PS_MEMORY_PAGE)) &&
        add_product(&sum.kept, workers != 0, PS_MEMORY_ROUND) &&
        add_product(&sum.kept, workers, PS_MEMORY_CONTRIBUTION) && add_product(&total, sum.values, 1) &&
        add_product(&total, sum.slots, 1) && add_product(&total, sum.rounds, 1) && add_product(&total, sum.kept, 1);
    if (fits)
        *m = sum;
    return fits;
}

uint64_t ps_memory_total(const struct ps_memory *m)
{
    return m->values + m->slots + m->rounds + m->kept;
}

uint64_t ps_memory_dedup(const struct ps_memory *m, uint64_t clients)
{
    return m->blocks * clients * PS_MEMORY_DEDUP;
}

uint64_t ps_memory_in_flight(uint64_t memory)
{
    const uint64_t least = 64 << 20, most = 1 << 30;
    uint64_t bytes = memory / 8;
    bytes = bytes < least ? least : bytes > most ? most : bytes;
    return bytes < memory / 4 ? bytes : memory / 4;
}

uint64_t ps_memory_for_blocks(uint64_t memory)
{
    const uint64_t process = 16 << 20;  // of one that has just started: its code, the gRPC core
    uint64_t flight = ps_memory_in_flight(memory), own = flight / 4 < process ? process : flight / 4;
    return memory - flight - (own < memory / 4 ? own : memory / 4);
}
