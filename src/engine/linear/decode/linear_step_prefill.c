/* linear_step_prefill.c -- many new tokens at once, in chunks of the forward pass that
 * start from the sums of a state.
 *
 * A chunk is summed in f32 and then added to the doubles of the state, so a long prompt
 * rounds no more than one chunk does.  Chunks start at the first new token, whatever
 * its position.
 */
#include <math.h>
#include <string.h>

#include "engine/linear/decode/linear_step.h"

/* Rows of a step are [row][head][dim].  Key/value heads may be some of those there. */
void linear_step_prefill_open(struct linear_step *s)
{
    const struct state_step *step = s->step;
    const foci_step_io      *io = step->io;
    struct linear           *x = &s->x;
    foci_problem            *p = &s->p;
    const size_t             el = foci_dtype_bytes(x->plan->p.dtype);

    *p = x->plan->p;
    p->q = (foci_layout){ .row = p->heads * p->dim_qk, .head = p->dim_qk };
    p->o = (foci_layout){ .row = p->heads * p->dim_v, .head = p->dim_v };
    p->k = (foci_layout){ .row = p->kv_heads * p->dim_qk,
                          .head = step->kv_step * p->dim_qk };
    p->v = (foci_layout){ .row = p->kv_heads * p->dim_v,
                          .head = step->kv_step * p->dim_v };
    x->p = p;
    s->io.q = io->q;
    s->io.k = (const char *)io->k + (size_t)(step->kv0 * p->dim_qk) * el;
    s->io.v = (const char *)io->v + (size_t)(step->kv0 * p->dim_v) * el;
    s->io.o = io->o;
    for (int64_t i = 0; i < step->n_seqs; i++) {
        const struct step_seq *seq = &step->seqs[i];
        const int64_t          before = seq->state->len - seq->tokens;

        x->seqs[i] = (struct linear_seq){ .pos0 = before,
                                          .s = { .q0 = seq->row0,
                                                 .k0 = seq->row0 - before,
                                                 .nq = seq->tokens,
                                                 .nk = seq->state->len } };
    }
}

/* Add the sums of a chunk to the state, and round the result to the sums before the
 * next. */
static void add_to_state(const struct linear_step *s, const struct linear_step_item *i,
                         struct linear_step_scratch *r)
{
    const struct linear   *x = &s->x;
    struct linear_prefill *n = &r->prefill;
    float                 *rows = n->before.rows;

    x->k->carry(i->sums.rows, s->layout.lds, r->retain, n->added.rows, x->ldv, x->m);
    n->before.rows = n->added.rows;
    n->added.rows = rows;
    for (int t = 0; s->layout.has_total && t < x->m; t++) {
        i->sums.total[t] = r->retain[t] * i->sums.total[t] + (double)n->added.total[t];
        n->before.total[t] = (float)i->sums.total[t];
    }
}

/* The sums of the state, rounded to f32. */
static void start(const struct linear_step *s, const struct linear_step_item *i,
                  struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;

    linear_sums_clear(x, r->prefill.before);
    linear_sums_clear(x, r->prefill.added);
    for (int t = 0; t < x->m; t++)
        r->retain[t] = 1;
    for (int t = 0; r->prefill.before.max_log && t < x->m; t++)
        r->prefill.before.max_log[t] = i->sums.max_log[x->logs ? t : 0];
    add_to_state(s, i, r);
}

/* r->retain for the chunk of n tokens, which may have rescaled the sums. */
static void set_retain(const struct linear_step *s, const struct linear_step_item *i,
                       int n, struct linear_step_scratch *r)
{
    const float *max_log = r->prefill.before.max_log;
    const double decay = i->lam < 1 ? pow(i->lam, n) : 1;

    for (int t = 0; t < s->x.m; t++) {
        const float was = max_log ? i->sums.max_log[s->x.logs ? t : 0] : 0;
        r->retain[t] = !max_log || was == max_log[t]
                           ? decay
                           : exp((double)was - (double)max_log[t]);
    }
    if (max_log)
        memcpy(i->sums.max_log, max_log,
               (size_t)(s->x.logs ? s->x.m : 1) * sizeof *max_log);
}

static void do_chunk(const struct linear_step *s, const struct linear_step_item *i,
                     const struct feature_chunk *c, struct linear_step_scratch *r)
{
    const struct linear *x = &s->x;

    for (int64_t h = 0; h < (c->r0 < c->r1 ? i->heads : 1); h++) {
        struct feature_chunk one = *c;

        one.h += h;
        if (linear_prefill_chunk(x, &one, &r->prefill)) continue;
        const struct feature_chunk first = linear_subchunk(c, 0, c->n / 2);
        const struct feature_chunk second = linear_subchunk(c, c->n / 2, c->n);
        do_chunk(s, i, &first, r);
        do_chunk(s, i, &second, r);
        return;
    }
    linear_prefill_sums(x, c, &r->prefill);
    set_retain(s, i, c->n, r);
    add_to_state(s, i, r);
}

int64_t linear_step_prefill(const struct linear_step      *s,
                            const struct linear_step_item *i, bool attend,
                            struct linear_step_scratch *r)
{
    const int64_t        tokens = i->seq->tokens;
    struct feature_chunk c = {
        .seq = &s->x.seqs[i->q], .s = i->q, .h = i->h, .kv = i->kv
    };
    int64_t t = 0;

    if (tokens < PREFILL_TOKENS) return 0;
    start(s, i, r);
    for (; tokens - t >= PREFILL_TOKENS; t += c.n) {
        c.pos = c.seq->pos0 + t;
        c.n = (int)min64(CHUNK, tokens - t);
        c.r1 = attend ? c.n : 0;
        do_chunk(s, i, &c, r);
    }
    return t;
}
