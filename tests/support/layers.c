/* layers.c -- draw inputs of a layer, run it or its judge, compare. */
#include "support/layers.h"

#include <math.h>
#include <stdio.h>

#include "support/rows.h"

const char *const layer_part_names[LAYER_PARTS] = { "y", "dx", "dsource", "dbias",
                                                    "dparams" };

/*
 * Layers
 */

const struct layer_mix layer_mixes[N_LAYER_MIXES] = {
    { "7*fixed + 1*softmax", 8 },
    { "2*softmax frozen(orthogonal) + 6*softmax", 8 },
    { "2*softmax frozen(hadamard) + 4*fixed + 2*softmax rope", 8 },
    { "2*softmax + 4*fixed + 2*linear", 4 },
    { "2*fixed + 2*softmax temper + 2*lightconv + 2*local(window=3)", 8 },
    { "3*softmax frozen(gaussian, tie=1) + 5*relu2", 8 },
    { "4*softmax init(orthogonal) + 4*lsh(buckets=4, shared=1)", 8 },
    { "4*softmax + 4*softmax frozen(orthogonal, sample=block)", 2 },
    { "2*softmax txl + 2*fixed + 4*softmax txl sink", 8 },
    { "2*synthesizer(dense, hidden=4) + 4*softmax shaw(clip=2) + 2*dynconv", 8 },
    { "4*routed(softmax, routes=3) + 4*softmax", 16 },
};

enum { MAX_LISTS = 8 };

static foci_problem problem_of(const foci_layer_problem *l)
{
    const int64_t dim = l->head_dim ? l->head_dim : l->width / l->heads;

    return (foci_problem){ FOCI_SIZED(foci_problem),
                           .flags = l->flags,
                           .batch = l->batch,
                           .heads = l->heads,
                           .kv_heads = l->kv_heads,
                           .len_q = l->len,
                           .len_k = l->len_source ? l->len_source : l->memory + l->len,
                           .dim_qk = dim,
                           .dim_v = l->value_dim,
                           .dim_x = l->width };
}

/* Entries that depend on nothing but their number; of any number, none. */
static int64_t draw_lists(foci_ctx *ctx, const char *spec, const foci_layer_problem *l,
                          foci_list *lists, foci_list_want *wants)
{
    const foci_problem p = problem_of(l);
    struct rng         r;
    int64_t            n = 0;

    rng_seed(&r, 1, 0);
    int count = 0;
    (void)foci_list_wanted_count(ctx, spec, &p, &count);
    for (int i = 0; i < count && i < MAX_LISTS; i++) {
        foci_list_want *want = &wants[n];
        *want = (foci_list_want){ FOCI_SIZED(foci_list_want) };
        if (foci_list_wanted(ctx, spec, &p, i, want)) break;
        if (want->count < 0) continue;
        int64_t *data = test_alloc((size_t)want->count, sizeof *data);
        for (int64_t t = 0; t < want->count; t++)
            data[t] = rng_below(&r, want->most + 1);
        lists[n++] = (foci_list){ want->name, data, want->count };
    }
    return n;
}

/* Routes have keys and values of their own: where they have to share too few, as many for
 * each. */
static int64_t kv_heads_for(foci_ctx *ctx, const char *spec, int64_t kv_heads)
{
    struct spec parsed;

    assert_int_equal(spec_parse(ctx, spec, &parsed), FOCI_OK);
    const int64_t routes =
        parsed.n_groups == 1 ? mech_routes(&parsed.groups[0].mech) : 1;
    spec_free(ctx, &parsed);
    return kv_heads % routes ? kv_heads * routes : kv_heads;
}

foci_layer *layers_make(foci_ctx *ctx, const char *spec,
                        const foci_layer_problem *problem)
{
    foci_layer_problem p = *problem;
    foci_list          lists[MAX_LISTS];
    foci_list_want     wants[MAX_LISTS];
    foci_layer        *layer = NULL;

    p.kv_heads = kv_heads_for(ctx, spec, problem->kv_heads);
    p.lists = lists;
    p.n_lists = draw_lists(ctx, spec, &p, lists, wants);
    const foci_status status = foci_layer_create(ctx, spec, &p, &layer);
    for (int64_t i = 0; i < p.n_lists; i++)
        free((void *)lists[i].data);
    if (status != FOCI_OK && status != FOCI_ERR_UNSUP)
        fail_msg("%s on width %lld, %lld heads: %s", spec, (long long)p.width,
                 (long long)p.heads, foci_errmsg(ctx));
    return layer;
}

bool layers_fit(const char *spec, const foci_layer_problem *p)
{
    const int64_t dim = p->head_dim ? p->head_dim : p->width / p->heads;
    const bool    cross = p->width_source && p->width_source != p->width;
    const bool    grouped = p->kv_heads && p->kv_heads != p->heads;

    if (strstr(spec, "memformer") && p->value_dim && p->value_dim != dim) return false;
    if (strstr(spec, "tie=1") && (cross || grouped || strstr(spec, "routed")))
        return false;
    if (strstr(spec, "sample=block") && p->heads * dim > p->width) return false;
    if (strstr(spec, "kind=hadamard") && p->width % 2) return false;
    return dim <= p->width;
}

int layers_find(const foci_layer *layer, const char *name, foci_param *param)
{
    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        *param = (foci_param){ FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(layer, i, param), FOCI_OK);
        if (strcmp(param->name, name) == 0) return i;
    }
    return -1;
}

/*
 * Inputs
 */

static void *draw(const foci_layer_problem *p, int64_t rows, int64_t width,
                  struct rng *r)
{
    const int64_t n = p->batch * rows * width;
    void         *x = test_alloc((size_t)n, foci_dtype_bytes(p->dtype));

    for (int64_t i = 0; i < n; i++)
        ref_store((int)p->dtype, x, i, rng_normal(r));
    return x;
}

static int64_t count_pairs(const foci_layer_problem *p, const foci_plan *plan)
{
    return max64(p->mask_batch, 1) * max64(p->mask_heads, 1) * plan->p.len_q *
           plan->p.len_k;
}

static void draw_pairs(struct layer_case *c, const foci_plan *plan, struct rng *r)
{
    const int64_t n = count_pairs(&c->p, plan);

    if (c->p.flags & FOCI_FLAG_MASK) c->mask = test_alloc((size_t)n, 1);
    if (c->p.flags & FOCI_FLAG_BIAS) c->bias = test_alloc((size_t)n, sizeof *c->bias);
    for (int64_t i = 0; c->mask && i < n; i++)
        c->mask[i] = i / plan->p.len_k % 7 != 3 && rng_uniform(r) < 0.7;
    for (int64_t i = 0; c->bias && i < n; i++)
        c->bias[i] = (float)rng_normal(r);
}

/* Whether the two sequences of cross-attention must be of one length. */
static bool paired(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        if (mech_paired(&plan->spec.groups[g].mech) || plan->stages[g].linear.cosine)
            return true;
    return false;
}

static void draw_lens(struct layer_case *c, const foci_plan *plan, struct rng *r)
{
    c->lens = trial_lens(r, c->p.batch, c->p.len);
    if (!c->p.len_source) return;
    c->lens_source = trial_lens(r, c->p.batch, c->p.len_source);
    if (paired(plan))
        memcpy(c->lens_source, c->lens, (size_t)c->p.batch * sizeof *c->lens);
}

int layers_own(const foci_layer *layer)
{
    int made = 0;

    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(layer, i, &param), FOCI_OK);
        const size_t n = strlen(param.name);
        made += strcmp(param.name, "WR") == 0 ||
                (n > 3 && strcmp(param.name + n - 3, ".WR") == 0);
    }
    return foci_layer_param_count(layer) -
           foci_plan_param_count(foci_layer_plan(layer)) + made;
}

/* Of the plan's tensors those that the layer stores, in their order. */
static void draw_plan(const foci_layer *layer, struct layer_case *c, struct rng *r)
{
    const foci_plan *plan = foci_layer_plan(layer);
    float           *all = test_alloc((size_t)plan->n_floats + 1, sizeof *all);
    int              at = layers_own(layer);

    trial_params(plan, c->seed, r, all);
    for (int i = 0; i < plan->n_params; i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        if (foci_layer_param(layer, at, &param) ||
            param.count != plan->params[i].count ||
            strcmp(param.name, plan->params[i].name) != 0)
            continue;
        memcpy(c->params + param.offset, all + plan->params[i].offset,
               (size_t)param.count * sizeof *all);
        at++;
    }
    assert_int_equal(at, foci_layer_param_count(layer));
    free(all);
}

/* Of the layer's own tensors: weights of any size, biases that are not zero. */
static void draw_params(const foci_layer *layer, struct layer_case *c, struct rng *r)
{
    c->params =
        test_alloc((size_t)foci_layer_param_floats(layer) + 1, sizeof *c->params);
    assert_int_equal(foci_layer_params_init(layer, c->seed, c->params), FOCI_OK);
    draw_plan(layer, c, r);
    for (int i = 0; i < layers_own(layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(layer, i, &param), FOCI_OK);
        for (int64_t t = 0; param.offset >= 0 && t < param.count; t++) {
            float *const x = &c->params[param.offset + t];
            *x = (float)((double)*x * (0.5 + rng_uniform(r)) +
                         (param.n_dims == 1 ? 0.3 * rng_normal(r) : 0));
        }
    }
}

/* Kernels that can be negative, but divide by their sum, might divide by next to nothing:
 * on short rows of one sign they do not. */
static bool cancels(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner) {
            if (m->def->engine != FOCI_ENGINE_LINEAR) continue;
            const foci_linear l = linear_of(m);
            if (l.norm == FOCI_LINEAR_NORM_SUM && linear_signed(&l)) return true;
        }
    return false;
}

static void keep_off(struct layer_case *c, const foci_layer *layer)
{
    const int     type = (int)c->p.dtype;
    const double  small = 0.6 / sqrt((double)c->p.width);
    const int64_t n = c->p.batch * c->p.len * c->p.width;

    for (int64_t i = 0; i < n; i++)
        ref_store(type, c->x, i, fabs(ref_load(type, c->x, i)));
    for (int64_t i = 0; i < c->p.batch * c->p.memory * c->p.width; i++)
        ref_store(type, c->memory, i, fabs(ref_load(type, c->memory, i)));
    for (int64_t i = 0; i < c->p.batch * c->p.len_source * c->p.width_source; i++)
        ref_store(type, c->source, i, fabs(ref_load(type, c->source, i)));
    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        assert_int_equal(foci_layer_param(layer, i, &param), FOCI_OK);
        if (param.offset < 0 ||
            (!strstr(param.name, "Wq") && !strstr(param.name, "Wk") &&
             !strstr(param.name, "bq") && !strstr(param.name, "bk")))
            continue;
        for (int64_t t = param.offset; t < param.offset + param.count; t++)
            c->params[t] = (float)(small * fabs((double)c->params[t]));
    }
}

static void must(foci_status status, const foci_layer *layer, const struct layer_case *c,
                 const foci_layer_io *io, const foci_layer_grads *g)
{
    char text[256] = "";

    if (status == FOCI_OK) return;
    foci_layer_io_check(layer, io, g, text, sizeof text);
    fail_msg("%s: %s: %s", c->spec, foci_status_text(status), text);
}

/* Statistics of q and k that parameters leave open. */
static void calibrate(const foci_layer *layer, struct layer_case *c, unsigned gives)
{
    const bool few = gives & (LAYER_LENS | LAYER_DOCS) || c->p.len <= c->p.head_dim;

    if (!trial_is_linear(foci_layer_plan(layer)) ||
        !(few || c->p.flags & FOCI_FLAG_CAUSAL || c->seed % 2))
        return;
    foci_layer_io io = layer_case_io(c);
    io.y = c->dy; /* not written */
    io.work = test_alloc(foci_layer_work_bytes(layer), 1);
    must(foci_layer_params_calibrate(layer, &io, c->params), layer, c, &io, NULL);
    free(io.work);
}

/* NaN as padding: nothing may come of it. */
static void spoil(const struct layer_case *c, void *rows, const int32_t *lens,
                  int64_t len, int64_t width)
{
    const size_t bytes = (size_t)width * foci_dtype_bytes(c->p.dtype);

    for (int64_t b = 0; rows && lens && b < c->p.batch; b++)
        memset((char *)rows + (size_t)(b * len + lens[b]) * bytes, 0xff,
               (size_t)(len - lens[b]) * bytes);
}

struct layer_case layers_draw(const foci_layer *layer, const char *spec, uint64_t seed,
                              unsigned gives)
{
    const foci_plan  *plan = foci_layer_plan(layer);
    struct layer_case c = { .seed = seed, .p = { FOCI_SIZED(foci_layer_problem) } };
    struct rng        r;

    assert_int_equal(foci_layer_get_problem(layer, &c.p), FOCI_OK);
    snprintf(c.spec, sizeof c.spec, "%s", spec);
    rng_seed(&r, seed, 78);
    c.x = draw(&c.p, c.p.len, c.p.width, &r);
    c.source = draw(&c.p, c.p.len_source, c.p.width_source, &r);
    c.memory = draw(&c.p, c.p.memory, c.p.width, &r);
    c.dy = draw(&c.p, c.p.len, c.p.width, &r);
    if (gives & LAYER_RESIDUAL) c.residual = draw(&c.p, c.p.len, c.p.width, &r);
    draw_params(layer, &c, &r);
    if (gives & LAYER_LENS) {
        draw_lens(&c, plan, &r);
        spoil(&c, c.x, c.lens, c.p.len, c.p.width);
        spoil(&c, c.dy, c.lens, c.p.len, c.p.width);
        spoil(&c, c.residual, c.lens, c.p.len, c.p.width);
        spoil(&c, c.source, c.lens_source, c.p.len_source, c.p.width_source);
    }
    if (gives & LAYER_DOCS) c.docs = trial_docs(&r, c.p.max_docs, c.p.len);
    draw_pairs(&c, plan, &r);
    if (trial_reads(plan) & FOCI_READ_WORDS) {
        const foci_io io = { FOCI_SIZED(foci_io), .len_q = c.lens, .len_k = c.lens,
                             .docs = c.docs, .n_docs = c.docs ? c.p.max_docs : 0 };
        c.words = trial_words(plan, &io, &r);
    }
    if (cancels(plan)) keep_off(&c, layer);
    calibrate(layer, &c, gives);
    return c;
}

void layer_case_free(struct layer_case *c)
{
    void *const all[] = { c->x,           c->source, c->memory, c->residual,
                          c->dy,          c->lens,   c->docs,   c->words,
                          c->lens_source, c->mask,   c->bias,   c->params };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

foci_layer_io layer_case_io(const struct layer_case *c)
{
    return (foci_layer_io){ FOCI_SIZED(foci_layer_io),
                            .x = c->x,
                            .source = c->p.len_source ? c->source : NULL,
                            .memory = c->p.memory ? c->memory : NULL,
                            .residual = c->residual,
                            .lens = c->lens,
                            .lens_source = c->lens_source,
                            .docs = c->docs,
                            .n_docs = c->docs ? c->p.max_docs : 0,
                            .words = c->words,
                            .params = c->params,
                            .mask = c->mask,
                            .bias = c->bias,
                            .dropout_seed = c->seed };
}

/*
 * Executions
 */

static struct layer_result result_make(const foci_layer        *layer,
                                       const struct layer_case *c)
{
    const foci_layer_problem *p = &c->p;
    const bool                train = p->flags & FOCI_FLAG_TRAIN;
    struct layer_result       r = {
              .n = { [LAYER_Y] = p->batch * p->len * p->width,
                     [LAYER_DX] = p->batch * p->len * p->width,
                     [LAYER_DSOURCE] = p->batch * p->len_source * p->width_source,
                     [LAYER_DBIAS] = c->bias ? count_pairs(p, foci_layer_plan(layer)) : 0,
                     [LAYER_DPARAMS] = foci_layer_param_floats(layer) }
    };

    for (int i = 0; i < LAYER_PARTS; i++) {
        if (i != LAYER_Y && !train) r.n[i] = 0;
        r.x[i] = test_alloc((size_t)r.n[i] + 1, sizeof(double));
    }
    return r;
}

void layer_result_free(struct layer_result *r)
{
    for (int i = 0; i < LAYER_PARTS; i++)
        free(r->x[i]);
    free(r->saved);
}

/* Memory in which nothing is a number. */
static void *poisoned(size_t n, size_t size)
{
    void *x = test_alloc(n + 1, size);
    memset(x, 0xff, (n + 1) * size);
    return x;
}

static void widen(int type, const void *from, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = ref_load(type, from, i);
}

static void run_back(const foci_layer *layer, const struct layer_case *c,
                     foci_layer_io *io, struct layer_result *r)
{
    const size_t     size = foci_dtype_bytes(c->p.dtype);
    const size_t     n = (size_t)r->n[LAYER_DPARAMS];
    float           *dparams = test_alloc(n + 1, sizeof *dparams);
    float           *dbias = poisoned((size_t)r->n[LAYER_DBIAS], sizeof *dbias);
    foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = c->dy,
                           .dx = poisoned((size_t)r->n[LAYER_DX], size),
                           .dparams = dparams, .dbias = c->bias ? dbias : NULL };

    if (c->p.len_source) g.dsource = poisoned((size_t)r->n[LAYER_DSOURCE], size);
    memset(io->work, 0xff, foci_layer_work_bytes(layer));
    must(foci_layer_backward(layer, io, &g), layer, c, io, &g);
    widen((int)c->p.dtype, g.dx, r->n[LAYER_DX], r->x[LAYER_DX]);
    widen((int)c->p.dtype, g.dsource, r->n[LAYER_DSOURCE], r->x[LAYER_DSOURCE]);
    widen(FOCI_F32, dbias, r->n[LAYER_DBIAS], r->x[LAYER_DBIAS]);
    widen(FOCI_F32, dparams, r->n[LAYER_DPARAMS], r->x[LAYER_DPARAMS]);

    /* Once more, to what there is; nothing else is wanted. */
    const foci_layer_grads again = { FOCI_SIZED(foci_layer_grads), .dy = c->dy,
                                     .dparams = dparams };
    must(foci_layer_backward(layer, io, &again), layer, c, io, &again);
    for (size_t i = 0; i < n; i++) {
        const double got = (double)dparams[i], once = r->x[LAYER_DPARAMS][i];
        if (!(fabs(got - 2 * once) <= 1e-5 * (1 + fabs(once))) && !isnan(once))
            layers_fail(layer, c, "dparams added to", (int64_t)i, got, 2 * once);
    }
    free(g.dx);
    free(g.dsource);
    free(dparams);
    free(dbias);
}

struct layer_result layers_run(const foci_layer *layer, const struct layer_case *c)
{
    struct layer_result r = result_make(layer, c);
    foci_layer_io       io = layer_case_io(c);

    io.y = poisoned((size_t)r.n[LAYER_Y], foci_dtype_bytes(c->p.dtype));
    io.work = poisoned(foci_layer_work_bytes(layer), 1);
    io.saved = poisoned(foci_layer_saved_bytes(layer), 1);
    must(foci_layer_forward(layer, &io), layer, c, &io, NULL);
    widen((int)c->p.dtype, io.y, r.n[LAYER_Y], r.x[LAYER_Y]);
    if (c->p.flags & FOCI_FLAG_TRAIN) run_back(layer, c, &io, &r);
    rows_find(layer, &io, r.rows);
    r.saved = io.saved;
    free(io.y);
    free(io.work);
    return r;
}

/* Elements of the layer's type as doubles; NULL of NULL. */
static double *wide(const struct layer_case *c, const void *from, int64_t rows,
                    int64_t width)
{
    const int64_t n = c->p.batch * rows * width;
    double       *x = from ? test_alloc((size_t)n + 1, sizeof *x) : NULL;

    if (x) widen((int)c->p.dtype, from, n, x);
    return x;
}

struct layer_result layers_judge(const foci_layer *layer, const struct layer_case *c,
                                 bool rounds)
{
    return layers_judge_by(layer, c, rounds, NULL);
}

struct layer_result layers_judge_by(const foci_layer *layer, const struct layer_case *c,
                                    bool rounds, const struct layer_result *by)
{
    const foci_layer_problem *p = &c->p;
    struct layer_result       r = result_make(layer, c);
    const int64_t             n = foci_layer_param_floats(layer);
    foci_layer_io             io = layer_case_io(c);
    double                   *in[] = { wide(c, io.x, p->len, p->width),
                                       wide(c, io.source, p->len_source, p->width_source),
                                       wide(c, io.memory, p->memory, p->width),
                                       wide(c, io.residual, p->len, p->width),
                                       wide(c, c->dy, p->len, p->width) };
    double                   *params = test_alloc((size_t)n + 1, sizeof *params);
    float *dbias = test_alloc((size_t)r.n[LAYER_DBIAS] + 1, sizeof *dbias);

    io.x = in[0];
    io.source = in[1];
    io.memory = in[2];
    io.residual = in[3];
    io.y = r.x[LAYER_Y];
    widen(FOCI_F32, c->params, n, params);
    struct ref_layer_call call = {
        .layer = layer, .io = &io, .type = REF_F64, .params = params, .rounds = rounds
    };
    if (by) memcpy(call.rows, by->rows, sizeof call.rows);
    r.given = by != NULL;
    assert_int_equal(ref_layer_run(&call), FOCI_OK);
    const foci_layer_grads g = { FOCI_SIZED(foci_layer_grads), .dy = in[4],
                                 .dx = r.x[LAYER_DX],
                                 .dsource = p->len_source ? r.x[LAYER_DSOURCE] : NULL,
                                 .dbias = c->bias ? dbias : NULL };
    if (p->flags & FOCI_FLAG_TRAIN) {
        call.grads = &g;
        call.dparams = r.x[LAYER_DPARAMS];
        assert_int_equal(ref_layer_run(&call), FOCI_OK);
        widen(FOCI_F32, dbias, r.n[LAYER_DBIAS], r.x[LAYER_DBIAS]);
    }
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        free(in[i]);
    free(params);
    free(dbias);
    return r;
}

/*
 * Comparison
 */

void layers_fail(const foci_layer *layer, const struct layer_case *c, const char *what,
                 int64_t index, double got, double want)
{
    static const char *const  types[] = { "f32", "bf16", "f16" };
    static const char *const  kinds[] = { "attention", "gau", "conv" };
    const foci_layer_problem *p = &c->p;
    const char               *level = "?", *name, *state;

    for (int i = 0; (name = foci_cpu_level(foci_layer_plan(layer)->ctx, i, &state)); i++)
        if (strcmp(state, "chosen") == 0) level = name;
    fail_msg(
        "%s, %s of width %lld, %lld heads, b%lldn%lldm%lld%s, %s%s, seed %llu, level "
        "%s%s%s: %s[%lld] is %.9g, not %.9g",
        c->spec, kinds[p->kind], (long long)p->width, (long long)p->heads,
        (long long)p->batch, (long long)p->len, (long long)(p->len_source + p->memory),
        p->flags & FOCI_FLAG_CAUSAL ? "c" : "", types[p->dtype],
        p->flags & FOCI_FLAG_FAST ? "fast" : "", (unsigned long long)c->seed, level,
        c->lens ? ", lengths" : "", c->docs ? ", documents" : "", what,
        (long long)index, got, want);
}

void layers_equal(const foci_layer *layer, const struct layer_case *c, const char *what,
                  const struct layer_result *got, const struct layer_result *want)
{
    for (int part = 0; part < LAYER_PARTS; part++) {
        assert_int_equal(got->n[part], want->n[part]);
        for (int64_t i = 0; i < got->n[part]; i++) {
            if (memcmp(&got->x[part][i], &want->x[part][i], sizeof(double)) == 0)
                continue;
            char text[96];
            snprintf(text, sizeof text, "%s: %s", what, layer_part_names[part]);
            layers_fail(layer, c, text, i, got->x[part][i], want->x[part][i]);
        }
    }
}

static double apart(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] != y[i]) sum += (x[i] - y[i]) * (x[i] - y[i]);
    return n ? sqrt(sum / (double)n) : 0;
}

void layers_near(const foci_layer *layer, const struct layer_case *c, const char *what,
                 const double *got, const double *want, int64_t n)
{
    const double bound = (c->p.dtype == FOCI_F32 ? 2e-5 : 0x1p-6) * rms(want, n);
    int64_t      worst = 0;

    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(got[i])) layers_fail(layer, c, what, i, got[i], want[i]);
        if (fabs(got[i] - want[i]) > fabs(got[worst] - want[worst])) worst = i;
    }
    if (n &&
        (apart(got, want, n) > bound || fabs(got[worst] - want[worst]) > 16 * bound))
        layers_fail(layer, c, what, worst, got[worst], want[worst]);
}

/* What rounding to the type of the result does. */
static double rounding(int type, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = x[i] - ref_round(type, x[i]);
        sum += off * off;
    }
    return n ? sqrt(sum / (double)n) : 0;
}

/* Labels and the largest gates are chosen, and a divisor bends. */
static bool chooses(const foci_plan *plan)
{

    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner) {
            foci_order order = { .label = FOCI_LABEL_NONE };
            if (m->def->order) m->def->order(m, &order);
            if (order.label > FOCI_LABEL_PLACE) return true;
            if (mech_top_routes(m)) return true;
            if (m->def->engine == FOCI_ENGINE_LINEAR &&
                linear_of(m).norm == FOCI_LINEAR_NORM_RETNET)
                return true;
        }
    return false;
}

static bool rounds(const struct layer_case *c)
{
    return c->p.dtype != FOCI_F32 || c->p.flags & FOCI_FLAG_FAST;
}

bool layers_choose(const foci_layer *layer, const struct layer_case *c)
{
    return rounds(c) && chooses(foci_layer_plan(layer));
}

/* Numbers that are compared by themselves. */
struct piece {
    const char   *name;
    const double *got, *want, *rounded;
    int64_t       n;
    double        whole;  /* the size of all of which it is part */
    bool          tensor; /* of the layer's type */
    bool chosen; /* by other rows: for a row or two of a few that leaves nothing
                           * to say but that numbers are finite */
};

/* Places between x and y are rounded once in the yardstick, and sums in another order
 * a few times more.  Of few numbers the yardstick may be a lucky one. */
static double bound_of(const struct layer_case *c, const struct piece *p)
{
    const double size = rms(p->want, p->n), yard = apart(p->rounded, p->want, p->n);
    const double few = 6 / sqrt(fmax(1, (double)min64(p->n, c->p.batch * c->p.len)));

    if (!rounds(c)) return 1e-5 * size + 2e-6 * p->whole + (8 + few) * yard;
    double bound = (2 + few) * (yard + 0x1p-9 * size) + 0x1p-7 * p->whole;
    if (p->tensor && c->p.dtype != FOCI_F32)
        bound += 1.1 * rounding((int)c->p.dtype, p->want, p->n);
    return bound;
}

static void compare(const foci_layer *layer, const struct layer_case *c, struct piece p)
{
    int64_t worst = 0;

    const double bound = bound_of(c, &p);
    const double error = apart(p.got, p.want, p.n);
    for (int64_t i = 0; i < p.n; i++) {
        if (!isfinite(p.got[i]) || !isfinite(p.want[i]))
            layers_fail(layer, c, p.name, i, p.got[i], p.want[i]);
        if (fabs(p.got[i] - p.want[i]) > fabs(p.got[worst] - p.want[worst])) worst = i;
    }
    if (error <= bound || p.chosen) return;
    print_error("rms error %.3g of %.3g; allowed %.3g\n", error, rms(p.want, p.n),
                bound);
    layers_fail(layer, c, p.name, worst, p.got[worst], p.want[worst]);
}

static void compare_params(const foci_layer *layer, const struct layer_case *c,
                           const struct layer_result *got,
                           const struct layer_result *want,
                           const struct layer_result *rounded)
{
    const double whole = rms(want->x[LAYER_DPARAMS], want->n[LAYER_DPARAMS]);

    for (int i = 0; i < foci_layer_param_count(layer); i++) {
        foci_param param = { FOCI_SIZED(foci_param) };
        char       name[96];

        assert_int_equal(foci_layer_param(layer, i, &param), FOCI_OK);
        if (param.offset < 0) continue;
        snprintf(name, sizeof name, "d %s", param.name);
        compare(layer, c,
                (struct piece){ name, got->x[LAYER_DPARAMS] + param.offset,
                                want->x[LAYER_DPARAMS] + param.offset,
                                rounded->x[LAYER_DPARAMS] + param.offset, param.count,
                                whole, false, layers_choose(layer, c) && !want->given });
    }
}

void layers_close(const foci_layer *layer, const struct layer_case *c,
                  const struct layer_result *got, const struct layer_result *want,
                  const struct layer_result *rounded)
{
    for (int part = 0; part < LAYER_DPARAMS; part++) {
        if (!want->n[part]) continue;
        const bool bias = part == LAYER_DBIAS;
        /* dy is of size 1, and so is what may cancel on its way to other rows. */
        const double size = rms(want->x[part], want->n[part]);
        const double whole = part == LAYER_Y ? size : fmax(size, 1);
        compare(layer, c,
                (struct piece){ layer_part_names[part], got->x[part], want->x[part],
                                rounded->x[part], want->n[part], whole, !bias,
                                layers_choose(layer, c) && !want->given });
    }
    if (want->n[LAYER_DPARAMS]) compare_params(layer, c, got, want, rounded);
}
