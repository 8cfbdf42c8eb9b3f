// SPDX-License-Identifier: Apache-2.0
//
// psclient: the client library of paramserver. What workerd itself uses, and what anyone else may link for a training
// loop of their own: cluster description, placement, chunking, retries, deadlines, exactly-once updates.
//
// Threads. A psc_client may be used from any number of threads at once. Callbacks run on a thread of the library: they
// may start operations, they must not wait for any. A psc_op belongs to whoever started it.
//
// Ownership. Strings and arrays that are passed in are copied before the call returns, except tensors' data: that
// memory stays the caller's and must neither move nor change (reads: be read) until the operation has finished. What
// the library returns is freed by the psc_..._free named beside it.
//
// Errors. Functions return PSC_OK or the code, and fill *error (which may be NULL) with one sentence. Output
// parameters are set on success only. Every wait has a deadline.
#ifndef PSCLIENT_H
#define PSCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The codes are gRPC's canonical status codes.
typedef enum psc_code {
    PSC_OK = 0,
    PSC_CANCELLED = 1,
    PSC_UNKNOWN = 2,
    PSC_INVALID_ARGUMENT = 3,   // wrong name, shape, dtype, value
    PSC_DEADLINE_EXCEEDED = 4,  // the text says for whom it waited
    PSC_NOT_FOUND = 5,          // no such job, variable, file
    PSC_ALREADY_EXISTS = 6,     // job name taken; rank taken by a live worker
    PSC_PERMISSION_DENIED = 7,
    PSC_RESOURCE_EXHAUSTED = 8,
    PSC_FAILED_PRECONDITION = 9,  // e.g. push before declare
    PSC_ABORTED = 10,             // the job has ended, or a ps task lost its state; the text says which and why
    PSC_OUT_OF_RANGE = 11,
    PSC_UNIMPLEMENTED = 12,
    PSC_INTERNAL = 13,
    PSC_UNAVAILABLE = 14,  // a ps task cannot be reached; the text names it and its address
    PSC_DATA_LOSS = 15,
    PSC_UNAUTHENTICATED = 16
} psc_code;

typedef struct psc_error {
    psc_code code;
    char text[512];
} psc_error;

typedef enum psc_dtype { PSC_FLOAT32 = 1, PSC_FLOAT64 = 2, PSC_INT32 = 3, PSC_INT64 = 4 } psc_dtype;
typedef enum psc_update { PSC_ASYNC = 1, PSC_SYNC = 2 } psc_update;
typedef enum psc_on_existing { PSC_REFUSE = 0, PSC_RESUME = 1, PSC_REPLACE = 2 } psc_on_existing;
typedef enum psc_transport { PSC_STREAM = 0, PSC_UNARY = 1 } psc_transport;

// ---- cluster ------------------------------------------------------------------------------------------------------

// The addresses of a cluster's tasks: "host:port" or "unix:/path". In YAML:
//     ps: ["127.0.0.1:7070", "unix:/run/psd1.sock"]
//     worker: [node1, node2]           # optional: anything; only their number counts
typedef struct psc_cluster psc_cluster;

psc_code psc_cluster_load(const char *path, psc_cluster **cluster, psc_error *error);
psc_code psc_cluster_parse(const char *yaml, const char *name, psc_cluster **cluster, psc_error *error);
psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error);
size_t psc_cluster_tasks(const psc_cluster *cluster);    // ps tasks
size_t psc_cluster_workers(const psc_cluster *cluster);  // 0: not said
const char *psc_cluster_address(const psc_cluster *cluster, size_t task);
void psc_cluster_free(psc_cluster *cluster);

// ---- connection ---------------------------------------------------------------------------------------------------

typedef struct psc_client psc_client;

typedef struct psc_options {
    const char *job;       // required
    int rank;              // of this worker, from 0; -1: an observer, which takes no part in membership
    uint32_t workers;      // of the job; required where rank >= 0
    uint32_t min_workers;  // with fewer live ones the job ends; 0: 1
    psc_update update;     // required where rank >= 0
    psc_on_existing on_existing;
    psc_transport transport;
    int timeout_ms;      // for connecting and joining, and default of every operation; 0: 60,000; waits for a
                         // round or a barrier have no limit of their own as long as those waited for live
    size_t chunk_bytes;  // payload per request; 0: 512 KiB; at most 4 MiB
} psc_options;

// Connects to every ps task (UNAVAILABLE names those that do not answer) and, where rank >= 0, joins the job: rank 0
// opens it, others wait for that. From then on the library sends heartbeats.
psc_code psc_connect(const psc_cluster *cluster, const psc_options *options, psc_client **client, psc_error *error);

// Leaves the job (reason NULL: done; else: failed, and why), finishes what is under way with CANCELLED, frees.
// Handles of operations that are not waited for yet stay valid, for psc_wait alone.
void psc_close(psc_client *client, const char *reason);

// Numbers shown by psctl workers, sent with the next heartbeat.
void psc_report(psc_client *client, uint64_t step, double images_per_second, double loss);

// Has the job ended, as far as heartbeats told? PSC_OK: no; else why.
psc_code psc_health(psc_client *client, psc_error *error);

// The live worker of lowest rank is the chief.
bool psc_is_chief(psc_client *client);
uint32_t psc_live_workers(psc_client *client);
const char *psc_run_id(psc_client *client);

// ---- variables ----------------------------------------------------------------------------------------------------

typedef struct psc_variable {
    const char *name;
    psc_dtype dtype;
    const uint64_t *shape;  // rank dimensions
    size_t rank;            // 0: a scalar
    bool trainable;         // false: takes part in no round, changes by put and assign_add only
} psc_variable;

typedef struct psc_hyper {
    const char *name;  // Keras's: learning_rate, momentum, nesterov, beta_1, beta_2, epsilon
    double value;
} psc_hyper;

typedef struct psc_declaration {
    const psc_variable *variables;
    size_t n_variables;
    const char *rule;         // sgd, momentum, adam, assign_add
    const psc_hyper *hypers;  // those not named have Keras's defaults
    size_t n_hypers;
    const char *placement;    // "round_robin", "greedy"; NULL: greedy
    const char *partitioner;  // "none", "fixed:N", "min_bytes:B", "max_bytes:B"; NULL: none
} psc_declaration;

// Declares the job's variables on all ps tasks; by the chief alone. *resumed (may be NULL): their values were kept
// from an earlier run, do not put initial ones.
psc_code psc_declare(psc_client *client, const psc_declaration *declaration, bool *resumed, psc_error *error);

// Waits until the chief has declared, then knows the variables. Everyone but the chief calls it before the first
// operation.
psc_code psc_attach(psc_client *client, psc_error *error);

// What is declared: valid until psc_close. NULL: no such variable or index, or neither declared nor attached.
size_t psc_variables(psc_client *client);
const psc_variable *psc_variable_at(psc_client *client, size_t i);
const psc_variable *psc_variable_find(psc_client *client, const char *name);

// ---- operations ---------------------------------------------------------------------------------------------------

// The whole of a variable's value or gradient: dtype and count are checked against the declaration.
typedef struct psc_tensor {
    const char *name;
    void *data;      // row-major; written by reads only
    uint64_t count;  // elements
    psc_dtype dtype;
} psc_tensor;

typedef struct psc_result {
    psc_error error;      // code PSC_OK: all of it took effect (or had, before a retry)
    uint64_t version;     // least version (count of updates) among the blocks touched
    uint64_t staleness;   // async push: greatest staleness met
    uint64_t round;       // sync: the round it was counted in, or for pull: the last one closed
    uint32_t applied;     // blocks: changed now
    uint32_t queued;      //         counted in a round
    uint32_t stale;       //         dropped: their round was closed already
    uint32_t duplicates;  //         had this update already
} psc_result;

typedef struct psc_op psc_op;
typedef void (*psc_callback)(void *arg, const psc_result *result);

// Start an operation on n tensors, atomically in the sense that all are validated before any is sent. callback (may
// be NULL) runs once, at the end. Never fails at once: errors arrive in the result. *op may be NULL where a callback
// is enough; otherwise it must go to psc_wait.
void psc_put(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op);
void psc_get(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op);
void psc_assign_add(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op);

// A gradient: the mean over `examples` examples. In a sync job it is for `round` (1 for the first step); async: 0.
// Staleness is measured against the versions that this client's last pull of the same blocks met.
void psc_push(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, uint64_t examples,
              psc_callback callback, void *arg, psc_op **op);

// Weights for a step. Sync: waits until `round` has closed (0 before the first step).
void psc_pull(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op);

// Waits for op, as long as its own deadline, and frees it. result may be NULL.
psc_code psc_wait(psc_op *op, psc_result *result, psc_error *error);
// Has op ended? Waits at most timeout_ms for that; 0: looks. Frees nothing.
bool psc_done(psc_op *op, int timeout_ms);

// Returns when every live worker of the job is in a barrier of this name. No limit but their lives.
psc_code psc_barrier(psc_client *client, const char *name, psc_error *error);

// Async data sharding: the next range of an epoch's permutation, at most `want` of `examples`. Asking reports the last
// range as done. *count = 0: the epoch is done by all.
psc_code psc_lease(psc_client *client, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t *first,
                   uint64_t *count, psc_error *error);

#ifdef __cplusplus
}
#endif
#endif
