/* kernels.h -- the table of kernels that a context carries.
 *
 * The reference fills every slot; each level the CPU has then overwrites what it
 * does better.  Kernels see nothing of the library: this header and the vector
 * vocabulary are all they include.
 */
#ifndef FOCI_KERNELS_H
#define FOCI_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { LANES = 64 };     /* queries of a block */
enum { FEW_LANES = 16 }; /* rows of a transform */

/* Convolutions: lanes that sums of products have; and taps of rows that are not floats, at
 * most. */
enum { TAPS_LANES = 16, TAPS_WIDTH = 32 };

/* Means weighed by powers 0 to 3 of the distance, over CUBE_ROWS rows or fewer: from those
 * before the rows to those after them, and to each row. */
enum { CUBE_ROWS = 16 };
struct cubes {
    double in[4];            /* of sums over the rows by those powers */
    double from[10];         /* [p (p + 1)/2 + r] of mean r before, for mean p */
    float row[CUBE_ROWS][5]; /* of the means before, and of sums by cubes up to the row */
};

/* The rows of attention in the backward pass, each [64]. */
struct grad_rows {
    const float *f;     /* as in weigh; NULL: scores are modified already */
    const float *norm;  /* log2 of the normaliser, +inf for empty rows; relu2: 1/n */
    const float *delta; /* do . o */
    float        c;     /* of the cap; 0: none */
    float        unit;  /* of t: log2(e), for relu2 1 */
    int          kind;  /* a foci_weigh */
};

/* What follows a product, x = more + keep(act(x + bias)). */
struct finish {
    const float    *bias; /* [d]; NULL: none */
    bool            silu; /* act(x) = x / (1 + e^-x); otherwise x */
    const uint64_t *keep; /* [n], a bit for each column, 0: becomes 0; NULL: all stay */
    int             first;  /* bit of column 0 */
    float           factor; /* of those that stay, where there is keep */
    const void     *more;   /* of the type of the result; NULL: nothing */
    int64_t         ld_more;
};

/* Rows of a large product: out[m][64] = sums + a b, with a(i, t) at a[i ra + t ca] and
 * b[k][64] packed.  Lines at `ahead` and on, which need not be there, are brought near
 * meanwhile: one or two for six rows and four terms. */
struct panel_f32 {
    float       *out;  /* rows of it and of sums are 64-byte aligned */
    const float *sums; /* may be out; NULL: none */
    const float *a, *b;
    int64_t      ldo, lds, ra, ca;
    int          m, k;
    const char  *ahead;
    bool         twice; /* two lines at once */
};

/* Large products on tiles.  A panel of the first operand is at most 48 rows, a strip of
 * the second 32 columns, and a step of the sum 32 terms; of each step a panel has tiles
 * of 16 rows, [rows][32], and a strip two tiles of words, [2][16][16]. */
enum { TILE_PANEL = 48, TILE_STRIP = 32, TILE_DEPTH = 32, TILE_UNIT = 8 };
enum { TILE_BLOCK = TILE_PANEL * TILE_STRIP }; /* sums of a panel and a strip */

/* Rows of bf16 as they are stored. */
struct tile_source {
    const uint16_t *data;
    int64_t         ld;
};

/* A panel in the making, by units of eight rows and one step: unit u has rows 8 (u /
 * steps) and on, and step u % steps.  Row i of it at step t is 32 elements of row
 * `row` + i of from[t]. */
struct tile_panel {
    uint16_t                 *out; /* [steps][rows][32] */
    const struct tile_source *from;
    int64_t                   row;
    int                       rows, valid; /* a multiple of 16; zeros from `valid` on */
    int                       steps;
};

/* Where the rows of a strip go, f32 or bf16: out = more + (sums + bias). */
struct tile_result {
    char        *out;  /* NULL: the sums are wanted */
    const char  *more; /* of the type of the result; NULL: nothing */
    const float *bias; /* [32]; NULL: none */
    int64_t      ld, ld_more;
};

/* Rows of a result that are still to be written. */
struct tile_rest {
    const float       *in; /* [rows][32] */
    struct tile_result to;
    int                rows;
};

/* A panel by all strips of a part of b, and what is done beside it. */
struct tile_multiply {
    const uint16_t           *a;
    const uint32_t           *b; /* [strips][steps][512] */
    int                       rows, valid, steps, strips;
    const struct tile_result *to; /* [strips], of row 0; NULL: sums are wanted of all */
    int64_t                   row; /* of the panel, in `to` */
    int                       dtype;
    float *sums; /* [strips][48][32], of strips that are not written */
    bool   add;  /* to the sums that are there */

    const struct tile_panel *next; /* is made meanwhile; NULL: none */
    struct tile_rest        *rest; /* is written meanwhile, and is what is left then */
    float                   *c[2]; /* [48][32] each; the rest is in one of them */
};

enum level {
    LEVEL_PORTABLE,
    LEVEL_AVX2,
    LEVEL_AVX512,
    LEVEL_BF16,
    LEVEL_AMX,
    N_LEVELS
};

struct kernels {
#define KERNEL(name, result, args) result(*name) args;
#include "kernels/kernels.def"
#undef KERNEL

    /* A thread calls begin before its first kernel and end after its last, where
     * they are not NULL: state of the thread that its kernels need, such as tiles.
     * They do not nest. */
    void (*begin)(void);
    void (*end)(void);

    /* After kernels that write past the caches, before other threads read it. */
    void (*stream_end)(void);

    bool has_bf16;    /* gemm_bf16 is faster than gemm_f32 */
    bool sum_by_rows; /* layout of pack_sum_bf16: (ra, ca) = (32, 1) */
    int  depth;       /* widths of bf16 products are padded to multiples of this */
    int  panel;       /* keys that go through the exponential together */
};

/* Kernels by number, for printing and for tests that walk the list. */
enum kernel_id {
#define KERNEL(name, result, args) K_##name,
#include "kernels/kernels.def"
#undef KERNEL
    N_KERNELS
};

extern const char *const kernel_names[N_KERNELS];

/* Slot number `id` of a table, to compare and print. */
typedef void (*kernel_fn)(void);
kernel_fn kernels_slot(const struct kernels *k, int id);

/* The levels this CPU has and the system allows, as bits 1 << enum level, and for
 * each level it lacks the reason in why[], NULL for those it has. */
unsigned kernels_detect(const char *why[N_LEVELS]);

/* The reference in every slot, then whatever does better among `levels`. */
void kernels_init(struct kernels *k, unsigned levels);

extern const char *const level_names[N_LEVELS];

/* Each level's own part of kernels_init(). */
void kernels_ref(struct kernels *k);
void kernels_avx2(struct kernels *k);
void kernels_avx512(struct kernels *k);
void kernels_bf16(struct kernels *k);
void kernels_amx(struct kernels *k);
void kernels_amx_emulated(struct kernels *k); /* tiles in software, for tests */

#endif
