// SPDX-License-Identifier: Apache-2.0
//
// Real processes under faults: workers push 1.0 to slots of their own while they are killed and stopped, servers are
// stopped, and connections are cut. At the end a slot whose push was acknowledged is exactly 1, one whose fate is
// unknown 0 or 1, every other 0.
//
//     chaos run [--kills N] [--stops N] [--cuts N] [--seconds N] [--dead-after-ms N] [--seed N] PID:SOCKET ...
//         for the psd of a cluster whose peers are SOCKET.proxy; prints the figures. Exit 1: something is not as said.
//     chaos worker RANK NEXT LIMIT ADDRESS ...
//         a worker, whose pushes are NEXT ... LIMIT - 1. Writes to descriptor 3, as uint32: 2 k before it sends push k,
//         2 k + 1 when that is acknowledged. SIGTERM: leaves and exits 0. EXIT_OVER: it counts as dead, or has not heard
//         from the control task for too long; it may be started anew.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "libclient/psclient.h"
#include "tests/it/proxy.h"

enum {
    WORKERS = 6,  // rank 0 meets no fault of its own, so that the job lives on
    SLOTS = 1 << 21,
    SLOTS_PER_PUSH = 2,
    PUSHES = SLOTS / SLOTS_PER_PUSH,
    SHARE = PUSHES / WORKERS,  // of a rank, over all its lives
    MAX_TASKS = 8,
    PUSHES_PER_FAULT = 100,
    PIPE = 3,
    EXIT_OVER = 3,
};

static void die(const char *what, const psc_error *e)
{
    fprintf(stderr, "chaos: %s: %s: %s\n", what, ps_code_name((enum ps_code)e->code), e->text);
    _exit(1);
}

static void pause_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

// Neighbouring pushes lie far apart, on all servers: an odd factor permutes the slots.
static uint32_t slot_of(uint32_t push, int i)
{
    return (uint32_t)((push * (uint64_t)SLOTS_PER_PUSH + (uint64_t)i) * UINT64_C(2654435761) % SLOTS);
}

// ---- a worker -----------------------------------------------------------------------------------------------------

enum { DEPTH = 8, PAUSE_US = 2000, ADMISSION_S = 60 };

static volatile sig_atomic_t must_leave;
static sem_t room;  // for pushes on the way
static atomic_int failed;
static psc_error failure;  // valid once failed

static void on_term(int signal)
{
    (void)signal;
    must_leave = 1;
}

static void say(uint32_t push, bool done)
{
    uint32_t word = 2 * push + done;
    if (write(PIPE, &word, sizeof word) != sizeof word)
        _exit(1);
}

static void on_pushed(void *arg, const psc_result *result)
{
    if (result->error.code == PSC_OK) {
        say((uint32_t)(uintptr_t)arg, true);
    } else if (atomic_fetch_add(&failed, 1) == 0) {
        failure = result->error;
    }
    sem_post(&room);
}

static void push(psc_client *client, uint32_t k)
{
    static float one = 1;
    psc_tensor parts[SLOTS_PER_PUSH];
    psc_push_options options = {.examples = 1};
    for (int i = 0; i < SLOTS_PER_PUSH; i++)
        parts[i] = (psc_tensor){
            .name = "slots", .data = &one, .count = 1, .dtype = PSC_FLOAT32, .part = true, .first = slot_of(k, i)};
    say(k, false);
    psc_push(client, parts, SLOTS_PER_PUSH, &options, on_pushed, (void *)(uintptr_t)k, NULL);
}

// May it be tried again? What it was before may not be certain to be dead yet; a job that had nobody but it when it was
// silent has failed, and is replaced.
static bool may_join_later(psc_code code)
{
    return code == PSC_ALREADY_EXISTS || code == PSC_FAILED_PRECONDITION || code == PSC_ABORTED ||
           code == PSC_UNAVAILABLE;
}

static psc_client *admitted(const psc_cluster *cluster, int rank, bool opens)
{
    psc_options options = {.job = "chaos",
                           .rank = rank,
                           .workers = WORKERS,
                           .update = PSC_ASYNC,
                           .on_existing = opens ? PSC_REPLACE : PSC_REFUSE,
                           .transport = rank % 2 ? PSC_UNARY : PSC_STREAM};
    psc_client *client;
    psc_error e;
    for (uint64_t until = ps_now() + ADMISSION_S * PS_SECOND; psc_connect(cluster, &options, &client, &e);) {
        if (!may_join_later(e.code) || ps_now() > until)
            die("a worker joins", &e);
        if (must_leave)
            _exit(0);
        pause_us(50000);
    }
    return client;
}

static void know_slots(psc_client *client, bool opens)
{
    const uint64_t shape = SLOTS;
    psc_variable slots = {.name = "slots", .dtype = PSC_FLOAT32, .shape = &shape, .rank = 1, .trainable = true};
    psc_declaration d = {.variables = &slots,
                         .n_variables = 1,
                         .rule = "assign_add",
                         .placement = "round_robin",
                         .partitioner = "fixed:9"};
    psc_error e;
    psc_code code = opens ? psc_declare(client, &d, NULL, &e) : PSC_OK;
    if (!opens || code == PSC_ALREADY_EXISTS)  // it has declared it in an earlier life
        code = psc_attach(client, &e);
    if (code) {
        if (code == PSC_ABORTED || code == PSC_UNAVAILABLE)
            _exit(EXIT_OVER);
        die("a worker learns the variables", &e);
    }
}

static int work(int rank, uint32_t next, uint32_t limit, const psc_cluster *cluster)
{
    signal(SIGTERM, on_term);
    signal(SIGPIPE, SIG_IGN);
    bool opens = rank == 0 && next == 0;
    psc_client *client = admitted(cluster, rank, opens);
    know_slots(client, opens);
    sem_init(&room, 0, DEPTH);
    while (!must_leave && !atomic_load(&failed) && next < limit) {
        sem_wait(&room);
        push(client, next++);
        psc_report(client, next, 0, 0);
        pause_us(PAUSE_US);
    }
    for (int i = 0; i < DEPTH; i++)
        while (sem_wait(&room))
            ;
    if (atomic_load(&failed)) {
        if (failure.code == PSC_ABORTED || failure.code == PSC_UNAVAILABLE)
            _exit(EXIT_OVER);
        die("a push", &failure);
    }
    psc_close(client, NULL);
    return 0;
}

// ---- what is known of them ----------------------------------------------------------------------------------------

struct process {
    pid_t pid;
    int pipe;
    uint32_t next;    // push
    bool up;          // has had a push acknowledged in this life
    bool killed;      // by us
    bool late;        // it ended so late that the control task may not have heard that it leaves
    uint64_t resume;  // stopped until then; 0: it runs
    uint32_t lives;
};

struct task {
    struct proxy *proxy;
    pid_t pid;
    uint64_t resume;
    char address[128];  // of the proxy
};

struct run {
    struct process workers[WORKERS];
    struct task tasks[MAX_TASKS];
    size_t n_tasks;
    const char *addresses[MAX_TASKS];
    uint64_t seed, dead_after;  // ns
    bool ending;
    uint64_t leaving;       // ns: when all were told to leave
    uint64_t acknowledged;  // pushes
    uint32_t over;          // lives that ended because the worker counted as dead
    char begun[PUSHES], done[PUSHES];
};

static uint64_t draw(struct run *r, uint64_t below)  // splitmix64
{
    uint64_t z = r->seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void give_up(struct run *r, const char *what, int rank, int status)
{
    fprintf(stderr, "chaos: worker %d: %s (status %d)\n", rank, what, status);
    for (int i = 0; i < WORKERS; i++)
        if (r->workers[i].pid)
            kill(r->workers[i].pid, SIGKILL);
    for (size_t i = 0; i < r->n_tasks; i++)
        kill(r->tasks[i].pid, SIGCONT);
    exit(1);
}

static void start(struct run *r, int rank)
{
    struct process *p = &r->workers[rank];
    char text[3][16];
    char *argv[6 + MAX_TASKS] = {(char *)"chaos", (char *)"worker", text[0], text[1], text[2]};
    posix_spawn_file_actions_t actions;
    int ends[2];
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%" PRIu32, p->next);
    snprintf(text[2], sizeof text[2], "%d", (rank + 1) * SHARE);
    for (size_t i = 0; i < r->n_tasks; i++)
        argv[5 + i] = r->tasks[i].address;
    if (pipe2(ends, O_CLOEXEC) || fcntl(ends[0], F_SETFL, O_NONBLOCK))
        give_up(r, "no pipe", rank, errno);
    // A descriptor that is duplicated onto itself would stay close-on-exec.
    int end = fcntl(ends[1], F_DUPFD_CLOEXEC, PIPE + 1);
    close(ends[1]);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end, PIPE);
    int rc = posix_spawn(&p->pid, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(end);
    if (rc)
        give_up(r, "does not start", rank, rc);
    p->pipe = ends[0];
    p->up = p->killed = false;
    p->resume = 0;
    p->lives++;
}

// All that it has said so far, in whole words, as it wrote them.
static void listen_to(struct run *r, struct process *p)
{
    uint32_t words[1024];
    ssize_t n;
    while ((n = read(p->pipe, words, sizeof words)) > 0) {
        for (size_t i = 0; i < (size_t)n / sizeof *words; i++) {
            uint32_t push = words[i] / 2;
            if (words[i] % 2) {
                r->done[push]++;
                r->acknowledged++;
                p->up = true;
            } else {
                r->begun[push]++;
                p->next = push + 1;
            }
        }
    }
}

// One that has ended is started anew, unless all are to end.
static void look_after(struct run *r, int rank)
{
    struct process *p = &r->workers[rank];
    int status;
    if (!p->pid)
        return;
    listen_to(r, p);
    if (waitpid(p->pid, &status, WNOHANG) != p->pid)
        return;
    p->pid = 0;
    listen_to(r, p);
    close(p->pipe);
    bool over = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_OVER;
    bool left = WIFEXITED(status) && WEXITSTATUS(status) == 0 && r->ending;
    if (!(p->killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) && !over && !left)
        give_up(r, "ended", rank, status);
    r->over += over;
    p->late = over || ps_now() > r->leaving + r->dead_after / 2;
    if (!r->ending)
        start(r, rank);
}

static void resume(pid_t pid, uint64_t *until, bool now)
{
    if (!*until || (!now && ps_now() < *until))
        return;
    kill(pid, SIGCONT);
    *until = 0;
}

static void look_after_all(struct run *r, bool resume_now)
{
    struct pollfd fds[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        fds[i] = (struct pollfd){r->workers[i].pid ? r->workers[i].pipe : -1, POLLIN, 0};
    pause_us(5000);
    poll(fds, WORKERS, 20);
    for (size_t i = 0; i < r->n_tasks; i++)
        resume(r->tasks[i].pid, &r->tasks[i].resume, resume_now);
    for (int i = 0; i < WORKERS; i++) {
        if (r->workers[i].pid)
            resume(r->workers[i].pid, &r->workers[i].resume, resume_now);
        look_after(r, i);
    }
}

static void await_up(struct run *r, int from, int to, uint64_t seconds)
{
    uint64_t until = ps_now() + seconds * PS_SECOND;
    for (int i = from; i < to; i++)
        while (!r->workers[i].up) {
            if (ps_now() > until)
                give_up(r, "has had no push acknowledged", i, 0);
            look_after_all(r, true);
        }
}

// ---- faults -------------------------------------------------------------------------------------------------------

enum fault { KILL, STOP, CUT, FAULTS };

// One that works and is not stopped; NULL: none at the moment.
static struct process *victim(struct run *r)
{
    struct process *p = &r->workers[1 + draw(r, WORKERS - 1)];
    return p->pid && p->up && !p->killed && !p->resume ? p : NULL;
}

static bool kill_one(struct run *r)
{
    struct process *p = victim(r);
    if (!p)
        return false;
    p->killed = true;
    kill(p->pid, SIGKILL);
    return true;
}

// Half of them for so long that a worker counts as dead. The control task only for much shorter than its silence may
// last before it ends all, so that it may go on a good deal later than it was to.
static bool stop_one(struct run *r)
{
    bool server = draw(r, 4) == 0, longer = draw(r, 2);
    size_t i = draw(r, r->n_tasks);
    struct process *p = server ? NULL : victim(r);
    pid_t pid = server ? r->tasks[i].pid : p ? p->pid : 0;
    uint64_t *until = server ? &r->tasks[i].resume : p ? &p->resume : NULL;
    if (!pid || *until)
        return false;
    uint64_t tenths = server && i == 0 ? 1 + draw(r, 3) : longer ? 12 + draw(r, 12) : 1 + draw(r, 6);
    kill(pid, SIGSTOP);
    *until = ps_now() + r->dead_after * tenths / 10;
    return true;
}

// All connections or those of one server: at once, or in the middle of a message on its way there or back.
static bool cut_some(struct run *r)
{
    bool all = draw(r, 3) == 0;
    size_t one = draw(r, r->n_tasks);
    for (size_t i = 0; i < r->n_tasks; i++)
        if (all || i == one)
            proxy_cut(r->tasks[i].proxy, draw(r, 2) ? PROXY_UP : PROXY_DOWN, draw(r, 3) ? 1 + draw(r, 400) : 0);
    return true;
}

static void wreak(struct run *r, const uint64_t counts[FAULTS], uint64_t seconds)
{
    static bool (*const do_one[FAULTS])(struct run *) = {kill_one, stop_one, cut_some};
    uint64_t left[FAULTS], n = 0, begun = ps_now(), next = begun;
    memcpy(left, counts, sizeof left);
    for (int f = 0; f < FAULTS; f++)
        n += left[f];
    uint64_t pause = seconds * PS_SECOND / (n ? n : 1);
    while (n) {
        look_after_all(r, false);
        if (ps_now() > begun + (3 * seconds + 300) * PS_SECOND)
            give_up(r, "the faults take too long", 0, 0);
        if (ps_now() < next)
            continue;
        int f = 0;
        for (uint64_t k = draw(r, n); k >= left[f]; f++)
            k -= left[f];
        if (!do_one[f](r))
            continue;
        left[f]--;
        n--;
        next += pause / 2 + draw(r, pause + 1);
    }
}

static bool is_any_stopped(const struct run *r)
{
    bool any = false;
    for (int i = 0; i < WORKERS; i++)
        any |= r->workers[i].resume != 0;
    for (size_t i = 0; i < r->n_tasks; i++)
        any |= r->tasks[i].resume != 0;
    return any;
}

// Those who are stopped go on when it is time, and however slow the machine is, there are some pushes for every fault.
static void go_on(struct run *r, const uint64_t counts[FAULTS])
{
    uint64_t enough = PUSHES_PER_FAULT * (counts[KILL] + counts[STOP] + counts[CUT]);
    for (uint64_t until = ps_now() + 300 * PS_SECOND; r->acknowledged < enough || is_any_stopped(r);) {
        if (ps_now() > until)
            give_up(r, "all of them push too little", 0, 0);
        look_after_all(r, false);
    }
}

// ---- the verdict --------------------------------------------------------------------------------------------------

static psc_client *observe(const struct run *r)
{
    psc_options options = {.job = "chaos", .rank = -1};
    psc_cluster *cluster;
    psc_client *client;
    psc_error e;
    if (psc_cluster_create(r->addresses, r->n_tasks, &cluster, &e) || psc_connect(cluster, &options, &client, &e) ||
        psc_attach(client, &e))
        die("the observer", &e);
    psc_cluster_free(cluster);
    return client;
}

// What each slot may be: [least, most].
static uint64_t judge(const struct run *r, const float *values)
{
    static char least[SLOTS], most[SLOTS];
    uint64_t wrong = 0;
    for (uint32_t k = 0; k < PUSHES; k++)
        for (int i = 0; i < SLOTS_PER_PUSH; i++) {
            least[slot_of(k, i)] += r->done[k];
            most[slot_of(k, i)] += r->begun[k];
        }
    for (uint32_t s = 0; s < SLOTS; s++)
        if ((values[s] != 0 && values[s] != 1) || values[s] < (float)least[s] || values[s] > (float)most[s]) {
            if (wrong++ < 10)
                fprintf(stderr, "chaos: slot %" PRIu32 " is %g; of its push %d was begun, %d acknowledged\n", s,
                        (double)values[s], most[s], least[s]);
        }
    return wrong;
}

static uint64_t read_and_judge(const struct run *r, psc_client *observer)
{
    float *values = ps_alloc(SLOTS * sizeof *values);
    psc_tensor t = {.name = "slots", .data = values, .count = SLOTS, .dtype = PSC_FLOAT32};
    psc_op *op;
    psc_error e;
    psc_get(observer, &t, 1, NULL, NULL, &op);
    if (psc_wait(op, NULL, &e))
        die("the observer reads", &e);
    uint64_t wrong = judge(r, values);
    free(values);
    return wrong;
}

static void print_figures(const struct run *r, const uint64_t counts[FAULTS], double seconds, uint64_t wrong)
{
    uint64_t begun = 0, done = r->acknowledged, cuts = 0;
    uint32_t lives = 0;
    for (uint32_t k = 0; k < PUSHES; k++)
        begun += (uint64_t)r->begun[k];
    for (size_t i = 0; i < r->n_tasks; i++)
        cuts += proxy_cuts(r->tasks[i].proxy);
    for (int i = 0; i < WORKERS; i++)
        lives += r->workers[i].lives;
    printf("%.0f s: %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64 " cuts (%" PRIu64 " connections); %" PRIu32
           " lives of %d workers, %" PRIu32 " of them ended by counting as dead\n",
           seconds, counts[KILL], counts[STOP], counts[CUT], cuts, lives, WORKERS, r->over);
    printf("pushes: %" PRIu64 " begun, %" PRIu64 " acknowledged, %" PRIu64 " undecided; slots that are wrong: %" PRIu64
           "\n",
           begun, done, begun - done, wrong);
    for (int i = 0; i < WORKERS; i++)
        if (r->workers[i].late && !r->workers[i].killed)
            printf("late: %d\n", i);
}

// All run again, and those that count as dead have had the time to hear of it and to come back.
static void settle(struct run *r)
{
    for (uint64_t until = ps_now() + 2 * r->dead_after; ps_now() < until;)
        look_after_all(r, true);
    for (int i = 0; i < WORKERS; i++)
        r->workers[i].up = false;
    await_up(r, 0, WORKERS, 60);
}

// The control task answers, at some time after this is called.
static void hear_control(psc_client *observer)
{
    float value;
    psc_tensor first = {.name = "slots", .data = &value, .count = 1, .dtype = PSC_FLOAT32, .part = true};
    psc_op *op;
    psc_error e;
    psc_get(observer, &first, 1, NULL, NULL, &op);
    if (psc_wait(op, NULL, &e))
        die("the observer asks the control task", &e);
}

// The last rank dies, all others leave.
static void end_workers(struct run *r, psc_client *observer)
{
    r->ending = true;
    r->leaving = ps_now();
    hear_control(observer);
    r->workers[WORKERS - 1].killed = true;
    for (int i = 0; i < WORKERS; i++)
        kill(r->workers[i].pid, i == WORKERS - 1 ? SIGKILL : SIGTERM);
    uint64_t until = ps_now() + 60 * PS_SECOND;
    for (int i = 0; i < WORKERS; i++)
        while (r->workers[i].pid) {
            if (ps_now() > until)
                give_up(r, "does not leave", i, 0);
            look_after_all(r, true);
        }
}

static int run(struct run *r, const uint64_t counts[FAULTS], uint64_t seconds)
{
    uint64_t begun = ps_now();
    for (int i = 0; i < WORKERS; i++)
        r->workers[i].next = (uint32_t)i * SHARE;
    start(r, 0);
    await_up(r, 0, 1, 60);
    psc_client *observer = observe(r);  // from now on: to it, a psd that restarts is another one
    for (int i = 1; i < WORKERS; i++)
        start(r, i);
    await_up(r, 1, WORKERS, 60);
    wreak(r, counts, seconds);
    go_on(r, counts);
    settle(r);
    end_workers(r, observer);
    uint64_t wrong = read_and_judge(r, observer);
    psc_close(observer, NULL);
    bool alive = true;
    for (size_t i = 0; i < r->n_tasks; i++)
        alive = kill(r->tasks[i].pid, 0) == 0 && alive;
    if (!alive)
        fprintf(stderr, "chaos: a psd is gone\n");
    print_figures(r, counts, (double)(ps_now() - begun) / 1e9, wrong);
    for (size_t i = 0; i < r->n_tasks; i++)
        proxy_stop(r->tasks[i].proxy);
    return wrong || !alive;
}

// -------------------------------------------------------------------------------------------------------------------

static bool add_task(struct run *r, char *text)
{
    char path[100];
    char *socket = strchr(text, ':');
    if (!socket || r->n_tasks == MAX_TASKS)
        return false;
    struct task *t = &r->tasks[r->n_tasks];
    snprintf(path, sizeof path, "%s.proxy", socket + 1);
    snprintf(t->address, sizeof t->address, "unix:%s", path);
    t->pid = (pid_t)atol(text);
    t->proxy = proxy_start(path, socket + 1);
    r->addresses[r->n_tasks++] = t->address;
    return true;
}

static int run_main(int argc, char **argv)
{
    static struct run r = {.seed = 1};
    static const struct option known[] = {{"kills", 1, NULL, 0},   {"stops", 1, NULL, 1}, {"cuts", 1, NULL, 2},
                                          {"seconds", 1, NULL, 3}, {"seed", 1, NULL, 4},  {"dead-after-ms", 1, NULL, 5},
                                          {NULL, 0, NULL, 0}};
    uint64_t numbers[6] = {8, 3, 8, 8, 1, 2500};  // as in known
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) >= 0 && option != '?')
        numbers[option] = strtoull(optarg, NULL, 10);
    for (; optind < argc && option != '?'; optind++)
        if (!add_task(&r, argv[optind]))
            option = '?';
    if (option == '?' || !r.n_tasks)
        return PS_EXIT_USAGE;
    signal(SIGPIPE, SIG_IGN);
    r.seed = numbers[4];
    r.dead_after = numbers[5] * PS_MS;
    return run(&r, numbers, numbers[3]);
}

int main(int argc, char **argv)
{
    psc_cluster *cluster;
    psc_error e;
    int rc = PS_EXIT_USAGE;
    ps_alloc_tune();
    if (argc > 2 && strcmp(argv[1], "run") == 0) {
        rc = run_main(argc - 1, argv + 1);
    } else if (argc > 5 && strcmp(argv[1], "worker") == 0) {
        if (psc_cluster_create((const char *const *)&argv[5], (size_t)argc - 5, &cluster, &e))
            die("the cluster", &e);
        rc = work(atoi(argv[2]), (uint32_t)atol(argv[3]), (uint32_t)atol(argv[4]), cluster);
        psc_cluster_free(cluster);
    }
    if (rc == PS_EXIT_USAGE)
        fprintf(stderr, "usage: see the head of chaos.c\n");
    return rc;
}
