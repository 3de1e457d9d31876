/* linear_sums.c -- sums S [m][dv] and z [m] over the features of keys. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/linear/linear_chunk.h"

struct linear_sums linear_sums_carve(const struct linear *x, int64_t n, struct arena *a)
{
    struct linear_sums s = { 0 };

    s.rows = arena_alloc(a, n * x->m_pad, (size_t)x->ldv * sizeof *s.rows);
    s.total = arena_alloc(a, n * x->m_pad, sizeof *s.total);
    if (x->logs || x->lane_logs)
        s.max_log = arena_alloc(a, n * x->m_pad, sizeof *s.max_log);
    return s;
}

struct linear_sums linear_sums_at(const struct linear *x, struct linear_sums all,
                                  int64_t i)
{
    return (struct linear_sums){
        .rows = all.rows + i * x->m_pad * x->ldv,
        .total = all.total + i * x->m_pad,
        .max_log = all.max_log ? all.max_log + i * x->m_pad : NULL,
    };
}

void linear_sums_clear(const struct linear *x, struct linear_sums s)
{
    memset(s.rows, 0, (size_t)x->m_pad * (size_t)x->ldv * sizeof *s.rows);
    memset(s.total, 0, (size_t)x->m_pad * sizeof *s.total);
    for (int r = 0; s.max_log && r < x->m_pad; r++)
        s.max_log[r] = -INFINITY;
}

void linear_sums_copy(const struct linear *x, struct linear_sums to,
                      struct linear_sums from)
{
    const size_t totals = (size_t)x->m_pad * sizeof *to.total;

    memcpy(to.rows, from.rows, totals * (size_t)x->ldv);
    memcpy(to.total, from.total, totals);
    if (to.max_log) memcpy(to.max_log, from.max_log, totals);
}

static void scale_row(const struct linear *x, struct linear_sums s, int r, float by)
{
    float *row = s.rows + (int64_t)r * x->ldv;

    s.total[r] *= by;
    for (int c = 0; c < x->ldv; c++)
        row[c] *= by;
}

float linear_log_ratio(float from, float to)
{
    if (from == to) return 1;
    return from == -INFINITY ? 0 : expf(from - to);
}

void linear_sums_rescale(const struct linear *x, struct linear_sums s,
                         const float *max_log)
{
    for (int r = 0; r < x->m; r++) {
        if (s.max_log[r] == max_log[r]) continue;
        scale_row(x, s, r, linear_log_ratio(s.max_log[r], max_log[r]));
        s.max_log[r] = max_log[r];
    }
}

void linear_sums_add(const struct linear *x, struct linear_sums to, float by,
                     struct linear_sums from)
{
    for (int r = 0; r < x->m; r++) {
        const int64_t at = (int64_t)r * x->ldv;
        float         share = 1;

        if (to.max_log) {
            const float max_log = fmaxf(to.max_log[r], from.max_log[r]);
            scale_row(x, to, r, linear_log_ratio(to.max_log[r], max_log));
            share = linear_log_ratio(from.max_log[r], max_log);
            to.max_log[r] = max_log;
        }
        to.total[r] = by * to.total[r] + share * from.total[r];
        for (int c = 0; c < x->ldv; c++)
            to.rows[at + c] = by * to.rows[at + c] + share * from.rows[at + c];
    }
}

static void scale_all(const struct linear *x, struct linear_sums s, float by)
{
    for (int r = 0; r < x->m_pad; r++)
        scale_row(x, s, r, by);
}

void linear_sums_update(const struct linear *x, const struct feature_chunk *c,
                        const struct linear_keys *k, struct linear_sums s)
{
    if (x->l->decays) scale_all(x, s, x->decay[c->h].power[c->n]);
    for (int r = 0; r < x->m; r++)
        s.total[r] += k->sum[r];
    if (!x->bf16) {
        x->k->gemm_f32(s.rows, x->ldv, k->rotated, CHUNK, 1, k->decayed, x->ldv, x->m,
                       x->ldv, c->n, 1);
        return;
    }
    linear_operand_a_pack(x, &k->for_sums);
    x->k->pack_pairs_bf16(k->v_pairs, k->decayed, x->ldv, c->n, x->dv_pad);
    x->k->gemm_bf16(s.rows, x->ldv, k->for_sums.pairs, CHUNK / 2, 1, k->v_pairs, x->ldv,
                    x->m_pad, x->ldv, k->n_pad / 2, 1);
}
