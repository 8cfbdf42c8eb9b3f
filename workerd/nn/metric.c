// SPDX-License-Identifier: Apache-2.0
//
// keras/src/metrics.
#include "workerd/nn/metric.h"

#include <math.h>
#include <stdlib.h>

static const double EPSILON = 1e-7;  // Keras's
enum { MAX_CONFUSION = 1000 };

// One row.
struct metric_row {
    size_t width;
    const float *y, *t;  // t NULL: a class
    int32_t label;
    double weight;
};

struct metric_class {
    size_t (*states)(const struct ps_metric *m, size_t width);
    void (*update)(const struct ps_metric *m, const struct metric_row *r, double *state);
    void (*result)(const struct ps_metric *m, size_t width, const double *state, double *value);
    size_t (*values)(const struct ps_metric *m, size_t width);               // NULL: 1
    enum { OF_NUMBERS = 1, OF_CLASSES = 2, OF_MANY = 4, OF_MASKED = 8 } of;  // not of labels; of two or more columns
};

static double metric_target(const struct metric_row *r, size_t i)
{
    return r->t ? (double)r->t[i] : (size_t)r->label == i;
}

static double metric_divide(double a, double b)
{
    return b > 0 || b < 0 || isnan(b) ? a / b : 0;
}

// ---- means of numbers: the sum and the weight ----------------------------------------------------------------------

static size_t mean_states(const struct ps_metric *m, size_t width)
{
    (void)m;
    (void)width;
    return 2;
}

static void mean_add(const struct metric_row *r, double value, double *state)
{
    state[0] += value * r->weight;
    state[1] += r->weight;
}

static void mean_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    (void)width;
    *value = metric_divide(state[0], state[1]);
    if (m->kind == PS_METRIC_RMSE)
        *value = sqrt(*value);
}

static size_t metric_argmax(const float *v, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        best = v[i] > v[best] ? i : best;
    return best;
}

static size_t metric_class_of(const struct metric_row *r)
{
    return r->t ? metric_argmax(r->t, r->width) : (size_t)r->label;
}

static bool metric_is_equal(double a, double b)
{
    return !(a < b) && !(a > b) && !isnan(a) && !isnan(b);
}

static void binary_accuracy_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    const double threshold = m->threshold < 0 ? 0.5 : m->threshold;
    double right = 0;
    for (size_t i = 0; i < r->width; i++)
        right += metric_is_equal((double)r->y[i] > threshold, metric_target(r, i));
    mean_add(r, right / (double)r->width, state);
}

static void class_accuracy_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    (void)m;
    mean_add(r, metric_argmax(r->y, r->width) == metric_class_of(r), state);
}

static void accuracy_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    if (r->width == 1)
        binary_accuracy_update(m, r, state);
    else
        class_accuracy_update(m, r, state);
}

// As tf.math.in_top_k: of equals, all are in; where a number is not finite, none is.
static void top_k_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    const float own = r->y[metric_class_of(r)];
    int greater = 0;
    bool finite = true;
    for (size_t i = 0; i < r->width; i++) {
        greater += r->y[i] > own;
        finite &= isfinite(r->y[i]) != 0;
    }
    mean_add(r, finite && greater < m->k, state);
}

static void error_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    double sum = 0;
    for (size_t i = 0; i < r->width; i++) {
        const double t = metric_target(r, i), d = (double)r->y[i] - t;
        sum += m->kind == PS_METRIC_MAE    ? fabs(d)
               : m->kind == PS_METRIC_MAPE ? 100 * fabs(d / fmax(fabs(t), EPSILON))
                                           : d * d;
    }
    mean_add(r, sum / (double)r->width, state);
}

static void cosine_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    (void)m;
    double dot = 0, yy = 0, tt = 0;
    for (size_t i = 0; i < r->width; i++) {
        const double t = metric_target(r, i), y = (double)r->y[i];
        dot += y * t;
        yy += y * y;
        tt += t * t;
    }
    mean_add(r, dot * fmin(1 / sqrt(yy), 1 / EPSILON) * fmin(1 / sqrt(tt), 1 / EPSILON), state);
}

// ---- precision and recall: right among those said to be, and the others of them; or among those that are -----------

static size_t hits_states(const struct ps_metric *m, size_t width)
{
    (void)m;
    (void)width;
    return 2;
}

// Among the k greatest of the row; of equals, the first.
static bool hits_is_top(const struct metric_row *r, size_t i, int k)
{
    int before = 0;
    for (size_t j = 0; j < r->width; j++)
        before += r->y[j] > r->y[i] || (j < i && !(r->y[j] < r->y[i]));
    return before < k;
}

static bool hits_says(const struct ps_metric *m, const struct metric_row *r, size_t i)
{
    const double threshold = m->threshold >= 0 ? m->threshold : m->top_k ? -HUGE_VAL : 0.5;
    return (double)r->y[i] > threshold && (!m->top_k || hits_is_top(r, i, m->top_k));
}

static void hits_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    const size_t first = m->class_id < 0 ? 0 : (size_t)m->class_id, end = m->class_id < 0 ? r->width : first + 1;
    for (size_t i = first; i < end; i++) {
        const bool says = hits_says(m, r, i), is = metric_target(r, i) > 0 || metric_target(r, i) < 0;
        state[0] += says && is ? r->weight : 0;
        state[1] += (m->kind == PS_METRIC_PRECISION ? says && !is : is && !says) ? r->weight : 0;
    }
}

static void hits_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    (void)m;
    (void)width;
    *value = metric_divide(state[0], state[0] + state[1]);
}

// ---- the area under a curve: what is and what is not, by the thresholds between which its output lies --------------

static size_t auc_states(const struct ps_metric *m, size_t width)
{
    (void)width;
    return 2 * (size_t)m->num_thresholds;
}

static void auc_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    for (size_t i = 0; i < r->width; i++) {
        float y = m->from_logits ? 1 / (1 + expf(-r->y[i])) : r->y[i];
        if (isnan(y))
            continue;
        y = fminf(fmaxf(y, 0), 1);
        const float bucket = fmaxf(ceilf(y * (float)(m->num_thresholds - 1)) - 1, 0);
        const bool is = metric_target(r, i) > 0 || metric_target(r, i) < 0;
        state[(is ? 0 : m->num_thresholds) + (int)bucket] += r->weight;
    }
}

// Of one threshold and the next above it: how many are above, of what is (tp) and what is not (fp).
struct auc_pair {
    double tp[2], fp[2], positives, negatives;
};

static double auc_trapezoid(const struct auc_pair *a)
{
    const double low = metric_divide(a->tp[0], a->positives), high = metric_divide(a->tp[1], a->positives);
    return (metric_divide(a->fp[0], a->negatives) - metric_divide(a->fp[1], a->negatives)) * (low + high) / 2;
}

// Davis and Goadrich's interpolation, as Keras has it.
static double auc_precision_recall(const struct auc_pair *a)
{
    const double tp = a->tp[0] - a->tp[1], low = a->tp[0] + a->fp[0], high = a->tp[1] + a->fp[1];
    const double slope = metric_divide(tp, fmax(low - high, 0)), intercept = a->tp[1] - slope * high;
    const double ratio = low > 0 && high > 0 ? low / high : 1;
    return metric_divide(slope * (tp + intercept * log(ratio)), a->positives);
}

static void auc_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    (void)width;
    struct auc_pair a = {.positives = 0};
    const double *of = state, *not = state + m->num_thresholds;
    for (int i = 0; i < m->num_thresholds; i++) {
        a.positives += of[i];
        a.negatives += not [i];
    }
    a.tp[1] = of[m->num_thresholds - 1];
    a.fp[1] = not [m->num_thresholds - 1];
    *value = 0;
    for (int i = m->num_thresholds - 1; i-- > 0;) {
        a.tp[0] = a.tp[1] + of[i];
        a.fp[0] = a.fp[1] + not [i];
        *value += m->curve == PS_CURVE_PR ? auc_precision_recall(&a) : auc_trapezoid(&a);
        a.tp[1] = a.tp[0];
        a.fp[1] = a.fp[0];
    }
}

// ---- F1: right, said but not so, so but not said, and what is so; of each class, or of all -------------------------

static size_t f1_classes(const struct ps_metric *m, size_t width)
{
    return m->average == PS_AVERAGE_MICRO ? 1 : width;
}

static size_t f1_states(const struct ps_metric *m, size_t width)
{
    return 4 * f1_classes(m, width);
}

static void f1_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    const double max = (double)r->y[metric_argmax(r->y, r->width)];
    for (size_t i = 0; i < r->width; i++) {
        const double y = (double)r->y[i], t = metric_target(r, i);
        const double says = m->threshold < 0 ? y >= max && fabs(y) > 1e-9 : y > m->threshold;
        double *to = state + (m->average == PS_AVERAGE_MICRO ? 0 : 4 * i);
        to[0] += says * t * r->weight;
        to[1] += says * (1 - t) * r->weight;
        to[2] += (1 - says) * t * r->weight;
        to[3] += t * r->weight;
    }
}

static double f1_of(const double *state)
{
    const double precision = state[0] / (state[0] + state[1] + EPSILON);
    const double recall = state[0] / (state[0] + state[2] + EPSILON);
    return 2 * precision * recall / (precision + recall + EPSILON);
}

static void f1_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    const size_t n = f1_classes(m, width);
    double sum = 0, all = EPSILON;
    for (size_t i = 0; i < n; i++)
        all += state[4 * i + 3];
    for (size_t i = 0; i < n; i++) {
        const double f1 = f1_of(state + 4 * i);
        if (m->average == PS_AVERAGE_NONE)
            value[i] = f1;
        sum += m->average == PS_AVERAGE_WEIGHTED ? f1 * state[4 * i + 3] / all : f1 / (double)n;
    }
    if (m->average != PS_AVERAGE_NONE)
        *value = sum;
}

static size_t f1_values(const struct ps_metric *m, size_t width)
{
    return m->average == PS_AVERAGE_NONE ? width : 1;
}

// ---- the confusion matrix: (what is, what is said) -----------------------------------------------------------------

static size_t confusion_states(const struct ps_metric *m, size_t width)
{
    (void)m;
    return width == 1 ? 4 : width * width;
}

static void confusion_update(const struct ps_metric *m, const struct metric_row *r, double *state)
{
    (void)m;
    const size_t n = r->width == 1 ? 2 : r->width;
    const size_t is = r->width == 1 ? metric_target(r, 0) > 0.5 : metric_class_of(r);
    const size_t said = r->width == 1 ? r->y[0] > 0.5f : metric_argmax(r->y, r->width);
    state[is * n + said] += r->weight;
}

static void confusion_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    for (size_t i = 0; i < confusion_states(m, width); i++)
        value[i] = state[i];
}

// ---- the table -----------------------------------------------------------------------------------------------------

static const struct metric_class metric_classes[PS_METRIC_KINDS] = {
    [PS_METRIC_ACCURACY] = {mean_states, accuracy_update, mean_result, NULL, OF_MASKED},
    [PS_METRIC_BINARY_ACCURACY] = {mean_states, binary_accuracy_update, mean_result, NULL, OF_MASKED},
    [PS_METRIC_CATEGORICAL_ACCURACY] = {mean_states, class_accuracy_update, mean_result, NULL, OF_MASKED},
    [PS_METRIC_SPARSE_ACCURACY] = {mean_states, class_accuracy_update, mean_result, NULL, OF_CLASSES | OF_MASKED},
    [PS_METRIC_TOP_K] = {mean_states, top_k_update, mean_result, NULL, OF_MANY | OF_MASKED},
    [PS_METRIC_PRECISION] = {hits_states, hits_update, hits_result, NULL, 0},
    [PS_METRIC_RECALL] = {hits_states, hits_update, hits_result, NULL, 0},
    [PS_METRIC_AUC] = {auc_states, auc_update, auc_result, NULL, 0},
    [PS_METRIC_F1] = {f1_states, f1_update, f1_result, f1_values, 0},
    [PS_METRIC_MSE] = {mean_states, error_update, mean_result, NULL, OF_NUMBERS | OF_MASKED},
    [PS_METRIC_RMSE] = {mean_states, error_update, mean_result, NULL, OF_NUMBERS},
    [PS_METRIC_MAE] = {mean_states, error_update, mean_result, NULL, OF_NUMBERS | OF_MASKED},
    [PS_METRIC_MAPE] = {mean_states, error_update, mean_result, NULL, OF_NUMBERS | OF_MASKED},
    [PS_METRIC_COSINE] = {mean_states, cosine_update, mean_result, NULL, OF_NUMBERS | OF_MASKED},
    [PS_METRIC_CONFUSION] = {confusion_states, confusion_update, confusion_result, confusion_states, OF_MASKED},
};

enum ps_code nn_metric_check(const struct ps_metric *m, const struct ps_loss *loss, const struct nn_port *output,
                             struct ps_error *e)
{
    const struct metric_class *class = &metric_classes[m->kind];
    const int64_t width = output->type->rank ? output->type->dim[output->type->rank - 1] : 1;
    const bool labels = ps_loss_has_labels(loss);
    if (labels && class->of & OF_NUMBERS)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "metric %s compares output \"%s\" with numbers, but the loss compares it with class numbers",
                       m->label, output->name);
    if (!labels && class->of & OF_CLASSES)
        return ps_fail(e, PS_FAILED_PRECONDITION,
                       "metric %s compares output \"%s\" with class numbers, but the loss compares it with numbers: "
                       "expected categorical_accuracy or accuracy",
                       m->label, output->name);
    if (class->of & OF_MANY && width < 2)
        return ps_fail(e, PS_FAILED_PRECONDITION, "metric %s needs 2 or more classes, but output \"%s\" has one column",
                       m->label, output->name);
    if (m->class_id >= width)
        return ps_fail(e, PS_FAILED_PRECONDITION, "metric %s: class_id is %d, but output \"%s\" has %d column%s",
                       m->label, m->class_id, output->name, (int)width, width == 1 ? "" : "s");
    if (m->kind == PS_METRIC_CONFUSION && width > MAX_CONFUSION)
        return ps_fail(e, PS_FAILED_PRECONDITION, "metric %s: output \"%s\" has %d columns, the most are %d", m->label,
                       output->name, (int)width, MAX_CONFUSION);
    return PS_OK;
}

size_t nn_metric_states(const struct ps_metric *m, size_t width)
{
    return metric_classes[m->kind].states(m, width);
}

void nn_metric_update(const struct ps_metric *m, const struct nn_scores *s, double *state)
{
    struct metric_row r = {.width = s->width};
    const float *counts = metric_classes[m->kind].of & OF_MASKED ? s->counts : NULL;
    for (size_t i = 0; i < s->rows; i++) {
        if (counts && !(counts[i] > 0))
            continue;
        r.y = s->output + i * s->width;
        r.t = s->target ? s->target + i * s->width : NULL;
        r.label = s->target ? 0 : s->label[i];
        r.weight = s->weight ? (double)s->weight[i] : 1;
        metric_classes[m->kind].update(m, &r, state);
    }
}

size_t nn_metric_values(const struct ps_metric *m, size_t width)
{
    return metric_classes[m->kind].values ? metric_classes[m->kind].values(m, width) : 1;
}

void nn_metric_result(const struct ps_metric *m, size_t width, const double *state, double *value)
{
    metric_classes[m->kind].result(m, width, state, value);
}
