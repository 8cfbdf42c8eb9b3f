// SPDX-License-Identifier: Apache-2.0
//
// What every kind of call needs of the client: how it ends, in which words, and who is woken to say so.
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/text.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/credentials.h"
#include "common/rpc/method.h"

void ps__client_poke(struct ps_client *c, uint64_t at)
{
    pthread_mutex_lock(&c->lock);
    bool must_wake = at < c->wake && !c->waking && !c->closed;
    c->waking |= must_wake;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    if (must_wake)
        ps_cq_batch(&c->cq, c->waker, NULL, 0, &c->on_wake);
}

static bool call_reached_nobody(const char *details)
{
    static const char *const begins[] = {"failed to connect to all addresses", "DNS resolution failed"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(details, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

// What the core says where it reaches nobody ends with the cause: "failed to connect to all addresses; last error: ...:
// Connection refused". What is not the system's word for it is said in ours. What a server has said is left alone.
static const char *call_cause(const char *details, bool tls)
{
    static const struct {
        const char *said, *meant;
    } known[] = {
        {"", "connection lost"},
        {"keepalive watchdog timeout", "it has been silent for some seconds"},
        {"Socket closed", "it has closed the connection: it has ended, or wants TLS"},
        {"connection attempt timed out before receiving SETTINGS frame",
         "it takes the connection, then does not answer"},
        {"Failed parsing HTTP/2", "what listens there is no gRPC server"},
        {"Trying to connect an http1.x server", "what listens there is no gRPC server"},
        {"certificate verify failed",
         "its certificate is not of an authority that this process trusts, or has expired"},
        {"wrong version number", "it does not speak TLS"},
        {"is not in peer certificate", "its certificate is of another role"},
        {"Verify peer callback returned a failure (1)", "its certificate is of another role, or of another user's"},
    };
    const char *colon = call_reached_nobody(details) ? strstr(details, ": ") : NULL;
    for (; colon; colon = strstr(details, ": "))
        details = colon + 2;
    if (tls && ps_ends_with(details, "Socket closed"))
        return "it has closed the connection: it has ended, or does not take this process's certificate";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (*known[i].said ? ps_ends_with(details, known[i].said) : !*details)
            return known[i].meant;
    return details;
}

char *ps__call_text(const struct ps__pending *p, enum ps_code code, const char *details)
{
    bool ours = !*details || strcmp(details, "Deadline Exceeded") == 0;  // the core's word for it
    if (code == PS_DEADLINE_EXCEEDED && ours)
        return ps_printf("no answer to %s", ps_method_name(p->method));
    return ps_strdup(code == PS_UNAVAILABLE ? call_cause(details, p->tls) : details);
}

grpc_metadata ps__munge_metadata(const char *credential)
{
    return (grpc_metadata){.key = grpc_slice_from_static_string(PS__MUNGE_KEY),
                           .value = grpc_slice_from_copied_string(credential)};
}

void ps__pending_free(struct ps__pending *p)
{
    if (!p)
        return;
    ps_slices_clear(&p->request);
    free(p->text);
    free(p);
}

void ps__pending_end_later(struct ps_client *c, struct ps__pending *p, enum ps_code code, char *text)
{
    p->code = code;
    p->text = text;
    pthread_mutex_lock(&c->lock);
    TAILQ_INSERT_TAIL(&c->ended, p, link);
    pthread_mutex_unlock(&c->lock);
    ps__client_poke(c, 0);
}
