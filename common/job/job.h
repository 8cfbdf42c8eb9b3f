// SPDX-License-Identifier: Apache-2.0
//
// A job: what is trained, on what, how. Read from a YAML file by one table (in job.c) that holds every key with its
// type, default and range; read by workerd and psctl.
//
//     model: model.json          # required: Keras JSON, or a .keras file
//     weights: w.safetensors     # to start from, or .weights.h5, .keras; default: those of a .keras model, else the
//                                #   model's initializers
//     data:
//       kind: csv                # required; the keys of each are below
//       scale: 1                 # x is multiplied by it where it becomes float: a number, or a quotient such as 1/255
//       shuffle: true
//       threads: 1               # that make batches; the same bits whatever their number
//       validation_split: 0      # the last so much of the training data is test data instead, as with Keras
//       inputs: {NAME: COLUMN}   # of a model's input: its column or columns; default: the column of its name, or where
//       outputs: {NAME: COLUMN}  #   there is one input, all x
//       weight: COLUMN           # sample weights
//       augment:                 # of inputs that are images, while training
//         flip: none             # or horizontal, vertical, both: half of the examples each
//         crop: 0                # zeros put around an image, from which its own size is cut out again anywhere
//         noise: 0               # standard deviation of what is added to each number, after scale
//     loss: mse                  # required: a loss (loss.c has the list) by any of Keras's names, or a map of its name,
//                                #   settings and weight: {name: huber, delta: 2}; of several outputs a list, or a
//                                #   map by their names, of these
//     metrics: []                # metrics (metric.c has the list): [accuracy, {name: top_k, k: 3}]; of several
//                                #   outputs a map by their names of such lists
//     class_weight: {}           # of examples in the training loss, by their class: {0: 1, 1: 5}; others weigh 1
//     optimizer:                 # or, with nothing but a name: `optimizer: adam`
//       name: adam               # required: sgd, adam, adamw, rmsprop, adagrad, adadelta, nadam, adamax, lion, ftrl,
//                                #   in any case; and its hyperparameters, with Keras's names and defaults (among them
//                                #   sgd's nesterov, rmsprop's centered, adam's and adamw's amsgrad), and those that
//                                #   all have:
//       learning_rate: 0.001     # or lr; or a schedule, see below
//       scale_learning_rate: none  # or linear, sqrt: it is multiplied by the number of replicas that the job begins
//                                #   with, or by its square root,
//       warmup_epochs: 0         #   to which it rises from what it is without that, in the first so many epochs
//       weight_decay: 0          # 0.004 with adamw
//       clipnorm: 0              # 0: off; of this, clipvalue and global_clipnorm at most one
//       gradient_accumulation_steps: 0  # 0: off; parameter_server, hybrid: with clipvalue alone of these three
//       use_ema: false           # the weights' average is kept, and is what a training ends with
//       ema_momentum: 0.99
//       ema_overwrite_frequency: 0  # every so many steps the weights become it
//     strategy:
//       name: parameter_server   # or local_steps, see below; or one_device, mirrored (replicas in one process),
//                                #   central_storage (likewise), multi_worker_mirrored (replicas in workers that have
//                                #   no ps task), for which of these there are update, which makes no difference, and
//                                #   refuse_nonfinite; and for the last three devices, compare_every; or hybrid: the
//                                #   tables of Embeddings on ps tasks, all else as multi_worker_mirrored has it
//       devices: [cpu:0, cpu:1]  # of a worker, one replica on each; default: one on `device`
//       cross_device_ops: auto   # mirrored: nccl, GPUs add up among themselves; hierarchical_copy, in the host's
//                                #   memory; or the first of these that can be; reduction_to_one_device, on the
//                                #   first GPU
//       communication: auto      # multi_worker_mirrored, hybrid: workers of one host share memory; or ring: none do;
//                                #   multi_worker_mirrored: or nccl, all GPUs of all workers add up among themselves,
//                                #   as they do with auto where they can
//       gradient_compression: none  # likewise: or bfloat16, float16: what travels from host to host;
//                                #   local_steps: or bfloat16, int8: what the ps tasks get
//       stall_seconds: 10        # likewise: a worker that waits for others for so long says for which
//       sync_batchnorm: false    # each BatchNormalization is by all replicas' examples, as if it were `synchronized`
//       compare_every: 0         # steps after which replicas see whether their variables are equal, to the bit
//       update: async            # or sync, ssp; local_steps: sync, or async; hybrid: sync
//       n_fetch: 1               # async: pull every so many steps
//       n_push: 1                # async: push every so many steps
//       staleness: N             # ssp, required: steps that a worker may be ahead of the slowest
//       replicas_to_aggregate: 0 # sync: gradients that close a round; 0: of all workers
//       grace_seconds: 0         # and so long it waits for the others then
//       refuse_nonfinite: false  # a gradient with a NaN or an infinity is an error
//       placement: greedy        # or round_robin
//       partitioner: none        # or fixed:N, min_bytes:B, max_bytes:B
//       min_workers: 1           # with fewer live ones the job ends
//       local_steps: 50          # local_steps: steps of a worker's own between two exchanges; the number near it that
//                                #   divides an epoch into equal periods
//       fragments: 1             # local_steps, sync: parts of the model, which are exchanged one after the other
//       fragment_sync_delay: 0   # local_steps, sync: what is pulled of a part is applied so many steps after its push
//       outer_optimizer:         # local_steps: what the ps tasks apply to the difference that so many steps make:
//                                #   an optimizer without schedule; or a name
//         name: sgd
//         learning_rate: 0.7     # these three defaults are sgd's here; other optimizers have Keras's. With update
//         momentum: 0.9          #   async: delayed_nesterov, 0.7 and 0.9, of delay 0: as many differences as there are
//         nesterov: true         #   workers; and sgd's momentum is 0
//     batch_size: 64             # per replica
//     epochs: 1
//     steps: 0                   # stop after so many; 0: no limit
//     seed: 0
//     threads: 1                 # per replica
//     device: cpu                # or ref
//     matmul_precision: float32  # or tensorfloat32, bfloat16: to which a GPU may round the factors of matrix products
//     cudnn: deterministic       # or fastest, none: which of cuDNN's algorithms a GPU's convolutions are computed by
//     bind: none                 # or auto: each replica on an equal part of the cores; or a mask of cores for each of the
//                                #   worker's replicas: 0x3,0xc
//     name: NAME                 # default: the file's name without its suffix
//     on_existing: refuse        # or resume, replace; with ps tasks alone, as delay_ms
//     timeout: 60                # seconds, for connecting and joining, and for an all-reduce among GPUs
//     delay_ms: 0                # for tests: each worker sleeps at random, at most so long, before it pushes
//     output: NAME.safetensors   # the final weights; or NAME.keras, NAME.weights.h5
//     callbacks: []              # a list, for which see callbacks.h:
//                                #   csv_log {path, separator: ","}, json_lines {path},
//                                #   tensorboard {path, histogram_freq: 0 (epochs), update_steps: 0},
//                                #   early_stopping {monitor: val_loss, mode: auto, min_delta: 0, patience: 0, baseline,
//                                #     restore_best_weights: false, start_from_epoch: 0},
//                                #   reduce_lr_on_plateau {monitor, mode, factor: 0.1, patience: 10, min_delta: 0.0001,
//                                #     cooldown: 0, min_lr: 0},
//                                #   terminate_on_nan,
//                                #   checkpoint {path, every_steps: 0, every_seconds: 0, keep: 1, sharded: false,
//                                #     save_best_only: false, monitor, mode}: each epoch where neither steps nor
//                                #     seconds are given; sharded: the ps tasks write what they keep,
//                                #   backup {path, every_steps, every_seconds, keep: 2, sharded,
//                                #     delete_checkpoint: true}
//
// Kinds of data (workerd/data/data.c has them in a table, with what the files look like):
//
//     idx               path: DIR
//     csv               path, test_path; separator: ","; header: auto (or true, false); columns (common/job/columns.h);
//                       label: the y column or columns, by name or number; default: the last
//     npy               x, y, x_test, y_test
//     npz               path, test_path; columns; label
//     cifar             path: DIR; classes: 10 (or 20, 100: those of CIFAR-100)
//     images            path: DIR, test_path: DIR; image_size: [H, W]; color: rgb (or grayscale)
//     tfrecord          path, test_path; columns; label; image_size, color of its images
//     text              path, test_path; window: 64; stride: the window; vocabulary: FILE, default: characters
//     synthetic-digits  train_examples: 20000, test_examples: 2000
//
// A learning rate that follows the step, by Keras's schedules:
//
//     learning_rate:
//       schedule: cosine         # or constant, exponential, piecewise, cosine_restarts, polynomial, inverse_time; or
//                                #   Keras's name of it, such as CosineDecay
//       initial: 0.1             # required, but with piecewise; or initial_learning_rate
//       decay_steps: 1000        # required, but with constant and piecewise; cosine_restarts: or first_decay_steps
//       decay_rate: 0.9          # exponential, inverse_time: required
//       staircase: false         # exponential, inverse_time
//       alpha: 0                 # cosine, cosine_restarts: the least, as a fraction of initial
//       t_mul: 2                 # cosine_restarts: each cosine is so many times as long as the one before,
//       m_mul: 1                 #   and so many times as high
//       end_learning_rate: 0.0001  # polynomial
//       power: 1                 # polynomial
//       cycle: false             # polynomial
//       boundaries: [100, 200]   # piecewise: required, at most 32 steps;
//       values: [0.1, 0.05, 0.01]  #          values[i] holds up to and with step boundaries[i]
//       warmup_steps: 0          # linear, from warmup_initial; the schedule's own steps are counted after it
//       warmup_initial: 0
//       warmup_target: 0.1       # cosine: as Keras has it, with initial_learning_rate for warmup_initial; is `initial`
//
// Paths are relative to the file they stand in; those that were assigned with --set, and the default of output, to the
// current directory.
#ifndef PS_COMMON_JOB_H
#define PS_COMMON_JOB_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "common/job/callbacks.h"
#include "common/job/columns.h"
#include "common/job/devices.h"
#include "common/job/outputs.h"
#include "common/math/rule.h"
#include "common/math/schedule.h"

enum ps_data_kind {
    PS_DATA_IDX,
    PS_DATA_CSV,
    PS_DATA_NPY,
    PS_DATA_NPZ,
    PS_DATA_CIFAR,
    PS_DATA_IMAGES,
    PS_DATA_TFRECORD,
    PS_DATA_TEXT,
    PS_DATA_DIGITS,
    PS_DATA_KINDS  // how many there are
};
enum ps_header { PS_HEADER_AUTO, PS_HEADER_YES, PS_HEADER_NO };
enum ps_color { PS_COLOR_RGB, PS_COLOR_GRAYSCALE };
enum ps_flip { PS_FLIP_NONE, PS_FLIP_HORIZONTAL, PS_FLIP_VERTICAL, PS_FLIP_BOTH };  // bits
enum ps_cross_device {
    PS_CROSS_DEVICE_AUTO,
    PS_CROSS_DEVICE_NCCL,
    PS_CROSS_DEVICE_HIERARCHICAL_COPY,
    PS_CROSS_DEVICE_REDUCTION_TO_ONE_DEVICE
};
enum ps_communication { PS_COMMUNICATION_AUTO, PS_COMMUNICATION_RING, PS_COMMUNICATION_NCCL };
enum ps_scale { PS_SCALE_NONE, PS_SCALE_LINEAR, PS_SCALE_SQRT };
enum ps_precision { PS_PRECISION_FLOAT32, PS_PRECISION_TENSORFLOAT32, PS_PRECISION_BFLOAT16 };
enum ps_cudnn { PS_CUDNN_DETERMINISTIC, PS_CUDNN_FASTEST, PS_CUDNN_NONE };
enum ps_compression { PS_COMPRESSION_NONE, PS_COMPRESSION_BFLOAT16, PS_COMPRESSION_FLOAT16, PS_COMPRESSION_INT8 };
enum ps_strategy {
    PS_STRATEGY_PARAMETER_SERVER,
    PS_STRATEGY_ONE_DEVICE,
    PS_STRATEGY_MIRRORED,
    PS_STRATEGY_MULTI_WORKER_MIRRORED,
    PS_STRATEGY_LOCAL_STEPS,
    PS_STRATEGY_CENTRAL_STORAGE,
    PS_STRATEGY_HYBRID
};

// Their names in a job file; ends with NULL.
extern const char *const ps_job_strategies[];

// Values of the two are those of the proto.
enum ps_update { PS_ASYNC = 1, PS_SYNC = 2, PS_SSP = 3 };
enum ps_on_existing { PS_REFUSE = 0, PS_RESUME = 1, PS_REPLACE = 2 };

struct ps_hyper {
    const char *name;  // static
    double value;
};

// A kind has those of these that its keys name; the others are 0.
struct ps_job_data {
    int kind;  // enum ps_data_kind
    char *path, *test_path;
    char *x, *y, *x_test, *y_test;
    uint64_t train_examples, test_examples;
    double scale;  // 0: 1
    int threads;
    double validation_split;  // [0, 1)
    struct ps_job_columns columns;
    struct ps_job_ports inputs, outputs;
    char *weight;              // a column
    struct ps_job_port label;  // columns
    char *separator;           // a character, or "tab"
    int header;                // enum ps_header
    int flip;                  // enum ps_flip
    int crop;                  // pixels
    double noise;              // standard deviation
    uint64_t image_size[2];    // height and width; 0: those of the first image
    int color;                 // enum ps_color
    int classes;               // cifar: 10, 20, 100
    int window, stride;        // text: tokens; stride 0: window
    char *vocabulary;          // text: a file
};

// local_steps: the rule that ps tasks apply. A rule's members are as those of the job's own optimizer.
struct ps_outer_optimizer {
    int optimizer;
    bool nesterov;
    const char *rule;
    struct ps_hyper hypers[PS_RULE_MAX_HYPERS];
    size_t n_hypers;
};

// Strings are owned by the job unless said otherwise; those not given are NULL.
struct ps_job {
    char *name;
    char *model, *weights, *output;
    struct ps_job_data data;
    bool shuffle;
    struct ps_job_losses loss;
    struct ps_job_metrics metrics;
    struct ps_class_weights class_weight;

    int optimizer;                               // index in ps_job_optimizers, for ps_job_json, as
    bool nesterov, centered, amsgrad;            // are these: the rule is picked by them
    const char *rule;                            // of common/math/rule.h; static
    struct ps_hyper hypers[PS_RULE_MAX_HYPERS];  // all that the rule has, in its order
    size_t n_hypers;
    struct ps_schedule schedule;  // of the learning rate, whose hyperparameter is then the rate of step 0
    int scale_rate;               // enum ps_scale
    double warmup_epochs;         // 0 where scale_rate is none
    struct {                      // what the file says of both, before ps_job_scale_rate
        double rate;
        struct ps_schedule schedule;
    } written;

    int strategy;                   // enum ps_strategy
    int update;                     // enum ps_update
    char *placement, *partitioner;  // as ps_placement_parse takes them
    int min_workers;
    int n_fetch, n_push;        // async, else 0
    int staleness;              // ssp, else 0
    int replicas_to_aggregate;  // sync; 0: all
    double grace_seconds;       // for those beyond them
    bool refuse_nonfinite;
    int stall_seconds;                // multi_worker_mirrored, hybrid, else 0
    int cross_device;                 // enum ps_cross_device
    int communication;                // enum ps_communication
    int compression;                  // enum ps_compression
    bool sync_batchnorm;              // as devices, else false
    uint64_t compare_every;           // as devices: steps; 0: never
    struct ps_job_devices devices;    // where there are replicas: one on each; none: one on `device`
    int local_steps;                  // local_steps, else 0
    int fragments, fragment_delay;    // local_steps and sync, else 0; the delay is below local_steps
    struct ps_outer_optimizer outer;  // local_steps

    int batch_size, threads;  // per replica
    uint64_t epochs, steps, seed;
    char *device;
    int matmul_precision;  // enum ps_precision
    int cudnn;             // enum ps_cudnn
    char *bind;            // none, auto, or masks
    int on_existing;       // enum ps_on_existing
    int timeout;           // seconds
    int delay_ms;
    struct ps_callbacks callbacks;
};

// Reads the job file at path with sets ("KEY=VALUE") laid over it in order. INVALID_ARGUMENT: "FILE:LINE: ..." or
// "--set KEY: ..." and what was expected; NOT_FOUND and the like: the file cannot be read.
enum ps_code ps_job_load(const char *path, const char *const *sets, size_t n_sets, struct ps_job **job,
                         struct ps_error *e);
// The same from memory; path is where the text is said to come from.
enum ps_code ps_job_parse(const char *text, size_t len, const char *path, const char *const *sets, size_t n_sets,
                          struct ps_job **job, struct ps_error *e);
// As schedules count steps: each gradient is one where they are applied one by one, else one of all replicas is, or of
// replicas_to_aggregate.
uint64_t ps_job_examples_per_step(const struct ps_job *job, uint32_t replicas);
// Applies optimizer.scale_learning_rate and warmup_epochs to the learning rate, once, where it is known how many
// replicas train so many examples per epoch. INVALID_ARGUMENT: the rate becomes too great.
enum ps_code ps_job_scale_rate(struct ps_job *job, uint32_t replicas, uint64_t examples, struct ps_error *e);
// After that: "learning rate 0.4: 0.1 times 4, for 4 replicas; from 0.1 in the first 100 steps".
void ps_job_scale_text(const struct ps_job *job, uint32_t replicas, char *to, size_t size);
// The update rule, and its hyperparameters: those of the job, else the rule's defaults. INVALID_ARGUMENT: there is no
// such rule, or it has no such hyperparameter.
enum ps_code ps_job_rule(const struct ps_job *job, const struct ps_rule **rule, double hyper[PS_RULE_MAX_HYPERS],
                         struct ps_error *e);
// The same of the rule that the ps tasks apply: the outer optimizer's, where there is one.
enum ps_code ps_job_server_rule(const struct ps_job *job, const struct ps_rule **rule, double hyper[PS_RULE_MAX_HYPERS],
                                struct ps_error *e);
// Does the strategy keep variables on ps tasks?
bool ps_job_needs_ps(const struct ps_job *job);
// Do its workers have to reach each other?
bool ps_job_needs_peers(const struct ps_job *job);
// Does the first worker that is lost end it?
bool ps_job_needs_all_workers(const struct ps_job *job);
// With fewer live workers it ends.
uint32_t ps_job_min_workers(const struct ps_job *job, uint32_t workers);
void ps_job_free(struct ps_job *job);

// Does it write files from which a training goes on? With --resume all checkpoints are such files, without it backups.
bool ps_job_goes_on(const struct ps_job *job, bool resume);
// FAILED_PRECONDITION: none with --resume. file: the job's.
enum ps_code ps_job_check_resume(const struct ps_job *job, const char *file, struct ps_error *e);

// Before a job takes its time: can its weights be read, and its output and the summary (may be NULL) be written, as far
// as can be seen now? And do none of these, the timeline (may be NULL) and what callbacks write go to the same file?
// NOT_FOUND, PERMISSION_DENIED of the weights; CANNOT_CREATE; INVALID_ARGUMENT.
enum ps_code ps_job_check_files(const struct ps_job *job, const char *summary, const char *timeline,
                                struct ps_error *e);

// The effective job, defaults and all, in the form of a job file (which, JSON being YAML, it is). A new reference.
json_t *ps_job_json(const struct ps_job *job);

// Puts a folder before every path that is relative, so that the job means the same files wherever it is read.
// INVALID_ARGUMENT: one of the paths is not UTF-8, and no JSON can have it.
enum ps_code ps_job_make_absolute(struct ps_job *job, const char *folder, struct ps_error *e);

// What all workers of a job must have alike, of the job file: lines KEY=VALUE, malloc'd. Names of files and what
// concerns one worker alone (threads, device, ...) are not among them; a long value is there by its hash.
char *ps_job_configuration(const struct ps_job *job);
// The same of one that an older version wrote, which may have names of files in it, and long values. malloc'd.
char *ps_job_configuration_renew(const char *older);
// Is a line of one, or its key alone, of a key without a default? The configuration of a job that does not say it has
// no such line.
bool ps_job_configuration_is_optional(const char *line);

#endif
