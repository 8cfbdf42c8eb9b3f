// SPDX-License-Identifier: Apache-2.0
//
// The fields of a job file: one table says what each is, which jobs have it, and what it is where a file says nothing.
// It is read to take a job from a file, to write one back, and to free one. For common/job alone.
#ifndef PS_COMMON_JOB_FIELD_H
#define PS_COMMON_JOB_FIELD_H

#include "common/file/yaml.h"
#include "common/job/job.h"

enum ps_job_field_type {
    CHOICE,    // int: index in words, plus first
    WORD,      // char *: one of words
    STRING,    // char *
    PATH,      // char *: a file or folder
    COUNT,     // uint64_t, min .. max
    SMALL,     // int, min .. max
    FLAG,      // bool
    REAL,      // double
    QUOTIENT,  // double: "1/255", or a number; not 0
    COLUMNS,   // struct ps_job_columns
    PORT,      // struct ps_job_port
    PORTS,     // struct ps_job_ports
    SIZES,     // uint64_t[2]
    DEVICES,   // struct ps_job_devices
    LOSSES,    // struct ps_job_losses
    METRICS,   // struct ps_job_metrics
    CLASSES,   // struct ps_class_weights
    // struct ps_schedule: lists of numbers
    BOUNDARIES,
    VALUES,
    CALLBACKS,  // struct ps_callbacks
};

struct ps_job_field {
    const char *path;
    enum ps_job_field_type type;
    size_t offset;
    const char *fallback;  // as it would stand in a file; NULL: none
    const char *const *words;
    const char *const *elsewhere;  // words known from TensorFlow, which get a better sentence
    int first;                     // CHOICE: value of words[0]
    uint64_t min, max;
    int by;                       // the field that decides, of:
    unsigned kinds;               // those that have it; 0: all
    unsigned required;            // those that must have it
    unsigned strategies;          // those that have it; 0: all
    bool own;                     // workers of one job may differ in it
    const char *rounds_fallback;  // the fallback with strategies local_steps and hybrid; NULL: no other
    const char *async_fallback;   // the fallback with update async; NULL: no other
};

extern const struct ps_job_field ps_job_fields[];
extern const size_t ps_job_n_fields;

#define RATE "optimizer.learning_rate"
#define OUTER "strategy.outer_optimizer"

#define EACH_FIELD(f)                             \
    const struct ps_job_field *f = ps_job_fields; \
    f < ps_job_fields + ps_job_n_fields;          \
    f++

// If path is word (len bytes) or begins with it and a dot: what follows the dot, or "". Else NULL.
const char *ps_job_path_below(const char *path, const char *word, size_t len);
// Every key below map (whose path is parent, "" for the root) is a field or leads to one. INVALID_ARGUMENT: one is not.
enum ps_code ps_job_check_keys(const struct ps_yaml *map, const char *parent, struct ps_error *e);
// A field with a value takes it, one without its default. In the table's order: what decides stands before those for
// which it decides.
enum ps_code ps_job_field_take(const struct ps_job_field *f, const struct ps_yaml *root, struct ps_job *job,
                               struct ps_error *e);

// Where the job has its value.
void *ps_job_field_in(const struct ps_job *job, const struct ps_job_field *f);
// Has a job with such a strategy, data, optimizer, ... this field?
bool ps_job_field_applies(const struct ps_job_field *f, const struct ps_job *job);
// The word that the job has for a CHOICE.
const char *ps_job_field_word(const struct ps_job *job, const char *path);

#endif
