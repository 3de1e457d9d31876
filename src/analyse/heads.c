/* heads.c -- what the weights of heads do, over any number of plans, layers and matrices.
 *
 * Weights come from the interpreter a block of rows at a time, all heads of a block at once,
 * so that they can be compared; a job of the threads is some rows of one head.  What jobs
 * find is added up in order, so results do not depend on the number of threads.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "analyse/heads.h"
#include "analyse/spectrum.h"
#include "layer/layer.h"
#include "ref/ref.h"

enum {
    TOP = 8,
    RANK = 512,
    TURNS = 2,        /* jobs for each thread, if heads are fewer */
    PAIR_FLOPS = 1000 /* about what the interpreter takes, all in all */
};

static const size_t block_bytes = (size_t)1 << 28, most_bytes = (size_t)1 << 30;

/* Sums over what was added. */
struct head_sums {
    int64_t  rows, zero;
    double   sum[FOCI_HEAD_FIGURES];
    int64_t  count[FOCI_HEAD_FIGURES];
    unsigned odd;
};

struct pair_sums {
    double  sum;
    int64_t count;
};

/* Whether what was added had one thing or another. */
enum {
    ADDED_APART = 1 << 0,
    ADDED_OTHER = 1 << 1,
    ADDED_LONG = 1 << 2,
    ADDED_SOME = 1 << 3
};

struct foci_heads {
    foci_ctx          *ctx;
    foci_heads_options o;
    struct head_sums  *sums;  /* [heads] */
    struct pair_sums  *pairs; /* [heads][heads], above the diagonal */
    unsigned           added;
    bool               stopped; /* nobody wants more rows */
};

/* What is being added: a sequence of a plan, or matrices. */
struct adding {
    foci_heads         *h;
    struct ref_weigher *weigher; /* NULL: matrices */
    const float        *weights; /* [heads][n][len_k], of the block */
    float              *computed;
    int64_t             batch, nq, nk; /* of the sequence */
    int64_t             len_q, len_k;  /* of the problem */
    const uint8_t      *mask;          /* [heads or 1][len_q][len_k]; NULL: none */
    int64_t             mask_head;     /* between heads; 0: one for all */
    bool                causal, apart, whole, ranks;
    int64_t             step;     /* between rows that are looked at, */
    int64_t             all;      /* which are so many */
    int64_t             first, n; /* of the block, among the rows that are looked at */
    double             *figures;  /* [heads][n][FOCI_HEAD_ROW_FIGURES] */
    unsigned char      *odd;      /* [heads][n], and whether all of it is zero */
    double             *rank;     /* [heads][2] */
    float              *scratch;  /* [threads][len_k] */
    double             *svd;      /* [threads][svd_floats] */
    int64_t             svd_floats;
    foci_status        *status; /* [threads] */
};

enum { ROW_ZERO = HEAD_ODD + 1 };

static const char *const figure_names[FOCI_HEAD_FIGURES] = {
    [FOCI_HEAD_CONCENTRATION] = "concentration",
    [FOCI_HEAD_ENTROPY] = "entropy",
    [FOCI_HEAD_NORMALISED] = "normalised_entropy",
    [FOCI_HEAD_PERPLEXITY] = "perplexity",
    [FOCI_HEAD_TOP] = "top",
    [FOCI_HEAD_DISTANCE] = "distance",
    [FOCI_HEAD_CURRENT] = "current",
    [FOCI_HEAD_PREVIOUS] = "previous",
    [FOCI_HEAD_NEXT] = "next",
    [FOCI_HEAD_LEFT] = "left",
    [FOCI_HEAD_RIGHT] = "right",
    [FOCI_HEAD_END] = "end",
    [FOCI_HEAD_START] = "start",
    [FOCI_HEAD_EFFECTIVE_RANK] = "effective_rank",
    [FOCI_HEAD_NUMERICAL_RANK] = "numerical_rank",
};

const char *foci_head_figure_name(int figure)
{
    return figure < 0 || figure >= FOCI_HEAD_FIGURES ? NULL : figure_names[figure];
}

/*
 * A block of rows
 */

/* The row of the sequence that number s of those looked at is. */
static int64_t row_at(const struct adding *x, int64_t s)
{
    return x->step / 2 + s * x->step;
}

static const float *row_of(const struct adding *x, int64_t head, int64_t s)
{
    return x->weights + (head * x->n + s) * x->len_k;
}

/* Rows of a job: many, since each job prepares all keys of a head anew. */
static int64_t job_rows(const struct adding *x)
{
    const int64_t turns = div_up((int64_t)TURNS * x->h->ctx->threads, x->h->o.heads);

    return x->whole ? x->n : div_up(x->n, turns);
}

static void weigh_job(void *arg, int64_t i, int thread)
{
    struct adding         *x = arg;
    const int64_t          per = job_rows(x), turns = div_up(x->n, per);
    const int64_t          head = i / turns, s = i % turns * per;
    const int64_t          n = min64(per, x->n - s), row = row_at(x, x->first + s);
    const struct ref_slice slice = {
        x->batch, head, { row, row + (n - 1) * x->step + 1 }, x->step
    };
    float *const      to = x->computed + (head * x->n + s) * x->len_k;
    const foci_status status = ref_weigher_run(x->weigher, &slice, to);

    if (status) x->status[thread] = status;
}

static int64_t seen_of(const struct adding *x, int64_t head, int64_t row, int64_t keys)
{
    int64_t seen = 0;

    if (!x->mask) return keys;
    for (int64_t j = 0; j < keys; j++)
        seen += x->mask[head * x->mask_head + row * x->len_k + j] != 0;
    return seen;
}

static bool is_zero(const float *a, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (a[j] != 0) return false;
    return true;
}

static int64_t keys_of(const struct adding *x, int64_t row)
{
    if (!x->causal) return x->nk;
    return max64(0, min64(row + 1 + x->nk - x->nq, x->nk));
}

static void measure_job(void *arg, int64_t i, int thread)
{
    struct adding  *x = arg;
    const int64_t   head = i / x->n, row = row_at(x, x->first + i % x->n);
    const int64_t   keys = keys_of(x, row);
    struct head_row r = { .a = row_of(x, head, i % x->n),
                          .keys = keys,
                          .seen = seen_of(x, head, row, keys),
                          .place = row + x->nk - x->nq,
                          .len = x->nk,
                          .causal = x->causal,
                          .apart = x->apart,
                          .patterns = x->nq == x->nk,
                          .top = x->h->o.top };

    x->odd[i] = (unsigned char)head_row_measure(&r, x->scratch + thread * x->len_k,
                                                x->figures + i * FOCI_HEAD_ROW_FIGURES);
    if (is_zero(r.a, keys)) x->odd[i] |= ROW_ZERO;
}

/* Pair i of heads, one after the other through the rows of the block. */
static void pair_job(void *arg, int64_t i, int thread)
{
    const struct adding *x = arg;
    const int64_t        heads = x->h->o.heads, a = i / heads, b = i % heads;
    struct pair_sums    *to = &x->h->pairs[i];

    (void)thread;
    for (int64_t s = 0; a < b && s < x->n; s++) {
        const unsigned of_a = x->odd[a * x->n + s], of_b = x->odd[b * x->n + s];
        if ((of_a | of_b) & HEAD_ODD || (of_a & of_b & ROW_ZERO)) continue;
        to->sum += head_overlap(row_of(x, a, s), row_of(x, b, s),
                                keys_of(x, row_at(x, x->first + s)));
        to->count++;
    }
}

/* Ranks of the matrix of a head, which the block has whole. */
static void rank_job(void *arg, int64_t head, int thread)
{
    struct adding *x = arg;
    const bool     wide = x->nk > x->nq;
    const int64_t  m = wide ? x->nk : x->nq, n = wide ? x->nq : x->nk;
    double *const a = x->svd + thread * x->svd_floats, *const sigma = a + m * n;
    double sum = 0, entropy = 0, rank = 0;
    bool   empty = true;

    for (int64_t i = 0; i < x->nq; i++) {
        const int64_t keys = keys_of(x, i);
        empty = empty && is_zero(row_of(x, head, i), keys);
        for (int64_t j = 0; j < x->nk; j++)
            a[wide ? j * n + i : i * n + j] =
                j < keys ? (double)row_of(x, head, i)[j] : 0;
    }
    spectrum_singular(a, m, n, sigma + n, sigma);
    for (int64_t t = 0; t < n; t++)
        sum += sigma[t];
    for (int64_t t = 0; t < n; t++) {
        const double p = sigma[t] / sum;
        if (p > 0) entropy -= p * log(p);
        rank += sigma[t] > 1e-6 * sigma[n - 1];
    }
    x->rank[2 * head] = empty ? 0 : exp(entropy);
    x->rank[2 * head + 1] = empty ? 0 : rank;
}

/*
 * Adding up
 */

static void add_figure(struct head_sums *to, int figure, double value)
{
    if (isnan(value)) return;
    to->sum[figure] += value;
    to->count[figure]++;
}

static void tell_row(struct adding *x, int64_t head, int64_t s, const double *figures)
{
    foci_heads         *h = x->h;
    const int64_t       row = row_at(x, x->first + s);
    const foci_head_row told = {
        FOCI_SIZED(foci_head_row), .batch = x->batch, .head = head, .row = row,
        .keys = keys_of(x, row),   .figures = figures
    };

    if (h->o.row && !h->stopped) h->stopped = h->o.row(h->o.user, &told) != 0;
}

/* A row of zeros has no figures but its shares, and is not told. */
static void add_rows(struct adding *x, int64_t head)
{
    struct head_sums *to = &x->h->sums[head];

    for (int64_t s = 0; s < x->n; s++) {
        const int64_t  i = head * x->n + s;
        const unsigned odd = x->odd[i];
        const double  *figures = x->figures + i * FOCI_HEAD_ROW_FIGURES;

        to->rows++;
        to->zero += (odd & ROW_ZERO) != 0;
        to->odd |= odd & HEAD_ODD;
        for (int f = 0; f < FOCI_HEAD_ROW_FIGURES; f++)
            add_figure(to, f, figures[f]);
        if (!(odd & ROW_ZERO)) tell_row(x, head, s, figures);
    }
}

static void run_jobs(struct adding *x, void (*job)(void *, int64_t, int), int64_t n,
                     double flops)
{
    foci_ctx          *ctx = x->h->ctx;
    const struct phase phase = { .n = n, .chunk = 1, .job = job, .arg = x };

    phases_run(&ctx->kernels, false, jobs_threads(ctx->threads, n, flops), &phase, 1);
}

static foci_status weigh_block(struct adding *x)
{
    const int64_t heads = x->h->o.heads;

    if (!x->weigher) return FOCI_OK;
    run_jobs(x, weigh_job, heads * div_up(x->n, job_rows(x)),
             PAIR_FLOPS * (double)(heads * x->n) * (double)x->nk);
    for (int t = 0; t < x->h->ctx->threads; t++)
        if (x->status[t])
            return ctx_fail(x->h->ctx, x->status[t],
                            "the weights cannot be computed: %s",
                            foci_status_text(x->status[t]));
    return FOCI_OK;
}

static foci_status look_at_block(struct adding *x)
{
    const int64_t heads = x->h->o.heads;
    const double  pairs = (double)heads * (double)x->n * (double)x->nk;

    TRY(weigh_block(x));
    run_jobs(x, measure_job, heads * x->n, 20 * pairs);
    run_jobs(x, pair_job, heads * heads, 2 * pairs * (double)heads);
    for (int64_t head = 0; head < heads; head++)
        add_rows(x, head);
    if (!x->ranks) return FOCI_OK;
    run_jobs(x, rank_job, heads, pairs * (double)min64(x->nq, x->nk));
    for (int64_t head = 0; head < heads; head++) {
        struct head_sums *to = &x->h->sums[head];
        const bool        infinite = to->odd & HEAD_INFINITE;
        add_figure(to, FOCI_HEAD_EFFECTIVE_RANK, infinite ? NAN : x->rank[2 * head]);
        add_figure(to, FOCI_HEAD_NUMERICAL_RANK, infinite ? NAN : x->rank[2 * head + 1]);
    }
    return FOCI_OK;
}

/*
 * A sequence
 */

static void adding_carve(struct adding *x, struct arena *a, int64_t n)
{
    const int64_t heads = x->h->o.heads, threads = x->h->ctx->threads;

    if (x->weigher)
        x->computed = arena_alloc(a, heads * n, (size_t)x->len_k * sizeof(float));
    x->figures = arena_alloc(a, heads * n, FOCI_HEAD_ROW_FIGURES * sizeof(double));
    x->odd = arena_alloc(a, heads * n, 1);
    x->rank = arena_alloc(a, 2 * heads, sizeof(double));
    x->scratch = arena_alloc(a, threads, (size_t)x->len_k * sizeof(float));
    x->svd =
        arena_alloc(a, x->ranks ? threads : 0, (size_t)x->svd_floats * sizeof(double));
    x->status = arena_alloc(a, threads, sizeof *x->status);
}

static foci_status look_at_blocks(struct adding *x, int64_t n)
{
    for (x->first = 0; x->first < x->all; x->first += n) {
        x->n = min64(n, x->all - x->first);
        if (x->weigher) x->weights = x->computed;
        TRY(look_at_block(x));
    }
    return FOCI_OK;
}

/* Rows of a block: all for ranks and where rows cannot be had apart, else what has room. */
static foci_status find_block(struct adding *x, int64_t *n)
{
    const int64_t heads = x->h->o.heads;
    const double  all =
        (double)heads * (double)x->nq * (double)x->len_k * (double)sizeof(float);

    *n = x->all;
    if (!x->weigher) return FOCI_OK;
    if ((x->whole || x->ranks) && all > (double)most_bytes)
        return ctx_fail(x->h->ctx, FOCI_ERR_ARG,
                        "%s, and %" PRId64 " matrices of %" PRId64 " x %" PRId64
                        " take %.1f GiB at once, above 1: give shorter sequences%s",
                        x->ranks ? "ranks are those of whole matrices"
                                 : "rows of these weights depend on one another",
                        heads, x->nq, x->nk, all / 0x1p30,
                        x->ranks ? ", or a smaller rank" : "");
    const int64_t room =
        (int64_t)(block_bytes / sizeof(float)) / max64(heads * x->len_k, 1);
    if (!x->whole && !x->ranks) *n = max64(1, min64(*n, room));
    return FOCI_OK;
}

static foci_status add_sequence(struct adding *x)
{
    foci_ctx     *ctx = x->h->ctx;
    struct arena  a = { 0 };
    const int64_t most = x->h->o.rank, longer = max64(x->nq, x->nk);
    int64_t       n;

    const bool sampled = !x->whole && x->h->o.rows > 0 && x->h->o.rows < x->nq;
    x->step = sampled ? x->nq / x->h->o.rows : 1;
    x->all = sampled ? x->h->o.rows : x->nq;
    x->ranks = longer <= most && !sampled && x->nq > 0 && x->nk > 0;
    x->svd_floats = x->ranks ? x->nq * x->nk + 2 * longer + 7 * min64(x->nq, x->nk) : 0;
    x->h->added |= ADDED_SOME | (x->apart ? ADDED_APART : 0) |
                   (x->nq != x->nk ? ADDED_OTHER : 0) | (x->ranks ? 0 : ADDED_LONG);
    TRY(find_block(x, &n));
    adding_carve(x, &a, n);
    if (!arena_ok(&a))
        return ctx_fail(ctx, FOCI_ERR_MEMORY, "%" PRId64 " keys are too many", x->nk);
    const size_t bytes = a.used;
    if (!bytes) return FOCI_OK;
    a = (struct arena){ .base = ctx_alloc(ctx, bytes, 1) };
    if (!a.base) return FOCI_ERR_MEMORY;
    adding_carve(x, &a, n);
    const foci_status status = look_at_blocks(x, n);
    ctx_free(ctx, a.base, bytes, 1);
    return status;
}

/*
 * What is added
 */

static foci_status check_heads(const foci_heads *h, int64_t heads)
{
    if (heads == h->o.heads) return FOCI_OK;
    return ctx_fail(h->ctx, FOCI_ERR_ARG,
                    "there are %" PRId64 " heads where %" PRId64 " are looked at",
                    heads, h->o.heads);
}

static bool any_whole(const foci_plan *plan)
{
    for (int g = 0; g < plan->spec.n_groups; g++)
        if (ref_whole(&plan->spec.groups[g].mech)) return true;
    return false;
}

static foci_status add_plan(foci_heads *h, const foci_plan *plan, const foci_io *io,
                            bool apart)
{
    const foci_problem *p = &plan->p;
    struct ref_weigher  w;
    foci_status         status = FOCI_OK;

    TRY(check_heads(h, p->heads));
    TRY(ref_weigher_open(&w, plan, io));
    if (w.io.docs)
        status = ctx_fail(h->ctx, FOCI_ERR_UNSUP,
                          "the weights of packed documents are not looked at");
    for (int64_t b = 0; !status && b < p->batch; b++) {
        struct adding x = { .h = h,
                            .weigher = &w,
                            .batch = b,
                            .nq = w.io.len_q ? w.io.len_q[b] : p->len_q,
                            .nk = w.io.len_k ? w.io.len_k[b] : p->len_k,
                            .len_q = p->len_q,
                            .len_k = p->len_k,
                            .causal = (p->flags & FOCI_FLAG_CAUSAL) != 0,
                            .apart = apart,
                            .whole = any_whole(plan) };
        const int64_t one = p->len_q * p->len_k, of_heads = p->mask_heads > 1;

        x.mask_head = of_heads ? one : 0;
        if (w.io.mask)
            x.mask = w.io.mask +
                     (p->mask_batch > 1 ? b : 0) * (of_heads ? p->mask_heads : 1) * one;
        status = add_sequence(&x);
    }
    ref_weigher_close(&w);
    return status;
}

foci_status foci_heads_add(foci_heads *heads, const foci_plan *plan, const foci_io *io)
{
    if (!heads || !plan)
        return ctx_fail(plan ? plan->ctx : NULL, FOCI_ERR_ARG,
                        "foci_heads_add: the %s NULL", heads ? "plan is" : "heads are");
    return add_plan(heads, plan, io, false);
}

foci_status foci_heads_add_layer(foci_heads *heads, const foci_layer *layer,
                                 const foci_layer_io *io)
{
    foci_io of_heads = { FOCI_SIZED(foci_io) };

    if (!heads || !layer)
        return ctx_fail(layer ? layer->ctx : NULL, FOCI_ERR_ARG,
                        "foci_heads_add_layer: the %s NULL",
                        heads ? "layer is" : "heads are");
    TRY(foci_layer_heads(layer, io, &of_heads));
    return add_plan(heads, layer->plan, &of_heads, layer->p.len_source > 0);
}

foci_status foci_heads_add_weights(foci_heads *heads, const float *weights,
                                   int64_t len_q, int64_t len_k, int causal)
{
    if (!heads || !weights)
        return ctx_fail(heads ? heads->ctx : NULL, FOCI_ERR_ARG,
                        "foci_heads_add_weights: %s NULL",
                        heads ? "weights is" : "the heads are");
    if (len_q < 1 || len_k < 1)
        return ctx_fail(heads->ctx, FOCI_ERR_ARG,
                        "a matrix of %" PRId64 " x %" PRId64
                        " has no weights; it takes 1 or more of each",
                        len_q, len_k);
    struct adding x = { .h = heads,
                        .weights = weights,
                        .nq = len_q,
                        .nk = len_k,
                        .len_q = len_q,
                        .len_k = len_k,
                        .causal = causal != 0,
                        .whole = true };
    return add_sequence(&x);
}

/*
 * Opening, and what was found
 */

foci_status foci_heads_create(foci_ctx *ctx, const foci_heads_options *options,
                              foci_heads **heads)
{
    foci_heads_options o;

    if (!ctx || !heads)
        return ctx_fail(ctx, FOCI_ERR_ARG, "foci_heads_create: %s is NULL",
                        ctx ? "heads" : "the context");
    *heads = NULL;
    TRY(sized_in(ctx, "foci_heads_options", &o, options, sizeof o));
    if (o.heads < 1 || o.heads > 1024 || o.top < 0 || o.rows < 0)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "options.heads, top and rows are %" PRId64 ", %" PRId64
                        " and %" PRId64
                        "; they take 1 to 1024, and 0 (the default) or more",
                        o.heads, o.top, o.rows);
    if (!o.top) o.top = TOP;
    if (!o.rank) o.rank = RANK;
    foci_heads *h = ctx_alloc(ctx, 1, sizeof *h);
    if (!h) return FOCI_ERR_MEMORY;
    *h = (foci_heads){ .ctx = ctx, .o = o };
    const size_t n = (size_t)o.heads;
    h->sums = ctx_alloc(ctx, n, sizeof *h->sums);
    if (h->sums) h->pairs = ctx_alloc(ctx, n * n, sizeof *h->pairs);
    if (!h->pairs) {
        foci_heads_free(h);
        return FOCI_ERR_MEMORY;
    }
    *heads = h;
    return FOCI_OK;
}

void foci_heads_free(foci_heads *h)
{
    if (!h) return;
    const size_t n = (size_t)h->o.heads;
    if (h->sums) ctx_free(h->ctx, h->sums, n, sizeof *h->sums);
    if (h->pairs) ctx_free(h->ctx, h->pairs, n * n, sizeof *h->pairs);
    ctx_free(h->ctx, h, 1, sizeof *h);
}

/* Figures that only rows have which are not negative and sum to 1. */
static bool needs_shares(int figure)
{
    return (figure >= FOCI_HEAD_ENTROPY && figure <= FOCI_HEAD_PERPLEXITY) ||
           (figure >= FOCI_HEAD_CURRENT && figure <= FOCI_HEAD_START);
}

static const char *odd_reason(unsigned odd)
{
    return odd & HEAD_INFINITE   ? "some weights are no finite numbers"
           : odd & HEAD_NEGATIVE ? "some weights are negative"
           : odd & HEAD_SUM      ? "the weights of some rows do not sum to 1"
                                 : NULL;
}

static const char *pattern_reason(const foci_heads *h)
{
    return h->added & ADDED_APART   ? "queries and keys are of different sequences"
           : h->added & ADDED_OTHER ? "there are not as many queries as keys"
                                    : "all rows of the pattern are empty";
}

static const char *reason(const foci_heads *h, const struct head_sums *s, int figure)
{
    const bool rank = figure >= FOCI_HEAD_ROW_FIGURES;

    if (!(h->added & ADDED_SOME)) return "nothing was looked at";
    if (s->odd & HEAD_INFINITE || (needs_shares(figure) && s->odd))
        return odd_reason(s->odd);
    if (rank && h->added & ADDED_LONG)
        return h->o.rank < 0 ? "ranks were not asked for"
               : h->o.rows   ? "of some rows alone there is no rank"
                             : "the sequences are longer than those whose ranks are "
                               "computed";
    if (s->count[figure]) return NULL;
    if (figure == FOCI_HEAD_DISTANCE && h->added & ADDED_APART)
        return pattern_reason(h);
    if (figure >= FOCI_HEAD_CURRENT && figure <= FOCI_HEAD_START)
        return pattern_reason(h);
    return "all weights are zero";
}

const char *foci_heads_reason(const foci_heads *heads, int64_t head, int figure)
{
    if (!heads || head < 0 || head >= heads->o.heads || figure < 0 ||
        figure >= FOCI_HEAD_FIGURES)
        return "there is no such figure";
    return reason(heads, &heads->sums[head], figure);
}

foci_status foci_heads_get(const foci_heads *heads, int64_t head, foci_head *out)
{
    foci_head found = { .rows = 0 };

    if (!heads)
        return ctx_fail(NULL, FOCI_ERR_ARG, "foci_heads_get: the heads are NULL");
    if (head < 0 || head >= heads->o.heads)
        return ctx_fail(heads->ctx, FOCI_ERR_ARG,
                        "there is no head %" PRId64 " of %" PRId64, head,
                        heads->o.heads);
    const struct head_sums *s = &heads->sums[head];
    found.rows = s->rows;
    found.zero = s->zero;
    for (int f = 0; f < FOCI_HEAD_FIGURES; f++)
        found.figures[f] = reason(heads, s, f) ? NAN : s->sum[f] / (double)s->count[f];
    return sized_out(heads->ctx, "foci_head", out, &found, sizeof found);
}

double foci_heads_likeness(const foci_heads *heads, int64_t a, int64_t b)
{
    if (!heads || a < 0 || b < 0 || a >= heads->o.heads || b >= heads->o.heads)
        return NAN;
    if ((heads->sums[a].odd | heads->sums[b].odd) & HEAD_ODD) return NAN;
    if (a == b) return heads->sums[a].rows > heads->sums[a].zero ? 1 : NAN;
    const struct pair_sums *p =
        &heads->pairs[(a < b ? a : b) * heads->o.heads + (a < b ? b : a)];
    return p->count ? p->sum / (double)p->count : NAN;
}
