// SPDX-License-Identifier: Apache-2.0
//
// join ADDRESS JOB PROCESS: joins a job as worker 0 of 2 by these names, which may be such as no workerd has, says so,
// and sends nothing more: it is dead soon.
#include <stdio.h>

#include "common/base/alloc.h"
#include "tests/it/call.h"
#include "tests/messages.h"

int main(int argc, char **argv)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    struct answer a;
    if (argc != 4) {
        fprintf(stderr, "usage: join ADDRESS JOB PROCESS\n");
        return 64;
    }
    struct ps_client *client = ps_client_create((const char *const *)&argv[1], 1, NULL);
    caller.job = argv[2];
    caller.run = caller.incarnation = 0;
    r.caller = &caller;
    r.address = argv[3];
    r.workers = 2;
    r.update = PARAMSERVER__V1__UPDATE__SYNC;
    ask(client, PARAMSERVER__V1__METHOD__JOIN, false, &r.base, NULL, &a);
    if (await(&a))
        fprintf(stderr, "join: %s: %s\n", ps_code_name(a.code), a.text);
    else
        printf("joined\n");
    ps_slices_clear(&a.body);
    ps_client_stop(client);
    ps_client_destroy(client);
    return a.code ? 1 : 0;
}
