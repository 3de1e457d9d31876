/* exact_step_append.c -- new tokens: their rows into pages, into the sums of open runs
 * and, once a run is finished, into slots; their labels into chains. */
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_step.h"

/* Rows, times heads, from which on threads share the work. */
enum { MANY_ROWS = 256 };

/* Scratch of one thread: a row, and what its labels take. */
struct desk {
    float        *row;  /* [max(ldq, ldo)] */
    float        *wide; /* [ld_given] a key as it is given */
    float        *turn; /* [dq] */
    struct hash   hash;
    struct mixing mix;
};

static struct desk desk_take(const struct stepping *x, struct arena *a)
{
    struct desk d;

    d.row = arena_take(a, max64(x->ldq, x->ldo), sizeof *d.row);
    d.wide = arena_take(a, x->ld_given, sizeof *d.wide);
    d.turn = arena_take(a, x->dq, sizeof *d.turn);
    d.hash = hash_take(x, a);
    d.mix = mixing_take(x, a);
    return d;
}

size_t exact_append_bytes(const foci_pool *pool, int g)
{
    const struct stepping x = step_geometry(pool->plan, g);
    struct arena          a = { 0 };

    desk_take(&x, &a);
    return a.used * (size_t)pool->plan->ctx->threads;
}

/* Key/value head kv of token t of the sequence among the rows of k and v. */
static size_t kv_row(const struct stepping *x, const struct step_seq *seq, int64_t t,
                     int64_t kv)
{
    const int64_t given = x->stage->group->kv0 + kv / x->own;
    const int64_t head = x->step->kv0 + given * x->step->kv_step;
    return (size_t)((seq->row0 + t) * x->plan->p.kv_heads + head);
}

/* Where the key of a set comes from: it may be the query of one of its heads. */
static const char *key_row(const struct stepping *x, const struct step_seq *seq,
                           int64_t t, int64_t kv, int64_t set)
{
    const size_t  bytes = (size_t)x->given * x->el;
    const int64_t query = (seq->row0 + t) * x->plan->p.heads + x->stage->group->head0 +
                          kv * x->per_kv + set;

    if (x->stage->order.shared)
        return (const char *)x->step->io->q + (size_t)query * bytes;
    return (const char *)x->step->io->k + kv_row(x, seq, t, kv) * bytes;
}

/* Of query head `head`, where it has keys of its own. */
static void store_key(const struct stepping *x, const struct exact *e, int64_t head,
                      const char *from, char *to, struct desk *desk)
{
    const bool    wide = exact_projects(e);
    float        *row = desk->row;
    const int     dtype = (int)x->plan->p.dtype;
    struct mapped mapped;

    if (!exact_maps(e)) {
        memcpy(to, from, (size_t)x->dq * x->el);
        return;
    }
    x->k->load_rows(wide ? desk->wide : row, wide ? x->ld_given : x->ldq, from,
                    x->given, dtype, 1, x->given);
    if (wide) step_project_row(x, head, true, desk->wide, row);
    exact_map(e, row, 1, (struct places){ 0, NULL }, true, &mapped);
    x->k->store_rows(to, x->dq, dtype, row, x->ldq, 1.0f, 1, x->dq);
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

/* The sums of a level that are of this head and set. */
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

/* Token j of a state, which lies in its pages already: into level l. */
static void add_to_level(const struct stepping *x, const foci_state *state, int l,
                         int64_t j, int64_t kv, int64_t set, const struct desk *desk)
{
    const foci_pool  *pool = state->pool;
    struct exact_own *own = state->own[x->g];
    const foci_slots *s = &x->stage->levels[l].slots;
    const int64_t     d = set == x->sets ? x->dv : x->dq, done = slots_done(s, j + 1);
    const char       *from = step_row_in(pool, x->g, &state->tokens, j, kv, set);
    const int         dtype = (int)x->plan->p.dtype;

    if (s->take) {
        if (done > slots_done(s, j))
            memcpy(step_row_in(pool, x->g, &own->level[l], done - 1, kv, set), from,
                   (size_t)d * x->el);
        return;
    }
    if (s->learned) {
        if ((j + 1) % s->every == 0)
            step_mix(x, state, j / s->every, kv, set == x->sets, &desk->mix);
        return;
    }
    float *sum = sum_of(pool, x->g, own->sums[l], kv, set);
    add_row(pool, dtype, from, d, sum, desk->row);
    if ((j + 1) % s->every) return;
    x->k->store_rows(step_row_in(pool, x->g, &own->level[l], done - 1, kv, set), d,
                     dtype, sum, sum_row(d), 1.0f / (float)s->every, 1, (int)d);
    memset(sum, 0, (size_t)d * sizeof *sum);
}

void exact_sum_open(const foci_state *state, int g, int level, int64_t len, float *row)
{
    const foci_pool        *pool = state->pool;
    const foci_problem     *p = &pool->plan->p;
    const struct stage     *s = &pool->plan->stages[g];
    struct exact_own       *own = state->own[g];
    const int64_t           every = s->levels[level].slots.every;
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

/* Token t of a sequence: the rows of all its key/value heads. */
static void append_token(const struct stepping *x, const struct step_seq *seq,
                         int64_t t, struct desk *desk)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = &seq->state->tokens;
    const int64_t        j = seq->state->len - seq->tokens + t;
    const size_t         v = (size_t)x->dv * x->el;
    struct exact         e = x->e;

    if (x->score->rope_base > 0) {
        step_turn(x, j, desk->turn);
        e.at.turns = desk->turn;
    }
    for (int64_t kv = 0; kv < x->kv_heads; kv++) {
        for (int64_t set = 0; set < x->sets; set++)
            store_key(x, &e, kv * x->per_kv + set, key_row(x, seq, t, kv, set),
                      step_row_in(pool, x->g, s, j, kv, set), desk);
        memcpy(step_row_in(pool, x->g, s, j, kv, x->sets),
               (const char *)x->step->io->v + kv_row(x, seq, t, kv) * v, v);
    }
}

/* All new tokens of one sequence and key/value head, once their rows are stored. */
static void append_slots(const struct stepping *x, const struct step_seq *seq,
                         int64_t kv, struct desk *desk)
{
    for (int64_t j = seq->state->len - seq->tokens; j < seq->state->len; j++)
        for (int l = 0; l < x->stage->n_levels; l++)
            for (int64_t set = 0; set <= x->sets; set++)
                add_to_level(x, seq->state, l, j, kv, set, desk);
}

/* The labels of all new tokens of one sequence for one head, or for all. */
static void append_labels(const struct stepping *x, const struct step_seq *seq,
                          int64_t head, struct desk *desk)
{
    struct exact_own *own = seq->state->own[x->g];
    const foci_mech  *m = &x->stage->group->mech;

    for (int64_t t = 0; t < seq->tokens; t++) {
        const int64_t j = seq->state->len - seq->tokens + t;

        if (x->stage->order.label == FOCI_LABEL_PLACE) {
            for (int64_t r = 0; r < x->rounds; r++)
                labels_add(&own->maps[r], j, m->def->place(m, j));
            continue;
        }
        step_hash(x, head, key_row(x, seq, t, head / x->per_kv, head % x->per_kv),
                  &desk->hash);
        for (int64_t r = 0; r < x->rounds; r++)
            labels_add(&own->maps[head * x->rounds + r], j, desk->hash.label[r]);
    }
}

/* Slots that the new tokens finish have their place before any is written. */
static void extend_levels(const struct stepping *x, const struct step_seq *seq)
{
    struct exact_own *own = seq->state->own[x->g];

    for (int l = 0; l < x->stage->n_levels; l++)
        stream_extend(x->step->pool, &own->level[l],
                      slots_done(&x->stage->levels[l].slots, seq->state->len) -
                          own->level[l].rows);
}

/* Jobs of one sequence: the key/value heads that have slots, then the heads that have
 * labels of their own, or one for all. */
static int64_t slot_jobs(const struct stepping *x)
{
    return x->stage->n_levels ? x->kv_heads : 0;
}

static int64_t label_jobs(const struct stepping *x)
{
    if (!x->rounds) return 0;
    return x->stage->order.label == FOCI_LABEL_PLACE ? 1 : x->stage->group->heads;
}

static void append_all(const struct stepping *x, struct desk *desk)
{
    const struct step *step = x->step;
    const int64_t      slots = slot_jobs(x), jobs = slots + label_jobs(x);

#pragma omp for schedule(static)
    for (int64_t i = 0; i < x->stage->group->heads; i++)
        step_reach(x, i);
#pragma omp for schedule(static) collapse(2)
    for (int64_t i = 0; i < step->n_seqs; i++)
        for (int64_t t = 0; t < step->max_tokens; t++)
            if (t < step->seqs[i].tokens) append_token(x, &step->seqs[i], t, desk);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < step->n_seqs * jobs; i++) {
        const struct step_seq *seq = &step->seqs[i / jobs];
        if (i % jobs < slots)
            append_slots(x, seq, i % jobs, desk);
        else
            append_labels(x, seq, i % jobs - slots, desk);
    }
}

void exact_append(const struct step *step, int g)
{
    struct stepping x = step_geometry(step->pool->plan, g);
    const size_t    desk_bytes =
        exact_append_bytes(step->pool, g) / (size_t)x.plan->ctx->threads;
    int64_t rows = 0;

    x.step = step;
    for (int64_t i = 0; i < step->n_seqs; i++) {
        extend_levels(&x, &step->seqs[i]);
        rows += step->seqs[i].tokens;
    }
    const int threads = rows * (x.kv_heads + label_jobs(&x)) < MANY_ROWS
                            ? 1
                            : team_size(x.plan->ctx->threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena a = { .base = step->pool->scratch +
                                   (size_t)exact_thread() * desk_bytes };
        struct desk  desk = desk_take(&x, &a);

        append_all(&x, &desk);
    }
}
