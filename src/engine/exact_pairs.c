/* exact_pairs.c -- the products of a tile over its visible pairs, one by one.
 *
 * The tiled products multiply hidden pairs by a weight of zero, and 0 * inf is NaN.
 * Where an operand is not finite and some pairs are hidden, this keeps what is not
 * finite from the queries that do not see it.  Rare, so plain.
 */
#include "engine/exact_pairs.h"
#include "engine/exact_pack.h"
#include "engine/exact_slots.h"
#include "engine/exact_txl.h"

static float from_bf16(uint32_t half)
{
    union {
        uint32_t u;
        float    f;
    } bits = { .u = half << 16 };
    return bits.f;
}

void exact_pairs_values(const struct exact *x, int r0, int r1, int n,
                        const uint64_t *seen, const float *w, const uint32_t *words,
                        const float *tile, float *ot)
{
    for (int j = 0; j < n; j++)
        for (int r = r0; r < r1; r++) {
            if (!(seen[j] >> r & 1)) continue;
            const float weight =
                w ? w[j * LANES + r]
                  : from_bf16(words[j / 2 * LANES + r] >> j % 2 * 16 & 0xffff);
            for (int c = 0; c < x->dv; c++)
                ot[c * LANES + r] += weight * tile[(int64_t)j * x->ldv + c];
        }
}

void exact_pairs_forward(const struct exact *x, const struct block *b, int64_t t, int n,
                         const uint64_t *seen, const float *w, const uint32_t *words,
                         float *tile, float *room, float *ot)
{
    exact_load_values(x, b->seq, b->kv, t, tile, room);
    exact_round(x, tile, x->ldv, x->dv, room);
    exact_pairs_values(x, b->r0, b->r1, n, seen, w, words, tile, ot);
}

/* One pass for each tensor that takes part, with two tiles of room. */
void exact_pairs_backward(const struct exact *x, const struct block *b, int64_t t,
                          int n, const uint64_t *seen, const struct exact_pairs *p,
                          const void *d_o, float *tile, float *tile2)
{
    struct mapped mapped;
    uint64_t      gives[TILE]; /* lanes from which keys and values take gradients */

    for (int j = 0; j < n; j++)
        gives[j] = seen[j] & (p->stop ? ~p->stop[j] : ~UINT64_C(0));
    exact_load_block(x, b, d_o, &x->p->o, x->dv, x->ldv, tile);
    for (int j = 0; j < n; j++)
        for (int r = b->r0; r < b->r1; r++) {
            if (!(gives[j] >> r & 1)) continue;
            const float w =
                p->w ? p->w[j * LANES + r] : from_bf16(p->w16[j * LANES + r]);
            for (int c = 0; c < x->dv; c++)
                p->dv[(int64_t)j * x->ldv + c] +=
                    w * x->kept * tile[(int64_t)r * x->ldv + c];
        }

    exact_load_keys(x, b->seq, b->kv, t, tile2, tile);
    exact_load_queries(x, b, tile, &mapped);
    exact_add_u(x, b->h, tile);
    for (int j = 0; j < n; j++)
        for (int r = b->r0; r < b->r1; r++) {
            if (!(seen[j] >> r & 1)) continue;
            const float ds =
                p->ds ? p->ds[j * LANES + r] : from_bf16(p->ds16[j * LANES + r]);
            const float *q = tile + (int64_t)r * x->ldq;
            const float *k = tile2 + (int64_t)j * x->ldq;
            for (int c = 0; c < x->dq; c++)
                p->dqt[c * LANES + r] += ds * k[c];
            for (int c = 0; gives[j] >> r & 1 && c < x->dq; c++)
                p->dk[(int64_t)j * x->ldq + c] += ds * p->mul[r] * q[c];
        }
}
