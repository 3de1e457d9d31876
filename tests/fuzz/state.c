/* state.c -- decoding in any order: steps of many states, copies, cuts, growing pools,
 * what is saved, damaged and restored.
 *
 * The bytes of the input are choices.  Beside each state goes a record of its tokens
 * and of what the steps made of them; in the end that is what the causal forward makes
 * of the same tokens.
 */
#include "fuzz/choices.h"

enum { N_STATES = 4, LONGEST = 200, MOST_HEADS = 4, WIDEST = 9, MOST_OPS = 60 };

struct record {
    foci_state *state; /* NULL: no state here */
    int64_t     len;
    int64_t     token[LONGEST]; /* seeds of rows */
    bool        known[LONGEST]; /* whether a step gave this row, or only took it */
    double      got[LONGEST][MOST_HEADS * WIDEST];
};

struct world {
    foci_ctx       *ctx;
    const char     *spec;
    foci_plan      *plan;
    foci_pool      *pool;
    float          *params;
    struct choices *c;
    int64_t         tokens; /* drawn so far */
    struct record   records[N_STATES];
};

static void *room(size_t n, size_t size)
{
    void *p = aligned_alloc(64, (n * size + 64) / 64 * 64);
    MUST(p);
    return p;
}

/* A row of a token: the same numbers wherever it is asked for. */
static void put_row(const struct world *w, int64_t token, uint64_t which, double scale,
                    void *x, int64_t row, int64_t n)
{
    struct rng rng;
    rng_seed(&rng, (uint64_t)token, which);
    for (int64_t i = 0; i < n; i++)
        ref_store((int)w->plan->p.dtype, x, row * n + i, scale * rng_normal(&rng));
}

struct rows {
    void *q, *k, *v, *o;
};

static struct rows rows_make(const struct world *w, int64_t n)
{
    const foci_problem *p = &w->plan->p;
    const size_t        el = foci_dtype_bytes(p->dtype), rows = (size_t)n;
    return (struct rows){ room(rows * (size_t)(p->heads * p->dim_qk), el),
                          room(rows * (size_t)(p->kv_heads * p->dim_qk), el),
                          room(rows * (size_t)(p->kv_heads * p->dim_v), el),
                          room(rows * (size_t)(p->heads * p->dim_v), el) };
}

static void rows_put(const struct world *w, struct rows *r, int64_t row, int64_t token)
{
    const foci_problem *p = &w->plan->p;
    put_row(w, token, 1, 0.4, r->q, row, p->heads * p->dim_qk);
    put_row(w, token, 2, 1, r->k, row, p->kv_heads * p->dim_qk);
    put_row(w, token, 3, 1, r->v, row, p->kv_heads * p->dim_v);
}

static void rows_free(struct rows *r)
{
    free(r->q);
    free(r->k);
    free(r->v);
    free(r->o);
}

/*
 * What can happen
 */

/* A pool that is full changes nothing, and grows. */
static void run_step(struct world *w, const foci_step_io *io, struct record *const *took)
{
    foci_status status;
    while ((status = foci_step(w->pool, io)) == FOCI_ERR_FULL) {
        fuzz_message(w->ctx);
        for (int64_t i = 0; i < io->n_states; i++)
            MUST(foci_state_len(took[i]->state) == took[i]->len);
        MUST(foci_pool_grow(w->pool, 1 + below(w->c, 3)) == FOCI_OK);
    }
    MUST(status == FOCI_OK);
}

static void step(struct world *w)
{
    const int64_t  which = 1 + below(w->c, (1 << N_STATES) - 1);
    const bool     silent = chance(w->c, 8);
    const bool     makes_keys = w->plan->stages[0].order.shared_qk; /* of queries */
    const int64_t  width = w->plan->p.heads * w->plan->p.dim_v;
    struct record *took[N_STATES];
    foci_state    *states[N_STATES];
    int32_t        tokens[N_STATES];
    int64_t        n = 0, all = 0, longest = 0;

    for (int s = 0; s < N_STATES; s++) {
        struct record *r = &w->records[s];
        if (!r->state || !(which >> s & 1)) continue;
        const int64_t some = chance(w->c, 3) ? below(w->c, 90) : below(w->c, 4);
        tokens[n] = (int32_t)min64(some, LONGEST - r->len);
        states[n] = r->state;
        took[n] = r;
        longest = max64(longest, r->len + tokens[n]);
        all += tokens[n++];
    }
    struct rows   rows = rows_make(w, all);
    const int64_t first = w->tokens;
    for (int64_t i = 0; i < all; i++)
        rows_put(w, &rows, i, w->tokens++);
    void *work = room(foci_step_work_bytes(w->pool, n, all, longest), 1);

    const foci_step_io io = { FOCI_SIZED(foci_step_io),
                              .states = states,
                              .n_states = n,
                              .tokens = tokens,
                              .q = silent && !makes_keys ? NULL : rows.q,
                              .k = rows.k,
                              .v = rows.v,
                              .o = silent ? NULL : rows.o,
                              .params = w->params,
                              .work = work };
    run_step(w, &io, took);
    for (int64_t i = 0, row = 0; i < n; i++)
        for (int64_t t = 0; t < tokens[i]; t++, row++) {
            struct record *r = took[i];
            r->token[r->len] = first + row;
            r->known[r->len] = !silent;
            for (int64_t e = 0; e < width && !silent; e++)
                r->got[r->len][e] =
                    ref_load((int)w->plan->p.dtype, rows.o, row * width + e);
            r->len++;
        }
    free(work);
    rows_free(&rows);
}

static struct record *any(struct world *w)
{
    return &w->records[below(w->c, N_STATES)];
}

/* A new one, or a copy of another, in place of what was there. */
static void replace(struct world *w, struct record *r, const struct record *of)
{
    foci_state *made;
    if (r == of) return;
    if (of->state) {
        MUST(foci_state_copy(of->state, &made) == FOCI_OK);
    } else {
        MUST(foci_state_create(w->pool, &made) == FOCI_OK);
    }
    foci_state_free(r->state);
    memcpy(r, of, sizeof *r);
    r->state = made;
}

static void drop(struct record *r)
{
    foci_state_free(r->state);
    r->state = NULL;
    r->len = 0;
}

static void cut(struct world *w, struct record *r)
{
    if (!r->state) return;
    const int64_t len = below(w->c, r->len + 2);
    if (len > r->len) {
        MUST(foci_state_truncate(r->state, len) != FOCI_OK);
        fuzz_message(w->ctx);
    } else if (!len) {
        foci_state_reset(r->state);
        r->len = 0;
    } else if (foci_state_truncate(r->state, len) == FOCI_OK) {
        r->len = len;
    } else {
        fuzz_message(w->ctx);
    }
}

/* Saved and restored, whole or damaged.  What is damaged is refused, or kept as it is. */
static void save(struct world *w, struct record *r)
{
    if (!r->state) return;
    const size_t n = foci_state_save(r->state, NULL, 0);
    char        *saved = room(n, 1), *again = room(n, 1);
    foci_state  *made;

    MUST(foci_state_save(r->state, saved, n) == n);
    const bool damaged = chance(w->c, 2);
    size_t     size = n;
    if (damaged) {
        const size_t at = (size_t)(below(w->c, 256) | below(w->c, 4) << 8);
        saved[at % n] ^= (char)(1 << below(w->c, 8));
        if (chance(w->c, 4)) size = at % n;
    }
    char *given = malloc(size + !size); /* no byte more, for the sanitizers */
    MUST(given);
    memcpy(given, saved, size);
    const foci_status status = foci_state_restore(w->pool, given, size, &made);
    free(given);
    if (status == FOCI_OK) {
        MUST(foci_state_save(made, again, n) == n && !memcmp(saved, again, n));
        foci_state_free(damaged ? made : r->state);
        if (!damaged) r->state = made;
    } else {
        MUST(!made && (damaged || status == FOCI_ERR_FULL));
        fuzz_message(w->ctx);
    }
    free(saved);
    free(again);
}

/*
 * What must have come of it
 */

/* Errors are relative to the weights that were added up; values are below 4, about. */
static void check_row(const struct world *w, const struct record *r, int64_t i,
                      const void *o, const float *weights)
{
    const foci_problem *p = &w->plan->p;
    const double        most = p->dtype == FOCI_F32 ? 1e-4 : 2e-1;

    for (int64_t h = 0; h < p->heads; h++) {
        double size = 0;
        for (int64_t j = 0; j < r->len; j++)
            size += fabs((double)weights[(h * LONGEST + i) * LONGEST + j]);
        for (int64_t t = 0; t < p->dim_v; t++) {
            const int64_t e = h * p->dim_v + t;
            const double want = ref_load((int)p->dtype, o, i * p->heads * p->dim_v + e);
            MUST(fabs(r->got[i][e] - want) <= most * fmax(1, size));
        }
    }
}

/* One plan serves sequences of all lengths. */
static void check(const struct world *w, const struct record *r)
{
    const foci_problem *p = &w->plan->p;
    const int32_t       len = (int32_t)r->len;

    MUST(foci_state_len(r->state) == r->len);
    struct rows rows = rows_make(w, LONGEST);
    for (int64_t i = 0; i < LONGEST; i++)
        rows_put(w, &rows, i, i < r->len ? r->token[i] : 0);
    void  *work = room(foci_plan_work_bytes(w->plan), 1);
    float *weights = room((size_t)(p->heads * LONGEST * LONGEST), sizeof *weights);
    const foci_io io = { FOCI_SIZED(foci_io), .q = rows.q,         .k = rows.k,
                         .v = rows.v,         .o = rows.o,         .len_q = &len,
                         .len_k = &len,       .params = w->params, .work = work };
    MUST(foci_forward(w->plan, &io) == FOCI_OK);
    /* Where heads have no matrix of weights, what they add up has weights of 1 in all. */
    const foci_status status = foci_ref_weights(w->plan, &io, weights);
    MUST(status == FOCI_OK || status == FOCI_ERR_UNSUP);
    if (status)
        memset(weights, 0, (size_t)(p->heads * LONGEST * LONGEST) * sizeof *weights);
    for (int64_t i = 0; i < r->len; i++)
        if (r->known[i]) check_row(w, r, i, rows.o, weights);
    free(weights);
    free(work);
    rows_free(&rows);
}

static void live(struct world *w)
{
    for (int i = 0; i < MOST_OPS && w->c->at < w->c->end; i++) {
        struct record *r = any(w);
        switch (below(w->c, 8)) {
        case 0: replace(w, r, any(w)); break;
        case 1: drop(r); break;
        case 2: cut(w, r); break;
        case 3: save(w, r); break;
        default: step(w);
        }
    }
    for (int s = 0; s < N_STATES; s++)
        if (w->records[s].state) check(w, &w->records[s]);
    for (int s = 0; s < N_STATES; s++)
        drop(&w->records[s]);
    MUST(foci_pool_free_count(w->pool) == foci_pool_page_count(w->pool));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct choices      c = { data, data + size };
    char                spec[SPEC_CAP] = "";
    foci_problem        p = { FOCI_SIZED(foci_problem), .batch = 1, .len_q = LONGEST,
                              .len_k = LONGEST };

    w = (struct world){ .ctx = draw_level(&c), .spec = spec, .c = &c };
    put_mech(w.ctx, &c, spec);
    p.dtype = (foci_dtype)below(&c, 3);
    p.flags = FOCI_FLAG_CAUSAL;
    p.kv_heads = 1 + below(&c, 2);
    p.heads = p.kv_heads * (1 + below(&c, 2));
    p.dim_qk = 1 + below(&c, WIDEST);
    p.dim_v = 1 + below(&c, WIDEST);
    if (foci_plan_create(w.ctx, spec, &p, &w.plan) != FOCI_OK) {
        fuzz_message(w.ctx);
        return 0;
    }
    const unsigned other = FOCI_READ_X | FOCI_READ_WORDS;
    if (mech_reads(&w.plan->spec.groups[0].mech) & other) {
        foci_plan_free(w.plan);
        return 0;
    }
    if (foci_pool_create(w.plan, below(&c, 4), &w.pool) == FOCI_OK) {
        w.params = room((size_t)foci_plan_param_floats(w.plan), sizeof *w.params);
        MUST(foci_params_init(w.plan, 1, w.params) == FOCI_OK);
        for (int s = 0; s < 2; s++)
            MUST(foci_state_create(w.pool, &w.records[s].state) == FOCI_OK);
        live(&w);
        free(w.params);
        foci_pool_free(w.pool);
    } else {
        fuzz_message(w.ctx);
    }
    foci_plan_free(w.plan);
    return 0;
}
