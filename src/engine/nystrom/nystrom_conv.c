/* nystrom_conv.c -- a convolution of the values with the taps of a head.
 *
 *     o_i += sum over t of W[t] v_(i + t - left),   left = width / 2
 *
 * In bands of a few rows it is a product with a matrix whose rows are the taps, each a
 * place further on, which read the same array with a step of -1.
 */
#include "engine/nystrom/nystrom.h"

#include <string.h>

/* Rows from `first` on of values or of gradients, `n` of them and zeros where there are
 * none, in r->window. */
static void load_near(const struct nystrom *x, const struct nystrom_seq *s,
                      int64_t head, bool values, int64_t first, int64_t n,
                      const struct nystrom_scratch *r)
{
    const void        *base = values ? x->io->v : x->g->d_o;
    const foci_layout *l = values ? &x->p->v : &x->p->o;
    const int64_t      start = values ? s->s.k0 : s->s.q0;
    const int64_t      rows = values ? s->s.nk : s->s.nq;
    const int64_t      begin = max64(first, 0), end = min64(first + n, rows);

    memset(r->window, 0, (size_t)(n * x->ldv) * sizeof *r->window);
    if (begin < end)
        nystrom_load(x, base, l, s->s.b, start + begin, head, (int)(end - begin), x->dv,
                     x->ldv, r->window + (begin - first) * x->ldv);
}

static const float *taps_of(const struct nystrom *x, int64_t h)
{
    return x->taps + h * nystrom_taps(x) + NYSTROM_BAND;
}

/* rows[n] += sums of r->window; the taps are passed upward, or downward. */
static void add_bands(const struct nystrom *x, int64_t h, int n, bool upward,
                      float *rows, const struct nystrom_scratch *r)
{
    const int    width = (int)x->l.width;
    const float *taps = upward ? taps_of(x, h) : taps_of(x, h) + width - 1;

    for (int i = 0; i < n; i += NYSTROM_BAND) {
        const int m = (int)min64(NYSTROM_BAND, n - i);
        x->k->gemm_f32(rows + (int64_t)i * x->ldv, x->ldv, taps, upward ? -1 : 1,
                       upward ? 1 : -1, r->window + (int64_t)i * x->ldv, x->ldv, m,
                       x->ldv, m + width - 1, 1);
    }
}

void nystrom_conv(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                  int64_t i, int n, float *rows, struct nystrom_scratch *r)
{
    load_near(x, s, x->kv0 + h / x->per_kv, true, i - x->l.width / 2,
              n + x->l.width - 1, r);
    add_bands(x, h, n, true, rows, r);
}

void nystrom_conv_dv(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t j, int n, float *rows, struct nystrom_scratch *r)
{
    load_near(x, s, x->head0 + h, false, j + x->l.width / 2 - (x->l.width - 1),
              n + x->l.width - 1, r);
    add_bands(x, h, n, false, rows, r);
}

/* Dots of the gradients of 64 queries with the values near them; those of a tap lie on
 * a diagonal. */
void nystrom_conv_dw(const struct nystrom *x, const struct nystrom_seq *s, int64_t h,
                     int64_t i, double *dw, struct nystrom_scratch *r)
{
    const int64_t width = x->l.width, n = LANES + width - 1;

    load_near(x, s, x->kv0 + h / x->per_kv, true, i - width / 2, n, r);
    for (int64_t j = 0; j < n; j += LANES) {
        _Alignas(64) float sums[2 * LANES] = { 0 };
        const int          m = (int)min64(LANES, n - j);

        x->k->gemm_f32(r->s, LANES, r->window + j * x->ldv, x->ldv, 1, r->gt, LANES, m,
                       LANES, x->dv, 0);
        x->k->diagonals(sums, r->s, FOCI_F32, m, ~UINT64_C(0));
        for (int64_t t = max64(0, j - LANES + 1); t < min64(width, j + LANES); t++)
            dw[t] += (double)sums[LANES + j - t];
    }
}
