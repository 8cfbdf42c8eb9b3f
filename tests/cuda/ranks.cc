// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/ranks.h"
#include "tests/cuda/forever.h"
#include "tests/cuda/report.h"
#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <map>
#include <memory>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// ---- what is shared ------------------------------------------------------------------------------------------------

enum { KEPT = 2 };  // calls of a rank

struct shared_rank {
    std::atomic<int> process;  // 0: it has not joined
    std::atomic<bool> begun;   // a collective
    cudaUUID_t device;
    std::atomic<uint64_t> called, taken;
    std::atomic<int> file[KEPT];  // of its process: the data of calls; 0: none
    emu_rank_call call[KEPT];
    char last[160];
};

struct shared_ranks {
    std::atomic<int> ranks;  // 0: nobody has joined
    shared_rank rank[EMU_RANKS_MAX];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share them");

struct emu_ranks {
    int file;
    shared_ranks *shared;
    int own[EMU_RANKS_MAX][KEPT];     // files of this process's ranks,
    int others[EMU_RANKS_MAX][KEPT];  // of all, to read; 0: not open
};

static auto &opened = emu_forever<std::map<std::string, std::unique_ptr<emu_ranks>>>();
static uint64_t names;

static emu_ranks *ranks_map(const std::string &id, int file)
{
    void *memory = mmap(NULL, sizeof(shared_ranks), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        close(file);
        return NULL;
    }
    auto &made = opened[id];
    made.reset(new emu_ranks{});
    made->file = file;
    made->shared = (shared_ranks *)memory;
    return made.get();
}

static int ranks_file_of(int process, int file, int how)
{
    return open(emu_format("/proc/%d/fd/%d", process, file).c_str(), how | O_CLOEXEC);
}

bool emu_ranks_name(char *id, size_t size)
{
    int file = memfd_create("emulated NCCL", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, sizeof(shared_ranks)) != 0)
        return false;
    memset(id, 0, size);
    snprintf(id, size, "emulated %d %d %zu", (int)getpid(), file, (size_t)++names);
    return ranks_map(std::string(id, size), file) != NULL;
}

emu_ranks *emu_ranks_open(const std::string &id)
{
    int process, number, file;
    auto found = opened.find(id);
    if (found != opened.end())
        return found->second.get();
    if (sscanf(id.c_str(), "emulated %d %d", &process, &number) != 2 ||
        (file = ranks_file_of(process, number, O_RDWR)) < 0)
        return NULL;
    return ranks_map(id, file);
}

static void ranks_close(const emu_ranks &r)
{
    for (int rank = 0; rank < EMU_RANKS_MAX; rank++)
        for (int k = 0; k < KEPT; k++) {
            if (r.own[rank][k])
                close(r.own[rank][k]);
            if (r.others[rank][k])
                close(r.others[rank][k]);
        }
    munmap(r.shared, sizeof *r.shared);
    close(r.file);
}

void emu_ranks_reset()
{
    for (auto &r : opened)
        ranks_close(*r.second);
    opened.clear();
}

// ---- ranks ---------------------------------------------------------------------------------------------------------

bool emu_ranks_join(emu_ranks *r, int rank, int ranks, const cudaUUID_t &device)
{
    int none = 0, nobody = 0;
    if (!r->shared->ranks.compare_exchange_strong(none, ranks) && none != ranks)
        return false;
    shared_rank &own = r->shared->rank[rank];
    if (own.process == 0)
        own.device = device;
    return own.process.compare_exchange_strong(nobody, (int)getpid());
}

bool emu_ranks_share_device(const emu_ranks *r)
{
    const shared_rank *all = r->shared->rank;
    for (int a = 0; a < r->shared->ranks; a++)
        for (int b = 0; b < a; b++)
            if (all[a].process && all[b].process && !memcmp(&all[a].device, &all[b].device, sizeof all[a].device))
                return true;
    return false;
}

bool emu_ranks_complete(const emu_ranks *r)
{
    for (int rank = 0; rank < r->shared->ranks; rank++)
        if (r->shared->rank[rank].process == 0)
            return false;
    return r->shared->ranks > 0;
}

// One that has ended and that nobody has waited for has ended, too.
static bool process_is_gone(int process)
{
    FILE *f = fopen(emu_format("/proc/%d/stat", process).c_str(), "re");
    char state = 'X';
    if (!f)
        return true;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'X';
    fclose(f);
    return state == 'Z' || state == 'X';
}

bool emu_ranks_one_is_gone(const emu_ranks *r)
{
    for (int rank = 0; rank < r->shared->ranks; rank++) {
        int process = r->shared->rank[rank].process;
        if (process && process != (int)getpid() && process_is_gone(process))
            return true;
    }
    return false;
}

void emu_ranks_begin(emu_ranks *r, int rank)
{
    r->shared->rank[rank].begun = true;
}

bool emu_ranks_have_begun(const emu_ranks *r)
{
    const shared_rank *all = r->shared->rank;
    return std::all_of(all, all + r->shared->ranks, [](const shared_rank &rank) { return rank.begun.load(); });
}

void emu_ranks_note(emu_ranks *r, int rank, const std::string &what)
{
    snprintf(r->shared->rank[rank].last, sizeof r->shared->rank[rank].last, "%s", what.c_str());
}

std::string emu_ranks_text(const emu_ranks *r, int rank)
{
    const shared_rank &of = r->shared->rank[rank];
    return emu_format("rank %d of process %d, whose last call is %.*s", rank, (int)of.process, (int)sizeof of.last - 1,
                      of.last);
}

// ---- calls ---------------------------------------------------------------------------------------------------------

bool emu_ranks_call(emu_ranks *r, int rank, uint64_t number, const emu_rank_call &call, const void *data)
{
    shared_rank &own = r->shared->rank[rank];
    int &file = r->own[rank][number % KEPT];
    for (int other = 0; other < r->shared->ranks; other++)
        if (r->shared->rank[other].taken + KEPT < number)
            return false;
    if (!file && (file = memfd_create("emulated NCCL: data", MFD_CLOEXEC)) < 0)
        return false;
    for (size_t at = 0; at < call.bytes;) {
        ssize_t n = pwrite(file, (const char *)data + at, call.bytes - at, (off_t)at);
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    own.file[number % KEPT] = file;
    own.call[number % KEPT] = call;
    own.called = number;
    return true;
}

bool emu_ranks_has_called(const emu_ranks *r, int rank, uint64_t number)
{
    return r->shared->rank[rank].called >= number;
}

emu_rank_call emu_ranks_call_of(const emu_ranks *r, int rank, uint64_t number)
{
    return r->shared->rank[rank].call[number % KEPT];
}

bool emu_ranks_data(emu_ranks *r, int rank, uint64_t number, std::vector<char> *data)
{
    const shared_rank &of = r->shared->rank[rank];
    int &file = r->others[rank][number % KEPT];
    if (!file)
        file = std::max(0, ranks_file_of(of.process, of.file[number % KEPT], O_RDONLY));
    data->resize(of.call[number % KEPT].bytes);
    for (size_t at = 0; at < data->size();) {
        ssize_t n = file ? pread(file, data->data() + at, data->size() - at, (off_t)at) : 0;
        if (n <= 0)
            return false;
        at += (size_t)n;
    }
    return true;
}

void emu_ranks_take(emu_ranks *r, int rank, uint64_t number)
{
    r->shared->rank[rank].taken = number;
}
