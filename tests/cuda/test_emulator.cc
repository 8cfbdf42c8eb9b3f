// SPDX-License-Identifier: Apache-2.0
//
// The emulator finds every planted error in every order, with both places, and is silent on right programs.
//
// CUDA_SEEDS: how many orders of each, 200 if it is not set.
#include "tests/cuda/emulator.h"
#include "tests/cuda/examples.h"
#include "tests/cuda/include/cuda_runtime.h"
#include "tests/cuda/include/nccl.h"
#include <math.h>
#include <set>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static int point, bad;

static void result(bool good, const char *name, const std::string &why)
{
    printf("%sok %d - %s\n", good ? "" : "not ", ++point, name);
    if (!good) {
        printf("# %s\n", why.c_str());
        bad = 1;
    }
    fflush(stdout);
}

static void begin(uint64_t seed, int devices)
{
    struct emu_config config = {};
    config.seed = seed;
    config.devices = devices;
    emu_reset(&config);
}

static std::string with_seed(uint64_t seed, const std::string &text)
{
    return "seed " + std::to_string(seed) + ": " + text;
}

// ---- right programs ------------------------------------------------------------------------------------------------

static std::string wrong_in(const struct right_example *example, uint64_t seed)
{
    begin(seed, example->devices);
    bool right = example->run();
    struct emu_counts counts = emu_counted();
    if (emu_error())
        return with_seed(seed, emu_error());
    if (!right)
        return with_seed(seed, "the result is wrong");
    if (counts.live_allocations || counts.live_streams)
        return with_seed(seed, "something is left");
    return "";
}

static void test_right(uint64_t seeds)
{
    for (const struct right_example *e = right_examples; e->name; e++) {
        std::string wrong;
        for (uint64_t seed = 1; seed <= seeds && wrong.empty(); seed++)
            wrong = wrong_in(e, seed);
        result(wrong.empty(), e->name, wrong);
    }
}

// ---- planted errors ------------------------------------------------------------------------------------------------

// The places that a sentence names: "planted.cu:12".
static std::set<std::string> places_in(const std::string &sentence)
{
    static const char file[] = "planted.cu:";
    std::set<std::string> places;
    for (size_t at = sentence.find(file); at != std::string::npos; at = sentence.find(file, at + 1)) {
        size_t digits = at + strlen(file);
        places.insert(sentence.substr(at, sentence.find_first_not_of("0123456789", digits) - at));
    }
    return places;
}

static std::string missed_in(const struct planted_error *planted, uint64_t seed)
{
    begin(seed, planted->devices);
    planted_lines[0] = planted_lines[1] = 0;
    planted->run();
    if (!emu_error())
        return with_seed(seed, "nothing was found");
    std::string sentence = emu_error();
    if (sentence.find(planted->says) == std::string::npos)
        return with_seed(seed, "it does not say \"" + std::string(planted->says) + "\": " + sentence);
    std::set<std::string> places = places_in(sentence);
    for (int line : planted_lines)
        if (line && !places.count("planted.cu:" + std::to_string(line)))
            return with_seed(seed, "it does not name line " + std::to_string(line) + ": " + sentence);
    if (places.size() < 2)
        return with_seed(seed, "it does not name two places: " + sentence);
    return "";
}

static void ignore(const char *, void *)
{
}

static void test_planted(uint64_t seeds)
{
    emu_on_error(ignore, NULL);
    for (const struct planted_error *p = planted_errors; p->name; p++) {
        std::string missed;
        for (uint64_t seed = 1; seed <= seeds && missed.empty(); seed++)
            missed = missed_in(p, seed);
        result(missed.empty(), (std::string("found: ") + p->name).c_str(), missed);
        if (getenv("CUDA_SHOW") && emu_error())
            printf("# %s\n", emu_error());
    }
    emu_on_error(NULL, NULL);
}

// ---- faults --------------------------------------------------------------------------------------------------------

static std::string wrong_after(const struct planned_fault *fault, uint64_t seed)
{
    struct emu_config config = fault->config;
    config.seed = seed;
    emu_reset(&config);
    const char *wrong = fault->run();
    const char *said = emu_error();
    if (wrong)
        return with_seed(seed, wrong);
    if (fault->says && (!said || !strstr(said, fault->says)))
        return with_seed(seed, "it does not say \"" + std::string(fault->says) + "\": " + (said ? said : "nothing"));
    return !fault->says && said ? with_seed(seed, said) : "";
}

static void test_faults(uint64_t seeds)
{
    emu_on_error(ignore, NULL);
    for (const struct planned_fault *f = planned_faults; f->name; f++) {
        std::string wrong;
        for (uint64_t seed = 1; seed <= seeds && wrong.empty(); seed++)
            wrong = wrong_after(f, seed);
        result(wrong.empty(), f->name, wrong);
    }
    emu_on_error(NULL, NULL);
}

// ---- orders --------------------------------------------------------------------------------------------------------

// Of 24 orders 40 seeds show some, and each seed shows the same one again.
static void test_order(const char *name, unsigned (*run)())
{
    std::set<unsigned> orders;
    bool same = true;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        begin(seed, 1);
        unsigned order = run();
        begin(seed, 1);
        same = same && run() == order;
        orders.insert(order);
    }
    result(same && orders.size() >= 8, name,
           std::to_string(orders.size()) + " orders" + (same ? "" : ", and others of the same seed"));
}

// ---- what is not compiled to be watched ----------------------------------------------------------------------------

static void test_unwatched()
{
    emu_on_error(ignore, NULL);
    begin(1, 1);
    float *x;
    cudaMalloc(&x, 16);
    *(volatile float *)x = 1.0f;
    std::string said = emu_error() ? emu_error() : "nothing";
    result(said.find("the host touches memory of device 0") == 0 &&
               said.find("of cudaMalloc (test_emulator.cc:") != said.npos,
           "found: the host uses a device pointer where it is not watched", said);
    emu_on_error(NULL, NULL);
}

// ---- ranks of two processes ----------------------------------------------------------------------------------------

// Each process is a rank, with a GPU of its own: this program, and this program started once more.
enum { NUMBERS = 1000, SUMS = 7 };

struct two_ranks {
    int rank;
    float *x, here[NUMBERS];
    cudaStream_t stream;
    ncclComm_t comm;
};

static bool ranks_begin(struct two_ranks *r, const ncclUniqueId &id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclResult_t state;
    config.blocking = 0;
    for (int i = 0; i < NUMBERS; i++)
        r->here[i] = (float)(i + r->rank);
    cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking);
    cudaMalloc(&r->x, sizeof r->here);
    cudaMemcpyAsync(r->x, r->here, sizeof r->here, cudaMemcpyHostToDevice, r->stream);
    ncclCommInitRankConfig(&r->comm, 2, id, r->rank, &config);
    while (ncclCommGetAsyncError(r->comm, &state) == ncclSuccess && state == ncclInProgress)
        usleep(100);
    return state == ncclSuccess;
}

static const char *ranks_end(struct two_ranks *r, const char *wrong)
{
    ncclCommAbort(r->comm);
    cudaStreamSynchronize(r->stream);
    cudaStreamDestroy(r->stream);
    cudaFree(r->x);
    return wrong ? wrong : "";
}

static void ranks_add(struct two_ranks *r, size_t n)
{
    ncclAllReduce(r->x, r->x, n, ncclFloat32, ncclSum, r->comm, r->stream);
}

// More sums than a rank may be ahead of the other.
static const char *ranks_add_up(struct two_ranks *r)
{
    for (int k = 0; k < SUMS; k++)
        ranks_add(r, NUMBERS);
    cudaMemcpyAsync(r->here, r->x, sizeof r->here, cudaMemcpyDeviceToHost, r->stream);
    cudaStreamSynchronize(r->stream);
    for (int i = 0; i < NUMBERS; i++)
        if (r->here[i] != ldexpf((float)(2 * i + 1), SUMS - 1))
            return "the sum is wrong";
    return NULL;
}

static const char *ranks_differ(struct two_ranks *r)
{
    ranks_add(r, NUMBERS);
    if (r->rank == 0)
        ranks_add(r, NUMBERS - 1);
    else
        ncclBroadcast(r->x, r->x, NUMBERS, ncclFloat32, 0, r->comm, r->stream);
    cudaStreamSynchronize(r->stream);
    return NULL;
}

static const char *ranks_one_is_late(struct two_ranks *r)
{
    ranks_add(r, NUMBERS);
    if (r->rank == 0)
        ranks_add(r, NUMBERS);
    cudaStreamSynchronize(r->stream);
    while (r->rank == 1 && fgetc(stdin) != EOF)  // the other process's data go with it
        ;
    return NULL;
}

// With a seed that is odd its end is seen; else its rank is waited for.
static const char *ranks_one_is_killed(struct two_ranks *r, uint64_t seed)
{
    ncclResult_t state = ncclSuccess;
    if (r->rank == 1)
        _exit(0);
    ranks_add(r, NUMBERS);
    for (int i = 0; i < 2000 && state != ncclRemoteError; i++) {
        usleep(100);
        if (cudaStreamQuery(r->stream) != cudaErrorNotReady)
            return "the sum has ended";
        ncclCommGetAsyncError(r->comm, &state);
    }
    return state == (seed % 2 ? ncclRemoteError : ncclInProgress) ? NULL : "its end is seen with other seeds";
}

static std::string ranks_run(int rank, int what, uint64_t seed, const ncclUniqueId &id)
{
    struct two_ranks r = {};
    r.rank = rank;
    if (!ranks_begin(&r, id))
        return ranks_end(&r, what == 3 && seed % 2 ? NULL : "they have not met");
    const char *wrong = what == 0   ? ranks_add_up(&r)
                        : what == 1 ? ranks_differ(&r)
                        : what == 2 ? ranks_one_is_late(&r)
                                    : ranks_one_is_killed(&r, seed);
    return ranks_end(&r, wrong);
}

static void ranks_reset(int what, uint64_t seed)
{
    struct emu_config config = {};
    config.seed = seed;
    config.patience_ms = what == 2 ? 200 : 0;
    emu_reset(&config);
}

// What both say.
static std::string ranks_of_two_processes(const char *program, int what, uint64_t seed)
{
    char said[1000] = "";
    int until[2];
    ncclUniqueId id;
    if (pipe(until) != 0)
        return "there is no pipe";
    ranks_reset(what, seed);
    ncclGetUniqueId(&id);
    std::string command = "exec '" + std::string(program) + "' rank " + std::to_string(what) + " " +
                          std::to_string(seed) + " '" + id.internal + "' 2>&1 <&" + std::to_string(until[0]) + " " +
                          std::to_string(until[1]) + ">&-";
    FILE *child = popen(command.c_str(), "r");
    std::string wrong = ranks_run(0, what, seed, id);
    close(until[0]);
    close(until[1]);
    if (emu_error())
        wrong += emu_error();
    while (child && fgets(said, sizeof said, child))
        wrong += said;
    if (child)
        pclose(child);
    return wrong;
}

static int ranks_other(char **argv)
{
    ncclUniqueId id = {};
    snprintf(id.internal, sizeof id.internal, "%s", argv[4]);
    ranks_reset(atoi(argv[2]), strtoull(argv[3], NULL, 10));
    std::string wrong = ranks_run(1, atoi(argv[2]), strtoull(argv[3], NULL, 10), id);
    printf("%s%s", wrong.c_str(), emu_error() ? emu_error() : "");
    return 0;
}

static const struct {
    const char *name, *says[2];  // nothing else
} ranks_tests[] = {
    {"ranks of two processes add up", {"", ""}},
    {"found: ranks of two processes call collectives in different order", {"expected the same call", "ncclBroadcast"}},
    {"found: a rank of another process never comes", {"waits for rank 1 of process", "expected it to call the same"}},
    {"the end of another rank's process", {"", ""}},
};
enum { RANKS_TESTS = sizeof ranks_tests / sizeof *ranks_tests };

static void test_ranks(const char *program, uint64_t seeds)
{
    emu_on_error(ignore, NULL);
    for (int what = 0; what < RANKS_TESTS; what++) {
        std::string wrong;
        for (uint64_t seed = 1; seed <= 2 + seeds / 50 && wrong.empty(); seed++) {
            std::string said = ranks_of_two_processes(program, what, seed);
            for (const char *part : ranks_tests[what].says)
                if (*part ? said.find(part) == said.npos : !said.empty())
                    wrong = with_seed(seed, said.empty() ? "nothing was found" : said);
        }
        result(wrong.empty(), ranks_tests[what].name, wrong);
    }
    emu_on_error(NULL, NULL);
}

// Without a handler an error ends the process: this program, started once more to meet one.
static void test_abort(const char *program)
{
    char said[200] = "nothing";
    FILE *child = popen(("exec '" + std::string(program) + "' abort 2>&1").c_str(), "r");
    while (child && fgets(said, sizeof said, child) && strncmp(said, "CUDA emulator: ", 15) != 0)
        ;
    int status = child ? pclose(child) : 0;
    result(strstr(said, "cudaFree (test_emulator.cc:") && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
           "an error without a handler ends the process", said);
}

static int meet_error()
{
    begin(1, 1);
    cudaFree(&point);
    return 0;
}

static int count_points()
{
    int count = 4 + RANKS_TESTS;
    for (const struct planned_fault *f = planned_faults; f->name; f++)
        count++;
    for (const struct right_example *e = right_examples; e->name; e++)
        count++;
    for (const struct planted_error *p = planted_errors; p->name; p++)
        count++;
    return count;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "abort") == 0)
        return meet_error();
    if (argc > 4 && strcmp(argv[1], "rank") == 0) {
        emu_on_error(ignore, NULL);
        return ranks_other(argv);
    }
    const char *wanted = getenv("CUDA_SEEDS");
    uint64_t seeds = wanted ? strtoull(wanted, NULL, 10) : 200;
    printf("1..%d\n", count_points());
    test_right(seeds);
    test_planted(seeds);
    test_faults(seeds);
    test_order("threads run in an order that is drawn", order_of_threads);
    test_order("streams run in an order that is drawn", order_of_streams);
    test_unwatched();
    test_ranks(argv[0], seeds);
    test_abort(argv[0]);
    begin(0, 1);  // nothing is left
    return bad;
}
