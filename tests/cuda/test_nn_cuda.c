// SPDX-License-Identifier: Apache-2.0
//
// The CUDA device on the emulated GPU, in several orders of execution: its kernels against the references; steps whose
// values and gradients come and go while they run; every allocation and every launch fails once. Nothing is left.
// Convolutions by cuDNN, and where it is not there.
//
// CUDA_SEEDS: how many orders of each, 2 if it is not set; 1 under the address sanitizer.
#include "common/base/alloc.h"
#include "tests/cuda/emulator.h"
#include "tests/cuda/home.h"
#include "tests/unit/nn_ops/compare.h"
#include "tests/unit/nn_ops/rounded.h"
#include "workerd/nn/cuda/implicit.h"
#include "workerd/nn/cuda/module.h"

extern const struct nn_device nn_device_cuda;

// In place of the module's loading.
enum ps_code nn_cuda_load(const struct nn_device **device, struct ps_error *e)
{
    (void)e;
    *device = &nn_device_cuda;
    return PS_OK;
}

static uint64_t seeds(void)
{
    const char *wanted = getenv("CUDA_SEEDS");
    return wanted ? strtoull(wanted, NULL, 10) : 2;
}

// What this test trains, and what is not there; set before it, main has the tests of each.
static struct {
    unsigned without;  // enum emu_lack
    const char *network;
} setting;

static int few;  // channels: so many are computed by implicit.cu

static void begin_as(struct emu_config config)
{
    config.without |= setting.without;
    emu_reset(&config);
}

static void begin(uint64_t seed)
{
    begin_as((struct emu_config){.seed = seed});
}

static void assert_nothing_left(void)
{
    const struct emu_counts counts = emu_counted();
    assert_int_equal(counts.live_allocations, 0);
    assert_int_equal(counts.live_streams, 0);
    assert_int_equal(counts.live_events, 0);
    assert_int_equal(counts.live_cudnn, 0);
}

// ---- operators ----------------------------------------------------------------------------------------------------

static void check_case(const struct op_case *c, uint64_t seed)
{
    struct op_run ref, cuda;
    begin(seed);
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&cuda, c, &nn_device_cuda, 1);
    assert_runs_close(&ref, &cuda);
    op_close(&ref);
    op_close(&cuda);
    assert_nothing_left();
}

static void test_operators(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        for (size_t f = 0; f < COUNT(families); f++)
            for (size_t i = 0; i < families[f].n; i++)
                check_case(&families[f].cases[i], seed);
}

static void test_larger_operators(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        check_case(&cases[i], 1);
}

static void test_nan_targets(void **state)
{
    (void)state;
    begin(1);
    check_nan_target(&nn_device_cuda);
}

static void run_far_from_zero(struct op_run *r, const struct op_case *c, const struct nn_device *device)
{
    op_open(r, c, device, 1);
    op_fill(r, true);
    for (size_t i = 0; i < nn_type_count(&c->in[0]); i++)
        ((nn_real *)r->in[0])[i] += 100;
    op_go(r);
}

// A variance that is the difference of two sums of squares would not be right.
static void test_variance_far_from_zero(void **state)
{
    const struct op_case far_cases[] = {
        BATCH_NORM("batch, far from 0", 515, 12), BATCH_NORM("batch, far from 0, odd channels", 515, 3),
        LAYER_NORM("layer, far from 0", 7, 1501), BATCH_NORM("batch, one row far from 0", 1, 40),
        BATCH_NORM("batch, one row, odd channels", 1, 37)};
    (void)state;
    for (size_t i = 0; i < COUNT(far_cases); i++) {
        struct op_run ref, cuda;
        begin(i + 1);
        run_far_from_zero(&ref, &far_cases[i], &nn_device_ref);
        run_far_from_zero(&cuda, &far_cases[i], &nn_device_cuda);
        assert_runs_close(&ref, &cuda);
        op_close(&ref);
        op_close(&cuda);
    }
}

// ---- cuDNN --------------------------------------------------------------------------------------------------------

static bool is_convolution(const struct nn_op_class *class)
{
    return class == &nn_op_conv2d || class == &nn_op_conv2d_backward_data || class == &nn_op_conv2d_backward_weights;
}

// By what a convolution of many channels is computed, as far as what is not there says.
static const char *expected_algorithm(const struct nn_op *op, unsigned without)
{
    const struct nn_conv2d *a = (const void *)op->attr;
    const bool even = a->pad_begin[0] == a->pad_end[0] && a->pad_begin[1] == a->pad_end[1];
    if (!even || without & (EMU_NO_CUDNN | EMU_NO_FMA))
        return "im2col, cublas";
    if (op->class != &nn_op_conv2d)
        return "cudnn:algo_1";
    return without & EMU_NO_PRECOMPUTED_INDICES ? "cudnn:implicit_gemm" : "cudnn:implicit_precomp_gemm";
}

static void check_algorithms(const struct op_case *c, const struct nn_program *p, unsigned without)
{
    int found = 0;
    for (int k = 0; k < nn_program_ops(p); k++) {
        const struct nn_op *op = nn_program_op(p, k);
        if (!is_convolution(op->class))
            continue;
        const char *got = nn_program_kernel(p, k), *wanted = expected_algorithm(op, without);
        if (strcmp(got, wanted) != 0)
            fail_msg("%s: %s is computed by %s: expected %s", c->name, op->class->name, got, wanted);
        found++;
    }
    assert_true(found > 0);
}

// Twice, the second time with what the first one has left in the scratch memory.
static void check_convolution(const struct op_case *c, unsigned without, uint64_t seed)
{
    struct op_run ref, cuda;
    begin_as((struct emu_config){.seed = seed, .without = without});
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&cuda, c, &nn_device_cuda, 1);
    op_go(&cuda);
    assert_runs_close(&ref, &cuda);
    check_algorithms(c, cuda.program, without);
    op_close(&ref);
    op_close(&cuda);
    assert_nothing_left();
}

static void test_convolutions(void **state)
{
    static const unsigned without[] = {
        0, EMU_NO_CUDNN, EMU_NO_FILTERS_OF_NHWC, EMU_NO_PRECOMPUTED_INDICES, EMU_NO_TENSOR_CORES, EMU_NO_FMA};
    (void)state;
    for (size_t w = 0; w < COUNT(without); w++)
        for (size_t f = 0; f < COUNT(families); f++)
            for (size_t i = 0; i < families[f].n; i++)
                if (is_convolution(families[f].cases[i].class))
                    check_convolution(&families[f].cases[i], without[w], w + 1);
}

// The row that cuDNN pads more is one that no window reaches.
static void test_padding_that_does_not_matter(void **state)
{
    const struct op_case c = CONV("unreached", 2, 8, 9, 2, 3, 3, 2, 2, 1, 1, 0, 1, 3, NN_LINEAR, 1);
    struct op_run ref, cuda;
    (void)state;
    begin(1);
    run_case(&ref, &c, &nn_device_ref, 1);
    run_case(&cuda, &c, &nn_device_cuda, 1);
    assert_runs_close(&ref, &cuda);
    assert_string_equal(nn_program_kernel(cuda.program, 0), "cudnn:implicit_precomp_gemm");
    op_close(&ref);
    op_close(&cuda);
}

static double distance_without(const struct op_case *c, enum nn_precision precision, unsigned without)
{
    begin_as((struct emu_config){.seed = 1, .without = without});
    return rounded_distance(c, &nn_device_cuda, precision);
}

// Factors are rounded where that is asked for, and the GPU can; never to more than TF32.
static void check_rounded(const struct op_case *c)
{
    const double whole = distance_without(c, NN_FLOAT32, 0), ten = distance_without(c, NN_TENSORFLOAT32, 0);
    const double same = distance_without(c, NN_BFLOAT16, 0);
    const double cannot = distance_without(c, NN_TENSORFLOAT32, EMU_NO_TENSOR_CORES);
    if (!(whole < 2e-5 && ten > 10 * whole && ten < 2e-2 && same == ten && cannot == whole))
        fail_msg("%s: %g, %g, %g and %g away", c->name, whole, ten, same, cannot);
}

static void test_rounded_convolution(void **state)
{
    const struct op_case c = CONV("rounded", 2, 7, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, NN_LINEAR, 0);
    (void)state;
    check_rounded(&c);
}

static void test_rounded_few_channels(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rounded_cases); i++)
        check_rounded(&rounded_cases[i]);
}

// ---- steps --------------------------------------------------------------------------------------------------------

enum { BATCH = 4, FEATURES = 6, CLASSES = 3 };

static const char network[] =
    "{'class_name': 'Sequential', 'config': {'name': 'net', 'layers': ["
    "{'class_name': 'InputLayer', 'config': {'name': 'in', 'batch_shape': [null, 6]}},"
    "{'class_name': 'Dense', 'config': {'name': 'one', 'units': 5, 'activation': 'relu'}},"
    "{'class_name': 'BatchNormalization', 'config': {'name': 'norm'}},"
    "{'class_name': 'Dropout', 'config': {'name': 'drop', 'rate': 0.25}},"
    "{'class_name': 'Dense', 'config': {'name': 'two', 'units': 3, 'activation': 'softmax'}}]}}";
// cuDNN has the second convolution, and not the first, which is padded on one side alone.
static const char image_network[] =
    "{'class_name': 'Sequential', 'config': {'name': 'net', 'layers': ["
    "{'class_name': 'InputLayer', 'config': {'name': 'in', 'batch_shape': [null, 6]}},"
    "{'class_name': 'Reshape', 'config': {'name': 'image', 'target_shape': [3, 2, 1]}},"
    "{'class_name': 'Conv2D', 'config': {'name': 'one', 'filters': 2, 'kernel_size': [2, 2], 'padding': 'same'}},"
    "{'class_name': 'Conv2D', 'config': {'name': 'two', 'filters': 3, 'kernel_size': [3, 3], 'padding': 'same',"
    " 'activation': 'relu'}},"
    "{'class_name': 'Flatten', 'config': {'name': 'flat'}},"
    "{'class_name': 'Dense', 'config': {'name': 'three', 'units': 3, 'activation': 'softmax'}}]}}";
static const struct ps_loss loss = PS_LOSS(.kind = PS_LOSS_SPARSE_XENT);

struct training {
    struct nn_model *model;
    struct nn_replica *replica;
    struct home home;
    float x[BATCH * FEATURES];
    int32_t label[BATCH];
    uint64_t example[BATCH];
    struct nn_batch batch;
};

static struct nn_model *parse_network(const char *text)
{
    struct ps_error e = {0};
    struct nn_model *m = NULL;
    char *json = ps_strdup(text);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    if (nn_model_parse(json, "net", &m, &e))
        fail_msg("%s", e.text);
    free(json);
    return m;
}

static enum ps_code training_open(struct training *t, const char *device, int rows, struct ps_error *e)
{
    *t = (struct training){.model = parse_network(setting.network)};
    fill_numbers(t->x, COUNT(t->x), 1, false);
    for (int i = 0; i < BATCH; i++) {
        t->label[i] = i % CLASSES;
        t->example[i] = (uint64_t)i * 3;
    }
    t->batch = (struct nn_batch){.rows = BATCH, .input = {t->x}, .target = {t->label}, .example = t->example};
    if (nn_replica_create(t->model, device, rows, 1, 7, &loss, &t->replica, e))
        return e->code;
    t->home = (struct home){.model = t->model, .replica = t->replica, .rate = 0.1f};
    for (size_t i = 0; i < nn_model_params(t->model); i++)
        nn_model_init_param(t->model, i, 3, nn_replica_param(t->replica, i));
    return PS_OK;
}

static void training_close(struct training *t)
{
    nn_replica_free(t->replica);
    nn_model_free(t->model);
}

static enum ps_code training_step(struct training *t, uint64_t step, double *sum, struct ps_error *e)
{
    const struct nn_hooks hooks = home_hooks(&t->home);
    struct nn_result result;
    t->home.n_needed = t->home.n_ready = 0;
    enum ps_code code = nn_replica_train(t->replica, &t->batch, step, &hooks, &result, e);
    *sum = code ? 0 : result.loss;
    return code;
}

// As many steps as a program takes to be used again, and an evaluation.
static void training_run(struct training *t, double losses[4])
{
    struct ps_error e = {0};
    struct nn_result result;
    for (uint64_t step = 0; step < 3; step++)
        if (training_step(t, step, &losses[step], &e))
            fail_msg("%s", e.text);
    if (nn_replica_evaluate(t->replica, &t->batch, &result, &e))
        fail_msg("%s", e.text);
    losses[3] = result.loss;
}

static void training_must_open(struct training *t, const char *device)
{
    struct ps_error e = {0};
    if (training_open(t, device, BATCH, &e))
        fail_msg("%s", e.text);
}

static void assert_trained_alike(const struct training *a, const struct training *b, double tolerance)
{
    for (size_t i = 0; i < nn_model_params(a->model); i++)
        for (uint64_t j = 0; j < nn_model_param(a->model, i)->count; j++) {
            const double x = (double)nn_replica_param(a->replica, i)[j], y = (double)nn_replica_param(b->replica, i)[j];
            if (!(fabs(x - y) <= tolerance))
                fail_msg("%s[%zu]: %.9g and %.9g", nn_model_param(a->model, i)->name, (size_t)j, x, y);
        }
}

// Values change and gradients are taken while the step still runs.
static void test_steps(void **state)
{
    (void)state;
    struct training ref, gpu;
    double wanted[4], got[4];
    for (uint64_t seed = 1; seed <= 4 * seeds(); seed++) {
        begin(seed);
        training_must_open(&ref, "ref");
        training_must_open(&gpu, "gpu:0");
        training_run(&ref, wanted);
        training_run(&gpu, got);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(wanted[i] - got[i]) < 1e-4);
        assert_trained_alike(&ref, &gpu, 1e-5);
        assert_int_equal(gpu.home.n_needed, ref.home.n_needed);
        assert_int_equal(gpu.home.n_ready, ref.home.n_ready);
        assert_memory_equal(gpu.home.ready, ref.home.ready, sizeof gpu.home.ready);
        training_close(&ref);
        training_close(&gpu);
        assert_nothing_left();
    }
}

// The greatest distance of the weights that a GPU of this precision trains from those of the reference.
static double distance_of(enum nn_precision precision)
{
    struct training ref, gpu;
    double losses[4], most = 0;
    training_must_open(&ref, "ref");
    training_must_open(&gpu, "gpu:0");
    nn_replica_set_precision(gpu.replica, precision);
    training_run(&ref, losses);
    training_run(&gpu, losses);
    for (size_t i = 0; i < nn_model_params(ref.model); i++)
        for (uint64_t j = 0; j < nn_model_param(ref.model, i)->count; j++)
            most = fmax(
                most, fabs((double)nn_replica_param(ref.replica, i)[j] - (double)nn_replica_param(gpu.replica, i)[j]));
    training_close(&ref);
    training_close(&gpu);
    assert_nothing_left();
    return most;
}

// Rounded factors are seen, and do no harm beyond their bits.
static void test_precision(void **state)
{
    (void)state;
    begin(1);
    const double whole = distance_of(NN_FLOAT32), ten = distance_of(NN_TENSORFLOAT32), seven = distance_of(NN_BFLOAT16);
    if (!(whole < 1e-5 && ten > 4 * whole && ten < 1e-3 && seven > 4 * ten && seven < 1e-2))
        fail_msg("%g, %g and %g away", whole, ten, seven);
}

// The same bits in every order of execution.
static void test_deterministic(void **state)
{
    (void)state;
    float *first[HOME_VARIABLES] = {NULL};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct training t;
        double sums[4];
        begin(seed);
        training_must_open(&t, "gpu");
        training_run(&t, sums);
        for (size_t i = 0; i < nn_model_params(t.model); i++) {
            const size_t bytes = nn_model_param(t.model, i)->count * sizeof(float);
            if (first[i])
                assert_memory_equal(first[i], nn_replica_param(t.replica, i), bytes);
            else
                memcpy(first[i] = ps_alloc(bytes), nn_replica_param(t.replica, i), bytes);
        }
        training_close(&t);
    }
    for (size_t i = 0; i < HOME_VARIABLES; i++)
        free(first[i]);
}

// ---- graphs -------------------------------------------------------------------------------------------------------

// Runs of a program whose values are there, of other inputs each, and of another step, by which numbers are drawn: the
// same as the reference's, whether they are recorded or not.
static void check_recorded(const struct op_case *of, uint64_t seed)
{
    struct op_case no_value = *of;
    const struct op_case *c = &no_value;
    struct op_run ref, gpu;
    struct ps_error e = {0};
    no_value.learns[0] = false;
    begin(seed);
    run_case(&ref, c, &nn_device_ref, 1);
    run_case(&gpu, c, &nn_device_cuda, 1);
    nn_program_keep(gpu.program, true);
    for (int run = 0; run < 5; run++) {
        for (size_t i = 0; i < nn_type_count(&c->in[0]); i++)
            ((float *)gpu.in[0])[i] = ((float *)ref.in[0])[i] += 0.25f;
        ref.step = gpu.step = (struct nn_step){seed + (uint64_t)run / 2, (uint32_t)run};
        if (run == 3)  // what kernels keep while they run moves
            assert_int_equal(nn_cuda_reserve(gpu.context, 2 * gpu.context->scratch_bytes + 64, &e), PS_OK);
        op_go(&ref);
        op_go(&gpu);
        assert_close(c->name, "y", op_out(&ref, 0), op_out(&gpu, 0), nn_type_count(&ref.type[0]));
        assert_int_equal(emu_counted().live_graphs, run > 0);
    }
    op_close(&ref);
    op_close(&gpu);
    assert_nothing_left();
    assert_int_equal(emu_counted().live_graphs, 0);
}

static void test_recorded_steps(void **state)
{
    (void)state;
    const struct op_case conv = CONV("recorded", 3, 7, 6, 3, 3, 3, 1, 1, 1, 1, 1, 1, 5, NN_LINEAR, 1);
    const struct op_case dense = DENSE("recorded", 9, 17, 4, NN_LINEAR, 1);
    for (uint64_t seed = 1; seed <= 4 * seeds(); seed++) {
        check_recorded(&conv, seed);
        check_recorded(&dense, seed);
    }
}

static void test_drawn_steps(void **state)
{
    (void)state;
    const struct op_case dropout = DROPOUT("drawn", 60);
    for (uint64_t seed = 1; seed <= 4 * seeds(); seed++)
        check_recorded(&dropout, seed);
    for (size_t f = 0; f < COUNT(families); f++)
        for (size_t i = 0; i < families[f].n; i++)
            if (families[f].cases[i].class->draws)
                check_recorded(&families[f].cases[i], 1);
}

// ---- rules on the device ------------------------------------------------------------------------------------------

enum { SLOTS = 2, ROOM = 64 };  // floats of a slot; the network's variables have fewer

// A rule with slots for each variable: of the host, or where the replica keeps its values, of the device.
struct optimizer {
    const struct ps_rule *rule;
    double hyper[PS_RULE_MAX_HYPERS];
    float here[HOME_VARIABLES][SLOTS][ROOM], *there;
};

static void optimizer_open(struct optimizer *o, const char *name, struct training *t)
{
    struct ps_error e = {0};
    *o = (struct optimizer){.rule = ps_rule_find(name)};
    ps_rule_defaults(o->rule, o->hyper);
    o->hyper[PS_HYPER_LEARNING_RATE] = 0.05;
    o->hyper[PS_HYPER_CLIPVALUE] = 0.125;
    if (ps_rule_has(o->rule, "momentum"))
        assert_int_equal(ps_rule_set(o->rule, o->hyper, "momentum", 0.75, &e), PS_OK);
    if (!nn_replica_keep(t->replica, o->rule, o->hyper))
        return;
    assert_int_equal(nn_replica_get_slots(t->replica, sizeof o->here / sizeof(float), &o->there, &e), PS_OK);
    assert_int_equal(nn_replica_put_slots(t->replica, o->there, o->here[0][0], sizeof o->here / sizeof(float), &e),
                     PS_OK);
}

static struct nn_update optimizer_update(struct optimizer *o, struct training *t, size_t i, uint64_t step)
{
    const struct nn_param *p = nn_model_param(t->model, i);
    struct nn_update u = {i,
                          p->rule ? ps_rule_find(p->rule) : o->rule,
                          p->rule ? &p->momentum : o->hyper,
                          {.n = p->count, .step = step + 1, .trainable = p->trainable, .clip_factor = 1}};
    for (int k = 0; k < SLOTS; k++)
        u.args.slot_in[k] = u.args.slot_out[k] = o->there ? o->there + ((i * SLOTS) + (size_t)k) * ROOM : o->here[i][k];
    return u;
}

static void optimizer_apply_here(struct training *t, struct nn_update *u)
{
    u->args.g = nn_replica_grad(t->replica, u->variable);
    u->args.w_in = u->args.w_out = nn_replica_param(t->replica, u->variable);
    ps_rule_apply(u->rule, u->hyper, &u->args);
}

static void optimizer_apply(struct optimizer *o, struct training *t, uint64_t step)
{
    struct nn_update update[HOME_VARIABLES];
    size_t n = 0;
    for (size_t i = 0; i < nn_model_params(t->model); i++)
        if (nn_param_changes(nn_model_param(t->model, i)))
            update[n++] = optimizer_update(o, t, i, step);
    if (o->there)
        nn_replica_apply(t->replica, update, n);
    for (size_t i = 0; !o->there && i < n; i++)
        optimizer_apply_here(t, &update[i]);
}

static void optimizer_step(struct optimizer *o, struct training *t, uint64_t step, int rows)
{
    struct ps_error e = {0};
    struct nn_result result;
    struct nn_batch batch = t->batch;
    batch.rows = rows;
    if (nn_replica_train(t->replica, &batch, step, NULL, &result, &e))
        fail_msg("%s", e.text);
    optimizer_apply(o, t, step);
}

// Three steps, of which the second is without rows; the host looks at values and changes them before the third.
static void optimizer_run(struct optimizer *o, struct training *t)
{
    static const int rows[] = {BATCH, 0, BATCH};
    for (uint64_t step = 0; step < 3; step++) {
        if (step == 2)
            nn_replica_param(t->replica, 0)[0] += 0.5f;
        optimizer_step(o, t, step, rows[step]);
        assert_true(isfinite(nn_replica_grad(t->replica, 0)[0]));
    }
}

static void assert_gradients_alike(const struct training *a, const struct training *b)
{
    for (size_t i = 0; i < nn_model_params(a->model); i++)
        for (uint64_t j = 0; nn_model_param(a->model, i)->trainable && j < nn_model_param(a->model, i)->count; j++)
            assert_true(fabsf(nn_replica_grad(a->replica, i)[j] - nn_replica_grad(b->replica, i)[j]) <= 1e-5f);
}

static void test_rules(void **state)
{
    (void)state;
    static const char *const rules[] = {"sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw"};
    for (size_t i = 0; i < COUNT(rules); i++) {
        struct training ref, gpu;
        struct optimizer a, b;
        begin(i + 1);
        training_must_open(&ref, "ref");
        training_must_open(&gpu, "gpu");
        optimizer_open(&a, rules[i], &ref);
        optimizer_open(&b, rules[i], &gpu);
        assert_true(b.there && !a.there);
        optimizer_run(&a, &ref);
        optimizer_run(&b, &gpu);
        assert_trained_alike(&ref, &gpu, 1e-5);
        assert_gradients_alike(&ref, &gpu);
        training_close(&ref);
        training_close(&gpu);
        assert_nothing_left();
    }
}

// More variables than a launch takes, one of them not trainable, in memory of a device or of the host: counts that end
// anywhere in a vector and in the part of a block; some arrays are not aligned for vectors. Arrays: gradients, weights,
// slots.
enum { MANY = 230, ARRAYS = 2 + SLOTS, MOST_FLOATS = 400000 };

struct many {
    size_t at[MANY][ARRAYS], floats;
    double momentum[MANY];
    struct nn_update update[MANY];
    float *memory;
};

static size_t many_count(size_t i)
{
    static const size_t counts[] = {1, 2, 3, 4, 5, 8, 31, 257, 1023, 2048, 2047, 2049, 4096, 5001};
    return i % 7 == 3 ? counts[i / 7 % COUNT(counts)] : counts[i % 7];
}

static void many_lay_out(struct many *m)
{
    *m = (struct many){.floats = 0};
    for (size_t i = 0; i < MANY; i++)
        for (size_t k = 0; k < ARRAYS; k++) {
            m->at[i][k] = m->floats + (i % 5 == 2 && i / 5 % ARRAYS == k);
            m->floats = (m->at[i][k] + many_count(i) + 3) / 4 * 4;
            m->momentum[i] = i % 3 == 0 ? 0.75 : 0.5;
        }
    assert_in_range(m->floats, 1, MOST_FLOATS);
}

// ema: 20 with the same momentum follow each other.
static void many_list(struct many *m, const struct ps_rule *rule, const double *hyper, float *memory, uint64_t step)
{
    m->memory = memory;
    for (size_t i = 0; i < MANY; i++) {
        struct ps_rule_args *a = &m->update[i].args;
        m->update[i] = (struct nn_update){i, rule, rule->learns ? hyper : &m->momentum[i / 20], {.n = many_count(i)}};
        a->step = step;
        a->trainable = i != 7;
        a->clip_factor = 1;
        a->g = memory + m->at[i][0];
        a->w_in = a->w_out = memory + m->at[i][1];
        for (int k = 0; k < rule->own_slots; k++)
            a->slot_in[k] = a->slot_out[k] = memory + m->at[i][2 + k];
    }
}

// Two applications, of the same bits as the host's.
static void check_many(const char *name, uint64_t seed)
{
    static float here[MOST_FLOATS], back[MOST_FLOATS];
    const struct nn_device_memory *memory = nn_device_cuda.memory;
    const struct ps_rule *rule = ps_rule_find(name);
    struct nn_context *c;
    struct ps_error e = {0};
    struct many m;
    double hyper[PS_RULE_MAX_HYPERS];
    void *there;
    begin(seed);
    many_lay_out(&m);
    ps_rule_defaults(rule, hyper);
    if (rule->learns)
        hyper[PS_HYPER_CLIPVALUE] = 0.5;
    fill_numbers(here, m.floats, seed, false);
    for (size_t i = 0; i < m.floats; i++)
        here[i] = fabsf(here[i]);
    assert_int_equal(nn_device_cuda.open(0, 1, &c, &e), PS_OK);
    assert_int_equal(memory->get(c, m.floats * sizeof(float), &there, &e), PS_OK);
    memory->put(c, there, here, m.floats * sizeof(float));
    for (uint64_t step = 1; step <= 2; step++) {
        many_list(&m, rule, hyper, there, step);
        nn_device_cuda.apply(c, m.update, MANY);
        many_list(&m, rule, hyper, here, step);
        for (size_t i = 0; i < MANY; i++)
            ps_rule_apply(rule, m.update[i].hyper, &m.update[i].args);
    }
    memory->take(c, back, there, m.floats * sizeof(float));
    assert_int_equal(memory->finish(c, &e), PS_OK);
    assert_memory_equal(here, back, m.floats * sizeof(float));
    assert_int_equal(emu_counted().launches, rule->learns ? 2 * 5 : 2 * 10);
    memory->free(c, there);
    nn_device_cuda.close(c);
    assert_nothing_left();
}

static void test_many_variables(void **state)
{
    (void)state;
    static const char *const rules[] = {"sgd", "momentum", "nesterov", "rmsprop", "adam", "adamw", "ema"};
    for (uint64_t seed = 1; seed <= seeds(); seed++)
        for (size_t i = 0; i < COUNT(rules); i++)
            check_many(rules[i], seed);
}

// By the host.
static void test_rule_is_not_waited_for(void **state)
{
    (void)state;
    struct training t;
    struct optimizer o;
    begin(1);
    training_must_open(&t, "gpu");
    optimizer_open(&o, "adam", &t);
    for (uint64_t step = 0; step < 4; step++) {
        optimizer_step(&o, &t, step, BATCH);
        const uint64_t waits = emu_counted().host_waits;
        optimizer_apply(&o, &t, step);
        assert_int_equal(emu_counted().host_waits, waits);
    }
    training_close(&t);
    assert_nothing_left();
}

// No step copies a value or a gradient then, but values when they have been asked for.
static void test_values_stay(void **state)
{
    (void)state;
    struct training t;
    struct optimizer o;
    begin(1);
    training_must_open(&t, "gpu");
    optimizer_open(&o, "adam", &t);
    optimizer_step(&o, &t, 0, BATCH);
    const struct emu_counts before = emu_counted();
    optimizer_step(&o, &t, 1, BATCH);
    assert_int_equal(emu_counted().copies - before.copies, 1 + 2);  // what the step is given; results
    nn_replica_param(t.replica, 0);
    optimizer_step(&o, &t, 2, BATCH);
    assert_int_equal(emu_counted().copies - before.copies, 1 + 2 + 2);  // besides those of a graph
    training_close(&t);
}

// Is there an operator that the device has no kernel for?
static bool training_detours(struct training *t)
{
    const struct nn_program *p;
    struct ps_error e = {0};
    if (nn_replica_program(t->replica, &p, &e))
        fail_msg("%s", e.text);
    char *info = nn_program_info(p);
    const bool detours = strstr(info, "on the host");
    free(info);
    return detours;
}

// Whole steps as graphs, in which values change besides; evaluations between them.
static void test_recorded_training(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2 * seeds(); seed++) {
        struct training ref, gpu;
        struct optimizer a, b;
        struct ps_error e = {0};
        begin(seed);
        training_must_open(&ref, "ref");
        training_must_open(&gpu, "gpu");
        optimizer_open(&a, "adam", &ref);
        optimizer_open(&b, "adam", &gpu);
        for (int i = 0; i < 2; i++) {
            struct nn_result x, y;
            optimizer_run(&a, &ref);
            optimizer_run(&b, &gpu);
            assert_int_equal(nn_replica_evaluate(ref.replica, &ref.batch, &x, &e), PS_OK);
            assert_int_equal(nn_replica_evaluate(gpu.replica, &gpu.batch, &y, &e), PS_OK);
            assert_true(fabs(x.loss - y.loss) < 1e-4);
        }
        assert_trained_alike(&ref, &gpu, 1e-5);
        assert_int_equal(emu_counted().live_graphs > 0, !training_detours(&gpu));
        training_close(&ref);
        training_close(&gpu);
        assert_nothing_left();
    }
}

// A kernel of a step whose values stay, or of the rule after it, fails: that step says so, or the next one, or who asks
// for the values, in each step or after the last one.
static void failed_launch_of_kept(bool asks)
{
    bool failed = true;
    for (uint64_t n = 1; failed; n++) {
        struct training t;
        struct optimizer o;
        struct ps_error e = {0};
        struct nn_result result;
        begin_as((struct emu_config){.seed = n, .fail_launch = n});
        training_must_open(&t, "gpu");
        optimizer_open(&o, "sgd", &t);
        failed = false;
        for (uint64_t step = 0; step < 4 && !failed; step++) {
            failed = nn_replica_train(t.replica, &t.batch, step, NULL, &result, &e);
            if (!failed)
                optimizer_apply(&o, &t, step);
            failed = failed || ((asks || step == 3) && nn_replica_fetch(t.replica, &e));
        }
        if (failed && (e.code != PS_INTERNAL || !strstr(e.text, "cudaErrorLaunchFailure")))
            fail_msg("launch %d: %s", (int)n, e.text);
        training_close(&t);
        assert_nothing_left();
        assert_in_range(n, 1, 1000);
    }
}

static void test_failed_launch_of_kept(void **state)
{
    (void)state;
    failed_launch_of_kept(false);
    failed_launch_of_kept(true);
}

// A rule that the device does not know stays with the host.
static void test_rule_of_the_host(void **state)
{
    (void)state;
    struct training t;
    struct optimizer o;
    begin(1);
    training_must_open(&t, "gpu");
    optimizer_open(&o, "ftrl", &t);
    assert_null(o.there);
    optimizer_run(&o, &t);
    training_close(&t);
}

// ---- which convolutions -------------------------------------------------------------------------------------------

static void assert_convolutions_by(struct training *t, const char *one, const char *forward, const char *data,
                                   const char *weights)
{
    const struct nn_program *p;
    struct ps_error e = {0};
    char wanted[256];
    if (nn_replica_program(t->replica, &p, &e))
        fail_msg("%s", e.text);
    char *info = nn_program_info(p);
    snprintf(wanted, sizeof wanted, "one conv2d %s\n", one);
    const bool has_one = strstr(info, wanted);
    snprintf(wanted, sizeof wanted, "two conv2d %s\n", forward);
    const bool has_forward = strstr(info, wanted);
    snprintf(wanted, sizeof wanted, "two conv2d_backward_data %s\n", data);
    const bool has_data = strstr(info, wanted);
    snprintf(wanted, sizeof wanted, "two conv2d_backward_weights %s\n", weights);
    if (!has_one || !has_forward || !has_data || !strstr(info, wanted))
        fail_msg("%s: expected %s, %s, %s, %s", info, one, forward, data, weights);
    free(info);
}

static void train_as_the_reference(struct training *gpu)
{
    struct training ref;
    double wanted[4], got[4];
    training_must_open(&ref, "ref");
    training_run(&ref, wanted);
    training_run(gpu, got);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(wanted[i] - got[i]) < 1e-4);
    assert_trained_alike(&ref, gpu, 1e-5);
    training_close(&ref);
    training_close(gpu);
    assert_nothing_left();
}

static void check_which(enum nn_convolutions which, const char *one, const char *forward, const char *data,
                        const char *weights)
{
    struct training gpu;
    struct ps_error e = {0};
    begin(1);
    training_must_open(&gpu, "gpu");
    if (nn_replica_set_convolutions(gpu.replica, which, &e))
        fail_msg("%s", e.text);
    assert_convolutions_by(&gpu, one, forward, data, weights);
    train_as_the_reference(&gpu);
}

static void test_which_convolutions(void **state)
{
    (void)state;
    check_which(NN_CONVOLUTIONS_DETERMINISTIC, "im2col, cublas", "cudnn:implicit_precomp_gemm", "cudnn:algo_1",
                "cudnn:algo_1");
    check_which(NN_CONVOLUTIONS_FASTEST, "im2col, cublas", "cudnn:implicit_precomp_gemm", "cudnn:algo_0",
                "cudnn:algo_3");
    check_which(NN_CONVOLUTIONS_OWN, "im2col, cublas", "im2col, cublas", "im2col, cublas", "im2col, cublas");
}

// Whatever a job says of cuDNN.
static void test_few_channels(void **state)
{
    (void)state;
    check_which(NN_CONVOLUTIONS_DETERMINISTIC, "implicit", "implicit", "implicit", "implicit");
    check_which(NN_CONVOLUTIONS_FASTEST, "implicit", "implicit", "implicit", "implicit");
    check_which(NN_CONVOLUTIONS_OWN, "implicit", "implicit", "implicit", "implicit");
}

// What was there goes on.
static void test_no_such_convolutions(void **state)
{
    (void)state;
    struct training t;
    struct ps_error e = {0};
    begin_as((struct emu_config){.seed = 1, .without = EMU_NO_CUDNN});
    training_must_open(&t, "gpu");
    assert_int_equal(nn_replica_set_convolutions(t.replica, NN_CONVOLUTIONS_FASTEST, &e), PS_FAILED_PRECONDITION);
    if (!strstr(e.text, "gpu:0 (Emulated GPU): cuDNN cannot be used: CUDNN_STATUS_NOT_INITIALIZED"))
        fail_msg("%s", e.text);
    train_as_the_reference(&t);
    training_must_open(&t, "ref");
    assert_int_equal(nn_replica_set_convolutions(t.replica, NN_CONVOLUTIONS_OWN, &e), PS_FAILED_PRECONDITION);
    assert_string_equal(e.text, "a ref has no convolutions to choose from");
    training_close(&t);
}

// One thread, two GPUs.
static void test_two_devices(void **state)
{
    (void)state;
    struct training one, two;
    double a[4], b[4];
    begin_as((struct emu_config){.seed = 3, .devices = 2});
    training_must_open(&one, "gpu:0");
    training_must_open(&two, "gpu:1");
    training_run(&one, a);
    training_run(&two, b);
    assert_memory_equal(a, b, sizeof a);
    assert_trained_alike(&one, &two, 0);
    training_close(&one);
    training_close(&two);
    assert_nothing_left();
}

// A value that does not come, or a gradient that nobody takes, ends the step; the next one is as if that had not been.
static void test_hook_fails(void **state)
{
    (void)state;
    struct training t;
    double sum;
    struct ps_error e = {0};
    begin(2);
    training_must_open(&t, "gpu");
    for (size_t i = 0; i < 4; i++) {
        t.home.refuse = 1 + i;
        assert_int_equal(training_step(&t, 0, &sum, &e), PS_UNAVAILABLE);
        assert_int_equal(t.home.n_ready, 0);
    }
    t.home.refuse = 0;
    for (t.home.most = 1; t.home.most <= 4; t.home.most++) {
        assert_int_equal(training_step(&t, 0, &sum, &e), PS_ABORTED);
        assert_int_equal(t.home.n_ready, t.home.most);
    }
    t.home.most = 0;
    assert_int_equal(training_step(&t, 0, &sum, &e), PS_OK);
    training_close(&t);
    assert_nothing_left();
}

// ---- faults -------------------------------------------------------------------------------------------------------

// Opens a training and makes a step of it: the first error, with nothing left behind.
static enum ps_code attempt(const struct emu_config *config, struct ps_error *e)
{
    struct training t;
    double sum;
    *e = (struct ps_error){PS_OK, ""};
    begin_as(*config);
    enum ps_code code = training_open(&t, "gpu", BATCH, e);
    if (code == PS_OK)
        code = training_step(&t, 0, &sum, e);
    if (code && t.replica) {
        struct ps_error again = {PS_OK, ""};
        assert_int_equal(training_step(&t, 1, &sum, &again), code);
        assert_string_equal(again.text, e->text);
    }
    training_close(&t);
    assert_nothing_left();
    return code;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct ps_error e;
    uint64_t n = 1;
    for (; attempt(&(struct emu_config){.seed = n, .fail_allocation = n}, &e); n++) {
        if (e.code != PS_RESOURCE_EXHAUSTED || !strstr(e.text, "no memory") || !strstr(e.text, " bytes"))
            fail_msg("allocation %d: %s", (int)n, e.text);
        assert_in_range(n, 1, 100);
    }
    assert_in_range(n, 4, 100);
}

// The call after the launch is told: the runtime's or cuBLAS's.
static bool launch_has_failed(const char *text)
{
    return strstr(text, "cudaErrorLaunchFailure") || strstr(text, "CUBLAS_STATUS_EXECUTION_FAILED");
}

static void test_failed_launch(void **state)
{
    (void)state;
    struct ps_error e;
    uint64_t n = 1;
    for (; attempt(&(struct emu_config){.seed = n, .fail_launch = n}, &e); n++) {
        if (e.code != PS_INTERNAL || !strstr(e.text, "gpu:0") || !launch_has_failed(e.text))
            fail_msg("launch %d: %s", (int)n, e.text);
        assert_in_range(n, 1, 1000);
    }
    assert_in_range(n, 3, 1000);
}

// The sentence says how many rows would fit, and they do.
static void test_batch_that_fits(void **state)
{
    (void)state;
    enum { ROWS = 1 << 20 };
    struct ps_error e = {0};
    struct training t;
    int rows = 0;
    begin_as((struct emu_config){.seed = 1, .device_memory = 32 << 20});
    assert_int_equal(training_open(&t, "gpu", ROWS, &e), PS_RESOURCE_EXHAUSTED);
    training_close(&t);
    const char *most = strstr(e.text, "a batch of at most ");
    if (!most || sscanf(most, "a batch of at most %d", &rows) != 1 || rows < 1000 || rows >= ROWS)
        fail_msg("%s", e.text);
    if (training_open(&t, "gpu", rows, &e))
        fail_msg("%s", e.text);
    training_close(&t);
    assert_nothing_left();
}

static void check_no_device(int what, const char *name, enum ps_code code, const char *says)
{
    struct ps_error e = {0};
    struct training t;
    begin_as((struct emu_config){.seed = 1, .no_devices = what});
    assert_int_equal(training_open(&t, name, BATCH, &e), code);
    training_close(&t);
    if (!strstr(e.text, says))
        fail_msg("%s", e.text);
}

static void test_no_device(void **state)
{
    (void)state;
    check_no_device(100, "gpu", PS_FAILED_PRECONDITION, "there is no GPU that CUDA sees");
    check_no_device(35, "gpu", PS_FAILED_PRECONDITION, "the NVIDIA driver of this machine is");
    check_no_device(802, "gpu", PS_UNAVAILABLE, "the GPUs are not set up yet");
    check_no_device(0, "gpu:1", PS_FAILED_PRECONDITION, "there is no gpu:1: CUDA sees 1");
}

// In the exclusive mode of nvidia-smi.
static void test_a_gpu_of_another_process(void **state)
{
    struct ps_error e = {0};
    struct training t;
    (void)state;
    begin_as((struct emu_config){.seed = 1, .taken = 1});
    assert_int_equal(training_open(&t, "gpu", BATCH, &e), PS_UNAVAILABLE);
    training_close(&t);
    if (!strstr(e.text, "gpu:0: cudaSetDevice has failed: ") || !strstr(e.text, "cudaErrorDevicesUnavailable"))
        fail_msg("%s", e.text);
}

static void test_a_gpu_without_kernels(void **state)
{
    struct ps_error e = {0};
    struct training t;
    (void)state;
    begin_as((struct emu_config){.seed = 1, .compute_major = 7, .no_kernels = true});
    assert_int_equal(training_open(&t, "gpu", BATCH, &e), PS_FAILED_PRECONDITION);
    training_close(&t);
    assert_string_equal(e.text,
                        "gpu:0 (Emulated GPU) has compute capability 7.0, and the CUDA module has no kernels for that: "
                        "expected a later GPU, or a module built with -arch=sm_70 in NVCCFLAGS");
    assert_nothing_left();
}

// Whose memory others have.
static void test_a_gpu_without_memory_for_cublas(void **state)
{
    struct ps_error e = {0};
    struct training t;
    (void)state;
    begin_as((struct emu_config){.seed = 1, .no_blas = true, .device_memory = 64 << 20});
    assert_int_equal(training_open(&t, "gpu", BATCH, &e), PS_RESOURCE_EXHAUSTED);
    training_close(&t);
    if (!strstr(e.text, "cuBLAS cannot be opened: ") || !strstr(e.text, " bytes of memory left"))
        fail_msg("%s", e.text);
    assert_nothing_left();
}

static void check_workspace(int major, size_t bytes)
{
    struct ps_error e = {0};
    struct training t;
    begin_as((struct emu_config){.seed = 1, .compute_major = major});
    if (training_open(&t, "gpu", BATCH, &e))
        fail_msg("%s", e.text);
    assert_int_equal(bytes, emu_counted().workspace);
    training_close(&t);
    assert_nothing_left();
}

static void test_workspace_of_products(void **state)
{
    (void)state;
    check_workspace(8, (size_t)4 << 20);
    check_workspace(9, (size_t)32 << 20);
    check_workspace(10, (size_t)32 << 20);
}

static int set_dense(void **state)
{
    (void)state;
    nn_cuda_implicit_most = few;
    setting.without = 0;
    setting.network = network;
    return 0;
}

// As if they had many channels: by cuDNN.
static int set_many(void **state)
{
    set_dense(state);
    nn_cuda_implicit_most = 0;
    return 0;
}

static int set_images(void **state)
{
    set_many(state);
    setting.network = image_network;
    return 0;
}

static int set_images_alone(void **state)
{
    set_images(state);
    setting.without = EMU_NO_CUDNN;
    return 0;
}

static int set_images_of_few(void **state)
{
    set_images(state);
    nn_cuda_implicit_most = few;
    return 0;
}

static struct CMUnitTest test_as(const char *name, CMUnitTestFunction test, CMFixtureFunction set)
{
    return (struct CMUnitTest){name, test, set, NULL, NULL};
}

#define TEST(test) test_as(#test, test, set_dense)
#define TEST_OF_MANY(test) test_as(#test, test, set_many)
#define TEST_OF_CUDNN(test) test_as(#test, test, set_images)
#define TEST_OF_FEW(test) test_as(#test " of few channels", test, set_images_of_few)
#define TEST_OF_IMAGES(test) \
    test_as(#test " of images", test, set_images), test_as(#test " of images alone", test, set_images_alone)

int main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    few = nn_cuda_implicit_most;
    const struct CMUnitTest tests[] = {
        TEST(test_operators),
        TEST(test_larger_operators),
        TEST(test_nan_targets),
        TEST(test_variance_far_from_zero),
        TEST_OF_MANY(test_convolutions),
        TEST_OF_MANY(test_padding_that_does_not_matter),
        TEST_OF_MANY(test_rounded_convolution),
        TEST(test_rounded_few_channels),
        TEST(test_steps),
        TEST(test_precision),
        TEST(test_deterministic),
        TEST(test_recorded_steps),
        TEST(test_drawn_steps),
        TEST(test_rules),
        TEST(test_many_variables),
        TEST(test_rule_is_not_waited_for),
        TEST(test_recorded_training),
        TEST(test_failed_launch_of_kept),
        TEST(test_values_stay),
        TEST(test_rule_of_the_host),
        TEST(test_two_devices),
        TEST(test_hook_fails),
        TEST(test_no_memory),
        TEST(test_failed_launch),
        TEST(test_batch_that_fits),
        TEST(test_no_device),
        TEST(test_a_gpu_of_another_process),
        TEST(test_a_gpu_without_kernels),
        TEST(test_a_gpu_without_memory_for_cublas),
        TEST(test_workspace_of_products),
        TEST_OF_CUDNN(test_which_convolutions),
        TEST_OF_CUDNN(test_no_such_convolutions),
        TEST_OF_FEW(test_few_channels),
        TEST_OF_FEW(test_steps),
        TEST_OF_FEW(test_deterministic),
        TEST_OF_FEW(test_recorded_training),
        TEST_OF_IMAGES(test_steps),
        TEST_OF_IMAGES(test_deterministic),
        TEST_OF_IMAGES(test_recorded_steps),
        TEST_OF_IMAGES(test_rules),
        TEST_OF_IMAGES(test_recorded_training),
        TEST_OF_IMAGES(test_failed_launch_of_kept),
        TEST_OF_IMAGES(test_two_devices),
        TEST_OF_IMAGES(test_no_memory),
        TEST_OF_IMAGES(test_failed_launch),
        TEST_OF_IMAGES(test_batch_that_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
