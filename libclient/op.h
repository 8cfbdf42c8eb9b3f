// SPDX-License-Identifier: Apache-2.0
// An operation on tensors: validated, cut into requests per task, and put together again.
//
// Memory. A push sends the caller's own bytes: each slice that is under way holds a reference on the operation's
// `memory`, and so does every thread that copies a reply into it. The operation ends when its outcome is known and
// the last of these references is gone; only then may the caller touch the tensors again.
//
// Functions are called with the client's lock held, except psc__op_read_reply.
#ifndef PSC_OP_H
#define PSC_OP_H

#include <stdatomic.h>

#include "common/slice.h"
#include "libclient/client.h"

enum {
    PSC__READS_FLYING = 16,  // requests of one pull at one task: more would pin more at psd than the wire can take
    PSC__PIECES_MAX = 4096,  // ranges in one request: bounds its header
};

#define PSC__NO_PIECE UINT32_MAX

// A range of one partition, and where its bytes are in the caller's memory.
struct psc__piece {
    uint32_t partition;  // index into the layout's
    uint32_t next;       // in the request's chain
    uint64_t first, count;
    uint64_t version;  // updates: the least that the last pull of its blocks met
    uint8_t *data;
};

// What a pull asks of one task: so many requests at a time.
struct psc__share {
    struct psc__requests held;
    uint32_t admitted;
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
    uint64_t started, deadline;  // deadline UINT64_MAX: waits for a round, as long as the job is healthy
    struct psc__piece *pieces;
    uint32_t n_pieces, cap_pieces;
    struct psc__requests requests;  // all that are not done, linked by of_op
    struct psc__share *shares;      // per task; reads only
    uint32_t left;                  // requests that are not done
    bool refused;                   // ended before it began: a timer will tell
    bool over;                      // the outcome is known
    bool counted;                   // result has numbers of some request
    psc_result result;
    psc_callback callback;
    void *arg;
    atomic_uint holders;  // the machinery, and the caller where it asked for the handle
    atomic_bool done;
    pthread_mutex_t mutex;
    pthread_cond_t cond;  // done
};

// One reply, decoded.
struct psc__answer {
    Paramserver__V1__UpdateReply *update;
    Paramserver__V1__ReadReply *read;
};

// op_cut.c. Validates the tensors and cuts them: requests, left and pieces are filled. e->code is PS_OK before. On
// failure some requests may have been made; none is anywhere but in op->requests.
enum ps_code psc__op_cut(struct psc_op *op, const psc_tensor *tensors, size_t n, struct ps_error *e);

// ---- for queue.c --------------------------------------------------------------------------------------------------

void psc__op_pack(struct psc_op *op, const struct psc__request *r, struct ps_rope *to);
int psc__op_method(const struct psc_op *op);
uint32_t psc__op_timeout_ms(const struct psc_op *op);
uint64_t psc__op_deadline(const struct psc_op *op);
uint64_t psc__op_started(const struct psc_op *op);

void psc__op_hold(struct psc_op *op);
void psc__op_unhold(struct psc_op *op);
// Without the lock: checks a reply and copies what it brought. On failure the answer is empty.
enum ps_code psc__op_read_reply(const struct psc_op *op, const struct psc__request *r, const struct ps_rope *reply,
                                struct psc__answer *a, struct ps_error *e);
void psc__answer_free(struct psc__answer *a);
// Takes the answer's numbers. True: a read that goes on, r knows where.
bool psc__op_accept(struct psc_op *op, struct psc__request *r, const struct psc__answer *a);
void psc__op_request_done(struct psc_op *op, struct psc__request *r);  // frees r
// The operation ends with *e. Requests that fly are left to land (their op is NULL), the others are freed.
void psc__op_fail(struct psc_op *op, const struct ps_error *e);

// ---- for client.c and wait.c --------------------------------------------------------------------------------------

void psc__ops_fail(struct psc_client *c, const struct ps_error *e);  // all
void psc__ops_expire(struct psc_client *c);          // those whose deadline passed without anyone's noticing
void psc__ops_finish_refused(struct psc_client *c);  // after the world's shutdown: those whose timer will not run
void psc__op_drop(struct psc_op *op);                // one holder; any thread, no lock

#endif
