/* run_layer_step.c -- foci run --step of a layer: every sequence has a state, and a step
 * takes the next row of all that still have one.  Rows of a memory go before, and
 * their outputs are discarded.  The pool grows as states need pages. */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

struct layer_steps {
    struct run_verb *r;
    foci_pool       *pool;
    foci_state     **states, **now; /* [batch] all, and those of a step */
    int64_t         *which;         /* [batch] which these are */
    char            *x, *y;         /* rows of a step */
    int32_t         *words;
    void            *work, *precomputed;
    size_t           row; /* bytes */
};

static int refuse(const struct layer_steps *s, foci_status status)
{
    return library_error(s->r->a, s->r->ctx, status, s->r->spec);
}

/* In a tensor of `len` rows. */
static size_t offset(const struct layer_steps *s, int64_t b, int64_t len, int64_t row)
{
    return (size_t)(b * len + row) * s->row;
}

static int64_t length(const struct layer_steps *s, int64_t b)
{
    return s->r->len_q.ints ? s->r->len_q.ints[b] : s->r->p.len_q;
}

/* Rows `at` of the sequences that have one, to be taken in one step; those of the memory
 * are counted from below zero. */
static int64_t gather(struct layer_steps *s, int64_t at)
{
    const struct run_verb   *r = s->r;
    const struct run_tensor *from = at < 0 ? &r->memory : &r->x;
    const int64_t            len = from->axes[2], row = at < 0 ? at + len : at;
    int64_t                  n = 0;

    for (int64_t b = 0; b < r->p.batch; b++) {
        if (at >= length(s, b)) continue;
        memcpy(s->x + (size_t)n * s->row,
               (const char *)from->data + offset(s, b, len, row), s->row);
        if (r->words.ints) s->words[n] = r->words.ints[b * r->p.len_q + at];
        s->now[n] = s->states[b];
        s->which[n++] = b;
    }
    return n;
}

static int one_step(struct layer_steps *s, int64_t at)
{
    struct run_verb         *r = s->r;
    const int64_t            n = gather(s, at);
    const foci_layer_step_io io = {
        FOCI_SIZED(foci_layer_step_io),
        .states = s->now,
        .n_states = n,
        .x = s->x,
        .y = s->y,
        .words = r->words.ints ? s->words : NULL,
        .params = r->params,
        .work = s->work,
        .precomputed = s->precomputed,
    };

    foci_status status = n ? foci_layer_step(r->layer, s->pool, &io) : FOCI_OK;
    while (status == FOCI_ERR_FULL) {
        status = foci_pool_grow(s->pool, n);
        if (!status) status = foci_layer_step(r->layer, s->pool, &io);
    }
    if (status) return refuse(s, status);
    for (int64_t i = 0; i < n && at >= 0; i++)
        memcpy((char *)r->o.data + offset(s, s->which[i], r->p.len_q, at),
               s->y + (size_t)i * s->row, s->row);
    return EXIT_OK;
}

static int make_steps(struct layer_steps *s)
{
    struct run_verb *r = s->r;
    const int64_t    batch = r->p.batch;
    const size_t     n = (size_t)batch;

    s->row = (size_t)r->p.dim_x * foci_dtype_bytes(r->p.dtype);
    s->states = need(n, sizeof(foci_state *));
    s->now = need(n, sizeof(foci_state *));
    s->which = need(n, sizeof *s->which);
    s->x = need(n, s->row);
    s->y = need(n, s->row);
    s->words = need(n, sizeof *s->words);
    foci_status status = foci_pool_create(run_heads(r), batch, &s->pool);
    for (int64_t b = 0; b < batch && !status; b++)
        status = foci_state_create(s->pool, &s->states[b]);
    s->precomputed = need(foci_layer_precompute_bytes(r->layer), 1);
    if (!status) status = foci_layer_precompute(r->layer, r->params, s->precomputed);
    if (status) return refuse(s, status);
    s->work = need(
        foci_layer_step_work_bytes(r->layer, s->pool, batch, batch, r->p.len_k), 1);
    return EXIT_OK;
}

static void free_steps(struct layer_steps *s)
{
    void *const blocks[] = { s->states, s->now,   s->which, s->x,
                             s->y,      s->words, s->work,  s->precomputed };

    for (int64_t b = 0; b < s->r->p.batch; b++)
        foci_state_free(s->states[b]);
    foci_pool_free(s->pool);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

int run_layer_steps(struct run_verb *r)
{
    struct layer_steps s = { .r = r };
    struct progress    p;

    if (r->p.memory && r->words.path)
        return usage_error(r->a, "--step: rows of --memory have no words");
    int code = make_steps(&s);
    progress_begin(&p, r->a, "tokens", r->p.memory + r->p.len_q);
    for (int64_t at = -r->p.memory; at < r->p.len_q && !code; at++) {
        progress_tick(&p, at + r->p.memory, r->spec);
        code = one_step(&s, at);
    }
    progress_end(&p);
    free_steps(&s);
    return code;
}
