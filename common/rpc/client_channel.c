// SPDX-License-Identifier: Apache-2.0
//
// The channels to a peer: how they behave, and another one where the process has new certificates. Calls that are under
// way on the one before end there.
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/rpc/address.h"
#include "common/rpc/client_inside.h"
#include "common/rpc/credentials.h"

static grpc_arg channel_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

enum { SILENCE_MS = 2000, BACKOFF_MAX_MS = 250 };

// As long as the next attempt may take and what is waited before it, with the fifth that the core adds at random.
void ps__client_note_status(struct ps_client *c, grpc_status_code status)
{
    if (status == GRPC_STATUS_UNAVAILABLE || status == GRPC_STATUS_DEADLINE_EXCEEDED)
        c->connects_until = ps_now() + ((uint64_t)c->options.attempt_ms + BACKOFF_MAX_MS) * PS_MS * 6 / 5;
}

static grpc_channel *channel_create(const char *address, const struct ps_client_options *options)
{
    const int attempt_ms = options->attempt_ms;
    if (!ps_address_fits(address))
        return grpc_lame_client_channel_create(address, GRPC_STATUS_UNAVAILABLE,
                                               "its path is too long for a unix socket");
    grpc_arg args[] = {
        channel_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0),  // set on many clusters, and not meant for this
        channel_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        channel_arg(GRPC_ARG_ENABLE_RETRIES, 0),  // libclient repeats what may be repeated
        channel_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, PS_MESSAGE_MAX),
        channel_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        // What a task may send before it is read: a round trip's worth. See server_opens_windows.
        channel_arg(GRPC_ARG_HTTP2_BDP_PROBE, 1),
        channel_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, PS_LOOK_AHEAD),
        channel_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, PS_FRAME_MAX),
        channel_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, attempt_ms),  // what an attempt may take, for all its name
        channel_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100),
        channel_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MAX_MS),
        // A task that is stopped still acknowledges TCP: it is missed after 3 s without an answer to a ping; by who
        // makes one attempt alone, after that.
        channel_arg(GRPC_ARG_KEEPALIVE_TIME_MS, 1000),
        channel_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, attempt_ms > SILENCE_MS ? attempt_ms : SILENCE_MS),
        channel_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        {.type = GRPC_ARG_STRING, .key = GRPC_ARG_OPTIMIZATION_TARGET, .value.string = "throughput"},
        // Where there is TLS: what the certificate at the other end has to be for, whatever its address.
        {.type = GRPC_ARG_STRING,
         .key = GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
         .value.string = (char *)ps_role_host(options->to)},
    };
    grpc_channel_credentials *credentials = ps__channel_credentials(options->tls, options->to);
    grpc_channel *channel =
        grpc_channel_create(address, credentials, &(grpc_channel_args){sizeof args / sizeof *args, args});
    grpc_channel_credentials_release(credentials);
    return channel;
}

// What the core itself has to say is of use to those who debug it, and ask for it: what concerns us comes back as a
// status.
static void channel_log_grpc(gpr_log_func_args *args)
{
    ps_debug("grpc: %s", args->message);
}

void ps__client_keep_grpc_quiet(void)
{
    if (!getenv("GRPC_VERBOSITY"))
        gpr_set_log_function(channel_log_grpc);
}

void ps__peer_init(struct ps__peer *peer, struct ps_client *c, const char *address)
{
    peer->client = c;
    peer->address = ps_strdup(address);
    peer->is_unix = strncmp(address, "unix:", 5) == 0;
    c->has_unix |= peer->is_unix;
    pthread_rwlock_init(&peer->channel_lock, NULL);
    peer->channel.grpc = channel_create(address, &c->options);
    if (c->options.control_apart)
        peer->control.grpc = channel_create(address, &c->options);
}

void ps__peer_fini(struct ps__peer *peer)
{
    ps_slice_unref(peer->opening);
    pthread_rwlock_destroy(&peer->channel_lock);
    free(peer->address);
}

grpc_call *ps__peer_call(struct ps__peer *peer, const struct ps__channel *on, const char *path, uint64_t deadline)
{
    pthread_rwlock_rdlock(&peer->channel_lock);
    grpc_call *call = grpc_channel_create_call(on->grpc, NULL, 0, peer->client->cq.queue,
                                               grpc_slice_from_static_string(path), NULL, ps_timespec(deadline), NULL);
    pthread_rwlock_unlock(&peer->channel_lock);
    return call;
}

// The one before stays for a while: destroyed, it would end calls that wait for their connection.
static void channel_renew(struct ps__peer *peer, struct ps__channel *which)
{
    if (!which->grpc)
        return;
    grpc_channel *channel = channel_create(peer->address, &peer->client->options);
    pthread_rwlock_wrlock(&peer->channel_lock);
    which->before = which->grpc;
    which->grpc = channel;
    pthread_rwlock_unlock(&peer->channel_lock);
}

static void channel_drop_before(struct ps__channel *which)
{
    if (which->before)
        grpc_channel_destroy(which->before);
    which->before = NULL;
}

static void channel_stop(struct ps__channel *which)
{
    channel_drop_before(which);
    if (which->grpc)
        grpc_channel_destroy(which->grpc);
}

void ps__peer_stop(struct ps__peer *peer)
{
    channel_stop(&peer->channel);
    channel_stop(&peer->control);
}

void ps__channels_look(struct ps_client *c, uint64_t now)
{
    const uint64_t stay = 10 * PS_SECOND + (uint64_t)c->options.attempt_ms * PS_MS;
    struct ps_error e;
    if (!c->options.tls || now < c->tls_looks)
        return;
    c->tls_looks = now + PS_SECOND;
    const uint64_t version = ps_tls_look(c->options.tls, &e);
    if (e.code)
        ps_warn("%s; the certificate of before stays in use", e.text);
    if (now < c->tls_renewed + stay)
        return;
    for (size_t i = 0; i < c->n_peers; i++) {
        channel_drop_before(&c->peers[i].channel);
        channel_drop_before(&c->peers[i].control);
    }
    for (size_t i = 0; i < c->n_peers && version != c->tls_version; i++) {
        channel_renew(&c->peers[i], &c->peers[i].channel);
        channel_renew(&c->peers[i], &c->peers[i].control);
    }
    c->tls_renewed = version != c->tls_version ? now : 0;
    c->tls_version = version;
}
