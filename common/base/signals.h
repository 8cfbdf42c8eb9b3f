// SPDX-License-Identifier: Apache-2.0
//
// What a signal handler says to other threads, a number or a count: volatile is enough for one thread, not between two.
// And whether a signal is one to hear.
#ifndef PS_COMMON_SIGNALS_H
#define PS_COMMON_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

static inline int ps_signal_number(const volatile sig_atomic_t *at)  // 0: none came
{
    return (int)__atomic_load_n(at, __ATOMIC_RELAXED);
}

// For people.
static inline const char *ps_signal_name(int number)
{
    switch (number) {
    case SIGHUP:
        return "SIGHUP";
    case SIGINT:
        return "SIGINT";
    case SIGQUIT:
        return "SIGQUIT";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR1:
        return "SIGUSR1";
    case SIGUSR2:
        return "SIGUSR2";
    default:
        return "a signal";
    }
}

static inline void ps_signal_set(volatile sig_atomic_t *at, int number)
{
    __atomic_store_n(at, (sig_atomic_t)number, __ATOMIC_RELAXED);
}

// Whether the process was started with the signal ignored, as nohup does, or ignores it by now.
static inline bool ps_signal_ignored(int number)
{
    struct sigaction is;
    return sigaction(number, NULL, &is) == 0 && is.sa_handler == SIG_IGN;
}

// Is it to end a program that a person has started? Not where nohup, say, has it ignored; but SIGINT is, which a shell
// has all ignore that a script starts in the background.
static inline bool ps_signal_ends(int number)
{
    return number == SIGINT || !ps_signal_ignored(number);
}

static inline void ps_signal_count(volatile sig_atomic_t *at)
{
    __atomic_fetch_add(at, 1, __ATOMIC_RELAXED);
}

#endif
