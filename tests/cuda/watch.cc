// SPDX-License-Identifier: Apache-2.0
//
// The compiler calls these at each load and store of code that is compiled to be watched: -fsanitize=thread calls
// __tsan_read4 and the like, and tests/cuda/local.mk renames them to ours in the assembly.
#include "tests/cuda/host.h"
#include "tests/cuda/kernel.h"
#include "tests/cuda/runtime.h"

// The host's own accesses, in watched code outside of kernels.
static void watch_host(const void *pointer, size_t size, emu_kind kind, const void *return_address)
{
    emu_entry entry;
    const emu_allocation *allocation = emu_memory_find(pointer);
    emu_pc pc = emu_pc_of(return_address);
    if (allocation && allocation->device == EMU_PINNED) {
        emu_touch_any(pointer, size, kind, emu_callback_task() ? emu_callback_task() : emu_host_task(), pc);
        return;
    }
    emu_fail(emu_format("the host %s %zu bytes%s, memory of a device%s: expected a copy, or work on a stream",
                        kind == EMU_READ ? "reads" : "writes", size, emu_pc_suffix(pc).c_str(),
                        allocation ? (", of " + allocation->made_by).c_str() : ""));
}

static inline void watch(const void *pointer, size_t size, emu_kind kind, const void *return_address)
{
    if (emu_in_kernel())
        emu_kernel_touch(pointer, size, kind, return_address);
    else if (__builtin_expect(emu_memory_owns(pointer), 0))
        watch_host(pointer, size, kind, return_address);
}

#define WATCH(name, size, kind)                                  \
    extern "C" void emu_tsan_##name(const void *pointer);        \
    void emu_tsan_##name(const void *pointer)                    \
    {                                                            \
        watch(pointer, size, kind, __builtin_return_address(0)); \
    }
#define WATCH_SIZE(size)                          \
    WATCH(read##size, size, EMU_READ)             \
    WATCH(write##size, size, EMU_WRITE)           \
    WATCH(unaligned_read##size, size, EMU_READ)   \
    WATCH(unaligned_write##size, size, EMU_WRITE) \
    WATCH(volatile_read##size, size, EMU_READ)    \
    WATCH(volatile_write##size, size, EMU_WRITE)
WATCH_SIZE(1)
WATCH_SIZE(2)
WATCH_SIZE(4)
WATCH_SIZE(8)
WATCH_SIZE(16)

template <class T> static bool watch_compare_exchange(volatile T *p, T *expected, T value)
{
    emu_host_release(p);
    bool done = __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    emu_host_acquire(p);
    return done;
}

// Atomic operations of watched code of the host, as std::shared_ptr has them: done, not checked, and each orders all
// before it and all after it on that object.
#define ATOMIC_FETCH(bits, name, T)                                                       \
    extern "C" T emu_tsan_atomic##bits##_fetch_##name(volatile T *p, T value, int order); \
    T emu_tsan_atomic##bits##_fetch_##name(volatile T *p, T value, int)                   \
    {                                                                                     \
        return __atomic_fetch_##name(p, value, __ATOMIC_SEQ_CST);                         \
    }
#define ATOMIC(bits, T)                                                                                            \
    ATOMIC_FETCH(bits, add, T)                                                                                     \
    ATOMIC_FETCH(bits, sub, T)                                                                                     \
    ATOMIC_FETCH(bits, and, T)                                                                                     \
    ATOMIC_FETCH(bits, or, T)                                                                                      \
    extern "C" T emu_tsan_atomic##bits##_load(const volatile T *p, int order);                                     \
    extern "C" void emu_tsan_atomic##bits##_store(volatile T *p, T value, int order);                              \
    extern "C" T emu_tsan_atomic##bits##_exchange(volatile T *p, T value, int order);                              \
    extern "C" int emu_tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T value, int, int); \
    extern "C" int emu_tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *expected, T value, int, int);   \
    T emu_tsan_atomic##bits##_load(const volatile T *p, int)                                                       \
    {                                                                                                              \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                                               \
    }                                                                                                              \
    void emu_tsan_atomic##bits##_store(volatile T *p, T value, int)                                                \
    {                                                                                                              \
        emu_host_release(p);                                                                                       \
        __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                                              \
    }                                                                                                              \
    T emu_tsan_atomic##bits##_exchange(volatile T *p, T value, int)                                                \
    {                                                                                                              \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                                    \
    }                                                                                                              \
    int emu_tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *expected, T value, int, int)             \
    {                                                                                                              \
        return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    }                                                                                                              \
    int emu_tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *expected, T value, int, int)               \
    {                                                                                                              \
        return __atomic_compare_exchange_n(p, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
    }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

extern "C" {
void emu_tsan_atomic_thread_fence(int order);
void emu_tsan_read_range(const void *pointer, size_t size);
void emu_tsan_write_range(const void *pointer, size_t size);
void emu_tsan_vptr_update(void **pointer, void *value);
void emu_tsan_vptr_read(void **pointer);
void emu_tsan_init(void);
void emu_tsan_func_entry(void *caller);
void emu_tsan_func_exit(void);
void *emu_watched_memcpy(void *to, const void *from, size_t size);
void *emu_watched_memmove(void *to, const void *from, size_t size);
void *emu_watched_memset(void *to, int value, size_t size);
}

void emu_tsan_atomic_thread_fence(int)
{
    __sync_synchronize();
}

void emu_tsan_read_range(const void *pointer, size_t size)
{
    watch(pointer, size, EMU_READ, __builtin_return_address(0));
}

void emu_tsan_write_range(const void *pointer, size_t size)
{
    watch(pointer, size, EMU_WRITE, __builtin_return_address(0));
}

void emu_tsan_vptr_update(void **, void *)
{
}

void emu_tsan_vptr_read(void **)
{
}

void emu_tsan_init(void)
{
}

void emu_tsan_func_entry(void *)
{
}

void emu_tsan_func_exit(void)
{
}

void *emu_watched_memcpy(void *to, const void *from, size_t size)
{
    watch(from, size, EMU_READ, __builtin_return_address(0));
    watch(to, size, EMU_WRITE, __builtin_return_address(0));
    return memmove(to, from, size);
}

void *emu_watched_memmove(void *to, const void *from, size_t size)
{
    return emu_watched_memcpy(to, from, size);
}

void *emu_watched_memset(void *to, int value, size_t size)
{
    watch(to, size, EMU_WRITE, __builtin_return_address(0));
    return memset(to, value, size);
}
