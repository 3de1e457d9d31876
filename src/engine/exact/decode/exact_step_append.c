/* exact_step_append.c -- new tokens: store their rows in pages, add them to unfinished
 * slots, store slots that are finished, and enter labels. */
#include <string.h>

#include "engine/exact/decode/exact_step.h"
#include "engine/exact/exact_map.h"

/* rows times heads from which on threads share the work */
enum { MANY_ROWS = 256 };

/* Scratch of one thread. */
struct append_scratch {
    float                      *row;     /* [max(d.ldq, ldo)] */
    float                      *input;   /* [d.ld_in] a key before projection */
    float                      *cos_sin; /* [d.q] */
    struct hash_scratch         hash;
    struct step_learned_scratch mix;
};

static struct append_scratch append_scratch_carve(const struct exact_step *x,
                                                  struct arena            *a)
{
    struct append_scratch d;

    d.row = arena_alloc(a, max64(x->e.d.ldq, x->ldo), sizeof *d.row);
    d.input = arena_alloc(a, x->e.d.ld_in, sizeof *d.input);
    d.cos_sin = arena_alloc(a, x->e.d.q, sizeof *d.cos_sin);
    d.hash = hash_scratch(x, a);
    d.mix = step_learned_scratch(x, a);
    return d;
}

size_t exact_append_bytes(const foci_pool *pool, int g)
{
    const struct exact_step x = step_geometry(pool->plan, g);
    struct arena            a = { 0 };

    append_scratch_carve(&x, &a);
    return a.used * (size_t)pool->plan->ctx->threads;
}

/* The row of k and v of token t of a sequence, for key/value head kv. */
static size_t kv_row(const struct exact_step *x, const struct step_seq *seq, int64_t t,
                     int64_t kv)
{
    const int64_t given = x->e.stage->group->kv0 + kv / x->kv_expand;
    const int64_t head = x->step->kv0 + given * x->step->kv_step;
    return (size_t)((seq->row0 + t) * x->e.plan->p.kv_heads + head);
}

/* The row that the key of a set is made of; it may be a query. */
static const char *key_row(const struct exact_step *x, const struct step_seq *seq,
                           int64_t t, int64_t kv, int64_t set)
{
    const size_t  bytes = (size_t)x->e.d.in * x->el;
    const int64_t query = (seq->row0 + t) * x->e.plan->p.heads +
                          x->e.stage->group->head0 + kv * x->per_kv + set;

    if (x->e.stage->order.shared_qk)
        return (const char *)x->step->io->q + (size_t)query * bytes;
    return (const char *)x->step->io->k + kv_row(x, seq, t, kv) * bytes;
}

/* Store the key of query head `head`, after its maps. */
static void store_key(const struct exact_step *x, const struct exact *e, int64_t head,
                      const char *from, char *to, struct append_scratch *scratch)
{
    const bool    input = exact_has_project(e);
    float        *row = scratch->row;
    const int     dtype = (int)x->e.plan->p.dtype;
    struct mapped mapped;

    if (!exact_has_map(e)) {
        memcpy(to, from, (size_t)x->e.d.q * x->el);
        return;
    }
    x->e.k->load_rows(input ? scratch->input : row, input ? x->e.d.ld_in : x->e.d.ldq,
                      from, x->e.d.in, dtype, 1, x->e.d.in);
    if (input) step_project_row(x, head, true, scratch->input, row);
    exact_map(e, row, 1, (struct positions){ 0, NULL }, true, &mapped);
    x->e.k->store_rows(to, x->e.d.q, dtype, row, x->e.d.ldq, 1.0f, 1, x->e.d.q);
}

/*
 * Slots
 */

char *step_row_in(const foci_pool *pool, int g, const struct stream *s, int64_t at,
                  int64_t kv, int64_t set)
{
    const foci_problem     *p = &pool->plan->p;
    const struct page_part *t = &pool->parts[g];
    const int64_t           d = set == t->sets ? p->dim_v : t->dim_qk;

    return pool_keys(pool, g, stream_page(s, at / PAGE), kv, set) +
           (size_t)(at % PAGE * d) * foci_dtype_bytes(p->dtype);
}

/* The sums of a level for one head and set. */
static float *sum_of(const foci_pool *pool, int g, float *sums, int64_t kv, int64_t set)
{
    const struct page_part *t = &pool->parts[g];
    const int64_t           row = sum_row(t->dim_qk);

    if (set < t->sets) return sums + (kv * t->sets + set) * row;
    return sums + t->kv_heads * t->sets * row + kv * sum_row(pool->plan->p.dim_v);
}

static void add_row(const foci_pool *pool, int dtype, const char *from, int64_t d,
                    float *sum, float *row)
{
    pool->plan->ctx->kernels.load_rows(row, sum_row(d), from, d, dtype, 1, (int)d);
    for (int64_t c = 0; c < d; c++)
        sum[c] += row[c];
}

/* Add token j, whose rows are in pages already, to level l. */
static void add_to_level(const struct exact_step *x, const foci_state *state, int l,
                         int64_t j, int64_t kv, int64_t set,
                         const struct append_scratch *scratch)
{
    const foci_pool    *pool = state->pool;
    struct exact_state *own = state->own[x->g];
    const foci_slots   *s = &x->e.stage->levels[l].slots;
    const int64_t d = set == x->sets ? x->e.d.v : x->e.d.q, done = slots_done(s, j + 1);
    const char   *from = step_row_in(pool, x->g, &state->tokens, j, kv, set);
    const int     dtype = (int)x->e.plan->p.dtype;

    if (s->tail) {
        if (done > slots_done(s, j))
            memcpy(step_row_in(pool, x->g, &own->level[l], done - 1, kv, set), from,
                   (size_t)d * x->el);
        return;
    }
    if (s->learned) {
        if ((j + 1) % s->run_len == 0)
            step_learned(x, state, j / s->run_len, kv, set == x->sets, &scratch->mix);
        return;
    }
    float *sum = sum_of(pool, x->g, own->sums[l], kv, set);
    add_row(pool, dtype, from, d, sum, scratch->row);
    if ((j + 1) % s->run_len) return;
    x->e.k->store_rows(step_row_in(pool, x->g, &own->level[l], done - 1, kv, set), d,
                       dtype, sum, sum_row(d), 1.0f / (float)s->run_len, 1, (int)d);
    memset(sum, 0, (size_t)d * sizeof *sum);
}

void exact_sum_open(const foci_state *state, int g, int level, int64_t len, float *row)
{
    const foci_pool        *pool = state->pool;
    const foci_problem     *p = &pool->plan->p;
    const struct stage     *s = &pool->plan->stages[g];
    struct exact_state     *own = state->own[g];
    const int64_t           every = s->levels[level].slots.run_len;
    const struct page_part *t = &pool->parts[g];

    memset(own->sums[level], 0, (size_t)sum_floats(pool, g) * sizeof *own->sums[level]);
    for (int64_t j = len / every * every; j < len; j++)
        for (int64_t i = 0; i < (t->sets + 1) * t->kv_heads; i++) {
            const int64_t kv = i / (t->sets + 1), set = i % (t->sets + 1);
            add_row(pool, (int)p->dtype,
                    step_row_in(pool, g, &state->tokens, j, kv, set),
                    set == t->sets ? p->dim_v : t->dim_qk,
                    sum_of(pool, g, own->sums[level], kv, set), row);
        }
}

/*
 * Tokens
 */

/* Store the rows of token t of a sequence, for all key/value heads. */
static void append_token(const struct exact_step *x, const struct step_seq *seq,
                         int64_t t, struct append_scratch *scratch)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = &seq->state->tokens;
    const int64_t        j = seq->state->len - seq->tokens + t;
    const size_t         v = (size_t)x->e.d.v * x->el;
    struct exact         e = x->e;

    if (x->e.score->rope_base > 0) {
        step_cos_sin(x, j, scratch->cos_sin);
        e.position.cos_sin = scratch->cos_sin;
    }
    for (int64_t kv = 0; kv < x->kv_heads; kv++) {
        for (int64_t set = 0; set < x->sets; set++)
            store_key(x, &e, kv * x->per_kv + set, key_row(x, seq, t, kv, set),
                      step_row_in(pool, x->g, s, j, kv, set), scratch);
        memcpy(step_row_in(pool, x->g, s, j, kv, x->sets),
               (const char *)x->step->io->v + kv_row(x, seq, t, kv) * v, v);
    }
}

/* Add all new tokens of a sequence and key/value head to slots, once their rows are
 * stored. */
static void append_slots(const struct exact_step *x, const struct step_seq *seq,
                         int64_t kv, struct append_scratch *scratch)
{
    for (int64_t j = seq->state->len - seq->tokens; j < seq->state->len; j++)
        for (int l = 0; l < x->e.stage->n_levels; l++)
            for (int64_t set = 0; set <= x->sets; set++)
                add_to_level(x, seq->state, l, j, kv, set, scratch);
}

/* Enter the labels of all new tokens of a sequence, for one head or for all. */
static void append_labels(const struct exact_step *x, const struct step_seq *seq,
                          int64_t head, struct append_scratch *scratch)
{
    struct exact_state *own = seq->state->own[x->g];
    const foci_mech    *m = &x->e.stage->group->mech;

    for (int64_t t = 0; t < seq->tokens; t++) {
        const int64_t j = seq->state->len - seq->tokens + t;

        if (x->e.stage->order.label == FOCI_LABEL_PLACE) {
            for (int64_t r = 0; r < x->rounds; r++)
                labels_add(&own->maps[r], j, m->def->place(m, j));
            continue;
        }
        step_hash(x, head, key_row(x, seq, t, head / x->per_kv, head % x->per_kv),
                  &scratch->hash);
        for (int64_t r = 0; r < x->rounds; r++)
            labels_add(&own->maps[head * x->rounds + r], j, scratch->hash.label[r]);
    }
}

/* Make room for the slots that the new tokens finish, before any is written. */
static void extend_levels(const struct exact_step *x, const struct step_seq *seq)
{
    struct exact_state *own = seq->state->own[x->g];

    for (int l = 0; l < x->e.stage->n_levels; l++)
        stream_extend(x->step->pool, &own->level[l],
                      slots_done(&x->e.stage->levels[l].slots, seq->state->len) -
                          own->level[l].rows);
}

/* Jobs of one sequence: key/value heads that have slots, then heads that have labels of
 * their own, or one job for all. */
static int64_t slot_jobs(const struct exact_step *x)
{
    return x->e.stage->n_levels ? x->kv_heads : 0;
}

static int64_t label_jobs(const struct exact_step *x)
{
    if (!x->rounds) return 0;
    return x->e.stage->order.label == FOCI_LABEL_PLACE ? 1 : x->e.stage->group->heads;
}

static void append_all(const struct exact_step *x, struct append_scratch *scratch)
{
    const struct state_step *step = x->step;
    const int64_t            slots = slot_jobs(x), jobs = slots + label_jobs(x);

#pragma omp for schedule(static)
    for (int64_t i = 0; i < x->e.stage->group->heads; i++)
        step_vector_norms(x, i);
#pragma omp for schedule(static) collapse(2)
    for (int64_t i = 0; i < step->n_seqs; i++)
        for (int64_t t = 0; t < step->max_tokens; t++)
            if (t < step->seqs[i].tokens) append_token(x, &step->seqs[i], t, scratch);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < step->n_seqs * jobs; i++) {
        const struct step_seq *seq = &step->seqs[i / jobs];
        if (i % jobs < slots)
            append_slots(x, seq, i % jobs, scratch);
        else
            append_labels(x, seq, i % jobs - slots, scratch);
    }
}

void exact_append(const struct state_step *step, int g)
{
    struct exact_step x = step_geometry(step->pool->plan, g);
    const size_t      desk_bytes =
        exact_append_bytes(step->pool, g) / (size_t)x.e.plan->ctx->threads;
    int64_t rows = 0;

    x.step = step;
    for (int64_t i = 0; i < step->n_seqs; i++) {
        extend_levels(&x, &step->seqs[i]);
        rows += step->seqs[i].tokens;
    }
    const int threads = rows * (x.kv_heads + label_jobs(&x)) < MANY_ROWS
                            ? 1
                            : team_size(x.e.plan->ctx->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena          a = { .base = step->pool->scratch +
                                            (size_t)exact_thread() * desk_bytes };
        struct append_scratch scratch = append_scratch_carve(&x, &a);

        append_all(&x, &scratch);
    }
}
