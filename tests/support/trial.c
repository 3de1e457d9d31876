/* trial.c -- draw inputs, run the engine or the judge, compare. */
#include "support/trial.h"

#include "support/remote.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

const char *const part_names[N_PARTS] = { "o",  "lse", "dq",    "dk",
                                          "dv", "dx",  "dbias", "dparams" };

/*
 * Tensors
 */

/* A tensor of a problem: its layout, and what it holds. */
struct shape {
    foci_layout l;
    int64_t     batch, rows, heads, dim;
};

static struct shape shape_of(const foci_problem *p, char tensor)
{
    switch (tensor) {
    case 'q': return (struct shape){ p->q, p->batch, p->len_q, p->heads, p->dim_qk };
    case 'k': return (struct shape){ p->k, p->batch, p->len_k, p->kv_heads, p->dim_qk };
    case 'x': return (struct shape){ p->x, p->batch, p->len_q, 1, p->dim_x };
    case 'v': return (struct shape){ p->v, p->batch, p->len_k, p->kv_heads, p->dim_v };
    default: return (struct shape){ p->o, p->batch, p->len_q, p->heads, p->dim_v };
    }
}

int64_t trial_at(const foci_layout *l, int64_t b, int64_t row, int64_t head, int64_t t)
{
    return b * l->batch + row * l->row + head * l->head + t;
}

static int64_t count(const struct shape *s)
{
    return s->batch * s->rows * s->heads * s->dim;
}

/* Elements from the first to the last. */
static int64_t extent(const struct shape *s)
{
    if (count(s) == 0) return 0;
    return trial_at(&s->l, s->batch - 1, s->rows - 1, s->heads - 1, s->dim);
}

/* The place of packed element i. */
static int64_t place(const struct shape *s, int64_t i)
{
    const int64_t t = i % s->dim, h = i / s->dim % s->heads;
    const int64_t row = i / s->dim / s->heads % s->rows;
    return trial_at(&s->l, i / s->dim / s->heads / s->rows, row, h, t);
}

static size_t bytes_of(int type)
{
    return type == REF_F64 ? sizeof(double) : foci_dtype_bytes((foci_dtype)type);
}

enum { FILLER = 0xa5 };

static void *tensor_make(int type, const struct shape *s)
{
    const size_t n = (size_t)extent(s);
    void        *x = test_alloc(n + 1, bytes_of(type));
    memset(x, FILLER, (n + 1) * bytes_of(type));
    return x;
}

static void *tensor_draw(int type, const struct shape *s, struct rng *r)
{
    void *x = tensor_make(type, s);
    for (int64_t i = 0; i < count(s); i++)
        ref_store(type, x, place(s, i), rng_normal(r));
    return x;
}

/* The same numbers as doubles, laid out alike; NULL of NULL. */
static double *tensor_widen(int type, const struct shape *s, const void *from)
{
    double *x = from ? tensor_make(REF_F64, s) : NULL;
    for (int64_t i = 0; x && i < count(s); i++)
        x[place(s, i)] = ref_load(type, from, place(s, i));
    return x;
}

/* Packed doubles of a result, which is freed.  Bytes that belong to no element must
 * still be filler. */
static double *tensor_collect(int type, const struct shape *s, void *from)
{
    const size_t n = (size_t)extent(s) + 1, size = bytes_of(type);
    uint8_t     *own = test_alloc(n, 1);
    double      *x = test_alloc((size_t)count(s), sizeof *x);

    for (int64_t i = 0; i < count(s); i++) {
        const int64_t at = place(s, i);
        x[i] = ref_load(type, from, at);
        own[at] = 1;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t t = i * size; !own[i] && t < (i + 1) * size; t++)
            if (((uint8_t *)from)[t] != FILLER)
                fail_msg("element %zu lies between rows and was written", i);
    free(own);
    free(from);
    return x;
}

/*
 * Inputs
 */

int32_t *trial_lens(struct rng *r, int64_t n, int64_t most)
{
    int32_t *len = test_alloc((size_t)n, sizeof *len);
    for (int64_t b = 0; b < n; b++)
        len[b] = (int32_t)rng_below(r, most + 1);
    if (n > 0) len[n - 1] = (int32_t)most;
    return len;
}

int32_t *trial_docs(struct rng *r, int64_t n, int64_t len)
{
    int32_t *docs = test_alloc((size_t)n + 1, sizeof *docs);
    for (int64_t d = 0; d <= n; d++)
        docs[d] = (int32_t)rng_below(r, len + 1);
    for (int64_t d = 1; d <= n; d++) /* insertion sort */
        for (int64_t e = d; e > 0 && docs[e] < docs[e - 1]; e--) {
            const int32_t swap = docs[e];
            docs[e] = docs[e - 1];
            docs[e - 1] = swap;
        }
    return docs;
}

int32_t *trial_words(const foci_plan *plan, const foci_io *io, struct rng *r)
{
    const foci_problem *p = &plan->p;
    struct seq   *seqs = test_alloc((size_t)plan_max_seqs(plan) + 1, sizeof *seqs);
    const int64_t n = plan_seqs(plan, io, seqs), rows = p->batch * p->len_q;
    int32_t      *words = test_alloc((size_t)rows + 1, sizeof *words);

    for (int64_t i = 0; i < rows; i++)
        words[i] = -7;
    for (int64_t s = 0; s < n; s++) {
        int32_t *of = words + seqs[s].b * p->len_q + seqs[s].q0;
        for (int64_t i = 0; i < seqs[s].nq; i++)
            of[i] = i ? of[i - 1] + (rng_uniform(r) < 0.4) : 0;
    }
    free(seqs);
    return words;
}

static void draw_pairs(struct trial *t, struct rng *r)
{
    const foci_problem *p = &t->p;
    const int64_t       n = p->mask_batch * p->mask_heads * p->len_q * p->len_k;

    if (p->flags & FOCI_FLAG_MASK) t->mask = test_alloc((size_t)n, 1);
    if (p->flags & FOCI_FLAG_BIAS) t->bias = test_alloc((size_t)n, sizeof *t->bias);
    for (int64_t i = 0; t->mask && i < n; i++) {
        const bool whole_row = i / p->len_k % 7 == 3; /* hidden altogether */
        t->mask[i] = !whole_row && rng_uniform(r) < 0.7;
    }
    for (int64_t i = 0; t->bias && i < n; i++)
        t->bias[i] = (float)rng_normal(r);
}

bool trial_is(const foci_plan *plan, foci_engine engine)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->engine == engine) return true;
    return false;
}

bool trial_is_other(const foci_plan *plan)
{
    static const foci_engine others[] = { FOCI_ENGINE_LINEAR, FOCI_ENGINE_POSITIONAL,
                                          FOCI_ENGINE_NYSTROM, FOCI_ENGINE_MEMFORMER };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (trial_is(plan, others[i])) return true;
    return false;
}

bool trial_has_weights(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++) {
        const foci_mech *m = &plan->spec.groups[g].mech;
        foci_positional  p = { 0 };
        if (m->def->positional) m->def->positional(m, 0, &p);
        if (m->def->routes || m->def->memformer || p.parts > 1) return false;
    }
    return true;
}

unsigned trial_reads(const foci_plan *plan)
{
    unsigned reads = 0;
    for (int g = 0; g < plan->spec.n_groups; g++)
        reads |= mech_reads(&plan->spec.groups[g].mech);
    return reads;
}

/* Statistics of q and k that parameters leave open are found in every execution, or
 * calibrated on this one: always where it is causal, else every other time.  Fewer rows
 * than their width have no one system of axes, so that two ways of finding it differ. */
static void freeze(const foci_plan *plan, struct trial *t, unsigned gives)
{
    const foci_problem *p = &t->p;
    const bool          few =
        gives & (TRIAL_LENS | TRIAL_DOCS) || p->len_q + p->len_k <= p->dim_qk;
    const bool always = few || p->flags & FOCI_FLAG_CAUSAL || gives & TRIAL_FROZEN;
    foci_io    io = trial_io(t);

    if (!trial_is_linear(plan) || !(always || t->seed % 2)) return;
    io.o = t->g; /* not written */
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    assert_int_equal(foci_params_calibrate(plan, &io, t->params), FOCI_OK);
    free(io.work);
}

/* Kernels that can be negative, but divide by their sum, might divide by next to nothing:
 * on short rows of one sign they do not. */
static bool cancels(const foci_mech *m)
{
    const foci_linear l = linear_of(m);
    return l.norm == FOCI_LINEAR_NORM_SUM && linear_signed(&l);
}

/* Those of norm=retnet bend where a sum is 1 in size: sums are small and large by turns. */
static bool bends(const foci_mech *m)
{
    return linear_of(m).norm == FOCI_LINEAR_NORM_RETNET;
}

static double scale_of(const foci_mech *m)
{
    double s = 1 / sqrt((double)m->dims.qk);
    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & FOCI_MOD_SCALE) s = fabs(m->mods[i].arg[0]);
    return s;
}

static void keep_off(const struct trial *t, const foci_mech *m)
{
    const foci_problem *p = &t->p;
    const double        d = (double)p->dim_qk, s = scale_of(m);
    const struct shape  shape[] = { shape_of(p, 'q'), shape_of(p, 'k') };
    void *const         x[] = { t->q, t->k };

    for (int w = 0; w < 2; w++)
        for (int64_t i = 0; i < count(&shape[w]); i++) {
            const int64_t at = place(&shape[w], i), row = i / p->dim_qk / p->heads;
            double        by = 0.4 / sqrt(fmax(1, s * sqrt(d)));
            if (bends(m)) by = w ? 1 : (row % 2 ? 4 : 0.02) / (s * d);
            ref_store((int)p->dtype, x[w], at,
                      by * fabs(ref_load((int)p->dtype, x[w], at)));
        }
}

void trial_params(const foci_plan *plan, uint64_t seed, struct rng *r, float *params)
{
    assert_int_equal(foci_params_init(plan, seed, params), FOCI_OK);
    for (int64_t i = 0; i < plan->n_floats; i++)
        params[i] *= (float)(0.5 + rng_uniform(r));
    for (int i = 0; i < plan->n_params; i++) {
        const struct param *one = &plan->params[i];
        const double        size =
            one->def->init == FOCI_INIT_NORMAL ? fmin(1, sqrt(one->value)) : 1;
        for (int64_t e = one->offset; e < one->offset + one->count; e++)
            params[e] += (float)(0.3 * size * rng_normal(r));
    }
}

/* On a device a mask that depends on the length is that of the length planned. */
static bool takes_lengths(const foci_plan *plan)
{
    for (int g = 0; plan->ctx->device && g < plan->spec.n_groups; g++)
        if (plan->spec.groups[g].mech.def->by_length) return false;
    return true;
}

struct trial trial_make(const foci_plan *plan, const char *spec, uint64_t seed,
                        unsigned gives)
{
    const foci_problem *p = &plan->p;
    const int           type = (int)p->dtype;
    struct trial        t = { .p = *p, .seed = seed };
    struct rng          r;

    snprintf(t.spec, sizeof t.spec, "%s", spec);
    rng_seed(&r, seed, 77);
    const struct shape q = shape_of(p, 'q'), k = shape_of(p, 'k');
    const struct shape v = shape_of(p, 'v'), o = shape_of(p, 'o');
    t.q = tensor_draw(type, &q, &r);
    t.k = tensor_draw(type, &k, &r);
    t.v = tensor_draw(type, &v, &r);
    const struct shape x = shape_of(p, 'x');
    if (p->dim_x) t.x = tensor_draw(type, &x, &r);
    t.g = tensor_draw(type, &o, &r);

    t.params = test_alloc((size_t)plan->n_floats, sizeof *t.params);
    trial_params(plan, seed, &r, t.params);

    if (gives & TRIAL_LENS && takes_lengths(plan)) {
        t.len_q = trial_lens(&r, p->batch, p->len_q);
        t.len_k = trial_lens(&r, p->batch, p->len_k);
        for (int g = 0; g < plan->spec.n_groups; g++)
            if (mech_paired(&plan->spec.groups[g].mech) ||
                plan->stages[g].linear.cosine) /* the two are counted from one start */
                memcpy(t.len_k, t.len_q, (size_t)p->batch * sizeof *t.len_k);
    }
    if (gives & TRIAL_DOCS) t.docs = trial_docs(&r, p->max_docs, p->len_q);
    draw_pairs(&t, &r);
    if (trial_reads(plan) & FOCI_READ_WORDS) {
        const foci_io io = trial_io(&t);
        t.words = trial_words(plan, &io, &r);
    }
    if (seed % 2 && !(trial_reads(plan) & FOCI_READ_Q)) free(t.q), t.q = NULL;
    if (seed % 2 && !(trial_reads(plan) & FOCI_READ_K)) free(t.k), t.k = NULL;
    for (int g = 0; g < plan->spec.n_groups; g++)
        for (const foci_mech *m = &plan->spec.groups[g].mech; m; m = m->inner)
            if (m->def->engine == FOCI_ENGINE_LINEAR && (cancels(m) || bends(m)))
                keep_off(&t, m);
    freeze(plan, &t, gives);
    return t;
}

void trial_free(struct trial *t)
{
    void *const all[] = { t->q,      t->k,     t->v,     t->x,    t->g,
                          t->params, t->len_q, t->len_k, t->docs, t->words,
                          t->mask,   t->bias,  t->seen };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

foci_io trial_io(const struct trial *t)
{
    return (foci_io){ FOCI_SIZED(foci_io),
                      .q = t->q,
                      .k = t->k,
                      .v = t->v,
                      .x = t->x,
                      .len_q = t->len_q,
                      .len_k = t->len_k,
                      .docs = t->docs,
                      .n_docs = t->docs ? t->p.max_docs : 0,
                      .words = t->words,
                      .params = t->params,
                      .mask = t->mask,
                      .bias = t->bias,
                      .dropout_seed = t->seed };
}

/* By the mask, of query and key that are rows i and j of sequence s. */
static bool mask_shows(const foci_plan *plan, const struct plan_group *g,
                       const struct seq *s, int64_t i, int64_t j)
{
    const int64_t at = i + s->nk - s->nq;
    foci_mech     m = g->mech;

    if (m.def->by_length) {
        m.dims.len = s->nk;
        m.dims.len_q = s->nq;
    }
    if (plan->p.flags & FOCI_FLAG_CAUSAL && j > at) return false;
    if (!m.def->mask) return true;
    return at >= 0 &&
           m.def->mask(&m, at, j / FOCI_TILE * FOCI_TILE) >> j % FOCI_TILE & 1;
}

/* Also of routes, for which foci_ref_weights() has none. */
static void judge_weights(const foci_plan *plan, const struct trial *t, float *weights)
{
    const foci_io io = trial_io(t);
    double       *params = test_alloc((size_t)plan->n_floats, sizeof *params);

    for (int64_t i = 0; i < plan->n_floats; i++)
        params[i] = (double)t->params[i];
    assert_int_equal(ref_run(&(struct ref_call){ .plan = plan,
                                                 .io = &io,
                                                 .type = (int)t->p.dtype,
                                                 .params = params,
                                                 .weights = weights }),
                     FOCI_OK);
    free(params);
}

bool trial_sees(const foci_plan *plan, struct trial *t, int64_t b, int64_t h, int64_t i,
                int64_t j)
{
    const foci_io            io = trial_io(t);
    const foci_problem      *p = &t->p;
    const struct plan_group *g = plan->spec.groups;
    const foci_mech_def     *def;
    bool                     sees = false;

    while (h >= g->head0 + g->heads)
        g++;
    def = g->mech.def;
    if (def->slots || def->order || def->routes || def->two_pass || def->positional ||
        def->nystrom) {
        const int64_t rows = p->batch * p->heads * p->len_q;
        if (!t->seen) {
            t->seen = test_alloc((size_t)(rows * p->len_k), sizeof *t->seen);
            judge_weights(plan, t, t->seen);
        }
        return t->seen[((b * p->heads + h) * p->len_q + i) * p->len_k + j] != 0;
    }
    struct seq   *seqs = test_alloc((size_t)plan_max_seqs(plan), sizeof *seqs);
    const int64_t n = plan_seqs(plan, &io, seqs);
    for (int64_t s = 0; s < n && !sees; s++) {
        const int64_t iq = i - seqs[s].q0, jk = j - seqs[s].k0;
        if (seqs[s].b == b && iq >= 0 && iq < seqs[s].nq && jk >= 0 && jk < seqs[s].nk)
            sees = mask_shows(plan, g, &seqs[s], iq, jk);
    }
    if (sees && t->mask) {
        const int64_t mb = p->mask_batch > 1 ? b : 0, mh = p->mask_heads > 1 ? h : 0;
        sees = t->mask[((mb * p->mask_heads + mh) * p->len_q + i) * p->len_k + j];
    }
    free(seqs);
    return sees;
}

bool trial_does(const foci_plan *plan, unsigned does)
{
    const foci_mech *m = &plan->spec.groups[0].mech;

    for (size_t i = 0; i < m->n_mods; i++)
        if (m->mods[i].def->does & does) return true;
    return false;
}

int64_t trial_param_head(const foci_plan *plan, int64_t i)
{
    const struct param *p = plan->params;

    while (i >= p->offset + p->count)
        p++;
    const struct plan_group *g = &plan->spec.groups[p->group];
    return g->head0 + (i - p->offset) / (p->count / p->shape[0]) % g->heads;
}

/*
 * Executions
 */

static struct result result_make(const foci_plan *plan, const foci_problem *p)
{
    const bool         lse = !trial_is_other(plan);
    const struct shape q = shape_of(p, 'q'), k = shape_of(p, 'k');
    const struct shape v = shape_of(p, 'v'), o = shape_of(p, 'o');
    struct result      r = { .n = { [PART_O] = count(&o),
                                    [PART_LSE] = lse ? p->batch * p->heads * p->len_q : 0,
                                    [PART_DQ] = count(&q),
                                    [PART_DK] = count(&k),
                                    [PART_DV] = count(&v),
                                    [PART_DPARAMS] = plan->n_floats } };
    const struct shape x = shape_of(p, 'x');
    r.n[PART_DX] = count(&x);
    if (p->flags & FOCI_FLAG_BIAS)
        r.n[PART_DBIAS] = p->mask_batch * p->mask_heads * p->len_q * p->len_k;
    for (int part = PART_DQ; !(p->flags & FOCI_FLAG_TRAIN) && part < N_PARTS; part++)
        r.n[part] = 0;
    r.x[PART_DBIAS] = test_alloc((size_t)r.n[PART_DBIAS], sizeof(double));
    r.x[PART_LSE] = test_alloc((size_t)r.n[PART_LSE], sizeof(double));
    r.x[PART_DPARAMS] = test_alloc((size_t)r.n[PART_DPARAMS], sizeof(double));
    return r;
}

void result_free(struct result *r)
{
    for (int t = 0; t < N_PARTS; t++)
        free(r->x[t]);
}

static void must(foci_status status, const foci_plan *plan, const foci_io *io,
                 const foci_grads *grads)
{
    char text[256] = "";
    if (status == FOCI_OK) return;
    foci_io_check(plan, io, grads, text, sizeof text);
    fail_msg("%s: %s", foci_status_text(status), text);
}

/* Gradients of parameters are added: once more gives twice as much, to the bit. */
static void check_added(const foci_plan *plan, const struct trial *t, const foci_io *io,
                        const foci_grads *once, const double *want)
{
    const foci_grads again = { FOCI_SIZED(foci_grads), .d_o = once->d_o,
                               .dparams = once->dparams };

    if (!plan->n_floats) return;
    must(remote_execute(plan, io, &again), plan, io, &again);
    for (int64_t i = 0; i < plan->n_floats; i++) {
        const double got = (double)once->dparams[i];
        if (got != 2 * want[i] && !(isnan(got) && isnan(want[i])))
            trial_fail(plan, t, "dparams added to", i, got, 2 * want[i]);
    }
}

struct result trial_run(const foci_plan *plan, const struct trial *t)
{
    const foci_problem *p = &t->p;
    const int           type = (int)p->dtype;
    const struct shape  q = shape_of(p, 'q'), k = shape_of(p, 'k');
    const struct shape  v = shape_of(p, 'v'), o = shape_of(p, 'o');
    struct result       r = result_make(plan, p);
    foci_io             io = trial_io(t);
    float              *lse = test_alloc((size_t)r.n[PART_LSE], sizeof *lse);
    float              *dparams = test_alloc((size_t)plan->n_floats, sizeof *dparams);
    float              *dbias = test_alloc((size_t)r.n[PART_DBIAS], sizeof *dbias);
    const struct shape  x = shape_of(p, 'x');

    memset(dbias, 0xff, (size_t)r.n[PART_DBIAS] * sizeof *dbias);
    io.o = tensor_make(type, &o);
    io.lse = r.n[PART_LSE] ? lse : NULL;
    io.work = test_alloc(foci_plan_work_bytes(plan), 1);
    io.saved = test_alloc(foci_plan_saved_bytes(plan), 1);
    memset(io.work, 0xff, foci_plan_work_bytes(plan));
    memset(io.saved, 0xff, foci_plan_saved_bytes(plan));
    must(remote_execute(plan, &io, NULL), plan, &io, NULL);

    if (p->flags & FOCI_FLAG_TRAIN) {
        foci_grads grads = {
            FOCI_SIZED(foci_grads),         .d_o = t->g,
            .dq = tensor_make(type, &q),    .dk = tensor_make(type, &k),
            .dv = tensor_make(type, &v),    .dparams = dparams,
            .dbias = t->bias ? dbias : NULL
        };
        if (t->x) grads.dx = tensor_make(type, &x);
        memset(io.work, 0xff, foci_plan_work_bytes(plan));
        must(remote_execute(plan, &io, &grads), plan, &io, &grads);
        r.x[PART_DQ] = tensor_collect(type, &q, grads.dq);
        r.x[PART_DK] = tensor_collect(type, &k, grads.dk);
        r.x[PART_DV] = tensor_collect(type, &v, grads.dv);
        if (t->x) r.x[PART_DX] = tensor_collect(type, &x, grads.dx);
        for (int64_t i = 0; i < r.n[PART_DBIAS]; i++)
            r.x[PART_DBIAS][i] = (double)dbias[i];
        for (int64_t i = 0; i < plan->n_floats; i++)
            r.x[PART_DPARAMS][i] = (double)dparams[i];
        check_added(plan, t, &io, &grads, r.x[PART_DPARAMS]);
    }
    for (int64_t i = 0; i < r.n[PART_LSE]; i++)
        r.x[PART_LSE][i] = (double)lse[i];
    r.x[PART_O] = tensor_collect(type, &o, io.o);
    free(io.work);
    free(io.saved);
    free(lse);
    free(dparams);
    free(dbias);
    return r;
}

struct result trial_judge(const foci_plan *plan, const struct trial *t, bool rounds)
{
    const foci_problem *p = &t->p;
    const int           type = (int)p->dtype;
    const struct shape  q = shape_of(p, 'q'), k = shape_of(p, 'k');
    const struct shape  v = shape_of(p, 'v'), o = shape_of(p, 'o');
    struct result       r = result_make(plan, p);
    foci_io             io = trial_io(t);
    double *wide[] = { tensor_widen(type, &q, t->q), tensor_widen(type, &k, t->k),
                       tensor_widen(type, &v, t->v), tensor_widen(type, &o, t->g),
                       NULL };
    const struct shape x = shape_of(p, 'x');
    float             *dbias = test_alloc((size_t)r.n[PART_DBIAS], sizeof *dbias);
    double            *params = test_alloc((size_t)plan->n_floats, sizeof *params);

    for (int64_t i = 0; i < plan->n_floats; i++)
        params[i] = (double)t->params[i];
    io.q = wide[0];
    io.k = wide[1];
    io.v = wide[2];
    if (t->x) io.x = wide[4] = tensor_widen(type, &x, t->x);
    io.o = tensor_make(REF_F64, &o);
    struct ref_call call = { .plan = plan,
                             .io = &io,
                             .type = REF_F64,
                             .params = params,
                             .lse = r.n[PART_LSE] ? r.x[PART_LSE] : NULL,
                             .rounds = rounds };
    assert_int_equal(ref_run(&call), FOCI_OK);
    r.x[PART_O] = tensor_collect(REF_F64, &o, io.o);

    if (p->flags & FOCI_FLAG_TRAIN) {
        foci_grads grads = {
            FOCI_SIZED(foci_grads),         .d_o = wide[3],
            .dq = tensor_make(REF_F64, &q), .dk = tensor_make(REF_F64, &k),
            .dv = tensor_make(REF_F64, &v), .dbias = t->bias ? dbias : NULL
        };
        if (t->x) grads.dx = tensor_make(REF_F64, &x);
        call.grads = &grads;
        call.dparams = r.x[PART_DPARAMS];
        assert_int_equal(ref_run(&call), FOCI_OK);
        r.x[PART_DQ] = tensor_collect(REF_F64, &q, grads.dq);
        r.x[PART_DK] = tensor_collect(REF_F64, &k, grads.dk);
        r.x[PART_DV] = tensor_collect(REF_F64, &v, grads.dv);
        if (t->x) r.x[PART_DX] = tensor_collect(REF_F64, &x, grads.dx);
        for (int64_t i = 0; i < r.n[PART_DBIAS]; i++)
            r.x[PART_DBIAS][i] = (double)dbias[i];
    }
    free(dbias);
    for (int i = 0; i < 5; i++)
        free(wide[i]);
    free(params);
    return r;
}

/*
 * Roundings
 */

/* Every column goes up or down by a few units in the last place of a word, so that other
 * bits are rounded, and rows that were equal are. */
static void *tensor_beside(int type, int word, const struct shape *s, const void *from,
                           struct rng *r)
{
    const double unit = word == FOCI_F32 ? 0x1p-23 : 0x1p-7;
    void        *x = from ? tensor_make(type, s) : NULL;
    double      *by = test_alloc((size_t)s->dim, sizeof *by);

    for (int64_t c = 0; c < s->dim; c++)
        by[c] = 1 + 4 * unit * (2 * rng_uniform(r) - 1);
    for (int64_t i = 0; x && i < count(s); i++)
        ref_store(type, x, place(s, i),
                  by[i % s->dim] * ref_load(type, from, place(s, i)));
    free(by);
    return x;
}

static void add_roundings(const foci_plan *plan, const struct trial *t,
                          double squares[N_PARTS])
{
    struct result exact = trial_judge(plan, t, false),
                  rounded = trial_judge(plan, t, true);

    for (int part = 0; part < N_PARTS; part++)
        for (int64_t i = 0; i < exact.n[part]; i++) {
            const double by = rounded.x[part][i] - exact.x[part][i];
            if (isfinite(by)) squares[part] += by * by / (double)exact.n[part];
        }
    result_free(&exact);
    result_free(&rounded);
}

void trial_roundings(const foci_plan *plan, const struct trial *t, double off[N_PARTS])
{
    enum { DRAWS = 8 };
    const foci_problem *p = &t->p;
    const int           type = (int)p->dtype;
    const int           word =
        ref_operand_type(&(struct ref_call){ .plan = plan, .rounds = true });
    double     squares[N_PARTS] = { 0 };
    struct rng r;

    rng_seed(&r, t->seed, 6);
    for (int n = 0; n < DRAWS; n++) {
        const struct shape q = shape_of(p, 'q'), k = shape_of(p, 'k');
        const struct shape v = shape_of(p, 'v'), o = shape_of(p, 'o');
        struct trial       beside = *t;

        beside.q = tensor_beside(type, word, &q, t->q, &r);
        beside.k = tensor_beside(type, word, &k, t->k, &r);
        beside.v = tensor_beside(type, word, &v, t->v, &r);
        beside.g = tensor_beside(type, word, &o, t->g, &r);
        add_roundings(plan, &beside, squares);
        void *const own[] = { beside.q, beside.k, beside.v, beside.g };
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            free(own[i]);
    }
    for (int part = 0; part < N_PARTS; part++)
        off[part] = sqrt(squares[part] / DRAWS);
}
