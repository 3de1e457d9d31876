/* linear_pack.c -- operands of the linear engine's products: f32, or bf16 pairs. */
#include "engine/linear/linear_chunk.h"

enum { PAIRS = CHUNK / 2 }; /* pairs of a row of 64 lanes */

struct linear_operand_at linear_operand_at_carve(const struct linear *x, const float *f,
                                                 int64_t ld, int rows, int width,
                                                 struct arena *a)
{
    const int64_t n = x->bf16 ? div_up(rows, CHUNK) * PAIRS * width : 0;

    return (struct linear_operand_at){ f, ld, rows, width,
                                       arena_alloc(a, n, sizeof(uint32_t)) };
}

struct linear_operand_b linear_operand_b_carve(const struct linear *x, const float *f,
                                               int rows, struct arena *a)
{
    const int64_t n = x->bf16 ? div_up(rows, CHUNK) * PAIRS * CHUNK : 0;

    return (struct linear_operand_b){ f, rows, arena_alloc(a, n, sizeof(uint32_t)) };
}

struct linear_operand_a linear_operand_a_carve(const struct linear *x, const float *f,
                                               int rows, struct arena *a)
{
    const int64_t n = x->bf16 ? round_up(rows, CHUNK) * PAIRS : 0;

    return (struct linear_operand_a){ f, rows, arena_alloc(a, n, sizeof(uint32_t)) };
}

/* Rows of the block that starts at row `first`. */
static int block_rows(int rows, int first) { return (int)min64(CHUNK, rows - first); }

void linear_operand_at_pack(const struct linear *x, const struct linear_operand_at *s,
                            int n)
{
    for (int r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_sum_bf16(s->pairs + (int64_t)r / 2 * s->width, s->f + r * s->ld,
                            s->ld, (int)max64(0, min64(CHUNK, n - r)), s->width);
}

void linear_operand_b_pack(const struct linear *x, const struct linear_operand_b *s)
{
    for (int64_t r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_pairs_bf16(s->pairs + r / 2 * CHUNK, s->f + r * CHUNK, CHUNK,
                              block_rows(s->rows, (int)r), CHUNK);
}

void linear_operand_a_pack(const struct linear *x, const struct linear_operand_a *s)
{
    for (int64_t r = 0; x->bf16 && r < s->rows; r += CHUNK)
        x->k->pack_rows_bf16(s->pairs + r * PAIRS, s->f + r * CHUNK, CHUNK,
                             block_rows(s->rows, (int)r), CHUNK);
}

/* Strides of pairs in operand_at, which CPU levels with tiles store row by row. */
static int64_t row_step(const struct linear *x)
{
    return x->k->sum_by_rows ? PAIRS : 1;
}

static int64_t col_step(const struct linear *x, int width)
{
    return x->k->sum_by_rows ? 1 : width;
}

void linear_gemm_features(const struct linear *x, float *c,
                          const struct linear_operand_at *a, int i0, int m,
                          const struct linear_operand_b *b, int lane, int end, int add)
{
    if (!x->bf16) {
        x->k->gemm_f32(c, CHUNK, a->f + i0, 1, a->ld, b->f + lane, CHUNK, m, end - lane,
                       b->rows, add);
        return;
    }
    const int64_t row = row_step(x), col = col_step(x, a->width);
    for (int64_t r = 0; r < b->rows; r += CHUNK)
        x->k->gemm_bf16(c, CHUNK, a->pairs + r / 2 * a->width + i0 * row, row, col,
                        b->pairs + r / 2 * CHUNK + lane, CHUNK, m, end - lane,
                        block_rows(b->rows, (int)r) / 2, add || r);
}

void linear_gemm_values(const struct linear *x, float *ot,
                        const struct linear_operand_at *values, const void *w, int j,
                        int n, int lane, int end)
{
    if (!x->bf16) {
        x->k->gemm_f32(ot + lane, CHUNK, values->f + j * values->ld, 1, values->ld,
                       (const float *)w + (int64_t)j * CHUNK + lane, CHUNK, x->dv,
                       end - lane, n, 1);
        return;
    }
    const int64_t row = row_step(x), col = col_step(x, values->width);
    x->k->gemm_bf16(ot + lane, CHUNK, values->pairs + j / 2 * col, row, col,
                    (const uint32_t *)w + (int64_t)j / 2 * CHUNK + lane, CHUNK,
                    x->dv_pad, end - lane, n / 2, 1);
}
