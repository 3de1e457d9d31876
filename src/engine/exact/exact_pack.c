/* exact_pack.c -- rows in and out: load, convert, pack, store. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_fused.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"

static const char *at(const struct exact *x, const void *base, const foci_layout *l,
                      int64_t b, int64_t row, int64_t head)
{
    const int64_t offset = b * l->batch + row * l->row + head * l->head;
    return (const char *)base + (size_t)offset * foci_dtype_bytes(x->p->dtype);
}

/* Zero the rows of a tile before r0 and from r1 on. */
static void clear_padding(float *tile, int ld, int r0, int r1)
{
    memset(tile, 0, (size_t)r0 * (size_t)ld * sizeof *tile);
    memset(tile + (int64_t)r1 * ld, 0, (size_t)(TILE - r1) * (size_t)ld * sizeof *tile);
}

void exact_load_block(const struct exact *x, const struct exact_block *b,
                      const void *base, const foci_layout *l, int d, int ld, float *tile)
{
    const char *rows = at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->load_rows(tile + (int64_t)b->r0 * ld, ld, rows, l->row, (int)x->p->dtype,
                    b->r1 - b->r0, d);
    clear_padding(tile, ld, b->r0, b->r1);
}

bool exact_packs_stored(const struct exact *x)
{
    return x->bf16 && x->p->dtype == FOCI_BF16 && !exact_has_map(x) &&
           !x->stage->n_levels;
}

const uint16_t *exact_stored_block(const struct exact *x, const struct exact_block *b,
                                   const void *base, const foci_layout *l, int d,
                                   void *scratch, int64_t *ld)
{
    const char  *rows = at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);
    const size_t bytes = (size_t)d * sizeof(uint16_t);

    *ld = l->row;
    if (b->r0 == 0) return (const void *)rows;
    *ld = d;
    memset(scratch, 0, (size_t)b->r0 * bytes);
    for (int r = b->r0; r < b->r1; r++)
        memcpy((char *)scratch + (size_t)r * bytes,
               rows + (size_t)((r - b->r0) * l->row) * sizeof(uint16_t), bytes);
    return scratch;
}

const uint16_t *exact_stored_tile(const struct exact *x, const struct exact_seq *s,
                                  int64_t kv, int64_t t, const void *base,
                                  const foci_layout *l)
{
    return (const void *)at(x, base, l, s->s.b, s->s.k0 + t * TILE,
                            exact_input_head(x, kv));
}

void exact_load_tile(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t t, const void *base, const foci_layout *l, int d, int ld,
                     float *tile)
{
    const int n = exact_keys_in(s, t);

    exact_load_rows(x, s, kv, t * TILE, n, base, l, d, ld, tile);
    clear_padding(tile, ld, 0, n);
}

void exact_load_rows(const struct exact *x, const struct exact_seq *s, int64_t kv,
                     int64_t j, int n, const void *base, const foci_layout *l, int d,
                     int ld, float *tile)
{
    if (!d) return;
    const char *rows = at(x, base, l, s->s.b, s->s.k0 + j, exact_input_head(x, kv));

    x->k->load_rows(tile, ld, rows, l->row, (int)x->p->dtype, n, d);
}

void exact_store_rows(const struct exact *x, const struct exact_block *b, void *base,
                      const foci_layout *l, const float *tile, int d, int ld)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->store_rows(rows, l->row, (int)x->p->dtype, tile + (int64_t)b->r0 * ld, ld,
                     1.0f, b->r1 - b->r0, d);
}

void exact_store_rows_by(const struct exact *x, const struct exact_block *b, void *base,
                         const foci_layout *l, const float *tile, const float *factor)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);

    x->k->store_rows_by(rows, l->row, (int)x->p->dtype, tile + (int64_t)b->r0 * x->d.ldv,
                        x->d.ldv, factor + b->r0, b->r1 - b->r0, x->d.v);
}

void exact_store_block(const struct exact *x, const struct exact_block *b, void *base,
                       const foci_layout *l, const float *cols, int d, int ld,
                       const float *factor, float *tile)
{
    char *rows =
        (char *)at(x, base, l, b->seq->s.b, b->seq->s.q0 + b->i0 + b->r0, b->h);
    const int dtype = (int)x->p->dtype;

    if (b->r0 == 0) {
        x->k->store_cols(rows, l->row, dtype, cols, factor, b->r1, d);
        return;
    }
    x->k->store_cols(tile, ld, FOCI_F32, cols, factor, b->r1, d);
    exact_store_rows(x, b, base, l, tile, d, ld);
}

void exact_round(const struct exact *x, float *tile, int ld, int d, void *scratch)
{
    if (!x->bf16 || x->p->dtype == FOCI_BF16) return;
    x->k->store_rows(scratch, ld, FOCI_BF16, tile, ld, 1.0f, TILE, d);
    x->k->load_rows(tile, ld, scratch, ld, FOCI_BF16, TILE, d);
}

void exact_dropout_scale(const struct exact *x, float *tile, int ld, int d,
                         void *scratch)
{
    if (!x->dropout.on) return;
    for (int64_t i = 0; i < (int64_t)TILE * ld; i++)
        tile[i] *= x->dropout.scale;
    if (!x->bf16) return;
    x->k->store_rows(scratch, ld, FOCI_BF16, tile, ld, 1.0f, TILE, d);
    x->k->load_rows(tile, ld, scratch, ld, FOCI_BF16, TILE, d);
}

static bool all_finite(const float *x, int n)
{
    int odd = 0;

    for (int i = 0; i < n; i++)
        odd += !isfinite(x[i]);
    return !odd;
}

bool exact_finite(const struct exact *x, const float *tile, int ld, int d, int n)
{
    _Alignas(64) float square[TILE];

    x->k->row_dot(square, tile, tile, ld, n, d);
    return all_finite(square, n);
}

void exact_pack(const struct exact *x, const float *tile, int ld, int d_pad, int n,
                char *rows, char *sum, size_t size, size_t at)
{
    if (rows && !x->bf16)
        memcpy(rows + at * size, tile, TILE * (size_t)ld * sizeof *tile);
    if (rows && x->bf16)
        x->k->pack_rows_bf16((void *)(rows + at * size), tile, ld, n, d_pad);
    if (sum) x->k->pack_sum_bf16((void *)(sum + at * size), tile, ld, n, d_pad);
}

bool exact_finite_stored(const struct exact *x, const uint16_t *rows, int64_t ld, int d,
                         int n)
{
    _Alignas(64) float square[TILE];

    x->k->squares_bf16(square, rows, ld, n, d);
    return all_finite(square, n);
}

bool exact_key_norms(const struct exact *x, int n, size_t at)
{
    float *norm = x->packed.norms + at * TILE;
    float  top = 0;

    for (int j = 0; j < n; j++) {
        norm[j] = isfinite(norm[j]) ? sqrtf(norm[j]) : INFINITY;
        top = norm[j] > top ? norm[j] : top;
    }
    x->packed.max_norm[at] = top;
    return isfinite(top);
}

/* Whether no block needs a tile, by the plan's table. */
static bool is_unused(const struct exact *x, const struct exact_seq *s, int64_t t)
{
    int64_t runs = 1;

    if (!s->kinds && exact_slot_level(s, t) < 0) support_col(x->support, t, &runs);
    return !runs;
}

/* Pack stored rows as tile number `at` of rows and of sum, unless they are NULL. */
static void pack_stored_tile(const struct exact *x, const uint16_t *in, int64_t ld,
                             int n, int d, int projects, char *rows, char *sum,
                             size_t size, size_t at)
{
    if (rows)
        x->k->pack_rows_from_bf16((void *)(rows + at * size), in, ld, n, d, projects);
    if (sum)
        x->k->pack_sum_from_bf16((void *)(sum + at * size), in, ld, n, d, projects);
}

bool exact_checks_values(const struct exact *x)
{
    return x->packed.values || x->dropout.on || !x->support->all ||
           x->p->flags & (FOCI_FLAG_CAUSAL | FOCI_FLAG_MASK);
}

/* false: a key is not finite. */
static bool pack_stored_keys(const struct exact *x, const struct exact_seq *s,
                             int64_t kv, int64_t t, size_t to)
{
    const foci_layout *l = &x->p->k;
    const uint16_t    *k = exact_stored_tile(x, s, kv, t, x->io->k, l);
    const int          n = exact_keys_in(s, t);

    x->k->squares_bf16(x->packed.norms + to * TILE, k, l->row, n, x->d.q);
    pack_stored_tile(x, k, l->row, n, x->d.q, x->d.q_pad, x->packed.keys,
                     x->packed.keys_sum, x->packed.key_bytes, to);
    return exact_key_norms(x, n, to);
}

static unsigned pack_stored(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t, size_t to)
{
    const foci_layout *lv = &x->p->v;
    const uint16_t    *v = exact_stored_tile(x, s, kv, t, x->io->v, lv);
    const int          n = exact_keys_in(s, t);
    unsigned           nonfinite = 0;

    if (x->d.q && !pack_stored_keys(x, s, kv, t, to)) nonfinite |= NONFINITE_KEY;
    if (exact_checks_values(x) && !exact_finite_stored(x, v, lv->row, x->d.v, n))
        nonfinite |= NONFINITE_VALUE;
    pack_stored_tile(x, v, lv->row, n, x->d.v, x->d.v_pad, x->packed.values,
                     x->packed.values_sum, x->packed.value_bytes, to);
    return nonfinite;
}

void exact_pack_tile(const struct exact *x, int64_t kv, int64_t kt, float *tile,
                     float *scratch)
{
    const struct exact_seq *s = &x->seqs[x->seq_of_k[kt]];
    const int64_t           t = kt - s->kt0;
    const int               n = exact_keys_in(s, t);
    const size_t            at = (size_t)(kv * x->max.kt + kt);
    unsigned                nonfinite = 0;

    if (is_unused(x, s, t)) return;
    if (x->fused) {
        x->packed.nonfinite[at] =
            (uint8_t)exact_fused_pack(x, s, kv, t, at, tile, scratch);
        return;
    }
    if (exact_packs_stored(x)) {
        x->packed.nonfinite[at] = (uint8_t)pack_stored(x, s, kv, t, at);
        return;
    }
    if (x->d.q) {
        exact_load_keys(x, s, kv, t, tile, scratch);
        x->k->row_dot(x->packed.norms + at * TILE, tile, tile, x->d.ldq, n, x->d.q);
        if (!exact_key_norms(x, n, at)) nonfinite |= NONFINITE_KEY;
        exact_pack(x, tile, x->d.ldq, x->d.q_pad, n, x->packed.keys, x->packed.keys_sum,
                   x->packed.key_bytes, at);
    }
    exact_load_values(x, s, kv, t, tile, scratch);
    if (!exact_finite(x, tile, x->d.ldv, x->d.v, n)) nonfinite |= NONFINITE_VALUE;
    exact_pack(x, tile, x->d.ldv, x->d.v_pad, n, x->packed.values, x->packed.values_sum,
               x->packed.value_bytes, at);
    x->packed.nonfinite[at] = (uint8_t)nonfinite;
}
