// SPDX-License-Identifier: Apache-2.0
//
// The gRPC core says of a failed bind only that it failed. So each address is bound here first, and let go again, to
// have the system's reason; should another take it in between, the core's own bind fails, with less of a sentence.
#include "common/rpc/address.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"

static enum ps_code address_refused(const char *address, int error, struct ps_error *e)
{
    if (error == EADDRINUSE)
        return ps_fail(e, PS_ALREADY_EXISTS, "cannot listen on %s: another process listens there", address);
    return ps_fail(e, error == EACCES ? PS_PERMISSION_DENIED : PS_UNAVAILABLE, "cannot listen on %s: %s", address,
                   strerror(error));
}

// ---- unix ---------------------------------------------------------------------------------------------------------

bool ps_address_fits(const char *address)
{
    return strncmp(address, "unix:", 5) != 0 || strlen(address + 5) < sizeof((struct sockaddr_un *)NULL)->sun_path;
}

// The lock is the folder's own, and gone with whoever held it.
int ps_address_hold(const char *address)
{
    enum { TRIES = 2500, TRY_MS = 2 };
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path];
    if (strncmp(address, "unix:", 5) != 0 || !ps_address_fits(address))
        return -1;
    strcpy(path, address + 5);
    int folder = open(dirname(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; folder >= 0 && i < TRIES; i++) {
        if (flock(folder, LOCK_EX | LOCK_NB) == 0)
            return folder;
        if (errno != EWOULDBLOCK && errno != EINTR)
            break;
        ps_sleep(TRY_MS * PS_MS);
    }
    ps_address_let_go(folder);
    return -1;
}

void ps_address_let_go(int held)
{
    if (held >= 0)
        close(held);
}

static enum ps_code address_admit_unix(const char *address, const char *path, struct ps_error *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    struct stat st;
    if (!*path || !ps_address_fits(address))
        return ps_fail(e, PS_INVALID_ARGUMENT, "'%s': expected unix: and a path of 1 to %zu bytes", address,
                       sizeof to.sun_path - 1);
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? PS_OK : address_refused(address, errno, e);
    if (!S_ISSOCK(st.st_mode))
        return ps_fail(e, PS_ALREADY_EXISTS, "cannot listen on %s: a file that is no socket lies there", address);

    memcpy(to.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0 ? errno : EADDRINUSE;
    if (fd >= 0)
        close(fd);
    if (error == ECONNREFUSED)  // left behind by a process that is gone
        error = unlink(path) == 0 ? 0 : errno;
    return error ? address_refused(address, error, e) : PS_OK;
}

// ---- host:port ----------------------------------------------------------------------------------------------------

static bool address_is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)a)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

static int address_try_bind(const struct addrinfo *a)  // 0 or errno
{
    int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // as the core does: connections in TIME_WAIT
    int error = bind(fd, a->ai_addr, a->ai_addrlen) != 0 ? errno : 0;
    close(fd);
    return error;
}

// Splits "host:port", "[host]:port". False: not that.
static bool address_split(const char *address, char *host, size_t size, char *port, size_t port_size)
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon == address || strlen(colon + 1) >= port_size)
        return false;
    bool brackets = *address == '[';
    const char *from = address + brackets, *to = colon - brackets;
    if ((brackets && *to != ']') || to <= from || (size_t)(to - from) >= size ||
        (!brackets && memchr(from, ':', (size_t)(to - from))))
        return false;
    memcpy(host, from, (size_t)(to - from));
    host[to - from] = 0;
    strcpy(port, colon + 1);
    return *port && strspn(port, "0123456789") == strlen(port) && atoi(port) <= 65535;
}

static void address_keep(struct ps_addresses *found, const struct addrinfo *a)
{
    if (found->n < PS_ADDRESSES_MAX)
        memcpy(&found->at[found->n++], a->ai_addr, a->ai_addrlen);
}

static enum ps_code address_admit_each(const char *address, const struct addrinfo *list, bool insecure,
                                       struct ps_addresses *found, struct ps_error *e)
{
    for (const struct addrinfo *a = list; a; a = a->ai_next)
        if (!insecure && !address_is_loopback(a->ai_addr))
            return ps_fail(e, PS_FAILED_PRECONDITION,
                           "refusing to listen on %s: other hosts could connect, and connections are neither "
                           "authenticated nor encrypted; use certificates (--tls FOLDER), munge (--munge), a "
                           "loopback address or unix:/path, or pass --insecure",
                           address);
    // A name may stand for several addresses ("localhost": ::1 and 127.0.0.1): one that works is enough, one that is
    // taken is not ours.
    int error = 0, taken = 0;
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int result = address_try_bind(a);
        if (result == 0)
            address_keep(found, a);
        taken += result == EADDRINUSE;
        error = result ? result : error;
    }
    if (taken)
        return address_refused(address, EADDRINUSE, e);
    return found->n ? PS_OK : address_refused(address, error, e);
}

enum ps_code ps_address_admit(const char *address, bool insecure, struct ps_addresses *found, struct ps_error *e)
{
    found->n = 0;
    if (strncmp(address, "unix:", 5) == 0)
        return address_admit_unix(address, address + 5, e);

    char host[256], port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    if (!address_split(address, host, sizeof host, port, sizeof port))
        return ps_fail(e, PS_INVALID_ARGUMENT, "'%s': expected host:port, [ipv6]:port or unix:/path", address);
    int error = getaddrinfo(host, port, &hints, &list);
    if (error)
        return ps_fail(e, PS_UNAVAILABLE, "cannot listen on %s: %s: %s", address, host, gai_strerror(error));
    enum ps_code code = address_admit_each(address, list, insecure, found, e);
    freeaddrinfo(list);
    return code;
}

bool ps_address_is_kept_inside(const char *address, const struct ps_addresses *found)
{
    char host[256], port[8];
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *literal;
    if (!found->n || !address_split(address, host, sizeof host, port, sizeof port))
        return false;
    for (size_t i = 0; i < found->n; i++)
        if (!address_is_loopback((const struct sockaddr *)&found->at[i]))
            return false;
    if (strcasestr(host, "localhost") || strcasestr(host, "loopback"))
        return false;
    if (getaddrinfo(host, NULL, &hints, &literal))
        return true;
    freeaddrinfo(literal);
    return false;
}

int ps_address_port(const struct sockaddr_storage *at)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)at;
    return ntohs(at->ss_family == AF_INET6 ? v6->sin6_port : v4->sin_port);
}

void ps_address_text(const struct sockaddr_storage *at, int port, char text[PS_ADDRESS_TEXT])
{
    char host[64] = "";
    bool v6 = at->ss_family == AF_INET6;
    getnameinfo((const struct sockaddr *)at, v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), host,
                sizeof host, NULL, 0, NI_NUMERICHOST);
    int own = ps_address_port(at);
    snprintf(text, PS_ADDRESS_TEXT, v6 ? "[%s]:%d" : "%s:%d", host, own ? own : port);
}

socklen_t ps_address_parse(const char *address, struct sockaddr_storage *at)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct sockaddr_un *un = (struct sockaddr_un *)at;
    struct addrinfo *found;
    char host[256], port[8];
    memset(at, 0, sizeof *at);
    if (strncmp(address, "unix:", 5) == 0 && ps_address_fits(address)) {
        un->sun_family = AF_UNIX;
        strcpy(un->sun_path, address + 5);
        return sizeof *un;
    }
    if (!address_split(address, host, sizeof host, port, sizeof port) || getaddrinfo(host, port, &hints, &found))
        return 0;
    const socklen_t len = found->ai_addrlen;
    memcpy(at, found->ai_addr, len);
    freeaddrinfo(found);
    return len;
}

// ---- connections --------------------------------------------------------------------------------------------------

// Of a socket that is connected to a unix one: the name that is bound to.
static bool address_of_peer(int fd, struct sockaddr_un *un)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage room;
    } peer = {.any.sa_family = AF_UNSPEC};
    socklen_t len = sizeof peer;
    const bool known = getpeername(fd, &peer.any, &len) == 0 && peer.any.sa_family == AF_UNIX;
    if (known)
        *un = peer.un;
    return known;
}

static bool address_is_peer(int fd, const struct sockaddr_un *un)
{
    struct sockaddr_un peer;
    return address_of_peer(fd, &peer) && strncmp(peer.sun_path, un->sun_path, sizeof un->sun_path) == 0;
}

// One path may be spelt in several ways, and its server has bound to one of them. A server that is stopped is connected
// to as well; if none is, what is left is the text, with one slash for those at its beginning, as the core has it.
static void address_find_bound(struct sockaddr_un *un)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const size_t slashes = strspn(un->sun_path, "/"), extra = slashes ? slashes - 1 : 0;
    if (fd < 0 || connect(fd, (struct sockaddr *)un, sizeof *un) != 0 || !address_of_peer(fd, un))
        memmove(un->sun_path, un->sun_path + extra, strlen(un->sun_path + extra) + 1);
    if (fd >= 0)
        close(fd);
}

// Of what is no socket no other descriptor is made: closed, it would end the process's locks of a file. Of a socket
// there is one, so that fd may be closed meanwhile, and be another thing's.
static void address_break_one(int fd, const struct sockaddr_un *un)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISSOCK(st.st_mode))
        return;
    const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (same < 0)
        return;
    int unread = 0;
    if (address_is_peer(same, un) && ioctl(same, SIOCOUTQ, &unread) == 0 && unread > 0)
        shutdown(same, SHUT_RDWR);
    close(same);
}

void ps_address_break(const char *address)
{
    struct sockaddr_storage at;
    const struct dirent *entry;
    if (strncmp(address, "unix:", 5) != 0 || !ps_address_parse(address, &at))
        return;
    address_find_bound((struct sockaddr_un *)&at);
    DIR *all = opendir("/proc/self/fd");
    while (all && (entry = readdir(all)))
        if (entry->d_name[0] != '.')
            address_break_one(atoi(entry->d_name), (const struct sockaddr_un *)&at);
    if (all)
        closedir(all);
}
