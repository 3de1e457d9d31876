/* exact_step.c -- a step of decoding: pieces attend in parallel, then are merged. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

/* Find the labels of rows, and the number of keys they see, before they meet keys. */
static void label_and_count(const struct exact_step *x, int64_t i,
                            struct step_scratch *r)
{
    const struct step_piece p = { .b = &x->bundles[i / x->kv_heads],
                                  .kv = i % x->kv_heads };

    for (int row = 0; row < p.b->rows; row++) {
        if (x->rounds) step_label(x, &p, row, r);
        if (!x->counts) continue;
        int64_t n = step_count(x, p.b, position_of(x, p.b, row));
        if (x->rounds) n += step_label_count(x, &p, row, r);
        x->visible[row_index(x, &p, row)] = n;
    }
}

/* Which keys of tile t of a span each row of a bundle sees; false: none of them. */
static bool see_tile(const struct exact_step *x, const struct step_bundle *b, int level,
                     int64_t t, uint64_t there, uint64_t seen[BUNDLE])
{
    uint64_t some = 0;

    for (int i = 0; i < b->rows; i++) {
        const int64_t pos = position_of(x, b, i);
        const bool    again = i && pos == position_of(x, b, i - 1);
        seen[i] = again ? seen[i - 1] : step_seen(x, b, level, pos, t) & there;
        some |= seen[i];
    }
    return some != 0;
}

/* The heads of a job and tile t of a span, one after the other as they are in memory. */
static void attend_tile(const struct exact_step *x, const struct step_job *j,
                        struct step_scratch *r, int level, int64_t t)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = stream_of(x, j->b, level);
    const int64_t        page = stream_page(s, t);
    struct step_keys     m = { .n = (int)min64(PAGE, s->rows - t * PAGE),
                               .j0 = t * PAGE,
                               .slots = level >= 0 };
    const int            most = x->sets > 1 ? 1 : KERNEL_ROWS;
    uint64_t             seen[BUNDLE] = { 0 };

    if (page < 0 ||
        !see_tile(x, j->b, level, t, foci_bits_in((foci_range){ 0, m.n }, 0), seen))
        return;
    if (level >= 0 && x->e.stage->levels[level].slots.count_bias &&
        !x->e.stage->levels[level].slots.tail)
        m.count = (float)log((double)x->e.stage->levels[level].slots.run_len);
    for (int64_t h = 0; h < j->heads; h++) {
        const struct step_piece *p = &r->pieces[h];

        m.v = pool_values(pool, x->g, page, p->kv);
        for (int row = 0, rows; row < j->b->rows; row += rows) {
            uint64_t some = 0;

            rows = (int)min64(most, j->b->rows - row);
            for (int i = 0; i < rows; i++)
                some |= seen[row + i];
            if (!some) continue;
            m.k = pool_keys(pool, x->g, page, p->kv, set_of(x, p, row));
            step_attend(x, p, r, &m, row, rows, seen + row);
        }
    }
}

static void attend_tiles(const struct exact_step *x, const struct step_job *j,
                         struct step_scratch *r)
{
    const struct step_bundle *b = j->b;
    const int64_t             begin = j->part * b->per_part;
    const int64_t             end = min64(b->tiles, begin + b->per_part);
    int64_t                   at = 0;

    for (int i = 0; i < b->n_spans && at < end; i++) {
        const struct tile_span *s = &b->span[i];
        const int64_t           n = s->tiles.end - s->tiles.begin;

        for (int64_t u = max64(0, begin - at); u < min64(n, end - at); u++)
            attend_tile(x, j, r, s->level, s->tiles.begin + u);
        at += n;
    }
}

static void do_job(const struct exact_step *x, int64_t i, struct step_scratch *r)
{
    const struct step_job j = step_job_of(x, i);
    const bool            labels = x->rounds && j.part == j.b->parts - 1;

    for (int64_t h = 0; h < j.heads; h++) {
        struct step_piece *p = &r->pieces[h];

        p->b = j.b;
        p->kv = j.kv0 + h;
        p->sums = step_sums_of(x, j.b, p->kv, j.part);
        step_load(x, p, r);
        memset(p->sums.o, 0, (size_t)(x->bundle * x->ldo) * sizeof *p->sums.o);
        for (int row = 0; row < p->b->rows; row++) {
            p->sums.m[row] = -INFINITY;
            p->sums.l[row] = 0;
        }
        for (int row = 0; labels && row < p->b->rows; row++)
            step_label_attend(x, p, row, r);
    }
    if (!labels) attend_tiles(x, &j, r);
}

/* relu2 divides by a constant, or by the number of visible keys. */
static double share_of(const struct exact_step *x, const struct step_piece *p, int r)
{
    const foci_mech *m = p->b->mech;
    const double     n = m->def->divisor ? m->def->divisor(m) : 0;
    const int64_t    visible = x->visible[row_index(x, p, r)];

    return visible ? 1 / (n > 0 ? n : (double)visible) : 0;
}

/* Rescale the parts of a row to their largest reference, add them in order, and divide
 * by the normaliser. */
static void merge_row(const struct exact_step *x, const struct step_piece *p, int r,
                      float *o)
{
    const int64_t sink = x->e.score->sink;
    double        m = -INFINITY, l = 0, by;

    if (sink >= 0) m = (double)x->step->io->params[sink + head_of(x, p, r)] * LOG2_E;
    const double floor = m;
    for (int64_t t = 0; t < p->b->parts; t++)
        m = fmax(m, (double)step_sums_of(x, p->b, p->kv, t).m[r]);
    memset(o, 0, (size_t)x->ldo * sizeof *o);
    if (floor > -INFINITY) l = exp2(floor - m);
    for (int64_t t = 0; t < p->b->parts; t++) {
        const struct step_sums s = step_sums_of(x, p->b, p->kv, t);
        const double           far = (double)s.m[r] - m;
        if (x->e.kind != FOCI_WEIGH_RELU2 && s.m[r] == -INFINITY && s.l[r] == 0)
            continue;
        by = x->e.kind == FOCI_WEIGH_RELU2 ? 1 : exp2(far);
        l += (double)s.l[r] * (x->e.kind == FOCI_WEIGH_L2NORM ? by * by : by);
        for (int c = 0; c < x->e.d.v; c++)
            o[c] += (float)by * s.o[(int64_t)r * x->ldo + c];
    }
    by = l == 0 ? 0 : 1 / (x->e.kind == FOCI_WEIGH_L2NORM ? sqrt(l) : l);
    if (x->e.kind == FOCI_WEIGH_RELU2) by = share_of(x, p, r);
    for (int c = 0; c < x->e.d.v; c++)
        o[c] *= (float)by;
}

static void merge(const struct exact_step *x, int64_t i, struct step_scratch *r)
{
    const struct step_piece p = { .b = &x->bundles[i / x->kv_heads],
                                  .kv = i % x->kv_heads };

    for (int row = 0; row < p.b->rows; row++) {
        merge_row(x, &p, row, r->tile);
        x->e.k->store_rows(
            (char *)x->step->io->o + row_of(x, &p, row) * (size_t)x->e.d.v * x->el,
            x->e.d.v, (int)x->e.plan->p.dtype, r->tile, x->ldo, 1.0f, 1, x->e.d.v);
    }
}

/* All threads: the parts of bundles lo to hi, then their rows. */
static void do_wave(const struct exact_step *x, int64_t lo, int64_t hi,
                    struct step_scratch *r)
{
    const int64_t parts = x->bundles[hi - 1].first + x->bundles[hi - 1].parts;

#pragma omp for schedule(dynamic, 1)
    for (int64_t i = x->bundles[lo].first * step_jobs_of_part(x);
         i < parts * step_jobs_of_part(x); i++)
        do_job(x, i, r);
#pragma omp for schedule(dynamic, 4)
    for (int64_t i = lo * x->kv_heads; i < hi * x->kv_heads; i++)
        merge(x, i, r);
}

/* What each thread of the team does. */
static void work(const struct exact_step *x, struct step_scratch *r)
{
    struct thread_state before;

    if (x->e.k->begin) x->e.k->begin(&before);
    if (x->counts || x->rounds) {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < x->n_bundles * x->kv_heads; i++)
            label_and_count(x, i, r);
    }
    for (int64_t lo = 0, hi; lo < x->n_bundles; lo = hi) {
        hi = step_wave_end(x, lo);
        do_wave(x, lo, hi, r);
    }
    if (x->e.k->end) x->e.k->end(&before);
}

static void step_all(const struct state_step *step, int g, struct arena memory)
{
    struct exact_step x = step_geometry(step->pool->plan, g);

    x.step = step;
    step_cut(&x, memory);
    const int threads = step_threads(&x);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        struct step_scratch scratch = step_scratch_of(&x, exact_thread());

        work(&x, &scratch);
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
    .step_bytes = exact_step_bytes,
    .step = step_all,
    .drop = exact_state_drop,
};
