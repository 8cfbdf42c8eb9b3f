// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/nccl.h"
#include "tests/cuda/forever.h"
#include "tests/cuda/graph.h"
#include "tests/cuda/include/nccl.h"
#include "tests/cuda/ranks.h"
#include "tests/cuda/touch.h"
#include <algorithm>
#include <chrono>
#include <map>
#include <stdio.h>
#include <thread>

// ---- state ---------------------------------------------------------------------------------------------------------

enum collective_kind { ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, ALL_GATHER };
static const char *const kind_names[] = {"ncclAllReduce", "ncclBroadcast", "ncclReduce", "ncclReduceScatter",
                                         "ncclAllGather"};

// One rank's call.
struct collective_call {
    collective_kind kind;
    const void *send;
    void *receive;
    size_t count;  // elements, as the call counts them
    ncclDataType_t type;
    ncclRedOp_t op;
    int root;
    ncclComm_t comm;
    emu_place at;
    bool grouped;
    std::thread::id thread;
};

// What the n-th calls of all ranks are together.
struct emu_collective {
    struct rank_call {
        bool came = false;
        collective_call call;
        std::weak_ptr<emu_operation> operation;  // until it has ended
    };
    std::vector<rank_call> ranks;
    size_t number;  // from 1
    size_t came = 0;
    bool moved = false;  // the data
    uint64_t since;      // emu_steps when the first one came
    // Of several processes: that of the n-th rank; whether all have come.
    std::vector<std::vector<char>> sent;
    bool complete = false;
    size_t ended = 0;        // of this process's ranks
    bool published = false;  // to the others, at this time
    std::chrono::steady_clock::time_point published_at;
};

struct collective_group {
    std::vector<ncclComm_t> ranks;  // of this process; NULL: it has not joined, or is another one's
    std::vector<std::shared_ptr<emu_collective>> collectives;
    emu_ranks *shared;
    bool abroad;  // all have joined, some of them elsewhere
    size_t over;  // so many collectives are, at this process's ranks
};

struct ncclComm {
    collective_group *group;
    int rank, device;
    size_t calls;                        // that were queued
    size_t asked;                        // that the program made
    std::shared_ptr<emu_thread> thread;  // who used it last
    emu_place last;                      // where
    std::string last_call;
    emu_place made;
    bool destroyed, aborted;
    bool broken;  // as its other ranks
    // Made by ncclCommInitRankConfig: that and the first collective wait on the host until all ranks have called them,
    // as NCCL's do. (Those of ncclCommInitRank do not, so that one thread can call them for all ranks.)
    bool meets;
    bool blocks;  // these calls return when they are done, not ncclInProgress
};

static auto &groups = emu_forever<std::map<std::string, std::unique_ptr<collective_group>>>();
static auto &comms = emu_forever<std::vector<std::unique_ptr<ncclComm>>>();
static uint64_t asked;     // calls of collectives
static uint64_t complete;  // collectives to which all ranks came
static thread_local int group_depth;

void emu_collectives_reset()
{
    groups.clear();
    comms.clear();
    emu_ranks_reset();
    asked = complete = 0;
}

// ---- arithmetic ----------------------------------------------------------------------------------------------------

static size_t type_size(ncclDataType_t type)
{
    switch (type) {
    case ncclInt8:
    case ncclUint8:
        return 1;
    case ncclFloat16:
    case ncclBfloat16:
        return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
        return 8;
    default:
        return 4;
    }
}

static float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint16_t bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value == value)
        bits += 0x7fff + (bits >> 16 & 1);
    return (uint16_t)(bits >> 16);
}

template <class T> static T reduce_two(T a, T b, ncclRedOp_t op)
{
    switch (op) {
    case ncclProd:
        return (T)(a * b);
    case ncclMax:
        return std::max(a, b);
    case ncclMin:
        return std::min(a, b);
    default:
        return (T)(a + b);
    }
}

typedef std::vector<const char *> rank_inputs;  // each rank's elements

template <class T> static void reduce_as(char *to, const rank_inputs &from, size_t count, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        T sum;
        memcpy(&sum, from[0] + i * sizeof sum, sizeof sum);
        for (size_t rank = 1; rank < from.size(); rank++) {
            T next;
            memcpy(&next, from[rank] + i * sizeof next, sizeof next);
            sum = reduce_two(sum, next, op);
        }
        if (op == ncclAvg)
            sum = (T)(sum / (T)from.size());
        memcpy(to + i * sizeof sum, &sum, sizeof sum);
    }
}

static void reduce_bf16(char *to, const rank_inputs &from, size_t count, ncclRedOp_t op)
{
    for (size_t i = 0; i < count; i++) {
        float sum = 0;
        for (size_t rank = 0; rank < from.size(); rank++) {
            uint16_t half;
            memcpy(&half, from[rank] + i * 2, 2);
            sum = rank ? reduce_two(sum, bf16_to_float(half), op) : bf16_to_float(half);
        }
        uint16_t half = bf16_from_float(op == ncclAvg ? sum / (float)from.size() : sum);
        memcpy(to + i * 2, &half, 2);
    }
}

static void reduce(char *to, const rank_inputs &from, size_t count, ncclDataType_t type, ncclRedOp_t op)
{
    switch (type) {
    case ncclInt8:
        return reduce_as<int8_t>(to, from, count, op);
    case ncclUint8:
        return reduce_as<uint8_t>(to, from, count, op);
    case ncclInt32:
        return reduce_as<int32_t>(to, from, count, op);
    case ncclUint32:
        return reduce_as<uint32_t>(to, from, count, op);
    case ncclInt64:
        return reduce_as<int64_t>(to, from, count, op);
    case ncclUint64:
        return reduce_as<uint64_t>(to, from, count, op);
    case ncclFloat64:
        return reduce_as<double>(to, from, count, op);
    case ncclBfloat16:
        return reduce_bf16(to, from, count, op);
    default:
        return reduce_as<float>(to, from, count, op);
    }
}

// ---- data ----------------------------------------------------------------------------------------------------------

static size_t call_send_size(const collective_call &call)
{
    size_t ranks = call.kind == REDUCE_SCATTER ? call.comm->group->ranks.size() : 1;
    bool sends = call.kind != BROADCAST || call.comm->rank == call.root;
    return sends ? ranks * call.count * type_size(call.type) : 0;
}

static size_t call_receive_size(const collective_call &call)
{
    size_t ranks = call.kind == ALL_GATHER ? call.comm->group->ranks.size() : 1;
    bool receives = call.kind != REDUCE || call.comm->rank == call.root;
    return receives ? ranks * call.count * type_size(call.type) : 0;
}

static bool collective_touch(const emu_collective &c)
{
    for (auto &rank : c.ranks) {
        uint32_t task = rank.operation.lock()->task;
        if (!emu_touch_range(rank.call.send, call_send_size(rank.call), EMU_READ, task) ||
            !emu_touch_range(rank.call.receive, call_receive_size(rank.call), EMU_WRITE, task))
            return false;
    }
    return true;
}

// What one rank receives.
static void collective_result(const emu_collective &c, const rank_inputs &from, size_t rank, char *to)
{
    const collective_call &call = c.ranks[rank].call;
    size_t size = call.count * type_size(call.type);
    rank_inputs part = from;
    switch (call.kind) {
    case REDUCE_SCATTER:
        for (const char *&input : part)
            input += rank * size;
        reduce(to, part, call.count, call.type, call.op);
        break;
    case BROADCAST:
        memcpy(to, from[(size_t)call.root], size);
        break;
    case ALL_GATHER:
        for (size_t i = 0; i < from.size(); i++)
            memcpy(to + i * size, from[i], size);
        break;
    case ALL_REDUCE:
    case REDUCE:
        reduce(to, from, call.count, call.type, call.op);
        break;
    }
}

static void collective_move(emu_collective *c)
{
    c->moved = true;
    emu_count()->collectives++;
    if (!collective_touch(*c))
        return;
    std::vector<std::vector<char>> sent;
    rank_inputs from;
    for (auto &rank : c->ranks) {
        const char *data = (const char *)emu_memory_alias(rank.call.send);
        sent.emplace_back(data, data + call_send_size(rank.call));
    }
    for (auto &data : sent)
        from.push_back(data.data());
    for (size_t i = 0; i < c->ranks.size(); i++)
        if (call_receive_size(c->ranks[i].call))
            collective_result(*c, from, i, (char *)emu_memory_alias(c->ranks[i].call.receive));
}

// ---- ranks of other processes --------------------------------------------------------------------------------------

static bool group_is_here(const collective_group &group)
{
    return std::all_of(group.ranks.begin(), group.ranks.end(), [](ncclComm_t comm) { return comm; });
}

static bool group_is_abroad(collective_group *group)
{
    group->abroad = group->abroad || (!group_is_here(*group) && emu_ranks_complete(group->shared));
    return group->abroad;
}

static std::string abroad_text(const emu_rank_call &call, int rank)
{
    return emu_format("%s of %zu elements of %zu bytes (%s, rank %d)", kind_names[call.kind], (size_t)call.count,
                      type_size((ncclDataType_t)call.type), call.at, rank);
}

static bool abroad_same(const emu_rank_call &a, const emu_rank_call &b)
{
    return a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count;
}

// Tells the others this rank's call, with its data.
static bool abroad_call(emu_collective &c, const collective_call &call, uint32_t task)
{
    emu_rank_call own = {call.kind, call.type, call.op, call.root, call.count, call_send_size(call), ""};
    snprintf(own.at, sizeof own.at, "%s", emu_place_text(call.at).c_str());
    emu_ranks *shared = call.comm->group->shared;
    if (emu_ranks_has_called(shared, call.comm->rank, c.number))
        return true;
    if (!emu_touch_range(call.send, own.bytes, EMU_READ, task) ||
        !emu_ranks_call(shared, call.comm->rank, c.number, own, emu_memory_alias(call.send)))
        return false;
    c.published = true;
    c.published_at = std::chrono::steady_clock::now();
    return true;
}

// Every rank has called: the same?
static bool abroad_alike(const emu_collective &c, const collective_call &own)
{
    const collective_group *group = own.comm->group;
    const emu_rank_call mine = emu_ranks_call_of(group->shared, own.comm->rank, c.number);
    for (int rank = 0; rank < (int)group->ranks.size(); rank++) {
        const emu_rank_call other = emu_ranks_call_of(group->shared, rank, c.number);
        if (abroad_same(mine, other))
            continue;
        emu_fail(abroad_text(mine, own.comm->rank) + " meets " + abroad_text(other, rank) +
                 emu_format(" as call %zu of the communicator: expected the same call, size, type, operation and root "
                            "on every rank",
                            c.number));
        return false;
    }
    return true;
}

static bool abroad_fetch(emu_collective *c, const collective_call &call)
{
    const collective_group *group = call.comm->group;
    c->sent.resize(group->ranks.size());
    for (int rank = 0; rank < (int)group->ranks.size(); rank++)
        if (!emu_ranks_data(group->shared, rank, c->number, &c->sent[(size_t)rank]))
            return false;
    return true;
}

static void collective_break(collective_group *group);

// Have all ranks called, so that this one's operation may end?
static bool abroad_ready(const emu_operation &operation, ncclComm_t comm)
{
    emu_collective *c = operation.collective.get();
    const collective_call &call = c->ranks[(size_t)comm->rank].call;
    if (comm->broken || !abroad_call(*c, call, operation.task))
        return false;
    for (int rank = 0; rank < (int)comm->group->ranks.size(); rank++)
        if (!emu_ranks_has_called(comm->group->shared, rank, c->number))
            return false;
    if (!c->complete) {
        if (!abroad_alike(*c, call) || !abroad_fetch(c, call))
            return false;
        c->complete = true;
        collective_break(comm->group);
    }
    return !comm->broken;
}

static void abroad_move(const emu_operation &operation, ncclComm_t comm)
{
    emu_collective *c = operation.collective.get();
    const collective_call &call = c->ranks[(size_t)comm->rank].call;
    rank_inputs from;
    for (auto &data : c->sent)
        from.push_back(data.data());
    emu_count()->collectives++;
    if (!emu_touch_range(call.receive, call_receive_size(call), EMU_WRITE, operation.task))
        return;
    if (call_receive_size(call))
        collective_result(*c, from, (size_t)comm->rank, (char *)emu_memory_alias(call.receive));
    emu_ranks_take(comm->group->shared, comm->rank, c->number);
    collective_group *group = comm->group;
    if (++c->ended == (size_t)std::count_if(group->ranks.begin(), group->ranks.end(), [](ncclComm_t r) { return r; })) {
        c->sent.clear();
        group->over = std::max(group->over, c->number);
    }
}

// ---- meeting -------------------------------------------------------------------------------------------------------

static std::string call_text(const collective_call &call)
{
    return emu_format("%s of %zu elements of %zu bytes (%s, rank %d of %zu)", kind_names[call.kind], call.count,
                      type_size(call.type), emu_place_text(call.at).c_str(), call.comm->rank,
                      call.comm->group->ranks.size());
}

static bool call_same(const collective_call &a, const collective_call &b)
{
    return a.kind == b.kind && a.count == b.count && a.type == b.type && a.op == b.op && a.root == b.root;
}

// Every rank calls the same; a thread that drives several ranks does so in a group.
static void collective_compare(const emu_collective &c, const collective_call &call)
{
    for (auto &other : c.ranks) {
        if (!other.came)
            continue;
        if (!call_same(other.call, call)) {
            emu_fail(call_text(call) + " meets " + call_text(other.call) +
                     emu_format(" as call %zu of the communicator: expected the same call, size, type, operation and "
                                "root on every rank",
                                c.number));
            return;
        }
        if (!call.grouped && !other.call.grouped && call.thread == other.call.thread) {
            emu_fail(call_text(call) + " and " + call_text(other.call) +
                     " are called by one thread, and the first would wait for the second: expected both between "
                     "ncclGroupStart and ncclGroupEnd");
            return;
        }
    }
}

// Does the fault that was asked for break this one, to which all ranks have come?
static void collective_break(collective_group *group)
{
    if (++complete != emu_config_now().break_collective)
        return;
    for (ncclComm_t comm : group->ranks)
        if (comm)
            comm->broken = true;
}

static void collective_queue(const collective_call &call, const emu_operation_ref &operation)
{
    collective_group *group = call.comm->group;
    size_t i = call.comm->calls++;
    if (group->collectives.size() <= i) {
        auto made = std::make_shared<emu_collective>();
        made->ranks.resize(group->ranks.size());
        made->number = i + 1;
        made->since = emu_steps();
        group->collectives.push_back(made);
    }
    std::shared_ptr<emu_collective> c = group->collectives[i];
    collective_compare(*c, call);
    c->ranks[(size_t)call.comm->rank] = {true, call, operation};
    c->came++;
    operation->collective = c;
    if (c->came == c->ranks.size())
        collective_break(group);
    emu_changed();
}

static bool operation_at_head(const emu_operation_ref &operation)
{
    if (!operation || operation->stream->queue.empty() || operation->stream->queue.front() != operation)
        return false;
    return std::all_of(operation->waits.begin(), operation->waits.end(),
                       [](const emu_operation_ref &before) { return before->done; });
}

static bool collective_ready(const emu_operation &operation, ncclComm_t comm)
{
    const emu_collective &c = *operation.collective;
    if (c.moved || comm->aborted)
        return true;
    if (group_is_abroad(comm->group))
        return abroad_ready(operation, comm);
    return c.came == c.ranks.size() && !comm->broken &&
           std::all_of(c.ranks.begin(), c.ranks.end(),
                       [](const emu_collective::rank_call &rank) { return operation_at_head(rank.operation.lock()); });
}

static void collective_run(const emu_operation &operation, ncclComm_t comm)
{
    if (operation.collective->moved || comm->aborted)
        return;
    if (comm->group->abroad)
        abroad_move(operation, comm);
    else
        collective_move(operation.collective.get());
}

static bool comm_has_met(ncclComm_t comm)
{
    if (!comm->meets)
        return true;
    const bool joined = group_is_here(*comm->group) || group_is_abroad(comm->group);
    return joined && (comm->asked == 0 || emu_ranks_have_begun(comm->group->shared));
}

// Of one that ncclCommInitRankConfig has made. Two ranks on one GPU are refused when all have joined.
static ncclResult_t comm_state(ncclComm_t comm)
{
    if (emu_failed())
        return ncclInternalError;
    if (comm->broken)
        return ncclRemoteError;
    if (!comm_has_met(comm))
        return ncclInProgress;
    return comm->meets && emu_ranks_share_device(comm->group->shared) ? ncclInvalidUsage : ncclSuccess;
}

static ncclResult_t comm_meet(ncclComm_t comm, emu_place at, const char *call)
{
    emu_changed();
    while (comm->blocks && !comm_has_met(comm) && !emu_failed())
        if (!emu_entry_wait())
            emu_fail(
                emu_format("%s (%s) of rank %d waits on the host for the other ranks, for a minute: expected all to "
                           "call it, or a communicator that does not block",
                           call, emu_place_text(at).c_str(), comm->rank));
    return comm->meets ? comm_state(comm) : ncclSuccess;
}

// Does the fault that was asked for keep this rank away?
static bool comm_is_absent(ncclComm_t comm)
{
    const struct emu_config &config = emu_config_now();
    return config.absent_rank == comm->rank + 1 && comm->asked >= config.absent_from;
}

static ncclResult_t collective_add(collective_call call, cudaStream_t stream)
{
    emu_entry entry;
    ncclComm_t comm = call.comm;
    const char *name = kind_names[call.kind];
    emu_stream *s = emu_stream_use(stream, call.at, name);
    if (!s || emu_failed())
        return ncclUnhandledCudaError;
    if (comm->destroyed) {
        emu_fail(
            emu_format("%s (%s) uses the communicator of rank %d (%s), which was destroyed: expected one that is not",
                       name, emu_place_text(call.at).c_str(), comm->rank, emu_place_text(comm->made).c_str()));
        return ncclInvalidUsage;
    }
    if (s->device != comm->device) {
        emu_fail(emu_format(
            "%s (%s) of rank %d, whose communicator is of device %d (%s), is queued on stream %d of device %d "
            "(%s): expected a stream of the communicator's device",
            name, emu_place_text(call.at).c_str(), comm->rank, comm->device, emu_place_text(comm->made).c_str(),
            s->number, s->device, emu_place_text(s->made).c_str()));
        return ncclInvalidUsage;
    }
    comm->asked++;
    if (++asked == emu_config_now().fail_collective)
        return ncclSystemError;
    comm->thread = emu_thread_me();
    comm->last = call.at;
    comm->last_call = name;
    emu_ranks_note(comm->group->shared, comm->rank, emu_format("%s (%s)", name, emu_place_text(call.at).c_str()));
    emu_ranks_begin(comm->group->shared, comm->rank);
    if (comm_is_absent(comm))
        return comm_meet(comm, call.at, name);
    call.grouped = group_depth > 0;
    call.thread = std::this_thread::get_id();
    emu_work work = {name, call.at, nullptr};
    work.move = [comm](const emu_operation &operation) { collective_run(operation, comm); };
    work.queued = [call](const emu_operation_ref &operation) { collective_queue(call, operation); };
    work.ready = [comm](const emu_operation &operation) { return collective_ready(operation, comm); };
    // In a group, or with a communicator per thread, the device that is set need not be the communicator's.
    if (emu_stream_add_any(s, std::move(work)) != cudaSuccess)
        return ncclUnhandledCudaError;
    return comm_meet(comm, call.at, name);
}

// ---- a rank that does not come -------------------------------------------------------------------------------------

static std::string collective_missing_text(const emu_collective &c, const collective_group &group, size_t missing)
{
    std::string text;
    for (auto &rank : c.ranks)
        if (rank.came && text.empty())
            text = call_text(rank.call);
    ncclComm_t comm = group.ranks[missing];
    text += emu_format(", call %zu of the communicator, waits for rank %zu, ", c.number, missing);
    if (!comm)
        return text + "which has no communicator: expected ncclCommInitRank there";
    return text + emu_format("whose last call is %s (%s): expected it to call the same", comm->last_call.c_str(),
                             emu_place_text(comm->last).c_str());
}

// Does a rank still wait in it?
static bool collective_waits(const emu_collective &c)
{
    return c.came < c.ranks.size() &&
           std::any_of(c.ranks.begin(), c.ranks.end(), [](const emu_collective::rank_call &rank) {
               return rank.came && !rank.call.comm->aborted && !rank.operation.expired();
           });
}

// Calls found(collective, group, rank) for every rank that a collective waits for, until it says true.
template <class F> static bool collectives_find_missing(F found)
{
    for (auto &group : groups)
        for (auto &c : group.second->collectives)
            for (size_t i = 0; !group.second->abroad && collective_waits(*c) && i < c->ranks.size(); i++)
                if (!c->ranks[i].came && found(*c, *group.second, i))
                    return true;
    return false;
}

// While nothing can run: has it ended, or does it wait for what cannot run either?
static bool comm_thread_is_lost(const emu_thread &thread)
{
    return thread.gone || (thread.waits_for && !thread.waits_for->done);
}

bool emu_collectives_stuck(std::string *sentence)
{
    auto never = [sentence](const emu_collective &c, const collective_group &group, size_t rank) {
        ncclComm_t comm = group.ranks[rank];
        *sentence = collective_missing_text(c, group, rank);
        return comm && (comm->destroyed || comm->aborted || comm_thread_is_lost(*comm->thread));
    };
    if (collectives_find_missing(never))
        return true;
    if (sentence->empty())
        *sentence = "collectives on several streams wait for each other: expected the same order of them on every rank";
    return false;
}

bool emu_collectives_await(int device, std::string *sentence)
{
    return collectives_find_missing([=](const emu_collective &c, const collective_group &group, size_t rank) {
        ncclComm_t comm = group.ranks[rank];
        *sentence = collective_missing_text(c, group, rank);
        return comm && comm->device == device && !comm->destroyed && !comm->aborted && !comm->broken;
    });
}

// Those of several processes wait for as long as time passes, not operations: a call, and for which rank.
static bool collective_is_late_abroad(const collective_group &group, const emu_collective &c, std::string *sentence)
{
    const auto waited = std::chrono::steady_clock::now() - c.published_at;
    if (!c.published || waited <= std::chrono::milliseconds(emu_config_now().patience_ms))
        return false;
    for (auto &own : c.ranks)
        if (own.came && sentence->empty())
            *sentence = call_text(own.call) + emu_format(", call %zu of the communicator, waits for ", c.number);
    for (int rank = 0; rank < (int)group.ranks.size(); rank++) {
        if (group.ranks[(size_t)rank] || emu_ranks_has_called(group.shared, rank, c.number))
            continue;
        *sentence += emu_ranks_text(group.shared, rank) + ": expected it to call the same";
        return true;
    }
    *sentence += "data of a rank whose process has ended, or is slow";
    return true;
}

static bool collective_waits_abroad(const emu_collective &c)
{
    return std::any_of(c.ranks.begin(), c.ranks.end(), [](const emu_collective::rank_call &rank) {
        return rank.came && rank.call.comm->group->abroad && !rank.call.comm->aborted && !rank.operation.expired();
    });
}

template <class F> static bool collectives_find_abroad(F found)
{
    for (auto &group : groups)
        for (size_t i = group.second->over; group.second->abroad && i < group.second->collectives.size(); i++) {
            const emu_collective &c = *group.second->collectives[i];
            if (collective_waits_abroad(c) && found(c, *group.second))
                return true;
        }
    return false;
}

bool emu_collectives_abroad()
{
    return collectives_find_abroad([](const emu_collective &, const collective_group &) { return true; });
}

static bool collectives_are_late_abroad(std::string *sentence)
{
    return collectives_find_abroad([sentence](const emu_collective &c, const collective_group &group) {
        return collective_is_late_abroad(group, c, sentence);
    });
}

bool emu_collectives_late(std::string *sentence)
{
    if (emu_config_now().patience != UINT64_MAX && collectives_are_late_abroad(sentence))
        return true;
    return collectives_find_missing([sentence](const emu_collective &c, const collective_group &group, size_t rank) {
        if (emu_steps() - c.since <= emu_config_now().patience)
            return false;
        *sentence = collective_missing_text(c, group, rank) +
                    emu_format(", and has not while %zu operations ended", (size_t)(emu_steps() - c.since));
        return true;
    });
}

// ---- communicators -------------------------------------------------------------------------------------------------

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",         "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
    return texts[result];
}

const char *ncclGetLastError(ncclComm_t)
{
    const char *error = emu_config_now().join_says;
    return error ? error : "";
}

ncclResult_t ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    emu_entry entry;
    return emu_ranks_name(id->internal, sizeof id->internal) ? ncclSuccess : ncclSystemError;
}

// NULL: no process has made it.
static collective_group *group_find(const ncclUniqueId &id, int ranks)
{
    const std::string name(id.internal, sizeof id.internal);
    emu_ranks *shared = emu_ranks_open(name);
    if (!shared)
        return NULL;
    auto &group = groups[name];
    if (!group) {
        group.reset(new collective_group{});
        group->ranks.resize((size_t)ranks);
        group->shared = shared;
    }
    return group.get();
}

ncclResult_t emu_ncclCommInitRank(emu_place at, ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    emu_entry entry;
    if (ranks < 1 || rank < 0 || rank >= ranks || ranks > EMU_RANKS_MAX)
        return ncclInvalidArgument;
    collective_group *group = group_find(id, ranks);
    if (!group)
        return ncclSystemError;
    if (group->ranks.size() != (size_t)ranks || group->ranks[(size_t)rank]) {
        ncclComm_t other = *std::find_if(group->ranks.begin(), group->ranks.end(), [](ncclComm_t c) { return c; });
        other = group->ranks.size() == (size_t)ranks ? group->ranks[(size_t)rank] : other;
        emu_fail(emu_format(
            "ncclCommInitRank (%s) joins as rank %d of %d, and rank %d of %zu did (%s): expected each rank once, "
            "and one number of ranks",
            emu_place_text(at).c_str(), rank, ranks, other->rank, group->ranks.size(),
            emu_place_text(other->made).c_str()));
        return ncclInvalidUsage;
    }
    cudaUUID_t device;
    emu_device_uuid(emu_device_now(), &device);
    if (!emu_ranks_join(group->shared, rank, ranks, device)) {
        emu_fail(emu_format("ncclCommInitRank (%s) joins as rank %d of %d, and so did %s: expected each rank once, and "
                            "one number of ranks",
                            emu_place_text(at).c_str(), rank, ranks, emu_ranks_text(group->shared, rank).c_str()));
        return ncclInvalidUsage;
    }
    emu_ranks_note(group->shared, rank, emu_format("ncclCommInitRank (%s)", emu_place_text(at).c_str()));
    comms.emplace_back(new ncclComm{group, rank, emu_device_now(), 0, 0, emu_thread_me(), at, "ncclCommInitRank", at,
                                    false, false, false, false, true});
    *comm = group->ranks[(size_t)rank] = comms.back().get();
    emu_changed();
    return ncclSuccess;
}

ncclResult_t emu_ncclCommInitRankConfig(emu_place at, ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                        ncclConfig_t *config)
{
    emu_entry entry;
    if (emu_config_now().fail_join == rank + 1)
        return ncclSystemError;
    ncclResult_t result = emu_ncclCommInitRank(at, comm, ranks, id, rank);
    if (result != ncclSuccess)
        return result;
    (*comm)->meets = true;
    (*comm)->blocks = config->blocking;
    return comm_meet(*comm, at, "ncclCommInitRankConfig");
}

ncclResult_t emu_ncclCommInitAll(emu_place at, ncclComm_t *made, int ranks, const int *devices)
{
    emu_entry entry;
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    int before = emu_device_now();
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < ranks && result == ncclSuccess; i++) {
        if (emu_cudaSetDevice(at, devices ? devices[i] : i) != cudaSuccess)
            result = ncclInvalidArgument;
        else
            result = emu_ncclCommInitRank(at, &made[i], ranks, id, i);
    }
    emu_cudaSetDevice(at, before);
    return result;
}

ncclResult_t emu_ncclCommDestroy(emu_place at, ncclComm_t comm)
{
    emu_entry entry;
    comm->destroyed = true;
    comm->last = at;
    comm->last_call = "ncclCommDestroy";
    emu_ranks_note(comm->group->shared, comm->rank, emu_format("ncclCommDestroy (%s)", emu_place_text(at).c_str()));
    emu_changed();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    emu_entry entry;
    comm->destroyed = comm->aborted = true;
    emu_ranks_note(comm->group->shared, comm->rank, "ncclCommAbort");
    emu_changed();
    return ncclSuccess;
}

// The end of another rank's process is seen, or it is not and its collectives wait: as by NCCL it depends, here on the
// seed.
static bool comm_sees_end(ncclComm_t comm)
{
    return emu_config_now().seed % 2 && emu_ranks_one_is_gone(comm->group->shared);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    emu_entry entry;
    comm->broken = comm->broken || comm_sees_end(comm);
    *error = comm_state(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *ranks)
{
    *ranks = (int)comm->group->ranks.size();
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group_depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    group_depth--;
    return ncclSuccess;
}

// ---- collectives ---------------------------------------------------------------------------------------------------

ncclResult_t emu_ncclAllReduce(emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective_add({ALL_REDUCE, send, receive, count, type, op, 0, comm, at, false, {}}, stream);
}

ncclResult_t emu_ncclBroadcast(emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective_add({BROADCAST, send, receive, count, type, ncclSum, root, comm, at, false, {}}, stream);
}

ncclResult_t emu_ncclReduce(emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective_add({REDUCE, send, receive, count, type, op, root, comm, at, false, {}}, stream);
}

ncclResult_t emu_ncclReduceScatter(emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective_add({REDUCE_SCATTER, send, receive, count, type, op, 0, comm, at, false, {}}, stream);
}

ncclResult_t emu_ncclAllGather(emu_place at, const void *send, void *receive, size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream)
{
    return collective_add({ALL_GATHER, send, receive, count, type, ncclSum, 0, comm, at, false, {}}, stream);
}
