/* exact_product.c -- where the first operands of products are: in the caller's tensors,
 * or packed. */
#include "engine/exact/exact_map.h"

/* Floats are read in place where rows are contiguous.  Rows at a larger distance would
 * compete for the same sets of the cache. */
static bool in_place(const struct exact *x, const foci_layout *l, int d)
{
    return !x->bf16 && x->p->dtype == FOCI_F32 && l->row == d;
}

bool exact_keys_in_place(const struct exact *x)
{
    return in_place(x, &x->p->k, x->d.q) && !exact_has_map(x) && !x->stage->n_levels;
}

bool exact_values_in_place(const struct exact *x)
{
    return in_place(x, &x->p->v, x->d.v) && !x->stage->n_levels;
}

static const char *packed_tile(const struct exact *x, const char *base, size_t size,
                               const struct exact_seq *s, int64_t kv, int64_t t)
{
    return base + (size_t)(kv * x->max.kt + s->kt0 + t) * size;
}

/* Rows of a tile in the caller's tensor. */
static const char *input_rows(const struct exact *x, const void *base,
                              const foci_layout *l, const struct exact_seq *s,
                              int64_t kv, int64_t t)
{
    return (const char *)((const float *)base + s->s.b * l->batch +
                          (s->s.k0 + t * TILE) * l->row +
                          exact_input_head(x, kv) * l->head);
}

struct operand exact_keys(const struct exact *x, const struct exact_seq *s, int64_t kv,
                          int64_t t)
{
    if (!x->packed.keys)
        return (struct operand){ input_rows(x, x->io->k, &x->p->k, s, kv, t),
                                 x->p->k.row, 1 };
    return (
        struct operand){ packed_tile(x, x->packed.keys, x->packed.key_bytes, s, kv, t),
                         x->bf16 ? x->d.q_pad / 2 : x->d.ldq, 1 };
}

struct operand exact_values(const struct exact *x, const struct exact_seq *s,
                            int64_t kv, int64_t t)
{
    if (!x->packed.values)
        return (struct operand){ input_rows(x, x->io->v, &x->p->v, s, kv, t),
                                 x->p->v.row, 1 };
    return (struct operand){ packed_tile(x, x->packed.values, x->packed.value_bytes, s,
                                         kv, t),
                             x->bf16 ? x->d.v_pad / 2 : x->d.ldv, 1 };
}

/* Floats are summed over rows by exchanging the strides; bf16 pairs are packed for it. */
static struct operand transposed(struct operand a)
{
    return (struct operand){ a.at, a.col, a.row };
}

struct operand exact_sum_operand(const struct exact *x, const char *at, int d_pad)
{
    return x->k->sum_by_rows ? (struct operand){ at, TILE / 2, 1 }
                             : (struct operand){ at, 1, d_pad };
}

struct operand exact_keys_sum(const struct exact *x, const struct exact_seq *s,
                              int64_t kv, int64_t t)
{
    if (!x->bf16) return transposed(exact_keys(x, s, kv, t));
    return exact_sum_operand(
        x, packed_tile(x, x->packed.keys_sum, x->packed.key_bytes, s, kv, t),
        x->d.q_pad);
}

struct operand exact_values_sum(const struct exact *x, const struct exact_seq *s,
                                int64_t kv, int64_t t)
{
    if (!x->bf16) return transposed(exact_values(x, s, kv, t));
    return exact_sum_operand(
        x, packed_tile(x, x->packed.values_sum, x->packed.value_bytes, s, kv, t),
        x->d.v_pad);
}
