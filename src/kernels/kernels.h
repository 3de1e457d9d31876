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

/* Attention in one kernel: 32 keys are a group, and a block meets up to ATTEND_GROUPS of
 * them at once. */
enum { ATTEND_KEYS = 32, ATTEND_GROUPS = 64 };

struct attend_group {
    const uint32_t *keys, *values; /* as attend_keys and attend_values have them */
    const uint32_t *seen; /* [64] by query, a bit for each key; NULL: all are seen */
};

struct attend {
    const uint32_t            *q;      /* [64][dq / 2] */
    int                        dq, dv; /* multiples of 32 and of 16 */
    const struct attend_group *group;  /* [n] */
    int                        n;
    const float               *f; /* [64] from scores to logits of base 2 */
    float  *m;    /* [64] references, whole numbers; -inf: there is none yet */
    bool    held; /* no logit is more than 30 from 0, and m is 30 at most and no less */
    float  *o;    /* [64][ldo] sums of values by weights 2^(f s - m) */
    int64_t ldo;
    float  *l;   /* [64] sums of the weights */
    bool    add; /* to o and l; otherwise they are overwritten */
    uint32_t *p; /* [n][64][16] scratch */
};

/* Tiles of a thread as its caller left them: other libraries keep theirs configured from
 * one call to the next. */
struct thread_state {
    _Alignas(64) unsigned char config[64];
    unsigned char tiles[8][1024]; /* not written where nothing is configured */
};
/* A whole chunk of linear attention: LANES tokens in rows of bf16, of any alignment.  Widths
 * are multiples of 32, up to CHUNK_WIDTH. */
enum { CHUNK_WIDTH = 128 };
struct chunk_rows {
    const uint16_t *q, *k, *v; /* q NULL: no rows; k NULL: no keys of its own */
    uint16_t       *o;
    int64_t         ldq, ldk, ldv, ldo;
    const uint16_t *next_q, *next_k, *next_v,
        *next_o; /* of the chunk that follows; or NULL */
    int          d, dv;
    int          kind;    /* of features: FOCI_FEATURE_ROW, ELU or RELU */
    float        scale;   /* of queries of ROW */
    float       *sums;    /* [d][ld_sums], 64-byte aligned as everything that follows */
    int64_t      ld_sums; /* a multiple of 16 */
    float       *total;   /* [d] */
    const float *by; /* [64] what rows are divided by; NULL: sum of weights + eps, */
    float        eps, least; /* 0 where it is below this */
    float       *saved;      /* [64], of any alignment: that.  NULL: nowhere */
    void        *scratch;    /* of CHUNK_BYTES */
};
/* Operands in tiles of 1 KiB, at the widest. */
enum { CHUNK_BYTES = (16 + 16 + 16 + 32 + 8 + 2 + 5 + 16 + 4) << 10 };

/* Its gradients, rows as above.  Those that are NULL are not wanted. */
struct chunk_back {
    const uint16_t *q, *k, *v, *o, *d_o;
    uint16_t       *dq, *dk, *d_v;
    int64_t         ldq, ldk, ldv, ldo;                           /* of gradients too */
    const uint16_t *next_q, *next_k, *next_v, *next_o, *next_d_o; /* or NULL */
    const uint16_t *next_dq, *next_dk, *next_dv;
    int             d, dv, kind;
    float           scale;   /* of queries of ROW, else 1 */
    bool            divides; /* by the sum of weights, which has a gradient */
    const float    *by;      /* [64] what rows were divided by; 0: they are empty */
    const float    *sums, *total; /* over keys before the chunk */
    float          *after, *rho;  /* over queries after it: [d][ld_sums], [d] */
    int64_t         ld_sums;
    void           *scratch; /* of BACK_BYTES */
};
enum { BACK_BYTES = (9 * 16 + 3 * 32 + 2 + 8 + 8 + 4 * 5 + 4 * 8 + 1) << 10 };
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
     * they are not NULL: state of the thread that its kernels need, such as tiles.  What
     * the thread had of it before is kept in between, and put back. */
    void (*begin)(struct thread_state *before);
    void (*end)(const struct thread_state *before);

    /* After kernels that write past the caches, before other threads read it. */
    void (*stream_end)(void);

    bool has_bf16; /* gemm_bf16 is faster than gemm_f32 */
    int  few_bf16; /* rows up to which dots_bf16 and sums_bf16 are faster than f32's */
    bool attends;  /* attend_bf16 is faster than what it takes the place of */
    bool has_chunks;  /* chunk_rows is faster than its parts */
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

/* The levels up to `top` that this CPU has and the system allows, as bits 1 << enum level,
 * and for each level it lacks the reason in why[], NULL for those it has.  Of levels above
 * `top` nothing is asked and nothing said. */
unsigned kernels_detect(enum level top, const char *why[N_LEVELS]);

/* Why tiles cannot be used in this process, NULL if they can, where the CPU has them and
 * the system saves them; asks the system for them (tiles.c).  And the reason for which it
 * refused with that errno. */
const char *tiles_why_not(bool in_cpu, bool saved);
const char *tiles_refused(int error);

/* The reference in every slot, then whatever does better among `levels`. */
void kernels_init(struct kernels *k, unsigned levels);

/* Which CPU it is. */
enum cpu_vendor { CPU_OTHER, CPU_INTEL, CPU_AMD };
struct cpu_model {
    enum cpu_vendor vendor;
    int             family, model;
};
struct cpu_model kernels_cpu(void);

/* What is known of CPUs (models.c).  Of the levels that one has, those that are fast on it:
 * a level is left out, with the reason in why[], where it is known to be slower than the one
 * below, is the highest and is not the level `asked` for (N_LEVELS: none was).  Then choices
 * between single kernels, in a table that is filled.  And from what CPUID says: the twelve
 * letters of leaf 0 and eax of leaf 1. */
unsigned         models_choose(const struct cpu_model *cpu, unsigned levels, int asked,
                               const char *why[N_LEVELS]);
void             models_tune(const struct cpu_model *cpu, struct kernels *k);
struct cpu_model models_decode(const char vendor[12], uint32_t signature);

extern const char *const level_names[N_LEVELS];

/* Each level's own part of kernels_init(). */
void kernels_ref(struct kernels *k);
void kernels_avx2(struct kernels *k);
void kernels_avx512(struct kernels *k);
void kernels_bf16(struct kernels *k);
void kernels_amx(struct kernels *k);

#endif
