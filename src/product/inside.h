/* inside.h -- what the files of the product share.
 *
 * b is packed once, a block by block, into what the micro-kernels multiply: panels of 64
 * columns of b, of which tiles of 64 terms of the sum follow one another, and blocks of
 * rows of a.  Where products are of bf16, both are packed in pairs along k.
 * Products on the tiles of AMX have a way of their own (tiled.h).
 */
#ifndef FOCI_PRODUCT_INSIDE_H
#define FOCI_PRODUCT_INSIDE_H

#include "product/product.h"

enum {
    TILE = 64,             /* columns of a panel, terms of a tile */
    BLOCK_ROWS = 96,       /* of a, packed at once */
    BLOCK_TERMS = 1024,    /* of a, packed at once; a multiple of TILE */
    BLOCK_COLS = 16 * TILE /* of c, kept until all is summed */
};

/* Columns of a matrix that lie in one part. */
struct product_piece {
    const struct product_part *part;
    int64_t                    col; /* in the part */
    int                        cols;
};

/* The piece that starts at column c0, up to column c0 + n. */
struct product_piece piece_at(const struct matrix *m, int64_t c0, int64_t n);
/* The address of row r of a piece. */
char *piece_row(const struct matrix *m, struct product_piece p, int64_t r);

/* A rectangle of the matrix that the parts make, as stored: n rows (at most 64 where it is
 * packed) of d columns. */
struct cut {
    int64_t row, col;
    int     n, d;
};

/* Columns of b in the order in which they are multiplied, `width` at a time: the number of
 * such strips, and strip i.  Where b is gated, strips of gates and strips of the values they
 * gate alternate, of equal widths. */
struct cols {
    int64_t at;
    int     n;
};
static inline bool gates(const struct product *p) { return p->gated && !p->back; }
int64_t            cols_count(const struct product *p, int width);
struct cols        cols_at(const struct product *p, int64_t i, int width);

/* FLOP of a product. */
double product_flops(const struct product *p);

/* Whether the epilogue is at most a bias and a residual. */
bool is_bare(const struct product *p);

/* A context, a product, and where its operands are packed. */
struct packing {
    const struct kernels *k;
    const struct product *p;
    bool                  bf16;
    int64_t               term0; /* of a piece, where terms are rows of a and b */
    int64_t               tiles, panels; /* along k and n */
    char                 *b;             /* [panels][tiles] of 64 x 64 */
    size_t                tile_bytes;
    bool                  large; /* the second-level cache is */
};

/* Scratch of one thread. */
struct scratch {
    float *tile;  /* [64][BLOCK_TERMS] floats on their way */
    float *piece; /* the same */
    char  *a;     /* a block of a */
    float *c;     /* [BLOCK_COLS / 64][BLOCK_ROWS][64] */
};

/* The first operand of the micro-kernels: element (i, t) at data[i rows + t terms], in floats
 * or bf16 pairs. */
struct left_operand {
    const char *data;
    int64_t     rows, terms;
};

/* pack.c */
void                pack_b(const struct packing *x, int64_t panel, int64_t tile,
                           const struct scratch *r);
struct left_operand pack_a(const struct packing *x, int64_t i0, int m, int64_t t0,
                           int terms, const struct scratch *r);
void load_cut(const struct kernels *k, const struct matrix *m, struct cut cut,
              float *out, int64_t ld, float *scratch);

/* m rows of c from i on, n columns from j on. */
struct product_block {
    int64_t i, j;
    int     m, n;
};

/* epilogue.c: apply the epilogue to a block of at most 64 columns, from in[m][ld], and from
 * up[m][ld] where b is gated. */
void product_epilogue(const struct kernels *k, const struct product *p,
                      struct product_block b, const float *in, const float *up,
                      int64_t ld);

/* few.c: products with few rows of c.  few_can: whether this one is such a product, given
 * the parts of b. */
enum { FEW = 16 };
bool few_can(const struct product *p, bool bf16);
void few_carve(const foci_ctx *ctx, const struct product *p, struct arena *a);
void few_run(const foci_ctx *ctx, const struct product *p, void *work);

#endif
