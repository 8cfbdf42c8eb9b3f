// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/fiber.h"
#include "tests/cuda/forever.h"
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

static const size_t stack_size = 128 * 1024;
static const size_t guard_size = 4096;

// ---- contexts ------------------------------------------------------------------------------------------------------

// swapcontext asks the kernel twice for the signal mask: where we know how, registers are switched without it.
#if defined(__x86_64__)

typedef void *switch_context;  // the stack, with the registers that a function keeps on it

extern "C" void emu_fiber_jump(switch_context *from, switch_context to);
__asm__(".text\n"
        ".type emu_fiber_jump, @function\n"
        "emu_fiber_jump:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emu_fiber_jump, .-emu_fiber_jump\n");

static void context_jump(switch_context *from, switch_context *to)
{
    emu_fiber_jump(from, *to);
}

// As if `function` had been called from nowhere and had jumped away at once.
static void context_make(switch_context *context, char *stack, size_t size, void (*function)())
{
    uintptr_t *top = (uintptr_t *)(stack + size) - 8;
    for (int i = 0; i < 8; i++)
        top[i] = 0;
    top[6] = (uintptr_t)function;
    *context = top;
}

#else

typedef ucontext_t switch_context;

static void context_jump(switch_context *from, switch_context *to)
{
    swapcontext(from, to);
}

static void context_make(switch_context *context, char *stack, size_t size, void (*function)())
{
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = size;
    context->uc_link = NULL;
    makecontext(context, function, 0);
}

#endif

// ---- state ---------------------------------------------------------------------------------------------------------

struct fiber {
    switch_context context;
    char *stack;
    unsigned index;  // whose body it runs
    bool idle;       // it has ended a body and waits for another one
    void *sanitizer;
};

static fiber outside;  // who called emu_fibers_run
static fiber *current;
#ifdef __SANITIZE_ADDRESS__
static const void *outside_stack;
static size_t outside_stack_size;
#endif

static auto &all = emu_forever<std::vector<std::unique_ptr<fiber>>>();
static auto &idle = emu_forever<std::vector<fiber *>>(), &ready = emu_forever<std::vector<fiber *>>();
static auto &waiting = emu_forever<std::vector<fiber *>>();  // by index
static auto &not_begun = emu_forever<std::vector<unsigned>>();
static void (*body)(unsigned);
static unsigned ended;

// ---- random --------------------------------------------------------------------------------------------------------

static uint64_t random_state;

void emu_random_seed(uint64_t seed)
{
    random_state = seed;
}

// splitmix64
uint64_t emu_random(uint64_t n)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

// ---- switching -----------------------------------------------------------------------------------------------------

static void fiber_arrived(fiber *from)
{
    (void)from;
#ifdef __SANITIZE_ADDRESS__
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(current->sanitizer, &bottom, &size);
    if (from == &outside) {
        outside_stack = bottom;
        outside_stack_size = size;
    }
#endif
}

static fiber *switched_from;

static void fiber_switch(fiber *to)
{
    fiber *from = current;
    if (to == from)
        return;
    switched_from = from;
    current = to;
#ifdef __SANITIZE_ADDRESS__
    bool out = to == &outside;
    __sanitizer_start_switch_fiber(&from->sanitizer, out ? outside_stack : to->stack + guard_size,
                                   out ? outside_stack_size : stack_size);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to->sanitizer, 0);
#endif
    context_jump(&from->context, &to->context);
    fiber_arrived(switched_from);
}

static void fiber_main();

// Begins anew, whatever it was doing.
static void fiber_prepare(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack + guard_size, stack_size);
    f->sanitizer = NULL;
#endif
    context_make(&f->context, f->stack + guard_size, stack_size, fiber_main);
    f->idle = true;
    idle.push_back(f);
}

static fiber *fiber_create()
{
    std::unique_ptr<fiber> f(new fiber{});
    void *memory = mmap(NULL, guard_size + stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, guard_size, PROT_NONE)) {
        perror("CUDA emulator: mmap");
        abort();
    }
    f->stack = (char *)memory;
#ifdef __SANITIZE_THREAD__
    f->sanitizer = __tsan_create_fiber(0);
#endif
    all.push_back(std::move(f));
    fiber_prepare(all.back().get());
    return all.back().get();
}

static fiber *fiber_take_idle()
{
    if (idle.empty())
        fiber_create();
    fiber *f = idle.back();
    idle.pop_back();
    f->idle = false;
    return f;
}

// Goes on with another one that can; out if none can.
static void fiber_leave()
{
    if (!not_begun.empty() && (ready.empty() || emu_random(2))) {
        if (!current->idle) {
            fiber_switch(fiber_take_idle());
            return;
        }
        current->idle = false;  // it begins the next one itself
        return;
    }
    if (current->idle)
        idle.push_back(current);
    if (ready.empty()) {
        fiber_switch(&outside);
        return;
    }
    size_t i = emu_random(ready.size());
    fiber *next = ready[i];
    ready[i] = ready.back();
    ready.pop_back();
    fiber_switch(next);
}

static void fiber_main()
{
    fiber_arrived(switched_from);
    for (;;) {
        size_t i = emu_random(not_begun.size());
        current->index = not_begun[i];
        not_begun[i] = not_begun.back();
        not_begun.pop_back();
        body(current->index);
        ended++;
        current->idle = true;
        fiber_leave();
    }
}

// ---- from outside --------------------------------------------------------------------------------------------------

unsigned emu_fibers_run(unsigned count, void (*wanted)(unsigned))
{
    body = wanted;
    ended = 0;
    ready.clear();
    waiting.assign(count, nullptr);
    not_begun.resize(count);
    for (unsigned i = 0; i < count; i++)
        not_begun[i] = i;
    current = &outside;
#ifdef __SANITIZE_THREAD__
    outside.sanitizer = __tsan_get_current_fiber();
#endif
    fiber_switch(fiber_take_idle());
    if (ended < count)  // some are in the midst of a body, and stay there
        for (auto &f : all)
            if (!f->idle)
                fiber_prepare(f.get());
    return ended;
}

// ---- in a body -----------------------------------------------------------------------------------------------------

unsigned emu_fiber_index()
{
    return current->index;
}

void emu_fiber_wait()
{
    waiting[current->index] = current;
    fiber_leave();
}

void emu_fiber_wake(unsigned i)
{
    ready.push_back(waiting[i]);
    waiting[i] = nullptr;
}

void emu_fibers_give_up()
{
    fiber_switch(&outside);
    abort();  // nobody comes back
}

bool emu_fiber_stack_has(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)(current->stack + guard_size) < stack_size;
}
