/* exact_mix.c -- learned slots: sums of the keys and values of a run by a matrix that each
 * head has,
 *
 *     K' [slot][d] = E [slot][key]   K  [key][d],       V' = F V
 *     dK  [key][d] += E [slot][key]^T dK' [slot][d],    dV += F^T dV'
 *     dE [slot][key] += dK' [slot][d] K [key][d]^T,     dF += dV' V^T
 *
 * as products of the exact engine, floats or words.  E is read once, a few hundred columns
 * of 64 rows at a time, and as many rows of K and V serve several such strips.  What is
 * summed lies with one thread, so that its order never changes.
 */
#include <string.h>

#include "engine/exact_pack.h"
#include "engine/exact_slots.h"
#include "engine/exact_tiles.h"

enum {
    CHUNK = 256, /* keys that are summed in one product */
    STRIPS = 4   /* tiles of slots that share what is packed of keys */
};

/* Scratch of one thread. */
struct room {
    float *e;    /* [TILE][CHUNK] of a matrix; [TILE][TILE] where there are words */
    char  *a;    /* [TILE][CHUNK] of one as words, or rows of gradients */
    char  *b;    /* [CHUNK] rows of keys or values as the second operand */
    char  *b2;   /* the same, of values beside keys */
    float *tile; /* [TILE][max ld] */
    float *sum;  /* [STRIPS][TILE][max ld] */
    float *sum2; /* likewise, of values beside keys */
};

static struct room room_take(const struct exact *x, struct arena *a)
{
    const int64_t ld = max64(max64(x->ldq, x->ldv), TILE);
    struct room   r;

    r.e = arena_take(a, (int64_t)TILE * (x->bf16 ? TILE : CHUNK), sizeof(float));
    r.a = arena_take(a, x->bf16 ? TILE * max64(CHUNK, ld) : 0, sizeof(uint16_t));
    r.b = arena_take(a, CHUNK * ld, sizeof(float) / (size_t)x->per);
    r.b2 = arena_take(a, CHUNK * ld, sizeof(float) / (size_t)x->per);
    r.tile = arena_take(a, TILE * ld, sizeof(float));
    r.sum = arena_take(a, (int64_t)STRIPS * TILE * ld, sizeof(float));
    r.sum2 = arena_take(a, (int64_t)STRIPS * TILE * ld, sizeof(float));
    return r;
}

static struct room my_room(const struct exact *x)
{
    struct arena mine = { .base = x->mixed.scratch +
                                  (size_t)exact_thread() * x->mixed.bytes };
    return room_take(x, &mine);
}

void exact_mix_take(struct exact *x, struct arena *a)
{
    struct mixtures *m = &x->mixed;
    struct arena     one = { 0 };
    const int64_t    rows = x->kv_heads * x->max_st * TILE;

    if (!stage_learned(x->stage)) return;
    m->keys = arena_take(a, rows * x->ldq, sizeof *m->keys);
    m->values = arena_take(a, rows * x->ldv, sizeof *m->values);
    room_take(x, &one);
    m->bytes = one.used;
    m->scratch = arena_take(a, x->threads, one.used);
}

/*
 * What there is to mix
 */

/* Keys, or values, and what belongs to them. */
struct side {
    const float *by; /* [learned][every] of the head */
    int          d, d_pad, ld;
    bool         values;
};

static int64_t matrix_at(const struct exact *x, int64_t kv, bool values)
{
    const foci_slots *s = &x->stage->levels[0].slots;
    const int64_t    *at = x->stage->group->param0;

    return at[values && at[1] >= 0] + kv * s->learned * s->every;
}

static bool shared(const struct exact *x) { return x->stage->group->param0[1] < 0; }

static struct side side_of(const struct exact *x, int64_t kv, bool values)
{
    return (struct side){
        .by = x->io->params + matrix_at(x, kv, values),
        .d = values ? x->dv : x->dq,
        .d_pad = values ? x->dv_pad : x->dq_pad,
        .ld = values ? x->ldv : x->ldq,
        .values = values,
    };
}

static const foci_slots *slots_at(const struct exact *x)
{
    return &x->stage->levels[0].slots;
}

static int64_t runs_of(const struct exact *x, const struct exact_seq *s)
{
    return div_up(s->s.nk, slots_at(x)->every);
}

/* Keys of a run. */
static foci_range keys_of(const struct exact *x, const struct exact_seq *s, int64_t run)
{
    return slot_keys(slots_at(x), run * slots_at(x)->learned, s->s.nk);
}

/* Where the first slot of a run has its row among those of all slots. */
static int64_t row_of(const struct exact *x, const struct exact_seq *s, int64_t kv,
                      int64_t run)
{
    return (kv * x->max_st + s->st0) * TILE + run * slots_at(x)->learned;
}

/* Tiles of slots that one job sums, which is nothing to their sums; and jobs that the slots
 * of a run are. */
static int64_t strips_of(const struct exact *x)
{
    const int64_t runs = div_up(x->p->len_k, slots_at(x)->every);
    return x->kv_heads * x->p->batch * runs < x->threads ? 1 : STRIPS;
}

static int64_t groups_of(const struct exact *x)
{
    return div_up(slots_at(x)->learned, strips_of(x) * TILE);
}

/* Slots from slot0 on: those of a tile. */
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
        exact_load_rows(x, s, kv, j, n, x->io->v, &x->p->v, x->dv, x->ldv, tile);
    else
        exact_load_mapped(x, s, kv, j, n, tile, &mapped);
}

/* Rows of n keys from j on as the second operand. */
static void pack_second(const struct exact *x, const struct exact_seq *s, int64_t kv,
                        int64_t j, int n, const struct side *of, const struct room *r,
                        char *b)
{
    for (int i = 0; i < n; i += TILE) {
        const int m = (int)min64(TILE, n - i);
        char     *to = b + (size_t)(i / x->per * of->ld) * sizeof(float);

        load_rows(x, s, kv, j + i, m, of->values, x->bf16 ? r->tile : (float *)to);
        if (x->bf16)
            x->k->pack_pairs_bf16((uint32_t *)to, r->tile, of->ld, m, of->d_pad);
    }
}

/* n rows of a matrix from `from` on, w columns of them, as the first operand.  As words
 * they are rows of bf16. */
static struct operand pack_first(const struct exact *x, const float *from, int n, int w,
                                 const struct room *r)
{
    const int64_t every = slots_at(x)->every, wide = round_up(w, TILE);

    if (!x->bf16) {
        x->k->load_rows(r->e, wide, from, every, FOCI_F32, n, w);
        return (struct operand){ (const char *)r->e, wide, 1 };
    }
    if (n < TILE || w < wide) memset(r->a, 0, (size_t)(TILE * wide) * sizeof(uint16_t));
    x->k->store_rows(r->a, wide, FOCI_BF16, from, every, 1.0f, n, w);
    return (struct operand){ r->a, wide / 2, 1 };
}

/* Sums of what columns c to c + w of the run bring its slots from slot0 on. */
static void add_chunk(const struct exact *x, const struct side side[2], int64_t c,
                      int w, int64_t slot0, const struct room *r)
{
    const int64_t every = slots_at(x)->every;
    const int     deep = (int)(x->bf16 ? round_up(w, TILE) / 2 : w);

    for (int i = 0; i < strips_of(x); i++, slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        struct operand by;

        if (!n) return;
        for (int v = 0; v < 2; v++) {
            const struct side *of = &side[v];

            if (!v || !shared(x))
                by = pack_first(x, of->by + slot0 * every + c, n, w, r);
            exact_product(x, (v ? r->sum2 : r->sum) + (int64_t)i * TILE * of->ld,
                          of->ld, by, v ? r->b2 : r->b, of->ld, exact_padded(x, n),
                          of->ld, deep, c > 0);
        }
    }
}

static void mix_run(const struct exact *x, const struct exact_seq *s, int64_t kv,
                    int64_t run, int64_t group)
{
    const struct side side[2] = { side_of(x, kv, false), side_of(x, kv, true) };
    const struct room r = my_room(x);
    const foci_range  keys = keys_of(x, s, run);
    const int64_t     slot0 = group * strips_of(x) * TILE, n = keys.end - keys.begin;
    const int64_t     rows = min64(strips_of(x) * TILE, slots_at(x)->learned - slot0);
    const int64_t     to = row_of(x, s, kv, run) + slot0;

    for (int64_t c = 0; c < n; c += CHUNK) {
        const int w = (int)min64(CHUNK, n - c);

        for (int v = 0; v < 2; v++)
            pack_second(x, s, kv, keys.begin + c, w, &side[v], &r, v ? r.b2 : r.b);
        add_chunk(x, side, c, w, slot0, &r);
    }
    memcpy(x->mixed.keys + to * x->ldq, r.sum, (size_t)(rows * x->ldq) * sizeof *r.sum);
    memcpy(x->mixed.values + to * x->ldv, r.sum2,
           (size_t)(rows * x->ldv) * sizeof *r.sum2);
}

int64_t exact_mix_jobs(const struct exact *x)
{
    const int64_t heads = stage_learned(x->stage) ? x->kv_heads : 0;
    int64_t       runs = 0;

    for (int64_t i = 0; heads && i < x->n_seqs; i++)
        runs = max64(runs, runs_of(x, &x->seqs[i]));
    return heads ? heads * x->n_seqs * runs * groups_of(x) : 0;
}

void exact_mix(const struct exact *x, int64_t jobs, int64_t i)
{
    const int64_t           groups = groups_of(x), per = jobs / x->kv_heads / x->n_seqs;
    const struct exact_seq *s = &x->seqs[i / per % x->n_seqs];
    const int64_t           run = i % per / groups;

    if (run < runs_of(x, s)) mix_run(x, s, i / per / x->n_seqs, run, i % groups);
}

void exact_mix_own(const struct exact *x, int64_t kv, const struct exact_seq *s)
{
    for (int64_t run = 0; stage_learned(x->stage) && run < runs_of(x, s); run++)
        for (int64_t i = 0; i < groups_of(x); i++)
            mix_run(x, s, kv, run, i);
}

void exact_mix_load(const struct exact *x, const struct exact_seq *s, int64_t kv,
                    int64_t t, bool values, float *tile)
{
    const int64_t ld = values ? x->ldv : x->ldq;
    const int64_t at = row_of(x, s, kv, 0) + exact_slot_of(s, 0, t);
    const size_t  n = (size_t)(exact_slots_in(s, t) * ld);

    memcpy(tile, (values ? x->mixed.values : x->mixed.keys) + at * ld, n * sizeof *tile);
    memset(tile + n, 0, ((size_t)(TILE * ld) - n) * sizeof *tile);
}

/*
 * Backward
 */

/* n slots of a matrix from `from` on, w columns of them, to be summed over slots. */
static struct operand pack_summed(const struct exact *x, const float *from, int n,
                                  int w, const struct room *r)
{
    x->k->load_rows(r->e, TILE, from, slots_at(x)->every, FOCI_F32, n, w);
    if (!x->bf16) return (struct operand){ (const char *)r->e, 1, TILE };
    x->k->pack_sum_bf16((uint32_t *)r->a, r->e, TILE, n, TILE);
    return x->k->sum_by_rows ? (struct operand){ r->a, TILE / 2, 1 }
                             : (struct operand){ r->a, 1, TILE };
}

/* sum and sum2[w][ld] = what the slots of a run, whose rows start at `row`, give its
 * columns c to c + w. */
static void sum_slots(const struct exact *x, const struct side side[2], int64_t row,
                      int64_t c, int w, const struct room *r)
{
    for (int64_t slot0 = 0; slot0 < slots_at(x)->learned; slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        struct operand by;

        for (int v = 0; v < 2; v++) {
            const struct side *of = &side[v];
            const float *d = (v ? x->dv_slots : x->dk_slots) + (row + slot0) * of->ld;

            if (!v || !shared(x))
                by = pack_summed(x, of->by + slot0 * slots_at(x)->every + c, n, w, r);
            if (x->bf16)
                x->k->pack_pairs_bf16((uint32_t *)r->b, d, of->ld, n, of->d_pad);
            exact_product(x, v ? r->sum2 : r->sum, of->ld, by,
                          x->bf16 ? (const void *)r->b : d, of->ld, exact_padded(x, w),
                          of->ld, exact_padded(x, n) / x->per, slot0 > 0);
        }
    }
}

static void add_to(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

void exact_mix_share(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j0, float *dk, float *dv)
{
    const struct side side[2] = { side_of(x, kv, false), side_of(x, kv, true) };
    const int64_t     every = slots_at(x)->every, end = min64(j0 + TILE, s->s.nk);
    const struct room r = my_room(x);

    for (int64_t j = j0, next; j < end; j = next) {
        const int64_t run = j / every;
        next = min64(end, (run + 1) * every);

        sum_slots(x, side, row_of(x, s, kv, run), j - run * every, (int)(next - j), &r);
        add_to(dk + (j - j0) * x->ldq, r.sum, (next - j) * x->ldq);
        add_to(dv + (j - j0) * x->ldv, r.sum2, (next - j) * x->ldv);
    }
}

static bool all_zero(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Columns of a matrix from c on, of its rows from slot0 on: what a run of a sequence brings
 * their gradients in sum[STRIPS][TILE][TILE].  Slots that nobody saw bring nothing,
 * whatever their keys are. */
static void add_gradient(const struct exact *x, const struct exact_seq *s, int64_t kv,
                         int64_t run, const struct side *of, int64_t c, int64_t slot0,
                         const struct room *r)
{
    const foci_range keys = keys_of(x, s, run);
    const int        w = (int)min64(TILE, keys.end - keys.begin - c);
    const float     *all = of->values ? x->dv_slots : x->dk_slots;

    if (w <= 0) return;
    memset(r->tile, 0, (size_t)(TILE * of->ld) * sizeof *r->tile);
    load_rows(x, s, kv, keys.begin + c, w, of->values, r->tile);
    if (x->bf16)
        x->k->pack_cols_bf16((uint32_t *)r->b, r->tile, of->ld, w, of->d_pad);
    else
        x->k->pack_cols_f32((float *)r->b, r->tile, of->ld, w, of->d);
    for (int i = 0; i < strips_of(x); i++, slot0 += TILE) {
        const int      n = slots_from(x, slot0);
        const float   *d = all + (row_of(x, s, kv, run) + slot0) * of->ld;
        struct operand a = { (const char *)d, of->ld, 1 };

        if (all_zero(d, (int64_t)n * of->ld)) continue;
        if (x->bf16) {
            x->k->pack_rows_bf16((uint32_t *)r->a, d, of->ld, n, of->d_pad);
            a = (struct operand){ r->a, of->d_pad / 2, 1 };
        }
        exact_product(x, r->sum + (int64_t)i * TILE * TILE, TILE, a, r->b, TILE,
                      exact_padded(x, n), TILE, (x->bf16 ? of->d_pad : of->d) / x->per,
                      1);
    }
}

static void add_params(const struct exact *x, int64_t kv, bool values, int64_t c,
                       int64_t slot0, const float *sum, float *dparams)
{
    const int64_t every = slots_at(x)->every, w = min64(TILE, every - c);
    const int64_t n = min64(strips_of(x) * TILE, slots_at(x)->learned - slot0);

    for (int64_t i = 0; i < n; i++) {
        float *to = dparams + matrix_at(x, kv, values) + (slot0 + i) * every + c;
        for (int64_t t = 0; t < w; t++)
            to[t] += sum[i * TILE + t];
    }
}

int64_t exact_mix_params_jobs(const struct exact *x)
{
    if (!stage_learned(x->stage)) return 0;
    return x->kv_heads * div_up(slots_at(x)->every, TILE) * groups_of(x);
}

void exact_mix_params(const struct exact *x, int64_t i, float *dparams)
{
    const int64_t     groups = groups_of(x), tiles = div_up(slots_at(x)->every, TILE);
    const int64_t     kv = i / groups / tiles, c = i / groups % tiles * TILE;
    const int64_t     slot0 = i % groups * strips_of(x) * TILE;
    const size_t      bytes = (size_t)(STRIPS * TILE * TILE) * sizeof(float);
    const struct room r = my_room(x);

    for (int v = 0; v < 2; v++) {
        const struct side of = side_of(x, kv, v);

        if (!v || !shared(x)) memset(r.sum, 0, bytes);
        for (int64_t q = 0; q < x->n_seqs; q++)
            for (int64_t run = 0; run < runs_of(x, &x->seqs[q]); run++)
                add_gradient(x, &x->seqs[q], kv, run, &of, c, slot0, &r);
        if (v || !shared(x)) add_params(x, kv, v, c, slot0, r.sum, dparams);
    }
}
