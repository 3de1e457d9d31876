/* linear_forward.h -- what the files of the linear engine's forward pass share. */
#ifndef FOCI_LINEAR_FORWARD_H
#define FOCI_LINEAR_FORWARD_H

#include "engine/linear/linear_chunk.h"

/* Heads that one job scans together, chunk by chunk in turn: rows of neighbouring heads
 * are adjacent in memory, so they share pages. */
enum { MOST_INTERLEAVED = 4 };

/* Scratch of one thread. */
struct linear_forward_scratch {
    struct linear_keys    k;
    struct linear_queries q;

    struct linear_sums interleaved; /* of several heads that are scanned together */
    struct linear_sums s; /* before the chunk: one of these, or the caller's */
    struct linear_sums next;
    struct linear_sums after; /* [segment] after each chunk: bidirectional decay */
    struct linear_operand_at sums_at; /* the sums that queries read */
    float *decayed; /* [m_full][64] queries times powers of the decay */
    struct linear_operand_b decayed_b;

    float    *a;      /* [64][64] weights of keys of the chunk */
    uint32_t *pairs;  /* [32][64] the same as operand B */
    float    *ot;     /* [ldv][64] numerators */
    float    *tile;   /* [64][ldv] */
    char     *kernel; /* scratch of the fused kernel */

    struct feature_chunk next_chunk; /* comes next; its rows are prefetched in parts, */
    int                  prefetched; /* so many so far */

    _Alignas(64) float den[CHUNK];
};

/* One forward pass. */
struct linear_forward_pass {
    const struct linear *x;
    float               *saved;
    bool                 segments;      /* sequences are cut into segments */
    bool                 bidirectional; /* decay without causality */
    struct linear_sums   before, after; /* [heads][max_segs] where there are segments */
};

static inline bool linear_bidirectional(const struct linear *x)
{
    return x->l->decays && !x->causal;
}

/* linear_forward_chunk.c */
struct linear_forward_scratch linear_forward_scratch_carve(const struct linear *x,
                                                           struct arena        *a);
/* The chunk being computed is followed by `next` (NULL: by none), whose rows are
 * prefetched meanwhile. */
void linear_forward_prefetch(const struct linear *x, const struct feature_chunk *next,
                             struct linear_forward_scratch *r);
/* Products are computed for lanes 0 to linear_forward_lanes() - 1. */
int linear_forward_lanes(const struct feature_chunk *c);
/* Add to numerators and denominators (add 0: set) what sums s give to the queries,
 * times decay[64] unless that is NULL.  `packed`: r->sums_at holds s already. */
void linear_forward_inter_chunk(const struct linear           *x,
                                struct linear_forward_scratch *r, struct linear_sums s,
                                bool packed, const float *decay, int end, int add);
/* Add what the keys of the chunk give. */
void linear_forward_intra_chunk(const struct linear *x, const struct feature_chunk *c,
                                struct linear_forward_scratch *r);
/* Divide the rows and store them; saved may be NULL. */
void linear_forward_store(const struct linear *x, const struct feature_chunk *c,
                          float *saved, struct linear_forward_scratch *r);
/* decay[64] of the sums before a chunk (NULL where nothing decays), and after it. */
const float *linear_forward_decay_before(const struct linear        *x,
                                         const struct feature_chunk *c, float *decay);
const float *linear_forward_decay_after(const struct linear        *x,
                                        const struct feature_chunk *c, float *decay);
/* A causal chunk: its rows from sums r->s and its own keys, then its keys into r->s. */
void linear_forward_causal_chunk(const struct linear *x, const struct feature_chunk *c,
                                 float *saved, struct linear_forward_scratch *r);

/* linear_forward_segments.c: the three phases, of head h and segment i of all, or of a
 * sequence. */
void linear_forward_sum_segment(const struct linear_forward_pass *p, int64_t h,
                                int64_t i, struct linear_forward_scratch *r);
void linear_forward_join_segments(const struct linear_forward_pass *p, int64_t h,
                                  int64_t seq, struct linear_forward_scratch *r);
void linear_forward_segment(const struct linear_forward_pass *p, int64_t h, int64_t i,
                            struct linear_forward_scratch *r);

/* Chunks of a decoding step of many tokens: sums before the chunk, and the chunk's
 * own. */
struct linear_prefill {
    struct linear_sums             before, added;
    struct linear_forward_scratch *scratch;
};
struct linear_prefill linear_prefill_carve(const struct linear *x, struct arena *a);
/* Rescale `before` to units that hold the keys of the chunk, and write its rows, if it
 * has queries.  false: nothing was done, and the chunk has to be split. */
bool linear_prefill_chunk(const struct linear *x, const struct feature_chunk *c,
                          struct linear_prefill *s);
/* After that: added = the sums over the chunk's keys alone. */
void linear_prefill_sums(const struct linear *x, const struct feature_chunk *c,
                         struct linear_prefill *s);

#endif
