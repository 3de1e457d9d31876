/* run_step.c -- foci run --step: the forward pass through decoding states.
 *
 * Every sequence has a state; one step takes the next token of all that still have
 * one.  Keys before the first query are appended beforehand.  The pool grows as states
 * need pages: their number depends on the mechanism.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/run.h"

struct run_steps {
    struct run_verb *r;
    foci_pool       *pool;
    foci_state     **states; /* [batch] */
    int64_t         *len_q, *len_k;
    foci_state     **now; /* states that take part in a step, and which they are */
    int64_t         *which;
    char            *q, *k, *v, *x, *o; /* rows of a step, one after another */
    int32_t         *words;
    void            *work;
};

/* Rows `row` of all heads of sequence b, between a tensor of the file's layout and
 * rows that lie one after another. */
static void move_row(const struct run_verb *r, const struct run_tensor *t, int64_t b,
                     int64_t row, char *packed, bool in)
{
    const size_t bytes = (size_t)t->axes[3] * foci_dtype_bytes(r->p.dtype);

    for (int64_t h = 0; h < t->axes[1]; h++, packed += bytes) {
        const int64_t at = r->rows_first ? (b * t->axes[2] + row) * t->axes[1] + h
                                         : (b * t->axes[1] + h) * t->axes[2] + row;
        char         *mine = (char *)t->data + (size_t)at * bytes;
        memcpy(in ? packed : mine, in ? mine : packed, bytes);
    }
}

static size_t row_bytes(const struct run_verb *r, const struct run_tensor *t)
{
    return (size_t)(t->axes[1] * t->axes[3]) * foci_dtype_bytes(r->p.dtype);
}

static int refuse(const struct run_steps *s, foci_status status)
{
    return library_error(s->r->a, s->r->ctx, status, s->r->a->words[0]);
}

/* Token `at` of the keys of every sequence that has one there, counted from its first
 * key; with the query of the same position once there is one. */
static int one_step(struct run_steps *s, int64_t at, bool attend)
{
    struct run_verb *r = s->r;
    int64_t          n = 0;

    for (int64_t b = 0; b < r->p.batch; b++) {
        const int64_t query = at - (s->len_k[b] - s->len_q[b]);
        if (at >= s->len_k[b] || (query >= 0) != attend) continue;
        if (attend) {
            move_row(r, &r->q, b, query, s->q + (size_t)n * row_bytes(r, &r->q), true);
            move_row(r, &r->x, b, query, s->x + (size_t)n * row_bytes(r, &r->x), true);
        }
        move_row(r, &r->k, b, at, s->k + (size_t)n * row_bytes(r, &r->k), true);
        move_row(r, &r->v, b, at, s->v + (size_t)n * row_bytes(r, &r->v), true);
        if (r->words.ints && query >= 0)
            s->words[n] = r->words.ints[b * r->p.len_q + query];
        s->now[n] = s->states[b];
        s->which[n++] = b;
    }
    const foci_step_io io = {
        FOCI_SIZED(foci_step_io),
        .states = s->now,
        .n_states = n,
        .q = attend ? s->q : NULL,
        .k = s->k,
        .v = s->v,
        .o = attend ? s->o : NULL,
        .params = r->params,
        .work = s->work,
        .x = r->x.data ? s->x : NULL,
        .words = r->words.ints ? s->words : NULL,
    };
    foci_status status = n ? foci_step(s->pool, &io) : FOCI_OK;
    while (status == FOCI_ERR_FULL) {
        status = foci_pool_grow(s->pool, n);
        if (!status) status = foci_step(s->pool, &io);
    }
    if (status) return refuse(s, status);
    for (int64_t i = 0; attend && i < n; i++)
        move_row(r, &r->o, s->which[i],
                 at - (s->len_k[s->which[i]] - s->len_q[s->which[i]]),
                 s->o + (size_t)i * row_bytes(r, &r->o), false);
    return EXIT_OK;
}

static int make_steps(struct run_steps *s)
{
    struct run_verb *r = s->r;
    const int64_t    batch = r->p.batch;
    const size_t     n = (size_t)batch;

    s->states = need(n, sizeof *s->states);
    s->len_q = need(n, sizeof *s->len_q);
    s->len_k = need(n, sizeof *s->len_k);
    s->now = need(n, sizeof *s->now);
    s->which = need(n, sizeof *s->which);
    s->q = need(n, row_bytes(r, &r->q));
    s->k = need(n, row_bytes(r, &r->k));
    s->v = need(n, row_bytes(r, &r->v));
    s->x = need(n, row_bytes(r, &r->x));
    s->o = need(n, row_bytes(r, &r->o));
    s->words = need(n, sizeof *s->words);
    foci_status status = foci_pool_create(r->plan, batch, &s->pool);
    if (status) return refuse(s, status);
    s->work = need(foci_step_work_bytes(s->pool, batch, batch, r->p.len_k), 1);
    for (int64_t b = 0; b < batch; b++) {
        s->len_q[b] = r->len_q.ints ? r->len_q.ints[b] : r->p.len_q;
        s->len_k[b] = r->len_k.ints ? r->len_k.ints[b] : r->p.len_k;
        if (s->len_q[b] > s->len_k[b])
            return failure(
                r->a,
                "--step: sequence %lld has %lld queries and %lld keys: every "
                "query needs a key of its own",
                (long long)b, (long long)s->len_q[b], (long long)s->len_k[b]);
        status = foci_state_create(s->pool, &s->states[b]);
        if (status) return refuse(s, status);
    }
    return EXIT_OK;
}

static void free_steps(struct run_steps *s)
{
    void *const blocks[] = { s->states, s->len_q, s->len_k, s->now, s->which, s->q,
                             s->k,      s->v,     s->x,     s->o,   s->work,  s->words };

    for (int64_t b = 0; s->states && b < s->r->p.batch; b++)
        foci_state_free(s->states[b]);
    foci_pool_free(s->pool);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]);
}

int run_steps(struct run_verb *r)
{
    struct run_steps s = { .r = r };
    struct progress  p;

    int code = make_steps(&s);
    progress_begin(&p, r->a, "tokens", r->p.len_k);
    for (int64_t at = 0; at < r->p.len_k && !code; at++) {
        progress_tick(&p, at, r->spec);
        code = one_step(&s, at, false);
        if (!code) code = one_step(&s, at, true);
    }
    progress_end(&p);
    free_steps(&s);
    return code;
}
