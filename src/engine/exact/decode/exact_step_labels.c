/* exact_step_labels.c -- decoding: keys that share a label with a query.
 *
 * Tokens of equal label are chained, so a row walks the chains of its labels and no
 * other tokens.  With several rounds its chains are merged from the last token back,
 * and a token that is in several of them appears once.
 */
#include <math.h>
#include <string.h>

#include "engine/exact/decode/exact_step.h"

/*
 * Rows
 */

static const struct label_map *map_of(const struct exact_step *x,
                                      const struct step_piece *p, int row, int64_t round)
{
    const struct exact_state *own = state_of(x, p->b);
    if (x->e.stage->order.label == FOCI_LABEL_PLACE) return &own->maps[round];
    return &own->maps[head_of(x, p, row) * x->rounds + round];
}

void step_label(const struct exact_step *x, const struct step_piece *p, int row,
                struct step_scratch *r)
{
    int32_t      *number = x->labels + row_index(x, p, row) * x->rounds;
    const int64_t pos = position_of(x, p->b, row);

    /* Queries have the labels of keys. */
    if (x->e.stage->order.label == FOCI_LABEL_PLACE || x->e.stage->order.shared_qk) {
        for (int64_t t = 0; t < x->rounds; t++)
            number[t] = map_of(x, p, row, t)->number[pos];
        return;
    }
    step_hash(x, head_of(x, p, row),
              (const char *)x->step->io->q +
                  row_of(x, p, row) * (size_t)x->e.d.q * x->el,
              &r->hash);
    for (int64_t t = 0; t < x->rounds; t++)
        number[t] = labels_find(map_of(x, p, row, t), r->hash.label[t]);
}

/* Start each chain at the last token that the row may see. */
static void start(const struct exact_step *x, const struct step_piece *p, int row,
                  struct step_scratch *r)
{
    const int32_t *number = x->labels + row_index(x, p, row) * x->rounds;
    const int64_t  pos = position_of(x, p->b, row);

    for (int64_t t = 0; t < x->rounds; t++) {
        const struct label_map *m = map_of(x, p, row, t);
        r->chain[t] = number[t] < 0 ? -1 : m->last[number[t]];
        while (r->chain[t] > pos)
            r->chain[t] = m->before[r->chain[t]];
    }
}

/* The next token, from the last to the first, and in how many chains it is; -1: none. */
static int64_t next(const struct exact_step *x, const struct step_piece *p, int row,
                    struct step_scratch *r, int *times)
{
    int32_t at = -1;

    *times = 0;
    for (int64_t t = 0; t < x->rounds; t++)
        if (r->chain[t] > at) at = r->chain[t];
    for (int64_t t = 0; at >= 0 && t < x->rounds; t++)
        if (r->chain[t] == at) {
            r->chain[t] = map_of(x, p, row, t)->before[at];
            ++*times;
        }
    return at;
}

int64_t step_label_count(const struct exact_step *x, const struct step_piece *p,
                         int row, struct step_scratch *r)
{
    const int64_t pos = position_of(x, p->b, row);
    int64_t       n = 0, at;
    bool          self = false;
    int           times;

    start(x, p, row, r);
    while ((at = next(x, p, row, r, &times)) >= 0) {
        if (at == pos) self = true;
        n++;
    }
    return self && x->e.stage->order.shared_qk && n > 1 ? n - 1 : n;
}

static void attend_list(const struct exact_step *x, const struct step_piece *p, int row,
                        struct step_scratch *r, struct step_keys *m)
{
    const foci_pool     *pool = x->step->pool;
    const struct stream *s = &p->b->seq->state->tokens;
    const size_t         k = (size_t)x->e.d.q * x->el, v = (size_t)x->e.d.v * x->el;
    const uint64_t       seen = foci_bits_in((foci_range){ 0, m->n }, 0);

    for (int i = 0; i < m->n; i++) {
        const int64_t page = stream_page(s, m->list[i] / PAGE);
        const size_t  at = (size_t)(m->list[i] % PAGE);
        memcpy(r->keys + (size_t)i * k,
               pool_keys(pool, x->g, page, p->kv, set_of(x, p, row)) + at * k, k);
        memcpy(r->values + (size_t)i * v, pool_values(pool, x->g, page, p->kv) + at * v,
               v);
    }
    step_attend(x, p, r, m, row, 1, &seen);
    m->n = 0;
}

/* Whether a row shares its labels with no other. */
static bool is_alone(const struct exact_step *x, const struct step_piece *p, int row,
                     struct step_scratch *r)
{
    int times;

    start(x, p, row, r);
    int64_t at = next(x, p, row, r, &times);
    if (at == position_of(x, p->b, row)) at = next(x, p, row, r, &times);
    return at < 0;
}

void step_label_attend(const struct exact_step *x, const struct step_piece *p, int row,
                       struct step_scratch *r)
{
    const foci_order *order = &x->e.stage->order;
    const int64_t     pos = position_of(x, p->b, row);
    const bool        hide_self = order->shared_qk && !is_alone(x, p, row, r);
    int64_t           list[PAGE], at;
    float             each[PAGE];
    int               times;
    struct step_keys  m = { .k = r->keys,
                            .v = r->values,
                            .list = list,
                            .each = order->weigh_repeats ? each : NULL };

    start(x, p, row, r);
    while ((at = next(x, p, row, r, &times)) >= 0) {
        if (hide_self && at == pos) continue;
        list[m.n] = at;
        each[m.n++] = log2f((float)times);
        if (m.n == PAGE) attend_list(x, p, row, r, &m);
    }
    if (m.n) attend_list(x, p, row, r, &m);
}
