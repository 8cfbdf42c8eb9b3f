// SPDX-License-Identifier: Apache-2.0
// An operation on tensors: validated, cut into requests per task, and put together again.
//
// Memory. A push sends the caller's own bytes: each slice that is under way holds a reference on the operation's
// `memory`, and so does every thread that copies a reply into it. The operation ends when its outcome is known and
// the last of these references is gone; only then may the caller touch the tensors again. Strings are the exception:
// they travel encoded, in memory of the operation's own, and come to the caller when all of a read has succeeded.
//
// Functions are called with the client's lock held, except psc__op_read_reply.
#ifndef PSC_OP_H
#define PSC_OP_H

#include <stdatomic.h>

#include "common/wire/slice.h"
#include "libclient/client.h"

enum {
    PSC__READS_FLYING = 16,               // requests of one pull at one task: more would pin more at psd than the
                                          // wire can take
    PSC__PIECES_MAX = 4096,               // ranges in one request, but for a get
    PSC__HEADER_MAX = PS_HEADER_MAX / 2,  // bytes of their headers, as far as they are known beforehand
    PSC__REPLY_MARGIN = 256 << 10,        // of a reply's PS_CHUNK_MAX, for what is not payload
};

#define PSC__NO_PIECE UINT32_MAX

// A range of one partition, and where its bytes are.
struct psc__piece {
    uint32_t partition;  // index into the layout's
    uint32_t next;       // in the request's chain
    uint32_t tensor;     // of the operation
    bool is_strings;
    bool touched;  // reads: some of it has come
    uint64_t first, count;
    uint64_t version;     // updates: the least that the last pull of its blocks met
    uint64_t changes;     // psc_get_newer: those found
    uint32_t partial;     // push to a round: blocks that came before the last of their gradient,
    bool stale;           // which is not counted
    uint64_t bytes;       // of payload; an estimate where strings are read
    uint8_t *data;        // updates: what is sent; of strings the operation's own
    uint8_t *into;        // where values go
    psc_string *strings;  // updates: the caller's, to be encoded; reads: those that came, the operation's own
};

// What an operation has to do with one task.
struct psc__share {
    struct psc__requests held;
    uint32_t admitted;  // reads: so many requests at a time
    uint64_t bytes;     // updates: payload in all
    uint32_t staged;    // atomic: blocks
    bool committed;     // atomic: they have taken effect, now or
    bool repeated;      // before a retry
};

struct psc_seen {
    const struct psc__layout *layout;
    uint64_t *changes;  // per partition: as its values were last got; UINT64_MAX: never
    bool busy;          // guarded by the client's lock, as are they
};

// What is asked for.
struct psc__op_spec {
    int method;
    const psc_tensor *tensors;
    const psc_tensor *into;  // psc_push_pull
    size_t n;
    psc_seen *seen;  // psc_get_newer
    uint64_t round, examples;
    bool atomic, refuse_nonfinite;
    psc_callback callback;
    void *arg;
    psc_op **handle;
};

struct psc_op {
    struct psc__later later;
    struct psc__seat seat;
    struct ps_owner memory;
    TAILQ_ENTRY(psc_op) link;  // in the client's
    psc_client *client;
    struct psc__layout *layout;
    int method;
    uint64_t round, examples;
    bool atomic, refuse_nonfinite;
    psc_seen *seen;
    uint32_t n_tensors;
    uint64_t started, deadline;  // deadline UINT64_MAX: waits for a round, as long as the job is healthy
    struct psc__piece *pieces;
    uint32_t n_pieces;
    size_t cap_pieces;
    struct psc__requests requests;  // all that are not done, linked by of_op
    uint32_t left;                  // requests that are not done
    bool refused;                   // ended before it began: a timer will tell
    bool over;                      // the outcome is known
    bool versioned, rounded;        // result.version and result.round are of some request
    psc_result result;
    psc_callback callback;
    void *arg;
    atomic_uint holders;  // the machinery, and the caller where it asked for the handle
    atomic_bool done;
    pthread_mutex_t mutex;
    pthread_cond_t cond;         // done
    struct psc__share shares[];  // per task
};

// One reply, decoded: an UpdateReply, a ReadReply or both at once.
struct psc__answer {
    ProtobufCMessage *message;  // owns the others
    uint64_t generation;
    Paramserver__V1__TensorResult **results;
    size_t n_results;
    Paramserver__V1__Tensor **tensors;
    size_t n_tensors;
    uint64_t next_offset, snapshot, round, last_round;
    struct psc__place place;  // where the values go on
};

// op_cut.c. Validates the tensors and cuts them: requests, left and pieces are filled. e->code is PS_OK before. On
// failure some requests may have been made; none is anywhere but in op->requests.
enum ps_code psc__op_cut(struct psc_op *op, const struct psc__op_spec *spec, struct ps_error *e);

// op_string.c. Strings in a payload: the lengths of all, then their bytes.
//
// Encodes what the update's pieces of strings send; on failure the caller drops the operation.
enum ps_code psc__op_encode(struct psc_op *op, struct ps_error *e);
// Takes apart n strings that came: the lengths at `lengths`, the bytes at *bytes, which is moved past them; INTERNAL
// where they end beyond `end`. Those that were in `to` are freed.
enum ps_code psc__strings_take(psc_string *to, uint64_t n, const uint8_t *lengths, const uint8_t **bytes,
                               const uint8_t *end, struct ps_error *e);
void psc__op_hand_over(struct psc_op *op);  // the strings read, to the caller
void psc__op_free_strings(struct psc_op *op);

const struct psc__variable *psc__op_variable(const struct psc_op *op, const struct psc__piece *piece);

// ---- for queue.c --------------------------------------------------------------------------------------------------

// Where there is no memory for it *to is broken.
void psc__op_pack(struct psc_op *op, const struct psc__request *r, struct ps_slices *to);
int psc__op_method(const struct psc_op *op);
uint32_t psc__op_timeout_ms(const struct psc_op *op);
uint64_t psc__op_deadline(const struct psc_op *op);
uint64_t psc__op_started(const struct psc_op *op);
uint64_t psc__op_sequence(const struct psc_op *op);

void psc__op_hold(struct psc_op *op);
void psc__op_unhold(struct psc_op *op);
// Without the lock: checks a reply and copies what it brought. On failure the answer is empty.
enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__request *r, const struct ps_slices *reply,
                                struct psc__answer *a, struct ps_error *e);
void psc__answer_free(struct psc__answer *a);
// Takes the answer's numbers; a read's stay with r until it has all of them. True: it goes on, r knows where.
bool psc__op_accept(struct psc_op *op, struct psc__request *r, const struct psc__answer *a);
void psc__op_restart(struct psc_op *op, struct psc__request *r);       // a read begins again, and what it found is void
void psc__op_request_done(struct psc_op *op, struct psc__request *r);  // frees r
// The operation ends with *e. Requests that fly are left to land (their op is NULL), the others are freed.
void psc__op_fail(struct psc_op *op, const struct ps_error *e);

// ---- for client.c and wait.c --------------------------------------------------------------------------------------

// Memory for operations that find none: they end with RESOURCE_EXHAUSTED as others do.
enum ps_code psc__ops_reserve(struct psc_client *c, struct ps_error *e);
void psc__ops_unreserve(struct psc_client *c);

void psc__ops_fail(struct psc_client *c, const struct ps_error *e);  // all
void psc__ops_expire(struct psc_client *c);  // those whose deadline passed without anyone's noticing
// After the world's shutdown: those whose timer will not run. False: there are none.
bool psc__ops_finish_refused(struct psc_client *c);
void psc__op_drop(struct psc_op *op);  // one holder; any thread, no lock

#endif
