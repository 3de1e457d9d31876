/* product.h -- products of matrices, as layers compute their projections, with what follows
 * them done while the result is in the cache, and their gradients. */
#ifndef FOCI_PUBLIC_PRODUCT_H
#define FOCI_PUBLIC_PRODUCT_H

#include "foci/foci.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Activations, element by element. */
typedef enum foci_act {
    FOCI_ACT_NONE,      /* x */
    FOCI_ACT_RELU,      /* max(x, 0) */
    FOCI_ACT_GELU,      /* x (1 + erf(x / sqrt 2)) / 2 */
    FOCI_ACT_GELU_TANH, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    FOCI_ACT_SILU       /* x / (1 + e^-x) */
} foci_act;

/* How a product is taken. */
enum {
    FOCI_PRODUCT_TRANSPOSE_A = 1 << 0, /* a is stored as [k][m] */
    FOCI_PRODUCT_TRANSPOSE_B = 1 << 1, /* b is stored as [n][k] */
    FOCI_PRODUCT_ADD = 1 << 2,         /* c += a b, c being f32; nothing follows */
    FOCI_PRODUCT_FAST = 1 << 3,        /* bf16 products, also where a is f32 */
    FOCI_PRODUCT_GATED = 1 << 4        /* b has 2 n columns, and the bias 2 n entries:
                                        * c = residual + drop(act(g) * u) with
                                        * [g, u] = a b + bias, g and u of n columns each */
};

/* c [m][n] = residual + drop(act(a b + bias)), a [m][k], b [k][n].  Rows may be further
 * apart than they are long; tensors may lie anywhere, and c overlaps neither a nor b nor
 * pre.  Where a is bf16 or f16, and with FOCI_PRODUCT_FAST, both factors are rounded to bf16
 * if the CPU multiplies these faster; sums are f32 and do not depend on the number of
 * threads.  The epilogue (bias to residual) is computed in f32 from sums that are not rounded.
 *
 * Dropout of element (i, j) after the activation follows docs/random.md, operations, by
 * dropout_seed, i and j; elements that stay are divided by 1 - dropout. */
typedef struct foci_product_io {
    size_t  size;
    int64_t m, n, k; /* extents; with m or n 0 there is nothing to do, k 0 sums to 0 */
    const void *a, *b;                  /* must be given */
    void       *c;                      /* must be given */
    foci_dtype  type_a, type_b, type_c; /* 0: FOCI_F32 */
    int64_t     ld_a, ld_b, ld_c; /* elements from row to row as stored; 0: packed */
    uint32_t    flags;            /* FOCI_PRODUCT_ADD and so on; 0: none */
    void       *work; /* 64-byte aligned scratch, foci_product_work_bytes() */
    /* The epilogue, not with FOCI_PRODUCT_ADD. */
    const float *bias; /* [n]; NULL: none */
    foci_act     act;  /* 0: FOCI_ACT_NONE */
    void *pre; /* [m][n] of type_c, with FOCI_PRODUCT_GATED [m][2 n]: a b + bias is
                       * stored here for backward; NULL: not wanted */
    const void *residual;            /* [m][n] of type_c, may be c; NULL: nothing */
    int64_t     ld_pre, ld_residual; /* 0: packed */
    double      dropout; /* share of the elements that are dropped, below 1; 0: none */
    uint64_t    dropout_seed; /* read where there is dropout; 0 is a seed like others */
    const void *packed; /* b by foci_product_pack(); NULL: it is packed by each product */
} foci_product_io;

/* Bytes of `work`, from extents, types and flags; SIZE_MAX: the product is refused. */
FOCI_API size_t foci_product_work_bytes(const foci_ctx *ctx, const foci_product_io *io);

/* For several products with the same b: b in the layout that kernels read, for any m.  Of io
 * are read b, its type and ld, n, k, type_a, flags and work; `packed` is 64-byte aligned.
 * 0 bytes: there is nothing to pack on this CPU level, and `packed` stays NULL. */
FOCI_API size_t foci_product_pack_bytes(const foci_ctx *ctx, const foci_product_io *io);
FOCI_API foci_status foci_product_pack(foci_ctx *ctx, const foci_product_io *io,
                                       void *packed);

/* Multiply, with the threads of ctx.  Allocates nothing. */
FOCI_API foci_status foci_product(foci_ctx *ctx, const foci_product_io *io);

/* The gradients of a product, from that of c.  With dz the gradient of a b + bias,
 *
 *     da = da_more + dz b^T      db += a^T dz      dbias += sums of the rows of dz
 *
 * where sums over rows are f32 and do not depend on the number of threads.  The gradient
 * of the residual is dc itself.
 *
 * If a is the output of an activation, a = drop(act_a(pre_a)), the same pass can give the
 * gradient of pre_a in place of da; the backward call of the product that made a then sets
 * dc_is_dz. */
typedef struct foci_product_grads {
    size_t      size;
    const void *dc; /* [m][n] of type_c; with dc_is_dz and FOCI_PRODUCT_GATED [m][2 n] */
    int         dc_is_dz; /* 1: dc is already dz, the gradient of a b + bias */
    void       *da; /* [m][k] of type_a, with gated_a [m][2 k]; overlaps no operand but
                     * da_more; NULL: not wanted */
    const void *da_more; /* [m][k] of type_a, laid out as da; may be da; NULL: nothing */
    float      *db;      /* as b is stored, packed or ld_db apart; NULL: not wanted */
    float      *dbias;   /* [n], gated [2 n]; NULL: not wanted */
    int64_t     ld_dc, ld_da, ld_db; /* 0: packed */
    /* a = drop(act_a(pre_a)), or gated drop(act_a(g) * u) with [g, u] = pre_a: da is then the
     * gradient of pre_a. */
    foci_act    act_a;
    int         gated_a;  /* 1: pre_a and da have 2 k columns; not with da_more */
    const void *pre_a;    /* of type_a; not read without activation and gate */
    int64_t     ld_pre_a; /* 0: packed */
    double      dropout_a;
    uint64_t    dropout_a_seed;
    void       *work; /* 64-byte aligned, foci_product_grads_work_bytes() */
} foci_product_grads;

/* Bytes of grads->work, from extents, types and flags alone, for all gradients; SIZE_MAX: it
 * is refused. */
FOCI_API size_t foci_product_grads_work_bytes(const foci_ctx           *ctx,
                                              const foci_product_io    *io,
                                              const foci_product_grads *grads);

/* Needs the io of the forward call (c, bias, residual and io->work are not looked at) with
 * `pre` as it was stored where there is an activation.  FOCI_PRODUCT_ADD and
 * FOCI_PRODUCT_TRANSPOSE_A have no gradients here. */
FOCI_API foci_status foci_product_backward(foci_ctx *ctx, const foci_product_io *io,
                                           const foci_product_grads *grads);

#ifdef __cplusplus
}
#endif
#endif
