// SPDX-License-Identifier: Apache-2.0
//
// Initializers: read from Keras's JSON, drawn from Philox. Names, defaults and formulas are Keras's
// (keras.initializers); the random numbers are our own.
#include <math.h>
#include <string.h>

#include "common/math/philox.h"
#include "workerd/nn/model.h"
#include "workerd/nn/setting.h"

enum fan { FAN_NONE, FAN_IN, FAN_OUT, FAN_AVG };

// A row of what Keras knows. With a fan, the variance is scale / fan; without, key[] names what config says.
static const struct init_class {
    const char *name, *function;  // "GlorotUniform", "glorot_uniform"
    enum nn_init_kind kind;
    enum fan fan;
    double scale;
    const char *key[2];
    double value[2];  // their defaults
} classes[] = {
    {"GlorotUniform", "glorot_uniform", NN_INIT_UNIFORM, FAN_AVG, 1, {0}, {0}},
    {"GlorotNormal", "glorot_normal", NN_INIT_TRUNCATED, FAN_AVG, 1, {0}, {0}},
    {"HeUniform", "he_uniform", NN_INIT_UNIFORM, FAN_IN, 2, {0}, {0}},
    {"HeNormal", "he_normal", NN_INIT_TRUNCATED, FAN_IN, 2, {0}, {0}},
    {"LecunUniform", "lecun_uniform", NN_INIT_UNIFORM, FAN_IN, 1, {0}, {0}},
    {"LecunNormal", "lecun_normal", NN_INIT_TRUNCATED, FAN_IN, 1, {0}, {0}},
    {"RandomUniform", "random_uniform", NN_INIT_UNIFORM, FAN_NONE, 0, {"minval", "maxval"}, {-0.05, 0.05}},
    {"RandomNormal", "random_normal", NN_INIT_NORMAL, FAN_NONE, 0, {"mean", "stddev"}, {0, 0.05}},
    {"TruncatedNormal", "truncated_normal", NN_INIT_TRUNCATED, FAN_NONE, 0, {"mean", "stddev"}, {0, 0.05}},
    {"Zeros", "zeros", NN_INIT_CONSTANT, FAN_NONE, 0, {0}, {0}},
    {"Ones", "ones", NN_INIT_CONSTANT, FAN_NONE, 0, {0}, {1}},
    {"Constant", "constant", NN_INIT_CONSTANT, FAN_NONE, 0, {"value"}, {0}},
    {"VarianceScaling", "variance_scaling", NN_INIT_TRUNCATED, FAN_IN, 1, {0}, {0}},  // as it is without settings
    {"Identity", "identity", NN_INIT_IDENTITY, FAN_NONE, 0, {"gain"}, {1}},
    {"Orthogonal", "orthogonal", NN_INIT_ORTHOGONAL, FAN_NONE, 0, {"gain"}, {1}},
};
enum { CLASSES = sizeof classes / sizeof classes[0] };

const char *nn_initializer_name(size_t i)
{
    return i < CLASSES ? classes[i].name : NULL;
}

// "Orthogonal", "orthogonal", or "OrthogonalInitializer" as Keras before 3.8 writes it.
static bool init_is_named(const struct init_class *class, const char *name)
{
    const size_t n = strlen(class->name);
    if (strcmp(name, class->function) == 0)
        return true;
    return strncmp(name, class->name, n) == 0 && (!name[n] || strcmp(name + n, "Initializer") == 0);
}

static const struct init_class *init_find_class(const char *name)
{
    for (int i = 0; i < CLASSES; i++)
        if (init_is_named(&classes[i], name))
            return &classes[i];
    return NULL;
}

static enum ps_code unknown_class(const struct nn_json *at, const char *name, struct ps_error *e)
{
    const char *known[CLASSES + 1] = {0};
    char list[320];
    for (int i = 0; i < CLASSES; i++)
        known[i] = classes[i].name;
    const char *near = ps_nearest(name, known, CLASSES);
    if (near)
        return nn_json_expected(at, e, "an initializer that is known (did you mean %s?)", near);
    return nn_json_expected(at, e, "one of %s", nn_json_list(known, list, sizeof list));
}

static enum ps_code read_config(const struct nn_json *config, const struct init_class *class, double value[2],
                                struct ps_error *e)
{
    const char *known[4] = {"seed", class->key[0], class->key[1], NULL};
    if (!nn_json_given(config))
        return PS_OK;
    enum ps_code code = nn_json_object(config, e);
    if (code == PS_OK)
        code = nn_json_only(config, known, e);
    for (int i = 0; code == PS_OK && i < 2 && class->key[i]; i++) {
        struct nn_json number = nn_json_member(config, class->key[i]);
        double min = strcmp(class->key[i], "stddev") == 0 ? 0 : -1e30;
        if (nn_json_given(&number))
            code = nn_json_real(&number, min, 1e30, &value[i], e);
    }
    return code;
}

// Keras's compute_fans: a kernel is (receptive field..., in, out).
static double fan_of(enum fan fan, const uint64_t *shape, size_t rank)
{
    double field = 1, in = rank ? (double)shape[0] : 1, out = in;
    if (rank >= 2) {
        for (size_t i = 0; i + 2 < rank; i++)
            field *= (double)shape[i];
        in = field * (double)shape[rank - 2];
        out = field * (double)shape[rank - 1];
    }
    return fan == FAN_IN ? in : fan == FAN_OUT ? out : (in + out) / 2;
}

static struct nn_init init_scaled(const struct init_class *class, const uint64_t *shape, size_t rank)
{
    double variance = class->scale / fan_of(class->fan, shape, rank), limit = sqrt(3 * variance);
    if (class->kind == NN_INIT_UNIFORM)
        return (struct nn_init){.kind = NN_INIT_UNIFORM, .a = -limit, .b = limit};
    if (class->kind == NN_INIT_NORMAL)
        return (struct nn_init){.kind = NN_INIT_NORMAL, .b = sqrt(variance)};
    // 0.8796... is the standard deviation of a unit normal cut at two: the cut one is to have the variance asked for.
    return (struct nn_init){.kind = NN_INIT_TRUNCATED, .b = sqrt(variance) / 0.87962566103423978};
}

// ---- VarianceScaling ----------------------------------------------------------------------------------------------

struct init_word {
    const char *word;
    int value;
};

static enum ps_code init_read_word(const struct nn_json *config, const char *key, const struct init_word *words,
                                   const char *list, int *value, struct ps_error *e)
{
    struct nn_json at = nn_json_member(config, key);
    const char *word;
    if (!nn_json_given(&at))
        return PS_OK;
    if (nn_json_string(&at, &word, e))
        return e->code;
    for (; words->word; words++) {
        if (strcmp(word, words->word) != 0)
            continue;
        *value = words->value;
        return PS_OK;
    }
    return nn_json_expected(&at, e, "%s", list);
}

static enum ps_code init_read_scaling(const struct nn_json *config, struct init_class *class, struct ps_error *e)
{
    static const char *const known[] = {"seed", "scale", "mode", "distribution", NULL};
    static const struct init_word modes[] = {{"fan_in", FAN_IN}, {"fan_out", FAN_OUT}, {"fan_avg", FAN_AVG}, {NULL, 0}};
    static const struct init_word distributions[] = {{"truncated_normal", NN_INIT_TRUNCATED},
                                                     {"normal", NN_INIT_TRUNCATED},
                                                     {"untruncated_normal", NN_INIT_NORMAL},
                                                     {"uniform", NN_INIT_UNIFORM},
                                                     {NULL, 0}};
    struct nn_json scale = nn_json_member(config, "scale");
    int fan = class->fan, kind = class->kind;
    if (nn_json_object(config, e) || nn_json_only(config, known, e) ||
        (nn_json_given(&scale) && nn_json_real(&scale, 1e-30, 1e30, &class->scale, e)) ||
        init_read_word(config, "mode", modes, "fan_in, fan_out or fan_avg", &fan, e) ||
        init_read_word(config, "distribution", distributions, "truncated_normal, untruncated_normal or uniform", &kind,
                       e))
        return e->code;
    class->fan = (enum fan)fan;
    class->kind = (enum nn_init_kind)kind;
    return PS_OK;
}

// ---- read ---------------------------------------------------------------------------------------------------------

// A matrix of all dimensions but the last, and the last.
static enum ps_code init_check_matrix(const struct nn_json *at, const struct init_class *class, const uint64_t *shape,
                                      size_t rank, struct nn_init *init, struct ps_error *e)
{
    if (class->kind != NN_INIT_IDENTITY && class->kind != NN_INIT_ORTHOGONAL)
        return PS_OK;
    if (rank < 2 || (class->kind == NN_INIT_IDENTITY && rank > 2))
        return nn_json_fail(at, e, "%s expected a variable of %s dimensions, not of %zu", class->name,
                            class->kind == NN_INIT_IDENTITY ? "2" : "2 or more", rank);
    init->columns = shape[rank - 1];
    init->rows = 1;
    for (size_t i = 0; i + 1 < rank; i++)
        init->rows *= shape[i];
    return PS_OK;
}

enum ps_code nn_init_read(const struct nn_json *at, const char *fallback, const uint64_t *shape, size_t rank,
                          struct nn_init *init, struct ps_error *e)
{
    struct nn_json class_name = nn_json_member(at, "class_name"), config = nn_json_member(at, "config");
    const struct nn_json *named = json_is_object(at->value) ? &class_name : at;
    const char *name = fallback;
    enum ps_code code = nn_json_given(at) ? nn_json_string(named, &name, e) : PS_OK;
    if (code == PS_OK)
        code = nn_setting_class(at, e);
    if (code != PS_OK)
        return code;
    const struct init_class *found = init_find_class(name);
    if (!found)
        return unknown_class(named, name, e);
    struct init_class class = *found;
    double value[2] = {class.value[0], class.value[1]};
    const bool scaling = strcmp(class.name, "VarianceScaling") == 0 && nn_json_given(&config);
    if (scaling ? init_read_scaling(&config, &class, e) : read_config(&config, &class, value, e))
        return e->code;
    struct nn_init made = class.fan == FAN_NONE ? (struct nn_init){.kind = class.kind, .a = value[0], .b = value[1]}
                                                : init_scaled(&class, shape, rank);
    if (init_check_matrix(at, &class, shape, rank, &made, e))
        return e->code;
    *init = made;
    return PS_OK;
}

// Four values at a time: one block of Philox. Element i is value i % 4 of group i / 4.

static void init_uniform4(uint64_t seed, uint64_t index, uint64_t group, double z[4])
{
    uint32_t word[4];
    ps_philox(seed, PS_RANDOM_INIT, index, group, word);
    for (int i = 0; i < 4; i++)
        z[i] = (double)ps_uniform(word[i]);
}

// Box and Muller, 1958: two normals from two uniforms, the first in (0, 1].
static void init_normal4(uint64_t seed, uint64_t index, uint64_t group, double z[4])
{
    double u[4];
    init_uniform4(seed, index, group, u);
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(1 - u[i])), angle = 2 * M_PI * u[i + 1];
        z[i] = radius * cos(angle);
        z[i + 1] = radius * sin(angle);
    }
}

// As Keras: drawn again until within two standard deviations. The attempt is counted above the bits of the group.
static void init_truncated4(uint64_t seed, uint64_t index, uint64_t group, double z[4])
{
    unsigned missing = 0xf;
    for (uint64_t attempt = 0; missing; attempt++) {
        double draw[4];
        init_normal4(seed, index, attempt << 48 | group, draw);
        for (int i = 0; i < 4; i++) {
            if (missing & 1u << i && fabs(draw[i]) <= 2) {
                z[i] = draw[i];
                missing &= ~(1u << i);
            }
        }
    }
}

// The vectors of a matrix: its columns, or its rows where there are fewer. Element i of vector k is at k * step + i *
// next.
struct init_vectors {
    uint64_t n, length, step, next;
};

static void init_take_off(const struct init_vectors *v, float *value, uint64_t k, uint64_t other)
{
    const float *q = value + other * v->step;
    float *x = value + k * v->step;
    double dot = 0;
    for (uint64_t i = 0; i < v->length; i++)
        dot += (double)q[i * v->next] * (double)x[i * v->next];
    for (uint64_t i = 0; i < v->length; i++)
        x[i * v->next] -= (float)(dot * (double)q[i * v->next]);
}

// Gram and Schmidt, each vector twice, which leaves nothing (Giraud, Langou and Rozloznik 2005). Of normal numbers it
// gives what Keras gets by a QR decomposition whose R has positive numbers on its diagonal.
static void init_make_orthogonal(const struct nn_init *init, float *value)
{
    const bool tall = init->rows >= init->columns;
    const struct init_vectors v = {tall ? init->columns : init->rows, tall ? init->rows : init->columns,
                                   tall ? 1 : init->columns, tall ? init->columns : 1};
    for (uint64_t k = 0; k < v.n; k++) {
        for (int twice = 0; twice < 2; twice++)
            for (uint64_t other = 0; other < k; other++)
                init_take_off(&v, value, k, other);
        double squares = 0;
        for (uint64_t i = 0; i < v.length; i++)
            squares += (double)value[k * v.step + i * v.next] * (double)value[k * v.step + i * v.next];
        for (uint64_t i = 0; i < v.length; i++)
            value[k * v.step + i * v.next] = (float)((double)value[k * v.step + i * v.next] / sqrt(squares));
    }
    for (uint64_t i = 0; i < init->rows * init->columns; i++)
        value[i] = (float)(init->a * (double)value[i]);
}

static void init_draw_each(const struct nn_init *init, uint64_t seed, uint64_t index, uint64_t count, float *value)
{
    for (uint64_t first = 0; first < count; first += 4) {
        double z[4] = {0}, scale = init->b;
        if (init->kind == NN_INIT_UNIFORM) {
            init_uniform4(seed, index, first / 4, z);
            scale = init->b - init->a;
        } else if (init->kind == NN_INIT_NORMAL || init->kind == NN_INIT_ORTHOGONAL) {
            init_normal4(seed, index, first / 4, z);
        } else if (init->kind == NN_INIT_TRUNCATED) {
            init_truncated4(seed, index, first / 4, z);
        }
        for (uint64_t i = 0; i < 4 && first + i < count; i++)
            value[first + i] = (float)(init->a + scale * z[i]);
    }
}

void nn_init_draw(const struct nn_init *init, uint64_t seed, uint64_t index, uint64_t count, float *value)
{
    const struct nn_init normal = {.kind = NN_INIT_NORMAL, .b = 1};
    if (init->kind == NN_INIT_ORTHOGONAL) {
        init_draw_each(&normal, seed, index, count, value);
        init_make_orthogonal(init, value);
    } else if (init->kind == NN_INIT_IDENTITY) {
        for (uint64_t i = 0; i < count; i++)
            value[i] = i / init->columns == i % init->columns ? (float)init->a : 0;
    } else {
        init_draw_each(init, seed, index, count, value);
    }
    for (uint64_t i = init->ones_begin; i < init->ones_end; i++)
        value[i] = 1;
}
