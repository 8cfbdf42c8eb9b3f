// SPDX-License-Identifier: Apache-2.0
//
// What kernels are written in, for C++: qualifiers, indices, vectors, barriers, shuffles, atomics, and the launch.
#ifndef EMULATED_KERNEL_H
#define EMULATED_KERNEL_H

#include <memory>
#include <string.h>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Sections of their own tell the emulator what an address is.
#define __shared__ static __attribute__((section("emu_shared")))
#define __constant__ static __attribute__((section("emu_constant")))

// ---- vectors -------------------------------------------------------------------------------------------------------

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

#define EMU_VECTOR(T, base)                                        \
    struct alignas(2 * sizeof(base)) T##2                          \
    {                                                              \
        base x, y;                                                 \
    };                                                             \
    struct T##3                                                    \
    {                                                              \
        base x, y, z;                                              \
    };                                                             \
    struct alignas(4 * sizeof(base)) T##4                          \
    {                                                              \
        base x, y, z, w;                                           \
    };                                                             \
    static inline T##2 make_##T##2(base x, base y)                 \
    {                                                              \
        return T##2 {x, y};                                        \
    }                                                              \
    static inline T##3 make_##T##3(base x, base y, base z)         \
    {                                                              \
        return T##3 {x, y, z};                                     \
    }                                                              \
    static inline T##4 make_##T##4(base x, base y, base z, base w) \
    {                                                              \
        return T##4 {x, y, z, w};                                  \
    }
EMU_VECTOR(float, float)
EMU_VECTOR(int, int)
EMU_VECTOR(uint, unsigned)
EMU_VECTOR(uchar, unsigned char)
EMU_VECTOR(ushort, unsigned short)

// ---- who a thread is -----------------------------------------------------------------------------------------------

// By value: a variable of the emulator would look like a host pointer in a kernel.
uint3 emu_thread_idx();
uint3 emu_block_idx();
dim3 emu_block_dim();
dim3 emu_grid_dim();
#define threadIdx emu_thread_idx()
#define blockIdx emu_block_idx()
#define blockDim emu_block_dim()
#define gridDim emu_grid_dim()
constexpr int warpSize = 32;

void *emu_dynamic_shared();

// ---- barriers and warps --------------------------------------------------------------------------------------------

void emu_syncthreads(emu_place at);
void emu_syncwarp(emu_place at, unsigned mask = 0xffffffffu);
#define __syncthreads() emu_syncthreads(EMU_HERE)
#define __syncwarp(...) emu_syncwarp(EMU_HERE __VA_OPT__(, ) __VA_ARGS__)
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

enum emu_shuffle { EMU_SHUFFLE_LANE, EMU_SHUFFLE_UP, EMU_SHUFFLE_DOWN, EMU_SHUFFLE_XOR };
// The value of another lane, up to eight bytes.
uint64_t emu_shuffle_bits(emu_place at, emu_shuffle kind, unsigned mask, uint64_t bits, unsigned by, int width);
unsigned emu_ballot(emu_place at, unsigned mask, bool set);

template <class T>
static inline T emu_shuffle_value(emu_place at, emu_shuffle kind, unsigned mask, T value, unsigned by, int width = 32)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "CUDA shuffles values of 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emu_shuffle_bits(at, kind, mask, bits, by, width);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
#define __shfl_sync(mask, ...) emu_shuffle_value(EMU_HERE, EMU_SHUFFLE_LANE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) emu_shuffle_value(EMU_HERE, EMU_SHUFFLE_UP, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) emu_shuffle_value(EMU_HERE, EMU_SHUFFLE_DOWN, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) emu_shuffle_value(EMU_HERE, EMU_SHUFFLE_XOR, mask, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emu_ballot(EMU_HERE, mask, (predicate) != 0)
#define __any_sync(mask, predicate) (emu_ballot(EMU_HERE, mask, (predicate) != 0) != 0)
#define __all_sync(mask, predicate) (emu_ballot(EMU_HERE, mask, (predicate) == 0) == 0)

// ---- atomics: of integers. The sum of floats depends on who comes first, so those are an error. --------------------

void emu_atomic(void *address, size_t size);
void emu_atomic_float(emu_place at, void *address);

#define EMU_ATOMIC(name, result)                                                     \
    template <class T> static inline T name(T *address, T value)                     \
    {                                                                                \
        static_assert(std::is_integral<T>::value, #name " of integers only");        \
        emu_atomic(address, sizeof *address);                                        \
        return emu_atomic_exchange(address, [value](T old) { return (T)(result); }); \
    }
template <class T, class F>
__attribute__((no_sanitize("thread"))) static inline T emu_atomic_exchange(T *address, F next)
{
    T old = *address;
    *address = next(old);
    return old;
}
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicMax, old > value ? old : value)
EMU_ATOMIC(atomicMin, old < value ? old : value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicAnd, old &value)
EMU_ATOMIC(atomicExch, ((void)old, value))
static inline float atomicAdd(float *address, float value, const char *file = __builtin_FILE(),
                              int line = __builtin_LINE())
{
    emu_atomic_float(emu_place{file, line}, address);
    return value;
}
template <class T> static inline T atomicCAS(T *address, T expected, T value)
{
    static_assert(std::is_integral<T>::value, "atomicCAS of integers only");
    emu_atomic(address, sizeof *address);
    return emu_atomic_exchange(address, [=](T old) { return old == expected ? value : old; });
}

// ---- launches ------------------------------------------------------------------------------------------------------

// A kernel with its arguments, as they were when it was launched.
struct emu_call {
    virtual ~emu_call() = default;
    virtual void run() const = 0;  // as one thread
};

template <class... P> struct emu_call_of : emu_call {
    void (*kernel)(P...);
    std::tuple<P...> arguments;

    template <class... A>
    emu_call_of(void (*kernel_)(P...), A &&...a) : kernel(kernel_), arguments(std::forward<A>(a)...)
    {
    }
    // Not watched: the arguments lie in host memory.
    template <size_t... I> __attribute__((no_sanitize("thread"))) void with(std::index_sequence<I...>) const
    {
        kernel(std::get<I>(arguments)...);
    }
    __attribute__((no_sanitize("thread"))) void run() const override
    {
        with(std::index_sequence_for<P...>());
    }
};

// name, file and line are kept: string literals.
cudaError_t emu_launch_call(emu_place at, const char *name, const void *kernel, std::shared_ptr<const emu_call> call,
                            dim3 grid, dim3 block, size_t shared, cudaStream_t stream);

template <class... P, class... A>
cudaError_t emu_launch(emu_place at, const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                       cudaStream_t stream, A &&...arguments)
{
    return emu_launch_call(at, name, reinterpret_cast<const void *>(kernel),
                           std::make_shared<const emu_call_of<P...>>(kernel, std::forward<A>(arguments)...), grid,
                           block, shared, stream);
}

cudaError_t emu_func_set_attribute(const void *kernel, cudaFuncAttribute which, int value);
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, cudaFuncAttribute which, int value)
{
    return emu_func_set_attribute(reinterpret_cast<const void *>(kernel), which, value);
}

#endif
