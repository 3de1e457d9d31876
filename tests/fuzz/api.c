/* api.c -- the whole of it: random specs, shapes, strides, lengths and values, forward
 * and backward, at every CPU level, against the judge.
 *
 * The bytes of the input are choices.  The first tells between executions, which must
 * agree with the judge, and problems with absurd numbers, which must be refused with a
 * reason or planned.
 */
#include "fuzz/choices.h"

/*
 * Specs
 */

/* Up to three groups that share out kv_heads times `per` heads. */
static void put_spec(foci_ctx *ctx, struct choices *c, int64_t kv_heads, int64_t per,
                     char *spec)
{
    *spec = 0;
    while (kv_heads > 0) {
        const int64_t n =
            strchr(spec, '+') || kv_heads == 1 ? kv_heads : 1 + below(c, kv_heads);
        const size_t used = strlen(spec);
        if (used || n < kv_heads)
            snprintf(spec + used, SPEC_CAP - used, "%s%lld*", used ? " + " : "",
                     (long long)(n * per));
        put_mech(ctx, c, spec);
        kv_heads -= n;
    }
}

/*
 * Problems
 */

/* Lengths about the edges of tiles, and others. */
static int64_t draw_len(struct choices *c)
{
    static const uint8_t edges[] = { 1, 16, 17, 63, 64, 65, 128, 129 };
    switch (below(c, 4)) {
    case 0: return edges[below(c, sizeof edges)];
    case 1: return below(c, 150);
    default: return below(c, 40);
    }
}

/* Axes in any order, with room between them.  Of a tensor that is only read all
 * sequences may be one. */
static foci_layout draw_layout(struct choices *c, int64_t batch, int64_t rows,
                               int64_t heads, int64_t dim, bool shared)
{
    static const uint8_t orders[][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                         { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
    const uint8_t       *order = orders[below(c, 6)];
    const int64_t        extent[] = { max64(batch, 1), max64(rows, 1), heads };
    int64_t              stride[3], step = dim;

    for (int i = 0; i < 3; i++) {
        stride[order[i]] = step + below(c, 4);
        step = stride[order[i]] * extent[order[i]];
    }
    if (shared && chance(c, 4)) stride[0] = 0;
    return (foci_layout){ .batch = stride[0], .row = stride[1], .head = stride[2] };
}

static foci_problem draw_problem(struct choices *c, int64_t kv_heads, int64_t per)
{
    enum { COST = 100000 };
    foci_problem p = { FOCI_SIZED(foci_problem) };

    p.flags = chance(c, 2) ? FOCI_FLAG_TRAIN : 0;
    p.flags |= chance(c, 2) ? FOCI_FLAG_CAUSAL : 0;
    p.flags |= chance(c, 4) ? FOCI_FLAG_MASK : 0;
    p.flags |= chance(c, 4) ? FOCI_FLAG_BIAS : 0;
    p.dtype = (foci_dtype)below(c, 3);
    if (p.dtype == FOCI_F32 && chance(c, 3)) p.flags |= FOCI_FLAG_FAST;
    p.batch = chance(c, 16) ? 0 : 1 + below(c, 3);
    p.kv_heads = kv_heads;
    p.heads = kv_heads * per;
    p.len_q = draw_len(c);
    p.len_k = chance(c, 2) ? draw_len(c) : p.len_q;
    p.dim_qk = 1 + below(c, chance(c, 4) ? 100 : 24);
    p.dim_v = 1 + below(c, chance(c, 4) ? 100 : 24);
    p.dim_x = 6;
    while (p.batch * p.heads * p.len_q * p.len_k * (p.dim_qk + p.dim_v) > COST) {
        p.dim_qk = (p.dim_qk + 1) / 2;
        p.dim_v = (p.dim_v + 1) / 2;
        if (p.len_q > 70) p.len_q /= 2;
        if (p.len_k > 70) p.len_k /= 2;
        if (p.dim_qk + p.dim_v == 2) p.batch = 1;
        if (p.batch == 1 && p.dim_qk + p.dim_v == 2) break;
    }
    if (chance(c, 4)) p.memory = below(c, p.len_k + 1);
    if (chance(c, 2)) p.mask_batch = p.batch;
    if (chance(c, 2)) p.mask_heads = p.heads;
    if (p.batch == 1 && p.len_q == p.len_k && chance(c, 3))
        p.max_docs = 1 + below(c, 6);
    if (chance(c, 2)) {
        const bool read = !(p.flags & FOCI_FLAG_TRAIN);
        p.q = draw_layout(c, p.batch, p.len_q, p.heads, p.dim_qk, read);
        p.k = draw_layout(c, p.batch, p.len_k, p.kv_heads, p.dim_qk, read);
        p.v = draw_layout(c, p.batch, p.len_k, p.kv_heads, p.dim_v, read);
        p.o = draw_layout(c, p.batch, p.len_q, p.heads, p.dim_v, false);
    }
    return p;
}

/*
 * Executions
 */

/* Some rows of a tensor, where there is one, times a power of two, or zero. */
static void change_rows(struct choices *c, bool zero, int type, void *x,
                        const foci_layout *l, int64_t batch, int64_t rows,
                        int64_t heads, int64_t dim)
{
    const int64_t each = 1 + below(c, 5);
    const double  factor = chance(c, 4) && zero ? 0 : ldexp(1, (int)below(c, 6) - 4);

    for (int64_t b = 0; x && b < batch; b++)
        for (int64_t i = 0; i < rows; i += each)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t t = 0; t < dim; t++) {
                    const int64_t at = trial_at(l, b, i, h, t);
                    ref_store(type, x, at, factor * ref_load(type, x, at));
                }
}

/* Gradients of rows that are normalised, keys that are queries among them, are divided by
 * their norm, and so is what rounding left of them: of a row of zeros that says nothing. */
static bool has_unit(const foci_plan *plan)
{
    for (int i = 0; i < plan->spec.n_groups; i++)
        if (plan->stages[i].score.unit || plan->stages[i].order.shared_qk) return true;
    return false;
}

static void execute(foci_ctx *ctx, struct choices *c, const char *spec,
                    const foci_problem *problem)
{
    foci_plan *plan;
    if (foci_plan_create(ctx, spec, problem, &plan) != FOCI_OK) {
        fuzz_message(ctx);
        return;
    }
    const foci_problem *p = &plan->p;
    unsigned       gives = p->max_docs ? TRIAL_DOCS : chance(c, 3) ? TRIAL_LENS : 0;
    const uint64_t seed = (uint64_t)(below(c, 256) << 8 | below(c, 256));
    struct trial   t = trial_make(plan, spec, seed, gives);
    const bool     shared = !p->q.batch || !p->k.batch || !p->v.batch;

    if (!shared && !(p->flags & FOCI_FLAG_FAST) && chance(c, 2)) {
        const int  type = (int)p->dtype;
        const bool zero = !has_unit(plan);
        change_rows(c, zero, type, t.q, &p->q, p->batch, p->len_q, p->heads, p->dim_qk);
        change_rows(c, zero, type, t.k, &p->k, p->batch, p->len_k, p->kv_heads,
                    p->dim_qk);
        change_rows(c, true, type, t.v, &p->v, p->batch, p->len_k, p->kv_heads,
                    p->dim_v);
    }
    const bool    rounded = trial_needs_words(plan);
    struct result got = trial_run(plan, &t);
    struct result want = trial_judge(plan, &t, false);
    struct result words = rounded ? trial_judge(plan, &t, true) : want;
    /* Bounds of averages are met on average; of 10^5 cases some miss them a little. */
    trial_close_within(plan, &t, 8, &got, &want, &words);
    result_free(&got);
    result_free(&want);
    if (rounded) result_free(&words);
    trial_free(&t);
    foci_plan_free(plan);
}

/*
 * Absurd numbers
 */

static void absurd(foci_ctx *ctx, struct choices *c)
{
    foci_problem       p = { FOCI_SIZED(foci_problem) };
    char               spec[SPEC_CAP] = "softmax", text[2048];
    foci_plan         *plan;
    int64_t *const     fields[] = { &p.batch,  &p.heads,    &p.kv_heads,   &p.len_q,
                                    &p.len_k,  &p.dim_qk,   &p.dim_v,      &p.dim_x,
                                    &p.memory, &p.max_docs, &p.mask_batch, &p.mask_heads };
    foci_layout *const layouts[] = { &p.q, &p.k, &p.v, &p.o };

    if (chance(c, 2)) {
        *spec = 0;
        put_mech(ctx, c, spec);
    }
    p.dtype = (foci_dtype)draw_any(c, FOCI_F32);
    p.flags = (uint32_t)draw_any(c, FOCI_FLAG_TRAIN);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = draw_any(c, i < 7);
    for (size_t i = 0; i < 4 && chance(c, 2); i++)
        *layouts[i] = (foci_layout){ draw_any(c, 0), draw_any(c, 0), draw_any(c, 1) };
    p.size = (size_t)draw_any(c, sizeof p);
    if (p.size > sizeof p) p.size = sizeof p + 1;
    /* Tables of masks grow with the length; they are not what is looked for here. */
    if (strncmp(spec, "test_", 5) == 0) {
        p.len_q = min64(p.len_q, 2000);
        p.len_k = min64(p.len_k, 2000);
    }

    const foci_status status = foci_plan_create(ctx, spec, &p, &plan);
    foci_problem_print(&p, text, sizeof text);
    if (status != FOCI_OK) {
        MUST(!plan);
        fuzz_message(ctx);
        return;
    }
    foci_cost     cost = { FOCI_SIZED(foci_cost) };
    const foci_io io = { FOCI_SIZED(foci_io) };
    foci_plan_describe(plan, text, sizeof text);
    MUST(foci_plan_cost(plan, &cost) == FOCI_OK && cost.pairs >= 0);
    *text = 0;
    if (foci_io_check(plan, &io, NULL, text, sizeof text) != FOCI_OK) MUST(*text);
    foci_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct choices c = { data, data + size };
    foci_ctx      *ctx = draw_level(&c);
    char           spec[SPEC_CAP];

    if (chance(&c, 8)) {
        absurd(ctx, &c);
        return 0;
    }
    const int64_t kv_heads = 1 + below(&c, 3), per = 1 + below(&c, 3);
    put_spec(ctx, &c, kv_heads, per, spec);
    const foci_problem p = draw_problem(&c, kv_heads, per);
    execute(ctx, &c, spec, &p);
    return 0;
}
