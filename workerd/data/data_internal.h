// SPDX-License-Identifier: Apache-2.0
//
// What the files of workerd/data share. A parser is a function over a buffer, so that it can be fuzzed; its errors say
// what and where in the file, and the loader that read the file puts its path before them.
#ifndef WK_DATA_INTERNAL_H
#define WK_DATA_INTERNAL_H

#include <stdatomic.h>

#include "common/file/npy.h"
#include "workerd/data/data.h"
#include "workerd/data/source.h"

// What a model's input, a loss's target or the sample weights are made of: columns of the source, side by side.
struct wk_port {
    const char *name;     // the input's or output's; the model's
    enum nn_dtype dtype;  // of the batch: NN_FLOAT or NN_INT32
    size_t count;         // elements of one example
    size_t *column;
    size_t n;
    double scale;     // floats are multiplied by it
    bool label;       // class numbers
    int32_t classes;  // of labels, which are below it
    size_t image[3];  // an input that is augmented: height, width, channels; else zeros
};

struct wk_part {
    struct wk_split split;
    struct wk_source *source;                                          // NULL: none
    uint64_t first;                                                    // of the split's examples, in the source
    struct wk_port input[NN_MAX_PORTS], target[NN_MAX_PORTS], weight;  // weight.n = 0: none
    size_t inputs, targets;
};

struct wk_augment {
    int flip;      // enum ps_flip
    int crop;      // pixels
    double noise;  // standard deviation
};

struct wk_data {
    struct wk_part train, test;
    bool shared;                     // both have one source
    const struct ps_job_data *spec;  // borrowed until bound
    const struct nn_model *model;    // likewise; NULL: not known
    // The words of the input of strings that a column goes to, by its name or number; NULL: to none. A pointer, so that
    // readers do without bind.c and the model.
    const struct nn_words *(*words)(const struct wk_data *data, const char *column);
    uint64_t numbering;  // wk_data_numbering
    struct wk_augment augment;
    int threads;
    struct ps_track *track;             // of the batches that feeds make; NULL: none
    const volatile sig_atomic_t *stop;  // NULL: no signal ends a wait
    atomic_bool held;                   // a thread of a feed that is gone still reads them
};

// One example of a port, read, converted and scaled. raw has room for the largest column's elements. The error says
// where.
enum ps_code wk_port_read(const struct wk_part *part, const struct wk_port *port, uint64_t example, void *raw, void *to,
                          struct ps_error *e);
size_t wk_part_raw(const struct wk_part *part);  // bytes that raw takes
// Flips, crops and adds noise to one example's input number k, (h, w, c), as Philox(seed, PS_RANDOM_AUGMENT, epoch,
// example) says. raw as above, and as large as the image.
void wk_augment(const struct wk_augment *a, const struct wk_port *port, uint32_t k, uint64_t seed, uint64_t epoch,
                uint64_t example, float *raw, float *to);

// ---- IDX: magic (0, 0, type, rank), the dimensions as big-endian 32 bits, the elements. Only unsigned bytes (type 8)

struct wk_idx {
    uint64_t shape[PS_MAX_RANK];
    size_t rank;
    size_t header;   // bytes before the elements
    uint64_t count;  // elements
};
// size: of the whole file, of which the first `have` bytes are there. Neither short nor with bytes to spare.
enum ps_code wk_idx_parse(const uint8_t *bytes, size_t have, uint64_t size, size_t rank, struct wk_idx *idx,
                          struct ps_error *e);

// ---- npy and npz --------------------------------------------------------------------------------------------------

// One element of any kind but 'S', 'V' and float16, little-endian.
double wk_element(char kind, size_t width, const uint8_t *at);
// The header of size bytes, of which the first `have` are there: npy->elements - bytes is where the elements begin.
enum ps_code wk_npy_parse(const uint8_t *bytes, size_t have, uint64_t size, struct ps_npy *npy, struct ps_error *e);
// Adds an npy's first dimension as examples; with the first column they set the source's. [offset, offset + size) of
// the block is the npy.
enum ps_code wk_npy_add(struct wk_source *s, const char *name, struct wk_block *block, uint64_t offset, uint64_t size,
                        struct ps_error *e);

// ---- words with numbers -------------------------------------------------------------------------------------------

// Bytes of the byte-order mark that spreadsheets and editors put before UTF-8; 0: there is none.
size_t wk_text_mark(const void *text, size_t size);
char *wk_text_copy(const char *text, size_t size);  // malloc'd, with a zero after it

struct wk_vocabulary {
    char **word;
    size_t n;
    uint32_t *slot;  // a hash table of 1 + the word's number
    size_t slots;
    bool fixed;  // nothing is added any more
};
// Its number; a new one unless it is fixed: then -1 where there is no such word.
int32_t wk_vocabulary_find(struct wk_vocabulary *v, const char *word, size_t size);
// A file of one word per line, none twice; then it is fixed.
enum ps_code wk_vocabulary_load(struct wk_vocabulary *v, const char *path, struct ps_error *e);
void wk_vocabulary_fini(struct wk_vocabulary *v);
// The hash of what h is the hash of, followed by the words in the order of their numbers.
uint64_t wk_vocabulary_hash(uint64_t h, const struct wk_vocabulary *v);
// The words of an input of the model, and no others.
void wk_vocabulary_of(struct wk_vocabulary *v, const struct nn_words *words);
const struct nn_words *wk_bind_words(const struct wk_data *data, const char *column);  // wk_data.words

// ---- CSV, by RFC 4180 ---------------------------------------------------------------------------------------------

// What the file has to say, and what was learned from the training file: the test file has the same.
struct wk_csv_format {
    char separator;
    int header;  // enum ps_header
    const struct ps_job_columns *columns;
    const struct wk_data *data;        // that says which fields go to inputs of strings; NULL: none does
    const struct nn_words **words;     // of each field that does
    struct wk_vocabulary *vocabulary;  // one per field, of categories
    char **name;                       // of each field
    int *type;                         // enum ps_column_type of each field
    size_t fields;                     // 0: nothing is known yet
    bool warned;                       // of words that are unknown by their blanks
};
struct wk_csv {
    uint64_t rows;
    union wk_csv_cell {
        float number;
        int32_t integer;  // of categories, and
    } * cell;             // (rows, fields)
    uint64_t *line;       // (rows) where each begins
    struct wk_csv_column {
        bool ints;       // numbers that are kept as integers,
        bool rounded;    // as floats make other integers of them,
        uint64_t other;  // and all of them are integers of 32 bits; else 1 + the row of one that is not
    } * column;          // (fields)
};
enum ps_code wk_csv_parse(const char *text, size_t size, struct wk_csv_format *format, struct wk_csv *csv,
                          struct ps_error *e);
void wk_csv_format_fini(struct wk_csv_format *format);
void wk_csv_fini(struct wk_csv *csv);

// ---- CIFAR: how many examples a file of so many bytes has ---------------------------------------------------------

enum ps_code wk_cifar_parse(uint64_t size, int classes, uint64_t *examples, struct ps_error *e);

// ---- text ---------------------------------------------------------------------------------------------------------

struct wk_text {
    struct wk_vocabulary vocabulary;  // of words; empty: characters
    int32_t *code;                    // of characters, by code point: 1 + the number; 0: there is none
    bool known;                       // the training text has said which characters there are
    int32_t classes;
    int32_t *token;  // of the text last parsed
    uint64_t tokens;
};
// Sets token; the one before is to be freed first.
enum ps_code wk_text_parse(const uint8_t *text, size_t size, struct wk_text *t, struct ps_error *e);
void wk_text_fini(struct wk_text *t);

// ---- digits: images drawn by the program. Draws example number `example` of a seed; returns its label --------------

enum { WK_DIGIT_SIDE = 28, WK_DIGIT_PIXELS = WK_DIGIT_SIDE * WK_DIGIT_SIDE };
int32_t wk_digit_draw(uint64_t seed, uint64_t example, uint8_t pixels[WK_DIGIT_PIXELS]);

// ---- one per kind of data: opens the sources. On error they may be there, and are freed by wk_data_free ------------

enum ps_code wk_idx_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_csv_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_npy_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_npz_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_text_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_tfrecord_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_images_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_cifar_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);
enum ps_code wk_digits_open(const struct ps_job_data *spec, uint64_t seed, struct wk_data *data, struct ps_error *e);

#endif
