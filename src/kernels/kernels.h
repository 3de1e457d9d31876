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

/* A panel of the backward pass: tiles of 64 keys against blocks of 64 queries. */
enum { PANEL_TILES = 4, PANEL_UNIT = 32 };

/* What is seen of 32 keys by 32 queries. */
enum { PANEL_NONE, PANEL_SOME, PANEL_ALL };

/* Operands but `sum` are tiles of what packing makes, see tile_words. */
struct panel_tile {
    const uint32_t *keys, *values; /* of pack_rows_bf16 */
    const uint32_t *sum;           /* of the keys, by pack_sum_bf16 of level "amx" */
};

struct panel_block {
    const uint32_t *q_cols, *g_cols;  /* of pack_cols_bf16 of queries and of d_o */
    const uint32_t *q_rows, *g_rows;  /* of pack_pairs_bf16 */
    const float    *f, *norm, *delta; /* [64] as in grad_rows */
    float          *dqt;              /* [dq][64] */
};

struct grad_panel {
    int                n_tiles, n_blocks; /* PANEL_TILES at most */
    int                dq, dv;            /* multiples of 32 */
    struct panel_tile  tile[PANEL_TILES];
    struct panel_block block[PANEL_TILES];
    uint8_t            unit[2 * PANEL_TILES][2 * PANEL_TILES]; /* by keys and queries */
    const uint64_t *seen[PANEL_TILES][PANEL_TILES]; /* [64] bits by key, where some are
                                                        * hidden in a unit of the two */
    float          *dk_sum, *dv_sum;                /* [n_tiles 64][dq] and [dv] */
    void           *room;                           /* panel_bytes() of scratch */

    const struct panel_block *next; /* blocks that will be wanted after these */
    int                       n_next;
};

/* Bytes of scratch for so many tiles and blocks: two for each pair, and what all have. */
static inline int64_t panel_bytes(int64_t tiles, int64_t blocks)
{
    const int64_t rows = (int64_t)3 * 4 * PANEL_TILES * LANES;

    return tiles * blocks * 2 * LANES * LANES + rows + (int64_t)80 * 1024;
}

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
    bool has_panels;  /* grad_panel_bf16 is faster than what it takes the place of */
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
