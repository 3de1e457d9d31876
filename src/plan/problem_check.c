/* problem_check.c -- checks of a problem, and the defaults of fields that are 0. */
#include <inttypes.h>
#include <string.h>

#include "plan/layout.h"
#include "plan/plan.h"

enum {
    FLAGS = FOCI_FLAG_CAUSAL | FOCI_FLAG_TRAIN | FOCI_FLAG_FAST | FOCI_FLAG_MASK |
            FOCI_FLAG_BIAS | FOCI_FLAG_MEMORY_GRADS
};

static foci_status check_range(foci_ctx *ctx, const char *name, int64_t value,
                               int64_t min, int64_t max)
{
    if (value >= min && value <= max) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "%s is %" PRId64 ": it may be %" PRId64 " to %" PRId64, name, value,
                    min, max);
}

/* Fill in the layout of a tensor, and see that no offset overflows and that what was filled
 * in keeps rows apart. */
static foci_status check_layout(foci_ctx *ctx, const char *name, foci_layout *l,
                                struct extents e)
{
    const foci_layout given = *l;
    const int64_t     step[] = { l->batch, l->row, l->head };
    const char *const axes[] = { "batch", "row", "head" };
    bool              filled = false;

    for (int a = 0; a < 3; a++) {
        if (step[a] < 0 && step[a] != FOCI_BROADCAST)
            return ctx_fail(ctx, FOCI_ERR_ARG,
                            "%s.%s is %" PRId64 ": a stride is 1 or more, 0 to have it "
                            "filled in, or FOCI_BROADCAST",
                            name, axes[a], step[a]);
        filled |= !step[a];
    }
    if (!layout_fill(l, e))
        return ctx_fail(ctx, FOCI_ERR_ARG, "%s: its size overflows", name);
    if (given.batch == FOCI_BROADCAST) e.batch = 1;
    if (given.row == FOCI_BROADCAST) e.len = 1;
    if (given.head == FOCI_BROADCAST) e.heads = 1;
    if (!filled || !layout_overlaps(l, e)) return FOCI_OK;
    return ctx_fail(
        ctx, FOCI_ERR_ARG,
        "%s: with strides %" PRId64 ", %" PRId64 ", %" PRId64
        " of batch, row and head, of which those left 0 were filled in, its "
        "rows overlap: give all three%s",
        name, l->batch, l->row, l->head,
        strcmp(name, "o") ? ", or FOCI_BROADCAST where they are the same row" : "");
}

/* Rows of the output each have a place. */
static foci_status check_output(foci_ctx *ctx, const foci_problem *p)
{
    if (!layout_overlaps(&p->o, extents_o(p))) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG,
                    "o: with strides %" PRId64 ", %" PRId64 ", %" PRId64
                    " of batch, row and head its rows overlap",
                    p->o.batch, p->o.row, p->o.head);
}

static foci_status check_mask_extent(foci_ctx *ctx, const char *name, int64_t *value,
                                     int64_t full)
{
    if (*value == 0) *value = 1;
    if (*value == 1 || *value == full) return FOCI_OK;
    return ctx_fail(ctx, FOCI_ERR_ARG, "%s is %" PRId64 ": it may be 1 or %" PRId64,
                    name, *value, full);
}

/* Layouts with strides of 0 bound neither the rows of all heads and sequences, each
 * of which has a sum, nor the pairs of a given mask. */
static foci_status check_sizes(foci_ctx *ctx, const foci_problem *p)
{
    const int64_t heads = p->batch * p->heads, len = max64(p->len_q, p->len_k);
    const int64_t masks = p->mask_batch * p->mask_heads;
    int64_t       rows, pairs;

    if (__builtin_mul_overflow(heads, len + (int64_t)2 * FOCI_TILE, &rows) ||
        rows > INT64_MAX / 64)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "batch, heads and length together have more rows than can be "
                        "counted");
    if (!(p->flags & (FOCI_FLAG_MASK | FOCI_FLAG_BIAS))) return FOCI_OK;
    if (__builtin_mul_overflow(masks, p->len_q, &pairs) ||
        __builtin_mul_overflow(pairs, p->len_k, &pairs) || pairs > INT64_MAX / 16)
        return ctx_fail(ctx, FOCI_ERR_ARG, "mask and bias: their size overflows");
    return FOCI_OK;
}

/* What can be said before the spec is known. */
static foci_status check_numbers(foci_ctx *ctx, foci_problem *p)
{
    if ((unsigned)p->dtype > FOCI_F16)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "dtype is %d: it may be FOCI_F32, FOCI_BF16 or FOCI_F16",
                        (int)p->dtype);
    if (p->flags & ~(uint32_t)FLAGS)
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "flags 0x%" PRIx32
                        " has bits that mean nothing: 0x%x are known",
                        p->flags, (unsigned)FLAGS);
    if (!p->batch) p->batch = 1;
    if (!p->heads) p->heads = 1;
    if (!p->len_k) p->len_k = p->len_q;
    if (!p->dim_v) p->dim_v = p->dim_qk;
    TRY(check_range(ctx, "batch", p->batch, 1, INT32_MAX));
    TRY(check_range(ctx, "heads", p->heads, 1, 65536));
    TRY(check_range(ctx, "len_q", p->len_q, 1, MAX_LEN));
    TRY(check_range(ctx, "len_k", p->len_k, 1, MAX_LEN));
    TRY(check_range(ctx, "dim_qk", p->dim_qk, 1, 65536));
    TRY(check_range(ctx, "dim_v", p->dim_v, 1, 65536));
    TRY(check_range(ctx, "dim_x", p->dim_x, 0, 1 << 24));
    TRY(check_range(ctx, "memory", p->memory, 0, p->len_k));
    TRY(check_range(ctx, "max_docs", p->max_docs, 0, INT32_MAX));
    if (p->max_docs && (p->batch != 1 || p->len_q != p->len_k))
        return ctx_fail(
            ctx, FOCI_ERR_ARG,
            "packed documents need batch 1 and len_q = len_k; seen batch %" PRId64
            ", %" PRId64 " and %" PRId64,
            p->batch, p->len_q, p->len_k);
    if ((p->max_docs || p->flags & (FOCI_FLAG_MASK | FOCI_FLAG_BIAS)) &&
        (p->len_q > INT32_MAX || p->len_k > INT32_MAX))
        return ctx_fail(ctx, FOCI_ERR_ARG,
                        "documents, masks and biases go up to 2147483647 rows");
    if (!(p->dropout >= 0 && p->dropout < 1))
        return ctx_fail(ctx, FOCI_ERR_ARG, "dropout is %g: it may be 0 to less than 1",
                        p->dropout);
    if (p->n_lists < 0 || (p->n_lists && !p->lists))
        return ctx_fail(ctx, FOCI_ERR_ARG, "n_lists is %" PRId64 ", lists is %s",
                        p->n_lists, p->lists ? "given" : "NULL");
    return FOCI_OK;
}

foci_status problem_copy(foci_ctx *ctx, const foci_problem *problem, foci_problem *p)
{
    TRY(sized_in(ctx, "foci_problem", p, problem, sizeof *p));
    return check_numbers(ctx, p);
}

foci_status problem_complete(foci_ctx *ctx, foci_problem *p)
{
    TRY(check_mask_extent(ctx, "mask_batch", &p->mask_batch, p->batch));
    TRY(check_mask_extent(ctx, "mask_heads", &p->mask_heads, p->heads));
    TRY(check_sizes(ctx, p));
    TRY(check_layout(ctx, "q", &p->q, extents_q(p)));
    TRY(check_layout(ctx, "k", &p->k, extents_k(p)));
    TRY(check_layout(ctx, "v", &p->v, extents_v(p)));
    TRY(check_layout(ctx, "x", &p->x, extents_x(p)));
    TRY(check_layout(ctx, "o", &p->o, extents_o(p)));
    return check_output(ctx, p);
}
