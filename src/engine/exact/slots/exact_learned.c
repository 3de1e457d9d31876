/* exact_learned.c -- learned slots: weighted sums of the keys and values of a run, by
 * matrices E and F of each head,
 *
 *     K' [slot][d] = E [slot][key]   K  [key][d],       V' = F V
 *     dK  [key][d] += E [slot][key]^T dK' [slot][d],    dV += F^T dV'
 *     dE [slot][key] += dK' [slot][d] K [key][d]^T,     dF += dV' V^T
 *
 * as products of the exact engine, of floats or of bf16 pairs.  A matrix is read once,
 * a few hundred columns of 64 rows at a time, and as many packed rows of K and V serve
 * several such strips.  One thread makes each sum, so its order never changes.
 */
#include <string.h>

#include "engine/exact/exact_map.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"

enum {
    CHUNK = 256, /* keys of one product */
    STRIPS = 4   /* tiles of slots that share packed keys */
};

/* Scratch of one thread. */
struct learned_scratch {
    float *e; /* [TILE][CHUNK] of a matrix; [TILE][TILE] where products take bf16 pairs */
    char  *a;    /* [TILE][CHUNK] of a matrix as bf16, or rows of gradients */
    char  *b;    /* [CHUNK] rows of keys or values, packed as second operand */
    char  *b2;   /* the same of values, where keys are in b */
    float *tile; /* [TILE][max ld] */
    float *sum;  /* [STRIPS][TILE][max ld] */
    float *sum2; /* likewise of values */
};

static struct learned_scratch learned_scratch_carve(const struct exact *x,
                                                    struct arena       *a)
{
    const int64_t          ld = max64(max64(x->d.ldq, x->d.ldv), TILE);
    struct learned_scratch r;

    r.e = arena_alloc(a, (int64_t)TILE * (x->bf16 ? TILE : CHUNK), sizeof(float));
    r.a = arena_alloc(a, x->bf16 ? TILE * max64(CHUNK, ld) : 0, sizeof(uint16_t));
    r.b = arena_alloc(a, CHUNK * ld, sizeof(float) / (size_t)x->kpack);
    r.b2 = arena_alloc(a, CHUNK * ld, sizeof(float) / (size_t)x->kpack);
    r.tile = arena_alloc(a, TILE * ld, sizeof(float));
    r.sum = arena_alloc(a, (int64_t)STRIPS * TILE * ld, sizeof(float));
    r.sum2 = arena_alloc(a, (int64_t)STRIPS * TILE * ld, sizeof(float));
    return r;
}

static struct learned_scratch learned_scratch_of(const struct exact *x)
{
    struct arena mine = { .base = x->learned.scratch +
                                  (size_t)exact_thread() * x->learned.bytes };
    return learned_scratch_carve(x, &mine);
}

void exact_learned_carve(struct exact *x, struct arena *a)
{
    struct learned_slots *m = &x->learned;
    struct arena          one = { 0 };
    const int64_t         rows = x->kv_heads * x->max.st * TILE;

    if (!stage_learned(x->stage)) return;
    m->keys = arena_alloc(a, rows * x->d.ldq, sizeof *m->keys);
    m->values = arena_alloc(a, rows * x->d.ldv, sizeof *m->values);
    learned_scratch_carve(x, &one);
    m->bytes = one.used;
    m->scratch = arena_alloc(a, x->threads, one.used);
}

/*
 * Geometry
 */

/* Keys, or values, with their matrix and widths. */
struct learned_side {
    const float *by; /* [learned][run_len] matrix of the head */
    int          d, d_pad, ld;
    bool         values;
};

static int64_t matrix_offset(const struct exact *x, int64_t kv, bool values)
{
    const foci_slots *s = &x->stage->levels[0].slots;
    const int64_t    *at = x->stage->group->param0;

    return at[values && at[1] >= 0] + kv * s->learned * s->run_len;
}

static bool is_shared(const struct exact *x) { return x->stage->group->param0[1] < 0; }

static struct learned_side side_of(const struct exact *x, int64_t kv, bool values)
{
    return (struct learned_side){
        .by = x->io->params + matrix_offset(x, kv, values),
        .d = values ? x->d.v : x->d.q,
        .d_pad = values ? x->d.v_pad : x->d.q_pad,
        .ld = values ? x->d.ldv : x->d.ldq,
        .values = values,
    };
}

static const foci_slots *slots_at(const struct exact *x)
{
    return &x->stage->levels[0].slots;
}

static int64_t runs_of(const struct exact *x, const struct exact_seq *s)
{
    return div_up(s->s.nk, slots_at(x)->run_len);
}

/* Keys of a run. */
static foci_range run_keys(const struct exact *x, const struct exact_seq *s, int64_t run)
{
    return slot_keys(slots_at(x), run * slots_at(x)->learned, s->s.nk);
}

/* The row of the first slot of a run among all slots. */
static int64_t slot_row(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t run)
{
    return (kv * x->max.st + s->st0) * TILE + run * slots_at(x)->learned;
}

/* Tiles of slots of one job, which does not change their sums; and the jobs of a run. */
static int64_t strips_of(const struct exact *x)
{
    const int64_t runs = div_up(x->p->len_k, slots_at(x)->run_len);
    return x->kv_heads * x->p->batch * runs < x->threads ? 1 : STRIPS;
}

static int64_t run_jobs(const struct exact *x)
{
    return div_up(slots_at(x)->learned, strips_of(x) * TILE);
}

/* Slots of the tile that starts with slot0. */
static int slots_from(const struct exact *x, int64_t slot0)
{
    return (int)max64(0, min64(TILE, slots_at(x)->learned - slot0));
}

/*
 * Forward
 */

static void load_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                      int64_t j, int n, bool values, float *tile)
{
    struct mapped mapped;

    if (values)
        exact_load_rows(x, s, kv, j, n, x->io->v, &x->p->v, x->d.v, x->d.ldv, tile);
    else
        exact_load_key_rows(x, s, kv, j, n, tile, &mapped);
}

/* Pack n keys or values from j on as second operand. */
static void pack_second(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t j, int n, const struct learned_side *of,
                        const struct learned_scratch *r, char *b)
{
    for (int i = 0; i < n; i += TILE) {
        const int m = (int)min64(TILE, n - i);
        char     *to = b + (size_t)(i / x->kpack * of->ld) * sizeof(float);

        load_rows(x, s, kv, j + i, m, of->values, x->bf16 ? r->tile : (float *)to);
        if (x->bf16)
            x->k->pack_pairs_bf16((uint32_t *)to, r->tile, of->ld, m, of->d_pad);
    }
}

/* Pack w columns of n rows of a matrix as first operand: floats, or rows of bf16. */
static struct operand pack_first(const struct exact *x, const float *from, int n, int w,
                                 const struct learned_scratch *r)
{
    const int64_t run_len = slots_at(x)->run_len, padded = round_up(w, TILE);

    if (!x->bf16) {
        x->k->load_rows(r->e, padded, from, run_len, FOCI_F32, n, w);
        return (struct operand){ (const char *)r->e, padded, 1 };
    }
    if (n < TILE || w < padded)
        memset(r->a, 0, (size_t)(TILE * padded) * sizeof(uint16_t));
    x->k->store_rows(r->a, padded, FOCI_BF16, from, run_len, 1.0f, n, w);
    return (struct operand){ r->a, padded / 2, 1 };
}

/* Add the products with columns c to c + w of the run, for the slots from slot0 on. */
static void multiply_chunk(const struct exact *x, const struct learned_side side[2],
                           int64_t c, int w, int64_t slot0,
                           const struct learned_scratch *r)
{
    const int64_t run_len = slots_at(x)->run_len;
    const int     deep = (int)(x->bf16 ? round_up(w, TILE) / 2 : w);

    for (int i = 0; i < strips_of(x); i++, slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        struct operand by;

        if (!n) return;
        for (int v = 0; v < 2; v++) {
            const struct learned_side *of = &side[v];

            if (!v || !is_shared(x))
                by = pack_first(x, of->by + slot0 * run_len + c, n, w, r);
            exact_product(x, (v ? r->sum2 : r->sum) + (int64_t)i * TILE * of->ld,
                          of->ld, by, v ? r->b2 : r->b, of->ld, exact_padded(x, n),
                          of->ld, deep, c > 0);
        }
    }
}

static void multiply_run(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t run, int64_t group)
{
    const struct learned_side side[2] = { side_of(x, kv, false), side_of(x, kv, true) };
    const struct learned_scratch r = learned_scratch_of(x);
    const foci_range             keys = run_keys(x, s, run);
    const int64_t slot0 = group * strips_of(x) * TILE, n = keys.end - keys.begin;
    const int64_t rows = min64(strips_of(x) * TILE, slots_at(x)->learned - slot0);
    const int64_t to = slot_row(x, s, kv, run) + slot0;

    for (int64_t c = 0; c < n; c += CHUNK) {
        const int w = (int)min64(CHUNK, n - c);

        for (int v = 0; v < 2; v++)
            pack_second(x, s, kv, keys.begin + c, w, &side[v], &r, v ? r.b2 : r.b);
        multiply_chunk(x, side, c, w, slot0, &r);
    }
    memcpy(x->learned.keys + to * x->d.ldq, r.sum,
           (size_t)(rows * x->d.ldq) * sizeof *r.sum);
    memcpy(x->learned.values + to * x->d.ldv, r.sum2,
           (size_t)(rows * x->d.ldv) * sizeof *r.sum2);
}

int64_t exact_learned_jobs(const struct exact *x)
{
    const int64_t heads = stage_learned(x->stage) ? x->kv_heads : 0;
    int64_t       runs = 0;

    for (int64_t i = 0; heads && i < x->n.seqs; i++)
        runs = max64(runs, runs_of(x, &x->seqs[i]));
    return heads ? heads * x->n.seqs * runs * run_jobs(x) : 0;
}

void exact_learned_job(const struct exact *x, int64_t jobs, int64_t i)
{
    const int64_t           groups = run_jobs(x), per = jobs / x->kv_heads / x->n.seqs;
    const struct exact_seq *s = &x->seqs[i / per % x->n.seqs];
    const int64_t           run = i % per / groups;

    if (run < runs_of(x, s)) multiply_run(x, s, i / per / x->n.seqs, run, i % groups);
}

void exact_learned_head(const struct exact *x, int64_t kv, const struct exact_seq *s)
{
    for (int64_t run = 0; stage_learned(x->stage) && run < runs_of(x, s); run++)
        for (int64_t i = 0; i < run_jobs(x); i++)
            multiply_run(x, s, kv, run, i);
}

void exact_learned_load(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t t, bool values, float *tile)
{
    const int64_t ld = values ? x->d.ldv : x->d.ldq;
    const int64_t at = slot_row(x, s, kv, 0) + exact_first_slot(s, 0, t);
    const size_t  n = (size_t)(exact_slots_in(s, t) * ld);

    memcpy(tile, (values ? x->learned.values : x->learned.keys) + at * ld,
           n * sizeof *tile);
    memset(tile + n, 0, ((size_t)(TILE * ld) - n) * sizeof *tile);
}

/*
 * Backward
 */

/* Pack w columns of n slots of a matrix, to be summed over slots. */
static struct operand pack_summed(const struct exact *x, const float *from, int n,
                                  int w, const struct learned_scratch *r)
{
    x->k->load_rows(r->e, TILE, from, slots_at(x)->run_len, FOCI_F32, n, w);
    if (!x->bf16) return (struct operand){ (const char *)r->e, 1, TILE };
    x->k->pack_sum_bf16((uint32_t *)r->a, r->e, TILE, n, TILE);
    return x->k->sum_by_rows ? (struct operand){ r->a, TILE / 2, 1 }
                             : (struct operand){ r->a, 1, TILE };
}

/* sum and sum2[w][ld] = gradients of keys c to c + w of a run, whose slots start at row
 * `row`. */
static void sum_slots(const struct exact *x, const struct learned_side side[2],
                      int64_t row, int64_t c, int w, const struct learned_scratch *r)
{
    for (int64_t slot0 = 0; slot0 < slots_at(x)->learned; slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        struct operand by;

        for (int v = 0; v < 2; v++) {
            const struct learned_side *of = &side[v];
            const float               *d =
                (v ? x->grads.dv_slots : x->grads.dk_slots) + (row + slot0) * of->ld;

            if (!v || !is_shared(x))
                by = pack_summed(x, of->by + slot0 * slots_at(x)->run_len + c, n, w, r);
            if (x->bf16)
                x->k->pack_pairs_bf16((uint32_t *)r->b, d, of->ld, n, of->d_pad);
            exact_product(x, v ? r->sum2 : r->sum, of->ld, by,
                          x->bf16 ? (const void *)r->b : d, of->ld, exact_padded(x, w),
                          of->ld, exact_padded(x, n) / x->kpack, slot0 > 0);
        }
    }
}

static void add_to(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

void exact_learned_back(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t j0, float *dk, float *dv)
{
    const struct learned_side side[2] = { side_of(x, kv, false), side_of(x, kv, true) };
    const int64_t run_len = slots_at(x)->run_len, end = min64(j0 + TILE, s->s.nk);
    const struct learned_scratch r = learned_scratch_of(x);

    for (int64_t j = j0, next; j < end; j = next) {
        const int64_t run = j / run_len;
        next = min64(end, (run + 1) * run_len);

        sum_slots(x, side, slot_row(x, s, kv, run), j - run * run_len, (int)(next - j),
                  &r);
        add_to(dk + (j - j0) * x->d.ldq, r.sum, (next - j) * x->d.ldq);
        add_to(dv + (j - j0) * x->d.ldv, r.sum2, (next - j) * x->d.ldv);
    }
}

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Add the share of one run in the gradient of columns c on and rows slot0 on of a
 * matrix, to sum[STRIPS][TILE][TILE].  Slots that no query saw have none, whatever
 * their keys are. */
static void add_gradient(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t run, const struct learned_side *of, int64_t c,
                         int64_t slot0, const struct learned_scratch *r)
{
    const foci_range keys = run_keys(x, s, run);
    const int        w = (int)min64(TILE, keys.end - keys.begin - c);
    const float     *all = of->values ? x->grads.dv_slots : x->grads.dk_slots;

    if (w <= 0) return;
    memset(r->tile, 0, (size_t)(TILE * of->ld) * sizeof *r->tile);
    load_rows(x, s, kv, keys.begin + c, w, of->values, r->tile);
    if (x->bf16)
        x->k->pack_cols_bf16((uint32_t *)r->b, r->tile, of->ld, w, of->d_pad);
    else
        x->k->pack_cols_f32((float *)r->b, r->tile, of->ld, w, of->d);
    for (int i = 0; i < strips_of(x); i++, slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        const float   *d = all + (slot_row(x, s, kv, run) + slot0) * of->ld;
        struct operand a = { (const char *)d, of->ld, 1 };

        if (all_zero(d, (int64_t)n * of->ld)) continue;
        if (x->bf16) {
            x->k->pack_rows_bf16((uint32_t *)r->a, d, of->ld, n, of->d_pad);
            a = (struct operand){ r->a, of->d_pad / 2, 1 };
        }
        exact_product(x, r->sum + (int64_t)i * TILE * TILE, TILE, a, r->b, TILE,
                      exact_padded(x, n), TILE,
                      (x->bf16 ? of->d_pad : of->d) / x->kpack, 1);
    }
}

static void add_params(const struct exact *x, int64_t kv, bool values, int64_t c,
                       int64_t slot0, const float *sum, float *dparams)
{
    const int64_t run_len = slots_at(x)->run_len, w = min64(TILE, run_len - c);
    const int64_t n = min64(strips_of(x) * TILE, slots_at(x)->learned - slot0);

    for (int64_t i = 0; i < n; i++) {
        float *to = dparams + matrix_offset(x, kv, values) + (slot0 + i) * run_len + c;
        for (int64_t t = 0; t < w; t++)
            to[t] += sum[i * TILE + t];
    }
}

int64_t exact_learned_params_jobs(const struct exact *x)
{
    if (!stage_learned(x->stage)) return 0;
    return x->kv_heads * div_up(slots_at(x)->run_len, TILE) * run_jobs(x);
}

void exact_learned_params(const struct exact *x, int64_t i, float *dparams)
{
    const int64_t groups = run_jobs(x), tiles = div_up(slots_at(x)->run_len, TILE);
    const int64_t kv = i / groups / tiles, c = i / groups % tiles * TILE;
    const int64_t slot0 = i % groups * strips_of(x) * TILE;
    const size_t  bytes = (size_t)(STRIPS * TILE * TILE) * sizeof(float);
    const struct learned_scratch r = learned_scratch_of(x);

    for (int v = 0; v < 2; v++) {
        const struct learned_side of = side_of(x, kv, v);

        if (!v || !is_shared(x)) memset(r.sum, 0, bytes);
        for (int64_t q = 0; q < x->n.seqs; q++)
            for (int64_t run = 0; run < runs_of(x, &x->seqs[q]); run++)
                add_gradient(x, &x->seqs[q], kv, run, &of, c, slot0, &r);
        if (v || !is_shared(x)) add_params(x, kv, v, c, slot0, r.sum, dparams);
    }
}
