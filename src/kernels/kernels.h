/* kernels.h -- the table of kernels that a context carries, and the structs that kernels take.
 *
 * The portable reference fills every slot; each CPU level then overwrites the slots it is
 * faster in.  Kernels include nothing of the library but this header, the public enumerators
 * and the vector vocabulary of src/simd.
 */
#ifndef FOCI_KERNELS_H
#define FOCI_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

enum { LANES = 64 };     /* queries of a block */
enum { FEW_LANES = 16 }; /* rows of a transform */

/* Convolutions: lanes of a sum of products, and the most taps for rows that are not floats. */
enum { TAPS_LANES = 16, TAPS_WIDTH = 32 };

/* Coefficients of running means weighted by powers 0 to 3 of the distance, for at most
 * CUBE_ROWS rows: from the means before these rows to the means after them, and to each row. */
enum { CUBE_ROWS = 16 };
struct cubes {
    double in[4];    /* of the sums over these rows by each power */
    double from[10]; /* [p (p + 1)/2 + r] of the old mean r, for the new mean p */
    float  row[CUBE_ROWS]
             [5]; /* of the four old means, and of the sum by cubes up to the row */
};

/* Inputs of the backward pass for the queries of a block, each [64]. */
struct grad_rows {
    const float *f;     /* as in weigh; NULL: scores are modified already */
    const float *norm;  /* log2 of the normaliser, +inf for empty rows; relu2: 1/n */
    const float *delta; /* do . o */
    float        c;     /* of the cap; 0: none */
    float        unit;  /* of t: log2(e), for relu2 1 */
    int          kind;  /* a foci_weigh */
};

/* A panel of the backward pass: up to PANEL_TILES tiles of 64 keys against as many blocks of 64
 * queries, masked in units of PANEL_UNIT keys by PANEL_UNIT queries. */
enum { PANEL_TILES = 4, PANEL_UNIT = 32 };

/* How many pairs of a unit are visible. */
enum { PANEL_NONE, PANEL_SOME, PANEL_ALL };

/* All operands but `sum` are AMX tiles, as pairs_to_tiles makes them of packed pairs. */
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
    uint8_t            unit[2 * PANEL_TILES][2 * PANEL_TILES]; /* [keys][queries] */
    const uint64_t *seen[PANEL_TILES][PANEL_TILES]; /* [64] masks by key, for tiles with a
                                                     * unit that is PANEL_SOME */
    float          *dk_sum, *dv_sum;                /* [n_tiles 64][dq] and [dv] */
    void           *scratch;                        /* panel_bytes() */

    const struct panel_block *next; /* blocks of the next panel, to be prefetched */
    int                       n_next;
};

/* Bytes of scratch of a panel: weights and gradients of all pairs, and a fixed part. */
static inline int64_t panel_bytes(int64_t tiles, int64_t blocks)
{
    const int64_t rows = (int64_t)3 * 4 * PANEL_TILES * LANES;

    return tiles * blocks * 2 * LANES * LANES + rows + (int64_t)80 * 1024;
}

/* Epilogue of a product: more + dropout(act(x + bias)), or gated by a second product
 * u = up + bias_up, more + dropout(act(x + bias) u). */
struct epilogue {
    const float    *bias, *bias_up; /* [d]; NULL: none */
    const float    *up;             /* laid out as x; NULL: not gated */
    int             act;            /* a foci_act */
    void           *pre, *pre_up; /* x + bias and u are stored there, of the type of the
                                   * result; NULL: they are not */
    const uint64_t *dropout_mask; /* [n], a bit for each column; NULL: no dropout */
    int             first;        /* bit of column 0 */
    float           factor;       /* of the elements that are kept */
    const void     *more;         /* residual, of the type of the result; NULL: none */
    int64_t         ld_pre, ld_more;
};

/* Its backward pass, with d the gradient after dropout: more + d act'(pre), or gated more +
 * d pre_up act'(pre) and out_up = d act(pre). */
struct epilogue_back {
    int         act;
    const void *pre,
        *pre_up;            /* as above; read where there is an activation, or out_up */
    void           *out_up; /* laid out as the result; NULL: not gated */
    const uint64_t *dropout_mask;
    int             first;
    float           factor;
    const void     *more; /* may be the result */
    int64_t         ld_pre, ld_more;
};

/* How rows are normalised: (x - mean) / sqrt(variance + eps) gain + bias. */
struct norm {
    const float *gain, *bias; /* [d]; NULL: 1 and 0 */
    float        eps;
    bool         rms; /* the mean counts as 0 */
};

/* Cross-entropy of a row of logits. */
struct loss_row {
    const float *bias; /* [d]; NULL: none */
    int          label;
    float        smoothing, scale; /* of the gradient */
    int          best;             /* the first maximum; NaN is ignored */
    double       loss;
};

/* A step of AdamW: g = scale grad, m += rest1 (g - m), v += rest2 (g^2 - v) and
 * p = decay p - step m / (root sqrt(v) + eps). */
struct adamw {
    float rest1, rest2, scale, decay, step, root, eps;
    bool  clear; /* gradients become 0 */
};

/* Fused attention: keys come in groups of ATTEND_KEYS, up to ATTEND_GROUPS in one call. */
enum { ATTEND_KEYS = 32, ATTEND_GROUPS = 64 };

struct attend_group {
    const uint32_t *keys, *values; /* packed by attend_keys and attend_values */
    const uint32_t *seen; /* [64] by query, a bit for each key; NULL: all are seen */
};

struct attend {
    const uint32_t            *q;      /* [64][dq / 2] */
    int                        dq, dv; /* multiples of 32 and of 16 */
    const struct attend_group *group;  /* [n] */
    int                        n;
    const float               *f; /* [64] from scores to logits of base 2 */
    float  *m;    /* [64] running references, whole numbers; -inf: none yet */
    bool    held; /* |logits| are bounded by 30 and m = 30: references need not move */
    float  *o;    /* [64][ldo] sums of values by weights 2^(f s - m) */
    int64_t ldo;
    float  *l;   /* [64] sums of the weights */
    bool    add; /* to o and l; otherwise they are overwritten */
    uint32_t *p; /* [n][64][16] scratch */
};

/* The tile state of a thread as its caller left it, to be restored: other libraries keep their
 * tiles configured from one call to the next. */
struct thread_state {
    _Alignas(64) unsigned char config[64];
    unsigned char tiles[8][1024]; /* not written where nothing is configured */
};

/* A fused chunk of linear attention: LANES tokens as rows of bf16, of any alignment.  Widths
 * are multiples of 32, at most CHUNK_WIDTH. */
enum { CHUNK_WIDTH = 128 };
struct chunk_rows {
    const uint16_t *q, *k, *v; /* q NULL: update the state only; k NULL: read it only */
    uint16_t       *o;
    int64_t         ldq, ldk, ldv, ldo;
    const uint16_t *next_q, *next_k, *next_v,
        *next_o; /* of the next chunk, to be prefetched; or NULL */
    int          d, dv;
    int          kind;    /* of features: FOCI_FEATURE_ROW, ELU or RELU */
    float        scale;   /* of queries of ROW */
    float       *sums;    /* [d][ld_sums], 64-byte aligned as everything that follows */
    int64_t      ld_sums; /* a multiple of 16 */
    float       *total;   /* [d] */
    const float *by;      /* [64] divisors of rows; NULL: sum of weights + eps */
    float        eps, least; /* rows with a divisor below `least` are 0 */
    float       *saved;   /* [64] divisors used, of any alignment; NULL: not wanted */
    void        *scratch; /* CHUNK_BYTES */
};
/* All operands as tiles of 1 KiB, at the widest. */
enum { CHUNK_BYTES = (16 + 16 + 16 + 32 + 8 + 2 + 5 + 16 + 4) << 10 };

/* Its backward pass, rows as above.  Gradients that are NULL are not wanted. */
struct chunk_back {
    const uint16_t *q, *k, *v, *o, *d_o;
    uint16_t       *dq, *dk, *d_v;
    int64_t         ldq, ldk, ldv, ldo;                           /* of gradients too */
    const uint16_t *next_q, *next_k, *next_v, *next_o, *next_d_o; /* or NULL */
    const uint16_t *next_dq, *next_dk, *next_dv;
    int             d, dv, kind;
    float           scale;        /* of queries of ROW, else 1 */
    bool            divides;      /* by the sum of weights, which then has a gradient */
    const float    *by;           /* [64] divisors of rows; 0: the row is empty */
    const float    *sums, *total; /* state over the keys before the chunk */
    float          *after, *rho; /* sums over the queries after it: [d][ld_sums], [d] */
    int64_t         ld_sums;
    void           *scratch; /* BACK_BYTES */
};
enum { BACK_BYTES = (9 * 16 + 3 * 32 + 2 + 8 + 8 + 4 * 5 + 4 * 8 + 1) << 10 };

/* Rows of a large product: out[m][64] = sums + a b, with a(i, t) at a[i ra + t ca] and
 * b[k][64] packed.  Meanwhile cache lines from `ahead` on are prefetched (any address is
 * allowed): one, or two with `twice`, for every six rows and four terms. */
struct panel_f32 {
    float       *out;  /* rows of out and of sums are 64-byte aligned */
    const float *sums; /* may be out; NULL: none */
    const float *a, *b;
    int64_t      ldo, lds, ra, ca;
    int          m, k;
    const char  *ahead;
    bool         twice;
};

/* Large products on AMX tiles.  A panel of a has at most 48 rows, a strip of b 32 columns and
 * a step of the sum 32 terms.  For each step a panel is stored as [rows][32], in tiles of 16
 * rows, and a strip as two tiles of pairs, [2][16][16]. */
enum { TILE_PANEL = 48, TILE_STRIP = 32, TILE_DEPTH = 32, TILE_UNIT = 8 };
enum { TILE_BLOCK = TILE_PANEL * TILE_STRIP }; /* sums of a panel by a strip */

/* Rows of bf16 in the layout of the caller. */
struct tile_source {
    const uint16_t *data;
    int64_t         ld;
};

/* A panel to be packed, in units of eight rows by one step: unit u has the rows from 8 (u /
 * steps) on at step u % steps.  Row i at step t is 32 elements of row `row` + i of from[t]. */
struct tile_panel {
    uint16_t                 *out; /* [steps][rows][32] */
    const struct tile_source *from;
    int64_t                   row;
    int rows, valid; /* a multiple of 16; zero rows from `valid` on */
    int steps;
};

/* Where the rows of a strip go, f32 or bf16: out = more + (sums + bias), more a residual. */
struct tile_result {
    char        *out;  /* NULL: the sums themselves are kept */
    const char  *more; /* of the type of the result; NULL: none */
    const float *bias; /* [32]; NULL: none */
    int64_t      ld, ld_more;
};

/* Rows of a result that are still to be stored. */
struct tile_rest {
    const float       *in; /* [rows][32] */
    struct tile_result to;
    int                rows;
};

/* A panel times all strips of a part of b.  Between the multiplies the next panel is packed
 * and the block before is stored. */
struct tile_multiply {
    const uint16_t           *a;
    const uint32_t           *b; /* [strips][steps][512] */
    int                       rows, valid, steps, strips;
    const struct tile_result *to;  /* [strips], of row 0; NULL: all sums are kept */
    int64_t                   row; /* of the panel, in `to` */
    int                       dtype;
    float                    *sums; /* [strips][48][32], of strips that are kept */
    bool                      add;  /* to the sums that are there */

    const struct tile_panel *next; /* packed meanwhile; NULL: none */
    struct tile_rest *rest; /* stored meanwhile; on return what is left to store */
    float            *c[2]; /* [48][32] each; the rest is in one of them */
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

    /* If not NULL, a thread calls begin before its first kernel and end after its last:
     * begin saves the thread's tile state and configures tiles, end restores it. */
    void (*begin)(struct thread_state *before);
    void (*end)(const struct thread_state *before);

    /* A fence after kernels with non-temporal stores, before other threads read them. */
    void (*stream_end)(void);

    bool has_bf16; /* gemm_bf16 is faster than gemm_f32 */
    int few_bf16; /* query rows up to which dots_bf16 and sums_bf16 are faster than f32's */
    bool attends;     /* attend_bf16 is faster than the kernels it fuses */
    bool has_chunks;  /* chunk_rows and chunk_back are */
    bool has_panels;  /* grad_panel_bf16 is */
    bool sum_by_rows; /* layout of pack_sum_bf16: (ra, ca) = (32, 1) */
    int  depth; /* the summed extent of bf16 products is padded to multiples of this */
    int  panel; /* keys that go through the exponential together */
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

/* The levels up to `top` that this CPU has and the system allows, as bits 1 << enum level.
 * why[] gets the reason for each level that is missing and NULL for the others; levels above
 * `top` are neither probed nor explained. */
unsigned kernels_detect(enum level top, const char *why[N_LEVELS]);

/* tiles.c.  tiles_why_not: request the use of tiles from the system, given whether the CPU has
 * them and the system saves them; NULL if this process may use them, otherwise why not.
 * tiles_refused: the message for the errno of a request that was refused. */
const char *tiles_why_not(bool in_cpu, bool saved);
const char *tiles_refused(int error);

/* Fill the table: the reference in every slot, then the faster kernels of `levels`. */
void kernels_init(struct kernels *k, unsigned levels);

/* The CPU this process runs on. */
enum cpu_vendor { CPU_OTHER, CPU_INTEL, CPU_AMD };
struct cpu_model {
    enum cpu_vendor vendor;
    int             family, model;
};
struct cpu_model kernels_cpu(void);

/* What is known of CPU models (models.c).
 *
 * models_choose: of the levels that a CPU has, those to use.  The highest level is left out,
 * with the reason in why[], if it is known to be slower there than the level below and is not
 * the level `asked` for (N_LEVELS: none was).
 * models_tune: choices between single kernels, in a table that is filled.
 * models_decode: the model from the twelve letters of CPUID leaf 0 and eax of leaf 1. */
unsigned         models_choose(const struct cpu_model *cpu, unsigned levels, int asked,
                               const char *why[N_LEVELS]);
void             models_tune(const struct cpu_model *cpu, struct kernels *k);
struct cpu_model models_decode(const char vendor[12], uint32_t signature);

extern const char *const level_names[N_LEVELS];

/* Each fills the slots that its level is faster in; called by kernels_init(). */
void kernels_ref(struct kernels *k);
void kernels_avx2(struct kernels *k);
void kernels_avx512(struct kernels *k);
void kernels_bf16(struct kernels *k);
void kernels_amx(struct kernels *k);

#endif
