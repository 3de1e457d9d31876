/* exact_rope.c -- rotary positions: pairs of elements of q and k are rotated by angles
 * that grow with the position of the row. */
#include <math.h>
#include <string.h>

#include "engine/exact/exact_score.h"

/* Cosine and sine of position p times each frequency, by the addition theorem from
 * those of the multiple of 64 below p and of the rest.  In double, the angle of a large
 * position has a relative error of 2^-53, as if it were evaluated directly. */
void exact_rope_prepare(const struct exact *x, const struct position_tables *p)
{
    const int half = x->d.q / 2;

    for (int t = 0; t < half; t++) {
        const double speed = pow(x->score->rope_base, -2 * (double)t / (double)x->d.q);
        const int    cos_at = x->score->rope_half ? t : 2 * t;
        const int    sin_at = x->score->rope_half ? t + half : 2 * t + 1;
        double       re[TILE], im[TILE];

        for (int i = 0; i < TILE; i++) {
            re[i] = cos((double)i * speed);
            im[i] = sin((double)i * speed);
        }
        for (int64_t i = 0; i < p->n_angles; i += TILE) {
            const double c = cos((double)i * speed), s = sin((double)i * speed);
            const int    n = (int)min64(TILE, p->n_angles - i);

            for (int r = 0; r < n; r++) {
                float *row = p->cos_sin + (i + r) * x->d.q;
                row[cos_at] = (float)(c * re[r] - s * im[r]);
                row[sin_at] = (float)(s * re[r] + c * im[r]);
            }
        }
    }
}

/* n rows at consecutive positions.  Angles of negative positions change their sign. */
static void rotate_run(const struct exact *x, float *rows, int64_t first, int n,
                       bool back)
{
    const struct position_tables *p = &x->position;
    const int                     before = (int)max64(0, min64(n, -first));
    const bool                    half = x->score->rope_half;

    if (before)
        x->k->rotate(rows, x->d.ldq, p->cos_sin - first * x->d.q, -x->d.q, before,
                     x->d.q, half, !back);
    if (before < n)
        x->k->rotate(rows + (int64_t)before * x->d.ldq, x->d.ldq,
                     p->cos_sin + (first + before) * x->d.q, x->d.q, n - before, x->d.q,
                     half, back);
}

void exact_rope(const struct exact *x, float *tile, int n, struct positions at,
                bool back)
{
    if (!at.list) {
        rotate_run(x, tile, at.first, n, back);
        return;
    }
    for (int i = 0; i < n; i++)
        rotate_run(x, tile + (int64_t)i * x->d.ldq, at.first + at.list[i], 1, back);
}
