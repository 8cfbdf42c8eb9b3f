// SPDX-License-Identifier: Apache-2.0
//
// psclient: the client library of paramserver. What workerd itself uses, and what anyone else may link for a training
// loop of their own: cluster description, placement, chunking, retries, deadlines, exactly-once updates.
//
// Threads. A psc_client may be used from any number of threads at once. Callbacks run on a thread of the library, or on
// the one that is in psc_close: they may start operations, and call what returns at once (psc_report, psc_done with 0,
// psc_health, psc_is_chief, what is declared), they must not call what waits: psc_wait, psc_declare, psc_attach,
// psc_barrier, psc_lease, psc_clock, psc_reduce and what else is among workers, psc_set_hyper, psc_split_gradients or
// psc_close. A psc_op belongs to whoever started it. (Where there is no memory for an operation its callback runs
// before the function that starts it returns, and its handle is NULL, which psc_wait, psc_done and psc_cancel
// take.) A child of fork() must not use its parent's clients: it calls exec, or _exit. psc_close does nothing there.
//
// Ownership. Strings and arrays that are passed in are copied before the call returns, except tensors' data: that
// memory stays the caller's and must neither move nor change (reads: be read) until the operation has finished. What
// the library returns is freed by the psc_..._free named beside it.
//
// Errors. Functions return PSC_OK or the code, and fill *error (which may be NULL) with one sentence. Output
// parameters are set on success only. Every wait has a deadline. What finds no memory ends with PSC_RESOURCE_EXHAUSTED,
// and the client is of use afterwards. The library itself never aborts the process; gRPC, its transport, does where it
// finds no memory.
#ifndef PSCLIENT_H
#define PSCLIENT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// The codes are gRPC's canonical status codes.
typedef enum psc_code {
    PSC_OK = 0,
    PSC_CANCELLED = 1,  // the job was stopped (psctl stop), or the program's own stop asks for the end
    PSC_UNKNOWN = 2,
    PSC_INVALID_ARGUMENT = 3,   // wrong name, shape, dtype, value
    PSC_DEADLINE_EXCEEDED = 4,  // the text says for whom it waited
    PSC_NOT_FOUND = 5,          // no such job, variable, file
    PSC_ALREADY_EXISTS = 6,     // job name taken; rank taken by a live worker
    PSC_PERMISSION_DENIED = 7,
    PSC_RESOURCE_EXHAUSTED = 8,
    PSC_FAILED_PRECONDITION = 9,  // e.g. push before declare
    PSC_ABORTED = 10,             // the job has ended early, or a ps task lost its state; the text says which and why.
                                  // psc_set_hyper, and what is among workers, have their own reasons
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

typedef enum psc_dtype {
    PSC_FLOAT32 = 1,
    PSC_FLOAT64 = 2,
    PSC_INT32 = 3,
    PSC_INT64 = 4,
    // Put and get only:
    PSC_BFLOAT16 = 5,
    PSC_FLOAT16 = 6,
    PSC_UINT8 = 7,
    PSC_STRING = 8,  // byte strings: a tensor's data is an array of psc_string
    // Of no variable: how gradients may travel, see psc_push_options.
    PSC_SCALED_INT8 = 9
} psc_dtype;

typedef enum psc_update { PSC_ASYNC = 1, PSC_SYNC = 2, PSC_SSP = 3 } psc_update;
typedef enum psc_on_existing { PSC_REFUSE = 0, PSC_RESUME = 1, PSC_REPLACE = 2 } psc_on_existing;
typedef enum psc_transport { PSC_STREAM = 0, PSC_UNARY = 1 } psc_transport;

// ---- cluster ------------------------------------------------------------------------------------------------------

// The addresses of a cluster's tasks: "host:port" or "unix:/path". In YAML:
//     ps: ["127.0.0.1:7070", "unix:/run/psd1.sock"]
//     worker: [node1, node2]           # optional: anything; only their number counts
typedef struct psc_cluster psc_cluster;

// In TF_CONFIG (TensorFlow's, JSON), as the cluster is described there: {"cluster": {"ps": [...], "worker": [...],
// "chief": [...]}, "task": {"type": "worker", "index": 1}}. A chief is the worker of rank 0, the others follow; an
// evaluator takes no part. Every address stands for one task only. INVALID_ARGUMENT: a mistake, with file and line or
// path; NOT_FOUND and the like: the file cannot be read; RESOURCE_EXHAUSTED: no memory. name: what errors call the
// YAML, as a file's path. psc_cluster_free frees *cluster.
psc_code psc_cluster_load(const char *path, psc_cluster **cluster, psc_error *error);
psc_code psc_cluster_parse(const char *yaml, const char *name, psc_cluster **cluster, psc_error *error);
psc_code psc_cluster_create(const char *const *ps, size_t n, psc_cluster **cluster, psc_error *error);
psc_code psc_cluster_parse_tf_config(const char *json, psc_cluster **cluster, psc_error *error);
// The one this process is told of: the file named by `path` where it is not NULL, else the environment's TF_CONFIG.
// NOT_FOUND: neither.
psc_code psc_cluster_find(const char *path, psc_cluster **cluster, psc_error *error);
// Mutual TLS, in place of what the YAML says in `tls`: a folder with ca.pem and worker.pem, which holds certificate and
// key (psctl tls init makes them); or the files one by one, PEM, where key may be NULL if certificate's holds it, too.
// psc_connect reads them, and later connections take up what is new in them. INVALID_ARGUMENT: neither.
typedef struct psc_tls {
    const char *folder;
    const char *ca, *certificate, *key;
} psc_tls;
psc_code psc_cluster_set_tls(psc_cluster *cluster, const psc_tls *tls, psc_error *error);
// Munge in place of certificates, as the YAML says it in `munge`: ps tasks ask the munged of their host who calls.
// Nothing is encrypted. socket: of this host's munged; NULL: its usual one. INVALID_ARGUMENT: the cluster has
// certificates.
psc_code psc_cluster_set_munge(psc_cluster *cluster, const char *socket, psc_error *error);
typedef enum psc_task_type { PSC_TASK_NONE, PSC_TASK_PS, PSC_TASK_WORKER, PSC_TASK_EVALUATOR } psc_task_type;
// What this process is in it, as TF_CONFIG says; *index (may be NULL): of the ps task, or the worker's rank.
psc_task_type psc_cluster_task(const psc_cluster *cluster, size_t *index);
size_t psc_cluster_tasks(const psc_cluster *cluster);    // ps tasks
size_t psc_cluster_workers(const psc_cluster *cluster);  // 0: not said
// Valid until psc_cluster_free. NULL: there is no ps task of that number.
const char *psc_cluster_address(const psc_cluster *cluster, size_t task);
void psc_cluster_free(psc_cluster *cluster);  // may be NULL; a client that has been connected does not need it

// ---- connection ---------------------------------------------------------------------------------------------------

typedef struct psc_client psc_client;

typedef struct psc_options {
    const char *job;       // required
    int rank;              // of this worker, from 0; -1: an observer, which takes no part in membership
    uint32_t workers;      // of the job; required where rank >= 0
    uint32_t min_workers;  // with fewer live ones the job ends; 0: 1
    psc_update update;     // required where rank >= 0
    // What if a job of this name has failed: all workers bring the same, PSC_REFUSE is refused with ALREADY_EXISTS. One
    // that is done gives its name up.
    psc_on_existing on_existing;
    psc_transport transport;
    int timeout_ms;      // for connecting and joining, and default of every operation; 0: 60,000; waits for a
                         // round or a barrier have no limit of their own as long as those waited for live. An
                         // observer's update is given up 8 minutes after it may have taken effect, UNAVAILABLE
    int refused_ms;      // an observer: so long nobody may listen at a ps task, then all ends as it does for a worker;
                         // 0: until timeout_ms
    size_t chunk_bytes;  // payload per request; 0: 512 KiB; at most 4 MiB
    uint32_t staleness;  // PSC_SSP: steps that a worker may be ahead of the slowest
    int join_within_ms;  // who has not joined the job by then is not waited for; 0: 60,000
    // PSC_SYNC: rounds of which a share of psc_lease is at most; the same for all workers. Who joins a running job gets
    // a share with the next ones. 0: of all that is left of the epoch.
    uint32_t share_rounds;
    // This program trains each share of psc_lease in the mode that the share names, so that psctl set-mode may change
    // it between two epochs; the same for all workers. Such a program pushes to a round where it names one.
    bool follows_mode;
    uint64_t share_batch;  // follows_mode: the batch of a sync share, where it is less than psc_lease's `want`; 0: want
    // For a signal handler: not long (200 ms) after this has become other than 0, psc_connect and all calls on the job
    // (barriers, leases, clocks, reductions, hyperparameters) end with CANCELLED, and no more begin. What moves values
    // has 8 s more once the job is declared, so that a step that has begun to push can end; then all is CANCELLED but
    // psc_close. It is the signal's number, which the errors name, or 1: they say "a signal" then. May be NULL.
    const volatile sig_atomic_t *stop;
    // Told what the client waits for, once that has lasted 2 s, and again when it is something else: "ps:1
    // (node1:7070): Connection refused", "worker 0 to open the job". A round also has to last for twice as long as
    // those before it: "the other workers' gradients of round 7". Runs on a thread of the library and must not wait;
    // what is text to copy. May be NULL.
    void (*waits)(void *arg, const char *what);
    void *waits_arg;
    // What all workers of the job must have alike, such as the seed of the shuffle and the batch size: lines KEY=VALUE,
    // at most 16 KiB of UTF-8. psc_connect fails with FAILED_PRECONDITION, and the first key, where they differ from
    // those of the worker 0 that opened the job. Copied. NULL: not compared.
    const char *configuration;
} psc_options;

typedef struct psc_metric {
    const char *name;
    double value;
} psc_metric;

// Connects to every ps task and, where rank >= 0, joins the job: rank 0 opens it, others wait for that. From then on
// the library sends heartbeats. An observer's asks no ps task anything and returns at once: whether one is there its
// first operation tells. *client is freed by psc_close. INVALID_ARGUMENT: an option; UNAVAILABLE: ps tasks that did not
// answer within timeout_ms, and why; DEADLINE_EXCEEDED: worker 0 did not open the job, or the death of the worker that
// had this rank before was not certain yet; FAILED_PRECONDITION: the job or the cluster is described differently
// elsewhere; ALREADY_EXISTS: the job's name or the rank is taken; NOT_FOUND, PERMISSION_DENIED: a file of certificates;
// PERMISSION_DENIED: the job is another user's, or the certificate or munge does not allow it; UNAUTHENTICATED: munge's
// credential is no good; RESOURCE_EXHAUSTED: a ps task takes no more jobs, or memory or threads are lacking; ABORTED:
// the job has ended meanwhile; CANCELLED: stop.
//
// Where nobody listens at a ps task's address for longer than a worker may be silent (psd --dead-after-ms), all
// operations end with UNAVAILABLE and the task's address. A task that is silent is waited for until timeout_ms.
psc_code psc_connect(const psc_cluster *cluster, const psc_options *options, psc_client **client, psc_error *error);

// Leaves the job (reason NULL: done; else: failed, and why), finishes what is under way, and what its callbacks start
// then, with CANCELLED, frees. Takes as long as the control task takes to answer: at most some seconds, or as long as a
// worker may be silent (psd --dead-after-ms) where that is longer, it is done, and somebody listens there. No other
// thread may use the client meanwhile. client may be NULL.
// Handles of operations that are not waited for yet stay valid, for psc_wait alone. An operation whose tensors' memory
// gRPC still sends 2 s after all else has ended says so, and with which ps task: that memory must stay.
void psc_close(psc_client *client, const char *reason);

// Numbers shown by psctl workers: steps done, examples per second, loss of the last step. They are sent with the next
// heartbeat, the last ones by psc_close.
void psc_report(psc_client *client, uint64_t step, double examples_per_second, double loss);

// Has the job ended, as far as heartbeats told? PSC_OK: no; else why. Something may end with ABORTED before they do.
psc_code psc_health(psc_client *client, psc_error *error);

// The live worker that has been there for longest is the chief, of those who were there from the beginning the one of
// lowest rank: as of the last heartbeat, or of the last psc_barrier if that is later.
bool psc_is_chief(psc_client *client);
// Is this worker the chief in the place of one that is dead, and that no signal has ended? Then that one has not done
// what it was to do at the end. False where it was the chief from the beginning, or the one before it has left.
bool psc_is_heir(psc_client *client);
// For how long the control task has not heard the chief, in ms, as of the last heartbeat and since: one that is killed
// is the chief for as long as a worker may be silent (psd --dead-after-ms). 0: an observer's.
uint64_t psc_chief_silence(psc_client *client);
// The greatest step that any worker has told psc_report of, as of the last heartbeat. With the one by which a worker is
// the chief it is at least what the chief before has told.
uint64_t psc_furthest(psc_client *client);
// 0: this worker was there from the beginning. Else the greater the later it came to the job that had begun: what the
// chief is chosen by.
uint64_t psc_arrival(psc_client *client);
uint32_t psc_live_workers(psc_client *client);
// Has this worker come to a job that had begun without it? Then it enters no barrier before its first psc_lease, which
// it asks for from psc_data_epoch on; where psc_lease then has nothing of that epoch, psc_data_epoch says whether the
// others are at a later one already: a job that goes on from a checkpoint begins with any.
bool psc_is_late(psc_client *client);
uint64_t psc_data_epoch(psc_client *client);
// Has an administrator asked this worker to leave (psctl drain)? It finishes its step and calls psc_close.
bool psc_is_draining(psc_client *client);
// A signal has asked this worker to end. If psc_close with a reason then ends the job, the job's state is interrupted,
// not failed.
void psc_report_interrupted(psc_client *client);
// The number of the last checkpoint that an administrator has asked the job for (psctl checkpoint), from 1; 0: none
// waits for an answer. The chief writes one, and says what has become of the first `number` of them: text is the file's
// path, or failed and why. It is sent with the next heartbeat.
uint64_t psc_checkpoints(psc_client *client);
void psc_report_checkpoint(psc_client *client, uint64_t number, bool failed, const char *text);
// The chief says how far the training is, for psctl status and the status page: of `epochs` that the job trains `ended`
// have ended, the last one with these metrics, such as {"val_loss", 0.07}. Others may say so, too: it counts when they
// become the chief. epochs 0: says nothing, and takes nothing back. Of more than 32 metrics the last ones count, of
// equal names the first; a name of more than 63 bytes is cut. Without metrics those of the same epoch stay. It is sent
// with the chief's heartbeats.
void psc_report_epoch(psc_client *client, uint64_t epochs, uint64_t ended, const psc_metric *metrics, size_t n);
// The chief says whether the job writes checkpoints, of which step the newest is (0: none is there yet) and when it was
// written, in milliseconds since 1970: what psctl status says can be lost goes by it. It is sent with what
// psc_report_epoch has said.
void psc_report_saved(psc_client *client, bool some, uint64_t step, uint64_t written_ms);
uint64_t psc_run(psc_client *client);  // of the job that it joined or attached to; 0: it has done neither

// ---- variables ----------------------------------------------------------------------------------------------------

typedef struct psc_variable {
    const char *name;
    psc_dtype dtype;
    const uint64_t *shape;  // rank dimensions
    size_t rank;            // 0: a scalar
    // false, and no rule of its own: takes part in no round, changes by put, assign_add and assign_sub only; a push of
    // it is refused with INVALID_ARGUMENT.
    bool trainable;
    const char *rule;  // of this variable alone (it then takes part in rounds); NULL: the job's if trainable
    const struct psc_hyper *hypers;  // of this rule
    size_t n_hypers;
} psc_variable;

// Names are Keras's: learning_rate, momentum, beta_1, beta_2, epsilon, weight_decay, clipnorm, ... With
// gradient_accumulation_steps the ps tasks keep the sum of the gradients beside each value, and with use_ema (0 or 1)
// the average of the weights: psc_pull_averages.
typedef struct psc_hyper {
    const char *name;
    double value;
} psc_hyper;

enum { PSC_HYPER_NAME = 64 };  // bytes of such a name at most, with its end

// A learning rate that follows the step, evaluated by the ps tasks. Keras's schedules (keras.optimizers.schedules:
// PiecewiseConstantDecay, ExponentialDecay, CosineDecay, CosineDecayRestarts, PolynomialDecay, InverseTimeDecay), with
// their formulas; their defaults are not filled in. Warm-up is linear and comes first.
typedef struct psc_schedule {
    const char *kind;            // constant, piecewise, exponential, cosine, cosine_restarts, polynomial, inverse_time
    double initial;              // not piecewise
    uint64_t decay_steps;        // all but constant and piecewise; of the first cosine of cosine_restarts
    double decay_rate;           // exponential, inverse_time
    bool staircase;              // exponential, inverse_time
    double alpha;                // cosine, cosine_restarts: the least rate as a fraction of the initial one
    const uint64_t *boundaries;  // piecewise: [n_boundaries]
    const double *values;        // [n_boundaries + 1]; NULL otherwise
    size_t n_boundaries;
    uint64_t warmup_steps;
    double warmup_initial;
    double t_mul, m_mul;              // cosine_restarts: of each cosine's length (1, or from 1.01) and height (above 0)
    double end_learning_rate, power;  // polynomial; power is above 0
    bool cycle;                       // polynomial
} psc_schedule;

typedef struct psc_declaration {
    const psc_variable *variables;
    size_t n_variables;
    // assign_add, sgd, momentum, nesterov, adagrad, adadelta, rmsprop, rmsprop_momentum, rmsprop_centered, adam, adamw,
    // adam_amsgrad, adamw_amsgrad, nadam, adamax, lion, ftrl, delayed_nesterov, ema
    const char *rule;
    const psc_hyper *hypers;  // those not named have Keras's defaults
    size_t n_hypers;
    const char *placement;           // "round_robin", "greedy"; NULL: greedy
    const char *partitioner;         // "none", "fixed:N", "min_bytes:B", "max_bytes:B"; NULL: none
    const psc_schedule *schedule;    // of learning_rate; NULL: none
    uint32_t replicas_to_aggregate;  // sync: gradients that close a round, the others being backup; 0: all
    uint32_t grace_ms;               // with that: a round that has them waits so long for the others
} psc_declaration;

// Declares the job's variables on all ps tasks; by the chief alone, and unless it is late. *resumed (may be NULL):
// their values were kept from an earlier run, do not put initial ones. The same client may declare otherwise what a ps
// task has refused. INVALID_ARGUMENT: a variable, rule, schedule or placement; FAILED_PRECONDITION: this client knows
// the variables, or others are kept, or they are more than a ps task has room for when it has no other job, or than
// this user may ever have there; ALREADY_EXISTS: the job was declared in this run already, by another chief or
// otherwise; RESOURCE_EXHAUSTED: a ps task has no room now; UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, CANCELLED,
// INTERNAL: as operations.
psc_code psc_declare(psc_client *client, const psc_declaration *declaration, bool *resumed, psc_error *error);

// Waits until the chief has declared, then knows the variables. Everyone who does not declare calls it before the first
// operation. DEADLINE_EXCEEDED: the chief has not within timeout_ms, or this worker has become the chief meanwhile
// (psc_is_chief) and is to declare, or nobody has opened an observer's job; FAILED_PRECONDITION: the job was declared
// on another number of ps tasks; UNAVAILABLE, ABORTED: as operations.
psc_code psc_attach(psc_client *client, psc_error *error);

// How many runs of the job have gone on with the values of the one before (PSC_RESUME), this one among them, since they
// were first put: the same for all workers. Who draws from a seed mixes it in, so that a run that goes on does not draw
// what the one before did. 0: neither declared nor attached.
uint64_t psc_resumptions(psc_client *client);

// What is declared: valid until psc_close. NULL: no such variable or index, or neither declared nor attached.
size_t psc_variables(psc_client *client);
const psc_variable *psc_variable_at(psc_client *client, size_t i);
const psc_variable *psc_variable_find(psc_client *client, const char *name);

// ---- operations ---------------------------------------------------------------------------------------------------

// A variable's value or gradient: dtype and count are checked against the declaration. One operation may have several
// parts of a variable, in any order, none of them twice: the rows of an embedding that a batch needs. An update has at
// most some 26,000 of one block; a push and pull in one fewer, as its reply is one message.
typedef struct psc_tensor {
    const char *name;
    void *data;      // row-major; written by reads only
    uint64_t count;  // elements
    psc_dtype dtype;
    bool part;       // data is elements [first, first + count) (rows, where first and count are multiples of a row's
    uint64_t first;  // elements); else the whole variable. A push in a sync job is of whole variables
    // psc_put, psc_put_state, psc_get: in the place of the value this slot of the variable's rule, counted from 1, of
    // the same shape: 1 and 2 of adam are m and v. 0: the value. A put has one of a variable, a get several.
    uint32_t slot;
} psc_tensor;

// An element of a PSC_STRING tensor. A read sets data to memory that psc_strings_free frees, when all of it has
// succeeded; what was there before is overwritten (psc_get_newer frees it: zero the array before the first). A part
// that is put covers whole blocks of 1024 elements of a partition; a block's strings fit a message (about 3.9 MB with
// their lengths of 4 bytes each).
typedef struct psc_string {
    void *data;
    size_t len;
} psc_string;
void psc_strings_free(psc_string *strings, uint64_t count);

typedef struct psc_result {
    psc_error error;      // code PSC_OK: all of it took effect (or had, before a retry)
    uint64_t version;     // least version (count of updates) among the blocks touched
    uint64_t staleness;   // async push: greatest staleness met
    uint64_t round;       // sync: the round it was counted in (0: in none), or for pull: the last one closed
    uint32_t applied;     // blocks: changed now
    uint32_t queued;      //         counted in a round
    uint32_t stale;       //         dropped: their round was closed already
    uint32_t duplicates;  //         had this update already
    uint64_t open_round;  // sync push: the least round that no variable has closed. push_pull: that some has not closed
    uint64_t last_round;  // sync get, push_pull: the greatest round closed. Of a get, equal to round: one state of all
    uint64_t nonfinite;   // push: elements that were NaN or infinite
    uint32_t unchanged;   // psc_get_newer: tensors of which nothing was written
} psc_result;

typedef struct psc_op psc_op;
typedef void (*psc_callback)(void *arg, const psc_result *result);  // *result lives until it returns

// Start an operation on n tensors, atomically in the sense that all are validated before any is sent. callback (may
// be NULL) runs once, at the end. Never fails at once: errors arrive in the result. op may be NULL where a callback
// is enough; otherwise *op must go to psc_wait, which frees it. The tensors' data is the library's until the end; the
// array of tensors and the names are not. Errors: INVALID_ARGUMENT: a tensor, or what is not for this kind of job;
// NOT_FOUND: no such variable; FAILED_PRECONDITION: no variables are known, or one has no such slot;
// RESOURCE_EXHAUSTED: a ps task had no room until the deadline, or this process has no memory; UNAVAILABLE: a ps task
// cannot be reached; DEADLINE_EXCEEDED: no answer within timeout_ms; ABORTED: the job has ended, or a ps task has lost
// its state; CANCELLED: psc_close, psc_cancel, or stop; INTERNAL: an answer that is none. A push to a round:
// ALREADY_EXISTS: some of an earlier one of this worker is there, counted or not; of this one counts at most what goes
// to ps tasks that had nothing of that one.
void psc_put(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op);
// At each ps task all values and slots are of one instant. Also of a job that has failed, by who connects after.
void psc_get(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg, psc_op **op);
void psc_assign_add(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op);
void psc_assign_sub(psc_client *client, const psc_tensor *tensors, size_t n, psc_callback callback, void *arg,
                    psc_op **op);

// What a reader has seen of a job's variables: of one client alone, after psc_declare or psc_attach, else
// FAILED_PRECONDITION. RESOURCE_EXHAUSTED: no memory.
typedef struct psc_seen psc_seen;
psc_code psc_seen_create(psc_client *client, psc_seen **seen, psc_error *error);
// Before psc_close or after it, but not while an operation with it is under way. seen may be NULL.
void psc_seen_free(psc_seen *seen);
// A psc_get of those partitions of the tensors, whole ones, that have changed since they were got with the same `seen`.
// The rest of their data is left alone: so that has to be where the last such get wrote, or a copy. One operation per
// seen at a time: another is FAILED_PRECONDITION; INVALID_ARGUMENT: it is another client's.
void psc_get_newer(psc_client *client, psc_seen *seen, const psc_tensor *tensors, size_t n, psc_callback callback,
                   void *arg, psc_op **op);

typedef struct psc_push_options {
    uint64_t round;     // sync: the round it is for (1 for the first step); else 0
    uint64_t examples;  // behind the mean gradient; 0 counts for nothing in a round
    bool atomic;        // psc_push: takes effect on all variables of a ps task at once; not in sync jobs
    // INVALID_ARGUMENT, and nothing is sent, where any tensor has a NaN or an infinity, or would have one by its
    // residual or encoding. Residuals are as before then.
    bool refuse_nonfinite;
    // How gradients travel: 0, as they are; or in fewer bytes, as PSC_BFLOAT16 or PSC_SCALED_INT8 (a byte for an
    // element, and a float for 256 of them). Then residual[i] is as long as tensors[i], of float32: it is added to the
    // gradient, and becomes what the encoding has lost of it, which is so added to the next one (error feedback). It is
    // zeros at first. NULL: that tensor travels as it is. Not with atomic. Changed before the call returns.
    psc_dtype encoding;
    float *const *residual;
    // Which goes first where the network is slow, as in MXNet: a push of a higher priority may be sent before pushes of
    // a lower one that were started earlier and still wait here, and its answer before theirs. 0, and with atomic:
    // none; no push goes before such a one, a put or an assignment, nor they before a push. No read misses what was
    // started before it. A variable's pushes should all have the same priority, else a later one may come first.
    uint32_t priority;
} psc_push_options;

// A gradient, the mean over options->examples examples. options may be NULL: all of it 0. Staleness is measured against
// the versions that this client's last pull of the same blocks met.
void psc_push(psc_client *client, const psc_tensor *tensors, size_t n, const psc_push_options *options,
              psc_callback callback, void *arg, psc_op **op);

// A push, and the values after it into `into` (same variables and ranges, in order); sync: those after the round, for
// which it waits as a pull does. Takes a round trip where a push and a pull take two. Counts as a pull for staleness.
void psc_push_pull(psc_client *client, const psc_tensor *tensors, const psc_tensor *into, size_t n,
                   const psc_push_options *options, psc_callback callback, void *arg, psc_op **op);

// Weights for a step. Sync: waits until `round` has closed (0 before the first step).
void psc_pull(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback, void *arg,
              psc_op **op);

// A pull that has, of variables whose weights' average is kept (use_ema), that in the place of the value, from the
// first gradient on: what a training ends with, as Keras's does.
void psc_pull_averages(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t round, psc_callback callback,
                       void *arg, psc_op **op);

// A put that says how often the rule has been applied to these variables (0: as before): what a training that goes on
// from a checkpoint brings.
void psc_put_state(psc_client *client, const psc_tensor *tensors, size_t n, uint64_t steps, psc_callback callback,
                   void *arg, psc_op **op);

// Shards of a checkpoint: each ps task writes what it has of it to a file of its own, in the folder that it was started
// with (psd --checkpoints FOLDER), FOLDER/JOB/NAME-CHECKPOINT-ps-I-of-N.safetensors.
typedef struct psc_shards {
    const char *name;     // letters, digits, '.', '_' and '-', as the job's name then
    uint64_t checkpoint;  // an id that stands in all of them, and in no others; its upper half is that of a series
    uint32_t timeout_ms;  // of psc_write_shards and psc_load_shards; 0: ten minutes
    bool alone;           // psc_write_shards: nobody changes anything meanwhile, for which memory would be needed
} psc_shards;

// A psc_get whose values and slots, of float32, stay at the ps tasks and become shards. The tensors' data is not looked
// at; *shards is the library's until the end, which is when all shards are on disk.
// FAILED_PRECONDITION: a ps task has no folder for them, or its disk has no room. OUT_OF_RANGE: its memory has none for
// what changes meanwhile.
void psc_write_shards(psc_client *client, const psc_tensor *tensors, size_t n, const psc_shards *shards,
                      psc_callback callback, void *arg, psc_op **op);
// All ps tasks put what their shards have, as psc_put_state does with steps. Returns when all have. elements: of all of
// them. FAILED_PRECONDITION: they have others, as one is not there, or one is damaged or of variables that lie
// otherwise; some ps tasks may have put theirs.
psc_code psc_load_shards(psc_client *client, const psc_shards *shards, uint64_t elements, uint64_t steps,
                         psc_error *error);
// Removes shards named NAME-STEP at all ps tasks: those of this series, but for the n checkpoints in keep. Returns when
// all have.
psc_code psc_prune_shards(psc_client *client, const char *name, uint32_t series, const uint64_t *keep, size_t n,
                          psc_error *error);

// Waits for op, as long as its own deadline, and frees it. result may be NULL. op NULL: RESOURCE_EXHAUSTED, there was
// no memory for the operation.
psc_code psc_wait(psc_op *op, psc_result *result, psc_error *error);
// Has op ended? Waits at most timeout_ms for that; 0: looks. Frees nothing.
bool psc_done(psc_op *op, int timeout_ms);
// Ends op with CANCELLED, unless it has ended; what it asks for may take effect all the same, or a part of it. Does not
// wait for that: psc_wait follows. op may be NULL.
void psc_cancel(psc_op *op);

// Returns when every live worker of the job is in a barrier of this name. No limit but their lives. A worker is in one
// barrier, or call among workers, at a time. ABORTED: the job has ended, or another thread of this client has begun one
// since: then the client is of use; FAILED_PRECONDITION: an observer, or another worker is in one of another name;
// UNAVAILABLE, CANCELLED: as operations. The same errors end psc_lease and psc_clock, and what is among workers below.
psc_code psc_barrier(psc_client *client, const char *name, psc_error *error);

// Batches of an epoch's permutation: [first + k * stride, + count) for k = 0 ... steps - 1, each cut off at end, where
// one may be empty. count 0: the epoch is done by all.
typedef struct psc_share {
    uint64_t first, count, stride, end, steps;
    uint64_t round;     // sync: the first batch is for the round after this one
    psc_update update;  // the mode of the epoch: psc_options.update, unless psctl set-mode has changed it
    // What others have said with psc_count_from, which who comes late does not know; 0: nothing.
    uint64_t steps_before, iterations_before;
    uint64_t furthest;  // the greatest step that any worker has told psc_report of
} psc_share;

// Data sharding: what this worker trains next of an epoch's `examples`. Asking reports all shares that it was given as
// done. async, ssp: one batch of at most `want`. sync: its part of the epoch in batches of `want`, when all live
// workers ask; then its part of what dead workers have left; `round` is the last that this worker knows to be closed.
// INVALID_ARGUMENT: no ps task can have closed that.
psc_code psc_lease(psc_client *client, uint64_t epoch, uint64_t examples, uint64_t want, uint64_t round,
                   psc_share *share, psc_error *error);
// Of the epoch that this client leases first, so many examples have been trained already (fewer than it has), and no
// share has them; all workers say the same, before their first psc_lease.
void psc_skip_examples(psc_client *client, uint64_t epoch, uint64_t examples);
// The job goes on from a checkpoint of so many steps, after which its rule had been applied so often. All workers who
// are there from the beginning say the same, before their first psc_lease; who comes late has it with its psc_share.
void psc_count_from(psc_client *client, uint64_t steps, uint64_t iterations);
// async, ssp: the next share while the last one is still being trained, so that its first batch can be made meanwhile:
// reports those before the last as done. Does not wait. count 0: there is nothing to give now; when the last is done
// psc_lease says whether the epoch is. INVALID_ARGUMENT: in a sync job.
psc_code psc_lease_ahead(psc_client *client, uint64_t epoch, uint64_t examples, uint64_t want, psc_share *share,
                         psc_error *error);

// ssp: this worker has finished `step` steps. wait: returns when it is at most `staleness` steps ahead of the slowest
// live worker. *clock, *slowest (may be NULL): its own clock and the slowest's, then.
psc_code psc_clock(psc_client *client, uint64_t step, bool wait, uint64_t *clock, uint64_t *slowest, psc_error *error);

// ---- among workers ------------------------------------------------------------------------------------------------

// Every live worker of the job calls these in the same order; they wait for each other as in a barrier. Computed in
// rank order by the control task: the same bits for everyone. Of any size.
typedef enum psc_reduce_op { PSC_SUM = 1, PSC_MEAN = 2, PSC_MIN = 3, PSC_MAX = 4 } psc_reduce_op;
// data: count elements of float32, float64, int32 or int64; replaced by the result, on an error as it was. *workers
// (may be NULL): how many took part. Sums of integers wrap round, and their means are rounded towards 0. A NaN is the
// result wherever it takes part.
psc_code psc_reduce(psc_client *client, const char *name, psc_reduce_op op, psc_dtype dtype, void *data, uint64_t count,
                    uint32_t *workers, psc_error *error);
// Every worker brings `bytes` bytes, of a number of its own; *all gets them one after the other in rank order, and
// sizes[r] (r < workers of the job; may be NULL) how many came from rank r. Free *all with free().
psc_code psc_all_gather(psc_client *client, const char *name, const void *data, uint64_t bytes, void **all,
                        uint64_t *all_bytes, uint64_t *sizes, psc_error *error);
// The root's bytes to everyone. `bytes` is the same on all workers, which all have that much at data; others than the
// root bring nothing. ABORTED: the root is not in the job any more.
psc_code psc_broadcast(psc_client *client, const char *name, uint32_t root, void *data, uint64_t bytes,
                       psc_error *error);

// Changes a hyperparameter of the job's rule on all ps tasks. sync: in round *round (0: the next that is possible),
// which is then the one it will be in. Without rounds ps tasks do not clip by a norm: who pushes has to, and takes a
// new clipnorm or global_clipnorm from psc_hyper_changes. It is asked for again where the answer was lost: *round is
// then of the last attempt, and a round that was named may be OUT_OF_RANGE, as closed, with the new value. One change
// at a time: ABORTED, another is being made: try again, the client is of use; or the job has ended. INVALID_ARGUMENT:
// the rule has no such hyperparameter, or it takes no such value; FAILED_PRECONDITION: not declared yet; NOT_FOUND: no
// such job; UNAVAILABLE: a ps task has not answered; OUT_OF_RANGE: the round is closed; RESOURCE_EXHAUSTED: too many
// changes wait for their rounds, or no memory; DEADLINE_EXCEEDED; CANCELLED.
psc_code psc_set_hyper(psc_client *client, const char *name, double value, uint64_t *round, psc_error *error);

// A hyperparameter that psc_set_hyper has changed since the job was declared.
typedef struct psc_hyper_change {
    char name[PSC_HYPER_NAME];
    double value;
    uint64_t round;  // sync: the first that uses it; 0: since it came
} psc_hyper_change;

// All changes of the job's hyperparameters that the control task keeps, oldest first; free *changes with free().
// FAILED_PRECONDITION: not declared yet; NOT_FOUND: no such job; RESOURCE_EXHAUSTED: no memory; UNAVAILABLE,
// DEADLINE_EXCEEDED, ABORTED, CANCELLED.
psc_code psc_hyper_changes(psc_client *client, psc_hyper_change **changes, size_t *n, psc_error *error);

// sync: gradients that count for some variables alone, because their workers died while they sent them. worker, round:
// of the last one; 0 where there is none.
typedef struct psc_splits {
    uint64_t count, round;
    uint32_t worker;
} psc_splits;
// As the control task knows. UNAVAILABLE, DEADLINE_EXCEEDED: no answer; NOT_FOUND: no such job; ABORTED; CANCELLED.
psc_code psc_split_gradients(psc_client *client, psc_splits *splits, psc_error *error);

#ifdef __cplusplus
}
#endif
#endif
