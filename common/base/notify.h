// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_NOTIFY_H
#define PS_COMMON_NOTIFY_H

#include <stdint.h>

// Tells systemd of a service of Type=notify: "READY=1", "STOPPING=1" (sd_notify(3)). Nothing where nobody listens.
void ps_notify(const char *state);

// What systemd's watchdog (WatchdogSec=) wants to hear.
struct ps_watchdog {
    uint64_t interval, next;  // ns; interval 0: there is none
};
void ps_watchdog_init(struct ps_watchdog *w);
// "WATCHDOG=1", once in an interval, however often it is called.
void ps_watchdog_feed(struct ps_watchdog *w);

#endif
