/* state.h -- sequences that are decoded step by step, and the pages they share. */
#ifndef FOCI_STATE_H
#define FOCI_STATE_H

#include "plan/plan.h"

enum { PAGE = FOCI_PAGE };

/* A page holds, for each key/value head, PAGE rows of keys and PAGE rows of values in
 * the dtype of the tensors.  Keys are stored as they go into scores. */
struct page {
    char   *data;
    int64_t refs; /* states that hold it; 0: free */
    int64_t next; /* free page after it, -1: none */
};

struct slab { /* pages allocated together */
    char   *data;
    int64_t pages;
};

struct foci_pool {
    const foci_plan *plan;
    size_t           head_bytes, page_bytes;
    struct page     *pages;
    int64_t          n_pages, n_free, first_free;
    struct slab     *slabs;
    int64_t          n_slabs;
};

struct foci_state {
    foci_pool *pool;
    int64_t    len;
    int64_t   *pages; /* [n_pages] numbers of pages, in order */
    int64_t    n_pages, cap_pages;
    bool       in_step; /* while a step looks for states given twice */
};

/* Where keys and values of head kv of page number `page` lie. */
static inline char *pool_keys(const foci_pool *pool, int64_t page, int64_t kv)
{
    return pool->pages[page].data + (size_t)kv * pool->head_bytes;
}

static inline char *pool_values(const foci_pool *pool, int64_t page, int64_t kv)
{
    const foci_problem *p = &pool->plan->p;
    return pool_keys(pool, page, kv) +
           PAGE * (size_t)p->dim_qk * foci_dtype_bytes(p->dtype);
}

/* pool.c: take a free page, there must be one; hold one more; let go of one. */
int64_t pool_take(foci_pool *pool);
void    pool_hold(foci_pool *pool, int64_t page);
void    pool_drop(foci_pool *pool, int64_t page);

/* state.c: make room for the numbers of n pages. */
foci_status state_reserve(foci_state *state, int64_t n);

/* New tokens of one sequence in a step. */
struct step_seq {
    foci_state *state;
    int64_t     row0;   /* its first row in q, k, v and o */
    int64_t     tokens; /* new ones, already in the state */
};

struct step {
    const foci_pool    *pool;
    const foci_step_io *io;
    struct step_seq    *seqs;
    int64_t             n_seqs;
    int64_t             max_tokens; /* of one sequence */
};

/* exact_step.c: attention of the new tokens to all of their sequences, and the work
 * memory it takes. */
void   exact_step(const foci_plan *plan, const struct stage *s, const struct step *step,
                  struct arena work);
size_t exact_step_bytes(const foci_plan *plan, const struct stage *s, int64_t n_seqs,
                        int64_t tokens, int64_t max_len);

#endif
