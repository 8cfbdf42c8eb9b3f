// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/kernel.h"
#include "tests/cuda/fiber.h"
#include "tests/cuda/runtime.h"
#include <algorithm>
#include <functional>
#include <numeric>

// ---- state ---------------------------------------------------------------------------------------------------------

struct thread_state {
    uint3 index;
    const char *waits_in;  // NULL: it runs, or has ended
    emu_place waits_at;
    bool ended;
    uint64_t accesses;  // of memory, since it began or has waited
};

// Lanes of a warp that meet in one operation.
struct rendezvous {
    uint32_t lanes, arrived;
    const char *operation;
    emu_place at;
    uint64_t values[32];
};
struct warp_state {
    uint16_t phase;
    std::vector<rendezvous> open;
    std::vector<rendezvous> complete;  // the last one of each set of lanes: until they meet again
};

// The block that runs. One at a time, in the whole process.
static struct {
    const emu_kernel *kernel;
    uint32_t task;
    uint3 index;
    unsigned threads, linear;
    uint16_t phase;
    unsigned at_barrier;  // how many threads wait there
    unsigned first_at_barrier;
    std::vector<thread_state> thread;
    warp_state warp[EMU_THREADS_MAX / 32];
    std::function<std::string()> error;
} block;

// The kernel's own code runs, not what it calls here: templates that both use exist once in the program, and may be
// the watched ones.
static thread_local bool in_kernel;
struct kernel_pause {
    kernel_pause()
    {
        in_kernel = false;
    }
    ~kernel_pause()
    {
        in_kernel = true;
    }
};
static uint32_t generation;  // of shared memory: a number for each block that runs

bool emu_in_kernel()
{
    return in_kernel;
}

static thread_state *kernel_me()
{
    return &block.thread[emu_fiber_index()];
}

uint3 emu_thread_idx()
{
    return kernel_me()->index;
}

uint3 emu_block_idx()
{
    return block.index;
}

dim3 emu_block_dim()
{
    return block.kernel->block;
}

dim3 emu_grid_dim()
{
    return block.kernel->grid;
}

// What is wrong; the sentence is made on a larger stack. emu_fibers_give_up follows, when nothing is left on this
// stack that needs a destructor.
static void kernel_blame(std::function<std::string()> error)
{
    block.error = std::move(error);
}

static void kernel_blame_text(const std::string &text)
{
    kernel_blame([text] { return text; });
}

static std::string kernel_thread_text(unsigned thread)
{
    return emu_format("thread %u of block %u", thread, block.linear);
}

static std::string kernel_waits_text(unsigned thread)
{
    const thread_state &t = block.thread[thread];
    if (t.ended)
        return kernel_thread_text(thread) + " has ended";
    return kernel_thread_text(thread) +
           emu_format(" waits in %s at %s", t.waits_in, emu_place_text(t.waits_at).c_str());
}

[[noreturn]] static void kernel_stop_apart(unsigned one, unsigned other)
{
    kernel_blame_text(emu_task_text(block.task) + ": " + kernel_waits_text(one) + ", and " + kernel_waits_text(other) +
                      ": expected both at the same place");
    emu_fibers_give_up();
}

// ---- barriers ------------------------------------------------------------------------------------------------------

static bool kernel_same_place(emu_place a, emu_place b)
{
    return a.line == b.line && strcmp(a.file, b.file) == 0;
}

static void kernel_wait(const char *operation, emu_place at)
{
    kernel_me()->waits_in = operation;
    kernel_me()->accesses = 0;
    kernel_me()->waits_at = at;
}

void emu_syncthreads(emu_place at)
{
    kernel_pause pause;
    unsigned me = emu_fiber_index();
    kernel_wait("__syncthreads", at);
    if (block.at_barrier++ == 0)
        block.first_at_barrier = me;
    else if (!kernel_same_place(block.thread[block.first_at_barrier].waits_at, at))
        kernel_stop_apart(block.first_at_barrier, me);
    if (block.at_barrier < block.threads) {
        emu_fiber_wait();
        return;
    }
    block.at_barrier = 0;
    block.phase++;
    for (unsigned i = 0; i < block.threads; i++) {
        block.thread[i].waits_in = NULL;
        if (i != me)
            emu_fiber_wake(i);
    }
}

// ---- warps ---------------------------------------------------------------------------------------------------------

static rendezvous *warp_find(std::vector<rendezvous> &list, uint32_t lanes)
{
    for (rendezvous &r : list)
        if (r.lanes == lanes)
            return &r;
    return NULL;
}

// Where my lanes meet for this operation. An error if one of them is known to be elsewhere.
static rendezvous *warp_meet(warp_state *warp, emu_place at, const char *operation, uint32_t lanes, unsigned me)
{
    unsigned lane = me % 32;
    for (rendezvous &r : warp->open) {
        bool expects_me = r.lanes >> lane & 1;
        bool same = r.lanes == lanes && r.operation == operation && kernel_same_place(r.at, at);
        if (expects_me && !same)
            kernel_stop_apart(me - lane + (unsigned)__builtin_ctz(r.arrived), me);
    }
    rendezvous *r = warp_find(warp->open, lanes);
    if (!r) {
        warp->open.push_back(rendezvous{lanes, 0, operation, at, {}});
        r = &warp->open.back();
    }
    return r;
}

static void warp_complete(warp_state *warp, rendezvous *r, unsigned me)
{
    rendezvous *last = warp_find(warp->complete, r->lanes);
    if (!last) {
        warp->complete.emplace_back();
        last = &warp->complete.back();
    }
    *last = *r;
    *r = warp->open.back();
    warp->open.pop_back();
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned thread = me / 32 * 32 + lane;
        if (!(last->lanes >> lane & 1))
            continue;
        block.thread[thread].waits_in = NULL;
        if (thread != me)
            emu_fiber_wake(thread);
    }
}

static uint32_t warp_existing_lanes(unsigned me)
{
    unsigned beyond = block.threads - me / 32 * 32;
    return beyond >= 32 ? 0xffffffffu : (1u << beyond) - 1;
}

// Waits until all lanes of the mask that exist have come. What they brought, until the same lanes meet again.
static const rendezvous *warp_join(emu_place at, const char *operation, uint32_t mask, uint64_t value)
{
    unsigned me = emu_fiber_index();
    warp_state *warp = &block.warp[me / 32];
    uint32_t lanes = mask & warp_existing_lanes(me);
    kernel_wait(operation, at);
    if (!(lanes >> me % 32 & 1)) {
        kernel_blame_text(emu_task_text(block.task) + ": " + kernel_waits_text(me) +
                          emu_format(" with mask %#x, in which it is not: expected its own lane there", mask));
        emu_fibers_give_up();
    }
    rendezvous *r = warp_meet(warp, at, operation, lanes, me);
    r->values[me % 32] = value;
    r->arrived |= 1u << me % 32;
    if (r->arrived == lanes)
        warp_complete(warp, r, me);
    else
        emu_fiber_wait();
    return warp_find(warp->complete, lanes);
}

// Orders the memory of the whole warp, or of nobody: of some of its lanes is not kept.
void emu_syncwarp(emu_place at, unsigned mask)
{
    kernel_pause pause;
    unsigned me = emu_fiber_index();
    warp_state *warp = &block.warp[me / 32];
    uint16_t phase = warp->phase;
    warp_join(at, "__syncwarp", mask, 0);
    if (warp->phase == phase && (mask & warp_existing_lanes(me)) == warp_existing_lanes(me))
        warp->phase++;
}

// The lane whose value mine is; mine if there is none.
static unsigned warp_source(emu_shuffle kind, unsigned lane, unsigned by, unsigned width)
{
    unsigned first = lane / width * width, last = first + width - 1;
    switch (kind) {
    case EMU_SHUFFLE_LANE:
        return first + by % width;
    case EMU_SHUFFLE_UP:
        return lane >= first + by ? lane - by : lane;
    case EMU_SHUFFLE_DOWN:
        return lane + by <= last ? lane + by : lane;
    case EMU_SHUFFLE_XOR:
        return (lane ^ by) <= last ? lane ^ by : lane;
    }
    return lane;
}

uint64_t emu_shuffle_bits(emu_place at, emu_shuffle kind, unsigned mask, uint64_t bits, unsigned by, int width)
{
    kernel_pause pause;
    const rendezvous *met = warp_join(at, "a shuffle", mask, bits);
    unsigned lane = warp_source(kind, emu_fiber_index() % 32, by, (unsigned)width);
    return met->arrived >> lane & 1 ? met->values[lane] : ~(uint64_t)0;  // of a lane that is not there: NaN
}

unsigned emu_ballot(emu_place at, unsigned mask, bool set)
{
    kernel_pause pause;
    const rendezvous *met = warp_join(at, "a vote", mask, set);
    unsigned result = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (met->arrived >> lane & 1 && met->values[lane])
            result |= 1u << lane;
    return result;
}

// ---- memory --------------------------------------------------------------------------------------------------------

// The linker gathers what is __shared__ and what is __constant__.
extern char shared_start[] __asm__("__start_emu_shared") __attribute__((weak));
extern char shared_end[] __asm__("__stop_emu_shared") __attribute__((weak));
extern char constant_start[] __asm__("__start_emu_constant") __attribute__((weak));
extern char constant_end[] __asm__("__stop_emu_constant") __attribute__((weak));

alignas(256) static char dynamic_shared[EMU_SHARED_OPTIN_MAX];
static emu_shadow static_shadow, dynamic_shadow;

void *emu_dynamic_shared()
{
    return dynamic_shared;
}

static bool kernel_within(const void *pointer, const char *start, const char *end)
{
    return (uintptr_t)pointer - (uintptr_t)start < (uintptr_t)end - (uintptr_t)start;
}

static bool kernel_touch_shared(emu_shadow *shadow, size_t offset, size_t size, emu_fault *fault)
{
    fault->allocation = NULL;
    fault->wrong = EMU_OUTSIDE;
    if (offset + size > shadow->size)
        return false;
    if (emu_shadow_touch(*shadow, offset, size, fault->kind, fault->now, generation, &fault->finding))
        return true;
    fault->wrong = fault->finding.unordered ? EMU_UNORDERED : EMU_UNWRITTEN;
    return false;
}

// May this thread do this? What is neither shared nor constant is for emu_touch to say.
static bool kernel_may(const void *pointer, const emu_access &now, size_t size, emu_kind kind, emu_fault *fault)
{
    *fault = emu_fault{EMU_NO_MEMORY, now, kind, pointer, size, NULL, {}};
    if (kernel_within(pointer, dynamic_shared, dynamic_shared + sizeof dynamic_shared))
        return kernel_touch_shared(&dynamic_shadow, (size_t)((const char *)pointer - dynamic_shared), size, fault);
    if (kernel_within(pointer, shared_start, shared_end))
        return kernel_touch_shared(&static_shadow, (size_t)((const char *)pointer - shared_start), size, fault);
    if (kernel_within(pointer, constant_start, constant_end))
        return kind == EMU_READ;
    if (!emu_touch(pointer, size, kind, now, emu_task_at(now.task).device, fault))
        return false;
    fault->allocation = emu_memory_find(pointer);
    fault->wrong = EMU_NOT_MAPPED;
    return fault->allocation->device != EMU_PINNED || fault->allocation->mapped;
}

static void kernel_count_access(const void *return_address)
{
    if (++kernel_me()->accesses <= emu_config_now().thread_accesses)
        return;
    unsigned me = emu_fiber_index();
    emu_pc pc = emu_pc_of(return_address);
    kernel_blame([me, pc] {
        return emu_task_text(block.task) + ": " + kernel_thread_text(me) + " touches memory" + emu_pc_suffix(pc) +
               emu_format(
                   " for the %zuth time without a barrier: expected it to end, and no wait for another thread but "
                   "by a barrier",
                   (size_t)block.thread[me].accesses);
    });
    emu_fibers_give_up();
}

void emu_kernel_touch(const void *pointer, size_t size, emu_kind kind, const void *return_address)
{
    if (size == 0 || emu_fiber_stack_has(pointer))
        return;
    kernel_pause pause;
    kernel_count_access(return_address);
    unsigned me = emu_fiber_index();
    emu_access now = {block.task, block.linear * block.threads + me, block.phase, block.warp[me / 32].phase,
                      emu_pc_of(return_address)};
    emu_fault fault;
    bool may = kernel_may(pointer, now, size, kind, &fault);
    if (may && size <= 16 && !(size & (size - 1)) && (uintptr_t)pointer & (size - 1)) {
        may = false;
        fault.wrong = EMU_MISALIGNED;
    }
    if (!may && fault.wrong == EMU_UNWRITTEN)
        emu_suspect(fault);
    if (may || fault.wrong == EMU_UNWRITTEN)
        return;
    kernel_blame([fault] { return emu_fault_text(fault); });
    emu_fibers_give_up();
}

void emu_atomic(void *address, size_t size)
{
    emu_kernel_touch(address, size, EMU_ATOMIC, __builtin_return_address(0));
}

void emu_atomic_float(emu_place at, void *)
{
    kernel_pause pause;
    kernel_blame_text(emu_task_text(block.task) + ": " + kernel_thread_text(emu_fiber_index()) +
                      " adds a float atomically at " + emu_place_text(at) +
                      ", whose sum depends on who comes first: expected a reduction in a fixed order");
    emu_fibers_give_up();
}

// ---- running -------------------------------------------------------------------------------------------------------

static void kernel_thread(unsigned i)
{
    const dim3 &size = block.kernel->block;
    block.thread[i] = thread_state{{i % size.x, i / size.x % size.y, i / (size.x * size.y)}, NULL, {}, false, 0};
    in_kernel = true;
    block.kernel->call->run();
    in_kernel = false;
    block.thread[i].ended = true;
}

// Some threads wait for others that never come.
static std::string kernel_stuck_text()
{
    unsigned waits = block.threads, other = block.threads;
    for (unsigned i = 0; i < block.threads; i++)
        if (block.thread[i].waits_in)
            waits = std::min(waits, i);
    for (unsigned i = 0; i < block.threads && other == block.threads; i++)
        if (block.thread[i].ended || !kernel_same_place(block.thread[i].waits_at, block.thread[waits].waits_at))
            other = i;
    std::string text = emu_task_text(block.task) + ": " + kernel_waits_text(waits);
    if (other < block.threads)
        text += ", and " + kernel_waits_text(other);
    return text + ": expected all threads there";
}

static bool kernel_run_block(unsigned linear)
{
    const dim3 &grid = block.kernel->grid;
    generation++;
    block.linear = linear;
    block.index = uint3{linear % grid.x, linear / grid.x % grid.y, linear / (grid.x * grid.y)};
    block.phase = 0;
    block.at_barrier = 0;
    block.error = nullptr;
    block.thread.assign(block.threads, thread_state{});
    for (warp_state &warp : block.warp) {
        warp.phase = 0;
        warp.open.clear();
        warp.complete.clear();
    }
    unsigned ended = emu_fibers_run(block.threads, kernel_thread);
    if (block.error)
        emu_fail(block.error());
    else if (ended < block.threads)
        emu_fail(kernel_stuck_text());
    else if (emu_suspects(true))
        emu_suspect_confirm();
    return ended == block.threads;
}

static void kernel_prepare_shared(size_t dynamic)
{
    static bool once;
    if (!once)
        emu_shadow_init(static_shadow, (size_t)(shared_end - shared_start));
    once = true;
    if (dynamic_shadow.size != dynamic) {
        emu_shadow_fini(dynamic_shadow);
        emu_shadow_init(dynamic_shadow, dynamic);
    }
}

void emu_kernel_run(const emu_kernel &kernel, uint32_t task)
{
    block.kernel = &kernel;
    block.task = task;
    block.threads = kernel.block.x * kernel.block.y * kernel.block.z;
    emu_task_at(task).block_threads = block.threads;
    kernel_prepare_shared(kernel.shared);
    std::vector<unsigned> order(kernel.grid.x * kernel.grid.y * kernel.grid.z);
    std::iota(order.begin(), order.end(), 0);
    emu_memory_open();
    for (size_t left = order.size(); left > 0; left--) {
        std::swap(order[emu_random(left)], order[left - 1]);
        if (!kernel_run_block(order[left - 1]))
            break;
    }
}
