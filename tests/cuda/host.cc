// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/host.h"
#include "tests/cuda/forever.h"
#include "tests/cuda/runtime.h"
#include <atomic>
#include <dlfcn.h>
#include <map>
#include <pthread.h>
#include <unordered_map>

// ---- clocks --------------------------------------------------------------------------------------------------------

// The thread has ended; what its libraries still do, such as at the end of the process, orders nothing.
static thread_local bool thread_over;

struct host_thread {
    uint64_t epoch = 0;  // the emu_reset in which the rest is valid
    uint32_t actor = 0, task = 0;
    emu_clock clock;
    emu_place at;
    ~host_thread()
    {
        thread_over = true;
    }
};
static thread_local struct host_thread thread_now;

static std::atomic<uint64_t> epoch;  // 0: nobody has called emu_reset
static auto &objects = emu_forever<std::unordered_map<const volatile void *, emu_clock>>();
static auto &ended = emu_forever<std::map<pthread_t, emu_clock>>();  // what threads knew at their end

static struct host_thread *host_me()
{
    struct host_thread *me = &thread_now;
    if (me->epoch != epoch) {
        me->epoch = epoch;
        me->actor = emu_actor_create();
        me->clock.clear();
        me->at = emu_place{"start", 0};
        me->task = emu_task_create(me->actor, me->clock, "the host", me->at, 0, -1);
    }
    return me;
}

uint32_t emu_host_task()
{
    return host_me()->task;
}

void emu_host_calls(emu_place at)
{
    struct host_thread *me = host_me();
    me->at = at;
    me->task = emu_task_create(me->actor, me->clock, "the host", at, 0, -1);
}

void emu_host_learns(const emu_clock &clock)
{
    struct host_thread *me = host_me();
    emu_clock_join(me->clock, clock);
    emu_clock_join(emu_task_at(me->task).clock, clock);
}

const emu_clock &emu_host_clock()
{
    return host_me()->clock;
}

void emu_hosts_reset()
{
    objects.clear();
    ended.clear();
    epoch++;
}

// What it does from now on is not what it tells.
static void host_tell(emu_clock &clock)
{
    struct host_thread *me = host_me();
    emu_clock_join(clock, me->clock);
    emu_host_calls(me->at);
}

// The emulator's own use of pthreads orders nothing in the program.
static bool host_is_watched()
{
    return epoch && !thread_over && !emu_entry_held();
}

void emu_host_release(const volatile void *object)
{
    if (!host_is_watched())
        return;
    emu_entry entry;
    host_tell(objects[object]);
}

void emu_host_acquire(const volatile void *object)
{
    if (!host_is_watched())
        return;
    emu_entry entry;
    auto found = objects.find(object);
    if (found != objects.end())
        emu_host_learns(found->second);
}

// ---- pthreads ------------------------------------------------------------------------------------------------------

template <class F> static F *host_next(const char *name)
{
    return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name)               \
    static decltype(name) *next; \
    if (!next)                   \
    next = host_next<decltype(name)>(#name)

extern "C" int pthread_mutex_lock(pthread_mutex_t *mutex) noexcept
{
    NEXT(pthread_mutex_lock);
    int error = next(mutex);
    emu_host_acquire(mutex);
    return error;
}

extern "C" int pthread_mutex_trylock(pthread_mutex_t *mutex) noexcept
{
    NEXT(pthread_mutex_trylock);
    int error = next(mutex);
    if (!error)
        emu_host_acquire(mutex);
    return error;
}

extern "C" int pthread_mutex_unlock(pthread_mutex_t *mutex) noexcept
{
    NEXT(pthread_mutex_unlock);
    emu_host_release(mutex);
    return next(mutex);
}

extern "C" int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    NEXT(pthread_cond_wait);
    emu_host_release(mutex);
    int error = next(condition, mutex);
    emu_host_acquire(mutex);
    return error;
}

extern "C" int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    NEXT(pthread_cond_timedwait);
    emu_host_release(mutex);
    int error = next(condition, mutex, until);
    emu_host_acquire(mutex);
    return error;
}

extern "C" int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                                      const struct timespec *until)
{
    NEXT(pthread_cond_clockwait);
    emu_host_release(mutex);
    int error = next(condition, mutex, clock, until);
    emu_host_acquire(mutex);
    return error;
}

extern "C" int pthread_barrier_wait(pthread_barrier_t *barrier) noexcept
{
    NEXT(pthread_barrier_wait);
    emu_host_release(barrier);
    int error = next(barrier);
    emu_host_acquire(barrier);
    return error;
}

// A thread begins with what its creator knows.
struct host_start {
    void *(*function)(void *);
    void *argument;
};

static void *host_begin(void *argument)
{
    std::unique_ptr<host_start> start((host_start *)argument);
    emu_host_acquire(start.get());
    void *result = start->function(start->argument);
    if (host_is_watched()) {
        emu_entry entry;
        host_tell(ended[pthread_self()]);
    }
    return result;
}

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                              void *argument) noexcept
{
    NEXT(pthread_create);
    auto *start = new host_start{function, argument};
    emu_host_release(start);
    int error = next(thread, attributes, host_begin, start);
    if (error)
        delete start;
    return error;
}

extern "C" int pthread_join(pthread_t thread, void **result)
{
    NEXT(pthread_join);
    int error = next(thread, result);
    if (!error && host_is_watched()) {
        emu_entry entry;
        emu_host_learns(ended[thread]);
        ended.erase(thread);
    }
    return error;
}
