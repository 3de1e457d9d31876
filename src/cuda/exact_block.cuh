/* exact_block.cuh -- what all kernels of exact attention share: which block of which
 * sequence a CTA has, which tiles it meets, what becomes of a product on its way to a
 * logit. */
#ifndef FOCI_EXACT_BLOCK_CUH
#define FOCI_EXACT_BLOCK_CUH

#include "cuda/mma.cuh"

/* One sequence, seen by one head. */
struct Seq {
    int     s, b, nq, nk;
    int64_t q0, k0;
    int     pos0; /* position of query 0 */
    int     h, kv;
};

DEVICE int floor_div(int a, int b) { return a / b - (a % b < 0); }

/* Whether blocks start at multiples of their size in positions. */
DEVICE bool aligned_blocks(const struct cuda_exact &x) { return x.tiles.row0 != NULL; }

DEVICE Seq seq_number(const struct cuda_exact &x, int s, int h)
{
    Seq q;

    q.s = s;
    q.h = h;
    q.kv = h / (x.heads / x.kv_heads);
    if (x.seqs) {
        const struct cuda_seq *from = x.seqs + s;
        q.b = from->b;
        q.nq = from->nq;
        q.nk = from->nk;
        q.q0 = from->q0;
        q.k0 = from->k0;
    } else {
        q.b = s;
        q.nq = (int)x.len_q;
        q.nk = (int)x.len_k;
        q.q0 = q.k0 = 0;
    }
    q.pos0 = q.nk - q.nq;
    return q;
}

/* The sequence that block number `block` (of size number `kind`) belongs to; the block
 * is then counted in it.  -1: there are not so many. */
DEVICE int find_seq(const struct cuda_exact &x, int *block, bool keys, int kind)
{
    int low = 0, high = x.n_seqs;

    const struct cuda_seq *s = x.seqs;
    if (*block >= (keys ? s[high].k_block[kind] : s[high].q_block[kind])) return -1;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        if ((keys ? s[mid].k_block[kind] : s[mid].q_block[kind]) <= *block)
            low = mid;
        else
            high = mid;
    }
    *block -= keys ? s[low].k_block[kind] : s[low].q_block[kind];
    return low;
}

/* Query blocks of a sequence. */
DEVICE int query_blocks(const struct cuda_exact &x, const Seq &s, int size)
{
    if (!s.nq) return 0;
    if (!aligned_blocks(x)) return (s.nq + size - 1) / size;
    return floor_div(s.nk - 1, size) - floor_div(s.pos0, size) + 1;
}

/* Query of row 0 of a block; below 0 in a block that leads. */
DEVICE int block_query(const struct cuda_exact &x, const Seq &s, int block, int size)
{
    if (!aligned_blocks(x)) return block * size;
    return (floor_div(s.pos0, size) + block) * size - s.pos0;
}

DEVICE Rows rows_of(const struct cuda_in &in, int64_t b, int64_t row0, int64_t h,
                    int bytes)
{
    return Rows{ (const char *)in.at +
                     (b * in.seq + row0 * in.row + h * in.head) * bytes,
                 in.row * bytes, NULL, 0 };
}

/* Keys or values of a sequence. */
DEVICE Rows key_rows(const struct cuda_exact &x, const struct cuda_in &in, const Seq &s,
                     int64_t page, int bytes)
{
    if (!x.pages.table) return rows_of(in, s.b, s.k0, s.kv, bytes);
    return Rows{ (const char *)in.at + s.kv * in.head * bytes, in.row * bytes,
                 x.pages.table + s.s * x.pages.max_pages, page * bytes };
}

/* Whether rows can be copied in chunks of 16 bytes. */
DEVICE bool wide_rows(const Rows &rows, int width, int bytes)
{
    return ((uintptr_t)rows.at % 16 | (uint64_t)rows.row % 16 |
            (uint64_t)rows.page % 16 | (uint64_t)(width * bytes) % 16) == 0;
}

/*
 * Tiles that a block meets
 */

struct Walk {
    const struct cuda_run *run, *end;
    int                    next, limit, shift, mask;
};

/* Key tiles of the block whose first row stands at pos, of `rows` rows. */
DEVICE Walk walk_keys(const struct cuda_exact &x, const Seq &s, int pos, int rows)
{
    Walk w = { NULL, NULL, 0, (s.nk + CUDA_TILE - 1) / CUDA_TILE, 0, -1 };

    if (x.causal) {
        const int last = pos + rows; /* keys before it are seen */
        w.limit = min(w.limit, last <= 0 ? 0 : (last + CUDA_TILE - 1) / CUDA_TILE);
    }
    if (!x.tiles.row0) return w;
    const int t = pos / CUDA_TILE;
    if (pos < 0 || t >= x.tiles.n_rows)
        w.limit = 0;
    else {
        w.run = x.tiles.rows + x.tiles.row0[t];
        w.end = x.tiles.rows + x.tiles.row0[t + 1];
    }
    return w;
}

/* Query blocks that meet key tile t: numbers as block_query() counts them. */
DEVICE Walk walk_queries(const struct cuda_exact &x, const Seq &s, int t)
{
    Walk w = { NULL, NULL, 0, query_blocks(x, s, CUDA_TILE), 0, -1 };

    if (x.causal) { /* the first query that sees a key of it */
        const int lead =
            aligned_blocks(x) ? s.pos0 - floor_div(s.pos0, CUDA_TILE) * CUDA_TILE : 0;
        const int first = t * CUDA_TILE - s.pos0 + lead;
        if (first > 0) w.next = first / CUDA_TILE;
    }
    if (!x.tiles.row0) return w;
    w.shift = floor_div(s.pos0, CUDA_TILE);
    if (w.shift < 0) w.next = max(w.next, -w.shift);
    if (t >= x.tiles.n_cols)
        w.limit = 0;
    else {
        w.run = x.tiles.cols + x.tiles.col0[t];
        w.end = x.tiles.cols + x.tiles.col0[t + 1];
    }
    return w;
}

/* The next tile; -1: no more.  w.mask is then its entry of the dictionary, or -1. */
DEVICE int walk_next(const struct cuda_exact &x, Walk &w)
{
    if (!x.tiles.row0) return w.next < w.limit ? w.next++ : -1;
    for (; w.run < w.end; w.run++) {
        w.next = max(w.next, w.run->begin - w.shift);
        if (w.next >= w.limit) return -1;
        if (w.next < w.run->end - w.shift) {
            w.mask = w.run->mask;
            return w.next++;
        }
    }
    return -1;
}

/* Keys of the tile from j0 on that the query at position pos may see, but for the
 * dictionary and the mask that is given. */
DEVICE uint64_t keys_before(const struct cuda_exact &x, const Seq &s, int pos, int j0)
{
    int n = s.nk - j0;
    if (x.causal) n = min(n, pos + 1 - j0);
    return n >= 64 ? ~UINT64_C(0) : n <= 0 ? 0 : ~UINT64_C(0) >> (64 - n);
}

/* Queries of the block whose row 0 is query i0 that may see key j, likewise. */
DEVICE uint64_t queries_after(const struct cuda_exact &x, const Seq &s, int i0, int j)
{
    int first = max(0, -i0), end = min(64, s.nq - i0);
    if (x.causal) first = max(first, j - s.pos0 - i0);
    if (j >= s.nk || first >= end) return 0;
    return ~UINT64_C(0) >> (64 - (end - first)) << first;
}

/* Whether a tile needs no look at pairs. */
DEVICE bool tile_is_full(const struct cuda_exact &x, const Seq &s, int mask, int pos,
                         int j0)
{
    return mask < 0 && !x.mask.at && j0 + 64 <= s.nk && !(x.causal && j0 + 63 > pos);
}

DEVICE bool given_hides(const struct cuda_exact &x, const Seq &s, int i, int j)
{
    const uint8_t *at =
        (const uint8_t *)x.mask.at + s.b * x.mask.seq + s.h * x.mask.head;
    if (i < 0 || i >= s.nq || j >= s.nk) return true;
    return !at[(s.q0 + i) * x.mask.row + s.k0 + j];
}

/*
 * Logits
 */

/* Where rows of floats of all heads have row i. */
DEVICE int64_t row_place(const struct cuda_exact &x, const Seq &s, int i)
{
    return ((int64_t)s.h * x.batch + s.b) * x.len_q + s.q0 + i;
}

DEVICE float head_factor(const struct cuda_exact &x, int h)
{
    return x.score.head_scale ? x.score.head_scale[h] : x.score.scale;
}

DEVICE float row_factor(const struct cuda_exact &x, const Seq &s, int i)
{
    if (!x.score.row_scale || i < 0 || i >= s.nq) return 1;
    return x.score.row_scale[x.visible[row_place(x, s, i)]];
}

DEVICE bool plain_logits(const struct cuda_exact &x)
{
    return !x.score.slope && !x.score.rel && !x.bias.at && x.score.cap <= 0;
}

/* tanh: good to a few ulps of 1, which is what a capped logit needs. */
DEVICE float tanh_fast(float y)
{
    return 1 - __fdividef(2, exp2_fast(2.88539008177792681f * y) + 1);
}

/* As good as floats are, for logits of floats; a call. */
static __device__ __noinline__ float tanh_exact(float y) { return tanhf(y); }

/* What is added to the logit of a pair by distance and as given; a call, for the loops
 * around it are unrolled 32 times. */
static __device__ __noinline__ float added_bias(const struct cuda_exact &x,
                                                const Seq &s, int i, int j)
{
    const float unit = x.score.cap > 0 ? 1 : x.score.unit;
    float       sum = 0;

    if (x.score.rel) {
        const int64_t at = x.score.rel0 + i + s.pos0 - j, last = x.score.n_rel - 1;
        sum += x.score.rel[s.h * x.score.n_rel + (at < 0 ? 0 : at > last ? last : at)];
    }
    if (x.bias.at && i >= 0 && i < s.nq && j < s.nk) {
        const float *of =
            (const float *)x.bias.at + s.b * x.bias.seq + s.h * x.bias.head;
        sum += unit * of[(s.q0 + i) * x.bias.row + s.k0 + j];
    }
    return sum;
}

/* The logit of a pair from f_i (q_i . k_j).  level: the tangent hyperbolic, 0 without a
 * cap. */
DEVICE float logit(const struct cuda_exact &x, const Seq &s, float product, int i,
                   int j, float *level)
{
    const int rel = i + s.pos0 - j;

    if (x.score.slope) product -= x.score.slope[s.h] * fabsf((float)rel);
    if (x.score.rel || x.bias.at) product += added_bias(x, s, i, j);
    *level = 0;
    if (x.score.cap <= 0) return product;
    *level = x.dtype == CUDA_F32 ? tanh_exact(product / x.score.cap)
                                 : tanh_fast(product / x.score.cap);
    return x.score.cap * *level * x.score.unit;
}

/*
 * Dropout: splitmix64 over seed, batch entry, head, row and column.
 */

DEVICE uint64_t drop_hash(uint64_t key, uint64_t number)
{
    uint64_t z = key + UINT64_C(0x9E3779B97F4A7C15) * (number + 1);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

DEVICE uint64_t drop_key(const struct cuda_exact &x, const Seq &s, int i)
{
    const uint64_t key =
        drop_hash(drop_hash(x.drop_seed, (uint64_t)s.b), (uint64_t)(x.head0 + s.h));
    return drop_hash(key, (uint64_t)(s.q0 + i));
}

static __device__ __noinline__ float drop_factor(const struct cuda_exact &x,
                                                 const Seq &s, uint64_t key, int j)
{
    return drop_hash(key, (uint64_t)(s.k0 + j)) < x.drop_bound ? 0 : x.kept;
}

#endif
