/* pack.c -- operands of a product, laid out for the micro-kernels.
 *
 * Where a tile lies in one part, bf16 are copied as stored; otherwise its columns are first
 * assembled as floats from several parts.
 */
#include <string.h>

#include "product/inside.h"

struct product_piece piece_at(const struct matrix *m, int64_t c0, int64_t n)
{
    const struct product_part *part = m->parts;

    while (c0 >= part->cols)
        c0 -= part++->cols;
    return (struct product_piece){ part, c0, (int)min64(n, part->cols - c0) };
}

char *piece_row(const struct matrix *m, struct product_piece p, int64_t r)
{
    const int64_t at = r * p.part->ld + p.col;
    return (char *)p.part->data + at * (int64_t)foci_dtype_bytes(m->dtype);
}

enum { VECTOR = 16 };

/* Columns of floats are padded to whole vectors, with zeros. */
static int padded(int d) { return (int)round_up(d, VECTOR); }

static void zero_columns(float *out, int64_t ld, int n, int64_t from)
{
    for (int i = 0; i < n; i++)
        memset(out + i * ld + from, 0, (size_t)(ld - from) * sizeof *out);
}

/* out[n][ld], zero from d to ld. */
void load_cut(const struct kernels *k, const struct matrix *m, struct cut cut,
              float *out, int64_t ld, float *scratch)
{
    int done = 0;

    while (done < cut.d) {
        const struct product_piece p = piece_at(m, cut.col + done, cut.d - done);
        const char *const          in = piece_row(m, p, cut.row);
        const int                  wide = padded(p.cols);

        if (p.cols == cut.d) {
            k->load_rows(out, ld, in, p.part->ld, (int)m->dtype, cut.n, cut.d);
            return;
        }
        k->load_rows(scratch, wide, in, p.part->ld, (int)m->dtype, cut.n, p.cols);
        for (int i = 0; i < cut.n; i++)
            memcpy(out + i * ld + done, scratch + (int64_t)i * wide,
                   (size_t)p.cols * sizeof *out);
        done += p.cols;
    }
    zero_columns(out, ld, cut.n, cut.d);
}

/* Rows of bf16 that can be taken as they are stored; NULL: they cannot. */
static const uint16_t *stored(const struct matrix *m, struct cut cut, int64_t *ld)
{
    const struct product_piece p = piece_at(m, cut.col, cut.d);

    if (m->dtype != FOCI_BF16 || p.cols != cut.d) return NULL;
    *ld = p.part->ld;
    return (const uint16_t *)(const void *)piece_row(m, p, cut.row);
}

/*
 * b
 */

static void pack_plain_pairs(const struct packing *x, struct cut cut, uint32_t *out,
                             const struct scratch *r)
{
    int64_t               ld = 0;
    const uint16_t *const in = stored(&x->p->b, cut, &ld);

    if (in) {
        x->k->pack_sum_from_bf16(out, in, ld, cut.n, cut.d, TILE);
        return;
    }
    load_cut(x->k, &x->p->b, cut, r->tile, TILE, r->piece);
    x->k->pack_pairs_bf16(out, r->tile, TILE, cut.n, TILE);
}

/* A whole tile of floats, on the boundaries that packing asks for; NULL: it is not. */
static const float *whole_tile(const struct matrix *m, struct cut cut, int64_t *ld)
{
    const struct product_piece p = piece_at(m, cut.col, cut.d);
    const char *const          at = piece_row(m, p, cut.row);

    if (m->dtype != FOCI_F32 || cut.n < TILE || p.cols < TILE) return NULL;
    if ((uintptr_t)at % TILE || p.part->ld % VECTOR) return NULL;
    *ld = p.part->ld;
    return (const float *)(const void *)at;
}

static void pack_transposed_floats(const struct packing *x, struct cut cut, float *out,
                                   const struct scratch *r)
{
    int64_t      ld = TILE;
    const float *in = whole_tile(&x->p->b, cut, &ld);

    if (!in) {
        load_cut(x->k, &x->p->b, cut, r->tile, TILE, r->piece);
        in = r->tile;
    }
    x->k->pack_cols_f32(out, in, ld, cut.n, TILE);
}

static void pack_transposed_pairs(const struct packing *x, struct cut cut,
                                  uint32_t *out, const struct scratch *r)
{
    int64_t               ld = 0;
    const uint16_t *const in = stored(&x->p->b, cut, &ld);

    if (in) {
        x->k->pack_cols_from_bf16(out, in, ld, cut.n, cut.d, TILE);
        return;
    }
    const float *whole = whole_tile(&x->p->b, cut, &ld);
    if (!whole) {
        ld = TILE;
        load_cut(x->k, &x->p->b, cut, r->tile, ld, r->piece);
        whole = r->tile;
    }
    x->k->pack_cols_bf16(out, whole, ld, cut.n, TILE);
}

void pack_b(const struct packing *x, int64_t panel, int64_t tile,
            const struct scratch *r)
{
    const struct product *p = x->p;
    const struct cols     cols = cols_at(p, panel, TILE);
    const int64_t         t0 = tile * TILE;
    const int             terms = (int)min64(TILE, p->k - t0);
    char *const      out = x->b + (size_t)(panel * x->tiles + tile) * x->tile_bytes;
    const struct cut plain = { x->term0 + t0, cols.at, terms, cols.n };
    const struct cut transposed = { cols.at, t0, cols.n, terms };

    if (x->bf16 && p->b.transposed) {
        pack_transposed_pairs(x, transposed, (uint32_t *)(void *)out, r);
    } else if (x->bf16) {
        pack_plain_pairs(x, plain, (uint32_t *)(void *)out, r);
    } else if (p->b.transposed) {
        pack_transposed_floats(x, transposed, (float *)(void *)out, r);
    } else {
        load_cut(x->k, &p->b, plain, (float *)(void *)out, TILE, r->piece);
    }
}

/*
 * a
 */

/* Rows of bf16 pairs, `wide` columns of them. */
static struct left_operand plain_pairs(const struct packing *x, struct cut cut,
                                       const struct scratch *r)
{
    const struct matrix *a = &x->p->a;
    const int            m = cut.n, wide = (int)round_up(cut.d, x->k->depth);
    uint32_t            *out = (uint32_t *)(void *)r->a;

    for (int i = 0; i < m;
         i += TILE, cut.row += TILE, out += (ptrdiff_t)wide * TILE / 2) {
        int64_t ld = 0;

        cut.n = (int)min64(TILE, m - i);
        const uint16_t *const in = stored(a, cut, &ld);
        if (in) {
            x->k->pack_rows_from_bf16(out, in, ld, cut.n, cut.d, wide);
        } else {
            load_cut(x->k, a, cut, r->tile, padded(cut.d), r->piece);
            x->k->pack_rows_bf16(out, r->tile, padded(cut.d), cut.n, wide);
        }
    }
    return (struct left_operand){ r->a, wide / 2, 1 };
}

/* Pairs of rows that are terms of the sum, 64 terms at a time. */
static struct left_operand transposed_pairs(const struct packing *x, struct cut cut,
                                            const struct scratch *r)
{
    enum { WHOLE = 32 }; /* columns, of every level */
    const struct matrix *a = &x->p->a;
    const int            terms = cut.n, wide = (int)round_up(cut.d, WHOLE);
    uint32_t            *out = (uint32_t *)(void *)r->a;

    for (int t = 0; t < terms;
         t += TILE, cut.row += TILE, out += (ptrdiff_t)wide * TILE / 2) {
        int64_t ld = 0;

        cut.n = (int)min64(TILE, terms - t);
        const uint16_t *const in = stored(a, cut, &ld);
        if (in) {
            x->k->pack_sum_from_bf16(out, in, ld, cut.n, cut.d, wide);
        } else {
            load_cut(x->k, a, cut, r->tile, wide, r->piece);
            x->k->pack_sum_bf16(out, r->tile, wide, cut.n, wide);
        }
    }
    return (struct left_operand){ r->a, 1, wide };
}

/* Floats from row to row, 16 KiB, at which the rows of a block meet in an eighth of the
 * sets of the second-level cache and leave no place there for b. */
enum { FAR = 4096 };

/* Rows that the micro-kernels can read where they are: whole pairs, and all terms that a
 * level wants. */
static bool in_place(const struct packing *x, struct cut cut, struct left_operand *left)
{
    const struct matrix       *a = &x->p->a;
    const struct product_piece p = piece_at(a, cut.col, cut.d);
    const char *const          at = piece_row(a, p, cut.row);
    const foci_dtype           needs = x->bf16 ? FOCI_BF16 : FOCI_F32;

    if (a->transposed || a->dtype != needs || p.cols != cut.d) return false;
    if ((uintptr_t)at % sizeof(float)) return false;
    if (!x->bf16 && x->large && p.part->ld % FAR == 0) return false;
    *left = (struct left_operand){ at, p.part->ld / (x->bf16 ? 2 : 1), 1 };
    return !x->bf16 || (p.part->ld % 2 == 0 && cut.d % x->k->depth == 0);
}

struct left_operand pack_a(const struct packing *x, int64_t i0, int m, int64_t t0,
                           int terms, const struct scratch *r)
{
    const struct matrix *a = &x->p->a;
    const struct cut     plain = { i0, t0, m, terms };
    const struct cut     transposed = { x->term0 + t0, i0, terms, m };
    struct left_operand  left;

    if (!a->transposed && in_place(x, plain, &left)) return left;

    if (x->bf16)
        return a->transposed ? transposed_pairs(x, transposed, r)
                             : plain_pairs(x, plain, r);

    const struct cut cut = a->transposed ? transposed : plain;
    const int64_t    ld = padded(cut.d);

    load_cut(x->k, a, cut, (float *)(void *)r->a, ld, r->piece);
    return a->transposed ? (struct left_operand){ r->a, 1, ld }
                         : (struct left_operand){ r->a, ld, 1 };
}
