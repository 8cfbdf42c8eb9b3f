// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/server.h"

#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/rpc/address.h"
#include "common/rpc/buffer.h"
#include "common/rpc/method.h"
#include "common/rpc/server_inside.h"
#include "common/wire/wire.h"

// ---- what is taken up ---------------------------------------------------------------------------------------------

// One request for a call of one kind, made of the core again as soon as it is met: calls that nobody asked for pile up
// in the core without bound, those taken up are bounded here. Their messages are not read before there is room.
struct acceptor {
    struct ps_event ev;
    struct ps_server *server;
    enum { UNARY, STREAM, SERVICE, UNKNOWN } kind;
    int method;  // of the contract, or beside it
    void *registered;
    grpc_call *call;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details;  // UNKNOWN
};

static void acceptor_free(struct acceptor *a)
{
    grpc_metadata_array_destroy(&a->metadata);
    grpc_call_details_destroy(&a->details);
    free(a);
}

static void acceptor_arm(struct acceptor *a)
{
    struct ps_server *s = a->server;
    grpc_completion_queue *q = s->cq.queue;
    grpc_call_error error;
    if (!ps_cq_begin(&s->cq)) {
        acceptor_free(a);
        return;
    }
    if (a->kind == UNKNOWN)
        error = grpc_server_request_call(s->grpc, &a->call, &a->details, &a->metadata, q, q, &a->ev);
    else
        error = grpc_server_request_registered_call(s->grpc, a->registered, &a->call, &a->deadline, &a->metadata, NULL,
                                                    q, q, &a->ev);
    if (error)
        ps_error_log("grpc_server_request_call: %s", grpc_call_error_to_string(error));
}

static uint64_t acceptor_deadline(gpr_timespec t)
{
    t = gpr_convert_clock_type(t, GPR_CLOCK_MONOTONIC);
    if (gpr_time_cmp(t, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0)
        return UINT64_MAX;
    return t.tv_sec < 0 ? 0 : (uint64_t)t.tv_sec * PS_SECOND + (uint64_t)t.tv_nsec;
}

static void acceptor_refuse(struct ps_server *s, grpc_call *call, const grpc_call_details *details)
{
    char text[256], *path = grpc_slice_to_c_string(details->method);
    snprintf(text, sizeof text, "no method %.160s here: this is a paramserver.v1 server", path);
    ps__call_refuse(s, call, PS_UNIMPLEMENTED, text);
    gpr_free(path);
}

// May it? The methods of a stream are those of one kind of caller; services beside the contract are anyone's who is
// known.
static enum ps_code acceptor_check_role(const struct acceptor *a, const struct ps_identity *from, struct ps_error *e)
{
    const unsigned may = a->kind == UNARY    ? ps_method_roles(a->method)
                         : a->kind == STREAM ? PS_STREAM_ROLES
                                             : PS_ROLE_ALL;
    char is[PS_ROLES_TEXT], expected[PS_ROLES_TEXT];
    if (from->roles & may)
        return e->code = PS_OK;
    ps_roles_text(from->roles, is);
    ps_roles_text(may, expected);
    return ps_fail(e, PS_PERMISSION_DENIED, "%s: '%s' has %s %s: expected %s",
                   a->kind == UNARY ? ps_method_name(a->method) : "Stream", from->user,
                   a->server->options.tls ? "a certificate of role" : "the role", is, expected);
}

// Of who may not call, the log says from where. "refused a call from ipv4:10.0.0.3:5512: Status: 'bob' has a
// certificate of role worker: expected admin; 12 more since the last such line"
static void acceptor_log_refusal(const struct acceptor *a, const struct ps_error *e)
{
    char more[PS_LOG_MORE];
    if (e->code != PS_UNAUTHENTICATED && e->code != PS_PERMISSION_DENIED)
        return;
    if (!ps_log_is_due(&a->server->refusals, ps_now(), more))
        return;
    char *peer = grpc_call_get_peer(a->call);
    ps_warn("refused a call from %s: %s%s", peer, e->text, more);
    gpr_free(peer);
}

static void acceptor_reject(const struct acceptor *met, const struct ps_error *e)
{
    acceptor_log_refusal(met, e);
    ps__call_refuse(met->server, met->call, e->code, e->text);
}

// It has been met, and who calls is known; or e says why not.
static void acceptor_admit(struct acceptor *met, const struct ps_identity *from, struct ps_error *e)
{
    if (e->code || acceptor_check_role(met, from, e))
        acceptor_reject(met, e);
    else if (met->kind == UNARY)
        ps__unary_begin(met->server, met->method, met->call, acceptor_deadline(met->deadline), from);
    else if (met->kind == STREAM)
        ps__stream_begin(met->server, met->call, from);
    else if (met->kind == SERVICE)
        ps__service_begin(met->server, &met->server->services[met->method], met->call);
    else
        acceptor_refuse(met->server, met->call, &met->details);
    grpc_metadata_array_destroy(&met->metadata);
    grpc_call_details_destroy(&met->details);
}

// ---- who calls, by munge --------------------------------------------------------------------------------------------

// A call whose credential munged looks at. It counts as one that has begun.
struct asking {
    struct ps_munge_task task;
    struct acceptor met;
};

static void asking_on_answer(struct ps_munge_task *task)
{
    struct asking *a = PS_CONTAINER(task, struct asking, task);
    struct ps_server *s = a->met.server;
    if (task->error.code == PS_OK) {
        pthread_mutex_lock(&s->known_lock);
        ps__connection_remember(a->met.call, &task->from);
        pthread_mutex_unlock(&s->known_lock);
    }
    acceptor_admit(&a->met, &task->from, &task->error);
    free(task->credential);
    free(a);
    ps__server_leave(s, NULL);
}

// Takes over the credential.
static void acceptor_ask_munge(struct acceptor *met, char *credential)
{
    struct asking *a = ps_try_alloc(sizeof *a);
    if (!a) {
        struct ps_error e;
        ps_no_memory(&e, "the call");
        acceptor_admit(met, NULL, &e);
        free(credential);
        return;
    }
    a->met = *met;
    a->task.address = met->server->known_as;
    a->task.credential = credential;
    a->task.done = asking_on_answer;
    ps__server_enter(met->server, NULL);
    ps_munge_ask(met->server->options.munge, &a->task);
}

static void acceptor_identify_by_munge(struct acceptor *met)
{
    struct ps_server *s = met->server;
    struct ps_identity from;
    struct ps_error e;
    char *credential = ps__call_credential(&met->metadata);
    if (credential) {
        acceptor_ask_munge(met, credential);
        return;
    }
    pthread_mutex_lock(&s->known_lock);
    ps__connection_identity(met->call, &from, &e);
    pthread_mutex_unlock(&s->known_lock);
    acceptor_admit(met, &from, &e);
}

static enum ps_code acceptor_check_open(struct ps_server *s, struct ps_error *e)
{
    pthread_mutex_lock(&s->lock);
    bool draining = s->draining;
    pthread_mutex_unlock(&s->lock);
    return draining ? ps_fail(e, PS_UNAVAILABLE, PS__SHUTTING_DOWN) : PS_OK;
}

static void acceptor_on_call(struct ps_event *ev, bool ok)
{
    struct acceptor *a = PS_CONTAINER(ev, struct acceptor, ev), met = *a;
    if (!ok) {  // the server has shut down
        acceptor_free(a);
        return;
    }
    grpc_metadata_array_init(&a->metadata);
    grpc_call_details_init(&a->details);
    acceptor_arm(a);

    struct ps_identity from;
    struct ps_error e;
    if (acceptor_check_open(met.server, &e)) {
        acceptor_admit(&met, NULL, &e);
        return;
    }
    if (met.server->options.munge) {
        acceptor_identify_by_munge(&met);
        return;
    }
    ps__call_identity(met.call, met.server->options.tls, &from, &e);
    acceptor_admit(&met, &from, &e);
}

static void acceptor_start(struct ps_server *s, int kind, int method, void *registered)
{
    struct acceptor *a = ps_alloc(sizeof *a);
    a->ev.fn = acceptor_on_call;
    a->server = s;
    a->kind = kind;
    a->method = method;
    a->registered = registered;
    grpc_metadata_array_init(&a->metadata);
    grpc_call_details_init(&a->details);
    acceptor_arm(a);
}

// ---- start --------------------------------------------------------------------------------------------------------

// Threads that poll for one stream hand it to and fro, which costs a third of its rate; of several streams, each thread
// reads what is still in its core's cache. So there is a thread more for every two streams. Unary calls alone have all.
static int server_threads_wanted(const struct ps_server *s)
{
    const size_t streams = atomic_load_explicit(&s->n_streams, memory_order_relaxed);
    if (s->options.threads > 0 || streams == 0 || 1 + streams / 2 > (size_t)s->n_threads)
        return s->n_threads;
    return (int)(1 + streams / 2);
}

static void server_rest(struct ps_server *s, int me)
{
    pthread_mutex_lock(&s->lock);
    while (me >= server_threads_wanted(s) && !s->is_shut)
        pthread_cond_wait(&s->called, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

// How often a thread looks for room that came without an event: a receiver that has become idle.
static const uint64_t look_ns = 250 * PS_MS;

static void *server_poll(void *arg)
{
    struct ps_server *s = arg;
    const int me = atomic_fetch_add(&s->n_started, 1);
    ps_thread_ask_short_slices();
    do {
        if (me >= server_threads_wanted(s))
            server_rest(s, me);
        ps__budget_work(&s->budget);
    } while (ps_cq_step(&s->cq, ps_now() + look_ns) != PS_CQ_SHUTDOWN);
    return NULL;
}

static void server_on_shut(struct ps_event *ev, bool ok)
{
    (void)ok;
    struct ps_server *s = PS_CONTAINER(ev, struct ps_server, shut);
    pthread_mutex_lock(&s->lock);
    s->is_shut = true;
    pthread_cond_broadcast(&s->changed);
    pthread_cond_broadcast(&s->called);
    pthread_mutex_unlock(&s->lock);
}

// Of the process: the core's log function is, and is given nothing of ours.
static struct ps_log_seldom handshakes_failed;

// "a TLS handshake has failed: certificate verify failed; 12 more since the last such line": the reason is OpenSSL's,
// and with whom the core does not say. False: the message is about something else.
static bool server_log_handshake(const char *message)
{
    static const char begins[] = "Handshake failed with fatal error ";
    const char *colon = strrchr(message, ':'), *why = colon ? colon + 1 : message;
    char more[PS_LOG_MORE];
    if (strncmp(message, begins, sizeof begins - 1) != 0)
        return false;
    if (ps_log_is_due(&handshakes_failed, ps_now(), more))
        ps_warn("a TLS handshake has failed: %.*s%s", (int)strcspn(why, "."), why, more);
    return true;
}

// What else the core itself has to say is of use to those who debug it: what concerns us comes back as a status.
static void server_log_grpc(gpr_log_func_args *args)
{
    if (!server_log_handshake(args->message))
        ps_debug("grpc: %s", args->message);
}

static grpc_arg server_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

// One connection may have an eighth of the unary calls that fit; further ones wait at their client.
static int server_calls_per_connection(size_t bytes)
{
    size_t n = bytes / 4 / PS__UNARY_BYTES / 8;
    return n < 16 ? 16 : n < PS_SERVER_CALLS / 8 ? (int)n : PS_SERVER_CALLS / 8;
}

static size_t server_clamp(size_t n, size_t least, size_t most)
{
    return n < least ? least : n > most ? most : n;
}

// Of many streams that are not read from, all of it lies here: a small server has less of it.
static int server_look_ahead(size_t bytes)
{
    size_t least = server_clamp(bytes / 256, PS_LOOK_AHEAD_LEAST, PS_STREAM_SHARE);
    return (int)server_clamp(bytes / 1024, least, PS_LOOK_AHEAD);
}

// The window of a connection is opened by the core's estimate of its bandwidth and delay, and by no option. Without the
// estimate it is 64 KiB beyond the message that arrives, and the sender stands idle for a round trip per message: two
// thirds of the rate. With it a connection that is not read from holds up to 4 MiB that the budget does not see, less
// where there are many: a small server has none to spare.
static bool server_opens_windows(size_t bytes)
{
    return bytes >= PS_WINDOWS_FROM;
}

static int server_frame(size_t bytes)
{
    return (int)server_clamp(bytes / 1024, PS_FRAME_LEAST, PS_FRAME_MAX);
}

static grpc_server *server_create(grpc_resource_quota *quota, size_t bytes)
{
    grpc_arg args[] = {
        server_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        server_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, PS_MESSAGE_MAX),
        // A few compressed bytes could become any amount of memory: compressed messages are refused.
        server_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
        server_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        server_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, server_calls_per_connection(bytes)),
        // Clients ping every second: see client_channel.c. And a client that is gone without a word goes after 30 s.
        server_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500),
        server_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 10000),
        server_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000),
        server_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10000),  // one who connects and says nothing
        // What a stream that is not read from may have sent all the same; where windows open, to begin with.
        server_arg(GRPC_ARG_HTTP2_BDP_PROBE, server_opens_windows(bytes)),
        server_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, server_look_ahead(bytes)),
        server_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, server_frame(bytes)),
        {.type = GRPC_ARG_STRING, .key = GRPC_ARG_OPTIMIZATION_TARGET, .value.string = "throughput"},
        {.type = GRPC_ARG_POINTER,
         .key = GRPC_ARG_RESOURCE_QUOTA,
         .value.pointer = {quota, grpc_resource_quota_arg_vtable()}},
    };
    return grpc_server_create(&(grpc_channel_args){sizeof args / sizeof *args, args}, NULL);
}

// At most.
static int server_default_threads(void)
{
    const int n = (int)ps_thread_processors();
    return n < 2 ? 1 : n < 8 ? 2 : 1 + n / 4;
}

static struct ps_server *server_new(const struct ps_server_options *options, size_t n_addresses)
{
    struct ps_server *s = ps_alloc(sizeof *s);
    gpr_set_log_function(server_log_grpc);
    ps_cq_init(&s->cq);
    s->options = *options;
    s->known_as = options->known_as ? ps_strdup(options->known_as) : NULL;
    if (options->munge)
        ps_munge_ref(options->munge);
    s->shut.fn = server_on_shut;
    s->ports = ps_alloc(n_addresses * sizeof *s->ports);
    s->tls = ps_alloc(n_addresses * PS_ADDRESSES_MAX * sizeof *s->tls);
    atomic_init(&s->refs, 1);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->known_lock, NULL);
    ps_cond_init(&s->changed);
    pthread_cond_init(&s->called, NULL);
    TAILQ_INIT(&s->streams);
    TAILQ_INIT(&s->served);
    s->services = ps_alloc(options->n_methods * sizeof *s->services);
    for (size_t i = 0; i < options->n_methods; i++)
        s->services[i].method = &options->methods[i];

    s->n_threads = options->threads > 0 ? options->threads : server_default_threads();
    ps__budget_init(&s->budget, options->bytes ? options->bytes : PS_SERVER_BYTES);
    s->quota = grpc_resource_quota_create("server");
    grpc_resource_quota_resize(s->quota, 2 * s->budget.bytes);
    s->grpc = server_create(s->quota, s->budget.bytes);
    grpc_server_register_completion_queue(s->grpc, s->cq.queue, NULL);
    return s;
}

// As many as the system gives: one is enough.
static enum ps_code server_start_threads(struct ps_server *s, struct ps_error *e)
{
    int failed = 0;
    s->threads = ps_alloc((size_t)s->n_threads * sizeof *s->threads);
    for (int i = 0; i < s->n_threads; i++) {
        const int error = pthread_create(&s->threads[s->n_begun], NULL, server_poll, s);
        s->n_begun += error == 0;
        failed = error ? error : failed;
    }
    if (failed && s->n_begun)
        ps_warn("%d of %d threads for connections: %s", s->n_begun, s->n_threads, strerror(failed));
    return s->n_begun ? PS_OK : ps_no_thread(e, "connections", failed);
}

// The port that was bound; 0: none.
static int server_bind_one(struct ps_server *s, const char *address)
{
    struct ps__port_tls *tls = NULL;
    if (s->options.tls) {
        tls = &s->tls[s->n_tls++];
        tls->tls = s->options.tls;
        ps_tls_ref(tls->tls);
    }
    grpc_server_credentials *credentials = ps__server_credentials(tls);
    const int port = grpc_server_add_http2_port(s->grpc, address, credentials);
    grpc_server_credentials_release(credentials);
    return port > 0 ? port : 0;
}

// Likewise. Of a name's further addresses, one whose port is free to choose takes the first's.
static int server_bind_each(struct ps_server *s, const char *address, const struct ps_addresses *found)
{
    char text[PS_ADDRESS_TEXT];
    int port = 0;
    if (!found->n)
        return server_bind_one(s, address);
    for (size_t i = 0; i < found->n; i++) {
        ps_address_text(&found->at[i], port, text);
        int bound = server_bind_one(s, text);
        if (bound <= 0 && (i == 0 || ps_address_port(&found->at[i])))
            return 0;
        port = port ? port : bound;
    }
    return port;
}

// Where others are to connect, and cannot.
static void server_warn_inside(const char *address, const struct ps_addresses *found)
{
    char text[PS_ADDRESS_TEXT];
    if (!ps_address_is_kept_inside(address, found))
        return;
    ps_address_text(&found->at[0], 0, text);
    ps_warn("%s is %s here: other hosts cannot connect; correct /etc/hosts, or give an address (psd: --listen "
            "0.0.0.0%s)",
            address, text, strrchr(address, ':'));
}

static enum ps_code server_bind_address(struct ps_server *s, const char *address, int *port, struct ps_error *e)
{
    struct ps_addresses found;
    const bool open = s->options.insecure || s->options.tls || s->options.munge;
    enum ps_code code = ps_address_admit(address, open, &found, e);
    if (code)
        return code;
    if (open)
        server_warn_inside(address, &found);
    int bound = server_bind_each(s, address, &found);
    *port = found.n ? bound : 0;
    return bound > 0 ? PS_OK : ps_fail(e, PS_UNAVAILABLE, "cannot listen on %s", address);
}

static enum ps_code server_bind(struct ps_server *s, const char *const *addresses, size_t n, struct ps_error *e)
{
    enum ps_code code = PS_OK;
    for (size_t i = 0; i < n && code == PS_OK; i++) {
        int held = ps_address_hold(addresses[i]);
        code = server_bind_address(s, addresses[i], &s->ports[i], e);
        ps_address_let_go(held);
    }
    return code;
}

static void server_register_services(struct ps_server *s)
{
    for (size_t i = 0; i < s->options.n_methods; i++)
        s->services[i].registered =
            grpc_server_register_method(s->grpc, s->options.methods[i].path, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
}

// Nothing is under way, or nothing has been. Without threads the caller waits for the queue's end.
static void server_take_down(struct ps_server *s)
{
    ps_cq_close(&s->cq);
    for (int i = 0; i < s->n_begun; i++)
        pthread_join(s->threads[i], NULL);
    while (s->n_begun == 0 && ps_cq_step(&s->cq, UINT64_MAX) != PS_CQ_SHUTDOWN)
        continue;
    grpc_server_destroy(s->grpc);
    grpc_resource_quota_unref(s->quota);
    ps_cq_fini(&s->cq);
    ps_loans_settle(&s->loans);
}

enum ps_code ps_server_start(const char *const *addresses, size_t n, const struct ps_server_options *options,
                             struct ps_server **server, struct ps_error *e)
{
    struct ps_server *s = server_new(options, n);
    *server = NULL;
    if (server_start_threads(s, e)) {
        server_take_down(s);
        ps_server_destroy(s);
        return e->code;
    }
    enum ps_code code = server_bind(s, addresses, n, e);
    if (code) {
        while (ps_server_stop(s, 0) == PS_STOP_STUCK)  // no client is: its threads are kept from running
            continue;
        ps_server_destroy(s);
        return code;
    }
    *server = s;
    void *registered[PS_METHODS], *stream;
    for (int m = 1; m < PS_METHODS; m++)
        registered[m] = grpc_server_register_method(s->grpc, ps_method_path(m), NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    stream = grpc_server_register_method(s->grpc, PS_STREAM_PATH, NULL, GRPC_SRM_PAYLOAD_NONE, 0);
    server_register_services(s);
    grpc_server_start(s->grpc);
    for (int m = 1; m < PS_METHODS; m++)
        acceptor_start(s, UNARY, m, registered[m]);
    acceptor_start(s, STREAM, 0, stream);
    for (size_t i = 0; i < s->options.n_methods; i++)
        acceptor_start(s, SERVICE, (int)i, s->services[i].registered);
    acceptor_start(s, UNKNOWN, 0, NULL);
    return PS_OK;
}

int ps_server_port(const struct ps_server *s, size_t i)
{
    return s->ports[i];
}

size_t ps_server_queued(const struct ps_server *s)
{
    return ps__budget_used(&s->budget);
}

// ---- end ----------------------------------------------------------------------------------------------------------

// A stream that has not been drained, with a reference; or NULL.
static struct ps__stream *server_next_stream(struct ps_server *s)
{
    struct ps__stream *st;
    pthread_mutex_lock(&s->lock);
    TAILQ_FOREACH(st, &s->streams, link)
    if (!st->drained && ps__stream_try_ref(st)) {
        st->drained = true;
        break;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}

void ps_server_drain(struct ps_server *s)
{
    struct ps__stream *st;
    pthread_mutex_lock(&s->lock);
    s->had_calls |= !s->draining && s->live;
    s->draining = true;
    pthread_mutex_unlock(&s->lock);

    while ((st = server_next_stream(s))) {
        ps__stream_drain(st);
        ps__stream_unref(st);
    }
    ps__budget_open(&s->budget);
    ps__services_drain(s);
}

static bool server_has_no_call(const struct ps_server *s)
{
    return s->live == s->n_served;
}

static bool server_has_no_connection(const struct ps_server *s)
{
    return s->is_shut;
}

static bool server_wait_until(struct ps_server *s, bool (*reached)(const struct ps_server *s), uint64_t until)
{
    pthread_mutex_lock(&s->lock);
    while (!reached(s) && ps_cond_wait_until(&s->changed, &s->lock, until))
        continue;
    bool is = reached(s);
    pthread_mutex_unlock(&s->lock);
    return is;
}

static void server_shut(struct ps_server *s)
{
    if (!s->shutting && ps_cq_begin(&s->cq))
        grpc_server_shutdown_and_notify(s->grpc, s->cq.queue, &s->shut);
    s->shutting = true;
}

enum ps_stop ps_server_stop(struct ps_server *s, uint64_t grace_ns)
{
    const uint64_t patience = PS_SECOND, moment = 500 * PS_MS, reads_within = 200 * PS_MS;
    ps_server_drain(s);
    bool answered = server_wait_until(s, server_has_no_call, ps_now() + grace_ns);
    // Told to shut down, the core closes a connection as soon as its last call has ended, and a client that writes to a
    // closed connection (a ping, room for more) reads no more: those whose calls end here read the answers before.
    if (s->had_calls && grace_ns >= reads_within)
        ps_sleep(reads_within);
    server_shut(s);
    server_wait_until(s, server_has_no_connection, ps_now() + (grace_ns < moment ? grace_ns : moment));
    grpc_server_cancel_all_calls(s->grpc);
    if (!server_wait_until(s, server_has_no_connection, ps_now() + patience))
        return PS_STOP_STUCK;  // the core closes no connection that it still writes to

    server_take_down(s);
    return answered ? PS_STOP_DONE : PS_STOP_CUT;
}

void ps_server_destroy(struct ps_server *s)
{
    ps__server_unref(s);
}
