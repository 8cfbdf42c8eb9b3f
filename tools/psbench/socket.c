// SPDX-License-Identifier: Apache-2.0
#include "tools/psbench/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "tools/psbench/buffers.h"
#include "tools/psbench/endpoint.h"
#include "tools/psbench/flow.h"
#include "tools/psbench/memory.h"
#include "tools/psbench/process.h"

// CHUNK_BYTES: libclient's default chunk. NOTE_BYTES: of a question, or of an answer that carries no values.
enum { CHUNK_BYTES = 512 * 1024, NOTE_BYTES = 8 };

static char socket_note[NOTE_BYTES];
static char *const socket_notes[] = {socket_note};

// ---- the server's process -----------------------------------------------------------------------------------------

struct connection {
    const struct bench_case *c;
    struct memory_variable *variable;  // shared by all connections, without a lock
    int fd;
};

// Gradients as they come: what is here of one is applied at once, up to a chunk.
struct intake {
    char *chunk;
    size_t have;   // bytes in it
    uint64_t at;   // of the variable, that the chunk begins at
    uint64_t got;  // whole gradients
};

static void socket_apply(struct intake *in, const struct connection *k)
{
    size_t used = 0;
    while (in->have - used >= sizeof(float)) {
        uint64_t left = k->c->size - in->at, bytes = in->have - used;
        bytes = (bytes < left ? bytes : left) / sizeof(float) * sizeof(float);
        memory_variable_apply(k->variable, in->at / sizeof(float), (const float *)(void *)(in->chunk + used),
                              bytes / sizeof(float));
        used += bytes;
        in->at += bytes;
        if (in->at == k->c->size) {
            in->at = 0;
            in->got++;
        }
    }
    in->have -= used;
    memmove(in->chunk, in->chunk + used, in->have);
}

static long socket_take_in(struct intake *in, const struct connection *k)
{
    ssize_t n = recv(k->fd, in->chunk + in->have, CHUNK_BYTES - in->have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    in->have += (size_t)n;
    socket_apply(in, k);
    return n;
}

// Answers as many as have come, until the connection ends.
static void *socket_serve(void *arg)
{
    const struct connection *k = arg;
    bool takes = buffers_sends(k->c->command), gives = buffers_gets(k->c->command);
    char *values[] = {(char *)k->variable->w};
    struct intake in = {.chunk = ps_alloc_aligned(CHUNK_BYTES)};
    struct flow_in questions;
    struct flow_out out = {
        .fd = k->fd, .size = gives ? k->c->size : NOTE_BYTES, .from = gives ? values : socket_notes, .n = 1};
    flow_in_init(&questions, k->fd, NOTE_BYTES, socket_notes, 1);
    for (;;) {
        long in_now = takes ? socket_take_in(&in, k) : flow_receive(&questions);
        uint64_t wanted = takes ? in.got : questions.got;
        long out_now = flow_send(&out, wanted);
        if (in_now < 0 || out_now < 0)
            break;
        if (in_now == 0 && out_now == 0)
            flow_wait(k->fd, out.sent < wanted);
    }
    free(questions.buffer);
    free(in.chunk);
    close(k->fd);
    return NULL;
}

static _Noreturn void socket_serve_all(const struct bench_case *c, int listener)
{
    struct memory_variable variable;
    struct connection *connections = ps_alloc((size_t)c->workers * sizeof *connections);
    pthread_t *threads = ps_alloc((size_t)c->workers * sizeof *threads);
    memory_variable_init(&variable, c->rule, c->size / sizeof(float));
    for (long i = 0; i < c->workers; i++) {
        connections[i] = (struct connection){.c = c, .variable = &variable, .fd = accept(listener, NULL, NULL)};
        endpoint_no_delay(connections[i].fd);
        pthread_create(&threads[i], NULL, socket_serve, &connections[i]);
    }
    for (long i = 0; i < c->workers; i++)
        pthread_join(threads[i], NULL);
    _exit(0);
}

// ---- the server, seen by psbench ----------------------------------------------------------------------------------

// In the server's process: it may be in another network than psbench.
static enum ps_code socket_listen(struct socket_server *s, const char *netns, int *listener, struct ps_error *e)
{
    return process_enter(netns, e) ? e->code : endpoint_listen(s->address, listener, e);
}

// Tells psbench where it listens, or why it does not.
struct socket_word {
    struct ps_error error;
    char address[SERVERS_ADDRESS_MAX];
};

static _Noreturn void socket_serve_process(struct socket_server *s, const struct bench_case *c, const char *netns,
                                           int news)
{
    struct socket_word word = {.error.code = PS_OK};
    int listener = -1;
    socket_listen(s, netns, &listener, &word.error);
    memcpy(word.address, s->address, sizeof word.address);
    if (write(news, &word, sizeof word) != (ssize_t)sizeof word || word.error.code)
        _exit(1);
    close(news);
    socket_serve_all(c, listener);
}

enum ps_code socket_server_start(struct socket_server *s, const struct bench_case *c, const char *host,
                                 const char *netns, struct ps_error *e)
{
    struct socket_word word;
    int pipes[2];
    if (rundir_create(&s->dir, 1, 0, e))
        return e->code;
    if (c->transport == BENCH_UNIX)
        rundir_address(&s->dir, 0, s->address);
    else
        snprintf(s->address, sizeof s->address, "%s:0", host);
    if (pipe2(pipes, O_CLOEXEC) != 0)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "cannot make a pipe: %s", strerror(errno));
    s->pid = process_fork();
    if (s->pid == 0)
        socket_serve_process(s, c, netns, pipes[1]);
    close(pipes[1]);
    ssize_t got = read(pipes[0], &word, sizeof word);
    close(pipes[0]);
    if (got != (ssize_t)sizeof word)
        return ps_fail(e, PS_UNAVAILABLE, "the socket's server has not started");
    memcpy(s->address, word.address, sizeof s->address);
    if (word.error.code)
        *e = word.error;
    return word.error.code;
}

void socket_server_end(struct socket_server *s)
{
    if (s->pid > 0)
        process_end(s->pid);
    if (s->dir.path[0])
        rundir_remove(&s->dir);
}

// ---- a worker -----------------------------------------------------------------------------------------------------

// Counts the answers from *answered on; a call was begun when its window was free.
static bool socket_count(struct load_meter *m, uint64_t *started, long window, uint64_t *answered, uint64_t got)
{
    bool more = true;
    for (; *answered < got; (*answered)++)
        more = load_count(m, &started[*answered % (uint64_t)window], 1) && more;
    return more;
}

static enum ps_code socket_call_all(const struct bench_case *c, int fd, struct load_meter *m, struct ps_error *e)
{
    bool sends = buffers_sends(c->command), gets = buffers_gets(c->command);
    struct buffers b;
    struct flow_in in;
    buffers_init(&b, c);
    uint64_t *started = ps_alloc((size_t)c->window * sizeof *started), answered = 0, window = (uint64_t)c->window;
    struct flow_out out = {
        .fd = fd, .size = sends ? c->size : NOTE_BYTES, .from = sends ? b.sent : socket_notes, .n = sends ? window : 1};
    flow_in_init(&in, fd, gets ? c->size : NOTE_BYTES, gets ? b.got : socket_notes, gets ? window : 1);
    load_ready(m);
    for (uint64_t i = 0; i < window; i++)
        started[i] = ps_now();
    while (socket_count(m, started, c->window, &answered, in.got)) {
        long sent = flow_send(&out, in.got + window), got = flow_receive(&in);
        if (sent < 0 || got < 0)
            return ps_fail(e, PS_UNAVAILABLE, "the socket's connection has ended: %s", strerror(errno));
        if (sent == 0 && got == 0)
            flow_wait(fd, out.sent < in.got + window);
    }
    load_done(m);
    return PS_OK;
}

// The memory ends with the process, and the connection.
enum ps_code socket_work(const void *arg, int rank, struct load_meter *m, struct ps_error *e)
{
    const struct socket_work *work = arg;
    int fd = endpoint_connect(work->server->address);
    (void)rank;
    return fd >= 0 ? socket_call_all(work->c, fd, m, e)
                   : ps_fail(e, PS_UNAVAILABLE, "cannot connect to %s: %s", work->server->address, strerror(errno));
}
