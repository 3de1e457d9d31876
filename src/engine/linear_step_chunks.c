/* linear_step_chunks.c -- many new tokens at once: the chunks of the forward pass, from
 * the sums of a state and back to them.
 *
 * What a chunk adds is summed in floats and added to the doubles of the state, so that a
 * long prompt loses no more than one chunk does.  Chunks start at the first new token,
 * wherever that stands.
 */
#include <math.h>
#include <string.h>

#include "engine/linear_step.h"

/* Rows of a step are [row][head][dim].  Key/value heads may be some of those there. */
void step_chunks_open(struct stepping *s)
{
    const struct step  *step = s->step;
    const foci_step_io *io = step->io;
    struct linear      *x = &s->x;
    foci_problem       *p = &s->p;
    const size_t        el = foci_dtype_bytes(x->plan->p.dtype);

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

/* Add `more` to the state, and its sums back as those before the next chunk. */
static void settle(const struct stepping *s, const struct item *i, struct step_room *r)
{
    const struct linear *x = &s->x;
    struct scan         *n = &r->scan;
    float               *rows = n->before.rows;

    x->k->carry(i->set.rows, s->set.lds, r->keep, n->more.rows, x->ldv, x->m);
    n->before.rows = n->more.rows;
    n->more.rows = rows;
    for (int t = 0; s->set.has_total && t < x->m; t++) {
        i->set.total[t] = r->keep[t] * i->set.total[t] + (double)n->more.total[t];
        n->before.total[t] = (float)i->set.total[t];
    }
}

/* The sums of the state as they are. */
static void start(const struct stepping *s, const struct item *i, struct step_room *r)
{
    const struct linear *x = &s->x;

    linear_sums_clear(x, r->scan.before);
    linear_sums_clear(x, r->scan.more);
    for (int t = 0; t < x->m; t++)
        r->keep[t] = 1;
    for (int t = 0; r->scan.before.top && t < x->m; t++)
        r->scan.before.top[t] = i->set.top[x->logs ? t : 0];
    settle(s, i, r);
}

/* How much of the state is left after the chunk, which may have moved units. */
static void set_keep(const struct stepping *s, const struct item *i, int n,
                     struct step_room *r)
{
    const float *top = r->scan.before.top;
    const double fade = i->lam < 1 ? pow(i->lam, n) : 1;

    for (int t = 0; t < s->x.m; t++) {
        const float was = top ? i->set.top[s->x.logs ? t : 0] : 0;
        r->keep[t] = !top || was == top[t] ? fade : exp((double)was - (double)top[t]);
    }
    if (s->x.logs)
        memcpy(i->set.top, top, (size_t)s->x.m * sizeof *top);
    else if (top)
        *i->set.top = *top;
}

static void do_chunk(const struct stepping *s, const struct item *i,
                     const struct chunk *c, struct step_room *r)
{
    const struct linear *x = &s->x;

    for (int64_t h = 0; h < (c->r0 < c->r1 ? i->heads : 1); h++) {
        struct chunk one = *c;

        one.h += h;
        if (linear_scan(x, &one, &r->scan)) continue;
        const struct chunk first = linear_piece(c, 0, c->n / 2);
        const struct chunk second = linear_piece(c, c->n / 2, c->n);
        do_chunk(s, i, &first, r);
        do_chunk(s, i, &second, r);
        return;
    }
    linear_scan_absorb(x, c, &r->scan);
    set_keep(s, i, c->n, r);
    settle(s, i, r);
}

int64_t step_chunks(const struct stepping *s, const struct item *i, bool attend,
                    struct step_room *r)
{
    const int64_t tokens = i->seq->tokens;
    struct chunk  c = { .seq = &s->x.seqs[i->q], .s = i->q, .h = i->h, .kv = i->kv };
    int64_t       t = 0;

    if (tokens < MANY) return 0;
    start(s, i, r);
    for (; tokens - t >= MANY; t += c.n) {
        c.pos = c.seq->pos0 + t;
        c.n = (int)min64(CHUNK, tokens - t);
        c.r1 = attend ? c.n : 0;
        do_chunk(s, i, &c, r);
    }
    return t;
}
