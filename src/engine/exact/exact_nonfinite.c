/* exact_nonfinite.c -- see exact_nonfinite.h. */
#include "engine/exact/exact_nonfinite.h"
#include "engine/exact/exact_map.h"
#include "engine/exact/slots/exact_slots.h"
#include "engine/exact/terms/exact_txl.h"

static float from_bf16(uint32_t half)
{
    union {
        uint32_t u;
        float    f;
    } bits = { .u = half << 16 };
    return bits.f;
}

void exact_nonfinite_values(const struct exact *x, int r0, int r1, int n,
                            const uint64_t *seen, const float *w, const uint32_t *pairs,
                            const float *tile, float *ot)
{
    for (int j = 0; j < n; j++)
        for (int r = r0; r < r1; r++) {
            if (!(seen[j] >> r & 1)) continue;
            const float weight =
                w ? w[j * LANES + r]
                  : from_bf16(pairs[j / 2 * LANES + r] >> j % 2 * 16 & 0xffff);
            for (int c = 0; c < x->d.v; c++)
                ot[c * LANES + r] += weight * tile[(int64_t)j * x->d.ldv + c];
        }
}

void exact_nonfinite_forward(const struct exact *x, const struct exact_block *b,
                             int64_t t, int n, const uint64_t *seen, const float *w,
                             const uint32_t *pairs, float *tile, float *scratch,
                             float *ot)
{
    exact_load_values(x, b->seq, b->kv, t, tile, scratch);
    exact_round(x, tile, x->d.ldv, x->d.v, scratch);
    exact_nonfinite_values(x, b->r0, b->r1, n, seen, w, pairs, tile, ot);
}

/* One pass for each operand, with two tiles of scratch. */
void exact_nonfinite_backward(const struct exact *x, const struct exact_block *b,
                              int64_t t, int n, const uint64_t *seen,
                              const struct nonfinite_grads *p, const void *d_o,
                              float *tile, float *tile2)
{
    struct mapped mapped;
    uint64_t has_grad[TILE]; /* lanes whose pairs have gradients of keys and values */

    for (int j = 0; j < n; j++)
        has_grad[j] = seen[j] & (p->stop ? ~p->stop[j] : ~UINT64_C(0));
    exact_load_block(x, b, d_o, &x->p->o, x->d.v, x->d.ldv, tile);
    for (int j = 0; j < n; j++)
        for (int r = b->r0; r < b->r1; r++) {
            if (!(has_grad[j] >> r & 1)) continue;
            const float w =
                p->w ? p->w[j * LANES + r] : from_bf16(p->w16[j * LANES + r]);
            for (int c = 0; c < x->d.v; c++)
                p->dv[(int64_t)j * x->d.ldv + c] +=
                    w * x->dropout.scale * tile[(int64_t)r * x->d.ldv + c];
        }

    exact_load_keys(x, b->seq, b->kv, t, tile2, tile);
    exact_load_queries(x, b, tile, &mapped);
    exact_txl_add_u(x, b->h, tile);
    for (int j = 0; j < n; j++)
        for (int r = b->r0; r < b->r1; r++) {
            if (!(seen[j] >> r & 1)) continue;
            const float ds =
                p->ds ? p->ds[j * LANES + r] : from_bf16(p->ds16[j * LANES + r]);
            const float *q = tile + (int64_t)r * x->d.ldq;
            const float *k = tile2 + (int64_t)j * x->d.ldq;
            for (int c = 0; c < x->d.q; c++)
                p->dqt[c * LANES + r] += ds * k[c];
            for (int c = 0; has_grad[j] >> r & 1 && c < x->d.q; c++)
                p->dk[(int64_t)j * x->d.ldq + c] += ds * p->mul[r] * q[c];
        }
}
