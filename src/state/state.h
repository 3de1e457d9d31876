/* state.h -- sequences that are decoded step by step, and the pages they share.
 *
 * A page has PAGE rows of keys and of values of every key/value head.  A stream is a
 * growing list of rows in pages: the tokens of a sequence, or slots that stand for many
 * of them.  Pages are reference counted and copied before they are written if another
 * stream holds them.  Whatever else a stage keeps of a sequence belongs to its engine
 * (struct decoder).
 *
 * A step reserves all pages and grows all tables before it changes anything, so a step
 * that fails leaves every state as it was.
 */
#ifndef FOCI_STATE_H
#define FOCI_STATE_H

#include "plan/plan.h"

enum { PAGE = FOCI_PAGE };

struct page {
    char   *data;
    int64_t refs; /* streams that hold it; 0: free */
    int64_t next; /* the next free page, -1: none */

    /* While step number `step` counts the pages it needs: streams that will write into this
     * page. */
    int64_t writers, step;
};

struct slab { /* pages allocated together */
    char   *data;
    int64_t pages;
};

/* The rows of a stage in a page: for each key/value head `sets` times PAGE rows of
 * keys, then PAGE rows of values, in the dtype of the tensors.  Keys are stored as they
 * go into scores.  There is one set of keys; none where logits do not come from keys;
 * and one for each query head of the key/value head where query heads have keys of
 * their own.  Query heads that have values of their own count as key/value heads. */
struct page_part {
    size_t  at, head_bytes; /* offset in the page; head_bytes 0: there are no rows */
    int64_t sets, kv_heads;
    int64_t dim_qk; /* of keys as stored */
};

struct foci_pool {
    const foci_plan  *plan;
    struct page_part *parts;                   /* [groups] */
    size_t            page_bytes, inner_bytes; /* of a page, here and in inner pools */
    void            **own; /* [groups] data of engines that all states share */

    struct page *pages;
    int64_t      n_pages, n_free, first_free;
    struct slab *slabs;
    int64_t      n_slabs;

    int64_t steps;    /* begun so far */
    int64_t reserved; /* pages that this step will take, of an inner pool */

    char  *scratch; /* of decoder.append */
    size_t scratch_bytes;
};

/* Rows tile PAGE to tile PAGE + PAGE - 1 of a stream are in this page. */
struct page_entry {
    int64_t tile, page;
};

/* Pages whose rows will not be read again are missing from the entries. */
struct stream {
    struct page_entry *entries; /* [n], in order of tiles */
    int64_t            n, cap;
    int64_t            rows;  /* appended so far */
    int64_t            first; /* tiles before this one may be missing */
};

struct foci_state {
    foci_pool    *pool;
    int64_t       len;
    struct stream tokens;
    void        **own;     /* [groups] */
    bool          in_step; /* while a step checks that no state is given twice */
};

/* Keys of a set, and values, of key/value head kv of group g in a page. */
static inline char *pool_keys(const foci_pool *pool, int g, int64_t page, int64_t kv,
                              int64_t set)
{
    const foci_problem     *p = &pool->plan->p;
    const struct page_part *t = &pool->parts[g];

    return pool->pages[page].data + t->at + (size_t)kv * t->head_bytes +
           (size_t)(set * PAGE * t->dim_qk) * foci_dtype_bytes(p->dtype);
}

static inline char *pool_values(const foci_pool *pool, int g, int64_t page, int64_t kv)
{
    return pool_keys(pool, g, page, kv, pool->parts[g].sets);
}

/* pool.c: start to count the pages of a step. */
void pool_begin(foci_pool *pool);
/* A free page, of which there must be one, with one reference; add and drop a
 * reference. */
int64_t pool_alloc_page(foci_pool *pool);
void    pool_ref_page(foci_pool *pool, int64_t page);
void    pool_unref_page(foci_pool *pool, int64_t page);

/*
 * Streams (stream.c)
 */

/* Grow the table for `rows` more rows, and add to *pages how many pages they will take,
 * a copy of the last page included where it is shared.  To be called after
 * pool_begin(), once for each stream that a step extends. */
foci_status stream_reserve(foci_pool *pool, struct stream *s, int64_t rows,
                           int64_t *pages);
/* Append rows, which the caller then writes.  They must have been reserved. */
void stream_extend(foci_pool *pool, struct stream *s, int64_t rows);
/* The page of a tile; -1: it is missing. */
int64_t stream_page(const struct stream *s, int64_t tile);
/* Truncate to the first `rows` rows. */
void stream_cut(foci_pool *pool, struct stream *s, int64_t rows);
/* Drop pages all of whose rows are before `first`, except those `needed` (NULL:
 * none). */
void stream_drop(foci_pool *pool, struct stream *s, int64_t first,
                 bool (*needed)(const foci_plan *plan, foci_range rows));
/* Share all pages of `from`.  `to` must be empty. */
foci_status stream_copy(foci_pool *pool, const struct stream *from, struct stream *to);
void        stream_free(foci_pool *pool, struct stream *s);
size_t      stream_bytes(const foci_pool *pool, const struct stream *s);

/* A saved state being written, or only counted where `to` is NULL. */
struct state_writer {
    char  *to;
    size_t at;
};
struct state_reader {
    const char *from;
    size_t      at, bytes;
};
/* FOCI_ERR_ARG, with the message for data that no pool like this one has saved. */
foci_status state_damaged(const foci_pool *pool);
void        write_bytes(struct state_writer *w, const void *data, size_t n);
/* false: fewer than n bytes are left. */
bool read_bytes(struct state_reader *r, void *data, size_t n);

/* Save and restore the rows of groups g0 to g1 - 1.  Restoring refuses data that is
 * inconsistent: there have to be `rows` rows, and none from row `keep` on may be
 * missing. */
void        stream_save(const foci_pool *pool, const struct stream *s, int g0, int g1,
                        struct state_writer *w);
foci_status stream_restore(foci_pool *pool, struct stream *s, int g0, int g1,
                           int64_t rows, int64_t keep, struct state_reader *r);

/* state.c: the first token that some stage still needs for tokens from n on; whether a
 * stage needs one of these rows for ever. */
int64_t state_first_key(const foci_plan *plan, int64_t n);
bool    state_pinned(const foci_plan *plan, foci_range rows);
/* Whether foci_state_truncate() would succeed; if not, with the message why. */
foci_status state_check_truncate(foci_state *state, int64_t len);

/*
 * Steps
 */

/* The new tokens of one sequence in a step. */
struct step_seq {
    foci_state *state;
    int64_t     row0;   /* its first row in q, k, v and o */
    int64_t     tokens; /* new ones, already in the state */
};

struct state_step {
    foci_pool          *pool;
    const foci_step_io *io;
    struct step_seq    *seqs;
    int64_t             n_seqs;
    int64_t             max_tokens; /* of one sequence */
    int64_t kv0, kv_step; /* key/value head h of the plan is head kv0 + h kv_step in the
                           * rows of k and v */
};

/* The functions of an engine for decoding stage g.  All but `step` may be NULL: there is
 * nothing to do. */
struct decoder {
    bool paged; /* rows of keys and values lie in the stage's part of the pages */

    /* Data that all states of a pool share, in pool->own[g].  pool_grow adds so many pages
     * of tokens; pool_pages returns how many of these are free. */
    foci_status (*pool_make)(foci_pool *pool, int g);
    foci_status (*pool_grow)(foci_pool *pool, int g, int64_t pages);
    int64_t (*pool_pages)(const foci_pool *pool, int g);
    void (*pool_free)(foci_pool *pool, int g);

    /* Data of the stage for one sequence, in state->own[g].  copy and restore fill a new
     * one.  free also accepts one that was never made. */
    foci_status (*make)(foci_state *state, int g);
    foci_status (*copy)(const foci_state *from, foci_state *to, int g);
    void (*free)(foci_state *state, int g);
    size_t (*bytes)(const foci_state *state, int g);
    void (*save)(const foci_state *state, int g, struct state_writer *w);
    foci_status (*restore)(foci_state *state, int g, struct state_reader *r);

    /* Truncate to the first `len` tokens, or say why not; only a check unless `really`.
     * Never refused with len 0.  The stream of tokens is truncated afterwards. */
    foci_status (*truncate)(foci_state *state, int g, int64_t len, bool really);

    /* A step, in this order.
     * check: check io for what the stage needs; without io->o tokens are only appended.
     * reserve: grow tables for so many more tokens, and add to *pages the pages of the
     * pool that they will take; nothing visible changes.
     * append: store the rows of the tokens, for which the stream of tokens has been
     * extended, and update what depends on them; pool->scratch has append_bytes.
     * step: compute the outputs, with work memory of step_bytes (NULL: append_bytes).
     * drop: release what no token from state->len on needs. */
    foci_status (*check)(const foci_pool *pool, int g, const foci_step_io *io);
    foci_status (*reserve)(foci_state *state, int g, int64_t tokens, int64_t *pages);
    size_t (*append_bytes)(const foci_pool *pool, int g);
    void (*append)(const struct state_step *step, int g);
    size_t (*step_bytes)(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len);
    void (*step)(const struct state_step *step, int g, struct arena work);
    void (*drop)(foci_state *state, int g);
};

static inline const struct decoder *decoder_of(const foci_plan *plan, int g)
{
    return plan->stages[g].decoder;
}

/* engine/exact/decode/exact_step.c and so on. */
extern const struct decoder exact_decoder, linear_decoder, positional_decoder,
    memformer_decoder, routed_decoder, two_pass_decoder;

/* step.c: the parts of a step, for engines that step other plans: work memory of stage
 * g; decoder.reserve, decoder.append and decoder.drop of all stages. */
size_t      step_scratch(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len);
foci_status state_reserve(foci_state *s, int64_t tokens, int64_t *pages);
void        step_append(struct state_step *step);
void        state_drop(foci_state *s);

/*
 * Pools and states inside others (inner.c), of engines that step other plans.  pool->own[g]
 * starts with a struct inner_pools, and state->own[g] is an array of as many states.  The
 * functions are those of a decoder.
 */

struct inner_pools {
    foci_pool **pool; /* [n] */
    int64_t     n;
};

static inline foci_pool *inner_pool(const foci_pool *pool, int g, int64_t i)
{
    return ((const struct inner_pools *)pool->own[g])->pool[i];
}

static inline foci_state *inner_state(const foci_state *state, int g, int64_t i)
{
    return ((foci_state **)state->own[g])[i];
}

/* A pool for each of n plans, which stay the caller's. */
foci_status inner_pools_make(foci_pool *pool, int g, const foci_plan *const *plans,
                             int64_t n);
void        inner_pools_free(foci_pool *pool, int g);
foci_status inner_pools_grow(foci_pool *pool, int g, int64_t pages);
int64_t     inner_pools_pages(const foci_pool *pool, int g);
foci_status inner_make(foci_state *state, int g);
foci_status inner_copy(const foci_state *from, foci_state *to, int g);
void        inner_free(foci_state *state, int g);
size_t      inner_bytes(const foci_state *state, int g);
void        inner_save(const foci_state *state, int g, struct state_writer *w);
foci_status inner_restore(foci_state *state, int g, struct state_reader *r);
foci_status inner_truncate(foci_state *state, int g, int64_t len, bool really);
/* The check of the inner plans, to be called by the engine's own check. */
foci_status inner_check(const foci_pool *pool, int g, const foci_step_io *io);
foci_status inner_reserve(foci_state *state, int g, int64_t tokens, int64_t *pages);
void        inner_drop(foci_state *state, int g);
/* The step of inner plan i; seqs [step->n_seqs] are the caller's. */
struct state_step inner_step(const struct state_step *step, int g, int64_t i,
                             struct step_seq *seqs);

#endif
