// SPDX-License-Identifier: Apache-2.0
// An operation on tensors: validated, cut into requests per task, and put together again.
//
// Memory. A push sends the caller's own bytes: each slice that is under way holds a reference on the operation's
// `memory`, and so does every thread that copies a reply into it. The operation ends when its outcome is known and
// the last of these references is gone; only then may the caller touch the tensors again. Strings are the exception:
// they travel encoded, in memory of the operation's own, and come to the caller when all of a read has succeeded.
//
// Functions are called with the client's lock held, except psc__op_read_reply and those that say so.
//
// A steady stream of operations allocates nothing here: an operation that has ended is kept, with its arrays, for the
// next one, and so are requests.
#ifndef PSC_OP_H
#define PSC_OP_H

#include <limits.h>
#include <stdatomic.h>

#include "common/wire/codec.h"
#include "common/wire/slice.h"
#include "libclient/base.h"
#include "libclient/layout.h"
#include "libclient/queue.h"

enum {
    PSC__READS_FLYING = 16,   // requests of one pull at one task: more would pin more at psd than the
                              // wire can take
    PSC__EXTENTS_MAX = 4096,  // ranges in one request, but for a get and what an update has of one block
    PSC__EXTENT_BYTES = 80,   // of a range's header, at most
    PSC__GET_EXTENTS_MAX = PS_HEADER_MAX / 2 / PSC__EXTENT_BYTES,
    PSC__REPLY_MARGIN = 256 << 10,  // of a reply's PS_CHUNK_MAX, for what is not payload
};

#define PSC__NO_EXTENT UINT32_MAX

// A range of one partition, and where its bytes are.
struct psc__extent {
    uint32_t partition;  // index into the layout's
    uint32_t next;       // in the request's chain
    uint32_t tensor;     // of the operation
    uint32_t slot;       // as the tensor's
    bool is_strings;
    bool touched;  // reads: some of it has come
    uint64_t first, count;
    uint64_t version;  // updates: the least that the last pull of its blocks met
    uint64_t changes;  // psc_get_newer: those found
    uint32_t partial;  // push to a round: blocks that came before the last of their gradient,
    bool stale;        // which is not counted
    bool encoded;      // as the operation's encoding says
    uint64_t bytes;    // of payload; an estimate where strings are read
    uint8_t *data;     // updates: what is sent; of strings the operation's own, as of what is encoded:
    uint8_t *scales;   // with the encoding's scales, which are sent before it; NULL: it has none
    size_t scale_bytes;
    uint8_t *into;        // where values go
    psc_string *strings;  // updates: the caller's, to be encoded; reads: those that came, the operation's own
};

// A place in a request's concatenated ranges.
struct psc__place {
    uint32_t extent;  // in the operation's extents
    uint64_t at;      // elements into it
};

struct psc__op_request {
    struct psc__request is;                         // first
    TAILQ_ENTRY(psc__op_request) link;              // in its operation's, or in the client's of those that are free
    struct psc_op *op;                              // NULL: it has given this request up
    uint32_t per_task;                              // index into the operation's
    uint32_t first_extent, last_extent, n_extents;  // a chain in the operation's extents
    struct psc__place place;                        // reads that go on: what comes next
    uint64_t offset, snapshot;                      // likewise
    bool restarted;                                 // reads: what they went on with was lost
    uint64_t version, round, last_round;            // reads: found so far, for the operation's result
};

// What an operation has to do with one of the tasks that it touches.
struct psc__per_task {
    uint32_t task;
    uint32_t admitted;             // reads: so many requests at a time,
    struct psc__requests held;     // and those that wait for it
    struct psc__op_request *open;  // while it is cut: the one that still has room
    uint64_t bytes;                // updates: payload in all
    uint32_t staged;               // atomic: blocks
    bool committed;                // atomic: they have taken effect, now or
    bool repeated;                 // before a retry
};

struct psc_seen {
    uint8_t client[sizeof((struct psc_client *)0)->id];  // whose it is
    uint64_t *changes;  // per partition: as its values were last got; UINT64_MAX: never
    bool busy;          // guarded by the client's lock, as are they
};

// What is asked for.
struct psc__op_spec {
    int method;
    const char *name;  // for errors: "put state" is a PUT
    const psc_tensor *tensors;
    const psc_tensor *into;  // psc_push_pull
    size_t n;
    psc_seen *seen;            // psc_get_newer
    const psc_shards *shards;  // psc_write_shards
    uint64_t round, examples;
    uint32_t priority;
    bool atomic, refuse_nonfinite, averages;
    uint64_t steps;      // psc_put_state
    psc_dtype encoding;  // psc_push, psc_push_pull; 0: none. Else:
    float *const *residual;
    psc_callback callback;
    void *arg;
    psc_op **handle;
};

// Operations of one client, and what those who wait for them sleep on. It outlives the client while a handle does.
struct psc__ops {
    // Guarded by the client's lock.
    TAILQ_HEAD(, psc_op) open;  // whose outcome is not known, or that wait for a timer to be told
    TAILQ_HEAD(psc__op_requests, psc__op_request) free_requests;
    uint32_t n_free_requests;
    struct psc__ender ender;
    // The longest that an operation has waited for a round, of those of `round`, the last that some has waited for, and
    // of the one before it; ns.
    uint64_t round, round_ns, round_before_ns;
    // Guarded by this lock, which is the last to be taken.
    pthread_mutex_t lock;
    pthread_cond_t ended;       // some operation has, and somebody waits
    TAILQ_HEAD(, psc_op) idle;  // ended, to be used again
    uint32_t n_idle;
    uint32_t waiting;     // threads
    uint64_t users;       // operations that are not idle, and the client
    uint64_t unreported;  // operations whose end has not been reported
    uint64_t reported;    // so far
};

struct psc_op {
    struct psc__later later;
    struct psc__ticket ticket;
    struct ps_owner memory;
    TAILQ_ENTRY(psc_op) link;  // among those that are open, or idle
    psc_client *client;
    struct psc__ops *ops;
    struct psc__layout *layout;
    int method;
    const char *name;
    uint64_t round, examples;
    uint32_t priority;
    bool atomic, refuse_nonfinite, averages;
    uint64_t steps;
    psc_seen *seen;
    const psc_shards *shards;
    psc_dtype encoding;
    uint8_t **encoded;  // [n_tensors] scales and numbers; NULL: it travels as it is. NULL: all do
    uint32_t n_tensors;
    uint64_t started, deadline;  // deadline UINT64_MAX: waits for a round, as long as the job is healthy
    struct psc__extent *extents;
    uint32_t n_extents;
    size_t cap_extents;
    struct psc__per_task *per_task;  // of the tasks that it touches
    uint32_t n_per_task;
    size_t cap_per_task;
    struct psc__op_requests requests;  // all that are not done
    uint32_t left;                     // requests that are not done
    bool refused;                      // ended before it began, or cancelled: a timer will tell
    bool over;                         // the outcome is known
    bool versioned, rounded;           // found.version and found.round are of some request
    struct psc__found {                // psc_result's numbers
        uint64_t version, staleness, round;
        uint32_t applied, queued, stale, duplicates;
        uint64_t open_round, last_round, nonfinite;
        uint32_t unchanged;
    } found;
    enum ps_code code;
    struct ps_error *why;  // NULL: code is OK, or there was no memory for the sentence
    psc_callback callback;
    void *arg;
    atomic_uint holders;  // the machinery, and the caller where it asked for the handle
    // Who is first: the transport drops its last reference, or the client, which is closed, waits for that no longer.
    _Atomic enum psc__memory { PSC__MEMORY_HELD, PSC__MEMORY_RELEASED, PSC__MEMORY_LEFT } memory_is;
    atomic_bool done;  // its end has been told
};

// Is a push of it to a round? Who follows the job's mode names one; else the job says so.
static inline bool psc__op_in_rounds(const struct psc_op *op)
{
    return op->client->follows_mode ? op->round != 0 : op->client->update == PSC_SYNC;
}

enum { PSC__ANSWER_FEW = 8 };

// One reply, decoded: an UpdateReply, a ReadReply or both at once. Names point into the reply, or into `copy`.
struct psc__answer {
    uint8_t *copy;  // of the header, where it does not lie in one slice
    uint64_t generation;
    struct ps_tensor_result *results, few_results[PSC__ANSWER_FEW];
    size_t n_results;
    struct ps_tensor_head *tensors, few_tensors[PSC__ANSWER_FEW];
    size_t n_tensors;
    uint64_t next_offset, snapshot, round, last_round, version;
    struct psc__place place;  // where the values go on
};

// In ms. At most what an int has room for: below 0 a call has no limit.
static inline uint64_t psc__shards_timeout(const psc_shards *shards)
{
    const uint64_t ms = shards->timeout_ms ? shards->timeout_ms : PSC__SHARDS_MS;
    return ms < INT_MAX ? ms : INT_MAX;
}

// ---- op_cut.c -----------------------------------------------------------------------------------------------------

// Validates the tensors and cuts them: requests, left, extents and per_task are filled. e->code is PS_OK before. On
// failure some requests may have been made; none is anywhere but in op->requests.
enum ps_code psc__op_cut(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e);
void psc__cutting_free(struct psc_client *c);

// ---- op_string.c: strings in a payload are the lengths of all, then their bytes -----------------------------------

// Encodes what the update's extents of strings send; on failure the caller drops the operation.
enum ps_code psc__op_encode(struct psc_op *op, struct ps_error *e);
// Takes apart n strings that came: the lengths at `lengths`, the bytes at *bytes, which is moved past them; INTERNAL
// where they end beyond `end`. Those that were in `to` are freed.
enum ps_code psc__strings_take(psc_string *to, uint64_t n, const uint8_t *lengths, const uint8_t **bytes,
                               const uint8_t *end, struct ps_error *e);
void psc__op_hand_over(struct psc_op *op);  // the strings read, to the caller
void psc__op_free_strings(struct psc_op *op);

// ---- op_encode.c: gradients in fewer bytes ------------------------------------------------------------------------

// Are encoding and residuals what psc_push takes?
enum ps_code psc__op_check_encoding(const struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e);
// Encodes what spec says of the tensors that have been cut, as the extents are to be sent; on failure the caller drops
// the operation.
enum ps_code psc__op_encode_gradients(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e);
void psc__op_free_encoded(struct psc_op *op);

// ---- op_wire.c ----------------------------------------------------------------------------------------------------

static inline const struct psc__variable *psc__op_variable(const struct psc_op *op, const struct psc__extent *extent)
{
    return &op->layout->variables[op->layout->partitions[extent->partition].variable];
}

// Where there is no memory for it *to is broken.
void psc__op_pack(struct psc_op *op, const struct psc__op_request *r, struct ps_slices *to);
// Without the lock: checks a reply and copies what it brought. On failure the answer is empty.
enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__op_request *r, const struct ps_slices *reply,
                                struct psc__answer *a, struct ps_error *e);
void psc__answer_free(struct psc__answer *a);
// Takes the answer's numbers; a read's stay with r until it has all of them. True: it goes on, r knows where.
bool psc__op_accept(struct psc_op *op, struct psc__op_request *r, const struct psc__answer *a);
void psc__op_restart(struct psc_op *op, struct psc__op_request *r);  // a read begins again, and what it found is void

// ---- op.c ---------------------------------------------------------------------------------------------------------

bool psc__ops_create(struct psc_client *c);  // false: no memory
// After the world's shutdown and the client's end: returns when every operation's end has been told, those whose timer
// will not run included, and those whose memory the transport keeps. Without the lock.
void psc__ops_drain(struct psc_client *c);
void psc__ops_free(struct psc_client *c);
// Ends those whose deadline passed without anyone's noticing.
void psc__ops_expire(struct psc_client *c);
// Which round the first operation waits for that was started before `since`, and for longer than the rounds before let
// expect; *what stays as it is: none.
void psc__ops_name_wait(struct psc_client *c, uint64_t since, char *what, size_t size);

#endif
