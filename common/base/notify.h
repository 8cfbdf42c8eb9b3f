// SPDX-License-Identifier: Apache-2.0
#ifndef PS_COMMON_NOTIFY_H
#define PS_COMMON_NOTIFY_H

// Tells systemd of a service of Type=notify: "READY=1", "STOPPING=1" (sd_notify(3)). Nothing where nobody listens.
void ps_notify(const char *state);

#endif
