/* exact_score.c -- how the logits of a block are scaled and biased. */
#include <string.h>

#include "engine/exact/exact_score.h"
#include "engine/exact/exact_tiles.h"
#include "engine/exact/slots/exact_slots.h"

bool exact_has_bias(const struct exact *x)
{
    return x->p->flags & FOCI_FLAG_BIAS || exact_has_count_bias(x) ||
           exact_source_biases(x);
}

void exact_fill_bias(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, float *bias)
{
    const float unit = (float)exact_bias_unit(x);

    if (exact_slot_level(b->seq, t) >= 0) {
        exact_slot_bias(b->seq, t, n, bias);
        for (int i = 0; i < n * LANES; i++)
            bias[i] *= unit;
        return;
    }
    if (!exact_source_biases(x)) memset(bias, 0, (size_t)n * LANES * sizeof *bias);
    for (int r = b->r0; x->io->bias && r < b->r1; r++) {
        const float *row =
            x->io->bias + exact_mask_row(x, b->seq, b->h, b->i0 + r) + t * TILE;
        for (int j = 0; j < n; j++)
            bias[j * LANES + r] += row[j] * unit;
    }
}

void exact_add_dbias(const struct exact *x, const struct exact_block *b, int64_t t,
                     int n, const float *ds, float *scratch, float *dbias)
{
    _Alignas(64) float ones[LANES];

    if (!dbias || exact_slot_level(b->seq, t) >= 0) return;
    for (int i = 0; i < LANES; i++)
        ones[i] = 1;
    x->k->store_cols(scratch, TILE, FOCI_F32, ds, ones, LANES, n);
    for (int r = b->r0; r < b->r1; r++) {
        float *row = dbias + exact_mask_row(x, b->seq, b->h, b->i0 + r) + t * TILE;
        for (int j = 0; j < n; j++)
            row[j] += scratch[r * TILE + j];
    }
}

void exact_modify(const struct exact *x, float *s, int n, const float *plain,
                  const float *f, struct bias_rows bias, const uint64_t *seen)
{
    const bool capped = x->score->cap > 0;

    x->k->modify(s, n, capped ? plain : f, capped ? (float)exact_logit_unit(x) : 1,
                 (float)x->score->cap, bias.at, bias.ld, seen);
}

void exact_factors(const struct exact *x, const struct exact_block *b,
                   const int64_t *visible, float *plain, float *f, float *mul)
{
    const double head = exact_head_scale(x, b->h), unit = exact_logit_unit(x);
    double       row[LANES];

    for (int r = 0; r < LANES; r++)
        row[r] = 1;
    for (int i = 0; i < x->score->n_rows; i++)
        for (int r = 0; r < LANES; r++)
            row[r] *= x->score->row[i]->def->row_factor(x->score->row[i], visible[r]);
    for (int r = 0; r < LANES; r++) {
        plain[r] = (float)(head * row[r]);
        f[r] = (float)(head * row[r] * unit);
    }
    for (int r = 0; r < LANES && mul; r++)
        mul[r] = (float)row[r];
}

void exact_shares(const struct exact *x, const int64_t *visible, float *share)
{
    const foci_mech *m = &x->stage->group->mech;
    const double     fixed = m->def->divisor ? m->def->divisor(m) : 0;

    for (int r = 0; r < LANES; r++)
        share[r] =
            visible[r] <= 0 ? 0 : (float)(1 / (fixed > 0 ? fixed : (double)visible[r]));
}
