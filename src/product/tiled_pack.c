/* tiled_pack.c -- operands of a product in tile order. */
#include <string.h>

#include "product/tiled.h"

/* All parts begin and end on multiples of n columns. */
static bool parts_are_multiples(const struct matrix *m, int64_t n)
{
    for (int i = 0; i < m->n_parts; i++)
        if (m->parts[i].cols % n) return false;
    return true;
}

/*
 * b
 */

/* As it is stored: f32 or bf16, a strip or a step in one part. */
static bool b_is_regular(const struct matrix *b)
{
    if (b->dtype != FOCI_F32 && b->dtype != FOCI_BF16) return false;
    return b->n_parts == 1 || parts_are_multiples(b, TILE_STRIP);
}

/* Strips of neighbouring columns, from c to end, of one step; the rows are terms. */
static void pack_cols(const struct tiled *x, int64_t row, int64_t c, int64_t end,
                      uint32_t *out, int64_t ld_out, const struct tiled_scratch *r)
{
    enum { MOST = MOST_STEPS * TILE_DEPTH }; /* columns of floats */
    const struct product *p = x->p;
    const int             terms = (int)min64(TILE_DEPTH, p->k - row);
    const bool            regular = b_is_regular(&p->b);

    for (int64_t cols; c < end; c += cols, out += div_up(cols, TILE_STRIP) * ld_out) {
        if (regular) {
            const struct product_piece b = piece_at(&p->b, c, end - c);
            cols = b.cols;
            x->k->tile_pairs(out, ld_out, piece_row(&p->b, b, row), b.part->ld,
                             (int)p->b.dtype, terms, b.cols);
        } else {
            cols = min64(MOST, end - c);
            const int64_t ld = round_up(cols, 16);
            load_cut(x->k, &p->b, (struct cut){ row, c, terms, (int)cols }, r->tile, ld,
                     r->piece);
            x->k->tile_pairs(out, ld_out, r->tile, ld, FOCI_F32, terms, (int)cols);
        }
    }
}

/* One step of all strips. */
static void pack_step(const struct tiled *x, struct tiled_span s, int t, uint32_t *out,
                      const struct tiled_scratch *r)
{
    const struct product *p = x->p;
    const int64_t         row = (s.step + t) * TILE_DEPTH;
    const int64_t         ld_out = (int64_t)s.steps * TILE_PAIR_SIZE;

    out += (int64_t)t * TILE_PAIR_SIZE;
    if (!gates(p)) {
        const int64_t end = min64(p->n, (s.strip + s.strips) * TILE_STRIP);
        pack_cols(x, row, s.strip * TILE_STRIP, end, out, ld_out, r);
        return;
    }
    for (int i = 0; i < s.strips; i++, out += ld_out) {
        const struct cols cols = cols_at(p, s.strip + i, TILE_STRIP);
        pack_cols(x, row, cols.at, cols.at + cols.n, out, ld_out, r);
    }
}

/* All steps of one strip, the rows being columns. */
static void pack_strip(const struct tiled *x, struct tiled_span s, int i, uint32_t *out,
                       const struct tiled_scratch *r)
{
    const struct product *p = x->p;
    const struct cols     strip = cols_at(p, s.strip + i, TILE_STRIP);
    const int64_t         row = strip.at;
    const int             cols = strip.n;
    const int64_t         from = s.step * TILE_DEPTH;
    const int64_t         end = min64(p->k, from + (int64_t)s.steps * TILE_DEPTH);

    out += (int64_t)i * s.steps * TILE_PAIR_SIZE;
    if (!b_is_regular(&p->b)) {
        const int64_t ld = round_up(end - from, 16);
        load_cut(x->k, &p->b, (struct cut){ row, from, cols, (int)(end - from) },
                 r->tile, ld, r->piece);
        x->k->tile_strip(out, r->tile, ld, FOCI_F32, cols, (int)(end - from));
        return;
    }
    for (int64_t t = from; t < end;) {
        const struct product_piece b = piece_at(&p->b, t, end - t);

        x->k->tile_strip(out + (t - from) / TILE_DEPTH * TILE_PAIR_SIZE,
                         piece_row(&p->b, b, row), b.part->ld, (int)p->b.dtype, cols,
                         b.cols);
        t += b.cols;
    }
}

int tiled_parts(const struct tiled *x, struct tiled_span s)
{
    return x->p->b.transposed ? s.strips : s.steps;
}

void tiled_pack_part(const struct tiled *x, struct tiled_span s, int part,
                     uint32_t *out, const struct tiled_scratch *r)
{
    if (x->p->b.transposed)
        pack_strip(x, s, part, out, r);
    else
        pack_step(x, s, part, out, r);
}

/*
 * a
 */

bool tiled_sources(struct tiled *x)
{
    const struct matrix *a = &x->p->a;

    for (int64_t t = 0; a->transposed && t < x->steps; t++)
        x->sources[t] = (struct tile_source){ x->transpose + t * TILE_DEPTH, x->ld };
    if (a->transposed) return true;
    if (a->dtype != FOCI_BF16 || x->p->k % TILE_DEPTH) return false;
    if (!parts_are_multiples(a, TILE_DEPTH)) return false;
    for (int64_t t = 0; t < x->steps; t++) {
        const struct product_piece p = piece_at(a, t * TILE_DEPTH, TILE_DEPTH);
        x->sources[t] =
            (struct tile_source){ (const uint16_t *)(const void *)piece_row(a, p, 0),
                                  p.part->ld };
    }
    return true;
}

/* Lines of 64 bytes, rows of the one and of the other so many elements apart. */
static void copy_lines(uint16_t *out, int64_t ld_out, const uint16_t *in, int64_t ld,
                       int rows)
{
    for (int i = 0; i < rows; i++)
        memcpy(out + i * ld_out, in + i * ld, TILE_DEPTH * sizeof *out);
}

/* By way of floats. */
static void panel_of_rows(const struct tiled *x, const struct tile_panel *to,
                          struct cut cut, const struct tiled_scratch *r)
{
    const int       wide = to->steps * TILE_DEPTH;
    uint32_t *const pairs = (uint32_t *)(void *)r->piece;

    load_cut(x->k, &x->p->a, cut, r->tile, wide, r->piece);
    x->k->pack_rows_bf16(pairs, r->tile, wide, cut.n, wide);
    for (int t = 0; t < to->steps; t++)
        copy_lines(to->out + (ptrdiff_t)t * to->rows * TILE_DEPTH, TILE_DEPTH,
                   (const uint16_t *)(const void *)pairs + (ptrdiff_t)t * TILE_DEPTH,
                   wide, to->rows);
}

struct tile_panel tiled_panel(const struct tiled *x, int64_t i0, int valid, int64_t step,
                              int steps, uint16_t *out, const struct tiled_scratch *r)
{
    const int64_t           term = step * TILE_DEPTH;
    const struct tile_panel p = { .out = out,
                                  .from = x->sources + step,
                                  .row = i0,
                                  .rows = (int)round_up(valid, 16),
                                  .valid = valid,
                                  .steps = steps };

    if (x->direct || !steps) return p;
    const int terms = (int)min64((int64_t)steps * TILE_DEPTH, x->p->k - term);
    panel_of_rows(x, &p, (struct cut){ i0, term, valid, terms }, r);
    return p;
}

/* Columns and terms of a job: of both so many that neither reads nor writes are short. */
enum { TRANSPOSE_COLS = 2 * TILE, TRANSPOSE_TERMS = 4 * TILE };

int64_t tiled_transposes(const struct tiled *x)
{
    if (!x->p->a.transposed) return 0;
    return div_up(x->p->m, TRANSPOSE_COLS) * div_up(x->p->k, TRANSPOSE_TERMS);
}

/* At most 64 by 64, by way of floats. */
static void transpose_floats(const struct tiled *x, struct cut cut, uint16_t *out,
                             const struct tiled_scratch *r)
{
    uint32_t *const pairs = (uint32_t *)(void *)r->piece;

    load_cut(x->k, &x->p->a, cut, r->tile, TILE, r->piece);
    x->k->pack_sum_bf16(pairs, r->tile, TILE, cut.n, TILE);
    for (int t = 0; t < cut.n; t += TILE_DEPTH)
        copy_lines(out + t, x->ld, (const uint16_t *)(const void *)pairs + t, TILE,
                   cut.d);
}

static void transpose_stored(const struct tiled *x, struct cut cut, uint16_t *out)
{
    const struct matrix *a = &x->p->a;

    for (int done = 0; done < cut.d;) {
        const struct product_piece p = piece_at(a, cut.col + done, cut.d - done);

        x->k->transpose_bf16(out + done * x->ld, x->ld,
                             (const uint16_t *)(const void *)piece_row(a, p, cut.row),
                             p.part->ld, cut.n, p.cols);
        done += p.cols;
    }
}

void tiled_transpose(const struct tiled *x, int64_t job, const struct tiled_scratch *r)
{
    const struct product *p = x->p;
    const int64_t         across = div_up(p->m, TRANSPOSE_COLS);
    const int64_t         c0 = job % across * TRANSPOSE_COLS,
                  t0 = job / across * TRANSPOSE_TERMS;
    const int64_t c1 = min64(p->m, c0 + TRANSPOSE_COLS);
    const int64_t t1 = min64(p->k, t0 + TRANSPOSE_TERMS);
    const bool    stored =
        p->a.dtype == FOCI_BF16 && parts_are_multiples(&p->a, TILE_UNIT);
    const int64_t wide = stored ? TRANSPOSE_COLS : TILE,
                  high = stored ? TILE_DEPTH : TILE;

    for (int64_t t = t0; t < t1; t += high)
        for (int64_t c = c0; c < c1; c += wide) {
            const struct cut cut = { t, c, (int)min64(high, t1 - t),
                                     (int)min64(wide, c1 - c) };
            uint16_t *const  out = x->transpose + c * x->ld + t;

            if (stored)
                transpose_stored(x, cut, out);
            else
                transpose_floats(x, cut, out, r);
        }
}
