/* heads.c -- what the heads of a layer read and do: q, k and v by hand, weights whose
 * concentration is known, outputs against softmax written out. */
#include <math.h>

#include "foci/analyse.h"
#include "test.h"

enum { BATCH = 2, LEN = 6, WIDTH = 12, HEADS = 3, DIM = 4 };

/* A layer and an execution of it. */
struct scene {
    foci_ctx          *ctx;
    foci_layer        *layer;
    foci_layer_problem p;
    foci_layer_io      io;
    float              x[BATCH * LEN * WIDTH], y[BATCH * LEN * WIDTH];
    float             *params;
    void              *work;
};

static void open_scene(struct scene *s, const char *spec, uint32_t flags,
                       const int32_t *lens)
{
    s->ctx = test_ctx(NULL, 1);
    s->p = (foci_layer_problem){ FOCI_SIZED(foci_layer_problem),
                                 .batch = BATCH,
                                 .len = LEN,
                                 .width = WIDTH,
                                 .heads = HEADS,
                                 .flags = flags,
                                 .biases = 1,
                                 .seed = 3 };
    if (foci_layer_create(s->ctx, spec, &s->p, &s->layer))
        fail_msg("%s", foci_errmsg(s->ctx));
    for (int i = 0; i < BATCH * LEN * WIDTH; i++)
        s->x[i] = sinf(1 + 1.7F * (float)i);
    const int64_t n = foci_layer_param_floats(s->layer);
    s->params = test_alloc((size_t)n + 1, sizeof *s->params);
    assert_int_equal(foci_layer_params_init(s->layer, 5, s->params), FOCI_OK);
    for (int64_t i = 0; i < n; i++) /* biases are not 0 either */
        s->params[i] += 0.1F * cosf((float)i);
    s->work = test_alloc(foci_layer_work_bytes(s->layer) + 1, 1);
    s->io = (foci_layer_io){
        FOCI_SIZED(foci_layer_io), .x = s->x,      .y = s->y, .lens = lens,
        .params = s->params,       .work = s->work
    };
}

static void close_scene(struct scene *s)
{
    free(s->params);
    free(s->work);
    foci_layer_free(s->layer);
    foci_ctx_free(s->ctx);
}

static const float *tensor(const struct scene *s, const char *name)
{
    foci_param p = { FOCI_SIZED(foci_param) };

    for (int i = 0; i < foci_layer_param_count(s->layer); i++)
        if (!foci_layer_param(s->layer, i, &p) && !strcmp(p.name, name))
            return s->params + p.offset;
    fail_msg("there is no %s", name);
    return NULL;
}

/* Element c of head h in row i of x W + b, in a tensor of `heads` heads. */
static double projected(const struct scene *s, const char *w, const char *b, int heads,
                        int i, int h, int c)
{
    const int    col = h * DIM + c;
    const float *matrix = tensor(s, w);
    double       sum = (double)tensor(s, b)[col];

    for (int t = 0; t < WIDTH; t++)
        sum += (double)s->x[i * WIDTH + t] * (double)matrix[t * heads * DIM + col];
    return sum;
}

static void check_rows(const struct scene *s, const float *rows, const foci_layout *l,
                       const char *w, const char *b)
{
    for (int n = 0; n < BATCH; n++)
        for (int i = 0; i < LEN; i++)
            for (int h = 0; h < HEADS; h++)
                for (int c = 0; c < DIM; c++) {
                    const double got =
                        (double)rows[n * l->batch + i * l->row + h * l->head + c];
                    const double want = projected(s, w, b, HEADS, n * LEN + i, h, c);
                    assert_true(fabs(got - want) < 1e-5);
                }
}

static void projections(void **state)
{
    struct scene s;
    foci_io      heads = { FOCI_SIZED(foci_io) };
    foci_problem p = { FOCI_SIZED(foci_problem) };

    (void)state;
    open_scene(&s, "softmax", FOCI_FLAG_CAUSAL, NULL);
    assert_int_equal(foci_layer_heads(s.layer, &s.io, &heads), FOCI_OK);
    assert_int_equal(foci_plan_get_problem(foci_layer_plan(s.layer), &p), FOCI_OK);
    check_rows(&s, heads.q, &p.q, "Wq", "bq");
    check_rows(&s, heads.k, &p.k, "Wk", "bk");
    check_rows(&s, heads.v, &p.v, "Wv", "bv");
    close_scene(&s);
}

/* Rows of a head that sees itself alone have one weight of as many as there are keys. */
static double alone(uint32_t flags, const int32_t *lens)
{
    double sum = 0, rows = 0;

    for (int b = 0; b < BATCH; b++) {
        const int n = lens ? lens[b] : LEN;
        for (int i = 0; i < n; i++, rows++)
            sum += 1 / sqrt(flags & FOCI_FLAG_CAUSAL ? i + 1 : n);
    }
    return sum / rows;
}

static void concentrations(void **state)
{
    static const int32_t  lens[] = { 4, 6 };
    static const uint32_t flags[] = { 0, FOCI_FLAG_CAUSAL };
    struct scene          s;
    double                heads[HEADS];

    (void)state;
    for (int i = 0; i < 4; i++) {
        const int32_t *l = i / 2 ? lens : NULL;
        open_scene(&s, "1*fixed(pattern=current) + 2*softmax", flags[i % 2], l);
        memset((float *)tensor(&s, "1.Wq"), 0, WIDTH * 2 * DIM * sizeof(float));
        memset((float *)tensor(&s, "1.bq"), 0, sizeof(float) * 2 * DIM);
        assert_int_equal(foci_layer_concentration(s.layer, &s.io, heads), FOCI_OK);
        assert_true(fabs(heads[0] - alone(flags[i % 2], l)) < 1e-6);
        assert_true(fabs(heads[1] - 1) < 1e-6 && fabs(heads[2] - 1) < 1e-6);
        close_scene(&s);
    }
    open_scene(&s, "routed(routes=2)", 0, NULL);
    assert_int_equal(foci_layer_concentration(s.layer, &s.io, heads), FOCI_ERR_UNSUP);
    close_scene(&s);
}

/* The output of a causal head with these weights of rows, f(s q.k) for j <= i. */
static void attend(const struct scene *s, int b, int group_heads,
                   const char *const *name, int h, int i, double (*weight)(double, int),
                   bool divides, double *o)
{
    double q[DIM], sum = 0;

    for (int c = 0; c < DIM; c++) {
        q[c] = projected(s, name[0], name[1], group_heads, b * LEN + i, h, c);
        o[c] = 0;
    }
    for (int j = 0; j <= i; j++) {
        double x = 0;
        for (int c = 0; c < DIM; c++)
            x += q[c] * projected(s, name[2], name[3], group_heads, b * LEN + j, h, c) /
                 sqrt(DIM);
        const double a = weight(x, i + 1);
        sum += a;
        for (int c = 0; c < DIM; c++)
            o[c] += a * projected(s, name[4], name[5], group_heads, b * LEN + j, h, c);
    }
    for (int c = 0; divides && c < DIM; c++)
        o[c] /= sum;
}

static double exponential(double x, int n)
{
    (void)n;
    return exp(x);
}

static double square(double x, int n) { return x > 0 ? x * x / n : 0; }

static double error_by_hand(const struct scene *s)
{
    static const char *const name[] = { "2.Wq", "2.bq", "2.Wk", "2.bk", "2.Wv", "2.bv" };
    double                   far = 0, all = 0, a[DIM], b[DIM];

    for (int n = 0; n < BATCH; n++)
        for (int i = 0; i < LEN; i++) {
            attend(s, n, 1, name, 0, i, square, false, a);
            attend(s, n, 1, name, 0, i, exponential, true, b);
            for (int c = 0; c < DIM; c++) {
                far += (a[c] - b[c]) * (a[c] - b[c]);
                all += b[c] * b[c];
            }
        }
    return sqrt(far / all);
}

/* Heads that read no queries have nothing to be compared with. */
static void errors(void **state)
{
    struct scene s;
    double       heads[HEADS];

    (void)state;
    open_scene(&s, "1*fixed(pattern=current) + 1*softmax + 1*relu2", FOCI_FLAG_CAUSAL,
               NULL);
    assert_int_equal(foci_layer_softmax_errors(s.layer, &s.io, heads), FOCI_OK);
    assert_true(isnan(heads[0]));
    assert_true(heads[1] == 0);
    assert_true(fabs(heads[2] - error_by_hand(&s)) < 1e-5);
    close_scene(&s);
}

/* Both sides have the modifiers, with their parameters: where the mechanism is softmax
 * nothing differs, and without the modifiers it would. */
static void modifiers(void **state)
{
    static const char *const specs[] = {
        "softmax rope cap(1)",
        "softmax alibi",
        "1*linear + 2*softmax t5(buckets=4) temper",
        "1*routed(routes=2) + 1*softmax shaw(clip=2) + 1*softmax txl sink",
    };
    struct scene s;
    double       heads[HEADS];

    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        open_scene(&s, specs[i], FOCI_FLAG_CAUSAL, NULL);
        assert_int_equal(foci_layer_softmax_errors(s.layer, &s.io, heads), FOCI_OK);
        assert_true(heads[1] == 0 && heads[2] == 0);
        assert_true(i < 2 ? heads[0] == 0 : !(heads[0] <= 0.01));
        close_scene(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(projections),
        cmocka_unit_test(concentrations),
        cmocka_unit_test(errors),
        cmocka_unit_test(modifiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
