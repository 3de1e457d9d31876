/* exact_step.c -- a step of exact attention: its pieces, and their merging. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/exact_step.h"

/* Below this much to read, waking threads costs more than they save. */
static const int64_t alone_bytes = 256 << 10;

static struct queries queries_take(const struct stepping *x, struct arena *a)
{
    const struct score *s = x->score;
    const int64_t       n = x->bundle * x->ldq;

    return (struct queries){
        .q = arena_take(a, n, sizeof(float)),
        .words = arena_take(a, n / 2, sizeof(uint32_t)),
        .f = arena_take(a, x->bundle * LANES, sizeof(float)),
        .by_place = s->shaw_k >= 0 ? arena_take(a, n, sizeof(float)) : NULL,
        .by_distance = s->txl_r >= 0 ? arena_take(a, n, sizeof(float)) : NULL,
        .far = arena_take(a, x->bundle, sizeof(float)),
        .from = step_source_take(x, a),
    };
}

static struct room room_take(const struct stepping *x, struct arena *a)
{
    struct room r;

    r.pieces = arena_take(a, x->together, sizeof *r.pieces);
    for (int64_t i = 0; i < x->together; i++) {
        const struct queries rows = queries_take(x, a);
        if (r.pieces) r.pieces[i].rows = rows;
    }
    r.wide = arena_take(a, x->ld_given, sizeof *r.wide);
    r.s = arena_take(a, (int64_t)FEW * LANES, sizeof *r.s);
    r.bias = arena_take(a, LANES, sizeof *r.bias);
    r.near = arena_take(a, (int64_t)FEW * LANES, sizeof *r.near);
    r.tile = arena_take(a, (int64_t)PAGE * x->ldo, sizeof *r.tile);
    r.keys = arena_take(a, x->rounds ? (int64_t)PAGE * x->dq : 0, x->el);
    r.values = arena_take(a, x->rounds ? (int64_t)PAGE * x->dv : 0, x->el);
    r.chain = arena_take(a, x->rounds, sizeof *r.chain);
    r.hash = hash_take(x, a);
    return r;
}

static void take(struct stepping *x, int64_t n_seqs, int64_t tokens, int64_t n_bundles,
                 int64_t parts, struct arena *a)
{
    const size_t rows = (size_t)(x->kv_heads * x->bundle); /* of a bundle, of a part */
    struct arena one = { 0 };

    x->mechs = arena_take(a, n_seqs, sizeof *x->mechs);
    x->bundles = arena_take(a, n_bundles, sizeof *x->bundles);
    x->e.at.turns = arena_take(a, x->score->rope_base > 0 ? tokens * x->dq : 0,
                               sizeof *x->e.at.turns);
    x->visible = arena_take(a, x->counts ? n_bundles : 0, rows * sizeof *x->visible);
    x->labels = arena_take(a, n_bundles, rows * (size_t)x->rounds * sizeof *x->labels);
    x->wave = min64(parts, WAVE / x->bundle);
    x->sums = arena_take(a, x->wave, rows * (size_t)(x->ldo + 2) * sizeof *x->sums);
    room_take(x, &one);
    x->scratch_bytes = one.used;
    x->scratch = arena_take(a, x->plan->ctx->threads, one.used);
}

static int64_t bundle_rows(const struct stepping *x, int64_t max_tokens)
{
    return round_up(min64(BUNDLE, max64(max_tokens * x->per_kv, 1)), FEW);
}

/* Room for the rows of a bundle, and the heads that a job may have of it. */
static void size_jobs(struct stepping *x, int64_t rows)
{
    x->bundle = rows;
    x->together = max64(1, min64(x->kv_heads, TOGETHER / rows));
}

/* Tiles of a part; parts of so many tiles, that of labels included; and of as many at
 * the most. */
static int64_t per_part(int64_t tiles)
{
    return max64(PART, div_up(tiles, MOST_PARTS));
}

static int64_t parts_of(const struct stepping *x, int64_t tiles)
{
    return max64(!x->rounds, div_up(tiles, per_part(tiles))) + (x->rounds > 0);
}

static int64_t most_parts(const struct stepping *x, int64_t tiles)
{
    return 1 + min64(MOST_PARTS, div_up(tiles, PART)) + (x->rounds > 0);
}

/* At the most: every sequence as long as the longest, and every row but one of each in
 * a bundle of its own would still be fewer than rows / BUNDLE + sequences.  Tokens may be
 * all of one sequence or not, so bundles of fewer rows, with more heads together, have to
 * fit too. */
static size_t step_bytes(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len)
{
    struct stepping x = step_geometry(pool->plan, g);
    const int64_t   bundles = tokens * x.per_kv / BUNDLE + n_seqs;
    int64_t         tiles = div_up(max_len, PAGE);
    size_t          most = 0;

    for (int l = 0; l < x.stage->n_levels; l++)
        tiles += div_up(slots_done(&x.stage->levels[l].slots, max_len), PAGE);
    for (int64_t rows = FEW; rows <= bundle_rows(&x, tokens); rows += FEW) {
        struct arena a = { 0 };
        size_jobs(&x, rows);
        take(&x, n_seqs, tokens, bundles, bundles * most_parts(&x, tiles), &a);
        if (a.used > most) most = a.used;
    }
    return most;
}

/* The bundles of sequence i, with the tiles they need, and how its rows are turned. */
static void cut_seq(struct stepping *x, int64_t i)
{
    const struct step_seq *seq = &x->step->seqs[i];
    const int64_t          rows = seq->tokens * x->per_kv;

    /* Nothing causal depends on the length, but tiles may be listed up to it. */
    x->mechs[i] = x->stage->group->mech;
    x->mechs[i].dims.len = max64(x->mechs[i].dims.len, seq->state->len);
    for (int64_t t = 0; x->score->rope_base > 0 && t < seq->tokens; t++)
        step_turn(x, seq->state->len - seq->tokens + t,
                  x->e.at.turns + (seq->row0 + t) * x->dq);
    for (int64_t row0 = 0; row0 < rows; row0 += BUNDLE) {
        struct bundle *b = &x->bundles[x->n_bundles];

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

/* The bundle after the last one of the wave that begins with bundle i. */
static int64_t wave_end(const struct stepping *x, int64_t i)
{
    while (++i < x->n_bundles && x->bundles[i].slot > 0)
        continue;
    return i;
}

/* The bundle that part number i of all is of. */
static const struct bundle *bundle_of(const struct stepping *x, int64_t i)
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

/* The sums of a piece: of head kv in a part of a bundle. */
static struct sums sums_of(const struct stepping *x, const struct bundle *b, int64_t kv,
                           int64_t part)
{
    const int64_t i = b->slot * x->kv_heads + kv * b->parts + part;
    float        *at = x->sums + i * x->bundle * (x->ldo + 2);
    float        *m = at + x->bundle * x->ldo;

    return (struct sums){ m, m + x->bundle, at };
}

/* What is to be known of rows before they meet keys: their labels, and how many keys
 * they see. */
static void know(const struct stepping *x, int64_t i, struct room *r)
{
    const struct piece p = { .b = &x->bundles[i / x->kv_heads], .kv = i % x->kv_heads };

    for (int row = 0; row < p.b->rows; row++) {
        if (x->rounds) step_label(x, &p, row, r);
        if (!x->counts) continue;
        int64_t n = step_count(x, p.b, place_of(x, p.b, row));
        if (x->rounds) n += step_label_count(x, &p, row, r);
        x->visible[known_at(x, &p, row)] = n;
    }
}

/* A job: heads kv0 to kv0 + heads of a part. */
struct job {
    const struct bundle *b;
    int64_t              part, kv0, heads;
};

static int64_t jobs_of_part(const struct stepping *x)
{
    return div_up(x->kv_heads, x->together);
}

static struct job job_of(const struct stepping *x, int64_t i)
{
    const int64_t        of_part = jobs_of_part(x), at = i / of_part;
    const struct bundle *b = bundle_of(x, at);
    const int64_t        kv0 = i % of_part * x->together;

    return (struct job){ b, at - b->first, kv0, min64(x->together, x->kv_heads - kv0) };
}

/* What each row of a bundle sees of tile t of a span; false: none sees any of it. */
static bool see_tile(const struct stepping *x, const struct bundle *b, int level,
                     int64_t t, uint64_t there, uint64_t seen[BUNDLE])
{
    uint64_t some = 0;

    for (int i = 0; i < b->rows; i++) {
        const int64_t place = place_of(x, b, i);
        const bool    again = i && place == place_of(x, b, i - 1);
        seen[i] = again ? seen[i - 1] : step_seen(x, b, level, place, t) & there;
        some |= seen[i];
    }
    return some != 0;
}

/* The heads of a job against tile t of a span, one after the other as they lie. */
static void meet_tile(const struct stepping *x, const struct job *j, struct room *r,
                      int level, int64_t t)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = stream_of(x, j->b, level);
    const int64_t        page = stream_page(s, t);
    struct meeting       m = { .n = (int)min64(PAGE, s->rows - t * PAGE),
                               .j0 = t * PAGE,
                               .slots = level >= 0 };
    const int            most = x->sets > 1 ? 1 : FEW;
    uint64_t             seen[BUNDLE] = { 0 };

    if (page < 0 ||
        !see_tile(x, j->b, level, t, foci_bits_in((foci_range){ 0, m.n }, 0), seen))
        return;
    if (level >= 0 && x->stage->levels[level].slots.count_bias &&
        !x->stage->levels[level].slots.take)
        m.count = (float)log((double)x->stage->levels[level].slots.every);
    for (int64_t h = 0; h < j->heads; h++) {
        const struct piece *p = &r->pieces[h];

        m.v = pool_values(pool, x->g, page, p->kv);
        for (int row = 0, rows; row < j->b->rows; row += rows) {
            uint64_t some = 0;

            rows = (int)min64(most, j->b->rows - row);
            for (int i = 0; i < rows; i++)
                some |= seen[row + i];
            if (!some) continue;
            m.k = pool_keys(pool, x->g, page, p->kv, set_of(x, p, row));
            step_meet(x, p, r, &m, row, rows, seen + row);
        }
    }
}

static void meet_tiles(const struct stepping *x, const struct job *j, struct room *r)
{
    const struct bundle *b = j->b;
    const int64_t        begin = j->part * b->per_part;
    const int64_t        end = min64(b->tiles, begin + b->per_part);
    int64_t              at = 0;

    for (int i = 0; i < b->n_spans && at < end; i++) {
        const struct span *s = &b->span[i];
        const int64_t      n = s->tiles.end - s->tiles.begin;

        for (int64_t u = max64(0, begin - at); u < min64(n, end - at); u++)
            meet_tile(x, j, r, s->level, s->tiles.begin + u);
        at += n;
    }
}

static void do_job(const struct stepping *x, int64_t i, struct room *r)
{
    const struct job j = job_of(x, i);
    const bool       labels = x->rounds && j.part == j.b->parts - 1;

    for (int64_t h = 0; h < j.heads; h++) {
        struct piece *p = &r->pieces[h];

        p->b = j.b;
        p->kv = j.kv0 + h;
        p->sums = sums_of(x, j.b, p->kv, j.part);
        step_load(x, p, r);
        memset(p->sums.o, 0, (size_t)(x->bundle * x->ldo) * sizeof *p->sums.o);
        for (int row = 0; row < p->b->rows; row++) {
            p->sums.m[row] = -INFINITY;
            p->sums.l[row] = 0;
        }
        for (int row = 0; labels && row < p->b->rows; row++)
            step_label_meet(x, p, row, r);
    }
    if (!labels) meet_tiles(x, &j, r);
}

/* relu2 divides by a number, or by the keys seen. */
static double share_of(const struct stepping *x, const struct piece *p, int r)
{
    const foci_mech *m = p->b->mech;
    const double     n = m->def->count ? m->def->count(m) : 0;
    const int64_t    visible = x->visible[known_at(x, p, r)];

    return visible ? 1 / (n > 0 ? n : (double)visible) : 0;
}

/* Bring the parts of a row to their largest reference, add them up in order, and
 * divide by the normaliser. */
static void merge_row(const struct stepping *x, const struct piece *p, int r, float *o)
{
    const int64_t sink = x->score->sink;
    double        m = -INFINITY, l = 0, by;

    if (sink >= 0) m = (double)x->step->io->params[sink + head_of(x, p, r)] * LOG2_E;
    const double floor = m;
    for (int64_t t = 0; t < p->b->parts; t++)
        m = fmax(m, (double)sums_of(x, p->b, p->kv, t).m[r]);
    memset(o, 0, (size_t)x->ldo * sizeof *o);
    if (floor > -INFINITY) l = exp2(floor - m);
    for (int64_t t = 0; t < p->b->parts; t++) {
        const struct sums s = sums_of(x, p->b, p->kv, t);
        const double      far = (double)s.m[r] - m;
        if (x->kind != FOCI_RELU2 && s.m[r] == -INFINITY && s.l[r] == 0) continue;
        by = x->kind == FOCI_RELU2 ? 1 : exp2(far);
        l += (double)s.l[r] * (x->kind == FOCI_L2NORM ? by * by : by);
        for (int c = 0; c < x->dv; c++)
            o[c] += (float)by * s.o[(int64_t)r * x->ldo + c];
    }
    by = l == 0 ? 0 : 1 / (x->kind == FOCI_L2NORM ? sqrt(l) : l);
    if (x->kind == FOCI_RELU2) by = share_of(x, p, r);
    for (int c = 0; c < x->dv; c++)
        o[c] *= (float)by;
}

static void merge(const struct stepping *x, int64_t i, struct room *r)
{
    const struct piece p = { .b = &x->bundles[i / x->kv_heads], .kv = i % x->kv_heads };

    for (int row = 0; row < p.b->rows; row++) {
        merge_row(x, &p, row, r->tile);
        x->k->store_rows((char *)x->step->io->o +
                             row_of(x, &p, row) * (size_t)x->dv * x->el,
                         x->dv, (int)x->plan->p.dtype, r->tile, x->ldo, 1.0f, 1, x->dv);
    }
}

/* What there is to read, to decide whether threads are worth it. */
static int64_t bytes_to_read(const struct stepping *x)
{
    const int64_t page = (int64_t)x->step->pool->parts[x->g].head_bytes;
    int64_t       bytes = 0;

    for (int64_t i = 0; i < x->n_bundles; i++) {
        const struct bundle *b = &x->bundles[i];
        bytes += b->tiles * page * x->kv_heads;
        if (!x->rounds) continue;
        const struct label_map *m = &own_of(x, b)->maps[0];
        bytes += b->rows * x->kv_heads * x->rounds *
                 (b->seq->state->len / max64(1, m->n_labels)) * (page / PAGE);
    }
    return bytes;
}

/* Parts there will be, at the most: sequences are cut once there is room. */
static int64_t count_parts(const struct stepping *x, int64_t *tokens, int64_t *bundles)
{
    int64_t parts = 0;

    *tokens = *bundles = 0;
    for (int64_t i = 0; i < x->step->n_seqs; i++) {
        const struct step_seq *seq = &x->step->seqs[i];
        const int64_t          n = div_up(seq->tokens * x->per_kv, BUNDLE);
        int64_t                tiles = div_up(seq->state->len, PAGE);

        for (int l = 0; l < x->stage->n_levels; l++)
            tiles +=
                div_up(slots_done(&x->stage->levels[l].slots, seq->state->len), PAGE);
        *tokens += seq->tokens;
        *bundles += n;
        parts += n * most_parts(x, tiles);
    }
    return parts;
}

/* As many heads together as leave every thread a few jobs. */
static void share_heads(struct stepping *x, int threads)
{
    enum { EACH = 4 };

    while (threads > 1 && x->together > 1 &&
           min64(x->parts, x->wave) * jobs_of_part(x) < (int64_t)EACH * threads)
        x->together = div_up(x->together, 2);
}

/* All threads together: the parts of bundles lo to hi, and then their rows. */
static void do_wave(const struct stepping *x, int64_t lo, int64_t hi, struct room *r)
{
    const int64_t parts = x->bundles[hi - 1].first + x->bundles[hi - 1].parts;

#pragma omp for schedule(dynamic, 1)
    for (int64_t i = x->bundles[lo].first * jobs_of_part(x);
         i < parts * jobs_of_part(x); i++)
        do_job(x, i, r);
#pragma omp for schedule(dynamic, 4)
    for (int64_t i = lo * x->kv_heads; i < hi * x->kv_heads; i++)
        merge(x, i, r);
}

static void step_all(const struct step *step, int g, struct arena work)
{
    struct stepping x = step_geometry(step->pool->plan, g);
    int64_t         tokens, bundles;

    x.step = step;
    size_jobs(&x, bundle_rows(&x, step->max_tokens));
    const int64_t parts = count_parts(&x, &tokens, &bundles);
    take(&x, step->n_seqs, tokens, bundles, parts, &work);
    for (int64_t i = 0; i < step->n_seqs; i++)
        cut_seq(&x, i);

    const int threads =
        bytes_to_read(&x) < alone_bytes ? 1 : team_size(x.plan->ctx->threads);
    share_heads(&x, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct arena        mine = { .base = x.scratch +
                                             (size_t)exact_thread() * x.scratch_bytes };
        struct room         room = room_take(&x, &mine);
        struct thread_state before;

        if (x.k->begin) x.k->begin(&before);
        if (x.counts || x.rounds) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t i = 0; i < x.n_bundles * x.kv_heads; i++)
                know(&x, i, &room);
        }
        for (int64_t lo = 0, hi; lo < x.n_bundles; lo = hi) {
            hi = wave_end(&x, lo);
            do_wave(&x, lo, hi, &room);
        }
        if (x.k->end) x.k->end(&before);
    }
}

const struct decoder exact_decoder = {
    .paged = true,
    .pool_make = exact_pool_make,
    .pool_free = exact_pool_free,
    .make = exact_state_make,
    .copy = exact_state_copy,
    .free = exact_state_free,
    .bytes = exact_state_bytes,
    .save = exact_state_save,
    .restore = exact_state_restore,
    .truncate = exact_state_truncate,
    .check = exact_state_check,
    .reserve = exact_state_reserve,
    .append_bytes = exact_append_bytes,
    .append = exact_append,
    .step_bytes = step_bytes,
    .step = step_all,
    .drop = exact_state_drop,
};
