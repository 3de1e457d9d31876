/* analyse_error_data.c -- what mechanisms are compared on: random queries and keys, those of
 * files, or those of a trained model's heads.
 *
 * Random values are standard normal.  Queries and keys are standard normal too, or clustered
 * around centres, as those of trained projections tend to be.  Both are then scaled by one
 * factor, so that the logits s q.k of all pairs of a head have the wanted standard deviation:
 * near 0 all keys weigh the same, and the larger it is, the fewer keys count.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/analyse_error.h"
#include "cli/analyse_heads.h"
#include "cli/bench.h"
#include "cli/eval.h"

enum { HEADS = 8, CENTRES = 16 };

static const double around = 0.5; /* how far tokens are from their centre, which is 1 */

/*
 * Drawn tensors
 */

/* Draw x towards one of the centres of its head, each row to one at random. */
static void gather(const foci_problem *p, const float *centres, uint64_t seed, float *x)
{
    const float share = (float)around, unit = sqrtf(1 + share * share);

    for (int64_t i = 0; i < p->len_q; i++)
        for (int64_t h = 0; h < HEADS; h++, x += p->dim_qk) {
            const int64_t kind = (int64_t)(CENTRES * bench_uniform(&seed));
            const float  *centre = centres + (h * CENTRES + kind) * p->dim_qk;
            for (int64_t t = 0; t < p->dim_qk; t++)
                x[t] = (centre[t] + share * x[t]) / unit;
        }
}

/* Sums over the rows of a head: [dim] of x, and [dim][dim] of x x. */
static void add_up(const foci_problem *p, const float *x, double *sums)
{
    const int64_t d = p->dim_qk;
    double       *squares = sums + d;

    memset(sums, 0, (size_t)(d + d * d) * sizeof *sums);
    for (int64_t i = 0; i < p->len_q; i++, x += HEADS * d)
        for (int64_t a = 0; a < d; a++) {
            sums[a] += (double)x[a];
            for (int64_t b = 0; b < d; b++)
                squares[a * d + b] += (double)x[a] * (double)x[b];
        }
}

/* The standard deviation of s q.k over all pairs, from sums of q and of k. */
static double spread_of(const foci_problem *p, const double *q, const double *k)
{
    const int64_t d = p->dim_qk;
    const double  n = (double)p->len_q, root = sqrt((double)d);
    double        mean = 0, square = 0;

    for (int64_t t = 0; t < d; t++)
        mean += q[t] * k[t] / n / n;
    for (int64_t t = d; t < d + d * d; t++)
        square += q[t] * k[t] / n / n;
    return sqrt(square - mean * mean) / root;
}

static void scale_head(const foci_problem *p, float *x, double factor)
{
    for (int64_t i = 0; i < p->len_q; i++, x += HEADS * p->dim_qk)
        for (int64_t t = 0; t < p->dim_qk; t++)
            x[t] *= (float)factor;
}

static void scale_rows(const foci_problem *p, struct error_source *s)
{
    const size_t n = (size_t)(p->dim_qk + p->dim_qk * p->dim_qk);
    double      *q = need(n, sizeof *q), *k = need(n, sizeof *k);

    for (int64_t h = 0; h < HEADS; h++) {
        add_up(p, s->q0 + h * p->dim_qk, q);
        add_up(p, s->k0 + h * p->dim_qk, k);
        const double factor = 1 / sqrt(spread_of(p, q, k));
        scale_head(p, s->q0 + h * p->dim_qk, factor);
        scale_head(p, s->k0 + h * p->dim_qk, factor);
    }
    free(q);
    free(k);
}

static size_t row_floats(const foci_problem *p)
{
    return (size_t)p->len_q * HEADS * (size_t)p->dim_qk;
}

static void free_rows(struct error_source *s)
{
    free(s->q0);
    free(s->k0);
    free(s->v);
    if (s->drawn) {
        free(s->q);
        free(s->k);
    }
}

static void draw_rows(const struct errors *e, struct error_source *s)
{
    const foci_problem *p = &s->p;
    const size_t        n = row_floats(p);
    const uint64_t      seed = 8 * e->seed;

    free_rows(s);
    s->q0 = bench_draw(FOCI_F32, n, seed + 1);
    s->k0 = bench_draw(FOCI_F32, n, seed + 2);
    s->v = bench_draw(FOCI_F32, n, seed + 3);
    s->q = need(n, sizeof *s->q);
    s->k = need(n, sizeof *s->k);
    if (s->clustered) {
        const size_t count = HEADS * (size_t)CENTRES * (size_t)p->dim_qk;
        float       *centres = bench_draw(FOCI_F32, count, seed + 4);
        gather(p, centres, seed + 5, s->q0);
        gather(p, centres, seed + 6, s->k0);
        free(centres);
    }
    scale_rows(p, s);
}

static foci_problem drawn_problem(const struct errors *e, const struct error_point *at)
{
    return (foci_problem){ FOCI_SIZED(foci_problem), .batch = 1,
                           .heads = HEADS,           .kv_heads = HEADS,
                           .len_q = at->length,      .len_k = at->length,
                           .dim_qk = at->dim,        .dim_v = at->dim,
                           .seed = e->seed };
}

/* Given tensors are shortened, random ones drawn and scaled. */
void error_source_set(const struct errors *e, const struct error_point *at,
                      struct error_source *s)
{
    const float factor = (float)sqrt(at->spread);

    if (!s->drawn) {
        if (e->axis == AXIS_LENGTH) s->p.len_q = s->p.len_k = at->length;
        return;
    }
    if (s->p.len_q != at->length || s->p.dim_qk != at->dim) {
        s->p = drawn_problem(e, at);
        draw_rows(e, s);
    }
    for (size_t t = 0; t < row_floats(&s->p); t++) {
        s->q[t] = factor * s->q0[t];
        s->k[t] = factor * s->k0[t];
    }
}

static struct error_source *add_source(struct errors *e, const char *name)
{
    struct error_source *more = need((size_t)e->n_sources + 1, sizeof *more);

    if (e->n_sources) memcpy(more, e->sources, (size_t)e->n_sources * sizeof *more);
    free(e->sources);
    e->sources = more;
    more += e->n_sources++;
    snprintf(more->name, sizeof more->name, "%s", name);
    return more;
}

static void add_drawn(struct errors *e)
{
    static const char *const names[] = { "gaussian", "clustered" };
    const int                only = opt_word(e->a, "keys", 2);

    for (int i = 0; i < 2; i++)
        if (only == i || only == 2) {
            struct error_source *s = add_source(e, names[i]);
            s->drawn = true;
            s->clustered = i == 1;
        }
}

/*
 * Given tensors
 */

/* n rows of a tensor with this layout, as floats [head][row][dim]. */
static float *pack(const struct errors *e, foci_dtype dtype, const void *from,
                   const foci_layout *l, int64_t heads, int64_t n, int64_t dim)
{
    const int64_t bytes = (int64_t)foci_dtype_bytes(dtype);
    float *const  to = need((size_t)(heads * n * dim), sizeof *to), *at = to;

    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < n; i++, at += dim)
            (void)foci_convert(e->ctx, FOCI_F32, at, dtype,
                               (const char *)from + (h * l->head + i * l->row) * bytes,
                               dim);
    return to;
}

/* The first sequence of a problem with these tensors. */
static void add_given(struct errors *e, const char *name, const foci_problem *p,
                      const foci_io *io)
{
    struct error_source *s = add_source(e, name);
    const int64_t        n = io->len_q ? io->len_q[0] : p->len_q;

    s->p = (foci_problem){ FOCI_SIZED(foci_problem),
                           .heads = p->heads,
                           .kv_heads = p->kv_heads,
                           .batch = 1,
                           .len_q = n,
                           .len_k = n,
                           .dim_qk = p->dim_qk,
                           .dim_v = p->dim_v,
                           .q = { .row = p->dim_qk, .head = n * p->dim_qk },
                           .k = { .row = p->dim_qk, .head = n * p->dim_qk },
                           .v = { .row = p->dim_v, .head = n * p->dim_v },
                           .seed = e->seed };
    s->q = s->q0 = pack(e, p->dtype, io->q, &p->q, p->heads, n, p->dim_qk);
    s->k = s->k0 = pack(e, p->dtype, io->k, &p->k, p->kv_heads, n, p->dim_qk);
    s->v = pack(e, p->dtype, io->v, &p->v, p->kv_heads, n, p->dim_v);
}

static int add_files(struct errors *e)
{
    static const char *const names[] = { "q", "k", "v" };
    struct verb              like = *verb_named("run");
    struct args              of_run = *e->a;
    struct run_verb          r = { .a = &of_run,
                                   .spec = "softmax",
                                   .p = { FOCI_SIZED(foci_problem) } };
    foci_problem             p = { FOCI_SIZED(foci_problem) };

    for (int i = 0; i < 3; i++)
        if (!opt_text(e->a, names[i]))
            return usage_error(e->a, "--%s is missing: outputs need --q, --k and --v",
                               names[i]);
    like.name = e->a->verb->name;
    of_run.verb = &like;
    r.ctx = open_ctx(e->a, 1);
    if (!r.ctx) return EXIT_FAILED;
    int code = run_open_weights(&r);
    if (!code) (void)foci_plan_get_problem(r.plan, &p);
    if (!code && (p.len_q != p.len_k || p.len_q < 2))
        code =
            failure(e->a,
                    "--q and --k have %lld and %lld rows; mechanisms are compared on "
                    "as many of both, 2 or more",
                    (long long)p.len_q, (long long)p.len_k);
    if (!code) {
        const foci_io io = run_io(&r);
        if (p.batch > 1)
            note(e->a, "of %lld sequences the first counts", (long long)p.batch);
        add_given(e, "given", &p, &io);
    }
    run_close(&r);
    return code;
}

/*
 * A model's heads
 */

static int look(void *user, const foci_observation *o)
{
    struct errors   *e = user;
    const foci_plan *plan = foci_layer_plan(o->layer);
    foci_problem     p = { FOCI_SIZED(foci_problem) };
    foci_io          heads = { FOCI_SIZED(foci_io) };
    foci_group       g = { FOCI_SIZED(foci_group) };
    const unsigned   all = FOCI_READ_Q | FOCI_READ_K | FOCI_READ_V;

    if (foci_plan_get_problem(plan, &p) || foci_plan_group(plan, 0, &g) ||
        foci_layer_heads(o->layer, o->io, &heads))
        return 1;
    if (foci_plan_group_count(plan) > 1 || (g.reads & all) != all ||
        p.len_q != p.len_k || p.kv_heads < 1 || p.heads % p.kv_heads || p.len_q < 2) {
        note(e->a,
             "%s is left out: heads that are compared read one query, key and value "
             "each, all of a layer, of one sequence",
             o->name);
        return 0;
    }
    add_given(e, o->name, &p, &heads);
    return 0;
}

static int add_model(struct errors *e)
{
    struct eval_line line;
    struct judged    j;
    foci_batch       b = { FOCI_SIZED(foci_batch) };

    eval_line_open(e->a, 1, &line);
    int code = eval_open(&line.args, &j);
    if (!code) {
        foci_status status = foci_data_rewind(j.data, 0);
        if (!status) status = foci_data_next(j.data, &b);
        if (!status && b.batch) status = foci_model_observe(j.model, &b, 1, 0, look, e);
        if (status) code = library_error(e->a, j.ctx, status, NULL);
    }
    if (!code && !e->n_sources)
        code = failure(e->a, "%s has no heads that can be compared", e->a->words[0]);
    eval_close(&j);
    eval_line_close(&line);
    return code;
}

/* Options of random tensors say nothing where they are given. */
static int check_given(const struct args *a)
{
    static const char *const of_drawn[] = { "dim", "length", "keys", "spreads" };

    for (size_t i = 0; i < sizeof of_drawn / sizeof *of_drawn; i++)
        if (opt_flag(a, of_drawn[i]))
            return usage_error(a, "--%s is of random tensors, and %s", of_drawn[i],
                               a->n_words ? "a model gives its own"
                                          : "--q, --k and --v are given");
    return EXIT_OK;
}

int error_sources_open(struct errors *e)
{
    const struct args *a = e->a;
    const bool         files = opt_flag(a, "q") || opt_flag(a, "k") || opt_flag(a, "v");

    if (files && a->n_words)
        return usage_error(a, "%s and --q do not go together: a model has its own",
                           a->words[0]);
    if (!files && !a->n_words) {
        add_drawn(e);
        return EXIT_OK;
    }
    const int code = check_given(a);
    if (code) return code;
    return files ? add_files(e) : add_model(e);
}

void error_sources_close(struct errors *e)
{
    for (int i = 0; i < e->n_sources; i++)
        free_rows(&e->sources[i]);
    free(e->sources);
}
