// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_NOTIFY_H
#define PS_COMMON_NOTIFY_H

// Tells systemd of a service of Type=notify: "READY=1", "STOPPING=1" (sd_notify(3)). Nothing where nobody listens.
void ps_notify(const char *state);
// "WATCHDOG=1", where systemd has asked for that (WatchdogSec=) and as often: called more often it does nothing. One
// thread.
void ps_notify_alive(void);

#endif
