// SPDX-License-Identifier: Apache-2.0
//
// Clients that load a psd, or mistreat it; tests/it/load.sh puts them together and looks at what becomes of psd.
//
//     load ADDRESS declare [sync]              opens the job: MIB of blocks, by worker 0; sync: 2 workers
//     load ADDRESS push CLIENTS KIB SECONDS [WINDOW]   clients that push KIB at a time (0: 4 B; 4, or a multiple of
//                                              512), 2 on the way each; prints MB/s, how many were refused and sent
//                                              again, how many were taken, and how the shares of the clients differ; goes on until
//                                              one was taken
//     load ADDRESS park N                      N Pulls of round 1, 9 of 10 over 4 streams, the others unary; says so when
//                                              all wait, then closes the round at a line on its stdin; all are answered
//     load ADDRESS waiting                     prints how many calls wait there
//     load ADDRESS deaf READS KIB              asks for the whole job READS times, or pushes KIB at a time, and never
//                                              takes an answer
//     load ADDRESS connect N                   opens N connections (unix sockets), then closes them; prints what became
//                                              of each: greeted by the server, closed by it, or neither within 60 s
//     load CLUSTER-FILE count SECONDS          16 clients of libclient push 1.0 to slots of their own until psd is
//                                              gone; a reader checks that nothing acknowledged is missing
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "libclient/psclient.h"
#include "tests/it/call.h"
#include "tests/messages.h"

#define M(name) PARAMSERVER__V1__METHOD__##name
enum { MIB = 128, BLOCK = PS_BLOCK_BYTES / 4, SMALL = 1024 };

static void die(const char *what, enum ps_code code, const char *text)
{
    fprintf(stderr, "%s: %s: %s\n", what, ps_code_name(code), text);
    exit(1);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

// ---- one call -----------------------------------------------------------------------------------------------------

// With a payload of so many ones. A psd that does not answer for two seconds, as a busy machine may have it, is asked
// again: all that is asked here may be asked twice.
static struct ps_slices call_with(struct ps_client *c, int method, const ProtobufCMessage *m, uint64_t ones)
{
    struct answer a;
    uint64_t until = ps_now() + call_timeout;
    for (;;) {
        struct ps_slices payload = ones ? floats(ones, 1) : (struct ps_slices)PS_SLICES_EMPTY;
        ask(c, method, false, m, ones ? &payload : NULL, &a);
        if (!await(&a))
            return a.body;
        if (a.code != PS_UNAVAILABLE || ps_now() > until)
            die("a call", a.code, a.text);
        ps_slices_clear(&a.body);
        pause_ms(50);
    }
}

static struct ps_slices call(struct ps_client *c, int method, const ProtobufCMessage *m)
{
    return call_with(c, method, m, 0);
}

static void call_only(struct ps_client *c, int method, const ProtobufCMessage *m, uint64_t ones)
{
    struct ps_slices reply = call_with(c, method, m, ones);
    ps_slices_clear(&reply);
}

// ---- declare ------------------------------------------------------------------------------------------------------

static void join(struct ps_client *c, uint32_t rank, bool sync)
{
    Paramserver__V1__JoinRequest r = PARAMSERVER__V1__JOIN_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(rank, 0);
    r.caller = &caller;
    r.address = (char *)"load";
    r.workers = sync ? 2 : 1;
    r.update = sync ? PARAMSERVER__V1__UPDATE__SYNC : PARAMSERVER__V1__UPDATE__ASYNC;
    struct ps_slices none = PS_SLICES_EMPTY, reply = call(c, M(JOIN), &r.base);
    ProtobufCMessage *m;
    if (ps_msg_unpack(&paramserver__v1__join_reply__descriptor, &reply, &m, &none, NULL))
        die("join", PS_INTERNAL, "not a reply");
    test_run = ((const Paramserver__V1__JoinReply *)m)->run;
    ps_msg_free(m);
    ps_slices_clear(&reply);
}

static int declare(struct ps_client *c, bool sync)
{
    uint64_t shape[] = {(uint64_t)MIB << 18}, small_shape[] = {SMALL};
    Paramserver__V1__Variable v = PARAMSERVER__V1__VARIABLE__INIT, small = v, *variables[] = {&v, &small};
    Paramserver__V1__Partition p = PARAMSERVER__V1__PARTITION__INIT, q = p, *partitions[] = {&p, &q};
    Paramserver__V1__DeclareRequest r = PARAMSERVER__V1__DECLARE_REQUEST__INIT;
    for (uint32_t i = 0; i < (sync ? 2u : 1u); i++)
        join(c, i, sync);
    Paramserver__V1__Caller caller = caller_of(0, 0);  // of the run that the joins have opened
    v.name = (char *)"w";
    small.name = (char *)"small";
    v.shape = shape;
    small.shape = small_shape;
    v.n_shape = small.n_shape = 1;
    v.dtype = small.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    v.trainable = small.trainable = true;
    p.count = shape[0];
    q.variable = 1;
    q.count = SMALL;
    r.caller = &caller;
    r.update = sync ? PARAMSERVER__V1__UPDATE__SYNC : PARAMSERVER__V1__UPDATE__ASYNC;
    r.workers = sync ? 2 : 1;
    r.tasks = 1;
    r.rule = (char *)"assign_add";
    r.n_variables = r.n_partitions = 2;
    r.variables = variables;
    r.partitions = partitions;
    call_only(c, M(DECLARE), &r.base, 0);
    return 0;
}

// The job has been declared by another process: its run is learnt of it.
static void learn_run(const char *address)
{
    Paramserver__V1__DescribeRequest r = PARAMSERVER__V1__DESCRIBE_REQUEST__INIT;
    Paramserver__V1__Caller caller = caller_of(0, 0);
    struct ps_client *c = ps_client_create(&address, 1, NULL);
    caller.worker = caller.run = 0;
    r.caller = &caller;
    struct ps_slices none = PS_SLICES_EMPTY, reply = call(c, M(DESCRIBE), &r.base);
    ProtobufCMessage *m;
    if (ps_msg_unpack(&paramserver__v1__describe_reply__descriptor, &reply, &m, &none, NULL))
        die("describe", PS_INTERNAL, "not a reply");
    test_run = ((const Paramserver__V1__DescribeReply *)m)->run;
    ps_msg_free(m);
    ps_slices_clear(&reply);
    ps_client_stop(c);
    ps_client_destroy(c);
}

// ---- push ---------------------------------------------------------------------------------------------------------

static int window = 2;  // pushes on the way of a client

struct pusher {
    struct ps_client *client;
    uint8_t id[16];
    size_t bytes;
    struct ps_slice payload;
    uint64_t sequence;  // the client's thread alone, once begun
    bool done[PS_WINDOW];
    uint64_t oldest;
    atomic_ullong pushed;
    atomic_int open;
};

static atomic_bool stop;
static atomic_uint turned_away;

struct push {
    struct pusher *by;
    uint64_t sequence;
};

static void push_one(struct pusher *p, uint64_t sequence);

static void on_pushed(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct push *x = arg;
    struct pusher *p = x->by;
    (void)reply;
    const bool refused = code == PS_RESOURCE_EXHAUSTED || code == PS_UNAVAILABLE;
    if (refused && !atomic_load(&stop)) {
        atomic_fetch_add(&turned_away, 1);
        push_one(p, x->sequence);  // as libclient would
        free(x);
        return;
    }
    if (code && !refused)  // one that is refused at the end is not sent again
        die("a push", code, text);
    p->done[x->sequence % PS_WINDOW] = true;
    while (p->oldest <= p->sequence && p->done[p->oldest % PS_WINDOW])
        p->done[p->oldest++ % PS_WINDOW] = false;
    free(x);
    atomic_fetch_add(&p->pushed, p->bytes);
    if (atomic_load(&stop))
        atomic_fetch_sub(&p->open, 1);
    else
        push_one(p, ++p->sequence);
}

static void pack_push(struct pusher *p, uint64_t sequence, struct ps_slices *request)
{
    Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = caller_of(0, sequence);
    struct ps_slices payload = PS_SLICES_EMPTY;
    uint64_t places = (uint64_t)MIB * (1 << 20) / p->bytes;
    caller.client.data = p->id;
    caller.worker = 0;
    caller.oldest = p->oldest;
    r.caller = &caller;
    r.n_tensors = 1;
    r.tensors = tensors;
    t.variable = (char *)(p->bytes <= SMALL * sizeof(float) ? "small" : "w");
    t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
    t.count = p->bytes / sizeof(float);
    t.first = t.count <= SMALL ? 0 : (sequence + p->id[0]) % places * t.count;
    ps_slices_add(&payload, ps_slice_ref(p->payload));
    ps_msg_pack(&r.base, &payload, request);
}

static void push_one(struct pusher *p, uint64_t sequence)
{
    struct ps_slices request = PS_SLICES_EMPTY;
    struct push *x = ps_alloc(sizeof *x);
    *x = (struct push){p, sequence};
    pack_push(p, sequence, &request);
    ps_client_call(p->client, 0, M(PUSH), &(struct ps_call_options){.stream = true, .deadline = UINT64_MAX}, &request,
                   on_pushed, x);
}

static void pusher_init(struct pusher *p, const char *address, size_t kib)
{
    uint8_t *data;
    *p = (struct pusher){.bytes = kib ? kib << 10 : sizeof(float), .oldest = 1};
    p->payload = ps_slice_new(p->bytes, &data);
    memset(data, 0, p->bytes);
    for (int i = 0; i < 2; i++)
        memcpy(p->id + 8 * i, &(uint64_t){ps_random()}, 8);
    p->client = ps_client_create(&address, 1, NULL);
}

static uint64_t pushed(struct pusher *p, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += atomic_load(&p[i].pushed);
    return bytes;
}

static void begin(void *arg)  // on the client's thread
{
    struct pusher *p = arg;
    for (int k = 0; k < window; k++)
        push_one(p, ++p->sequence);
}

static int push(const char *address, size_t n, size_t kib, double seconds)
{
    struct pusher *p = ps_alloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++) {
        pusher_init(&p[i], address, kib);
        p[i].open = window;
        ps_client_after(p[i].client, 0, begin, &p[i]);
    }
    pause_ms(300);
    uint64_t from = ps_now(), before = pushed(p, n), *each = ps_alloc(n * sizeof *each), least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < n; i++)
        each[i] = atomic_load(&p[i].pushed);
    pause_ms((long)(seconds * 1000));
    for (uint64_t until = ps_now() + 60 * PS_SECOND; pushed(p, n) == before && ps_now() < until;)
        pause_ms(20);
    uint64_t all = pushed(p, n) - before;
    for (size_t i = 0; i < n; i++) {
        uint64_t own = atomic_load(&p[i].pushed) - each[i];
        least = own < least ? own : least;
        most = own > most ? own : most;
    }
    free(each);
    double ns = (double)(ps_now() - from), share = (double)all / (double)n, bytes = (double)p[0].bytes;
    atomic_store(&stop, true);
    for (size_t i = 0; i < n; i++)
        while (atomic_load(&p[i].open))
            pause_ms(1);
    for (size_t i = 0; i < n; i++) {
        ps_client_stop(p[i].client);
        ps_client_destroy(p[i].client);
        ps_slice_unref(p[i].payload);
    }
    free(p);
    printf("%.0f MB/s, %u refused, %.0f taken, %.0f pushes/s, %.2f to %.2f of a share each\n", (double)all / ns * 1e3,
           atomic_load(&turned_away), (double)all / bytes, (double)all / bytes / ns * 1e9, (double)least / share,
           (double)most / share);
    return 0;
}

// ---- park ---------------------------------------------------------------------------------------------------------

static atomic_size_t answered, refused;

struct parked {
    struct ps_client *client;
    bool stream;
};

static void park_one(void *arg);

// arg: a pull that waits, or NULL. psd may seem to be gone where it does not run for two seconds.
static void on_pulled(void *arg, enum ps_code code, const char *text, struct ps_slices *reply)
{
    struct parked *p = arg;
    (void)reply;
    if (p && code == PS_UNAVAILABLE) {
        ps_client_after(p->client, PS_SECOND, park_one, p);
        return;
    }
    if (code && atomic_fetch_add(&refused, 1) < 5)
        fprintf(stderr, "a pull: %s: %s\n", ps_code_name(code), text);
    atomic_fetch_add(&answered, 1);
}

static void read_request(struct ps_slices *request, const char *name, uint64_t first, uint64_t count, uint64_t round)
{
    Paramserver__V1__ReadRequest r = PARAMSERVER__V1__READ_REQUEST__INIT;
    Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
    Paramserver__V1__Caller caller = caller_of(0, 0);
    r.caller = &caller;
    r.n_tensors = 1;
    r.tensors = tensors;
    r.round = round;
    t.variable = (char *)name;
    t.first = first;
    t.count = count;
    ps_msg_pack(&r.base, NULL, request);
}

static void park_one(void *arg)
{
    struct parked *p = arg;
    struct ps_slices request = PS_SLICES_EMPTY;
    read_request(&request, "small", 0, 16, 1);
    ps_client_call(p->client, 0, M(PULL), &(struct ps_call_options){.stream = p->stream, .deadline = UINT64_MAX},
                   &request, on_pulled, p);
}

static uint32_t waiting(struct ps_client *c)
{
    Paramserver__V1__StatusRequest r = PARAMSERVER__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *m = NULL;
    struct ps_slices none = PS_SLICES_EMPTY, reply = call(c, M(STATUS), &r.base);
    if (ps_msg_unpack(&paramserver__v1__status_reply__descriptor, &reply, &m, &none, NULL))
        die("status", PS_INTERNAL, "not a reply");
    const Paramserver__V1__StatusReply *s = (const Paramserver__V1__StatusReply *)m;
    uint32_t n = s->n_jobs ? s->jobs[0]->waiting : 0;
    ps_msg_free(m);
    ps_slices_clear(&reply);
    return n;
}

static void close_round(struct ps_client *c)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        Paramserver__V1__UpdateRequest r = PARAMSERVER__V1__UPDATE_REQUEST__INIT;
        Paramserver__V1__Tensor t = PARAMSERVER__V1__TENSOR__INIT, *tensors[] = {&t};
        Paramserver__V1__Caller caller = caller_of(rank, 1);
        r.caller = &caller;
        r.n_tensors = 1;
        r.tensors = tensors;
        r.round = 1;
        r.examples = 1;
        t.variable = (char *)"small";
        t.dtype = PARAMSERVER__V1__DTYPE__FLOAT32;
        t.count = SMALL;
        call_only(c, M(PUSH), &r.base, SMALL);
    }
}

static int park(const char *address, size_t n)
{
    enum { STREAMS = 4 };
    struct ps_client *c[STREAMS + 1];
    char line[8];
    for (int i = 0; i <= STREAMS; i++) {
        c[i] = ps_client_create(&address, 1, NULL);
        (void)waiting(c[i]);  // so that it is connected
    }
    struct parked *parked = ps_alloc(n * sizeof *parked);
    for (size_t i = 0; i < n; i++) {
        parked[i] = (struct parked){c[i % 10 ? i % STREAMS : STREAMS], i % 10};
        park_one(&parked[i]);
    }
    uint32_t found;
    while ((found = waiting(c[0])) != n && !atomic_load(&answered))
        pause_ms(20);
    printf("waiting %" PRIu32 "\n", found);
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 0;
    close_round(c[0]);
    for (uint64_t until = ps_now() + 600 * PS_SECOND; atomic_load(&answered) < n && ps_now() < until;)
        pause_ms(1);
    printf("answered %zu refused %zu\n", atomic_load(&answered), atomic_load(&refused));
    for (int i = 0; i <= STREAMS; i++) {
        ps_client_stop(c[i]);
        ps_client_destroy(c[i]);
    }
    free(parked);
    return 0;
}

// ---- deaf ---------------------------------------------------------------------------------------------------------

// The client's thread waits here for ever, and with it all that would read.
static void never(void *arg)
{
    (void)arg;
    puts("deaf");
    fflush(stdout);
    for (;;)
        pause();
}

static int deaf(const char *address, size_t reads, size_t kib)
{
    struct pusher p;
    uint64_t chunk = PS_CHUNK_MAX / 4 - BLOCK;
    pusher_init(&p, address, kib ? kib : 512);
    (void)waiting(p.client);  // so that it is connected
    for (size_t i = 0; i < reads; i++)
        for (uint64_t first = 0; first + chunk <= (uint64_t)MIB << 18; first += chunk) {
            struct ps_slices request = PS_SLICES_EMPTY;
            read_request(&request, "w", first, chunk, 0);
            ps_client_call(p.client, 0, M(PULL),
                           &(struct ps_call_options){.stream = i % 2 == 0, .deadline = UINT64_MAX}, &request, on_pulled,
                           NULL);
        }
    for (size_t i = 0; kib && i < PS_WINDOW - 1; i++) {
        struct ps_slices request = PS_SLICES_EMPTY;
        pack_push(&p, ++p.sequence, &request);
        ps_client_call(p.client, 0, M(PUSH), &(struct ps_call_options){.stream = true, .deadline = UINT64_MAX},
                       &request, on_pulled, NULL);
    }
    ps_client_after(p.client, 100 * PS_MS, never, NULL);
    return pause();
}

// ---- connect ------------------------------------------------------------------------------------------------------

static int connect_many(const char *address, size_t n)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int *fd = ps_alloc(n * sizeof *fd);
    size_t greeted = 0, closed = 0;
    snprintf(to.sun_path, sizeof to.sun_path, "%s", address + strlen("unix:"));
    for (size_t i = 0; i < n; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        setsockopt(fd[i], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 60}, sizeof(struct timeval));
        setsockopt(fd[i], SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 60}, sizeof(struct timeval));
        int rc;
        do  // a socket with a timeout is interrupted even by SIGCONT
            rc = connect(fd[i], (struct sockaddr *)&to, sizeof to);
        while (rc != 0 && errno == EINTR);
        if (rc != 0)
            die("connect", PS_UNAVAILABLE, strerror(errno));
    }
    for (size_t i = 0; i < n; i++) {
        char byte;
        ssize_t got;
        do
            got = read(fd[i], &byte, 1);
        while (got < 0 && errno == EINTR);
        greeted += got > 0;
        closed += got == 0 || (got < 0 && errno == ECONNRESET);
    }
    printf("greeted %zu closed %zu neither %zu\n", greeted, closed, n - greeted - closed);
    for (size_t i = 0; i < n; i++)
        close(fd[i]);
    free(fd);
    return 0;
}

// ---- count --------------------------------------------------------------------------------------------------------

enum { COUNTERS = 16, SLOTS = 4096 };

struct counter {
    psc_client *client;
    char name[8];
    float ones[SLOTS];
    atomic_uint sent[SLOTS], acknowledged[SLOTS];
    psc_code last;
};

static void *count_thread(void *arg)
{
    struct counter *c = arg;
    psc_error e;
    psc_result result;
    for (size_t k = 0; !c->last; k++) {
        size_t slot = k % SLOTS;
        psc_tensor t = {.name = c->name, .data = c->ones, .count = SLOTS, .dtype = PSC_FLOAT32};
        psc_push_options options = {.examples = 1};
        psc_op *op;
        c->ones[slot] = 1;
        atomic_fetch_add(&c->sent[slot], 1);
        psc_push(c->client, &t, 1, &options, NULL, NULL, &op);
        c->last = psc_wait(op, &result, &e);
        c->ones[slot] = 0;
        if (c->last == PSC_OK)
            atomic_fetch_add(&c->acknowledged[slot], 1);
    }
    return NULL;
}

// One look at everything: was acknowledged <= value <= sent? False: psd is gone.
static bool check_once(psc_client *client, struct counter *c, float (*values)[SLOTS])
{
    static unsigned before[COUNTERS][SLOTS];
    psc_tensor t[COUNTERS];
    psc_error e;
    psc_op *op;
    for (size_t i = 0; i < COUNTERS; i++) {
        t[i] = (psc_tensor){.name = c[i].name, .data = values[i], .count = SLOTS, .dtype = PSC_FLOAT32};
        for (size_t s = 0; s < SLOTS; s++)
            before[i][s] = atomic_load(&c[i].acknowledged[s]);
    }
    psc_get(client, t, COUNTERS, NULL, NULL, &op);
    if (psc_wait(op, NULL, &e))
        return false;
    for (size_t i = 0; i < COUNTERS; i++)
        for (size_t s = 0; s < SLOTS; s++)
            if (values[i][s] < (float)before[i][s] || values[i][s] > (float)atomic_load(&c[i].sent[s])) {
                fprintf(stderr, "client %zu slot %zu: %g, acknowledged %u, sent %u\n", i, s, (double)values[i][s],
                        before[i][s], atomic_load(&c[i].sent[s]));
                exit(1);
            }
    return true;
}

static psc_client *connect_as(const psc_cluster *cluster, int rank)
{
    psc_options options = {.job = "count", .rank = rank, .workers = 1, .update = PSC_ASYNC, .timeout_ms = 30000};
    psc_client *client;
    psc_error e;
    if (psc_connect(cluster, &options, &client, &e))
        die("connect", (enum ps_code)e.code, e.text);
    return client;
}

static int count(const char *path)
{
    static struct counter c[COUNTERS];
    static float values[COUNTERS][SLOTS];
    psc_variable variables[COUNTERS];
    pthread_t threads[COUNTERS];
    psc_cluster *cluster;
    psc_error e;
    if (psc_cluster_load(path, &cluster, &e))
        die("cluster", (enum ps_code)e.code, e.text);
    const uint64_t shape = SLOTS;
    for (size_t i = 0; i < COUNTERS; i++) {
        snprintf(c[i].name, sizeof c[i].name, "w%zu", i);
        variables[i] =
            (psc_variable){.name = c[i].name, .dtype = PSC_FLOAT32, .shape = &shape, .rank = 1, .trainable = true};
    }
    psc_client *chief = connect_as(cluster, 0);
    psc_declaration d = {.variables = variables, .n_variables = COUNTERS, .rule = "assign_add"};
    if (psc_declare(chief, &d, NULL, &e))
        die("declare", (enum ps_code)e.code, e.text);
    for (size_t i = 0; i < COUNTERS; i++) {
        c[i].client = connect_as(cluster, -1);
        if (psc_attach(c[i].client, &e))
            die("attach", (enum ps_code)e.code, e.text);
        pthread_create(&threads[i], NULL, count_thread, &c[i]);
    }
    puts("counting");
    fflush(stdout);
    size_t looks = 0, acknowledged = 0;
    while (check_once(chief, c, values))
        looks++;
    for (size_t i = 0; i < COUNTERS; i++) {
        pthread_join(threads[i], NULL);
        for (size_t s = 0; s < SLOTS; s++)
            acknowledged += atomic_load(&c[i].acknowledged[s]);
        if (c[i].last != PSC_UNAVAILABLE)
            die("a push at the end", (enum ps_code)c[i].last, "expected UNAVAILABLE");
    }
    printf("looked %zu acknowledged %zu\n", looks, acknowledged);
    fflush(stdout);
    _exit(0);
}

// -------------------------------------------------------------------------------------------------------------------

int main(int argc, char **argv)
{
    ps_alloc_tune();
    const char *what = argc > 2 ? argv[2] : "";
    long n[4] = {0};
    for (int i = 3; i < argc && i < 7; i++)
        n[i - 3] = atol(argv[i]);
    if (strcmp(what, "declare") == 0) {
        struct ps_client *c = ps_client_create((const char *const *)&argv[1], 1, NULL);
        int rc = declare(c, argc > 3);
        ps_client_stop(c);
        ps_client_destroy(c);
        return rc;
    }
    if (n[3])
        window = (int)n[3];
    if (strcmp(what, "push") == 0 || strcmp(what, "park") == 0 || strcmp(what, "deaf") == 0)
        learn_run(argv[1]);
    if (strcmp(what, "push") == 0)
        return push(argv[1], (size_t)n[0], (size_t)n[1], (double)n[2]);
    if (strcmp(what, "park") == 0)
        return park(argv[1], (size_t)n[0]);
    if (strcmp(what, "deaf") == 0)
        return deaf(argv[1], (size_t)n[0], (size_t)n[1]);
    if (strcmp(what, "waiting") == 0) {
        struct ps_client *c = ps_client_create((const char *const *)&argv[1], 1, NULL);
        printf("waiting %" PRIu32 "\n", waiting(c));
        ps_client_stop(c);
        ps_client_destroy(c);
        return 0;
    }
    if (strcmp(what, "connect") == 0)
        return connect_many(argv[1], (size_t)n[0]);
    if (strcmp(what, "count") == 0)
        return count(argv[1]);
    fprintf(stderr, "usage: see the head of load.c\n");
    return PS_EXIT_USAGE;
}
