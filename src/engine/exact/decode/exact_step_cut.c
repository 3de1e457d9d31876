/* exact_step_cut.c -- how a step is cut into bundles, parts and jobs, and its memory. */
#include "engine/exact/decode/exact_step.h"

/* Below this much to read, waking threads costs more than they save. */
static const int64_t alone_bytes = 256 << 10;

static struct step_queries queries_carve(const struct exact_step *x, struct arena *a)
{
    const struct score *s = x->e.score;
    const int64_t       n = x->bundle * x->e.d.ldq;

    return (struct step_queries){
        .q = arena_alloc(a, n, sizeof(float)),
        .pairs = arena_alloc(a, n / 2, sizeof(uint32_t)),
        .f = arena_alloc(a, x->bundle * LANES, sizeof(float)),
        .by_place = s->shaw_k >= 0 ? arena_alloc(a, n, sizeof(float)) : NULL,
        .by_distance = s->txl_r >= 0 ? arena_alloc(a, n, sizeof(float)) : NULL,
        .far = arena_alloc(a, x->bundle, sizeof(float)),
        .source = step_source_scratch(x, a),
    };
}

static struct step_scratch step_scratch_carve(const struct exact_step *x,
                                              struct arena            *a)
{
    struct step_scratch r;

    r.pieces = arena_alloc(a, x->job_heads, sizeof *r.pieces);
    for (int64_t i = 0; i < x->job_heads; i++) {
        const struct step_queries rows = queries_carve(x, a);
        if (r.pieces) r.pieces[i].rows = rows;
    }
    r.input = arena_alloc(a, x->e.d.ld_in, sizeof *r.input);
    r.s = arena_alloc(a, (int64_t)KERNEL_ROWS * LANES, sizeof *r.s);
    r.bias = arena_alloc(a, LANES, sizeof *r.bias);
    r.near = arena_alloc(a, (int64_t)KERNEL_ROWS * LANES, sizeof *r.near);
    r.tile = arena_alloc(a, (int64_t)PAGE * x->ldo, sizeof *r.tile);
    r.keys = arena_alloc(a, x->rounds ? (int64_t)PAGE * x->e.d.q : 0, x->el);
    r.values = arena_alloc(a, x->rounds ? (int64_t)PAGE * x->e.d.v : 0, x->el);
    r.chain = arena_alloc(a, x->rounds, sizeof *r.chain);
    r.hash = hash_scratch(x, a);
    return r;
}

static void exact_step_cut_carve(struct exact_step *x, int64_t n_seqs, int64_t tokens,
                                 int64_t n_bundles, int64_t parts, struct arena *a)
{
    const size_t rows = (size_t)(x->kv_heads * x->bundle); /* of a bundle, of a part */
    struct arena one = { 0 };

    x->mechs = arena_alloc(a, n_seqs, sizeof *x->mechs);
    x->bundles = arena_alloc(a, n_bundles, sizeof *x->bundles);
    x->e.position.cos_sin =
        arena_alloc(a, x->e.score->rope_base > 0 ? tokens * x->e.d.q : 0,
                    sizeof *x->e.position.cos_sin);
    x->visible = arena_alloc(a, x->counts ? n_bundles : 0, rows * sizeof *x->visible);
    x->labels = arena_alloc(a, n_bundles, rows * (size_t)x->rounds * sizeof *x->labels);
    x->wave = min64(parts, WAVE / x->bundle);
    x->sums = arena_alloc(a, x->wave, rows * (size_t)(x->ldo + 2) * sizeof *x->sums);
    step_scratch_carve(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_alloc(a, x->e.plan->ctx->threads, one.used);
}

static int64_t bundle_rows(const struct exact_step *x, int64_t max_tokens)
{
    return round_up(min64(BUNDLE, max64(max_tokens * x->per_kv, 1)), KERNEL_ROWS);
}

/* Set the rows of a bundle, and how many heads a job may have. */
static void size_jobs(struct exact_step *x, int64_t rows)
{
    x->bundle = rows;
    x->job_heads = max64(1, min64(x->kv_heads, JOB_ROWS / rows));
}

/* Tiles of a part; parts of so many tiles, including that of labels; and their maximum. */
static int64_t per_part(int64_t tiles)
{
    return max64(MIN_PART, div_up(tiles, MAX_PARTS));
}

static int64_t parts_of(const struct exact_step *x, int64_t tiles)
{
    return max64(!x->rounds, div_up(tiles, per_part(tiles))) + (x->rounds > 0);
}

static int64_t most_parts(const struct exact_step *x, int64_t tiles)
{
    return 1 + min64(MAX_PARTS, div_up(tiles, MIN_PART)) + (x->rounds > 0);
}

/* An upper bound: every sequence is as long as the longest.  If all rows but one of
 * each sequence were in bundles of their own, there would still be fewer than rows /
 * BUNDLE + sequences.  Tokens may all be of one sequence or not, so bundles of fewer
 * rows, with more heads in a job, must fit too. */
size_t exact_step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                        int64_t max_len)
{
    struct exact_step x = step_geometry(pool->plan, g);
    const int64_t     bundles = tokens * x.per_kv / BUNDLE + n_seqs;
    int64_t           tiles = div_up(max_len, PAGE);
    size_t            most = 0;

    for (int l = 0; l < x.e.stage->n_levels; l++)
        tiles += div_up(slots_done(&x.e.stage->levels[l].slots, max_len), PAGE);
    for (int64_t rows = KERNEL_ROWS; rows <= bundle_rows(&x, tokens);
         rows += KERNEL_ROWS) {
        struct arena a = { 0 };
        size_jobs(&x, rows);
        exact_step_cut_carve(&x, n_seqs, tokens, bundles,
                             bundles * most_parts(&x, tiles), &a);
        if (a.used > most) most = a.used;
    }
    return most;
}

/* Make the bundles of sequence i, with the tiles they need, and the rotations of its
 * rows. */
static void cut_seq(struct exact_step *x, int64_t i)
{
    const struct step_seq *seq = &x->step->seqs[i];
    const int64_t          rows = seq->tokens * x->per_kv;

    /* Nothing causal depends on the length, but tiles may be listed up to it. */
    x->mechs[i] = x->e.stage->group->mech;
    x->mechs[i].dims.len = max64(x->mechs[i].dims.len, seq->state->len);
    for (int64_t t = 0; x->e.score->rope_base > 0 && t < seq->tokens; t++)
        step_cos_sin(x, seq->state->len - seq->tokens + t,
                     x->e.position.cos_sin + (seq->row0 + t) * x->e.d.q);
    for (int64_t row0 = 0; row0 < rows; row0 += BUNDLE) {
        struct step_bundle *b = &x->bundles[x->n_bundles];

        b->seq = seq;
        b->mech = &x->mechs[i];
        b->row0 = row0;
        b->rows = (int)min64(BUNDLE, rows - row0);
        b->n_spans = 0;
        b->tiles = 0;
        step_spans(x, b);
        b->per_part = per_part(b->tiles);
        b->parts = parts_of(x, b->tiles);
        b->at = x->n_bundles++;
        b->first = x->parts;
        b->slot = x->in_wave + b->parts > x->wave ? 0 : x->in_wave;
        x->in_wave = b->slot + b->parts;
        x->parts += b->parts;
    }
}

int64_t step_wave_end(const struct exact_step *x, int64_t i)
{
    while (++i < x->n_bundles && x->bundles[i].slot > 0)
        continue;
    return i;
}

/* The bundle of part number i of all. */
static const struct step_bundle *bundle_of(const struct exact_step *x, int64_t i)
{
    int64_t lo = 0, hi = x->n_bundles - 1;

    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;
        if (x->bundles[mid].first <= i)
            lo = mid;
        else
            hi = mid - 1;
    }
    return &x->bundles[lo];
}

struct step_sums step_sums_of(const struct exact_step *x, const struct step_bundle *b,
                              int64_t kv, int64_t part)
{
    const int64_t i = b->slot * x->kv_heads + kv * b->parts + part;
    float        *at = x->sums + i * x->bundle * (x->ldo + 2);
    float        *m = at + x->bundle * x->ldo;

    return (struct step_sums){ m, m + x->bundle, at };
}

int64_t step_jobs_of_part(const struct exact_step *x)
{
    return div_up(x->kv_heads, x->job_heads);
}

struct step_job step_job_of(const struct exact_step *x, int64_t i)
{
    const int64_t             of_part = step_jobs_of_part(x), at = i / of_part;
    const struct step_bundle *b = bundle_of(x, at);
    const int64_t             kv0 = i % of_part * x->job_heads;

    return (struct step_job){ b, at - b->first, kv0,
                              min64(x->job_heads, x->kv_heads - kv0) };
}

/* Bytes of keys and values that the step reads. */
static int64_t bytes_to_read(const struct exact_step *x)
{
    const int64_t page = (int64_t)x->step->pool->parts[x->g].head_bytes;
    int64_t       bytes = 0;

    for (int64_t i = 0; i < x->n_bundles; i++) {
        const struct step_bundle *b = &x->bundles[i];
        bytes += b->tiles * page * x->kv_heads;
        if (!x->rounds) continue;
        const struct label_map *m = &state_of(x, b)->maps[0];
        bytes += b->rows * x->kv_heads * x->rounds *
                 (b->seq->state->len / max64(1, m->n_labels)) * (page / PAGE);
    }
    return bytes;
}

/* An upper bound of the parts: sequences are cut once there is memory for it. */
static int64_t count_parts(const struct exact_step *x, int64_t *tokens, int64_t *bundles)
{
    int64_t parts = 0;

    *tokens = *bundles = 0;
    for (int64_t i = 0; i < x->step->n_seqs; i++) {
        const struct step_seq *seq = &x->step->seqs[i];
        const int64_t          n = div_up(seq->tokens * x->per_kv, BUNDLE);
        int64_t                tiles = div_up(seq->state->len, PAGE);

        for (int l = 0; l < x->e.stage->n_levels; l++)
            tiles +=
                div_up(slots_done(&x->e.stage->levels[l].slots, seq->state->len), PAGE);
        *tokens += seq->tokens;
        *bundles += n;
        parts += n * most_parts(x, tiles);
    }
    return parts;
}

/* As many heads in a job as leave every thread a few jobs. */
static void share_heads(struct exact_step *x, int threads)
{
    enum { EACH = 4 };

    while (threads > 1 && x->job_heads > 1 &&
           min64(x->parts, x->wave) * step_jobs_of_part(x) < (int64_t)EACH * threads)
        x->job_heads = div_up(x->job_heads, 2);
}

void step_cut(struct exact_step *x, struct arena work)
{
    int64_t tokens, bundles;

    size_jobs(x, bundle_rows(x, x->step->max_tokens));
    const int64_t parts = count_parts(x, &tokens, &bundles);
    exact_step_cut_carve(x, x->step->n_seqs, tokens, bundles, parts, &work);
    for (int64_t i = 0; i < x->step->n_seqs; i++)
        cut_seq(x, i);
    assert(x->n_bundles <= bundles && x->parts <= parts);
}

int step_threads(struct exact_step *x)
{
    const int threads =
        bytes_to_read(x) < alone_bytes ? 1 : team_size(x->e.plan->ctx->threads);

    share_heads(x, threads);
    return threads;
}

struct step_scratch step_scratch_of(const struct exact_step *x, int thread)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };

    return step_scratch_carve(x, &mine);
}
