// SPDX-License-Identifier: Apache-2.0
#include "common/base/self.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"

static size_t self_args;  // main's, but for the program's name

static void self_open_standard(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

void ps_self_begin(int argc)
{
    self_open_standard();
    self_args = argc > 1 ? (size_t)argc - 1 : 0;
}

// Of a list of words, each ended by a zero byte.
static size_t self_count(const char *text, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\0';
    return n;
}

// As the kernel was told to run this process, malloc'd; size: in bytes. NULL: it does not say.
static char *self_command_line(size_t *size)
{
    FILE *from = fopen("/proc/self/cmdline", "re");
    char *text = NULL;
    size_t room = 0;
    *size = 0;
    for (size_t got = 1; from && got; *size += got) {
        room = room ? 2 * room : 4096;
        text = ps_realloc(text, room);
        got = fread(text + *size, 1, room - *size, from);
    }
    if (from)
        fclose(from);
    return text;
}

// How many bytes of it stand before the program's own arguments.
static size_t self_head(const char *text, size_t size)
{
    size_t words = self_count(text, size), head = 0;
    for (; words > self_args && head < size; words--)
        head += strlen(text + head) + 1;
    return head;
}

char **ps_self_words(const char *const *args)
{
    size_t size, n_args = 0, bytes = 0, n = 0;
    char *text = self_command_line(&size);
    const size_t head = text ? self_head(text, size) : 0, n_head = text ? self_count(text, head) : 0;
    for (; args[n_args]; n_args++)
        bytes += strlen(args[n_args]) + 1;
    char **words = ps_alloc((n_head + n_args + 1) * sizeof *words + head + bytes);
    char *to = (char *)(words + n_head + n_args + 1);
    if (head)
        memcpy(to, text, head);
    for (; n < n_head; to += strlen(to) + 1)
        words[n++] = to;
    for (size_t i = 0; i < n_args; to += strlen(to) + 1)
        words[n++] = strcpy(to, args[i++]);
    free(text);
    return words;
}
