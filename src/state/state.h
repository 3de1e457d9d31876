/* state.h -- sequences that are decoded step by step, and the pages they share.
 *
 * A page has PAGE rows of keys and of values of every key/value head.  Streams of rows
 * lie in pages: the tokens of a sequence, and slots that stand for many of them.  What
 * else a stage keeps of a sequence belongs to its engine, by the functions of a
 * struct decoder.
 */
#ifndef FOCI_STATE_H
#define FOCI_STATE_H

#include "plan/plan.h"

enum { PAGE = FOCI_PAGE };

struct page {
    char   *data;
    int64_t refs; /* streams that hold it; 0: free */
    int64_t next; /* free page after it, -1: none */

    /* While a step counts what it needs: streams that will write into it, of the step
     * of that number. */
    int64_t writers, step;
};

struct slab { /* pages allocated together */
    char   *data;
    int64_t pages;
};

/* Where a stage has its rows in a page: for each key/value head `sets` times PAGE rows
 * of keys, one set, none where logits do not come from keys or, where query heads have
 * keys of their own, one for each of its heads, and PAGE rows of values, in the dtype of
 * the tensors.  Keys are stored as they go into scores.  Where query heads have values of
 * their own too, all are key/value heads. */
struct page_part {
    size_t  at, head_bytes; /* head_bytes 0: it has none */
    int64_t sets, kv_heads;
    int64_t dim_qk; /* of keys as they are stored */
};

struct foci_pool {
    const foci_plan  *plan;
    size_t            page_bytes, inner_bytes; /* of a page, here and in pools inside */
    struct page_part *parts;                   /* [groups] */
    void            **own; /* [groups] what engines keep for all states together */
    struct page      *pages;
    int64_t           n_pages, n_free, first_free;
    int64_t      promised; /* of a pool inside another: pages that a step will take */
    int64_t      steps;    /* begun so far */
    struct slab *slabs;
    int64_t      n_slabs;
    char        *scratch; /* of append */
    size_t       scratch_bytes;
};

/* Rows in pages.  A page whose rows nobody will read again is dropped. */
struct held {
    int64_t tile, page; /* rows from tile * PAGE on are in that page */
};

struct stream {
    struct held *held; /* [n], by tile */
    int64_t      n, cap;
    int64_t      rows;  /* all that were appended */
    int64_t      first; /* tiles before this one may be missing */
};

struct foci_state {
    foci_pool    *pool;
    int64_t       len;
    struct stream tokens;
    void        **own;     /* [groups] */
    bool          in_step; /* while a step looks for states given twice */
};

/* Where keys (of a set) and values of head kv, counted in its group g, lie in a page. */
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

/* pool.c: a step begins to count its pages. */
void pool_begin(foci_pool *pool);
/* Take a free page, there must be one; hold one more; let go of one. */
int64_t pool_take(foci_pool *pool);
void    pool_hold(foci_pool *pool, int64_t page);
void    pool_drop(foci_pool *pool, int64_t page);

/*
 * Streams (stream.c)
 */

/* Pages that `rows` more rows will take (a page that others hold too is copied before
 * it is written into), after making room for their numbers.  Once for each stream that a
 * step extends, after pool_begin(). */
foci_status stream_reserve(foci_pool *pool, struct stream *s, int64_t rows,
                           int64_t *pages);
/* So many more rows, whose contents are the caller's to write.  Reserve first. */
void stream_extend(foci_pool *pool, struct stream *s, int64_t rows);
/* The page of a tile; -1: it was dropped. */
int64_t stream_page(const struct stream *s, int64_t tile);
/* Keep the first `rows` rows only. */
void stream_cut(foci_pool *pool, struct stream *s, int64_t rows);
/* Drop whole pages of rows before `first`, but those that are needed (NULL: none). */
void stream_drop(foci_pool *pool, struct stream *s, int64_t first,
                 bool (*needed)(const foci_plan *plan, foci_range rows));
/* `to` must be empty. */
foci_status stream_copy(foci_pool *pool, const struct stream *from, struct stream *to);
void        stream_free(foci_pool *pool, struct stream *s);
size_t      stream_bytes(const foci_pool *pool, const struct stream *s);

/* Bytes one after another: written, or only counted where `to` is NULL. */
struct writer {
    char  *to;
    size_t at;
};
struct reader {
    const char *from;
    size_t      at, bytes;
};
/* FOCI_ERR_ARG, with the sentence for what is not a state saved on such a pool. */
foci_status state_damaged(const foci_pool *pool);
void        write_bytes(struct writer *w, const void *data, size_t n);
/* false: there are too few. */
bool read_bytes(struct reader *r, void *data, size_t n);

/* The rows of groups g0 to g1 - 1.  Reading refuses what makes no sense; `rows` is how
 * many there have to be, and none from `keep` on may be missing. */
void        stream_save(const foci_pool *pool, const struct stream *s, int g0, int g1,
                        struct writer *w);
foci_status stream_restore(foci_pool *pool, struct stream *s, int g0, int g1,
                           int64_t rows, int64_t keep, struct reader *r);

/* state.c: the first token that some stage still needs for tokens from n on, and
 * whether one of these is needed for ever. */
int64_t state_keep(const foci_plan *plan, int64_t n);
bool    state_holds(const foci_plan *plan, foci_range rows);
/* Whether foci_state_truncate() would do it; if not, the reason is told. */
foci_status state_check_cut(foci_state *state, int64_t len);

/*
 * Steps
 */

/* New tokens of one sequence in a step. */
struct step_seq {
    foci_state *state;
    int64_t     row0;   /* its first row in q, k, v and o */
    int64_t     tokens; /* new ones, already in the state */
};

struct step {
    foci_pool          *pool;
    const foci_step_io *io;
    struct step_seq    *seqs;
    int64_t             n_seqs;
    int64_t             max_tokens; /* of one sequence */
    int64_t kv0, kv_step; /* key/value head h of the plan is number kv0 + h kv_step of
                           * those in k and v */
};

/* What an engine does for decoding.  g is the number of the stage.  A function that is
 * NULL is not needed; step must be there. */
struct decoder {
    bool paged; /* rows of keys and values lie in the stage's part of the pages */

    /* What all states of a pool share, in pool->own[g]; grow makes room for that many
     * pages more of tokens, and pages tells how many of them are free. */
    foci_status (*pool_make)(foci_pool *pool, int g);
    foci_status (*pool_grow)(foci_pool *pool, int g, int64_t pages);
    int64_t (*pool_pages)(const foci_pool *pool, int g);
    void (*pool_free)(foci_pool *pool, int g);

    /* What it keeps of one sequence, in state->own[g].  copy and restore fill one that
     * was made and is empty.  free takes one that was not made, too. */
    foci_status (*make)(foci_state *state, int g);
    foci_status (*copy)(const foci_state *from, foci_state *to, int g);
    void (*free)(foci_state *state, int g);
    size_t (*bytes)(const foci_state *state, int g);
    void (*save)(const foci_state *state, int g, struct writer *w);
    foci_status (*restore)(foci_state *state, int g, struct reader *r);

    /* The first `len` tokens alone, or why not; changes something only if `really`,
     * and is never refused where len is 0.  The stream of tokens is still whole. */
    foci_status (*truncate)(foci_state *state, int g, int64_t len, bool really);

    /* A step, in this order.  check: what it needs of io, which may be append only.
     * reserve: make room for so many tokens more and add the pages of the pool that
     * they will take to *pages; nothing that can be seen changes.  append: the rows of
     * the tokens, for which the stream of tokens has room, and what follows from them;
     * pool->scratch has append_bytes.  step: attend, with scratch memory of step_bytes
     * (NULL: as much as an append takes, whatever the step).  drop: what no token from
     * state->len on needs.  */
    foci_status (*check)(const foci_pool *pool, int g, const foci_step_io *io);
    foci_status (*reserve)(foci_state *state, int g, int64_t tokens, int64_t *pages);
    size_t (*append_bytes)(const foci_pool *pool, int g);
    void (*append)(const struct step *step, int g);
    size_t (*step_bytes)(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len);
    void (*step)(const struct step *step, int g, struct arena work);
    void (*drop)(foci_state *state, int g);
};

/* Of stage g. */
static inline const struct decoder *decoder_of(const foci_plan *plan, int g)
{
    return engine_of(&plan->stages[g])->decoder;
}

/* engine/exact_step.c and so on. */
extern const struct decoder exact_decoder, linear_decoder, positional_decoder,
    recall_decoder, routes_decoder, second_decoder;

/* step.c: the parts of a step, for engines that make steps of other plans.  Scratch memory
 * of stage g; room for so many tokens more, as decoder.reserve; tokens into all that a
 * state holds; what tokens to come do not need. */
size_t      step_scratch(const foci_pool *pool, int g, int64_t n_seqs, int64_t tokens,
                         int64_t max_len);
foci_status state_reserve(foci_state *s, int64_t tokens, int64_t *pages);
void        step_append(struct step *step);
void        state_drop(foci_state *s);

/*
 * Pools and states inside others (inner.c), of engines that run other plans.  pool->own
 * starts with a struct inner_pools, state->own is an array of as many states.  These
 * serve as functions of a decoder.
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
void        inner_save(const foci_state *state, int g, struct writer *w);
foci_status inner_restore(foci_state *state, int g, struct reader *r);
foci_status inner_truncate(foci_state *state, int g, int64_t len, bool really);
/* To be called by check: also of the inner plans. */
foci_status inner_check(const foci_pool *pool, int g, const foci_step_io *io);
foci_status inner_reserve(foci_state *state, int g, int64_t tokens, int64_t *pages);
void        inner_drop(foci_state *state, int g);
/* The sequences of a step in states number i; room for them is the caller's. */
struct step inner_step(const struct step *step, int g, int64_t i, struct step_seq *seqs);

#endif
