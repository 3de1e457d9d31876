/* positional.c -- the positional engine: geometry, rows in and out, sizes, cost. */
#include "engine/positional.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Results of so many bytes leave the caches before anybody reads them. */
static const double far_bytes = 0x1p25;

foci_positional positional_what(const struct positional *x, int64_t h)
{
    const foci_mech *m = &x->stage->group->mech;
    foci_positional  p = { 0 };

    m->def->positional(m, h, &p);
    return p;
}

void positional_geometry(struct positional *x, const foci_plan *plan,
                         const struct stage *s)
{
    const foci_problem *p = &plan->p;

    *x = (struct positional){
        .plan = plan,
        .p = p,
        .stage = s,
        .k = &plan->ctx->kernels,
        .dv = (int)p->dim_v,
        .ldv = (int)round_up(p->dim_v, 16),
        .ldx = (int)round_up(p->dim_x, 16),
        .el = foci_dtype_bytes(p->dtype),
        .heads = s->group->heads,
        .head0 = s->group->head0,
        .kv_heads = s->group->kv_heads,
        .kv0 = s->group->kv0,
        .per_kv = s->group->heads / s->group->kv_heads,
        .max_seqs = plan_max_seqs(plan),
        .causal = p->flags & FOCI_CAUSAL,
    };
    x->kind = positional_what(x, 0);
    x->streams = (double)p->batch * (double)p->len_q * (double)x->heads * x->dv *
                     (double)x->el >=
                 far_bytes;
}

void positional_room(const struct positional *x, struct arena *a,
                     struct positional_room *r)
{
    const int64_t tile = max64((int64_t)ROWS * x->ldv, TILE_FLOATS);

    r->tile = arena_take(a, tile, sizeof *r->tile);
    r->more = arena_take(a, tile, sizeof *r->more);
    r->state = arena_take(a, 4 * max64(x->ldv, COLUMNS), sizeof *r->state);
    r->part = arena_take(a, x->ldv, sizeof *r->part);
    r->base = arena_take(a, x->ldv, sizeof *r->base);
    r->factor = arena_take(a, ROWS, sizeof *r->factor);
    r->cubes = arena_take(a, div_up(ROWS, CUBE_ROWS), sizeof *r->cubes);
    taps_room(x, a, r);
}

void positional_room_of(const struct positional *x, int thread,
                        struct positional_room *r)
{
    struct arena mine = { .base = x->scratch + (size_t)thread * x->scratch_bytes };
    positional_room(x, &mine, r);
}

/* How many heads one thread walks side by side, which is how their rows lie: as many as
 * leave every thread its share.  Results do not depend on it. */
static int64_t abreast(const struct positional *x)
{
    const int64_t share = x->heads * x->n_seqs / x->plan->ctx->threads;

    if (x->per_kv > 1) return 1;
    return max64(1, min64(x->heads, share));
}

/* Everything an execution needs; on a null arena only sizes. */
static void open_work(struct positional *x, const foci_io *io, bool backward,
                      struct arena *a)
{
    struct arena           one = { 0 };
    struct positional_room room;

    x->io = io;
    x->seqs = arena_take(a, x->max_seqs, sizeof *x->seqs);
    if (backward && x->per_kv > 1)
        x->dv_rows = arena_take(a, x->kv_heads * x->p->batch * x->p->len_k,
                                (size_t)x->ldv * sizeof *x->dv_rows);
    taps_take(x, backward, a);
    positional_room(x, &one, &room);
    x->scratch_bytes = (one.used + 63) / 64 * 64;
    x->scratch = arena_take(a, x->plan->ctx->threads, x->scratch_bytes);
    if (!a->base) return;
    x->n_seqs = plan_seqs(x->plan, io, x->seqs);
    x->abreast = abreast(x);
}

/*
 * Rows
 */

static size_t row_at(const struct positional *x, const foci_layout *l,
                     const struct place *at, int64_t row, int64_t head)
{
    return (size_t)(at->s->b * l->batch + row * l->row + head * l->head + at->column) *
           x->el;
}

const char *positional_v_at(const struct positional *x, const struct place *at,
                            int64_t i)
{
    return (const char *)x->io->v +
           row_at(x, &x->p->v, at, at->s->k0 + i, x->kv0 + at->kv);
}

const char *positional_g_at(const struct positional *x, const struct place *at,
                            int64_t i)
{
    return (const char *)x->g->d_o +
           row_at(x, &x->p->o, at, at->s->q0 + i, x->head0 + at->h);
}

char *positional_o_at(const struct positional *x, const struct place *at, int64_t i)
{
    return (char *)x->io->o + row_at(x, &x->p->o, at, at->s->q0 + i, x->head0 + at->h);
}

char *positional_dv_at(const struct positional *x, const struct place *at, int64_t i)
{
    return (char *)x->g->dv + row_at(x, &x->p->v, at, at->s->k0 + i, x->kv0 + at->kv);
}

void positional_load_v(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile)
{
    x->k->load_rows(tile, at->ld, positional_v_at(x, at, i), x->p->v.row,
                    (int)x->p->dtype, n, at->width);
}

void positional_load_g(const struct positional *x, const struct place *at, int64_t i,
                       int n, float *tile)
{
    x->k->load_rows(tile, at->ld, positional_g_at(x, at, i), x->p->o.row,
                    (int)x->p->dtype, n, at->width);
}

/* Whether rows of tensors can be read by kernels of floats as they are. */
static bool in_place(const struct positional *x, const struct place *at)
{
    return x->p->dtype == FOCI_F32 && at->width == at->ld;
}

static struct rows rows_at(const struct positional *x, const struct place *at,
                           const char *from, const foci_layout *l, int n, int ahead,
                           float *tile)
{
    if (in_place(x, at))
        return (struct rows){ (const float *)(const void *)from, l->row };
    x->k->fetch_rows(tile, at->ld, from, l->row, (int)x->p->dtype, n, at->width, ahead);
    return (struct rows){ tile, at->ld };
}

struct rows positional_v(const struct positional *x, const struct place *at, int64_t i,
                         int n, int ahead, float *tile)
{
    return rows_at(x, at, positional_v_at(x, at, i), &x->p->v, n, ahead, tile);
}

struct rows positional_g(const struct positional *x, const struct place *at, int64_t i,
                         int n, int ahead, float *tile)
{
    return rows_at(x, at, positional_g_at(x, at, i), &x->p->o, n, ahead, tile);
}

static void put(const struct positional *x, const struct place *at, char *to,
                const foci_layout *l, int n, struct rows from)
{
    if (x->streams)
        x->k->stream_rows(to, l->row, (int)x->p->dtype, from.at, from.ld, n, at->width);
    else
        x->k->store_rows(to, l->row, (int)x->p->dtype, from.at, from.ld, 1.0f, n,
                         at->width);
}

/* Rows as they are, whatever their elements. */
static void copy(const struct positional *x, const struct place *at, char *to,
                 const foci_layout *lo, const char *from, const foci_layout *li, int n)
{
    const int64_t el = (int64_t)x->el;
    const size_t  bytes = (size_t)at->width * x->el;

    if (x->streams) {
        x->k->copy_rows(to, lo->row * el, from, li->row * el, n, (int)bytes);
        return;
    }
    for (int i = 0; i < n; i++)
        memcpy(to + i * lo->row * el, from + i * li->row * el, bytes);
}

void positional_put_o(const struct positional *x, const struct place *at, int64_t i,
                      int n, struct rows from)
{
    put(x, at, positional_o_at(x, at, i), &x->p->o, n, from);
}

void positional_copy_o(const struct positional *x, const struct place *at, int64_t from,
                       int64_t to, int n)
{
    copy(x, at, positional_o_at(x, at, to), &x->p->o, positional_v_at(x, at, from),
         &x->p->v, n);
}

void positional_store_o(const struct positional *x, const struct place *at, int64_t i,
                        int n, const float *tile)
{
    positional_put_o(x, at, i, n, (struct rows){ tile, at->ld });
}

static float *shared_row(const struct positional *x, const struct place *at, int64_t i)
{
    const int64_t rows = x->p->batch * x->p->len_k;
    return x->dv_rows +
           (at->kv * rows + at->s->b * x->p->len_k + at->s->k0 + i) * x->ldv;
}

static void add_shared(const struct positional *x, const struct place *at, int64_t i,
                       int n, struct rows from)
{
    for (int64_t t = 0; t < n; t++) {
        float *to = shared_row(x, at, i + t) + at->column;
        for (int c = 0; c < at->width; c++)
            to[c] = from.at[t * from.ld + c] + (at->first ? 0 : to[c]);
    }
}

bool positional_copy_dv(const struct positional *x, const struct place *at,
                        int64_t from, int64_t to, int n)
{
    if (!x->g->dv || x->dv_rows) return false;
    copy(x, at, positional_dv_at(x, at, to), &x->p->v, positional_g_at(x, at, from),
         &x->p->o, n);
    return true;
}

void positional_put_dv(const struct positional *x, const struct place *at, int64_t i,
                       int n, struct rows from)
{
    if (!x->g->dv) return;
    if (x->dv_rows) {
        add_shared(x, at, i, n, from);
        return;
    }
    put(x, at, positional_dv_at(x, at, i), &x->p->v, n, from);
}

void positional_store_dv(const struct positional *x, const struct place *at, int64_t i,
                         int n, const float *tile)
{
    positional_put_dv(x, at, i, n, (struct rows){ tile, at->ld });
}

/*
 * Passes
 */

static struct place place_of(const struct positional *x, int64_t seq, int64_t h)
{
    return (struct place){ .s = &x->seqs[seq],
                           .what = positional_what(x, h),
                           .h = h,
                           .kv = h / x->per_kv,
                           .first = h % x->per_kv == 0,
                           .width = x->dv,
                           .ld = x->ldv,
                           .rows = ROWS };
}

struct place positional_beside(const struct positional *x, const struct place *at,
                               int64_t n)
{
    return n ? place_of(x, at->s - x->seqs, at->h + n) : *at;
}

/* Whether rows of heads follow one another in both tensors, without padding. */
static bool adjacent(const struct positional *x)
{
    return x->p->v.head == x->dv && x->p->o.head == x->dv && x->dv == x->ldv &&
           x->per_kv == 1;
}

/* The heads from that of `at` on, below end, that can go with it: their number. */
static int64_t widen(const struct positional *x, struct place *at, int64_t end)
{
    int64_t n = 1;

    if (!adjacent(x) || at->what.words) return 1;
    while (at->h + n < end && (n + 1) * x->dv <= COLUMNS &&
           positional_what(x, at->h + n).pattern == at->what.pattern)
        n++;
    at->width = at->ld = (int)(n * x->dv);
    at->rows = (int)min64(ROWS, TILE_FLOATS / at->ld);
    return n;
}

static void forward_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const int64_t            jobs = div_up(x->heads, x->abreast);
    const int64_t            seq = i / jobs, h0 = i % jobs * x->abreast;
    const int64_t            end = min64(h0 + x->abreast, x->heads);
    struct positional_room   room;

    positional_room_of(x, thread, &room);
    if (!x->seqs[seq].nq) return;
    for (int64_t h = h0; h < end;) {
        struct place at = place_of(x, seq, h);

        if (positional_is_taps(&at.what)) {
            taps_forward(x, &at, end - h, &room);
            break;
        }
        h += widen(x, &at, end);
        if (at.what.words)
            words_forward(x, &at, &room);
        else
            scan_forward(x, &at, &room);
    }
    x->k->stream_end();
}

static void run(struct positional *x, int64_t                         jobs,
                void (*job)(void *arg, int64_t i, int thread), double flops)
{
    phases_run(x->k, x->plan->shared, jobs_threads(x->plan->ctx->threads, jobs, flops),
               &(struct phase){ jobs, 1, job, x }, 1);
}

static void forward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                    float *saved)
{
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    if (!x.max_seqs) return;
    open_work(&x, io, false, &a);
    rest_clear(plan, io, io->o, &x.p->o, x.head0, x.heads, x.dv, true, false);
    run(&x, x.n_seqs * div_up(x.heads, x.abreast), forward_job,
        plan->cost.forward_flops);
}

/* Leading keys that take no gradient; and sums over heads to where they go. */
static void finish_dv(const struct positional *x, int64_t seq, int64_t kv,
                      struct positional_room *r)
{
    struct place      at = place_of(x, seq, kv * x->per_kv);
    const int64_t     held = min64(x->stage->memory, at.s->nk);
    struct positional plain = *x;

    plain.dv_rows = NULL;
    for (int64_t i = 0; x->dv_rows && i < at.s->nk; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, at.s->nk - i),
                            shared_row(x, &at, i));
    memset(r->tile, 0, (size_t)ROWS * (size_t)x->ldv * sizeof *r->tile);
    for (int64_t i = 0; i < held; i += ROWS)
        positional_store_dv(&plain, &at, i, (int)min64(ROWS, held - i), r->tile);
}

static void heads_back(const struct positional *x, int64_t seq, int64_t h0, int64_t end,
                       struct positional_room *r)
{
    for (int64_t h = h0; h < end;) {
        struct place at = place_of(x, seq, h);

        if (positional_is_taps(&at.what)) {
            taps_backward(x, &at, end - h, r);
            break;
        }
        h += widen(x, &at, end);
        if (at.what.words)
            words_backward(x, &at, r);
        else
            scan_backward(x, &at, r);
    }
}

static void backward_job(void *arg, int64_t i, int thread)
{
    const struct positional *x = arg;
    const int64_t            jobs = div_up(x->kv_heads, x->abreast);
    const int64_t            seq = i / jobs, kv0 = i % jobs * x->abreast;
    const int64_t            end = min64(kv0 + x->abreast, x->kv_heads);
    struct positional_room   room;

    positional_room_of(x, thread, &room);
    if (!x->seqs[seq].nk) return;
    heads_back(x, seq, kv0 * x->per_kv, end * x->per_kv, &room);
    x->k->stream_end();
    for (int64_t kv = kv0; kv < end; kv++)
        finish_dv(x, seq, kv, &room);
    x->k->stream_end();
}

static void backward(const foci_plan *plan, const struct stage *s, const foci_io *io,
                     const float *saved, const foci_grads *g)
{
    struct positional x;
    struct arena      a = { .base = io->work };

    (void)saved;
    positional_geometry(&x, plan, s);
    rest_clear(plan, io, g->dq, &x.p->q, x.head0, x.heads, x.p->dim_qk, true, true);
    rest_clear(plan, io, g->dk, &x.p->k, x.kv0, x.kv_heads, x.p->dim_qk, false, true);
    if (!x.max_seqs || !(g->dv || positional_is_taps(&x.kind))) return;
    open_work(&x, io, true, &a);
    x.g = g;
    rest_clear(plan, io, g->dv, &x.p->v, x.kv0, x.kv_heads, x.dv, false, false);
    run(&x, x.n_seqs * div_up(x.kv_heads, x.abreast), backward_job,
        plan->cost.backward_flops);
    if (positional_is_taps(&x.kind)) taps_finish(&x);
}

/*
 * Planning
 */

static size_t work_bytes(const foci_plan *plan, const struct stage *s)
{
    struct positional x;
    struct arena      a = { 0 };

    positional_geometry(&x, plan, s);
    open_work(&x, NULL, plan->p.flags & FOCI_TRAIN, &a);
    return a.used;
}

static int64_t saved_floats(const foci_plan *plan, const struct stage *s)
{
    (void)plan;
    (void)s;
    return 0;
}

/* Words of a sequence start at 0 and go up by one at most. */
static foci_status check_words(const foci_plan *plan, const struct stage *s,
                               const foci_io *io, char *text, size_t cap)
{
    const foci_problem *p = &plan->p;

    if (!(mech_reads(&s->group->mech) & FOCI_READ_WORDS)) return FOCI_OK;
    for (int64_t b = 0; b < (io->docs ? io->n_docs : p->batch); b++) {
        const int64_t from = io->docs ? io->docs[b] : b * p->len_q;
        const int64_t n = io->docs    ? io->docs[b + 1] - from
                          : io->len_q ? io->len_q[b]
                                      : p->len_q;

        for (int64_t i = 0; i < n; i++) {
            const int64_t word = io->words[from + i];
            const int64_t before = i ? io->words[from + i - 1] : 0;

            if (word == before || (i && word == before + 1)) continue;
            snprintf(text, cap,
                     "words: token %" PRId64 " of sequence %" PRId64
                     " is in word %" PRId64
                     "%s: words are numbered from 0, each token in the same as the one "
                     "before or in the next",
                     i, b, word, i ? " after another" : "");
            return FOCI_ERR_ARG;
        }
    }
    return FOCI_OK;
}

static foci_status check(const foci_plan *plan, const struct stage *s,
                         const foci_io *io, char *text, size_t cap)
{
    TRY(check_words(plan, s, io, text, cap));
    if (!io->lse) return FOCI_OK;
    snprintf(text, cap, "io.lse is given, but %s has no logits: leave it NULL",
             s->group->mech.def->name);
    return FOCI_ERR_ARG;
}

/* A multiply and an add for each element and row. */
static void cost(const foci_plan *plan, const struct stage *s, foci_cost *cost)
{
    const foci_problem *p = &plan->p;
    const double rows = (double)p->batch * (double)s->group->heads * (double)p->len_q;
    const double flops = 2 * rows * (double)p->dim_v;
    const double bytes = rows * (double)p->dim_v * (double)foci_dtype_bytes(p->dtype);

    cost->forward_flops += flops;
    cost->backward_flops += flops;
    cost->forward_bytes += 2 * bytes;
    cost->backward_bytes += 2 * bytes;
}

static int describe(const foci_plan *plan, const struct stage *s, char *text, size_t cap)
{
    struct positional x;

    positional_geometry(&x, plan, s);
    if (positional_is_taps(&x.kind))
        return snprintf(text, cap, "    taps     %" PRId64 " a head, in f32\n",
                        positional_taps_of(&x));
    return snprintf(text, cap, "    scan     %s, means in doubles\n",
                    x.kind.words ? "words" : "tokens");
}

const struct engine engine_positional = {
    .name = "positional",
    .work_bytes = work_bytes,
    .saved_floats = saved_floats,
    .forward = forward,
    .backward = backward,
    .check = check,
    .cost = cost,
    .describe = describe,
    .decoder = &positional_decoder,
};
