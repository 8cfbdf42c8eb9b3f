// SPDX-License-Identifier: Apache-2.0
#include "tools/psctl/child.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/utf8.h"

// ---- the end ------------------------------------------------------------------------------------------------------

// A child leads a session, and so a process group: signals go to all of it, which matters where the program is a
// wrapper around another. It has ended when its process is gone and every pipe is read to its end.
static void on_closed(uv_handle_t *handle)
{
    struct child *child = handle->data;
    if (--child->open > 0 || !child->running)
        return;
    child->running = false;
    child->on_end(child);
}

static void on_exit_of(uv_process_t *process, int64_t exit_code, int signal)
{
    struct child *child = process->data;
    child->exit_code = exit_code;
    child->signal = signal;
    kill(-child->pid, SIGKILL);  // whom it left behind holds our pipes
    uv_close((uv_handle_t *)process, on_closed);
}

void child_describe_end(const struct child *child, char *to, size_t size)
{
    if (child->signal)
        snprintf(to, size, "%s (pid %d) was killed by signal %d (%s)", child->name, child->pid, child->signal,
                 strsignal(child->signal));
    else
        snprintf(to, size, "%s (pid %d) exited with code %" PRId64, child->name, child->pid, child->exit_code);
}

void child_end(struct child *child, int signum)
{
    child->stopped = true;
    if (child->running && !uv_is_closing((uv_handle_t *)&child->process))
        kill(-child->pid, signum);
}

// ---- its output ---------------------------------------------------------------------------------------------------

void child_say(FILE *to, const char *name, const char *text)
{
    fprintf(to, "%s%s: %s\n", isatty(fileno(to)) ? "\r\033[K" : "", name, text);
    fflush(to);
}

static void child_relay(struct child_stream *stream, char *text)
{
    if (stream->child->held && stream == &stream->child->err) {
        fprintf(stream->child->held, "%s\n", text);
        return;
    }
    ps_utf8_plain(text);
    if (strncmp(text, "{\"time\": ", 9) == 0)  // PARAMSERVER_LOG=json: it says whose it is
        fprintf(stream->to, "%s\n", text);
    else
        child_say(stream->to, stream->child->name, text);
}

void child_hold(struct child *child)
{
    child->held = open_memstream(&child->kept, &child->n_kept);
}

void child_let_go(struct child *child, bool show)
{
    if (!child->held)
        return;
    fclose(child->held);
    child->held = NULL;
    char *next = child->kept;
    for (char *line; show && (line = strsep(&next, "\n")) && next;)
        child_relay(&child->err, line);
    free(child->kept);
}

static void hear_readiness(struct child_stream *stream, char *text)
{
    struct child *child = stream->child;
    if (strncmp(text, "READY", 5) != 0 || child->ready)
        return;
    child->ready = true;
    if (sscanf(text, "READY %*d %d", &child->page_port) != 1)
        child->page_port = 0;
    child->on_ready(child);
}

static void child_on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct child_stream *stream = (struct child_stream *)handle;
    (void)suggested;
    *buf = uv_buf_init(stream->text + stream->len, (unsigned)(sizeof stream->text - 1 - stream->len));
}

// Gives on the lines that are complete; a line that fills the buffer is cut there.
static void split_lines(struct child_stream *stream)
{
    char *start = stream->text, *end = stream->text + stream->len, *newline;
    while ((newline = memchr(start, '\n', (size_t)(end - start)))) {
        *newline = '\0';
        stream->line(stream, start);
        start = newline + 1;
    }
    stream->len = (size_t)(end - start);
    memmove(stream->text, start, stream->len);
    if (stream->len < sizeof stream->text - 1)
        return;
    stream->text[stream->len] = '\0';
    stream->line(stream, stream->text);
    stream->len = 0;
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf)
{
    struct child_stream *stream = (struct child_stream *)handle;
    (void)buf;
    if (n >= 0) {
        stream->len += (size_t)n;
        split_lines(stream);
        return;
    }
    if (stream->len > 0) {
        stream->text[stream->len] = '\0';
        stream->line(stream, stream->text);
        stream->len = 0;
    }
    uv_close((uv_handle_t *)handle, on_closed);
}

// ---- the start ----------------------------------------------------------------------------------------------------

static uv_stdio_container_t stream_open(struct child *child, struct child_stream *stream, uv_loop_t *loop, FILE *to)
{
    *stream = (struct child_stream){.child = child, .to = to, .line = to ? child_relay : hear_readiness};
    uv_pipe_init(loop, &stream->pipe, 0);
    stream->pipe.data = child;
    child->open++;
    return (uv_stdio_container_t){.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE,
                                  .data.stream = (uv_stream_t *)&stream->pipe};
}

static void close_all(struct child *child)
{
    uv_close((uv_handle_t *)&child->process, on_closed);
    if (!child->terminal) {
        uv_close((uv_handle_t *)&child->out.pipe, on_closed);
        uv_close((uv_handle_t *)&child->err.pipe, on_closed);
    }
    if (child->on_ready)
        uv_close((uv_handle_t *)&child->readiness.pipe, on_closed);
}

enum ps_code child_start(struct child *child, uv_loop_t *loop, char **argv, struct ps_error *e)
{
    uv_stdio_container_t stdio[CHILD_READY_FD + 1] = {
        {.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD, .data.fd = 1}, {.flags = UV_INHERIT_FD, .data.fd = 2}};
    // A session of its own: what is typed at the terminal reaches us alone, and we end the children in order.
    uv_process_options_t options = {.file = argv[0],
                                    .args = argv,
                                    .exit_cb = on_exit_of,
                                    .stdio = stdio,
                                    .stdio_count = child->on_ready ? CHILD_READY_FD + 1 : CHILD_READY_FD,
                                    .flags = UV_PROCESS_DETACHED};
    child->open = 1;
    child->process.data = child;
    if (!child->terminal) {
        stdio[1] = stream_open(child, &child->out, loop, stdout);
        stdio[2] = stream_open(child, &child->err, loop, stderr);
    }
    if (child->on_ready)
        stdio[CHILD_READY_FD] = stream_open(child, &child->readiness, loop, NULL);
    int error = uv_spawn(loop, &child->process, &options);
    if (error) {
        close_all(child);
        return ps_fail(e, PS_UNAVAILABLE, "cannot start %s: %s: %s", child->name, argv[0], uv_strerror(error));
    }
    child->pid = child->process.pid;
    child->running = true;
    ps_starts_note(&child->starts, ps_now());
    if (!child->terminal) {
        uv_read_start((uv_stream_t *)&child->out.pipe, child_on_room, on_read);
        uv_read_start((uv_stream_t *)&child->err.pipe, child_on_room, on_read);
    }
    if (child->on_ready)
        uv_read_start((uv_stream_t *)&child->readiness.pipe, child_on_room, on_read);
    return PS_OK;
}
